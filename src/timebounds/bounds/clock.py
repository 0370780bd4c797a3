"""Clocks: the one file that imports `time`.

Rules (C1-C6, N3-N5 of the contracts):
- A *steady* clock measures elapsed time and can wait; its instants are whole nanoseconds inside
  and float seconds outside. A *wall* clock names calendar instants and never waits.
- A wait ends when its clock says so, never earlier: after every wake-up the clock is read again.
- A wait in the operating system is cut into slices of at most one day, so no size overflows and
  no platform fault hangs it for ever.
- A clock that goes backwards, or returns no whole number, is a `ClockError`.
- The reading function is bound in an instance slot through a default argument: a test tool that
  patches the `time` module cannot freeze a deadline for ever. The wall may be faked by such tools.

What must not live here: deadlines, sockets, decisions.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

from timebounds._checks import NS, nanoseconds, running_loop
from timebounds.bounds.alarm import LoopAlarm, not_backwards, refuse_fake_loop
from timebounds.errors import ClockError

if TYPE_CHECKING:
    import threading
    from asyncio import Future
    from collections.abc import Callable

    from timebounds.bounds.alarm import Alarm

__all__ = [
    "MONOTONIC",
    "WALL",
    "BootClock",
    "Clock",
    "MonotonicClock",
    "Poller",
    "SteadyClock",
    "WallClock",
]

InstantT_co = TypeVar("InstantT_co", covariant=True)
_T = TypeVar("_T")

DAY_NS = 86_400 * NS


class Poller(Protocol):
    """What a clock needs of `select.poll()` in order to wait on descriptors."""

    def register(self, fd: int, eventmask: int, /) -> None:
        """Watch `fd` for the events of `eventmask`."""

    def unregister(self, fd: int, /) -> None:
        """Stop watching `fd`."""

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
        """Wait at most `timeout` milliseconds; return (descriptor, events) pairs."""
        ...


class Clock(Protocol[InstantT_co]):
    """Answers "what time is it?": float seconds of a steady clock, or an aware UTC datetime."""

    __slots__ = ()

    def now(self) -> InstantT_co:
        """Read the clock."""
        ...


class SteadyClock(Clock[float], Protocol):
    """A clock for elapsed time, which can also wait.

    Subclass it and give `now_ns`: every other method has a working default that waits in real
    time and asks `now_ns` whether the wait is over. Instants of two clocks never mix.
    """

    __slots__ = ()

    def now_ns(self) -> int:
        """Read the clock: whole nanoseconds since its own, arbitrary zero; never decreasing."""
        ...

    def now(self) -> float:
        """Read the clock in seconds."""
        return self.now_ns() / NS

    def sleep(self, seconds: float) -> None:
        """Block this thread for at least `seconds` of this clock.

        Bounds nothing else. A signal handler runs in between; what it raises passes through.
        Raises ClockError when the clock goes backwards meanwhile. For threads.
        """
        limit = nanoseconds(seconds, "seconds")
        if limit:
            _wait(self, limit, time.sleep)

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        """Wait on `condition`, which the caller holds, for at most `seconds` (None: no limit).

        Returns True when notified, False when the time was over first. As with every condition
        the caller checks again what it waits for. Raises ClockError when the clock goes back.
        For threads.
        """
        limit = None if seconds is None else nanoseconds(seconds, "seconds")
        return bool(_wait(self, limit, condition.wait))

    def poll(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        """Wait until a descriptor of `poller` is ready, for at most `seconds` (None: no limit).

        Returns the ready (descriptor, events) pairs; an empty list means that the time is over.
        Zero looks without waiting. Raises ClockError when the clock goes back. For threads.
        """
        limit = None if seconds is None else nanoseconds(seconds, "seconds")
        return _wait(self, limit, lambda longest: poller.poll(longest * 1000)) or []

    async def asleep(self, seconds: float) -> None:
        """Suspend this task for at least `seconds` of this clock.

        A cancel ends it at once. Raises ClockError when the clock goes back. For tasks.
        """
        import asyncio  # noqa: PLC0415  (the blocking half must not pay for it)

        limit = nanoseconds(seconds, "seconds")
        if limit:
            refuse_fake_loop(self, running_loop())
            slices = _Slices(self, limit)
            for longest in iter(slices.next, None):
                await asyncio.sleep(longest)

    async def await_done(self, future: Future[Any], seconds: float | None) -> bool:
        """Wait until `future` is done, for at most `seconds` (None: no limit).

        Returns True when it is done. Neither a cancel nor the end of the time touches the
        future. Raises ClockError when the clock goes back. For tasks.
        """
        limit = None if seconds is None else nanoseconds(seconds, "seconds")
        loop = future.get_loop()
        refuse_fake_loop(self, loop)

        if future.done():
            return True
        waiter = loop.create_future()

        def wake(_: object = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        alarm = None
        future.add_done_callback(wake)
        try:
            if limit is not None:
                read = reader(self)
                now = read()
                alarm = LoopAlarm(loop, read, now, now + limit, _longest(self), wake)
            await waiter
        finally:
            future.remove_done_callback(wake)
            if alarm is not None:
                alarm.cancel()
        if alarm is not None:
            alarm.check()
        return future.done()

    def alarm(self, seconds: float, wake: Callable[[], object]) -> Alarm:
        """Call `wake()` in this thread's event loop when `seconds` of this clock have passed.

        Never before, but at once when the clock fails or goes back; at most once. Returns what
        calls it off. For tasks.
        """
        ns = nanoseconds(seconds, "seconds")
        loop = running_loop()
        refuse_fake_loop(self, loop)
        read = reader(self)
        now = read()
        return LoopAlarm(loop, read, now, now + ns, _longest(self), wake)


def _longest(clock: SteadyClock) -> int:
    """Return the ns of one wait in the system, after which the clock is looked at again."""
    # Suspend stops the system's timers but not this clock: look at it every second.
    return NS if isinstance(clock, BootClock) else DAY_NS


class _Slices:
    """The arithmetic of one wait: how long the next slice is, and when all is over."""

    __slots__ = ("_last", "_limit", "_longest", "_read", "_start")

    def __init__(self, clock: SteadyClock, limit_ns: int | None) -> None:
        self._read = reader(clock)
        self._start = self._last = self._read()
        self._limit = limit_ns
        self._longest = _longest(clock)

    def next(self) -> float | None:
        """Return the seconds of the next slice, or None when the clock says that all is over."""
        if self._limit is None:
            return self._longest / NS
        now = self._read()
        not_backwards(self._last, now)
        self._last = now
        left = self._start + self._limit - now
        return min(left, self._longest) / NS if left > 0 else None


def _wait(clock: SteadyClock, limit_ns: int | None, once: Callable[[float], _T]) -> _T | None:
    """Call `once` with slices of the limit until it returns something true, or time is over."""
    slices = _Slices(clock, limit_ns)
    longest: float | None = 0.0 if limit_ns == 0 else slices.next()
    while longest is not None:
        got = once(longest)
        if got:
            return got
        longest = slices.next()
    return None


@final
class MonotonicClock(SteadyClock):
    """The system's monotonic clock: steps of the wall clock do not move it.

    On Linux it stands still while the machine is suspended; `BootClock` goes on.
    """

    __slots__ = ("_read",)

    def __init__(self, _read: Callable[[], int] = time.monotonic_ns) -> None:
        self._read = _read

    def now_ns(self) -> int:
        """Read the clock: nanoseconds since an arbitrary zero."""
        return self._read()

    def __repr__(self) -> str:
        return "MonotonicClock()"


@final
class BootClock(SteadyClock):
    """A steady clock that counts the time of suspend too, where the system has one.

    Its waits look at the clock every second, since suspend stops the system's own timers.

    Raises:
        RuntimeError: at construction, where the system has no such clock.
    """

    __slots__ = ("_read",)

    def __init__(
        self,
        _read: Callable[[int], int] = time.clock_gettime_ns,
        _which: int | None = getattr(time, "CLOCK_BOOTTIME", None),
    ) -> None:
        if _which is None:
            msg = "this system has no clock that counts suspend: use MonotonicClock()"
            raise RuntimeError(msg)
        self._read = partial(_read, _which)

    def now_ns(self) -> int:
        """Read the clock: nanoseconds since the machine booted, suspend included."""
        return self._read()

    def __repr__(self) -> str:
        return "BootClock()"


@final
class WallClock(Clock[datetime]):
    """The calendar clock: aware UTC datetimes. It may be stepped, so nothing waits on it."""

    __slots__ = ()

    def now(self) -> datetime:
        """Read the clock as an aware datetime in UTC."""
        return datetime.now(UTC)

    def __repr__(self) -> str:
        return "WallClock()"


MONOTONIC = MonotonicClock()
"""The default clock of every deadline."""

WALL = WallClock()
"""The default clock of every expiry."""


def reader(clock: SteadyClock) -> Callable[[], int]:
    """Return the function that reads `clock` in nanoseconds, checked unless it is the system's.

    Raises TypeError for what is no steady clock; the function raises ClockError for a reading
    that is no whole number.
    """
    if type(clock) is MonotonicClock:
        return clock._read
    read = getattr(clock, "now_ns", None)
    if not callable(read) or isinstance(clock, type):
        msg = (
            f"clock must be a steady clock such as MonotonicClock(), not {clock!r:.80}"
            + ": for an instant of the calendar use Expiry" * hasattr(clock, "now")
        )
        raise TypeError(msg)

    def checked() -> int:
        now = read()
        if type(now) is not int:
            msg = f"{clock!r}.now_ns() returned {now!r:.80}, not a whole number of nanoseconds"
            raise ClockError(msg)
        return now

    return checked


def unfailing(read: Callable[[], int]) -> Callable[[], int]:
    """Return a reader that never fails: who asks must be heard, with or without the time."""
    if type(read) is BuiltinFunctionType:
        return read

    def now() -> int:
        with suppress(Exception):
            return read()
        return 0

    return now
