"""What is raised, or returned, when an offload or a scope has ended.

Rules (O5, O6 of the contracts):
- A cancel goes out as the one CancelledError that was caught, and no bound hides it. Only an error
  of the function that neither the stop nor the deadline caused beats it.
- What the clean-up raised replaces none of these: it is noted or, beside a cancel, logged; it is
  raised where nothing else is.
- Nobody awaited it: then the end of the scope raises it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from timebounds._checks import shown
from timebounds.aio.telling import faults, log_faults
from timebounds.errors import BoundReached, DeadlineExceeded, StopRequested, WorkerStuck
from timebounds.policies.offload_evidence import OffloadOutcome, attach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timebounds.bounds.errand import Errand
    from timebounds.policies.offload_evidence import OffloadReport

__all__: list[str] = []

T = TypeVar("T")

_EXPIRED = OffloadOutcome.DEADLINE_EXPIRED


class Ended(Protocol[T]):
    """What is asked of an offload that has ended: its handle has it."""

    _work: Errand[T]
    _value: tuple[T] | None
    _error: BaseException | None
    _over_at: int | None

    @property
    def _cause(self) -> OffloadOutcome | None: ...

    @property
    def _failed(self) -> bool: ...

    @property
    def report(self) -> OffloadReport | None:
        """What has happened."""
        ...


def conclude(handle: Ended[T], cancelled: asyncio.CancelledError | None) -> T:
    """Return the value of an offload that has ended, or raise."""
    work, error, errors = handle._work, handle._error, list(handle._work.errors)
    final: BaseException | None = cancelled
    if final is None:
        final = bound_reached(handle)
    report = None
    try:
        if error is not None and (
            final is None or not work.stop_caused(error) or type(error) is type(final)
        ):
            final, error = _in_a_coroutine(error), None
        if final is None and errors:
            final = BaseExceptionGroup(faults(work), errors)
            errors = []
        if final is None:
            assert handle._value is not None
            return handle._value[0]
        report = handle.report  # not for a value: nobody would see it
        assert report is not None
        notes = [f"its clean-up raised {shown(each)}" for each in errors]
        if work.given_up:
            where = "inside its thread" if work.entered is not None else "in line, and will run"
            notes.append(f"{work.name} is still {where}: timebounds.stuck()")
        attach(final, report, *notes)
        if cancelled is not None and final is cancelled:
            # Nobody looks at the notes of a cancel.
            log_faults(faults(work), errors)
        elif error is not None:
            final.__cause__ = error
        raise final
    finally:
        # The traceback of what is raised holds this frame.
        del handle, work, error, errors, final, cancelled, report


def bound_reached(handle: Ended[Any]) -> BaseException | None:
    """Return the error of the bound that ended an offload, if one did."""
    work, cause = handle._work, handle._cause
    if cause is None and not work.late and not work.given_up:
        return None
    what = f"offload of {work.name}"
    now = work.now() if handle._over_at is None else handle._over_at
    if work.given_up and cause is not _EXPIRED:
        return WorkerStuck(f"{what}: {work.stop._why()}, and it has not returned in its grace")
    kept = ""
    if work.never_started:
        at_once = work.submitted >= work.deadline._at
        kept = "it never started" if at_once else "it never started: no thread was free"
    if cause in (OffloadOutcome.STOPPED, OffloadOutcome.CANCELLED):
        # Cancelled: not whoever awaits this, but the task at the end of its scope.
        text = f"{work.deadline._stopped(what, now)}; {kept}".rstrip("; ")
        return StopRequested(text, report=handle.report)
    # The deadline, or a return after it that nobody has seen coming.
    if work.handed_on:
        kept = "its value came too late and went to on_late_result"
    elif handle._value is not None:
        kept = "its value came too late and is in error.report.value"
    text = f"{work.deadline._missed(what, max(now, work.deadline._at))}; {kept}"
    return DeadlineExceeded(text.rstrip("; "), report=handle.report)


def _in_a_coroutine(error: BaseException) -> BaseException:
    """Return what may be raised in a coroutine for an error of a function in a thread."""
    if isinstance(error, (StopIteration, GeneratorExit, asyncio.CancelledError)):
        # Here they would mean that the coroutine has ended, or that its task was cancelled.
        wrapped = RuntimeError(f"the offloaded function raised {type(error).__name__}")
        wrapped.__cause__ = error
        return wrapped
    return error


def judge_scope(
    alone: Sequence[Ended[Any]],
    faulty: list[BaseException],
    error: BaseException | None,
    cancelled: BaseException | None,
) -> None:
    """Raise what the end of a scope brought, if that is more than the error of its block.

    `alone`: the runs that nobody awaited. `faulty`: what closing raised.
    """
    what = "the end of a ShieldedOffload"
    failures = [_failure(each) for each in alone if each._failed]
    faulty = [*faulty, *(fault for each in alone for fault in each._work.errors)]
    if cancelled is not None and (error is None or isinstance(error, (BoundReached, WorkerStuck))):
        error = cancelled  # a bound never hides a cancel
    if failures and (error is None or isinstance(error, asyncio.CancelledError)):
        raise BaseExceptionGroup(what, failures + faulty)
    if isinstance(error, asyncio.CancelledError):
        log_faults(what, faulty)
    elif error is not None:
        for fault in failures + faulty:
            with suppress(Exception):
                error.add_note(f"{what} brought {shown(fault)}")
    elif faulty:
        raise BaseExceptionGroup(what, faulty)
    if error is not None and error is cancelled:
        raise error
    if error is None and alone:
        # Neither failed nor faulty: it was left inside.
        stuck = WorkerStuck(f"{what}: {alone[0]._work.name} has not returned in its grace")
        report = alone[0].report
        assert report is not None
        attach(stuck, report)
        raise stuck


def _failure(handle: Ended[Any]) -> BaseException:
    """Return the error of a run that failed and that nobody awaited."""
    error, bound = handle._error, bound_reached(handle)
    if bound is None or (error is not None and not handle._work.stop_caused(error)):
        assert error is not None
        return error
    return bound
