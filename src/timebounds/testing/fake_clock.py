"""`FakeClock`: time that a test moves by hand.

Three ways to move: `advance(s)` by hand; `FakeClock(auto_advance=True)`, where a wait of the only
running thread or task moves the clock itself; `jump(s)`, which goes over all timers at once.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, final

from timebounds._checks import NS, count, nanoseconds
from timebounds.bounds.clock import Clock, SteadyClock
from timebounds.bounds.deadline import Deadline
from timebounds.errors import ClockError
from timebounds.testing.fake_time import Timeline, Waiter

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from timebounds._checks import Seconds
    from timebounds.bounds.clock import Poller

__all__ = ["FakeClock", "Timer"]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class _Face(SteadyClock):
    """A steady clock over a timeline: how threads and tasks wait on fake time."""

    def __init__(self, timeline: Timeline, *, boot: bool, auto_advance: bool) -> None:
        self._timeline = timeline
        self._boot = boot
        self._auto = auto_advance
        self._scripted: deque[int | BaseException] = deque()
        self._sleeps: list[float] = []

    def now_ns(self) -> int:
        """Read the clock: whole nanoseconds of fake time."""
        return self._timeline.now(boot=self._boot)

    def sleep(self, seconds: float) -> None:
        """Sleep in fake time: until a test advances it, or by moving it (`auto_advance`).

        Raises ClockError after `patience` real seconds in which nobody advanced the clock.
        """
        ns = self._scripted_sleep(seconds)
        if self._auto:
            self._timeline.move(ns)
        elif ns:
            woken = threading.Event()
            waiter = self._arm(ns, woken.set)
            try:
                if not woken.wait(self._timeline.patience):
                    self._give_up(waiter)
            finally:
                self._timeline.disarm(waiter)

    def wait(self, condition: threading.Condition, seconds: float | None) -> bool:
        """Wait on `condition`, which the caller holds, for at most `seconds` of fake time.

        May wake for nothing, as every condition may: its other waiters are notified too when the
        time of one is over.
        """
        ns = None if seconds is None else nanoseconds(seconds, "seconds")
        if self._auto:
            if ns is None:
                msg = "waiting without a limit on a clock that moves itself would never end"
                raise ClockError(msg)
            self._timeline.move(ns)
            return False
        if ns == 0:
            return condition.wait(0)

        def wake() -> None:
            with condition:
                condition.notify_all()

        waiter = self._arm(_forever(ns), wake)
        try:
            if not condition.wait(self._timeline.patience) and not waiter.fired:
                self._give_up(waiter)
        finally:
            in_time = self._timeline.disarm(waiter)
        return in_time

    def poll(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        """Wait for real descriptors for at most `seconds` of fake time."""
        ns = None if seconds is None else nanoseconds(seconds, "seconds")
        found = poller.poll(0)
        if found or ns == 0:
            return found
        if self._auto and ns is not None:
            self._timeline.move(ns)
            return poller.poll(0)
        wake_read, wake_write = os.pipe()
        try:
            poller.register(wake_read, select.POLLIN)
            waiter = self._arm(_forever(ns), lambda: os.write(wake_write, b"!"))
            try:
                found = poller.poll(self._timeline.patience * 1000)
                if not found:
                    self._give_up(waiter)
                return [ready for ready in found if ready[0] != wake_read]
            finally:
                if not self._timeline.disarm(waiter):
                    # Its byte is coming: the descriptor must live until then.
                    os.read(wake_read, 1)
                poller.unregister(wake_read)
        finally:
            os.close(wake_read)
            os.close(wake_write)

    async def asleep(self, seconds: float) -> None:
        """Sleep in fake time, as a task."""
        import asyncio  # noqa: PLC0415  (only tasks pay for it)

        ns = self._scripted_sleep(seconds)
        if self._auto:
            self._timeline.move(ns)
            await asyncio.sleep(0)
        elif ns:
            await self._until(ns, None)

    async def await_done(self, future: Future[Any], seconds: float | None) -> bool:
        """Wait until `future` is done, for at most `seconds` of fake time, as a task."""
        import asyncio  # noqa: PLC0415  (only tasks pay for it)

        ns = None if seconds is None else nanoseconds(seconds, "seconds")
        if self._auto and ns is not None:
            await asyncio.sleep(0)
            if not future.done():
                self._timeline.move(ns)
                await asyncio.sleep(0)
        elif ns != 0 and not future.done():
            await self._until(_forever(ns), future)
        return future.done()

    async def _until(self, ns: int, future: Future[Any] | None) -> None:
        import asyncio  # noqa: PLC0415  (only tasks pay for it)

        loop = asyncio.get_running_loop()
        timer: Future[None] = loop.create_future()

        def fire() -> None:
            if not timer.done():
                timer.set_result(None)

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(fire)

        task = asyncio.current_task()
        name = f"task {task.get_name() if task else '?'}"
        waiter = self._timeline.arm(ns, name, wake, boot=self._boot, is_thread=False)
        try:
            awaited = {timer} if future is None else {timer, future}
            done, _ = await asyncio.wait(
                awaited, timeout=self._timeline.patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                self._give_up(waiter)
        finally:
            self._timeline.disarm(waiter)
            timer.cancel()

    def _arm(self, ns: int, fire: Callable[[], object]) -> Waiter:
        name = f"thread {threading.current_thread().name}"
        return self._timeline.arm(ns, name, fire, boot=self._boot, is_thread=True)

    def _scripted_sleep(self, seconds: float) -> int:
        """Record a sleep; return its ns, oversleep included, or raise the scripted failure."""
        ns = nanoseconds(seconds, "seconds")
        self._sleeps.append(ns / NS)
        scripted = self._scripted.popleft() if self._scripted else 0
        if isinstance(scripted, BaseException):
            raise scripted
        return ns + scripted

    def _give_up(self, waiter: Waiter) -> NoReturn:
        others = ", ".join(str(each) for each in self._timeline.waiting() if each is not waiter)
        msg = (
            f"nobody advanced the fake clock for {self._timeline.patience:g} real seconds: it is "
            f"at {self.now():g} s and {waiter} still waits" + f" (so do {others})" * bool(others)
        )
        raise ClockError(msg)


def _forever(ns: int | None) -> int:
    return (1 << 100) if ns is None else ns


@final
class FakeClock(_Face):
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
        real = nanoseconds(patience, "patience", positive=True) / NS
        timeline = Timeline(nanoseconds(start, "start"), min(real, threading.TIMEOUT_MAX))
        super().__init__(timeline, boot=False, auto_advance=auto_advance)
        if wall_start.utcoffset() is None:
            msg = f"wall_start must be aware, {wall_start!r} has no time zone"
            raise ValueError(msg)
        self.boot: SteadyClock = _Face(timeline, boot=True, auto_advance=auto_advance)
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

    def step_wall(self, seconds: float) -> None:
        """Step the calendar, forwards or back (negative); nothing else moves."""
        size = nanoseconds(abs(seconds), "seconds")
        self.wall.stepped += size if seconds > 0 else -size

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
        limit = nanoseconds(within, "within", positive=True) / NS
        if not self._timeline.wait_until(waiters, min(limit, threading.TIMEOUT_MAX)):
            found = self.waiting
            msg = (
                f"{waiters} waiters were expected and {len(found)} came within {limit:g} real "
                f"seconds: {', '.join(found) or 'nobody'}"
            )
            raise ClockError(msg)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Who waits on this clock and until when, in order of their instants."""
        return tuple(str(each) for each in self._timeline.waiting())

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

    def __repr__(self) -> str:
        return f"<FakeClock at {self.now():g} s>"


@final
class Timer:
    """A callback that was armed with `call_later`."""

    __slots__ = ("_timeline", "_waiter")

    def __init__(self, timeline: Timeline, waiter: Waiter) -> None:
        self._timeline = timeline
        self._waiter = waiter

    def cancel(self) -> bool:
        """Disarm the callback; say whether it had not run."""
        return self._timeline.disarm(self._waiter)


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
        return self._start + timedelta(microseconds=ns // 1000)

    def __repr__(self) -> str:
        return f"<wall of a FakeClock at {self.now().isoformat()}>"
