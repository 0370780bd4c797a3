"""Receiving: the one plan by which bytes come in under a deadline, and what it leaves behind.

Rules (R1-R8, R10, R12, R16 of the contracts):
- One deadline bounds the whole operation. Each read is granted the least of the idle timeout,
  the rate allowance and what remains; progress moves nothing.
- The deadline is looked at before each read and after each read. At or after it the outcome is
  `deadline_expired`, even when the last byte or the end of the stream has just arrived: the bytes
  are kept, and `satisfied` and `eof` tell the rest.
- Then: eof > limit_exceeded > complete; after an empty wait deadline_expired > too_slow > idle.
- The end of the stream is final: never retried, never waited for again.
- An idle wait may be retried when the allowance grants it. The backoff is slept on the
  deadline's clock and cut to what remains (`Overrun.CAP`), or not begun (`Overrun.REFUSE`).
- An operation with a target that it did not meet leaves the position in the stream unknown,
  unless the stream ended: it stays open until it is resumed or discarded.

What must not live here: sockets, clocks, waiting. Bytes lie in an `Inbox` (inbox.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, final

from timebounds._checks import FAR_NS, NS, nanoseconds, number
from timebounds.bounds.allowance import Overrun, Refused
from timebounds.bounds.deadline import NEVER_NS
from timebounds.errors import (
    DeadlineExceeded,
    IdleTimeout,
    LimitExceeded,
    PeerClosed,
    TooSlow,
    Unfinished,
)
from timebounds.policies.inbox import Inbox, Read, ReadInto, Reply, Target
from timebounds.policies.plan import Pause

if TYPE_CHECKING:
    from datetime import timedelta

    from timebounds.bounds.allowance import Allowance
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.plan import Plan

    Seconds = int | float | timedelta

__all__ = ["MinRate", "ReceiveOutcome", "ReceiveReport"]


@final
class ReceiveOutcome(StrEnum):
    """How a receive ended. Only COMPLETE, and EOF of `receive_some`, return a value."""

    COMPLETE = "complete"
    EOF = "eof"
    IDLE_TIMEOUT = "idle_timeout"
    DEADLINE_EXPIRED = "deadline_expired"
    TOO_SLOW = "too_slow"
    LIMIT_EXCEEDED = "limit_exceeded"


class ReceiveReport(NamedTuple):
    """The unchanging record of one receive. Durations are in seconds of the deadline's clock."""

    outcome: ReceiveOutcome
    data: bytes
    """The value; or, unfinished, a copy of what is pending; empty for `receive_into`."""
    requested: int
    """How many bytes were wanted; with a delimiter, how many were allowed."""
    received: int
    """How many bytes this call took from the socket."""
    satisfied: bool
    """Whether everything that was asked for is there, in time or late."""
    eof: bool
    """Whether the peer has closed its side."""
    reads: int
    """How many reads were started."""
    idle_retries: int
    """How many of them were retries after an idle wait."""
    elapsed: float
    """From the call to its end."""
    waited: float
    """The part of `elapsed` in reads."""
    slept: float
    """The part of `elapsed` in backoff, as measured."""
    overshoot: float
    """How much later than the deadline the call ended."""

    def __repr__(self) -> str:
        """Show counts, not payload: reports end up in logs."""
        late = f", {self.overshoot:g} s late" if self.overshoot else ""
        met = ", satisfied" if self.satisfied else ""
        return (
            f"<ReceiveReport {self.outcome}{met}: {len(self.data)} bytes of {self.requested}, "
            f"{self.reads} reads, {self.idle_retries} idle retries in {self.elapsed:g} s{late}>"
        )


