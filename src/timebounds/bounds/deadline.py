"""The deadline: an instant on a steady clock by which an operation must end.

Rules (D1-D9 of the contracts):
- At or after the instant is expired, everywhere.
- Nothing widens a deadline: every method that returns one returns an equal or an earlier one.
- `remaining()` lies in [0, what was asked]: a clock that goes back never lengthens a bound.
- A deadline keeps the clock it was made with; deadlines of two clocks are never compared.
- A deadline may carry a stop signal: `check()` then raises the error of whichever is due, the
  stop first. `expired()` and `remaining()` speak of time only. What shortens a deadline keeps it.
- The instant means nothing in another process: pickling is refused.

All deadline arithmetic is here. What must not live here: waiting, and the wall clock.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NoReturn, TypeGuard, final

from timebounds._checks import FAR_NS, NS, nanoseconds, no_deadline, running_loop, shown
from timebounds._values import Value
from timebounds.bounds.alarm import LoopAlarm, refuse_fake_loop
from timebounds.bounds.clock import DAY_NS, MONOTONIC, MonotonicClock, SteadyClock, reader
from timebounds.bounds.stop import StopSignal, as_stop, joined
from timebounds.errors import ClockError, DeadlineExceeded, StopRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds._checks import Seconds
    from timebounds.bounds.alarm import Alarm

__all__ = ["Deadline"]

# Later than every instant a clock can be asked for, so that comparisons need no special case.
NEVER_NS = FAR_NS << 100
# 24 days, in milliseconds a C int: more overflows in `selectors`, and wraps round in `settimeout`.
LONGEST_WAIT = 2_147_483.0


@final
class Deadline(Value):
    """An instant on a steady clock, together with that clock.

    Make one where the budget begins, with `Deadline.after(2.0)`, and hand it down: every step
    then has what is left of the two seconds. With `stop`, whoever holds that signal can end the
    work sooner. Immutable, hashable, ordered within one clock, safe in any thread or task. It
    waits for nothing and stops nothing by itself.
    """

    __slots__ = ("_asked", "_at", "_clock", "_now", "_stop")

    _clock: SteadyClock
    _at: int
    _asked: float
    _now: Callable[[], int]
    _stop: StopSignal | None

    def __init__(self, *_: object, **__: object) -> None:
        msg = "write Deadline.after(2.0), Deadline.at(instant) or Deadline.never()"
        raise TypeError(msg)

    @staticmethod
    def after(
        seconds: Seconds, *, clock: SteadyClock = MONOTONIC, stop: StopSignal | None = None
    ) -> Deadline:
        """Return the deadline `seconds` from now; 0 is already expired. The budget begins here.

        Raises ValueError or TypeError for what is no finite duration, before the clock is read.
        """
        ns = nanoseconds(seconds, "seconds")
        now = reader(clock)
        if stop is not None:
            as_stop(stop)
        return _make(min(now() + ns, FAR_NS), _as_seconds(seconds, ns), clock, now, stop)

    @staticmethod
    def at(
        seconds: Seconds, *, clock: SteadyClock = MONOTONIC, stop: StopSignal | None = None
    ) -> Deadline:
        """Return the deadline at the instant `seconds` of `clock` itself. Reads no clock."""
        ns = nanoseconds(seconds, "seconds")
        return _make(ns, inf, clock, reader(clock), None if stop is None else as_stop(stop))

    @staticmethod
    def never(*, clock: SteadyClock = MONOTONIC, stop: StopSignal | None = None) -> Deadline:
        """Return the deadline that never comes. Forever has to be spelled. Reads no clock."""
        return _make(NEVER_NS, inf, clock, reader(clock), None if stop is None else as_stop(stop))

    @staticmethod
    def from_scope(
        scope: object, *, clock: SteadyClock = MONOTONIC, stop: StopSignal | None = None
    ) -> Deadline:
        """Return what is left of an `asyncio.Timeout` or an anyio cancel scope, as a deadline.

        The scope's instant is one of the running loop; on `clock` the same time is left. A scope
        without a limit gives a never-deadline. For tasks.
        """
        ask = getattr(scope, "when", None)
        when: object = ask() if callable(ask) else getattr(scope, "deadline", False)
        if isinstance(when, bool) or not (when is None or isinstance(when, (int, float))):
            msg = f"scope must be an asyncio.Timeout or an anyio CancelScope, not {shown(scope)}"
            raise TypeError(msg)
        if when is None or when == inf:
            return Deadline.never(clock=clock, stop=stop)
        # In this order NaN is not lost: it is refused.
        return Deadline.after(max(when - running_loop().time(), 0.0), clock=clock, stop=stop)

    @property
    def clock(self) -> SteadyClock:
        """The clock on which the instant lies."""
        return self._clock

    @property
    def stop(self) -> StopSignal | None:
        """The signal that may end the work sooner; None without one."""
        return self._stop

    def remaining(self) -> float:
        """Read the clock and return the seconds left: 0.0 when expired, inf for never."""
        left = self._at - self._now()
        if left <= 0:
            return 0.0
        seconds = left / 1_000_000_000 if self._at != NEVER_NS else inf
        return seconds if seconds < self._asked else self._asked

    def expired(self) -> bool:
        """Read the clock and say whether the instant has come; at the instant it has."""
        return self._now() >= self._at

    def check(self, what: str = "") -> None:
        """Raise StopRequested when a stop was requested, else DeadlineExceeded when expired.

        `what` names the bounded work in the message.
        """
        now = self._now()
        if self._stop is not None and self._stop.requested():
            raise StopRequested(self._stopped(what, now))
        if now >= self._at:
            raise DeadlineExceeded(self._missed(what, now))

    def timeout(self, seconds: Seconds | None = None) -> float | None:
        """Return `min(seconds, remaining)` for the timeout argument of another library.

        Never 0 or less, which other libraries take for "do not block" or "no limit", and never
        more than the platform can wait, 24 days. None means that there is no limit. `seconds` is
        a further limit of this one step; None leaves it out, and 0 is refused.

        Raises:
            DeadlineExceeded: the deadline has passed, so there is nothing to hand out.
            StopRequested: its stop signal was requested.
        """
        limit = inf
        if seconds is not None:
            limit = _as_seconds(seconds, nanoseconds(seconds, "seconds", positive=True))
        self.check("timeout")
        # The clock may reach the instant between two readings: 1 ns is still no zero.
        left = min(limit, self.remaining() or 1e-9)
        return None if left == inf else min(left, LONGEST_WAIT)

    def timeout_ms(self, seconds: Seconds | None = None) -> int | None:
        """Do as `timeout` for an API that takes whole milliseconds, as `poll` and databases do.

        Rounded down, but at least 1, since 0 means something else there; fits in 32 bits.
        """
        left = self.timeout(seconds)
        if left is None:
            return None
        ms = round(left * 1000)
        return max(1, ms - (ms / 1000 > left))

    def within(self, seconds: Seconds) -> Deadline:
        """Return the earlier of this deadline and `seconds` from now. Reads the clock."""
        ns = nanoseconds(seconds, "seconds")
        at = min(self._now() + ns, FAR_NS)
        if self._at <= at:
            return self
        return _make(at, _as_seconds(seconds, ns), self._clock, self._now, self._stop)

    def reserving(self, seconds: Seconds) -> Deadline:
        """Return a deadline `seconds` earlier, which keeps that time back for clean-up.

        Reads no clock. A reserve that is larger than what is left gives an expired deadline; a
        never-deadline stays one.
        """
        ns = nanoseconds(seconds, "seconds")
        if ns == 0 or self._at == NEVER_NS:
            return self
        asked = max(0.0, self._asked - ns / NS)
        return _make(self._at - ns, asked, self._clock, self._now, self._stop)

    def earliest(self, *others: Deadline) -> Deadline:
        """Return the earliest of this and the others, all of one clock. Reads no clock.

        It is ended by the stop signals of all of them.

        Raises:
            ClockError: the deadlines belong to different clocks.
        """
        first, stop = self, self._stop
        for other in others:
            if self._instant_of(as_deadline(other)) < first._at:
                first = other
            stop = joined(stop, other._stop)
        return first._stopping(stop)

    def stopping(self, stop: StopSignal) -> Deadline:
        """Return the same instant, ended by this signal too. Reads no clock."""
        return self._stopping(joined(self._stop, as_stop(stop)))

    def _stopping(self, stop: StopSignal | None) -> Deadline:
        if stop is self._stop:
            return self
        return _make(self._at, self._asked, self._clock, self._now, stop)

    def _instant_of(self, other: Deadline) -> int:
        if other._clock is not self._clock:
            msg = f"deadlines of two clocks can not be compared: {self!r} and {other!r}"
            raise ClockError(msg)
        return other._at

    def _missed(self, what: str, now: int) -> str:
        """Return the message of an expiry: what was bounded, and by how much it was missed."""
        late = f"missed by {(now - self._at) / NS:g} s" if now > self._at else "reached"
        return f"{what or 'operation'}: {self._named()} was {late}"

    def _named(self) -> str:
        which = f"of {self._asked:g} s" if self._asked < inf else f"at {self._at / NS:g} s"
        return f"the deadline {which}"

    def _stopped(self, what: str, now: int) -> str:
        """Return the message of a stop: what was bounded, when it was stopped, and why."""
        assert self._stop is not None
        into = ""
        if self._asked < inf:
            elapsed = max(0.0, self._asked - (self._at - now) / NS)
            into = f" {elapsed:g} s into the deadline of {self._asked:g} s"
        return f"{what or 'operation'}: {self._stop._why()}{into}"

    def __lt__(self, other: object) -> bool:
        return self._at < self._instant_of(other) if _is(other) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._at <= self._instant_of(other) if _is(other) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._at > self._instant_of(other) if _is(other) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._at >= self._instant_of(other) if _is(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if not _is(other):
            return NotImplemented
        same = self._at == other._at and self._clock is other._clock
        return same and self._stop is other._stop

    def __hash__(self) -> int:
        return hash((self._at, id(self._clock), id(self._stop)))

    def __bool__(self) -> NoReturn:
        msg = "a deadline is neither true nor false: write `is None` or `deadline.expired()`"
        raise TypeError(msg)

    def __repr__(self) -> str:
        if self._at == NEVER_NS:
            return f"<Deadline never on {self._clock!r}>"
        asked = f"after {self._asked:g} s, " if self._asked < inf else ""
        return f"<Deadline {asked}at {self._at / NS:g} s on {self._clock!r}>"

    def __copy__(self) -> Deadline:
        return self

    def __deepcopy__(self, memo: object) -> Deadline:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        msg = (
            "a deadline can not be pickled, since its instant means nothing in another process: "
            "send timebounds.wire.to_milliseconds(deadline), and read it there by from_milliseconds"
        )
        raise TypeError(msg)


def _is(value: object) -> TypeGuard[Deadline]:
    return type(value) is Deadline


def as_deadline(value: object) -> Deadline:
    """Return `value` when it is a deadline, else raise TypeError that shows the right line."""
    if _is(value):
        return value
    raise no_deadline(value)


def _make(
    at: int,
    asked: float,
    clock: SteadyClock,
    now: Callable[[], int],
    stop: StopSignal | None,
) -> Deadline:
    deadline = object.__new__(Deadline)
    put = object.__setattr__
    put(deadline, "_at", at)
    put(deadline, "_asked", asked)
    put(deadline, "_clock", clock)
    put(deadline, "_now", now)
    put(deadline, "_stop", stop)
    return deadline


def capped(deadline: Deadline, ns: int, asked: float, now: int) -> Deadline:
    """Return the earlier of `deadline` and `ns` from `now`, which was `asked` for in seconds."""
    at = now + ns
    if deadline._at <= at:
        return deadline
    return _make(at, asked, deadline._clock, deadline._now, deadline._stop)


def left_ns(deadline: Deadline) -> int | None:
    """Read the clock and return the ns left, never more than `remaining()`; None for never."""
    if deadline._at == NEVER_NS:
        return None
    left = max(0, deadline._at - deadline._now())
    if left / NS <= deadline._asked:
        return left
    asked, parts = deadline._asked.as_integer_ratio()
    return asked * NS // parts


def arm(deadline: Deadline, now: int, wake: Callable[[], object]) -> Alarm | None:
    """Call `wake()` in the running loop when the deadline, which lies ahead of `now`, has come."""
    at, clock = deadline._at, deadline._clock
    if at == NEVER_NS:
        return None
    if type(clock) is not MonotonicClock:
        return clock.alarm((at - now) / NS, wake)
    # What its `alarm` does, without looking at the clock again.
    loop = running_loop()
    if hasattr(loop, "timebounds_clock"):
        refuse_fake_loop(clock, loop)
    return LoopAlarm(loop, deadline._now, now, at, DAY_NS, wake)


def _as_seconds(seconds: Seconds, ns: int) -> float:
    """Return what was asked as float seconds, never rounded up by its way through nanoseconds."""
    return seconds if isinstance(seconds, float) else ns / NS
