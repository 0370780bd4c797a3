"""Timetables: when something is to happen, as unchanging values that read no clock.

Rules (G1, G3 of the contracts):
- A fixed rate is anchored to its plan: how long a run takes moves nothing. A fixed delay, which
  counts from the end of a run, has a name of its own.
- Times of day are those of a named zone, and their plan moves forward in UTC. What becomes of the
  hour that comes twice and of the one that never comes is said by whoever writes the timetable.
- The next instant lies ahead, provably: an interval of nothing is refused where it is written.
- What is missed is skipped, run once for all, or caught up to a maximum: a decision, never silent.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import Enum
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NoReturn, final

from timebounds._checks import NS, count, member, nanoseconds, shown
from timebounds._values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from timebounds._checks import Seconds

__all__ = ["After", "Daily", "Every", "Missed", "Missing", "Once", "Repeated"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# A day after the last, on which what was held back comes.
_END = date.max.toordinal() + 2


@final
class Missed(Value):
    """What becomes of runs whose time has passed: `coalesce()`, `skip()` or `catch_up(maximum)`."""

    __slots__ = ("kept", "grace_ns")  # noqa: RUF023  (as pickled)

    kept: int
    grace_ns: int | None

    def __init__(self, *_: object, **__: object) -> None:
        msg = "write Missed.coalesce(), Missed.skip() or Missed.catch_up(10)"
        raise TypeError(msg)

    @staticmethod
    def coalesce() -> Missed:
        """Return the policy that runs once, however many were missed."""
        return _missed(1, None)

    @staticmethod
    def skip(grace: Seconds = 1.0) -> Missed:
        """Return the policy that drops a run that is more than `grace` seconds late.

        Not one that is late because the job's own last run took so long.
        """
        return _missed(1, nanoseconds(grace, "grace"))

    @staticmethod
    def catch_up(maximum: int) -> Missed:
        """Return the policy that makes up for the last `maximum` runs, one after another."""
        return _missed(count(maximum, "maximum", minimum=1), None)

    def __repr__(self) -> str:
        if self.grace_ns is not None:
            return f"Missed.skip({self.grace_ns / NS:g})"
        return "Missed.coalesce()" if self.kept == 1 else f"Missed.catch_up({self.kept})"


def _missed(kept: int, grace_ns: int | None) -> Missed:
    policy = object.__new__(Missed)
    policy._set(kept=kept, grace_ns=grace_ns)
    return policy


_COALESCE = Missed.coalesce()


@final
class Every(Value):
    """At a fixed rate: `first` seconds from when it is added, then each `seconds`, run or no run.

    Args:
        seconds: between two runs, more than 0.
        first: until the first; `seconds` unless given.
        missed: what becomes of runs whose time has passed.
    """

    __slots__ = ("interval_ns", "first_ns", "missed")  # noqa: RUF023  (as pickled)

    interval_ns: int
    first_ns: int
    missed: Missed

    def __init__(
        self, seconds: Seconds, *, first: Seconds | None = None, missed: Missed = _COALESCE
    ) -> None:
        interval_ns = nanoseconds(seconds, "seconds", positive=True)
        first_ns = interval_ns if first is None else nanoseconds(first, "first")
        self._set(interval_ns=interval_ns, first_ns=first_ns, missed=as_missed(missed))

    def passed(self, due: int, now: int) -> int:
        """Return how many instants lie from `due`, which is one, up to and with `now`."""
        return (now - due) // self.interval_ns + 1

    def forward(self, due: int, steps: int) -> int | None:
        """Return the instant so many steps after `due`."""
        return due + steps * self.interval_ns


@final
class After(Value):
    """With a fixed delay: `seconds` after the end of each run. The first `first` from adding it."""

    __slots__ = ("delay_ns", "first_ns", "missed")

    delay_ns: int
    first_ns: int
    missed: Missed

    def __init__(self, seconds: Seconds, *, first: Seconds | None = None) -> None:
        delay_ns = nanoseconds(seconds, "seconds", positive=True)
        first_ns = delay_ns if first is None else nanoseconds(first, "first")
        self._set(delay_ns=delay_ns, first_ns=first_ns, missed=_COALESCE)

    def passed(self, due: int, now: int) -> int:  # noqa: ARG002
        """Return 1: none follows before this one has run."""
        return 1

    def forward(self, due: int, steps: int) -> int | None:  # noqa: ARG002
        """Return the same instant: the next one is known when the run has ended."""
        return due


@final
class Once(Value):
    """Once, `seconds` from when it is added; late rather than never."""

    __slots__ = ("first_ns", "missed")

    first_ns: int
    missed: Missed

    def __init__(self, seconds: Seconds) -> None:
        self._set(first_ns=nanoseconds(seconds, "seconds"), missed=_COALESCE)

    def passed(self, due: int, now: int) -> int:  # noqa: ARG002
        """Return 1: there is no other."""
        return 1

    def forward(self, due: int, steps: int) -> int | None:
        """Return this instant, and none after it."""
        return None if steps else due


@final
class Repeated(Enum):
    """Which one is meant of a time of day that comes twice, when clocks are set back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


@final
class Missing(Enum):
    """What becomes of a time of day that never comes, when clocks are set forward."""

    SKIP = "skip"
    """No run on that day."""
    SHIFT = "shift"
    """As much later as clocks were set forward: 02:30 becomes 03:30."""