@final
@dataclass(frozen=True, slots=True)
class MinRate:
    """The slowest acceptable stream: waiting may total `grace + received / bytes_per_second`.

    It ends a peer that drips a byte now and then and so never trips an idle timeout.
    """

    bytes_per_second: float
    grace: Seconds = 0

    def __post_init__(self) -> None:
        """Refuse what is no rate and no duration."""
        if number(self.bytes_per_second, "bytes_per_second", minimum=0.0) == 0.0:
            msg = "bytes_per_second must be more than 0: leave min_rate out for no minimum"
            raise ValueError(msg)
        nanoseconds(self.grace, "grace")

    def left_ns(self, received: int, waited_ns: int) -> int:
        """Return the nanoseconds of waiting that are left after so many bytes and so much wait."""
        earned = received / self.bytes_per_second
        return nanoseconds(self.grace, "grace") + nanoseconds(earned, "earned") - waited_ns


@final
class Rules(NamedTuple):
    """What one receiver applies to each of its operations, beside the deadline."""

    idle_ns: int
    min_rate: MinRate | None
    overrun: Overrun


def receiving(
    target: Target, inbox: Inbox, rules: Rules, at: int, now: int
) -> Plan[Read | ReadInto, ReceiveReport]:
    """Receive `target` by the instant `at`, beginning at `now`; settle the inbox; report."""
    buffer, start = inbox.held
    command = target.command(buffer)
    started = now
    received = reads = retries = waited = slept = 0
    ask = target.ask(buffer, start)
    outcome = _judge(ask, inbox.eof, late=now >= at)
    while outcome is None:
        limit = min(rules.idle_ns, at - now)
        if rules.min_rate is not None:
            limit = min(limit, rules.min_rate.left_ns(received, waited))
            if limit <= 0:
                outcome = ReceiveOutcome.TOO_SLOW
                break
        command.size = ask
        command.limit = limit if limit < FAR_NS else None
        held, before = target.held(buffer, start), now
        reads += 1
        now, reply = yield command
        waited += now - before
        arrived = target.held(buffer, start) - held
        received += arrived
        ask = target.ask(buffer, start)
        if reply is Reply.ANSWER or now >= at:
            inbox.eof = reply is Reply.ANSWER and not arrived
            outcome = _judge(ask, inbox.eof, late=now >= at)
        elif rules.min_rate is not None and rules.min_rate.left_ns(received, waited) <= 0:
            outcome = ReceiveOutcome.TOO_SLOW
        elif rules.idle_ns < NEVER_NS:
            backoff = _retry_after(target, rules.overrun, at - now)
            if backoff is None:
                outcome = ReceiveOutcome.IDLE_TIMEOUT
                break
            if backoff:
                before = now
                now, _ = yield Pause(backoff)
                slept += now - before
            if now >= at:
                outcome = ReceiveOutcome.DEADLINE_EXPIRED
            else:
                retries += 1
    times = (now - started, waited, slept, max(0, now - at))
    return _settle(target, inbox, outcome, received, reads, retries, times)


def _judge(ask: int, eof: bool, *, late: bool) -> ReceiveOutcome | None:  # noqa: FBT001
    """Return the outcome that the facts call for, or None to go on reading."""
    if late:
        return ReceiveOutcome.DEADLINE_EXPIRED
    if ask == 0:
        return ReceiveOutcome.COMPLETE
    if eof:
        return ReceiveOutcome.EOF
    return ReceiveOutcome.LIMIT_EXCEEDED if ask < 0 else None


def _retry_after(target: Target, overrun: Overrun, left_ns: int) -> int | None:
    """Return the backoff in ns before the next read, at most what is left; None: no retry."""
    step = target.allowance.spend()
    if isinstance(step, Refused):
        return None
    delay = nanoseconds(step.delay, "delay")
    if delay >= left_ns:
        if overrun is Overrun.REFUSE:
            return None
        delay = left_ns
    target.allowance = step.rest
    return delay


