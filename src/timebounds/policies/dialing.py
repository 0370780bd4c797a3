"""Dialing: the one plan by which a connection is made under a deadline, and what is known of it.

Rules (K1-K4 of the contracts):
- Name lookup, every address and the TLS handshake share one deadline; the sum never passes it.
- No address may eat it all: an attempt is granted its fair share of what remains, what remains
  divided by the addresses that are left, but not less than a floor, below which no attempt makes
  sense, and never more than what remains.
- Each phase is timed, and each address has its line in the report, one that was not tried too.
- At or after the deadline the outcome is `deadline_expired`, even when the connection has just been
  made: it is closed. Before all that: a requested stop.
- A failure of every address is the last one's own error; its history is noted on it.

What must not live here: sockets, threads, waiting.
"""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, final

from timebounds._checks import FAR_NS, NS
from timebounds._settled import Raised, Returned
from timebounds.errors import DeadlineExceeded, StopRequested
from timebounds.policies.plan import Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.stop import StopSignal
    from timebounds.policies.plan import Plan

__all__ = ["DialAttempt", "DialOutcome", "DialReport", "dial_report"]

_ATTRIBUTE = "__timebounds_dial_report__"
# A few round trips around the world: an attempt that is given less is given nothing.
FLOOR_NS = NS // 4


@final
class DialOutcome(StrEnum):
    """How dialing ended."""

    CONNECTED = "connected"
    DEADLINE_EXPIRED = "deadline_expired"
    STOPPED = "stopped"
    LOOKUP_FAILED = "lookup_failed"
    CONNECT_FAILED = "connect_failed"
    HANDSHAKE_FAILED = "handshake_failed"


@final
class DialAttempt(NamedTuple):
    """One address. Durations in seconds of the deadline's clock."""

    address: object
    ended: str
    """connected, failed, timed out (its share was over), expired, stopped, or not tried."""
    granted: float
    """Its share; inf under a never-deadline, 0 where it was not tried."""
    lasted: float
    error: str | None
    """The class and text of what the system said."""


@final
class DialReport(NamedTuple):
    """The unchanging record of one dialing. Durations in seconds of the deadline's clock."""

    outcome: DialOutcome
    phase: str
    """Where it ended: lookup, connect or handshake."""
    attempts: tuple[DialAttempt, ...]
    lookup: float
    connect: float
    handshake: float
    elapsed: float
    overshoot: float
    """By how much the end was later than the deadline."""


class Step:
    """A command that waits: at most `limit` ns (None: no limit) from the instant `since`."""

    __slots__ = ("ask", "limit", "since")

    ask: int
    limit: int | None
    since: int

    def __init__(self, limit: int, since: int) -> None:
        self.ask = 0
        self.limit = limit if limit < FAR_NS else None
        self.since = since


@final
class Lookup(Step):
    """Command: find the addresses of the name."""

    __slots__ = ()


@final
class Dial(Step):
    """Command: connect to one of the addresses."""

    __slots__ = ("endpoint",)

    endpoint: Any

    def __init__(self, endpoint: Any, limit: int, since: int) -> None:
        super().__init__(limit, since)
        self.endpoint = endpoint


@final
class Shake(Step):
    """Command: shake hands."""

    __slots__ = ()


class Dialed(NamedTuple):
    """What the plan returns: the report, and the error of the system where that ended it."""

    report: DialReport
    error: Exception | None


class _Record:
    """What is counted on the way."""

    __slots__ = ("at", "attempts", "spent", "started", "stop")

    def __init__(self, at: int, started: int, stop: StopSignal | None) -> None:
        self.at = at
        self.started = started
        self.stop = stop
        self.spent = {"lookup": 0, "connect": 0, "handshake": 0}
        self.attempts: list[DialAttempt] = []

    def due(self, now: int) -> DialOutcome | None:
        """Return the bound that was reached, if one was."""
        if self.stop is not None and self.stop.requested():
            return DialOutcome.STOPPED
        return DialOutcome.DEADLINE_EXPIRED if now >= self.at else None

    def end(
        self, outcome: DialOutcome, phase: str, now: int, error: Exception | None = None
    ) -> Dialed:
        """Return the report."""
        spent = self.spent
        late = max(0, now - self.at)
        report = DialReport(
            outcome,
            phase,
            tuple(self.attempts),
            spent["lookup"] / NS,
            spent["connect"] / NS,
            spent["handshake"] / NS,
            (now - self.started) / NS,
            late / NS,
        )
        return Dialed(report, error)


