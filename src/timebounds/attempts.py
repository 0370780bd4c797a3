"""The loop form of a retried call, in both colours, and how a retried call gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from timebounds._checks import refuse_on_loop_thread
from timebounds._settled import Raised, Returned
from timebounds.bounds.alarm import not_backwards
from timebounds.errors import BoundReached, DeadlineExceeded, StopRequested
from timebounds.policies.plan import Pause, nap, pause
from timebounds.policies.retry_evidence import RetryOutcome, RetryReport, attach
from timebounds.policies.retrying import Attempt, Retrying

if TYPE_CHECKING:
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.plan import Plan
    from timebounds.policies.retrying import RetryRules

__all__ = ["Attempts"]

_WHY = {
    RetryOutcome.ATTEMPTS: "no retry is left",
    RetryOutcome.DEADLINE: "the deadline leaves no time for another attempt",
    RetryOutcome.OVERRUN: "the next backoff would use up the budget",
    RetryOutcome.FATAL: "this failure is not retried",
    RetryOutcome.UNSAFE: "an effect may have happened and is unknown, repeating it is not safe",
    RetryOutcome.HINT: "the server's hint is malformed or beyond the budget",
    RetryOutcome.BUDGET: "the retry budget is spent",
    RetryOutcome.STOPPED: "a stop was requested",
}


@final
class Attempts:
    """The attempts of one call, one after the other; `report` tells what happened.

    For one user at a time: a loop, blocking or asyncio. Once it is over it stays over.
    """

    __slots__ = (
        "_command", "_current", "_deadline", "_entered", "_key", "_now", "_outcome", "_over",
        "_plan", "_rules", "_run", "_whole",
    )  # fmt: skip

    _plan: Plan[Attempt, RetryOutcome]

    def __init__(
        self, rules: RetryRules, deadline: Deadline, key: object, now: int, *, plain: bool
    ) -> None:
        self._rules = rules
        self._deadline = deadline
        self._key = key
        self._now = now
        # A first attempt that succeeds needs no plan.
        self._run: Retrying | None = None
        self._whole: tuple[Attempt, int] | None = None
        self._command: Attempt | Pause | None = None
        self._current: Attempt | None = None
        self._entered = False
        self._over = False
        self._outcome: RetryOutcome | None = None
        if not plain:
            self._run = Retrying(rules, deadline, key, now)
            self._plan = self._run.plan(now)

    @property
    def report(self) -> RetryReport | None:
        """What happened, made when it is asked for; None unless the call ended by itself."""
        if self._run is None and self._whole is not None:
            attempt, ended = self._whole
            self._start(attempt, ended, Returned(None))
        return None if self._run is None else self._run.report

    def __iter__(self) -> Attempts:
        """Loop in a thread; the backoff blocks."""
        return self

    def __next__(self) -> Attempt:
        """Wait out the backoff, then return the next attempt."""
        refuse_on_loop_thread("Retry.attempts", "`async for`")
        if self._run is None:
            return self._first(StopIteration)
        try:
            while (command := self._next()) is not None:
                nap(self._deadline, command)
                self._send(None)
        except BaseException:
            self._end()
            raise
        if self._over:
            self._raise_last()
            raise StopIteration
        return self._hand_out()

    def __aiter__(self) -> Attempts:
        """Loop in a task; the backoff is awaited."""
        return self

    async def __anext__(self) -> Attempt:
        """Wait out the backoff, then return the next attempt."""
        if self._run is None:
            return self._first(StopAsyncIteration)
        try:
            while (command := self._next()) is not None:
                await pause(self._deadline, command)
                self._send(None)
        except BaseException:
            self._end()
            raise
        if self._over:
            self._raise_last()
            raise StopAsyncIteration
        return self._hand_out()

    def enter(self, attempt: Attempt) -> None:
        """Take the beginning of the body, once."""
        if self._entered or attempt is not self._current:
            msg = f"{attempt!r} is not the one that comes next: enter each attempt once"
            raise RuntimeError(msg)
        self._entered = True

    def settle(self, attempt: Attempt, error: BaseException | None) -> bool:
        """Take the end of the body; say whether the loop goes on in spite of its error."""
        # No cycle: an abandoned loop gives back at once what it holds.
        self._current = attempt._owner = None
        self._entered = False
        if error is not None and not isinstance(error, Exception):
            self._end()
            return False
        try:
            self._answer(attempt, error)
        except BaseException:
            self._end()
            raise
        if error is None or not self._over:
            return error is not None
        assert self._run is not None
        assert self._outcome is not None
        _note(error, self._run, self._outcome)
        self._run.error = None
        return False

    def _first(self, end: type[Exception]) -> Attempt:
        """Hand out the first attempt without a plan, or end."""
        if self._over:
            raise end
        if self._current is not None:
            self._not_entered()
        before, self._now = self._now, self._deadline._now()
        not_backwards(before, self._now)
        stop = self._deadline._stop
        left = self._deadline._at - self._now
        if left <= self._rules.min_attempt_ns or (stop is not None and stop.requested()):
            self._over = True
            raise too_late(self._deadline, self._now)
        self._current = attempt = Attempt(1, self._deadline, self._key, None)
        attempt._owner = self
        return attempt

    def _answer(self, attempt: Attempt, error: Exception | None) -> None:
        """Tell the plan how the attempt ended; a first one that succeeded needs none."""
        if self._run is not None:
            self._send(Returned(None) if error is None else Raised(error))
            return
        then = self._deadline._now()
        not_backwards(self._now, then)
        if error is None:
            self._over = True
            self._whole = (attempt, then)
        else:
            self._start(attempt, then, Raised(error))

    def _start(self, attempt: Attempt, then: int, answer: Returned[None] | Raised) -> None:
        """Begin the plan after a first attempt that was made without it."""
        self._run = Retrying(self._rules, self._deadline, self._key, self._now)
        self._plan = self._run.plan(self._now, (attempt, (then, answer)))
        self._now = then
        try:
            self._command = self._plan.send(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except StopIteration as end:
            self._over = True
            self._outcome = end.value

    def _next(self) -> Pause | None:
        """Begin, or go on; return the pause that comes first, if there is one."""
        if self._current is not None:
            self._not_entered()
        if self._over:
            return None
        if self._command is None:
            self._command = self._plan.send(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return self._command if isinstance(self._command, Pause) else None

    def _not_entered(self) -> NoReturn:
        msg = f"{self._current!r} was not entered: write `with attempt:` around the body"
        raise RuntimeError(msg)

    def _send(self, answer: Returned[None] | Raised | None) -> None:
        before, self._now = self._now, self._deadline._now()
        not_backwards(before, self._now)
        try:
            self._command = self._plan.send((self._now, answer))
        except StopIteration as end:
            self._over = True
            self._outcome = end.value

    def _end(self) -> None:
        """End it for good, whatever comes next."""
        self._over = True
        self._current = None
        if self._run is not None:
            self._plan.close()

    def _raise_last(self) -> None:
        """End the loop by the last error, when no other attempt could follow it."""
        outcome, self._outcome = self._outcome, None
        run = self._run
        if run is None or outcome is None or run.report is None:
            return
        if isinstance(run.error, (StopIteration, StopAsyncIteration)):
            # Out of here these would mean that the loop has ended well.
            error, run.error = run.error, None
            _note(error, run, outcome)
            msg = f"the last attempt raised {type(error).__name__}"
            raise RuntimeError(msg) from error  # noqa: TRY004  (no argument is wrong)
        if run.error is not None or not run.report.attempts:
            give_up(run, outcome, self._deadline, self._now)

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


def give_up(run: Retrying, outcome: RetryOutcome, deadline: Deadline, now: int) -> NoReturn:
    """Raise the caller's own error, with a note and without a cycle through this frame."""
    error, run.error = run.error, None
    if error is None:
        raise too_late(deadline, now)
    _note(error, run, outcome)
    try:
        raise error
    finally:
        del error


def too_late(deadline: Deadline, now: int) -> BoundReached:
    """Return the error of a call that could not begin."""
    if deadline._stop is not None and deadline._stop.requested():
        return StopRequested(f"{deadline._stopped('retry', now)}; no attempt was started")
    if now >= deadline._at:
        return DeadlineExceeded(f"{deadline._missed('retry', now)}; no attempt was started")
    left = (deadline._at - now) / 1e9
    msg = f"retry: {left:g} s are no more than min_attempt; no attempt was started"
    return DeadlineExceeded(msg)
