"""The expiry: a calendar instant after which data is no longer valid.

Rules (D7, C2, C3 of the contracts):
- At or after the instant is stale, as everywhere.
- The instant is aware and kept in UTC, so arithmetic knows no summer time; a naive datetime is
  refused, since guessing its zone once made expired tokens look valid for hours.
- It follows the wall clock, steps included, and so is never used for waiting: that is what a
  `Deadline` is for. Unlike a deadline it may be stored and sent to other processes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn, final

from timebounds._checks import nanoseconds
from timebounds._values import Value
from timebounds.bounds.clock import WALL, Clock
from timebounds.errors import ClockError

if TYPE_CHECKING:
    from timebounds._checks import Seconds

__all__ = ["Expiry"]

_LATEST = datetime.max.replace(tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@final
class Expiry(Value):
    """An aware calendar instant from which on something is stale, together with a wall clock.

    Immutable, hashable, picklable when its clock is. Equal when the instants are.
    """

    __slots__ = ("at_utc", "_clock")  # noqa: RUF023  (as pickled)

    at_utc: datetime
    _clock: Clock[datetime]

    def __init__(self, *_: object, **__: object) -> None:
        msg = "write Expiry.after(seconds) or Expiry.at(aware_datetime)"
        raise TypeError(msg)

    @staticmethod
    def after(seconds: Seconds, *, clock: Clock[datetime] = WALL) -> Expiry:
        """Return the expiry `seconds` from now, at least a microsecond unless 0. Reads the clock.

        What lies beyond the year 9999 becomes the last instant that a datetime can hold.
        """
        ns = nanoseconds(seconds, "seconds")
        now = _read(clock)
        # Rounded up: a datetime holds microseconds, and validity is never cut short by rounding.
        microseconds = -(-ns // 1000)
        if microseconds > (_LATEST - now) // timedelta(microseconds=1):
            return _make(_LATEST, clock)
        return _make(now + timedelta(microseconds=microseconds), clock)

    @staticmethod
    def at(instant: datetime, *, clock: Clock[datetime] = WALL) -> Expiry:
        """Return the expiry at an aware datetime of any zone. Reads no clock.

        Raises:
            ValueError: the datetime is naive.
            TypeError: it is no datetime.
        """
        if not isinstance(instant, datetime):
            msg = f"instant must be an aware datetime, not {type(instant).__name__} {instant!r:.80}"
            raise TypeError(msg)
        if instant.utcoffset() is None:
            msg = (
                f"instant must be aware, {instant!r} has no time zone: "
                "write datetime.now(UTC) or instant.replace(tzinfo=...)"
            )
            raise ValueError(msg)
        wall_clock(clock)
        return _make(_in_utc(instant), clock)

    def remaining(self) -> float:
        """Read the clock and return the seconds of validity left: 0.0 when stale."""
        return max(0.0, (self.at_utc - _read(self._clock)).total_seconds())

    def fresh(self) -> bool:
        """Read the clock and say whether the instant still lies ahead."""
        return _read(self._clock) < self.at_utc

    def stale(self) -> bool:
        """Read the clock and say whether the instant has come; at the instant it has."""
        return not self.fresh()

    def __eq__(self, other: object) -> bool:
        return self.at_utc == other.at_utc if isinstance(other, Expiry) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self.at_utc < other.at_utc if isinstance(other, Expiry) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.at_utc <= other.at_utc if isinstance(other, Expiry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.at_utc)

    def __bool__(self) -> NoReturn:
        msg = "an expiry is neither true nor false: write `is None`, `fresh()` or `stale()`"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return f"<Expiry at {self.at_utc.isoformat()} on {self._clock!r}>"


def _make(at_utc: datetime, clock: Clock[datetime]) -> Expiry:
    expiry = object.__new__(Expiry)
    expiry._set(at_utc=at_utc, _clock=clock)
    return expiry


def _in_utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        # Within a day of the year 1 or 9999 the offset can lead out of the calendar.
        return _LATEST if instant.year > 1 else _EARLIEST


def wall_clock(clock: Clock[datetime]) -> None:
    """Raise TypeError for what is no wall clock."""
    if hasattr(clock, "now_ns") or not callable(getattr(clock, "now", None)):
        msg = (
            f"clock must be a wall clock such as WallClock(), not {clock!r:.80}"
            + ": for elapsed time use Deadline" * hasattr(clock, "now_ns")
        )
        raise TypeError(msg)


def _read(clock: Clock[datetime]) -> datetime:
    wall_clock(clock)
    now: object = clock.now()
    if not isinstance(now, datetime) or now.utcoffset() is None:
        msg = f"{clock!r}.now() returned {now!r:.80}, not an aware datetime"
        raise ClockError(msg)
    return _in_utc(now)
