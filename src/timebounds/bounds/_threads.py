"""A bounded number of daemon threads, for what both colours need of threads.

Rules:
- A thread is made when there is work and none is idle; an idle one takes the next work, and ends
  when none came for a while. Beyond the limit, work waits in line; nobody blocks to hand it in.
- Threads are daemons: one that hangs does not hold up the end of the process.
- To hand in is one `put`: an interrupt before it leaves nothing, one after it leaves work in line.
- No lock. Who stores looks afterwards: work is put before the search for a thread, and a thread
  gives up its slot before its last look at the line. So one of the two sees the other.
"""

from __future__ import annotations

import os
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__: list[str] = []

LIMIT = 64
# Long enough to be reused by a service under load, short enough not to stay for long.
LINGER = 5.0


@final
class Pool:
    """Runs work in at most `limit` daemon threads. What work raises goes to the thread's hook."""

    def __init__(self, limit: int = LIMIT, linger: float = LINGER) -> None:
        self._limit = limit
        self._linger = linger
        self._watches_forks = False
        self._forget()

    def _forget(self) -> None:
        """Begin anew: a forked child has none of its parent's threads."""
        self._line: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._slots = [None] * self._limit
        # One entry for each thread that waits and was not promised work.
        self._idle: list[None] = []
        self.resting: set[threading.Thread] = set()
        """The threads that wait for work at this moment."""

    def submit(self, work: Callable[[], object]) -> None:
        """Hand in work; it begins when a thread is free. Blocks on nothing.

        Raises RuntimeError when no thread can be started and none exists; the work is not run.
        """
        if not self._watches_forks:
            self._watches_forks = True
            os.register_at_fork(after_in_child=self._forget)
        self._line.put(work)
        if _take(self._idle) or not _take(self._slots):
            return
        thread = threading.Thread(target=self._serve, name="timebounds worker", daemon=True)
        try:
            thread.start()
        except BaseException as error:
            self._slots.append(None)
            if isinstance(error, RuntimeError) and len(self._slots) < self._limit:
                return  # it waits in line for one of those that exist
            _discard(self._line, work)
            raise

    def _serve(self) -> None:
        me = threading.current_thread()
        while True:
            work = self._next(me)
            if work is not None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001  (the next work is not to blame)
                    report(error)
                # Nothing of it is kept until the next one comes.
                del work
                continue
            self._slots.append(None)
            # Work that came too late to see an idle thread, and too soon to see the slot.
            if self._line.empty() or not _take(self._slots):
                return

    def _next(self, me: threading.Thread) -> Callable[[], object] | None:
        """Return the next work, or None when none came for a while."""
        while True:
            try:
                return self._line.get_nowait()
            except Empty:
                self._idle.append(None)
                self.resting.add(me)
            try:
                return self._line.get(timeout=self._linger)
            except Empty:
                # Whoever took the entry has put work: look again.
                if _take(self._idle):
                    return None
            finally:
                self.resting.discard(me)


def _take(entries: list[None]) -> bool:
    """Take one entry, in one step; say whether there was one."""
    try:
        entries.pop()
    except IndexError:
        return False
    return True


def _discard(line: SimpleQueue[Callable[[], object]], work: Callable[[], object]) -> None:
    """Take `work` out of the line again."""
    for _ in range(line.qsize()):
        each = line.get_nowait()
        if each is not work:
            line.put(each)


def report(error: BaseException) -> None:
    """Hand an error that nobody can catch to the hook that is there for such."""
    thread = threading.current_thread()
    hooked = threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
    threading.excepthook(hooked)


POOL = Pool()
"""The threads of this process that all offloads and lookups share."""
