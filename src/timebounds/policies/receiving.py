"""Receiving: the one plan by which bytes come in under a deadline, and what it leaves behind.

Rules (R1-R8, R10, R12, R16 of the contracts):
- One deadline bounds the whole operation. Each read is granted the least of the idle timeout,
  the rate allowance and what remains; progress moves nothing.
- The deadline is looked at before each read and after each read. At or after it the outcome is
  `deadline_expired`, even when the last byte or the end of the stream has just arrived: the bytes
  are kept, and `satisfied` and `eof` tell the rest.
- Before all that: a requested stop, unless the target is met. It ends waits and backoff at once.
- Then: eof > limit_exceeded > complete; after an empty wait deadline_expired > too_slow > idle.
- The end of the stream is final: never retried, never waited for again.
- An idle wait may be retried when the allowance grants it. The backoff is slept on the
  deadline's clock and cut to what remains (`Overrun.CAP`), or not begun (`Overrun.REFUSE`).
- An operation with a target that it did not meet leaves the position in the stream unknown,
  unless the stream ended: it stays open until it is resumed or discarded.

What must not live here: sockets, clocks, waiting. Bytes lie in an `Inbox` (inbox.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from timebounds._checks import FAR_NS, NS, nanoseconds, number
from timebounds._values import Value
from timebounds.bounds.allowance import Overrun, Refused
from timebounds.bounds.deadline import NEVER_NS
from timebounds.errors import (
    DeadlineExceeded,
    IdleTimeout,
    LimitExceeded,
    PeerClosed,
    StopRequested,
    TooSlow,
    Unfinished,
)
from timebounds.policies.evidence import ReceiveOutcome, ReceiveReport
from timebounds.policies.plan import Pause, Reply

if TYPE_CHECKING:
    from timebounds._checks import Seconds
    from timebounds.bounds.allowance import Allowance
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.stop import StopSignal
    from timebounds.policies.inbox import Inbox, Target
    from timebounds.policies.plan import Plan

__all__ = ["MinRate"]


# A module's name is looked up several times faster than a member of an enum.
_COMPLETE = ReceiveOutcome.COMPLETE
_EOF = ReceiveOutcome.EOF
_EXPIRED = ReceiveOutcome.DEADLINE_EXPIRED
_ANSWER = Reply.ANSWER


@final
class MinRate(Value):
    """The slowest acceptable stream: waiting may total `grace + received / bytes_per_second`.

    It ends a peer that drips a byte now and then and so never trips an idle timeout.
    """

    __slots__ = ("bytes_per_second", "grace", "_grace_ns")  # noqa: RUF023  (as shown)

    bytes_per_second: float
    grace: Seconds
    _grace_ns: int

    def __init__(self, bytes_per_second: float, grace: Seconds) -> None:
        if number(bytes_per_second, "bytes_per_second", minimum=0.0) == 0.0:
            msg = "bytes_per_second must be more than 0: leave min_rate out for no minimum"
            raise ValueError(msg)
        grace_ns = nanoseconds(grace, "grace", positive=True)
        self._set(bytes_per_second=bytes_per_second, grace=grace, _grace_ns=grace_ns)

    def left_ns(self, received: int, waited_ns: int) -> int:
        """Return the nanoseconds of waiting that are left after so many bytes and so much wait."""
        earned = min(received / self.bytes_per_second, FAR_NS / NS)
        return self._grace_ns + nanoseconds(earned, "earned") - waited_ns


@final
class Rules(NamedTuple):
    """What one receiver applies to each of its operations, beside the deadline."""

    idle_ns: int
    min_rate: MinRate | None
    overrun: Overrun


def receiving(
    target: Target,
    inbox: Inbox,
    rules: Rules,
    at: int,
    now: int,
    first: tuple[int, int] | None = None,
    stop: StopSignal | None = None,
) -> Plan[Target, ReceiveReport]:
    """Receive `target` by the instant `at`, beginning at `now`; settle the inbox; report.

    `first`: when a first read that was answered at once had ended, and how many bytes it brought.
    `stop` may end it sooner.
    """
    idle_ns, min_rate, overrun = rules
    started = now
    received = reads = retries = waited = slept = 0
    if first is not None:
        now, received = first
        reads, waited = 1, now - started
        inbox.eof = not received
    outcome = judge(target.ask, inbox.eof, now >= at, stop)
    while outcome is None:
        left = at - now
        limit = idle_ns if idle_ns < left else left
        if min_rate is not None:
            limit = min(limit, min_rate.left_ns(received, waited))
            if limit <= 0:
                outcome = ReceiveOutcome.TOO_SLOW
                break
        target.limit = limit if limit < FAR_NS else None
        target.since = before = now
        reads += 1
        now, reply = yield target
        waited += now - before
        arrived = target.look()
        received += arrived
        if reply is _ANSWER or now >= at or (stop is not None and stop.requested()):
            inbox.eof = reply is _ANSWER and not arrived
            outcome = judge(target.ask, inbox.eof, now >= at, stop)
        elif min_rate is not None and min_rate.left_ns(received, waited) <= 0:
            outcome = ReceiveOutcome.TOO_SLOW
        elif idle_ns < NEVER_NS:
            backoff = _retry_after(target, overrun, at - now)
            if backoff is None:
                outcome = ReceiveOutcome.IDLE_TIMEOUT
                break
            if backoff:
                before = now
                now, _ = yield Pause(backoff)
                slept += now - before
            outcome = judge(target.ask, eof=False, late=now >= at, stop=stop)
            retries += outcome is None
    return _settle(
        target, inbox, outcome, received, reads, retries, now - started, waited, slept, now - at
    )


def judge(
    ask: int,
    eof: bool,  # noqa: FBT001
    late: bool,  # noqa: FBT001
    stop: StopSignal | None,
) -> ReceiveOutcome | None:
    """Return the outcome that the facts call for, or None to go on reading."""
    if stop is not None and ask and stop.requested():
        return ReceiveOutcome.STOPPED
    if late:
        return _EXPIRED
    if ask == 0:
        return _COMPLETE
    if eof:
        return _EOF
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
    elapsed: int,
    waited: int,
    slept: int,
    late: int,
) -> ReceiveReport:
    """Hand out what is to be handed out, in one store, and return the report of it."""
    ask, requested = target.ask, target.requested
    data, chunks, start = inbox.split(len(inbox) if ask else target.value())
    if outcome is not _COMPLETE:
        data = target.evidence(data)
    late = max(late, 0)
    met, eof = ask == 0, inbox.eof
    report = ReceiveReport(
        outcome,
        data,
        requested,
        received,
        met,
        eof,
        reads,
        retries,
        elapsed,
        waited,
        slept,
        late,
    )
    if ask and outcome is not _EOF:
        chunks, start, _, _ = inbox.state
        inbox.state = (chunks, start, None if target.keeps_position else target, report)
    else:
        inbox.state = (chunks, start, None, report)
        target.end()
    return report


def settle_at_once(target: Target, inbox: Inbox, elapsed: int, received: int) -> bytes:
    """Settle a target that one read without waiting has met, and return its value."""
    data, chunks, start = inbox.split(target.value())
    facts = (_COMPLETE, data, target.requested, received, True, False, 1, 0, elapsed, elapsed, 0, 0)
    inbox.state = (chunks, start, None, facts)
    return data


def discard(inbox: Inbox) -> bytes:
    """Hand out what is pending and give up what was wanted, in one store; report it, too."""
    target = inbox.state[2]
    kept, chunks, start = inbox.split(len(inbox))
    size = len(kept)
    inbox.state = (
        chunks,
        start,
        None,
        (_COMPLETE, kept, size, 0, True, inbox.eof, 0, 0, 0, 0, 0, 0),
    )
    if target is not None:
        target.end()
    return kept


def begin(
    inbox: Inbox, wanted: Target | memoryview | None, allowance: Allowance, *, in_doubt: bool
) -> Target:
    """Begin a new target, a buffer to fill, or (None) go on with the unfinished operation.

    Raises:
        Unfinished: an operation is open, or there is none that resuming could help.
    """
    open_target = inbox.state[2]
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
    if type(wanted) is memoryview:
        return inbox.begin_into(wanted, allowance)
    inbox.begin(wanted)
    return wanted


def nothing(inbox: Inbox, target: Target) -> bytes:
    """Settle a target of no bytes: complete, without a look at socket or clock."""
    target.ask = 0
    _settle(target, inbox, _COMPLETE, 0, 0, 0, 0, 0, 0, 0)
    return b""


def conclude(
    report: ReceiveReport, target: Target, inbox: Inbox, rules: Rules, deadline: Deadline
) -> bytes:
    """Return the value of a finished receive, or raise the error of its outcome.

    The end of the stream is the value b"" where no position is lost by it.
    """
    outcome = report.outcome
    if outcome is _COMPLETE:
        return report.data
    if outcome is _EOF and target.keeps_position:
        return b""
    pending = len(inbox)
    kept = target.kept(pending)
    if report.satisfied:
        kept = f"all {len(report.data)} bytes came, too late: they are in error.report.data"
    if outcome is _EXPIRED:
        ended = deadline._missed(str(target), deadline._at + report.overshoot_ns)
        raise DeadlineExceeded(f"{ended}; {kept}", report=report)
    if outcome is ReceiveOutcome.STOPPED:
        ended = deadline._stopped(str(target), deadline._now())
        raise StopRequested(f"{ended}; {kept}", report=report)
    if outcome is ReceiveOutcome.IDLE_TIMEOUT:
        silent = f"the peer was silent for {rules.idle_ns / NS:g} s"
        raise IdleTimeout(f"{target}: {silent}; {kept}", report=report)
    if outcome is ReceiveOutcome.TOO_SLOW:
        slow = (
            f"{report.received} bytes in {report.waited:g} s of waiting is below {rules.min_rate}"
        )
        raise TooSlow(f"{target}: {slow}; {kept}", report=report)
    if outcome is _EOF:
        closed = f"the peer closed after {len(report.data)} bytes, which are in error.report.data"
        raise PeerClosed(f"{target}: {closed}", report=report)
    beyond = (
        f"no delimiter in the first {report.requested} bytes; {pending} bytes kept for discard()"
    )
    raise LimitExceeded(f"{target}: {beyond}", report=report)