def dialing(
    at: int,
    now: int,
    stop: StopSignal | None = None,
    *,
    endpoints: Sequence[Any] | None = None,
    shake: bool = False,
) -> Plan[Step, Dialed]:
    """Find the addresses unless they are given, connect to one, and shake hands if that is asked.

    Endpoints are what `socket.getaddrinfo` returns. Answers are Returned, Raised or SILENCE.
    """
    record = _Record(at, now, stop)
    due = record.due(now)
    if due is not None:
        return record.end(due, "lookup" if endpoints is None else "connect", now)
    if endpoints is None:
        before = now
        now, answer = yield Lookup(at - now, now)
        record.spent["lookup"] = now - before
        due = record.due(now)
        if due is not None:
            return record.end(due, "lookup", now)
        if isinstance(answer, (Raised, Reply)):
            return record.end(DialOutcome.LOOKUP_FAILED, "lookup", now, _error(answer))
        endpoints = answer.value
    assert endpoints
    began = now
    error: Exception | None = None
    connected = False
    for n, endpoint in enumerate(endpoints):
        granted = share(at - now, len(endpoints) - n)
        before = now
        now, answer = yield Dial(endpoint, granted, now)
        due = record.due(now)
        connected = isinstance(answer, Returned)
        said = _error(answer)
        record.attempts.append(_attempt(endpoint, due, answer, said, granted, now - before))
        if due is not None or connected:
            break
        error = said
    tried = len(record.attempts)
    record.attempts += [_untried(each) for each in endpoints[tried:]]
    record.spent["connect"] = now - began
    if due is not None:
        return record.end(due, "connect", now)
    if not connected:
        return record.end(DialOutcome.CONNECT_FAILED, "connect", now, error)
    if not shake:
        return record.end(DialOutcome.CONNECTED, "connect", now)
    return (yield from _shaking(record, now))


def shaking(at: int, now: int, stop: StopSignal | None = None) -> Plan[Step, Dialed]:
    """Shake hands on a connection that exists."""
    record = _Record(at, now, stop)
    due = record.due(now)
    if due is not None:
        return record.end(due, "handshake", now)
    return (yield from _shaking(record, now))


def _shaking(record: _Record, now: int) -> Plan[Step, Dialed]:
    before = now
    now, answer = yield Shake(record.at - now, now)
    record.spent["handshake"] = now - before
    due = record.due(now)
    if due is not None:
        return record.end(due, "handshake", now)
    if isinstance(answer, Returned):
        return record.end(DialOutcome.CONNECTED, "handshake", now)
    return record.end(DialOutcome.HANDSHAKE_FAILED, "handshake", now, _error(answer))


def share(left: int, addresses: int) -> int:
    """Return the ns that one of so many addresses may use of what is left."""
    return min(left, max(left // addresses, FLOOR_NS))


def _error(answer: Returned[Any] | Raised | Reply) -> Exception | None:
    return answer.take() if isinstance(answer, Raised) else None


def _seconds(ns: int) -> float:
    return ns / NS if ns < FAR_NS else inf


def _attempt(
    endpoint: Any,
    due: DialOutcome | None,
    answer: object,
    error: Exception | None,
    granted: int,
    lasted: int,
) -> DialAttempt:
    if due is not None:
        ended = "stopped" if due is DialOutcome.STOPPED else "expired"
    elif isinstance(answer, Returned):
        ended = "connected"
    else:
        ended = "timed out" if error is None else "failed"
    text = None if error is None else f"{type(error).__name__}: {error}"
    return DialAttempt(endpoint[4], ended, _seconds(granted), lasted / NS, text)


def _untried(endpoint: Any) -> DialAttempt:
    return DialAttempt(endpoint[4], "not tried", 0.0, 0.0, None)


def dial_report(error: BaseException) -> DialReport | None:
    """Return the report of the dialing that failed with this error, or None.

    The error is the system's own, so the evidence is attached to it and asked for here.
    """
    report = getattr(error, _ATTRIBUTE, None) or getattr(error, "report", None)
    return report if isinstance(report, DialReport) else None


def conclude(dialed: Dialed, what: str, deadline: Deadline, kept: str = "") -> DialReport:
    """Return the report where a connection was made, or raise the error of the outcome.

    What it is given must be in no local of the caller: the error in it holds the caller's frame.
    """
    report, error = dialed
    if report.outcome is DialOutcome.CONNECTED:
        return report
    try:
        lines = [_line(each) for each in report.attempts]
        if report.outcome is DialOutcome.DEADLINE_EXPIRED:
            now = deadline._at + round(report.overshoot * NS)
            text = f"{deadline._missed(what, now)}, in the {report.phase}{kept}"
            error = DeadlineExceeded(text, report=report)
        elif report.outcome is DialOutcome.STOPPED:
            text = f"{deadline._stopped(what, deadline._now())}, in the {report.phase}{kept}"
            error = StopRequested(text, report=report)
        elif error is None:
            # Every address was silent for its share, and the budget is not used up.
            error = TimeoutError(f"{what}: no address answered in its share of the budget")
            setattr(error, _ATTRIBUTE, report)
        else:
            with suppress(Exception):
                setattr(error, _ATTRIBUTE, report)
        for line in lines:
            with suppress(Exception):
                error.add_note(line)
        raise error
    finally:
        # The traceback of what is raised holds this frame.
        del error, dialed


def _line(attempt: DialAttempt) -> str:
    said = "" if attempt.error is None else f": {attempt.error}"
    if attempt.ended == "not tried":
        return f"{attempt.address}: not tried"
    return f"{attempt.address}: {attempt.ended} after {attempt.lasted:g} s{said}"
