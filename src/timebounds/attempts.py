"""The loop form of a retried call, in both colours, and how a retried call gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from timebounds._checks import refuse_on_loop_thread
from timebounds._settled import Raised, Returned
from timebounds.bounds.clock import not_backwards
from timebounds.policies.plan import Pause
from timebounds.policies.retry_evidence import RetryOutcome, RetryReport, attach
from timebounds.policies.retrying import Attempt

if TYPE_CHECKING:
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.plan import Plan
    from timebounds.policies.retrying import Retrying

__all__ = ["Attempts"]

_WHY = {
    RetryOutcome.ATTEMPTS: "no retry is left",
    RetryOutcome.DEADLINE: "the deadline leaves no time for another attempt",
    RetryOutcome.OVERRUN: "the next backoff would use up the budget",
    RetryOutcome.FATAL: "this failure is not retried",
    RetryOutcome.UNSAFE: "an effect may have happened and is unknown, repeating it is not safe",
    RetryOutcome.HINT: "the server's hint is malformed or beyond the budget",
    RetryOutcome.BUDGET: "the retry budget is spent",
}


@final
class Attempts:
    """The attempts of one call, one after the other; `report` tells what happened.

    For one user at a time: a loop, blocking or asyncio.
    """

    __slots__ = ("_command", "_current", "_deadline", "_now", "_outcome", "_plan", "_run")

    def __init__(self, run: Retrying, deadline: Deadline, now: int) -> None:
        self._run = run
        self._deadline = deadline
        self._now = now
        self._plan: Plan[Attempt, RetryOutcome] = run.plan(now)
        self._command: Attempt | Pause | None = None
        self._current: Attempt | None = None
        self._outcome: RetryOutcome | None = None

    @property
    def report(self) -> RetryReport | None:
        """What happened, made when it is asked for; None while the call is under way."""
        return self._run.report

    def __iter__(self) -> Attempts:
        """Loop in a thread; the backoff blocks."""
        refuse_on_loop_thread("Retry.attempts")
        return self

    def __next__(self) -> Attempt:
        """Wait out the backoff, then return the next attempt."""
        pause = self._next()
        if pause is not None:
            try:
                self._deadline.clock.sleep(pause.ns / 1e9)
            except BaseException:
                self._plan.close()
                raise
            self._send(None)
        if self._outcome is not None:
            self._stop()
            raise StopIteration
        return self._hand_out()

    def __aiter__(self) -> Attempts:
        """Loop in a task; the backoff is awaited."""
        return self

    async def __anext__(self) -> Attempt:
        """Wait out the backoff, then return the next attempt."""
        pause = self._next()
        if pause is not None:
            try:
                await self._deadline.clock.asleep(pause.ns / 1e9)
            except BaseException:
                self._plan.close()
                raise
            self._send(None)
        if self._outcome is not None:
            self._stop()
            raise StopAsyncIteration
        return self._hand_out()

    def settle(self, attempt: Attempt, error: BaseException | None) -> bool:
        """Take the end of the body; say whether the loop goes on in spite of its error."""
        # No cycle: an abandoned loop gives back at once what it holds.
        self._current = attempt._owner = None
        if error is not None and not isinstance(error, Exception):
            self._plan.close()
            return False
        self._send(Returned(None) if error is None else Raised(error))
        if error is None or self._outcome is None:
            return error is not None
        _note(error, self._run, self._outcome)
        self._run.error = None
        return False

    def _next(self) -> Pause | None:
        """Begin, or go on; return the backoff that comes first."""
        if self._current is not None:
            msg = f"{self._current!r} was not entered: write `with attempt:` around the body"
            raise RuntimeError(msg)
        if self._command is None and self._outcome is None:
            self._command = self._plan.send(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return self._command if isinstance(self._command, Pause) else None

    def _send(self, answer: Returned[None] | Raised | None) -> None:
        before, self._now = self._now, self._deadline._now()
        not_backwards(before, self._now)
        try:
            self._command = self._plan.send((self._now, answer))
        except StopIteration as end:
            self._outcome = end.value

    def _stop(self) -> None:
        """End the loop: by the last error, when a backoff ended too late for another attempt."""
        assert self._outcome is not None
        if self._run.error is not None:
            give_up(self._run, self._outcome)

    def _hand_out(self) -> Attempt:
        assert isinstance(self._command, Attempt)
        self._current = self._command
        self._current._owner = self
        return self._current


def _note(error: BaseException, run: Retrying, outcome: RetryOutcome) -> None:
    report = run.report
    assert report is not None
    made = len(report.attempts)
    times = "1 attempt" if made == 1 else f"{made} attempts"
    attach(error, report, f"gave up after {times} in {report.elapsed:g} s: {_WHY[outcome]}")


def give_up(run: Retrying, outcome: RetryOutcome) -> NoReturn:
    """Raise the caller's own error, with a note and without a cycle through this frame."""
    error, run.error = run.error, None
    assert error is not None
    _note(error, run, outcome)
    try:
        raise error
    finally:
        del error
