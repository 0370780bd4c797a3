"""The agenda: what is due, what was missed, and when the next look is worth while.

A machine for one runner: its methods take the time. Jobs are added and cancelled from any thread,
by single stores; what was added is sorted in by the runner.

Rules (G1, G2 of the contracts):
- A job never overlaps itself: its next instant is looked for when its run has ended.
- Instants that have passed are counted, each of them, and the job's policy says which are run.
- Lateness that the job's own last run has caused is no reason to skip the next.
- A tick carries what makes it safe to fire twice: when it was due, and a key of its place in the
  plan.

What must not live here: clocks, waiting, calling what is to run.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, final

from timebounds._checks import NS, nanoseconds, shown
from timebounds.bounds.stop import StopSignal
from timebounds.policies.jobs import ScheduledJob, Tick
from timebounds.policies.timetable import After, as_timetable, instant_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.jobs import Run
    from timebounds.policies.timetable import Timetable

__all__: list[str] = []

# A wall clock may be set at any time, and tells nobody: it is looked at so often, at least.
LOOK_NS = 10 * NS
# So many cancelled jobs are no burden.
_FEW = 64


@final
class Due(NamedTuple):
    """What is to be done next: run `job` for the instant `due`, or (None) tell what it missed."""

    job: ScheduledJob
    due: int | None
    fired: int
    missed: int

    def tick(self, deadline: Deadline) -> Tick:
        """Return the tick of this run."""
        job, due = self.job, self.due
        assert due is not None
        late = max(0, self.fired - due) / NS
        if job._on_wall:
            at: tuple[Any, Any] = (instant_of(due), instant_of(self.fired))
        else:
            at = (due / NS, self.fired / NS)
        if job._limit_ns is not None:
            deadline = deadline.within(job._limit_ns / NS)
        return Tick(job._name, job._key(due), *at, late, self.missed, deadline)


Entry = tuple[int, int, ScheduledJob]


@final
class Agenda:
    """All jobs of one scheduler."""

    __slots__ = ("_added", "_entries", "_gone", "_order", "_taken", "closed", "wake")

    closed: bool
    wake: StopSignal
    """Requested by whoever changes something; a new one is put here before each look."""

    def __init__(self) -> None:
        self._added: deque[ScheduledJob] = deque()
        self._gone: deque[None] = deque()
        # By whether the wall clock counts.
        self._entries: dict[bool, list[Entry]] = {False: [], True: []}
        self._order = 0
        self._taken: ScheduledJob | None = None
        self.closed = False
        self.wake = StopSignal()

    def add(
        self,
        timetable: Timetable,
        fn: Run,
        name: Any,
        limit: Seconds | None,
        now: int,
        wall: Callable[[], int],
    ) -> ScheduledJob:
        """Check and add a job; wake the runner. From any thread."""
        if self.closed:
            msg = "the scheduler is closed: nothing would ever run there"
            raise RuntimeError(msg)
        table = as_timetable(timetable)
        if not callable(fn):
            msg = f"fn must be a function of a tick, not {shown(fn)}"
            raise TypeError(msg)
        if name is None:
            name = getattr(fn, "__qualname__", type(fn).__name__)
        elif not (isinstance(name, str) and name):
            msg = f"name must be a text that is not empty, not {shown(name)}"
            raise TypeError(msg)
        limit_ns = None if limit is None else nanoseconds(limit, "limit", positive=True)
        job = ScheduledJob(table, fn, name, limit_ns, self._gone)
        job._begin(now, wall() if job._on_wall else 0)
        self._added.append(job)
        self.wake.request()
        return job

    def close(self) -> None:
        """Ask the runner to end after the run under way. From any thread."""
        self.closed = True
        self.wake.request()

    def take(self, now: int, wall: Callable[[], int]) -> Due | None:
        """Return what is to be done at this instant, if anything is."""
        self._sort_in()
        late: list[tuple[int, bool, int]] = []
        for on_wall, entries in self._entries.items():
            if _clean(entries):
                at = wall() if on_wall else now
                if entries[0][0] <= at:
                    late.append((entries[0][0] - at, on_wall, at))
        if not late:
            return None
        _, on_wall, at = min(late)
        entries = self._entries[on_wall]
        # An interrupt from here to `ended` leaves it here, to be put back.
        self._taken = job = entries[0][2]
        heappop(entries)
        due = self._decide(job, at)
        if due.due is None:
            self._taken = None
        return due

    def _decide(self, job: ScheduledJob, now: int) -> Due:
        """Apply the job's policy to the instants that have come."""
        table, first = job._table, job._due
        assert first is not None
        passed = table.passed(first, now)
        policy = table.missed
        dropped = max(0, passed - policy.kept)
        due = table.forward(first, dropped)
        assert due is not None
        if policy.grace_ns is not None and now - max(due, job._free) > policy.grace_ns:
            dropped, due = passed, None
        following = table.forward(first, passed) if due is None else due
        counts = job._plus(missed=dropped)
        # No call in between: an interrupt comes before both or after both.
        job._counts = counts
        job._plan = (following, job._plan[1] + dropped)
        # While it runs it is on no heap; `ended` puts it back.
        if due is None:
            self._put_back(job)
        return Due(job, due, now, dropped)

    def ended(self, done: Due, error: Exception | None, now: int, wall: Callable[[], int]) -> None:
        """Count a run, and put its job back for the next instant."""
        job = done.job
        assert done.due is not None
        job._free = wall() if job._on_wall else now
        if isinstance(job._table, After):
            following: int | None = now + job._table.delay_ns
        else:
            following = job._table.forward(done.due, 1)
        counts = job._plus(runs=1, error=error)
        # As above.
        job._counts = counts
        job._plan = (following, job._plan[1] + 1)
        self._put_back(job)
        self._taken = None

    def recover(self) -> None:
        """Put back what an interrupted runner had taken: it is due as before."""
        if self._taken is not None:
            self._put_back(self._taken)
            self._taken = None

    def left(self, now: int, wall: Callable[[], int]) -> int | None:
        """Return the ns after which a look is worth while; None when nothing is on it."""
        found: list[int] = []
        if _clean(self._entries[False]):
            found.append(self._entries[False][0][0] - now)
        if _clean(self._entries[True]):
            found.append(min(self._entries[True][0][0] - wall(), LOOK_NS))
        return max(0, min(found)) if found else None

    def _sort_in(self) -> None:
        while self._added:
            self._put_back(self._added[0])
            self._added.popleft()
        # What was cancelled must not pile up until its instant.
        if len(self._gone) > _FEW + sum(map(len, self._entries.values())) // 2:
            self._gone.clear()
            for entries in self._entries.values():
                entries[:] = [entry for entry in entries if _stands(entry)]
                heapify(entries)

    def _put_back(self, job: ScheduledJob) -> None:
        due = job._due
        if due is not None and not job._cancelled:
            self._order += 1
            # An interrupt before the push leaves the job to be put back once more; this one stands.
            job._place = self._order
            heappush(self._entries[job._on_wall], (due, self._order, job))


def _stands(entry: Entry) -> bool:
    """Say whether an entry is its job's last one, and the job is not cancelled."""
    _, order, job = entry
    return order == job._place and not job._cancelled


def _clean(entries: list[Entry]) -> bool:
    """Drop what no longer stands from the top; say whether anything is left."""
    while entries and not _stands(entries[0]):
        heappop(entries)
    return bool(entries)
