"""The mailbox: which work is accepted, which is begun, and what has become of all of it.

A machine: its methods take the time, and whoever has several threads holds a lock around each.

Rules (M1-M3 of the contracts):
- Admission in this order: closed, duplicate, full, accepted. What is refused leaves no trace.
- First in, first out, those too who wait for room: it goes to the first of them, by whoever makes
  it, so that nobody has to be awake to be given it, and nobody is passed over.
- Work whose bound has passed before it begins is stale: it is not begun. The look is at the last
  moment.
- Each accepted piece ends in exactly one way, and a final report does not change.
- A piece begins, or ends, in one step: between its look and its last store nothing is called and
  nothing made, so that no interrupt, signal handler or finaliser comes in between. What is called
  comes afterwards, or is looked at again.

What must not live here: clocks, locks, waiting, calling handlers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, final

from timebounds._checks import count, member, nanoseconds
from timebounds.bounds.stop import StopSignal
from timebounds.errors import QueueClosed, QueueFull
from timebounds.policies.work import Admission, Overflow, WorkerReport, WorkOutcome

if TYPE_CHECKING:
    from collections.abc import Hashable

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.work import Ended, Work

__all__: list[str] = []

# Looked up once: that is dearer than what is done with them.
_ACCEPTED = Admission.ACCEPTED
_COMPLETED = WorkOutcome.COMPLETED


@final
class Mailbox:
    """All work of one worker."""

    __slots__ = (
        "_capacity", "_counts", "_drops", "_keys", "_overflow", "_recent", "_window_ns", "accepted",
        "closed", "final", "history", "ownerless", "queue", "running", "wanting",
    )  # fmt: skip

    accepted: int
    closed: bool
    final: bool
    """Whether nothing will change any more."""

    def __init__(
        self,
        capacity: int,
        overflow: Overflow,
        duplicate_window: Seconds | None,
        history: int,
    ) -> None:
        self.accepted = 0
        self.closed = False
        self.final = False
        self._capacity = count(capacity, "capacity", minimum=1)
        self._overflow = member(overflow, "overflow", Overflow)
        self._drops = overflow is Overflow.DROP_OLDEST
        self._window_ns = 0
        if duplicate_window is not None:
            self._window_ns = nanoseconds(duplicate_window, "duplicate_window", positive=True)
        self.history: deque[Ended] = deque(maxlen=count(history, "history"))
        self.queue: deque[Work[Any]] = deque()
        self.running: dict[Work[Any], None] = {}
        # Work that waits for room, in order: what is requested when it need not any more, and until
        # when it waits.
        # (A dict would look for its first one among all that have gone.)
        self.wanting: OrderedDict[Work[Any], tuple[StopSignal, Deadline]] = OrderedDict()
        # Ended without being completed, and not yet handed to the dead-letter sink.
        self.ownerless: dict[Work[Any], Work[Any]] = {}
        self._counts = dict.fromkeys(WorkOutcome, 0)
        # When each recent key was accepted, and in which order.
        self._keys: dict[Hashable, int] = {}
        self._recent: deque[tuple[int, Hashable]] = deque()

    def report(self) -> WorkerReport:
        """Return what became of all accepted work."""
        ended = self._counts
        return WorkerReport(
            self.accepted,
            ended[WorkOutcome.COMPLETED],
            ended[WorkOutcome.FAILED],
            ended[WorkOutcome.INTERRUPTED],
            ended[WorkOutcome.UNSTARTED],
            ended[WorkOutcome.STALE],
            ended[WorkOutcome.DROPPED],
            len(self.queue),
            len(self.running),
        )

    def refuse_closed(self) -> None:
        """Raise QueueClosed when nothing is accepted any more."""
        if self.closed:
            msg = "the worker is closed and takes no more work"
            raise QueueClosed(msg)

    def admit(self, work: Work[Any], now: int, room: Deadline) -> Admission | StopSignal:
        """Accept or refuse work; the signal is requested when it need not wait for room any more.

        Room that comes at `room` or later goes to the next.

        Raises:
            QueueClosed, QueueFull, DeadlineExceeded, StopRequested: it is refused.
        """
        deadline, queue = work._deadline, self.queue
        if self.closed or now >= deadline._at or deadline._stop is not None:
            self.refuse_closed()
            deadline.check("submit")
        if self._window_ns and self._is_duplicate(work._key, now):
            return Admission.DUPLICATE
        if (self.wanting or len(queue) >= self._capacity) and not self._drops:
            if self._overflow is Overflow.REJECT:
                msg = f"{len(queue)} pieces of work wait already, which is all that may"
                raise QueueFull(msg)
            waker = StopSignal()
            self.wanting[work] = (waker, room)
            return waker
        work._accepted_at = now
        self.accepted += 1
        queue.append(work)
        if self._window_ns:
            self._remember(work._key, now)
        while self._drops and len(queue) > self._capacity:
            self._end(queue[0], WorkOutcome.DROPPED, now)
        return _ACCEPTED

    def withdraw(self, work: Work[Any], now: int) -> None:
        """Take back work that waits, for room or its turn, as if it had never come."""
        if work in self.wanting:
            del self.wanting[work]
        # Most that is refused was never accepted: it is not looked for among what waits.
        elif work._accepted_at is not None and work in self.queue:
            self.accepted -= 1
            self.queue.remove(work)
            self._keys.pop(work._key, None)
            # What it was given goes on to the next.
            self._let_in(now)

    def take(self, now: int, done: Work[Any] | None = None) -> Work[Any] | None:
        """Complete what is done; begin the next, or end it when it is stale. None without one.

        What is given back has ended already when it was stale, or was dropped meanwhile.
        """
        if done is not None and done in self.running:
            self._end(done, _COMPLETED, now)
        queue = self.queue
        if not queue:
            return None
        work = queue[0]
        deadline, late = work._deadline, None
        try:
            if now >= deadline._at or deadline._stop is not None or work._expires is not None:
                late = work._stale_by(now)
        except Exception as error:  # noqa: BLE001  (a wall clock that tells no instant)
            self._end(work, WorkOutcome.FAILED, now, error)
        else:
            if late is not None:
                self._end(work, WorkOutcome.STALE, now, late=late)
            elif work._ended is None:
                work._begun_at = now
                self.running[work] = None
                del queue[0]
        if self.wanting:
            self._let_in(now)
        return work

    def finish(
        self, work: Work[Any], outcome: WorkOutcome, now: int, error: BaseException | None
    ) -> None:
        """End work that was begun; nothing changes when it was given up meanwhile."""
        if work in self.running:
            self._end(work, outcome, now, error)

    def close(self) -> None:
        """Accept nothing any more; wake whoever waits for room."""
        self.closed = True
        for work, (waker, _) in list(self.wanting.items()):
            # Woken first: an interrupt in between leaves them to the next call.
            waker.request()
            del self.wanting[work]

    def stop_draining(self, now: int) -> None:
        """Begin nothing any more: what waits is unstarted."""
        while self.queue:
            self._end(self.queue[0], WorkOutcome.UNSTARTED, now)

    def give_up(self, now: int) -> None:
        """End what is still under way as interrupted: from here on nothing changes."""
        for work in list(self.running):
            self.finish(work, WorkOutcome.INTERRUPTED, now, None)
        self.final = True

    def _let_in(self, now: int) -> None:
        """Give room to whoever has waited longest for it."""
        while self.wanting and len(self.queue) < self._capacity:
            work, (waker, room) = next(iter(self.wanting.items()))
            # Since it began to wait its key may have come in, or its time passed.
            late = (
                work._accepted_at is not None or now >= room._at or work._late_by(now) is not None
            )
            if not late and not self._is_duplicate(work._key, now):
                work._accepted_at = now
                self.accepted += 1
                self.queue.append(work)
                self._remember(work._key, now)
            waker.request()
            del self.wanting[work]

    def _remember(self, key: Hashable | None, now: int) -> None:
        if self._window_ns and key is not None:
            self._keys[key] = now
            self._recent.append((now, key))

    def _is_duplicate(self, key: Hashable | None, now: int) -> bool:
        # What is older than the window goes, so what is left is a duplicate.
        while self._recent and self._recent[0][0] + self._window_ns <= now:
            at, old = self._recent.popleft()
            if self._keys.get(old) == at:
                del self._keys[old]
        return key in self._keys

    def _end(
        self,
        work: Work[Any],
        outcome: WorkOutcome,
        now: int,
        error: BaseException | None = None,
        *,
        late: int = 0,
    ) -> None:
        """End what is under way, or comes next; nothing where somebody has, who interrupted us."""
        ended = (work._key, outcome, work._accepted_at, work._begun_at, now, late, error)
        if work._ended is not None:
            return
        work._ended = ended
        if outcome is not _COMPLETED:
            self.ownerless[work] = work
        self._counts[outcome] += 1
        if work in self.running:
            del self.running[work]
        else:
            del self.queue[0]
        self.history.append(ended)