def _settle(
    target: Target,
    inbox: Inbox,
    outcome: ReceiveOutcome,
    received: int,
    reads: int,
    retries: int,
    times: tuple[int, int, int, int],
) -> ReceiveReport:
    """Hand out what is to be handed out, in one store, and return the report of it."""
    buffer, start = inbox.held
    satisfied = target.ask(buffer, start) == 0
    ended = satisfied or outcome is ReceiveOutcome.EOF
    size = target.value(buffer, start) if satisfied else len(buffer) - start
    report = ReceiveReport(
        outcome,
        inbox.data(size),
        target.requested,
        received,
        satisfied,
        inbox.eof,
        reads,
        retries,
        *(each / NS for each in times),
    )
    still_wanted = None if ended or target.keeps_position else target
    inbox.settle(size if ended else 0, still_wanted, report)
    return report


def begin(
    inbox: Inbox, wanted: Target | memoryview | None, allowance: Allowance, *, in_doubt: bool
) -> Target:
    """Begin a new target, a buffer to fill, or (None) go on with the unfinished operation.

    Raises:
        Unfinished: an operation is open, or there is none that resuming could help.
    """
    open_target = inbox.target
    if in_doubt:
        msg = "a read was interrupted inside the socket's recv, which may have lost bytes"
        raise Unfinished(f"{msg}: only discard() helps, or another connection")
    if wanted is None:
        if open_target is None:
            msg = "nothing is unfinished, so there is nothing to resume: call a receive verb"
            raise Unfinished(msg)
        if inbox.report is not None and inbox.report.outcome is ReceiveOutcome.LIMIT_EXCEEDED:
            msg = f"{open_target} exceeded its limit, so resuming can not help: call discard()"
            raise Unfinished(msg)
        inbox.begin(open_target)
        return open_target
    if open_target is not None:
        msg = (
            f"{open_target} has not finished, {len(inbox)} bytes are pending and the position in "
            "the stream is unknown: call resume(deadline) or discard() first"
        )
        raise Unfinished(msg)
    if isinstance(wanted, memoryview):
        return inbox.begin_into(wanted, allowance)
    inbox.begin(wanted)
    return wanted


def nothing(inbox: Inbox, target: Target) -> bytes:
    """Settle a target of no bytes: complete, without a look at socket or clock."""
    _settle(target, inbox, ReceiveOutcome.COMPLETE, 0, 0, 0, (0, 0, 0, 0))
    return b""


def conclude(
    report: ReceiveReport, target: Target, inbox: Inbox, rules: Rules, deadline: Deadline
) -> bytes:
    """Return the value of a finished receive, or raise the error of its outcome.

    The end of the stream is the value b"" where no position is lost by it.
    """
    outcome, pending = report.outcome, len(inbox)
    if outcome is ReceiveOutcome.COMPLETE:
        return report.data
    if outcome is ReceiveOutcome.EOF and target.keeps_position:
        return b""
    kept = f"{pending} bytes kept for resume() or discard()"
    if report.satisfied:
        kept = f"all {len(report.data)} bytes came, too late: they are in error.report.data"
    if outcome is ReceiveOutcome.DEADLINE_EXPIRED:
        ended = deadline._at + round(report.overshoot * NS)
        raise DeadlineExceeded(f"{deadline._missed(str(target), ended)}; {kept}", report=report)
    if outcome is ReceiveOutcome.IDLE_TIMEOUT:
        silent = f"the peer was silent for {rules.idle_ns / NS:g} s"
        raise IdleTimeout(f"{target}: {silent}; {kept}", report=report)
    if outcome is ReceiveOutcome.TOO_SLOW:
        slow = f"{report.received} bytes in {report.waited:g} s of waiting is below {rules.min_rate}"
        raise TooSlow(f"{target}: {slow}; {kept}", report=report)
    if outcome is ReceiveOutcome.EOF:
        closed = f"the peer closed after {len(report.data)} bytes, which are in error.report.data"
        raise PeerClosed(f"{target}: {closed}", report=report)
    beyond = f"no delimiter in the first {report.requested} bytes; {pending} bytes kept for discard()"
    raise LimitExceeded(f"{target}: {beyond}", report=report)
