"""The deadline: an instant on a steady clock by which an operation must end.

Rules (D1-D8 of the contracts):
- At or after the instant is expired, everywhere.
- Nothing widens a deadline: every method that returns one returns an equal or an earlier one.
- `remaining()` lies in [0, what was asked]: a clock that goes back never lengthens a bound.
- A deadline keeps the clock it was made with; deadlines of two clocks are never compared.
- The instant means nothing in another process: pickling is refused.

All deadline arithmetic is here. What must not live here: waiting, and the wall clock.
"""

from __future__ import annotations

from math import inf
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, NoReturn, TypeGuard, final

from timebounds._checks import FAR_NS, NS, nanoseconds, shown
from timebounds._values import Value
from timebounds.bounds.clock import MONOTONIC, SteadyClock, reader
from timebounds.errors import ClockError, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds._checks import Seconds

__all__ = ["Deadline"]

# Later than every instant a clock can be asked for, so that comparisons need no special case.
NEVER_NS = FAR_NS << 100


@final
class Deadline(Value):
    """An instant on a steady clock, together with that clock.

    Make one where the budget begins, with `Deadline.after(2.0)`, and hand it down: every step
    then has what is left of the two seconds. Immutable, hashable, ordered within one clock,
    safe in any thread or task. It waits for nothing and stops nothing by itself.
    """

    __slots__ = ("_asked", "_at", "_clock", "_now")

    _clock: SteadyClock
    _at: int
    _asked: float
    _now: Callable[[], int]

    def __init__(self, *_: object, **__: object) -> None:
        msg = "write Deadline.after(2.0), Deadline.at(instant) or Deadline.never()"
        raise TypeError(msg)

    @staticmethod
    def after(seconds: Seconds, *, clock: SteadyClock = MONOTONIC) -> Deadline:
        """Return the deadline `seconds` from now; 0 is already expired. The budget begins here.

        Raises ValueError or TypeError for what is no finite duration, before the clock is read.
        """
        ns = nanoseconds(seconds, "seconds")
        now = reader(clock)
        return _make(min(now() + ns, FAR_NS), _as_seconds(seconds, ns), clock, now)

    @staticmethod
    def at(seconds: Seconds, *, clock: SteadyClock = MONOTONIC) -> Deadline:
        """Return the deadline at the instant `seconds` of `clock` itself. Reads no clock."""
        return _make(nanoseconds(seconds, "seconds"), inf, clock, reader(clock))

    @staticmethod
    def never(*, clock: SteadyClock = MONOTONIC) -> Deadline:
        """Return the deadline that never comes. Forever has to be spelled. Reads no clock."""
        return _make(NEVER_NS, inf, clock, reader(clock))

    @property
    def clock(self) -> SteadyClock:
        """The clock on which the instant lies."""
        return self._clock

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
        """Raise DeadlineExceeded when expired; `what` names the bounded work in the message."""
        now = self._now()
        if now >= self._at:
            raise DeadlineExceeded(self._missed(what, now))

    def timeout(self, seconds: Seconds | None = None) -> float | None:
        """Return `min(seconds, remaining)` for the timeout argument of another library.

        Never 0 or less, which other libraries take for "do not block" or "no limit", and never
        more than the platform can wait. None means that there is no limit. `seconds` is a further
        limit of this one step; None leaves it out, and 0 is refused.

        Raises:
            DeadlineExceeded: the deadline has passed, so there is nothing to hand out.
        """
        limit = inf
        if seconds is not None:
            limit = _as_seconds(seconds, nanoseconds(seconds, "seconds", positive=True))
        self.check("timeout")
        # The clock may reach the instant between two readings: 1 ns is still no zero.
        left = min(limit, self.remaining() or 1e-9)
        return None if left == inf else min(left, TIMEOUT_MAX)

    def within(self, seconds: Seconds) -> Deadline:
        """Return the earlier of this deadline and `seconds` from now. Reads the clock."""
        ns = nanoseconds(seconds, "seconds")
        at = min(self._now() + ns, FAR_NS)
        if self._at <= at:
            return self
        return _make(at, _as_seconds(seconds, ns), self._clock, self._now)

    def reserving(self, seconds: Seconds) -> Deadline:
        """Return a deadline `seconds` earlier, which keeps that time back for clean-up.

        Reads no clock. A reserve that is larger than what is left gives an expired deadline; a
        never-deadline stays one.
        """
        ns = nanoseconds(seconds, "seconds")
        if ns == 0 or self._at == NEVER_NS:
            return self
        return _make(self._at - ns, max(0.0, self._asked - ns / NS), self._clock, self._now)

    def earliest(self, *others: Deadline) -> Deadline:
        """Return the earliest of this and the others, all of one clock. Reads no clock.

        Raises:
            ClockError: the deadlines belong to different clocks.
        """
        first = self
        for other in others:
            if self._instant_of(as_deadline(other)) < first._at:
                first = other
        return first

    def _instant_of(self, other: Deadline) -> int:
        if other._clock is not self._clock:
            msg = f"deadlines of two clocks can not be compared: {self!r} and {other!r}"
            raise ClockError(msg)
        return other._at

    def _missed(self, what: str, now: int) -> str:
        """Return the message of an expiry: what was bounded, and by how much it was missed."""
        which = f"of {self._asked:g} s" if self._asked < inf else f"at {self._at / NS:g} s"
        late = f"missed by {(now - self._at) / NS:g} s" if now > self._at else "reached"
        return f"{what or 'operation'}: the deadline {which} was {late}"

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
        return self._at == other._at and self._clock is other._clock

    def __hash__(self) -> int:
        return hash((self._at, id(self._clock)))

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
            "send deadline.remaining() and make a new one there with Deadline.after(seconds)"
        )
        raise TypeError(msg)


def _is(value: object) -> TypeGuard[Deadline]:
    return type(value) is Deadline


def as_deadline(value: object) -> Deadline:
    """Return `value` when it is a deadline, else raise TypeError that shows the right line."""
    if _is(value):
        return value
    number = shown(value) if type(value) in (int, float) else "2.0"
    given = f"{type(value).__name__} {shown(value)}"
    msg = f"deadline must be a Deadline, not {given}: write Deadline.after({number})"
    raise TypeError(msg)


def _make(at: int, asked: float, clock: SteadyClock, now: Callable[[], int]) -> Deadline:
    deadline = object.__new__(Deadline)
    put = object.__setattr__
    put(deadline, "_at", at)
    put(deadline, "_asked", asked)
    put(deadline, "_clock", clock)
    put(deadline, "_now", now)
    return deadline


def capped(deadline: Deadline, ns: int, asked: float, now: int) -> Deadline:
    """Return the earlier of `deadline` and `ns` from `now`, which was `asked` for in seconds."""
    at = now + ns
    return deadline if deadline._at <= at else _make(at, asked, deadline._clock, deadline._now)


def _as_seconds(seconds: Seconds, ns: int) -> float:
    """Return what was asked as float seconds, never rounded up by its way through nanoseconds."""
    return seconds if isinstance(seconds, float) else ns / NS
