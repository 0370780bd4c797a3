"""How threads and tasks wait on fake time: one face of a fake clock."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn, cast

from timebounds._checks import NS, nanoseconds
from timebounds.bounds.clock import SteadyClock
from timebounds.bounds.waking import tell
from timebounds.errors import ClockError
from timebounds.testing.fake_time import Timer

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from timebounds.bounds.alarm import Alarm
    from timebounds.bounds.clock import Poller
    from timebounds.testing.fake_time import Timeline, Waiter


# Real seconds between two looks.
_MOMENT = 0.005


class Face(SteadyClock):
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
            # Who fired on the way may have been what is waited for: the caller looks again.
            return not self._step(ns)[0]
        if ns == 0:
            return condition.wait(0)

        def wake() -> None:
            if not condition.acquire(timeout=self._timeline.patience):
                msg = f"the condition that {waiter} waits on was held while the clock was advanced"
                raise ClockError(msg)
            try:
                condition.notify_all()
            finally:
                condition.release()

        waiter = self._arm(_forever(ns), wake)
        waiter.wakeable = True
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
            over = False
            while not (found := self._after_lookups(poller)) and not over:
                over, ns = self._step(ns)
            return found
        wake_read, wake_write = os.pipe()
        try:
            poller.register(wake_read, select.POLLIN)
            waiter = self._arm(_forever(ns), lambda: os.write(wake_write, b"!"))
            waiter.wakeable = True
            try:
                found = poller.poll(self._timeline.patience * 1000)
                if not found:
                    self._give_up(waiter)
                return [ready for ready in found if ready[0] != wake_read]
            finally:
                poller.unregister(wake_read)
                if not self._timeline.disarm(waiter):
                    # Its byte is coming: the descriptor must live until then, if it does.
                    last = select.poll()
                    last.register(wake_read, select.POLLIN)
                    last.poll(self._timeline.patience * 1000)
        finally:
            os.close(wake_read)
            os.close(wake_write)

    def _after_lookups(self, poller: Poller) -> list[tuple[int, int]]:
        """Look at descriptors, in real time as long as somebody waits for a name's address."""
        waited = 0.0
        lookup = sys.modules.get("timebounds.bounds.lookup")
        while lookup is not None and lookup.AWAITED:
            if found := poller.poll(_MOMENT * 1000):
                return found
            waited += _MOMENT
            if waited >= self._timeline.patience:
                msg = f"a lookup has not returned after {waited:g} real seconds: let it sleep on"
                raise ClockError(f"{msg} {self!r} to take time")
        return poller.poll(0)

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
            over = False
            await asyncio.sleep(0)
            while not future.done() and not over:
                over, ns = self._step(ns)
                await asyncio.sleep(0)
        elif ns != 0 and not future.done():
            await self._until(_forever(ns), future)
        return future.done()

    def alarm(self, seconds: float, wake: Callable[[], object]) -> Alarm:
        """Call `wake()` in this thread's event loop at an instant of fake time."""
        import asyncio  # noqa: PLC0415  (only tasks pay for it)

        loop = asyncio.get_running_loop()

        def fire() -> None:
            tell(loop, wake)

        ns = nanoseconds(seconds, "seconds")
        waiter = self._timeline.arm(ns, _task_name(), fire, boot=self._boot, is_thread=False)
        return Timer(self._timeline, waiter)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Who waits on this clock and until when, in order of their instants."""
        return tuple(str(each) for each in self._timeline.waiting())

    @property
    def patience(self) -> float:
        """Real seconds before a wait that nobody ends gives up."""
        return self._timeline.patience

    def waiting_threads(self) -> dict[threading.Thread, bool]:
        """Return the threads that wait on this clock: True for one that not only time may wake."""
        return self._timeline.waiting_threads()

    def until_next(self) -> int | None:
        """Return the ns until the next waiter or callback; None without one."""
        return self._timeline.until_next()

    def pass_ns(self, ns: int) -> None:
        """Let so many ns pass through every instant."""
        self._timeline.move(ns)

    def _step(self, ns: int) -> tuple[bool, int]:
        """Move to the next waiter, at most `ns`; say whether all has passed, and what is left."""
        next_one = self._timeline.until_next()
        step = ns if next_one is None else min(ns, next_one)
        self._timeline.move(step)
        return step == ns, ns - step

    async def _until(self, ns: int, future: Future[Any] | None) -> None:
        import asyncio  # noqa: PLC0415  (only tasks pay for it)

        loop = asyncio.get_running_loop()
        timer: Future[None] = loop.create_future()

        def fire() -> None:
            if not timer.done():
                timer.set_result(None)

        def wake() -> None:
            tell(loop, fire)

        waiter = self._timeline.arm(ns, _task_name(), wake, boot=self._boot, is_thread=False)
        try:
            awaited = {timer} if future is None else {timer, future}
            # On a loop that moves this clock itself nobody has to be patient.
            moved = getattr(loop, "timebounds_clock", None)
            patience = None if _same(moved, self) else self._timeline.patience
            done, _ = await asyncio.wait(
                awaited, timeout=patience, return_when=asyncio.FIRST_COMPLETED
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
        if not self._scripted:
            return ns
        if isinstance(self._scripted[0], BaseException):
            # From no local of the frame that its traceback will hold.
            raise cast("BaseException", self._scripted.popleft())
        return ns + cast("int", self._scripted.popleft())

    def _give_up(self, waiter: Waiter) -> NoReturn:
        others = ", ".join(str(each) for each in self._timeline.waiting() if each is not waiter)
        msg = (
            f"nobody advanced the fake clock for {self._timeline.patience:g} real seconds: it is "
            f"at {self.now():g} s and {waiter} still waits" + f" (so do {others})" * bool(others)
        )
        raise ClockError(msg)


def _forever(ns: int | None) -> int:
    return (1 << 100) if ns is None else ns


def _same(one: object, other: Face) -> bool:
    """Say whether `one` is a face of the same time."""
    return isinstance(one, Face) and one._timeline is other._timeline


def _task_name() -> str:
    import asyncio  # noqa: PLC0415  (only tasks pay for it)

    task = asyncio.current_task()
    return f"task {task.get_name() if task else '?'}"
