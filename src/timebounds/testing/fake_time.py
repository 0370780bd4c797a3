"""The time that the faces of a fake clock share: two counters and the waiters on them.

Rules (F1, F2 of the contracts):
- Time passes through every instant: waiters fire in order of their instant, equal ones in order of
  arming, each seeing its own instant, those armed meanwhile included. `jump` alone goes over all.
- A thread that is woken is waited for until it has left its waiting verb.
- It never goes backwards. What would go on for ever ends with an error that says who.
"""

from __future__ import annotations

import heapq
import threading
from typing import TYPE_CHECKING, final

from timebounds._checks import NS
from timebounds.errors import ClockError

if TYPE_CHECKING:
    from collections.abc import Callable

# As many firings at one instant mean a callback that arms itself again without delay.
_ROUNDS = 10_000


@final
class Waiter:
    """Somebody who waits for an instant."""

    __slots__ = ("due", "fire", "fired", "left", "name", "order", "thread", "wakeable")

    due: int
    order: int
    name: str
    fire: Callable[[], object]
    fired: bool
    wakeable: bool

    def __init__(self, due: int, order: int, name: str, fire: Callable[[], object]) -> None:
        self.due = due
        self.order = order
        self.name = name
        self.fire = fire
        self.fired = False
        # Set by a thread when it has left its waiting verb; None for what is not waited for.
        self.left: threading.Event | None = None
        self.thread: threading.Thread | None = None
        # Something else than time may end its wait, too.
        self.wakeable = False

    def __lt__(self, other: Waiter) -> bool:
        return (self.due, self.order) < (other.due, other.order)

    def __str__(self) -> str:
        return f"{self.name} until {self.due / NS:g} s"


@final
class Timeline:
    """Steady time, the time spent suspended, and who waits on the one or on both together."""

    steady: int
    suspended: int
    patience: float

    def __init__(self, start: int, patience: float) -> None:
        self.steady = start
        self.suspended = 0
        self.patience = patience
        self._order = 0
        # Two heaps, by whether suspend counts; dead waiters are dropped when they come up.
        self._heaps: dict[bool, list[Waiter]] = {False: [], True: []}
        self._live: set[Waiter] = set()
        self._threads: dict[threading.Thread, Waiter] = {}
        self._changed = threading.Condition(threading.RLock())
        self._moving = threading.RLock()

    def now(self, *, boot: bool) -> int:
        """Return the steady instant, or with `boot` the one that counts suspend."""
        return self.steady + self.suspended if boot else self.steady

    def arm(
        self, delay: int, name: str, fire: Callable[[], object], *, boot: bool, is_thread: bool
    ) -> Waiter:
        """Add a waiter that fires `delay` ns from now."""
        with self._changed:
            self._order += 1
            waiter = Waiter(self.now(boot=boot) + delay, self._order, name, fire)
            if is_thread:
                waiter.left = threading.Event()
                waiter.thread = threading.current_thread()
                self._threads[waiter.thread] = waiter
            heapq.heappush(self._heaps[boot], waiter)
            self._live.add(waiter)
            self._changed.notify_all()
            return waiter

    def disarm(self, waiter: Waiter) -> bool:
        """Take the waiter away; say whether it had not fired. A thread thereby leaves its verb."""
        with self._changed:
            self._drop(waiter)
            if waiter.left is not None:
                waiter.left.set()
            self._changed.notify_all()
            for heap in self._heaps.values():
                # Timers that were called off must not pile up until their instants.
                if len(heap) > 2 * len(self._live) + _ROUNDS // 100:
                    heap[:] = [each for each in heap if each in self._live]
                    heapq.heapify(heap)
            return not waiter.fired

    def _drop(self, waiter: Waiter) -> None:
        self._live.discard(waiter)
        if waiter.thread is not None:
            self._threads.pop(waiter.thread, None)

    def waiting_threads(self) -> dict[threading.Thread, bool]:
        """Return the threads that wait; True for those that not only time may wake."""
        with self._changed:
            return {thread: waiter.wakeable for thread, waiter in self._threads.items()}

    def waiting(self) -> list[Waiter]:
        """Return who waits, callbacks left out, in order of their instants."""
        with self._changed:
            return sorted(each for each in self._live if not each.name.startswith("callback"))

    def wait_until(self, count: int, seconds: float) -> bool:
        """Wait in real time until `count` threads or tasks wait here."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.waiting()) >= count, seconds)

    def until_next(self) -> int | None:
        """Return the ns of steady time until the next waiter, or None."""
        with self._changed:
            due = [
                heap[0].due - self.now(boot=boot)
                for boot, heap in self._heaps.items()
                if self._clean(heap)
            ]
            return max(0, min(due)) if due else None

    def move(self, ns: int, *, suspended: bool = False) -> None:
        """Let `ns` pass through every instant: steady time, or time that only boot counts."""
        with self._moving:
            target = ns + (self.suspended if suspended else self.steady)
            # Who was armed since this instant began, again and again, keeps time from going on.
            began, rounds = self._order, 0
            while (step := self._take(target, suspended=suspended)) is not None:
                waiter, passed = step
                if passed:
                    began, rounds = self._order, 0
                rounds += waiter.order > began
                self._fire(waiter)
                if rounds > _ROUNDS:
                    msg = f"{waiter} was armed {rounds} times without a delay, time can not go on"
                    raise ClockError(msg)
            self._set(target, suspended=suspended)

    def jump(self, ns: int) -> None:
        """Let `ns` pass at once, as for a frozen process; then fire who is late."""
        with self._moving:
            self.steady += ns
            self.move(0)

    def _take(self, target: int, *, suspended: bool) -> tuple[Waiter, bool] | None:
        """Move to the next waiter up to `target` and take it; say whether time has passed."""
        with self._changed:
            now = self.suspended if suspended else self.steady
            heads = [
                (heap[0].due - self.now(boot=boot), heap[0], heap)
                for boot, heap in self._heaps.items()
                if (boot or not suspended) and self._clean(heap)
            ]
            if not heads:
                return None
            delay, waiter, heap = min(heads, key=lambda head: (head[0], head[1].order))
            if now + delay > target:
                return None
            heapq.heappop(heap)
            waiter.fired = True
            self._drop(waiter)
            self._set(max(now, now + delay), suspended=suspended)
            return waiter, delay > 0

    def _set(self, instant: int, *, suspended: bool) -> None:
        if suspended:
            self.suspended = max(self.suspended, instant)
        else:
            self.steady = max(self.steady, instant)

    def _clean(self, heap: list[Waiter]) -> bool:
        """Drop dead waiters from the top; say whether one is left."""
        while heap and heap[0] not in self._live:
            heapq.heappop(heap)
        return bool(heap)

    def _fire(self, waiter: Waiter) -> None:
        waiter.fire()
        if waiter.left is not None and not waiter.left.wait(self.patience):
            msg = f"{waiter} was woken and has not left its wait after {self.patience:g} s"
            raise ClockError(msg)


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
