"""What an offload leaves behind: how it ended, and when each step of it was.

Rules (O4, O5, T1 of the contracts): a report never changes and holds durations; what was requested,
observed, committed and returned are facts of their own, never inferred from one another.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, final

from timebounds._checks import NS
from timebounds.errors import BoundReached

if TYPE_CHECKING:
    from timebounds.bounds.errand import Errand

__all__ = ["OffloadOutcome", "OffloadReport", "offload_report"]

_ATTRIBUTE = "__timebounds_offload_report__"


@final
class OffloadOutcome(StrEnum):
    """How an offload ended for its caller."""

    RETURNED = "returned"
    """The function returned in time; its value is the caller's."""
    RAISED = "raised"
    """The function raised, and nothing else had ended the call."""
    NEVER_STARTED = "never_started"
    """The deadline, a stop or a cancel came before a thread was free. The function never runs."""
    DEADLINE_EXPIRED = "deadline_expired"
    """It started, and the deadline passed before it returned."""
    STOPPED = "stopped"
    """It started, and was stopped."""
    CANCELLED = "cancelled"
    """It started, and the awaiting task was cancelled."""
    STUCK = "stuck"
    """It was asked to stop, its grace is over, and it is still inside."""


class OffloadReport(NamedTuple):
    """The record of one offload. Instants are seconds since it was submitted, None for never."""

    outcome: OffloadOutcome
    name: str
    """The function's."""
    queued: float
    """Seconds until it started or, where it never did, until that was clear."""
    ran: float
    """Seconds in the function, until now where it is still inside."""
    cancels: int
    """How many cancels arrived while it was waited for."""
    entered: float | None
    """When a thread began with the function."""
    stop_requested: float | None
    """When a stop was requested first."""
    stop_observed: float | None
    """When the function looked and saw it."""
    committed: float | None
    """When it passed its point of no return."""
    released: float | None
    """When a release was called."""
    returned: float | None
    """When the function had returned or raised."""
    closed: float | None
    """When what it owned, or what its scope closes, was closed."""
    value: Any
    """What the function returned; None without a value."""
    error: BaseException | None
    """What the function raised."""
    errors: tuple[BaseException, ...]
    """What release and close raised."""

    @property
    def steps(self) -> tuple[tuple[str, float], ...]:
        """The steps that were taken, with their instants, in order."""
        named = {
            "submitted": 0.0,
            "entered": self.entered,
            "stop requested": self.stop_requested,
            "stop observed": self.stop_observed,
            "committed": self.committed,
            "released": self.released,
            "returned": self.returned,
            "closed": self.closed,
        }
        taken = [(name, at) for name, at in named.items() if at is not None]
        return tuple(sorted(taken, key=lambda step: step[1]))

    def __repr__(self) -> str:
        """Show no value: reports end up in logs."""
        steps = ", ".join(f"{name} {at:g}" for name, at in self.steps)
        return f"<OffloadReport {self.name} {self.outcome}: {steps}>"


def report_of(
    work: Errand[Any],
    outcome: OffloadOutcome,
    cancels: int,
    over_at: int | None,
    value: tuple[Any] | None,
    error: BaseException | None,
) -> OffloadReport:
    """Return the report of `work`, which was over at an instant, or still is inside (None)."""
    since, now = work.submitted, work.now() if over_at is None else over_at
    entered = now if work.entered is None else work.entered
    returned = now if work.returned is None else work.returned
    closed = work.closed
    if work.custody is not None and work.custody.closed is not None:
        closed = work.custody.closed
    asked, seen, committed = work.stop._instants()

    def after(at: int | None) -> float | None:
        return None if at is None else (at - since) / NS

    return OffloadReport(
        outcome,
        work.name,
        (entered - since) / NS,
        0.0 if work.entered is None else (returned - entered) / NS,
        cancels,
        after(work.entered),
        after(asked),
        after(seen),
        after(committed),
        after(work.released),
        after(work.returned),
        after(closed),
        None if value is None else value[0],
        error,
        tuple(work.errors),
    )


def offload_report(error: BaseException) -> OffloadReport | None:
    """Return the report of the offload that ended with this error or CancelledError, or None.

    In the report of a function's own error, `error` is None: it is the one that was asked.
    """
    report = getattr(error, _ATTRIBUTE, None)
    return report if isinstance(report, OffloadReport) else None


def attach(error: BaseException, report: OffloadReport, *notes: str) -> None:
    """Attach the evidence to an error, where its class allows that."""
    if report.error is error:
        report = report._replace(error=None)
    with suppress(Exception):
        for note in notes:
            error.add_note(note)
    with suppress(Exception):
        setattr(error, _ATTRIBUTE, report)
        if isinstance(error, BoundReached) and error.report is None:
            error.report = report
