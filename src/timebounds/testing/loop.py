"""An asyncio loop on fake time: a sleep of years takes milliseconds, and nothing is patched.

Rules (F1-F3 of the contracts, A79-A84 of the cases):
- It is the standard loop, made with a selector of ours and a `time()` that reads the fake clock.
- Where the standard loop would block, time goes on instead, to the next timer or waiter and no
  further; but only when nothing is ready, and nobody works: no offload, executor's thread
  or subprocess.
- A thread that waits on the same clock does not work. One that waits for something else does.
- Where the world outside may have a say, a watched descriptor or a thread that is nobody's, it is
  given a moment of real time first.
- What would wait or turn for ever ends with an error that says who waits for what.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, final

from timebounds._checks import NS, refuse_second_loop
from timebounds.bounds.clock import MONOTONIC
from timebounds.errors import ClockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor

    from timebounds.bounds._threads import Pool
    from timebounds.testing.fake_face import Face

__all__ = ["VirtualLoop", "run_virtual"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Real seconds that the world outside is given before time goes on without it.
_GRACE = 0.005
# After so many turns of the loop at one instant it is looked at how long they took.
_TURNS = 1000


@final
class _Selector(selectors.DefaultSelector):
    """Selects what is ready; lets fake time pass where nothing is."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready, or move the clock to the next instant at which something is."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            self.loop.count_turn([key.fd for key, _ in ready])
        else:
            ready = self.loop.pass_time(timeout, super().select)
        self.loop.look_ahead()
        return ready


@final
class _Job:
    """Work of an executor: whether a thread is inside, and whether its future is done."""

    inside = told = False


