"""`enforcing`: one deadline for whatever a block of a task awaits.

Rules (A48, A53, D6 of the contracts and cases):
- It cancels the task when the deadline passes, or its stop is requested, and turns that one cancel
  into the error of the bound. A cancel by anybody else goes on; counts are left as they were.
- A cancel that is pending already wins over a bound that is due. A bound that is due on entry runs
  nothing of the block.
- The time is the deadline's clock's, whatever the loop's.
- A block that ends by itself has ended: what it brought is not taken away because it was late.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, final

from timebounds._checks import NS
from timebounds.aio.completion import cancel_pending
from timebounds.bounds.deadline import arm, as_deadline
from timebounds.bounds.waking import tell
from timebounds.errors import BoundReached, DeadlineExceeded, StopRequested

if TYPE_CHECKING:
    from timebounds.bounds.alarm import Alarm
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.stop import Registration

__all__ = ["EnforceReport", "Enforced", "enforcing"]


@final
class Enforced(StrEnum):
    """How a block under a deadline ended."""

    COMPLETED = "completed"
    """By itself, with or without an error of its own, or by somebody else's cancel."""
    DEADLINE_EXPIRED = "deadline_expired"
    STOPPED = "stopped"


_COMPLETED = Enforced.COMPLETED


class EnforceReport(NamedTuple):
    """The unchanging record of one block. Durations in seconds of the deadline's clock."""

    outcome: Enforced
    elapsed: float
    """From the entry to the end."""
    overshoot: float
    """By how much the end was later than the deadline."""


@final
class enforcing:  # noqa: N801  (a context manager reads like a function)
    """Bound what a block awaits: `async with enforcing(deadline):`.

    When the deadline passes the task is cancelled where it waits, and DeadlineExceeded leaves the
    block; a requested stop of the deadline does the same with StopRequested. Works inside and
    around `asyncio.timeout` and `TaskGroup`, and in itself: the error names the bound that fired.

    With `raises=False` nothing leaves the block at a bound, and `report` tells what happened; a
    bound that is due on entry then cancels the block's first wait.

    It cancels tasks, not threads: for those see `offload`. For one task, once.
    """

    __slots__ = (
        "_alarm", "_cancelling", "_deadline", "_due", "_ended", "_failure", "_loop", "_raises",
        "_registration", "_started", "_task",
    )  # fmt: skip

    def __init__(self, deadline: Deadline, *, raises: bool = True) -> None:
        self._deadline = as_deadline(deadline)
        self._raises = raises
        self._task: asyncio.Task[object] | None = None
        self._alarm: Alarm | None = None
        self._registration: Registration | None = None
        self._due: Enforced | None = None
        self._failure: Exception | None = None
        self._ended: tuple[Enforced, int] | None = None

    @property
    def report(self) -> EnforceReport | None:
        """What happened; None before the end of the block."""
        if self._ended is None:
            return None
        outcome, now = self._ended
        late = max(0, now - self._deadline._at) / NS
        return EnforceReport(outcome, (now - self._started) / NS, late)

    async def __aenter__(self) -> enforcing:
        """Begin to enforce.

        Raises:
            DeadlineExceeded, StopRequested: the bound was due already, and no cancel was pending.
        """
        task = asyncio.current_task()
        if task is None:
            msg = "enforcing bounds a task, and none runs here: use it inside a coroutine's task"
            raise RuntimeError(msg)
        if self._task is not None or self._ended is not None:
            msg = "an enforcing block is entered once: write `async with enforcing(deadline):`"
            raise RuntimeError(msg)
        deadline = self._deadline
        stop = deadline._stop
        self._task = task
        self._cancelling = task.cancelling()
        self._started = now = deadline._now()
        if stop is None and now < deadline._at:
            self._alarm = arm(deadline, now, self._look)
            return self
        if cancel_pending():
            # It wins: let it be delivered before a bound is looked at.
            await asyncio.sleep(0)
        self._loop = asyncio.get_running_loop()
        stopped = stop is not None and stop.requested()
        now = deadline._now()
        if stopped or now >= deadline._at:
            due = Enforced.STOPPED if stopped else Enforced.DEADLINE_EXPIRED
            if self._raises:
                self._ended = (due, now)
                raise self._error(due)
            # By the loop: a cancel from within outlives a block that waits for nothing.
            self._alarm = self._loop.call_soon(self._fire, due)
            return self
        self._alarm = arm(deadline, now, self._look)
        if stop is not None:
            self._registration = stop.on_request(self._stop)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool | None:
        """End: turn the cancel of this block's own bound into its error, and nothing else."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._registration is not None:
            self._registration.remove()
        due, task = self._due, self._task
        assert task is not None
        # Whatever is told from now on comes too late.
        self._task = None
        if due is None:
            self._ended = (_COMPLETED, self._deadline._now())
            return False
        ours = task.uncancel() <= self._cancelling and kind is asyncio.CancelledError
        self._ended = (due if ours else _COMPLETED, self._deadline._now())
        if not ours:
            return False
        if self._failure is not None:
            raise self._failure from error
        if not self._raises:
            return True
        raise self._error(due) from error

    def _look(self) -> None:
        """Fire when it is time; a float of seconds may have been some ns short of it."""
        self._failure = getattr(self._alarm, "error", None)
        if self._failure is not None:
            # Without its clock a bound can only be taken for reached.
            self._fire(Enforced.DEADLINE_EXPIRED)
            return
        now = self._deadline._now()
        if now < self._deadline._at:
            self._alarm = arm(self._deadline, now, self._look)
        else:
            self._fire(Enforced.DEADLINE_EXPIRED)

    def _stop(self) -> None:
        """Take a request, in whatever thread."""
        tell(self._loop, self._fire_stop)

    def _fire_stop(self) -> None:
        self._fire(Enforced.STOPPED)

    def _fire(self, due: Enforced) -> None:
        if self._due is None and self._task is not None:
            self._due = due
            self._task.cancel()

    def _error(self, due: Enforced) -> BoundReached:
        deadline, now = self._deadline, self._deadline._now()
        if due is Enforced.STOPPED:
            return StopRequested(deadline._stopped("block", now), report=self.report)
        return DeadlineExceeded(
            deadline._missed("block", max(now, deadline._at)), report=self.report
        )
