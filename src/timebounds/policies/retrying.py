"""Retrying: the one plan by which a call is tried again inside one budget.

Rules (A1-A8 of the contracts):
- Every attempt is given what remains of the shared deadline, or less by its own limit. None starts
  at or after the deadline, or when less than the minimum attempt time is left.
- A failure is an `Exception`. Everything else (cancellation, Ctrl-C, exit) passes at once and is
  never seen here.
- A failure is retried when the policy says so, the effect allows it, the allowance grants it, and
  the wait before it leaves time for it; in this order, and the first no is the reason.
- The server's hint is a floor for the wait, and never reaches beyond the budget.
- A requested stop ends the wait and the call; it is the first reason of all.
- A wait that would use up the budget is not begun (`Overrun.REFUSE`), or cut to it (`Overrun.CAP`).

What must not live here: calling functions, sleeping, clocks.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

from timebounds._checks import NS, nanoseconds
from timebounds._settled import Raised
from timebounds.bounds.allowance import Allowance, Overrun, Refused
from timebounds.bounds.deadline import NEVER_NS, capped
from timebounds.policies.plan import Pause
from timebounds.policies.retry_evidence import AttemptRecord, RetryOutcome, RetryReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds._checks import Seconds
    from timebounds._settled import Returned
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.retry_budget import RetryBudget
    from timebounds.policies.plan import Plan

    Verdict = bool | Seconds

__all__ = ["Attempt", "Effect", "RetryEvent"]


@final
class Effect(Enum):
    """What repeating a call does to the world. Declared once per target; there is no default."""

    READ_ONLY = "read_only"
    """It changes nothing."""
    IDEMPOTENT = "idempotent"
    """Doing it twice is doing it once."""
    DEDUPLICATED = "deduplicated"
    """The other side recognises a repetition by a key, which is given with the call."""
    UNSAFE = "unsafe"
    """Doing it twice does it twice."""


class Owner(Protocol):
    """Who wants to know how a guarded attempt ended."""

    def enter(self, attempt: Attempt, /) -> None:
        """Take the beginning of its body, once."""

    def settle(self, attempt: Attempt, error: BaseException | None, /) -> bool:
        """Take the end of an attempt; say whether its error is dealt with."""
        ...


@final
class Attempt:
    """One attempt, as the code that makes it sees it.

    `number` counts from 1. `deadline` is the earlier of the shared one and the attempt's own
    limit: hand it down. `key` is the call's deduplication key. `marker` is durable progress: what
    one attempt puts there, the next one finds. As a context manager, around the body of a loop
    over `policy.attempts(deadline)`, it deals with the failure of that body.
    """

    __slots__ = ("_effect", "_owner", "deadline", "key", "marker", "number")

    number: int
    deadline: Deadline
    key: Any
    marker: Any
    # Only set by a loop, for whom it is: a call makes an attempt each time.
    _owner: Owner | None

    def __init__(self, number: int, deadline: Deadline, key: object, marker: object) -> None:
        self.number = number
        self.deadline = deadline
        self.key = key
        self.marker = marker
        self._effect = False

    def effect_may_begin(self) -> None:
        """Say that from here on an effect may have happened: just before the first byte leaves."""
        self._effect = True

    def __enter__(self) -> Attempt:
        """Begin the body of the attempt."""
        owner = getattr(self, "_owner", None)
        if owner is None:
            msg = "`with attempt:` belongs, once, into `for attempt in policy.attempts(deadline):`"
            raise RuntimeError(msg)
        owner.enter(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """End it: swallow a failure that is retried, let every other one through."""
        assert self._owner is not None
        return self._owner.settle(self, error)

    def __repr__(self) -> str:
        return f"<Attempt {self.number}>"


class RetryEvent(NamedTuple):
    """An unchanging snapshot for a hook: numbers and classes, no arguments and no payload."""

    number: int
    """The attempt that begins, or that failed."""
    elapsed: float
    """Seconds since the call."""
    remaining: float
    """Seconds until the shared deadline; inf for never."""
    error: type[Exception] | None = None
    """The class of the failure; None when an attempt begins."""
    delay: float | None = None
    """The backoff that begins, in seconds."""
    report: RetryReport | None = None
    """The report, when it gives up."""


@final
class RetryRules(NamedTuple):
    """What one policy applies to each of its calls, beside the deadline."""

    judge: Callable[[Exception], Verdict]
    effect: Effect
    effect_marked: bool
    allowance: Allowance
    per_attempt: tuple[int, float] | None
    min_attempt_ns: int
    overrun: Overrun
    hint: Callable[[Exception], object] | None
    read_hint: Callable[[object], int | None]
    strict_hints: bool
    budget: RetryBudget | None
    on_attempt: Callable[[RetryEvent], object] | None
    on_backoff: Callable[[RetryEvent], object] | None
    on_give_up: Callable[[RetryEvent], object] | None


Settled = tuple[int, "Returned[Any] | Raised"]

# What a plan yields to learn what time it is.
_LOOK = Pause(0)


@final
class Retrying:
    """One retried call under way: what the plan remembers, and what its report is made from."""

    __slots__ = (
        "_allowance", "_at", "_deadline", "_ended", "_history", "_key", "_paid", "_rules",
        "_slept", "_started", "_unpaid", "error", "hint", "marker",
    )  # fmt: skip

    error: Exception | None

    def __init__(self, rules: RetryRules, deadline: Deadline, key: object, now: int) -> None:
        self._rules = rules
        self._allowance = rules.allowance
        self._deadline = deadline
        self._at = deadline._at
        self._key = key
        self._started = now
        self._slept = 0
        self._history: list[tuple[int, int, int, int, type[Exception] | None]] = []
        # What the retry that is waited for has cost, and what the last one that began did.
        self._unpaid: float | None = None
        self._paid: float | None = None
        self._ended: tuple[RetryOutcome, int] | None = None
        self.error = None
        self.hint: object = None
        self.marker: object = None

    @property
    def report(self) -> RetryReport | None:
        """The report, made when it is asked for; None while the call is under way."""
        if self._ended is None:
            return None
        outcome, now = self._ended
        records = tuple(
            AttemptRecord(
                number,
                (began - self._started) / NS,
                (ended - began) / NS,
                inf if at == NEVER_NS else (at - began) / NS,
                error,
            )
            for number, began, ended, at, error in self._history
        )
        late = max(0, now - self._at) / NS
        elapsed, slept = (now - self._started) / NS, self._slept / NS
        return RetryReport(outcome, records, elapsed, slept, late, self.hint, self.marker)

    def attempt(self, number: int, now: int) -> Attempt:
        """Return the next attempt, given what remains or less."""
        deadline = self._deadline
        if self._rules.per_attempt is not None:
            deadline = capped(deadline, *self._rules.per_attempt, now)
        return Attempt(number, deadline, self._key, self.marker)

    def plan(
        self, now: int, first: tuple[Attempt, Settled] | None = None
    ) -> Plan[Attempt, RetryOutcome]:
        """Try until it succeeds or a reason to give up is found; yield each attempt.

        `first`: a first attempt that was made already, and how it ended.
        """
        try:
            outcome, now = yield from self._attempts(now, first)
            self._ended = (outcome, now)
            if outcome is RetryOutcome.SUCCEEDED:
                if self._rules.budget is not None:
                    self._rules.budget.succeeded(self._paid)
            elif self._rules.on_give_up is not None:
                self._tell(self._rules.on_give_up, len(self._history), now, None, self.report)
        except BaseException as error:
            # A hook or a question of the policy went wrong: what it was about is not lost.
            if error.__context__ is None and error is not self.error:
                error.__context__ = self.error
            # Its traceback holds the frames that hold this object: no cycle.
            self.error = None
            raise
        finally:
            # Whatever ended the wait before a retry: one that never began costs nothing.
            if self._unpaid is not None and self._rules.budget is not None:
                self._rules.budget.give_back(self._unpaid)
        return outcome

    def _attempts(
        self, now: int, first: tuple[Attempt, Settled] | None
    ) -> Plan[Attempt, tuple[RetryOutcome, int]]:
        rules = self._rules
        number = 1
        if first is None:
            now, _ = yield _LOOK
        # A first attempt that was made is judged, whatever has happened since.
        while first is not None or (not self._stopped() and self._at - now > rules.min_attempt_ns):
            if first is None:
                if rules.on_attempt is not None:
                    self._tell(rules.on_attempt, number, now)
                    now, _ = yield _LOOK
                    if self._stopped() or self._at - now <= rules.min_attempt_ns:
                        break
                began, attempt = now, self.attempt(number, now)
                self._paid, self._unpaid = self._unpaid, None
                now, answer = yield attempt
            else:
                began, (attempt, (now, answer)) = now, first
                first = None
            self.error = answer.take() if isinstance(answer, Raised) else None
            self.marker = attempt.marker
            kind = None if self.error is None else type(self.error)
            self._history.append((number, began, now, attempt.deadline._at, kind))
            if self.error is None:
                return RetryOutcome.SUCCEEDED, now
            delay = self._wait_before_next(self.error, attempt, now)
            if isinstance(delay, RetryOutcome):
                return delay, now
            if delay and rules.on_backoff is not None:
                self._tell(rules.on_backoff, number, now, delay / NS)
            # The policy's questions and hooks take time, and so may the body of a loop.
            due = now + delay
            now, _ = yield _LOOK
            if due > now:
                before = now
                now, _ = yield Pause(due - now)
                self._slept += now - before
            number += 1
        return RetryOutcome.STOPPED if self._stopped() else RetryOutcome.DEADLINE, now

    def _stopped(self) -> bool:
        stop = self._deadline._stop
        return stop is not None and stop.requested()

    def _wait_before_next(self, error: Exception, attempt: Attempt, now: int) -> int | RetryOutcome:
        """Return the backoff in ns before the next attempt, or the reason why there is none."""
        rules = self._rules
        if self._stopped():
            return RetryOutcome.STOPPED
        # An attempt that could just not finish is not worth a wait.
        left = self._at - now - rules.min_attempt_ns
        if left <= 0:
            return RetryOutcome.DEADLINE
        verdict = rules.judge(error)
        if verdict is False:
            return RetryOutcome.FATAL
        if rules.effect is Effect.UNSAFE and (attempt._effect or not rules.effect_marked):
            return RetryOutcome.UNSAFE
        step = self._allowance.spend()
        if isinstance(step, Refused):
            return RetryOutcome.ATTEMPTS
        hinted = self._hinted(error)
        if hinted is None or hinted >= left:
            return RetryOutcome.HINT
        floor = 0 if verdict is True else nanoseconds(verdict, "the answer of `on`")
        delay = max(nanoseconds(step.delay, "delay"), floor, hinted)
        if delay >= left:
            if rules.overrun is Overrun.REFUSE:
                return RetryOutcome.OVERRUN
            delay = self._at - now
        if rules.budget is not None:
            self._unpaid = rules.budget.spend(error)
            if self._unpaid is None:
                return RetryOutcome.BUDGET
        self._allowance = step.rest
        return delay

    def _hinted(self, error: Exception) -> int | None:
        """Return the server's hint in ns, 0 without one; None when a malformed one ends it."""
        said = None if self._rules.hint is None else self._rules.hint(error)
        if said is None:
            return 0
        self.hint = said
        ns = self._rules.read_hint(said)
        return 0 if ns is None and not self._rules.strict_hints else ns

    def _tell(
        self,
        hook: Callable[[RetryEvent], object],
        number: int,
        now: int,
        delay: float | None = None,
        report: RetryReport | None = None,
    ) -> None:
        left = inf if self._at == NEVER_NS else max(0, self._at - now) / NS
        error = None if self.error is None else type(self.error)
        hook(RetryEvent(number, (now - self._started) / NS, left, error, delay, report))