@final
class VirtualLoop(asyncio.SelectorEventLoop):
    """The standard event loop on the time of a fake clock.

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner: ...

    or `clock.run(coroutine)`. Everything in it that sleeps or times out by the loop's own time, and
    everything under a deadline of that clock, moves together. Real descriptors, offloads and
    threads are waited for in real time. One loop of a clock at a time moves it; inside, let time
    pass by awaiting, since `clock.advance` goes past the loop's own timers.
    """

    slow_callback_duration: float

    def __init__(self, clock: Face) -> None:
        self._clock = clock
        self._working = 0
        self._jobs: set[_Job] = set()
        self._signals: set[int] = set()
        self._children: weakref.WeakSet[asyncio.SubprocessTransport] = weakref.WeakSet()
        # Of executors, while they work for this loop; those of its own one stay.
        self._threads: set[threading.Thread] = set()
        self._instant = clock.now_ns()
        self._turns = 0
        self._turning_since = 0.0
        # What the loop's next look at the time sees, which is for the timers that are due: where
        # floats are coarser than its own nanosecond, a little later than now.
        self._due: float | None = None
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # In debug mode: how long a callback takes is not to be told from fake time.
        self.slow_callback_duration = math.inf
        # Those of the loop itself: its self-pipe.
        self._own = {key.fd for key in selector.get_map().values()}
        self._watched = selector

    @property
    def timebounds_clock(self) -> Face:
        """The clock on whose time it runs."""
        return self._clock

    def time(self) -> float:
        """Return the fake clock's time in seconds."""
        due, self._due = self._due, None
        return self._clock.now() if due is None else due

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` in an executor; time stands still until it returns or waits on the clock."""
        call: Any = func
        # What a pool of processes runs has no thread here, and must stay what can be pickled.
        if executor is None or isinstance(executor, ThreadPoolExecutor):
            call = partial(self._in_thread, job := _Job(), executor is None, func)
        else:
            job = _Job()
        self._jobs.add(job)
        future = super().run_in_executor(executor, call, *args)
        future.add_done_callback(partial(self._has_returned, job))
        return future

    def _in_thread(
        self,
        job: _Job,
        stays: bool,  # noqa: FBT001
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> T:
        job.inside = True
        thread = threading.current_thread()
        self._threads.add(thread)
        try:
            return func(*args)
        finally:
            job.inside = False
            if job.told:
                self._jobs.discard(job)
            if not stays:
                self._threads.discard(thread)

    def _has_returned(self, job: _Job, _: object) -> None:
        # A future that was cancelled is done, and its thread may be inside all the same.
        job.told = True
        if not job.inside:
            self._jobs.discard(job)

    async def shutdown_default_executor(self, *_: Any, **__: Any) -> None:
        """Wait for the executor's threads as for any work: no limit of fake time ends it."""
        self._working += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._working -= 1

    def count_turn(self, ready: list[int]) -> None:
        """Take note of a turn in which time did not pass; too many are an error."""
        now = self._clock.now_ns()
        # What comes from outside takes its own time.
        if now != self._instant or not self._own.issuperset(ready):
            self._instant, self._turns = now, 0
        self._turns += 1
        if self._turns % _TURNS:
            return
        if self._turns == _TURNS:
            self._turning_since = MONOTONIC.now()
        took = MONOTONIC.now() - self._turning_since
        if took >= self._clock.patience:
            turns, self._turns = self._turns, 0
            msg = f"something loops without delay: {turns} turns of the loop at {self.time():g} s"
            raise ClockError(f"{msg} of fake time, in {took:g} real seconds; {self._who()}")

    def pass_time(self, timeout: float | None, select: Any) -> Any:
        """Wait for who works, in real time; then move the clock by `timeout` or less."""
        waited = 0.0
        patience = self._clock.patience
        while True:
            busy = self._busy()
            moment = _GRACE if busy or self._is_watched() else 0.0
            # Even for no time at all: who was busy until now has told the loop.
            if ready := select(moment):
                return ready
            waited += moment
            busy = busy or self._busy()
            step = None if busy else self._next(timeout)
            if step is not None:
                self._clock.pass_ns(step)
                return select(0)
            if waited >= patience or not moment:
                reason = "an offload has not returned" if busy else "nobody will wake this loop"
                msg = f"{reason}, at {self.time():g} s of fake time, after {waited:g} real seconds"
                raise ClockError(f"{msg}; {self._who()}")

    def _next(self, timeout: float | None) -> int | None:
        """Return the ns until the next timer of the loop or waiter of the clock."""
        waiter = self._clock.until_next()
        if timeout is None:
            return waiter
        now = self._clock.now_ns()
        due = now / NS + timeout
        timer = max(1, round(due * 1e9) - now)
        if waiter is not None and waiter < timer:
            return waiter
        return timer

    def look_ahead(self) -> None:
        """Let the loop find the timers of this instant due."""
        now = self._clock.now()
        coarse = math.ulp(now) > 1e-10
        self._due = math.nextafter(math.nextafter(now, math.inf), math.inf) if coarse else None

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Watch for a signal of the system, which then may wake the loop."""
        super().add_signal_handler(sig, callback, *args)
        self._signals.add(sig)

    def remove_signal_handler(self, sig: int) -> bool:
        """Watch for it no more."""
        self._signals.discard(sig)
        return super().remove_signal_handler(sig)

    async def subprocess_exec(self, *args: Any, **kwargs: Any) -> Any:
        """Start a subprocess; time stands still until it ends."""
        transport, protocol = await super().subprocess_exec(*args, **kwargs)
        self._children.add(transport)
        return transport, protocol

    async def subprocess_shell(self, *args: Any, **kwargs: Any) -> Any:
        """Start a subprocess by a shell; time stands still until it ends."""
        transport, protocol = await super().subprocess_shell(*args, **kwargs)
        self._children.add(transport)
        return transport, protocol

    def _busy(self) -> bool:
        """Say whether a subprocess or thread works for this loop and does not wait on the clock."""
        if any(child.get_returncode() is None for child in self._children):
            return True
        pools = _pools()
        working = self._working + len(self._jobs) + sum(pool.working() for pool in pools)
        # Those that nobody waits for any more may take for ever.
        lookup: Any = sys.modules.get("timebounds.bounds.lookup")
        working += 0 if lookup is None else len(lookup.AWAITED)
        pools += () if lookup is None else (lookup.SLOTS,)
        if not working:
            return False
        pooled = {thread for pool in pools for thread in list(pool.threads)}
        waiting = self._clock.waiting_threads()
        return working > sum(each in pooled or each in self._threads for each in waiting)

    def _is_watched(self) -> bool:
        """Say whether somebody outside may wake the loop: a descriptor or a thread."""
        if self._signals or len(self._watched.get_map()) > len(self._own):
            return True
        threads: Any = sys.modules.get("timebounds.bounds._threads")
        # Of lookups and workers, too.
        resting: set[threading.Thread] = set() if threads is None else threads.all_resting()
        waiting = self._clock.waiting_threads()
        me = threading.current_thread()
        for each in threading.enumerate():
            # One that waits on the clock is told of by others only when it does not sleep.
            idle = each in resting or each in self._threads or each is me
            if waiting.get(each, not idle):
                return True
        return False

    def _who(self) -> str:
        tasks = [each.get_name() for each in asyncio.all_tasks(self) if not each.done()]
        waiting = ", ".join(self._clock.waiting) or "nobody"
        return f"tasks: {', '.join(sorted(tasks)) or 'none'}; on the clock: {waiting}"


def _pools() -> tuple[Pool, ...]:
    """Return the pools of offloads and of their clean-up, where they are loaded."""
    threads: Any = sys.modules.get("timebounds.bounds._threads")
    return () if threads is None else (threads.POOL, threads.CARE)


def run_virtual(clock: Face, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own on the time of `clock`, and return its value."""
    try:
        refuse_second_loop("clock.run")
    except RuntimeError:
        # It would be warned of as well, as one that nobody awaits.
        coroutine.close()
        raise
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(coroutine)
