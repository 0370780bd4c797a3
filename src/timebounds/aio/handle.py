"""One offload under way, as its caller holds it: it ends the work, waits for it, and judges.

Rules (O1-O6, O8 of the contracts):
- The work may be ended by a cancel, the deadline, a stop, or the scope. Whatever comes first asks
  the function to stop, which releases it; whatever comes then changes nothing.
- Waiting ends with the function's return or, with a finite grace, when that is over.
- A cancel goes out as the one CancelledError that was caught. Only an error that the stop did not
  cause, or that the clean-up raised, beats it.
- An interrupt passes through at once; the work is asked to stop and left to its thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from timebounds._checks import NS
from timebounds.aio.completion import Hold, cancel_pending, interrupted
from timebounds.aio.telling import complain
from timebounds.aio.verdict import conclude
from timebounds.bounds._threads import CARE
from timebounds.bounds.deadline import arm
from timebounds.bounds.waking import tell
from timebounds.errors import Busy
from timebounds.policies.offload_evidence import OffloadOutcome, OffloadReport, report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from timebounds.bounds.alarm import Alarm
    from timebounds.bounds.errand import Errand
    from timebounds.bounds.stop import Registration
    from timebounds.bounds.stop_facts import Stop

__all__ = ["OffloadHandle"]

T = TypeVar("T")

# Real seconds after which waiting for work that was asked to stop is worth a line in the log.
LONG = 2.0

_CANCELLED = OffloadOutcome.CANCELLED
_EXPIRED = OffloadOutcome.DEADLINE_EXPIRED
_STOPPED = OffloadOutcome.STOPPED


@final
class OffloadHandle(Generic[T]):
    """An offload that was started. `await` it, once, for the function's value or its error.

    Cancelling the task that awaits it asks the function to stop and waits for its return.
    """

    __slots__ = (
        "_alarm", "_awaited", "_cancels", "_complaint", "_ended_at", "_ending", "_error",
        "_grace", "_hold", "_loop", "_on_end", "_over_at", "_registration", "_value", "_work",
    )  # fmt: skip

    _work: Errand[T]

    def __init__(
        self,
        work: Errand[T],
        *,
        grace: float | None,
        on_end: Callable[[OffloadHandle[T]], object] | None = None,
    ) -> None:
        self._work = work
        self._grace = grace
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._hold = Hold()
        self._cancels = 0
        self._awaited = False
        self._alarm: Alarm | None = None
        self._complaint: asyncio.TimerHandle | None = None
        self._registration: Registration | None = None
        self._value: tuple[T] | None = None
        self._error: BaseException | None = None
        self._over_at: int | None = None
        self._ended_at = 0
        # What ended it early: first come, and nothing else.
        self._ending: dict[str, tuple[OffloadOutcome]] = {}

    def _launch(self, submit: Callable[[Errand[Any]], object]) -> None:
        """Hand the work in, unless a bound was reached or a cancel is pending already."""
        work = self._work
        try:
            work.tell = self._tell_return
            if work.custody is not None:
                work.custody.enter(work)
            self._registration = work.stop.on_request(self._stopped)
            now = work.now()
            if now >= work.deadline._at:
                self._expire()
            else:
                self._alarm = arm(work.deadline, now, self._expire)
            if cancel_pending():
                self._end(_CANCELLED, "cancelled")
            if not work.over:
                submit(work)
        except BaseException:
            # Not handed in, or handed in and interrupted.
            self._end(_CANCELLED, "interrupted")
            work.withdraw(not_handed_in=True)
            raise

    def _tell_return(self) -> None:
        """Take word, in the work's thread, that it is over."""
        if not tell(self._loop, self._wake):
            # The loop is closed and nobody waits: the record is kept all the same.
            self._take_note()

    def _wake(self) -> None:
        """Look whether it is over, and let whoever waits look too."""
        self._take_note()
        on_end = self._on_end
        if on_end is not None and self._settled():
            on_end(self)
            if self._work.over:
                self._on_end = None
        self._hold.wake()

    def _take_note(self) -> None:
        work = self._work
        if work.over and self._over_at is None:
            self._over_at = work.now()
            self._rest()
            # The work outlives this call in the frames of its error: no cycle.
            self._value, self._error = work.value, work.error
            work.value = work.error = work.tell = None

    def stop(self, reason: str = "") -> Stop:
        """Ask the function to stop, from any thread, and say how that was received.

        Who awaits it gets StopRequested, unless it returns in spite of it.
        """
        return self._work.stop.request(reason)

    def _end(self, cause: OffloadOutcome, reason: str) -> None:
        """End it early, from any thread: withdraw it, or ask it to stop and release it."""
        if not self._work.end_early():
            return
        mine = (cause,)
        first = self._ending.setdefault("by", mine) is mine
        if first:
            self._ended_at = self._work.now()
        if self._work.withdraw() or not first:
            return
        tell(self._loop, self._begin_grace)
        self._work.stop.request(reason)

    @property
    def _cause(self) -> OffloadOutcome | None:
        """What ended it early, if anything did."""
        mine = self._ending.get("by")
        return None if mine is None else mine[0]

    @property
    def _failed(self) -> bool:
        """Whether it ended by an error that is no answer to a stop or a cancel."""
        if self._error is not None and not self._work.stop_caused(self._error):
            return True
        return self._cause is _EXPIRED or (self._work.late and self._cause is None)

    def _settled(self) -> bool:
        return self._over_at is not None or self._work.given_up

    def _expire(self) -> None:
        now = self._work.now()
        if now < self._work.deadline._at:
            # A float of seconds was some ns short of it.
            self._alarm = arm(self._work.deadline, now, self._expire)
        else:
            self._end(_EXPIRED, "deadline")

    def _stopped(self) -> None:
        self._end(_STOPPED, self._work.stop.reason or "")

    def _cancel(self) -> None:
        """A cancel was refused: end the work, in the very call of `cancel()`."""
        self._cancels += 1
        self._end(_CANCELLED, "cancelled")
        if self._work.over:
            # It may be that word of it was lost to an interrupt.
            self._tell_return()
        elif interrupted(self._loop):
            self._give_up()

    def _begin_grace(self) -> None:
        if self._work.over:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._grace is not None:
            # From the request on, however late the loop has come to it.
            left = self._grace - (self._work.now() - self._ended_at) / NS
            if left <= 0.0:
                self._give_up()
                return
            self._alarm = self._work.deadline.clock.alarm(left, self._give_up)
        self._complaint = self._loop.call_later(LONG, complain, self._work)

    def _give_up(self) -> None:
        if self._work.withdraw():
            return
        if not self._work.over and self._work.give_up():
            self._rest()
            tell(self._loop, self._wake)
            complain(self._work)

    def _rest(self) -> None:
        """Nothing is left to watch for, and nothing may hold this any more."""
        for each in (self._alarm, self._complaint):
            if each is not None:
                each.cancel()
        if self._registration is not None:
            self._registration.remove()
        self._alarm = self._complaint = self._registration = None

    # What its caller sees.

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the end; return the value or raise."""
        return self.result().__await__()

    async def result(self) -> T:
        """Wait for the end; return the value or raise.

        Raises:
            DeadlineExceeded: the deadline passed first, `error.report` tells the rest.
            StopRequested: it was stopped. WorkerStuck: and is still inside after its grace.
            CancelledError: the awaiting task was cancelled; once, when all is over.
            Exception: what the function raised, unless the stop caused it; or, where nothing else
                ended the call, a group of what release and close raised.

        A clean-up that fails replaces neither a bound, which notes it, nor a cancel, beside which
        it is logged.
        """
        if self._awaited:
            msg = f"the offload of {self._work.name} is awaited already: its value is one user's"
            raise Busy(msg)
        if asyncio.get_running_loop() is not self._loop:
            msg = f"the offload of {self._work.name} was started in another loop: await it there"
            raise RuntimeError(msg)
        self._awaited = True
        cancelled: asyncio.CancelledError | None = None
        try:
            cancelled = await self._hold.wait(self._settled, self._cancel)
        except BaseException:
            # An interrupt, or nobody runs this coroutine any more.
            self._end(_CANCELLED, "interrupted")
            self._give_up()
            raise
        try:
            # CPython 3.11 traces no line between a cancel that is thrown in and the next await.
            if cancelled is not None and not self._work.late:  # pragma: no branch
                await self._take_late()
            return conclude(self, cancelled)
        finally:
            # The traceback of what is raised holds this frame.
            del self, cancelled

    async def _take_late(self) -> None:
        """A cancel came between the return and its delivery: the value is too late."""
        self._ending.setdefault("by", (_CANCELLED,))
        if self._work.on_late is None or self._value is None:
            return
        over = False
        hold = Hold()

        def done() -> None:
            nonlocal over
            over = True
            hold.wake()

        def take() -> None:
            self._value = self._work.hand_on(self._value)
            if not tell(self._loop, done):
                self._work.log()

        def count() -> None:
            self._cancels += 1

        try:
            CARE.submit(take)
        except RuntimeError:
            take()  # no thread is to be had: better here than never
        alarm = None
        if self._grace is not None:
            alarm = self._work.deadline.clock.alarm(self._grace, done)
        try:
            await hold.wait(lambda: over, count)
        finally:
            if alarm is not None:
                alarm.cancel()

    @property
    def report(self) -> OffloadReport | None:
        """What has happened; None while it is under way."""
        if not self._settled():
            return None
        work, error = self._work, self._error
        if work.never_started:
            outcome = OffloadOutcome.NEVER_STARTED
        elif self._over_at is None:
            outcome = OffloadOutcome.STUCK
        elif self._cause is not None:
            outcome = self._cause
        elif error is not None and not work.stop_caused(error):
            outcome = OffloadOutcome.RAISED
        else:
            outcome = _EXPIRED if work.late else OffloadOutcome.RETURNED
        return report_of(work, outcome, self._cancels, self._over_at, self._value, error)

    def __repr__(self) -> str:
        report = self.report
        return f"<OffloadHandle of {self._work.name}: {report.outcome if report else 'under way'}>"
