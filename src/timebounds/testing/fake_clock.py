"""`FakeClock`: time that a test moves by hand.

Three ways to move: `advance(s)` by hand; `FakeClock(auto_advance=True)`, where a wait of the only
running thread or task moves the clock itself; `jump(s)`, which goes over all timers at once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, final

from timebounds._checks import count, nanoseconds, signed_nanoseconds
from timebounds._checks import patience as real_seconds
from timebounds.bounds.clock import Clock, SteadyClock
from timebounds.bounds.deadline import Deadline
from timebounds.errors import ClockError
from timebounds.testing.fake_face import Face
from timebounds.testing.fake_time import Timeline, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from timebounds._checks import Seconds

__all__ = ["FakeClock", "Timer"]

T = TypeVar("T")

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@final
class FakeClock(Face):
    """A steady clock that a test moves; `wall` and `boot` are two more faces of the same time.

    It starts at 0. `advance(s)` fires every waiter on the way, in order, each at its own instant.
    Threads and tasks may wait on it together; whoever waits for longer than `patience` real
    seconds without an advance gets a ClockError that names it, so a forgotten advance is no hang.

    Args:
        start: the first instant, in seconds.
        auto_advance: let a wait of the only running thread or task move the clock by itself.
        patience: real seconds before a waiter, or `advance` itself, gives up.
        wall_start: the aware instant at which `wall` begins.
    """

    def __init__(
        self,
        start: Seconds = 0,
        *,
        auto_advance: bool = False,
        patience: Seconds = 30,
        wall_start: datetime = _EPOCH,
    ) -> None:
        timeline = Timeline(nanoseconds(start, "start"), real_seconds(patience, "patience"))
        super().__init__(timeline, boot=False, auto_advance=auto_advance)
        if wall_start.utcoffset() is None:
            msg = f"wall_start must be aware, {wall_start!r} has no time zone"
            raise ValueError(msg)
        self.boot: SteadyClock = Face(timeline, boot=True, auto_advance=auto_advance)
        """The face that goes on while suspended."""
        self.wall: _FakeWall = _FakeWall(timeline, wall_start.astimezone(UTC))
        """The face of the calendar."""

    def deadline(self, seconds: Seconds) -> Deadline:
        """Return `Deadline.after(seconds, clock=self)`."""
        return Deadline.after(seconds, clock=self)

    def advance(self, seconds: Seconds) -> None:
        """Let time pass through every instant; end exactly `seconds` later. Never backwards.

        A thread that is woken on the way is waited for until it has left its waiting verb.

        Raises:
            ClockError: a callback arms itself again and again without a delay, or a woken thread
                does not leave its wait.
        """
        self._timeline.move(nanoseconds(seconds, "seconds"))

    def advance_to_next(self) -> float:
        """Advance to the next waiter's instant and return it in seconds.

        Raises:
            ClockError: nobody waits.
        """
        ns = self._timeline.until_next()
        if ns is None:
            msg = f"nobody waits on the fake clock, which is at {self.now():g} s"
            raise ClockError(msg)
        self._timeline.move(ns)
        return self.now()

    def jump(self, seconds: Seconds) -> None:
        """Let time pass at once, as for a frozen process: late waiters all see the new instant."""
        self._timeline.jump(nanoseconds(seconds, "seconds"))

    def suspend(self, seconds: Seconds) -> None:
        """Let the machine sleep: `wall` and `boot` go on, the clock itself stands still."""
        self._timeline.move(nanoseconds(seconds, "seconds"), suspended=True)

    def step_wall(self, seconds: Seconds) -> None:
        """Step the calendar, forwards or back (negative); nothing else moves."""
        self.wall.stepped += signed_nanoseconds(seconds, "seconds")

    def call_later(self, seconds: Seconds, callback: Callable[[], object]) -> Timer:
        """Call `callback()` when that much fake time has passed, in the thread that advances."""
        ns = nanoseconds(seconds, "seconds")
        waiter = self._timeline.arm(ns, "callback", callback, boot=False, is_thread=False)
        return Timer(self._timeline, waiter)

    def wait_until_waiting(self, waiters: int, *, within: Seconds = 5) -> None:
        """Block, in real time, until at least that many threads and tasks wait on this clock.

        Raises:
            ClockError: after `within` real seconds; the message tells who does wait.
        """
        count(waiters, "waiters", minimum=1)
        limit = real_seconds(within, "within")
        if not self._timeline.wait_until(waiters, limit):
            found = self.waiting
            msg = (
                f"{waiters} waiters were expected and {len(found)} came within {limit:g} real "
                f"seconds: {', '.join(found) or 'nobody'}"
            )
            raise ClockError(msg)

    @property
    def sleeps(self) -> tuple[float, ...]:
        """The seconds of every sleep that was asked of this clock."""
        return tuple(self._sleeps)

    def script_oversleep(self, seconds: Seconds) -> None:
        """Let the next unscripted sleep last that much longer than asked."""
        self._scripted.append(nanoseconds(seconds, "seconds"))

    def script_sleep_failure(self, error: BaseException) -> None:
        """Let the next unscripted sleep raise `error` at once."""
        self._scripted.append(error)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` in an event loop on this clock's time, and return its value.

        The loop lets time pass by itself, from timer to timer, whenever nothing else is to be done:
        thirty seconds of sleeping take a millisecond. Ends as `asyncio.run` does.

        Raises:
            ClockError: everybody waits and nothing is to come; it says who.
        """
        from timebounds.testing.loop import run_virtual  # noqa: PLC0415  (only tasks pay for it)

        return run_virtual(self, coroutine)

    def __repr__(self) -> str:
        return f"<FakeClock at {self.now():g} s>"


@final
class _FakeWall(Clock[datetime]):
    """The calendar face: steady time, suspend and steps together."""

    def __init__(self, timeline: Timeline, start: datetime) -> None:
        self._timeline = timeline
        self._start = start
        self.stepped: int = 0

    def now(self) -> datetime:
        """Read the clock as an aware datetime in UTC."""
        ns = self._timeline.now(boot=True) + self.stepped
        latest = datetime.max.replace(tzinfo=UTC)
        left = (latest - self._start) // timedelta(microseconds=1)
        return self._start + timedelta(microseconds=min(ns // 1000, left))

    def __repr__(self) -> str:
        return f"<wall of a FakeClock at {self.now().isoformat()}>"
