"""What both colours of a scheduler share: adding, ending, and what is done at each turn.

What must not live here: waiting, calling what is to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timebounds._checks import NS, shown
from timebounds.bounds.clock import MONOTONIC, WALL, Clock, SteadyClock, reader
from timebounds.bounds.deadline import as_deadline
from timebounds.bounds.expiry import wall_clock
from timebounds.bounds.stop import StopSignal
from timebounds.errors import Busy, ClockError
from timebounds.policies.agenda import Agenda, Due
from timebounds.policies.jobs import SchedulerOutcome, SchedulerReport
from timebounds.policies.timetable import ns_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.jobs import Run, ScheduledJob, Tick
    from timebounds.policies.timetable import Timetable

__all__: list[str] = []


class Runner:
    """Base of both schedulers."""

    _counts: list[int]

    def __init__(
        self,
        *,
        clock: SteadyClock = MONOTONIC,
        wall: Clock[datetime] = WALL,
        on_missed: Callable[[ScheduledJob, int], object] | None = None,
        on_error: Callable[[Tick, Exception], object] | None = None,
    ) -> None:
        self._now = reader(clock)
        wall_clock(wall)
        self.clock = clock
        """The steady clock by which it waits."""
        self._wall = wall
        self._on_missed = _hook(on_missed, "on_missed")
        self._on_error = _hook(on_error, "on_error")
        self._agenda = Agenda()
        # The runs that were begun, in order: it is the turn of the first. Each takes itself off.
        self._runs: dict[object, None] = {}

    def add(
        self,
        timetable: Timetable,
        fn: Run,
        *,
        name: str | None = None,
        limit: Seconds | None = None,
    ) -> ScheduledJob:
        """Add a job: `fn(tick)` at the instants of `timetable`. From any thread; wakes the runner.

        Args:
            timetable: Every, After, Once or Daily; it begins now.
            fn: called with each tick.
            name: for ticks, keys and reports; the function's own unless given.
            limit: seconds that each run may take, as `tick.deadline`; None for the scheduler's.

        Raises:
            RuntimeError: the scheduler is closed.
        """
        return self._agenda.add(timetable, fn, name, limit, self._now(), self._wall_ns)

    def close(self) -> None:
        """End `run` after the run under way; it can not be started again. From any thread."""
        self._agenda.close()

    def _wall_ns(self) -> int:
        now: Any = self._wall.now()
        if not hasattr(now, "utcoffset") or now.utcoffset() is None:
            msg = f"{self._wall!r}.now() returned {shown(now)}, not an aware datetime"
            raise ClockError(msg)
        return ns_of(now)

    def _enter(self, deadline: Deadline, run: object) -> None:
        as_deadline(deadline)
        if deadline.clock is not self.clock:
            msg = (
                f"the scheduler waits by {self.clock!r}, the deadline by {deadline.clock!r}: "
                "make both with one clock"
            )
            raise ClockError(msg)
        self._runs[run] = None
        if next(iter(list(self._runs))) is not run:
            msg = "a scheduler has one runner at a time, and another run() is under way"
            raise Busy(msg)
        self._counts = [0, 0, 0]
        self._agenda.recover()

    def _turn(self, deadline: Deadline) -> SchedulerOutcome | Due | Deadline:
        """Return why it ends, or what is to run, or until when nothing is."""
        agenda = self._agenda
        # Whoever adds something from here on wakes the wait that may follow.
        agenda.wake = StopSignal()
        if agenda.closed:
            return SchedulerOutcome.CLOSED
        now = self._now()
        if deadline._stop is not None and deadline._stop.requested():
            return SchedulerOutcome.STOPPED
        if now >= deadline._at:
            return SchedulerOutcome.DEADLINE_EXPIRED
        due = agenda.take(now, self._wall_ns)
        if due is not None:
            if due.missed:
                self._counts[1] += due.missed
                if self._on_missed is not None:
                    self._on_missed(due.job, due.missed)
                    if due.job._cancelled:
                        return due._replace(due=None)
            return due
        left = agenda.left(now, self._wall_ns)
        return deadline if left is None else deadline.within(left / NS)

    def _ended(self, due: Due, tick: Tick, error: Exception | None) -> None:
        """Count a run, and tell of what it raised."""
        self._agenda.ended(due, error, self._now(), self._wall_ns)
        self._counts[0] += 1
        if error is None:
            return
        self._counts[2] += 1
        if self._on_error is not None:
            self._on_error(tick, error)
            return
        import logging  # noqa: PLC0415  (takes as long to import as all the rest)

        logging.getLogger("timebounds").error("run %s failed", tick.key, exc_info=error)

    def _report(self, outcome: SchedulerOutcome) -> SchedulerReport:
        return SchedulerReport(outcome, *self._counts)


def _hook(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        msg = f"{name} must be a function or None, not {shown(value)}"
        raise TypeError(msg)
    return value
