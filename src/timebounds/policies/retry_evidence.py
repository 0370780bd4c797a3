"""What a retried call leaves behind: why it ended, and the history of its attempts.

Rules: records never change, hold durations and no instants, and show the class of an error, not its
text: neither arguments nor payloads end up in logs.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple, final

__all__ = ["AttemptRecord", "RetryOutcome", "RetryReport", "retry_report"]

_ATTRIBUTE = "__timebounds_retry_report__"


@final
class RetryOutcome(StrEnum):
    """Why a retried call ended."""

    SUCCEEDED = "succeeded"
    ATTEMPTS = "attempts"
    """The allowance granted no further retry."""
    DEADLINE = "deadline"
    """The shared deadline has passed, or comes before a further attempt could end."""
    OVERRUN = "overrun"
    """The next backoff would have used up the budget."""
    FATAL = "fatal"
    """The policy does not retry this failure."""
    UNSAFE = "unsafe"
    """An effect may have happened, and repeating it is not safe: the effect is unknown."""
    HINT = "hint"
    """The server asked for a longer wait than the budget holds, or its hint was malformed."""
    BUDGET = "budget"
    """The retry budget of the destination is spent."""
    STOPPED = "stopped"
    """The deadline's stop signal was requested."""


class AttemptRecord(NamedTuple):
    """One attempt. Durations in seconds of the deadline's clock."""

    number: int
    began: float
    """After the call."""
    lasted: float
    granted: float
    """What it was given: inf under a never-deadline without a limit of its own."""
    error: type[Exception] | None
    """The class of its failure; None when it succeeded."""


class RetryReport(NamedTuple):
    """The unchanging record of one retried call."""

    outcome: RetryOutcome
    attempts: tuple[AttemptRecord, ...]
    elapsed: float
    """Seconds from the call to its end."""
    slept: float
    """Seconds in backoff, as measured."""
    overshoot: float
    """Seconds by which the end was later than the deadline."""
    hint: object
    """The last hint of the server, as it came; None without one."""
    marker: object
    """The progress that the last attempt left."""


def retry_report(error: BaseException) -> RetryReport | None:
    """Return the report of the retry that gave up with this error, or None.

    The error is the caller's own, so the evidence is attached to it and asked for here.
    """
    report = getattr(error, _ATTRIBUTE, None)
    return report if isinstance(report, RetryReport) else None


def attach(error: BaseException, report: RetryReport, note: str) -> None:
    """Attach the evidence to the caller's own error, where its class allows that."""
    # Its class may refuse either, frozen ones do: the error itself is what must come through.
    with suppress(Exception):
        error.add_note(note)
    with suppress(Exception):
        setattr(error, _ATTRIBUTE, report)