@final
class Daily(Value):
    """At times of day of a zone, by the wall clock.

    Daily(time(9), time(17, 30), zone="Europe/Berlin", repeated=Repeated.FIRST,
          missing=Missing.SHIFT)

    Args:
        times: naive `datetime.time` objects.
        zone: a name of the time zone database, or a `tzinfo`.
        repeated: of a time that comes twice on a day, which is meant.
        missing: of a time that never comes on a day, what becomes of it.
        missed: what becomes of runs whose time has passed.

    Raises:
        ValueError: the zone is not known; there is no time, or one has a zone of its own.
    """

    __slots__ = ("times", "zone", "repeated", "missing", "missed")  # noqa: RUF023  (as pickled)

    times: tuple[time, ...]
    zone: tzinfo
    repeated: Repeated
    missing: Missing
    missed: Missed

    def __init__(
        self,
        *times: time,
        zone: str | tzinfo,
        repeated: Repeated,
        missing: Missing,
        missed: Missed = _COALESCE,
    ) -> None:
        self._set(
            times=tuple(sorted({_as_time(each) for each in times})),
            zone=_as_zone(zone),
            repeated=member(repeated, "repeated", Repeated),
            missing=member(missing, "missing", Missing),
            missed=as_missed(missed),
        )
        if not times:
            msg = "times must hold at least one time of day: write Daily(time(9), zone=...)"
            raise ValueError(msg)

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first instant after this one, in UTC; None at the end of the calendar."""
        return next(self._after(instant), None)

    def _after(self, last: datetime) -> Iterator[datetime]:
        """Yield all instants after this one, in order."""
        held: list[datetime] = []
        # Its own date, the zone's and that of a run that was shifted are a day apart, each.
        for number in range(max(1, last.toordinal() - 3), _END):
            # When clocks are set at midnight, runs of one day lie among those of the next.
            both = sorted([*held, *self._on(number)])
            ready = bisect_right(both, held[-1]) if held else 0
            for each in both[:ready]:
                if each > last:
                    yield (last := each)
            held = both[ready:]

    def _on(self, number: int) -> Iterator[datetime]:
        """Yield the instants of one day, in UTC."""
        if number <= date.max.toordinal():
            day = date.fromordinal(number)
            for at in self.times:
                # At its ends the calendar has no instant for a time of every zone.
                with suppress(OverflowError):
                    yield from self._instants(datetime.combine(day, at))

    def _instants(self, plain: datetime) -> Iterator[datetime]:
        first, second = (
            plain.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)
        )
        if first == second:
            yield first
        elif first.astimezone(self.zone).replace(tzinfo=None) != plain:
            # Between the two offsets there is a gap; with the first one it lies behind.
            if self.missing is Missing.SHIFT:
                yield first
        else:
            if self.repeated is not Repeated.SECOND:
                yield first
            if self.repeated is not Repeated.FIRST:
                yield second

    def passed(self, due: int, now: int) -> int:
        """Return how many instants lie from `due`, which is one, up to and with `now`."""
        end = instant_of(now)
        later = takewhile(lambda each: each <= end, self._after(instant_of(due)))
        return 1 + sum(1 for _ in later)

    def forward(self, due: int, steps: int) -> int | None:
        """Return the instant so many steps after `due`."""
        if not steps:
            return due
        following = next(islice(self._after(instant_of(due)), steps - 1, None), None)
        return None if following is None else ns_of(following)


Timetable = Every | After | Once | Daily


def as_timetable(value: object) -> Timetable:
    """Return the timetable, if that is what it is."""
    if not isinstance(value, Timetable):
        msg = f"timetable must be Every(60), After(60), Once(5) or Daily(...), not {shown(value)}"
        raise TypeError(msg)
    return value


def as_missed(value: object) -> Missed:
    """Return the policy, if that is what it is."""
    if not isinstance(value, Missed):
        msg = f"missed must be Missed.coalesce(), .skip() or .catch_up(10), not {shown(value)}"
        raise TypeError(msg)
    return value


def instant_of(ns: int) -> datetime:
    """Return the UTC datetime of so many ns since 1970."""
    return _EPOCH + timedelta(microseconds=ns // 1000)


def ns_of(instant: datetime) -> int:
    """Return the ns since 1970 of an aware datetime."""
    return (instant - _EPOCH) // _MICROSECOND * 1000


def _as_time(value: object) -> time:
    if not isinstance(value, time):
        msg = f"times must be datetime.time objects such as time(9, 30), not {shown(value)}"
        raise TypeError(msg)
    if value.tzinfo is not None:
        msg = f"times must be naive, {value!r} has a zone: give it as zone="
        raise ValueError(msg)
    return value.replace(fold=0)


def _as_zone(zone: object) -> tzinfo:
    if isinstance(zone, tzinfo):
        return zone
    if not isinstance(zone, str):
        _refuse_zone(zone, None)
    from zoneinfo import ZoneInfo  # noqa: PLC0415  (only times of day need the database)

    try:
        return ZoneInfo(zone)
    except (OSError, ValueError, KeyError) as error:
        _refuse_zone(zone, error)


def _refuse_zone(zone: object, error: Exception | None) -> NoReturn:
    msg = f"zone must be a name such as 'Europe/Berlin' or a tzinfo, not {shown(zone)}"
    if error is None:
        raise TypeError(msg)
    msg += ": this system's time zone database does not have it (Debian: tzdata)"
    raise ValueError(msg) from error
