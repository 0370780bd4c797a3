"""A completion that refuses cancels: one wake-up for any number of them, and none is lost.

`Task.cancel()` asks the future that the task waits for to cancel itself. This one says no and tells
its owner, who asks the work to stop, in the very call of `cancel()` and from whatever thread. The
task remembers the cancel by itself, and delivers it as soon as the completion is done: exactly one
CancelledError, with `cancelling()` untouched.

Where anyio is loaded the first cancel is let through, since its scopes cancel again at every turn
of the loop until the task is shielded from them, and only the task itself can enter a shield.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []

# How long a foreign thread may take from one line of `Task.cancel()` to the next: a second.
_TURNS = 1000
_MOMENT = 0.001


class _Refusing(asyncio.Future[None]):
    """A future whose cancel is refused, after `on_cancel` was told."""

    on_cancel: Callable[[], object]
    lets_through: bool
    told: bool = False

    def cancel(self, msg: Any | None = None) -> bool:
        """Tell the owner and say no; or let the first one through."""
        self.told = True
        self.on_cancel()
        if not self.lets_through or asyncio._get_running_loop() is not self.get_loop():
            # A foreign thread's too: to let it through would touch the loop from there.
            return False
        return super().cancel(msg)


@final
class Hold:
    """Where one task waits until `wake` is called and its work is over."""

    # It keeps neither question nor hook: they are its owner's, who would be held in a cycle.
    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: _Refusing | None = None

    def wake(self) -> None:
        """Let the task look again. In the loop's thread."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(
        self, over: Callable[[], bool], on_cancel: Callable[[], object]
    ) -> asyncio.CancelledError | None:
        """Wait until it is over; return the cancel that came meanwhile, which is not delivered.

        What is no cancel, an interrupt or the end of the coroutine, passes through at once.
        """
        cancelled: asyncio.CancelledError | None = None
        shield: Any = None
        told = False
        try:
            while not over():
                self._future = future = _Refusing()
                future.on_cancel = on_cancel
                future.lets_through = shield is None and _shield() is not None
                try:
                    await future
                except asyncio.CancelledError as error:
                    cancelled = cancelled or error
                    if future.lets_through:
                        shield = _shield()(shield=True)
                        shield.__enter__()
                told = told or future.told
            if told and cancelled is None:
                cancelled = await _on_its_way()
            return cancelled
        finally:
            # The cancel's traceback holds this frame.
            self._future = cancelled = None
            if shield is not None:
                # A coroutine may be closed by another task than the shielded one.
                with suppress(RuntimeError):
                    shield.__exit__(None, None, None)


async def _on_its_way() -> asyncio.CancelledError | None:
    """Take the cancel of a foreign thread that has told its hold already, and not yet the task."""
    for turn in range(_TURNS):
        try:
            await asyncio.sleep(_MOMENT if turn else 0)
        except asyncio.CancelledError as error:
            return error
    return None


def _shield() -> Any:
    """Return anyio's scope where anyio is loaded: looked up, never imported."""
    return getattr(sys.modules.get("anyio"), "CancelScope", None)


def cancel_pending() -> bool:
    """Say whether a cancel of the current task has not been delivered yet."""
    return bool(getattr(asyncio.current_task(), "_must_cancel", False))


def interrupted(loop: asyncio.AbstractEventLoop) -> bool:
    """Say whether the loop is being taken down by an interrupt: nobody wants to wait any more.

    `asyncio.run` then cancels what is left, outside of the loop, while the interrupt is handled.
    """
    return not loop.is_running() and isinstance(sys.exception(), (KeyboardInterrupt, SystemExit))
