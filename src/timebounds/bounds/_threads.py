"""A bounded number of daemon threads, for what both colours need of threads.

Rules:
- A thread is made when more work is in line than threads wait for some; an idle one takes the next
  work, and ends when none came for a while. Beyond the limit work stays in line.
- Threads are daemons: one that hangs does not hold up the end of the process.
- To hand in blocks on nothing, and is one `put`: an interrupt before it leaves nothing, one after
  it leaves work in line.
- Nothing is counted that can be looked up, and no lock is held. Who hands in looks whether a thread
  is wanted; so does a thread that has taken work, and one that is about to end. What an interrupt
  or a race has kept one of them from seeing, the next one sees.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias, final
from weakref import WeakSet

from timebounds.bounds.waking import unhandled

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []

LIMIT = 64
# Long enough to be reused by a service under load, short enough not to stay for long.
LINGER = 5.0

_pools: WeakSet[Pool] = WeakSet()


@final
class _Token:
    """Lives as long as work that was handed in."""

    __slots__ = ("__weakref__",)


_Item: TypeAlias = "tuple[_Token, Callable[[], object]]"


@final
class Pool:
    """Runs work in at most `limit` daemon threads. What work raises goes to the thread's hook."""

    def __init__(self, limit: int = LIMIT, linger: float = LINGER) -> None:
        self._limit = limit
        self._linger = linger
        self._watches_forks = False
        self._forget()
        _pools.add(self)

    def _forget(self) -> None:
        """Begin anew: a forked child has none of its parent's threads."""
        self._line: SimpleQueue[_Item] = SimpleQueue()
        # Of what is in line or in the hands of a thread, and so alive.
        self._out: WeakSet[_Token] = WeakSet()
        self.threads: dict[threading.Thread, None] = {}
        """The threads that were made and have not ended."""
        self.resting: set[threading.Thread] = set()
        """Those that wait for work at this moment."""

    def submit(self, work: Callable[[], object]) -> None:
        """Hand in work; it begins when a thread is free.

        Raises RuntimeError when no thread can be started and none exists; the work is not run.
        """
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(after_in_child=self._forget)
        item = _Token(), work
        self._out.add(item[0])
        self._line.put(item)
        try:
            self._staff()
        except RuntimeError:
            # One of those that exist will come to it.
            if not self.threads:
                _discard(self._line, item)
                raise

    def working(self) -> int:
        """Return how much work is in line, under way, or not yet let go of; never less."""
        return len(self._out)

    def _staff(self) -> None:
        """Start a thread if one is wanted and allowed."""
        if self._line.qsize() <= len(self.resting):
            return
        threads = self.threads
        if len(threads) >= self._limit:
            # Some may never have started, by an interrupt.
            for each in [each for each in list(threads) if not each.is_alive()]:
                threads.pop(each, None)
        thread = threading.Thread(target=self._serve, name="timebounds worker", daemon=True)
        threads[thread] = None
        try:
            if len(threads) <= self._limit:
                thread.start()
        finally:
            if not thread.is_alive():
                threads.pop(thread, None)

    def _serve(self) -> None:
        me = threading.current_thread()
        self.threads[me] = None
        while True:
            self.resting.add(me)
            try:
                item = self._line.get(timeout=self._linger)
            except Empty:
                item = None
            finally:
                self.resting.discard(me)
            if item is None:
                self.threads.pop(me, None)
                # Handed in by one who still counted on this thread.
                if self._line.empty():
                    return
                self.threads[me] = None
                continue
            try:
                if not self._line.empty():
                    with suppress(RuntimeError):
                        self._staff()
                item[1]()
            except BaseException as error:  # noqa: BLE001  (the next work is not to blame)
                unhandled(error)
            # Nothing is kept until the next one comes. A tuple lets go of its last item first: the
            # token, by which work is counted, outlives what the work owned.
            del item


def _discard(line: SimpleQueue[_Item], item: _Item) -> None:
    """Take `item` out of the line again."""
    for _ in range(line.qsize()):
        each = line.get_nowait()
        if each is not item:
            line.put(each)


def all_resting() -> set[threading.Thread]:
    """Return the threads of every pool that wait for work: they end by themselves."""
    return {thread for each in list(_pools) for thread in list(each.resting)}


def any_working() -> bool:
    """Tell whether a pool has work, or has only just done it."""
    return any(each.working() for each in list(_pools))


POOL = Pool()
"""The threads of this process that all offloads share."""

CARE = Pool(limit=sys.maxsize)
"""Those that clean up: they must not stand in line behind the work that they wait for."""
