"""The way from a thread of a synchronous service to one asyncio operation, and back.

The reverse is `offload`. Both are for the edge of a program: inside, a call has one colour.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from timebounds._checks import refuse_on_loop_thread, shown
from timebounds.aio.enforcing import enforcing
from timebounds.bounds.deadline import Deadline, as_deadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["run_async"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_async(fn: Callable[[*Ts], Awaitable[T]], *args: *Ts, deadline: Deadline) -> T:
    """Run `await fn(*args)` in an event loop of its own, within `deadline`, and return its value.

    For a thread without a running loop; the loop lives as long as the call. It takes a function and
    no coroutine, so that a refused call leaves nothing un-awaited.

    Raises:
        DeadlineExceeded, StopRequested: a bound was reached, before it began or where it waited.
        RuntimeError: an event loop runs on this thread: await the function there.
        Exception: what the function raised.
    """
    as_deadline(deadline)
    if not callable(fn):
        msg = f"fn must be an async function, not {shown(fn)}: write run_async(fn, *args, ...)"
        if hasattr(fn, "close"):
            fn.close()
        raise TypeError(msg)
    refuse_on_loop_thread("run_async", "`await`")

    async def main() -> T:
        async with enforcing(deadline):
            return await fn(*args)

    return asyncio.run(main())
