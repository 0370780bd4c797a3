"""The way from a thread of a synchronous service to one asyncio operation, and back.

The reverse is `offload`. Both are for the edge of a program: inside, a call has one colour.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from timebounds._checks import refuse_second_loop, shown
from timebounds.aio.enforcing import enforcing
from timebounds.bounds.deadline import as_deadline
from timebounds.bounds.errand import name_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from timebounds.bounds.deadline import Deadline

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
    refuse_second_loop("run_async")

    async def main() -> T:
        async with enforcing(deadline):
            awaited = fn(*args)
            if not hasattr(awaited, "__await__"):
                msg = f"fn must be async, and {name_of(fn)} returned {type(awaited).__name__}"
                raise TypeError(f"{msg}: call it without a loop")
            return await awaited

    return asyncio.run(main())
