"""Jobs of a scheduler, the ticks that they are run with, and what is reported of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, final

from timebounds._checks import NS
from timebounds.policies.timetable import Daily, instant_of, ns_of

if TYPE_CHECKING:
    from collections import deque
    from datetime import datetime

    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.timetable import Timetable

__all__ = ["JobReport", "ScheduledJob", "SchedulerOutcome", "SchedulerReport", "Tick"]


class Tick(NamedTuple):
    """One run: what a job's function is called with."""

    name: str
    """The job's."""
    key: str
    """Its place in the plan: the same whenever this tick is fired, once or twice."""
    due: float | datetime
    """When it should run: seconds of the scheduler's clock, or an aware datetime."""
    fired: float | datetime
    """When it did."""
    late: float
    """Seconds in between."""
    missed: int
    """How many instants before it were not run, since the last tick."""
    deadline: Deadline
    """Of this run: the job's limit, and the end and stop of the scheduler's own."""


Run = Callable[[Tick], object]


@final
class JobReport(NamedTuple):
    """What became of a job so far."""

    runs: int
    missed: int
    """Instants that passed without a run."""
    failed: int
    """Runs that raised."""
    last_error: Exception | None


@final
class SchedulerOutcome(StrEnum):
    """Why a scheduler's run ended."""

    CLOSED = "closed"
    DEADLINE_EXPIRED = "deadline_expired"
    STOPPED = "stopped"


@final
class SchedulerReport(NamedTuple):
    """The unchanging record of a scheduler's run."""

    outcome: SchedulerOutcome
    runs: int
    missed: int
    failed: int


@final
class ScheduledJob:
    """A job on a scheduler: `cancel()` takes it off, `report` tells what became of it."""

    __slots__ = (
        "_cancelled", "_counts", "_fn", "_free", "_gone", "_limit_ns", "_name", "_on_wall",
        "_place", "_plan", "_table",
    )  # fmt: skip

    def __init__(
        self,
        table: Timetable,
        fn: Run,
        name: str,
        limit_ns: int | None,
        gone: deque[None],
    ) -> None:
        self._table = table
        self._fn = fn
        self._name = name
        self._limit_ns = limit_ns
        self._on_wall = isinstance(table, Daily)
        self._cancelled = False
        self._counts = JobReport(0, 0, 0, None)
        self._gone = gone
        # Which of its entries on the agenda stands.
        self._place = 0
        # Its next instant and the number of that, in one store: an interrupt parts them never.
        self._plan: tuple[int | None, int] = (None, 0)
        # When its last run had ended. As its instants, on the timeline of the job.
        self._free = 0

    def _begin(self, now: int, wall: int) -> None:
        """Take the first instant."""
        table = self._table
        if isinstance(table, Daily):
            # One that is just now, too.
            following = table.next_after(instant_of(wall - 1000))
            due = None if following is None else ns_of(following)
        else:
            due = now + table.first_ns
        self._plan = (due, 0)

    @property
    def _due(self) -> int | None:
        return self._plan[0]

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._name

    @property
    def report(self) -> JobReport:
        """How often it ran, was missed and failed, so far."""
        return self._counts

    @property
    def next_due(self) -> float | datetime | None:
        """When it is due next, or was when it is running; None when it is never again."""
        due = self._due
        if due is None or self._cancelled:
            return None
        return instant_of(due) if self._on_wall else due / NS

    def cancel(self) -> bool:
        """Take it off: no run of it begins any more. Says whether that changes anything."""
        changes = not self._cancelled and self._due is not None
        self._cancelled = True
        if changes:
            self._gone.append(None)
        return changes

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else f"next at {self.next_due}"
        return f"<ScheduledJob {self._name} {self._table!r}, {state}>"

    # For the agenda.

    def _key(self, due: int) -> str:
        table = self._table
        if isinstance(table, Daily):
            return f"{self._name}@{instant_of(due).astimezone(table.zone).isoformat()}"
        return f"{self._name}#{self._plan[1]}"

    def _plus(self, *, runs: int = 0, missed: int = 0, error: Exception | None = None) -> JobReport:
        old = self._counts
        return JobReport(
            old.runs + runs,
            old.missed + missed,
            old.failed + (error is not None),
            old.last_error if error is None else error,
        )
