"""Sending: the one plan by which bytes go out under a deadline, and what is known afterwards.

Rules (S1-S3, R3, R10, R14 of the contracts):
- One deadline bounds the whole send. Each step is granted the least of the idle timeout and what
  remains; progress moves nothing but the idle limit. They are two promises.
- The deadline is looked at before each step and after it. At or after it the outcome is
  `deadline_expired`, even when the last byte has just been accepted; `satisfied` tells that.
- Before all that: a requested stop, unless all was accepted.
- A byte that was accepted is never sent again: an unfinished send keeps its rest, and only
  `resume` sends that. What was accepted is known at every moment, between any two bytecodes.
- `accepted` is what the kernel (or, for a transport, its TLS layer) has taken; nobody here knows
  what was delivered. Bytes that are with a TLS layer or a transport but not yet accepted are
  `in_doubt`: they go out whatever happens, unless the connection ends.

What must not live here: sockets, waiting.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, final

from timebounds._checks import FAR_NS, NS
from timebounds.bounds.alarm import not_backwards
from timebounds.errors import DeadlineExceeded, IdleTimeout, StopRequested, Unfinished
from timebounds.policies.plan import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.stop import StopSignal
    from timebounds.policies.plan import Plan

__all__ = ["SendOutcome", "SendReport"]


@final
class SendOutcome(StrEnum):
    """How a send ended. Only COMPLETE returns."""

    COMPLETE = "complete"
    IDLE_TIMEOUT = "idle_timeout"
    DEADLINE_EXPIRED = "deadline_expired"
    STOPPED = "stopped"


_COMPLETE = SendOutcome.COMPLETE
_NOTHING = memoryview(b"")


class SendReport(NamedTuple):
    """The unchanging record of one send; durations by the deadline's clock.

    `outcome`: how it ended. `requested`: the bytes of the whole message. `accepted`: how many of
    them the kernel has taken so far, in this call and those before it that were left unfinished;
    not what was delivered. `in_doubt`: how many more are with a TLS layer or a transport, half
    sent perhaps. `sends`: how many sends were started.
    """

    outcome: SendOutcome
    requested: int
    accepted: int
    in_doubt: int
    sends: int
    elapsed_ns: int
    waited_ns: int
    overshoot_ns: int

    @property
    def satisfied(self) -> bool:
        """Whether all was accepted, in time or late."""
        return self.accepted == self.requested

    @property
    def left(self) -> int:
        """How many bytes were not accepted."""
        return self.requested - self.accepted

    @property
    def elapsed(self) -> float:
        """Seconds from the call to its end."""
        return self.elapsed_ns / NS

    @property
    def waited(self) -> float:
        """Seconds in sends."""
        return self.waited_ns / NS

    @property
    def overshoot(self) -> float:
        """Seconds by which the end was later than the deadline."""
        return self.overshoot_ns / NS

    def __repr__(self) -> str:
        """Show what happened in one line."""
        late = f", {self.overshoot:g} s late" if self.overshoot_ns else ""
        doubt = f", {self.in_doubt} in doubt" if self.in_doubt else ""
        return (
            f"<SendReport {self.outcome}: {self.accepted} of {self.requested} bytes accepted"
            f"{doubt}, {self.sends} sends in {self.elapsed:g} s{late}>"
        )


@final
class Parcel:
    """What one send wants; also the command that a port carries out: send some of it once.

    A port appends to `counts` how many bytes of `rest()` were accepted, and says in `in_doubt`
    how many it has handed over without that answer.
    """

    __slots__ = ("_stock", "ask", "counts", "in_doubt", "limit", "requested", "since")

    requested: int
    counts: list[int]
    in_doubt: int
    ask: int
    limit: int | None
    since: int

    def __init__(self, view: memoryview) -> None:
        # What is held, and how many bytes of the message lie before it.
        self._stock = (view, 0)
        self.requested = len(view)
        self.counts = []
        self.in_doubt = 0
        self.ask = len(view)
        self.limit = None
        self.since = 0

    @property
    def accepted(self) -> int:
        """How many bytes were accepted so far."""
        return sum(self.counts)

    def look(self) -> int:
        """See what was accepted: set `ask`, and return it."""
        counts = self.counts
        # One store, so that between any two bytecodes the counts have the right sum.
        counts[:] = (sum(counts),)
        self.ask = self.requested - counts[0]
        return counts[0]

    def rest(self) -> memoryview:
        """Return what was not accepted."""
        view, before = self._stock
        return view[sum(self.counts) - before :]

    @property
    def open(self) -> bool:
        """Whether the position in the stream is unknown: some of it went out, and not all."""
        return self.ask > 0 and (self.ask < self.requested or self.in_doubt > 0)

    def keep(self) -> None:
        """Let go of the caller's buffer; keep a copy of the rest, if there is any."""
        view = self._stock[0]
        if self.ask == 0 or self.look() == self.requested:
            self._stock = (_NOTHING, self.requested)
            view.release()
        elif type(view.obj) is not bytes:
            self._stock = (memoryview(bytes(self.rest())), self.requested - self.ask)
            view.release()

    def note(self, error: BaseException) -> None:
        """Note on what ended the send how far it had come."""
        error.add_note(f"{self}: {self.look()} bytes were accepted, resume() sends the rest")

    def __str__(self) -> str:
        return f"send_all({self.requested} bytes)"


def sending(
    parcel: Parcel,
    idle_ns: int,
    at: int,
    now: int,
    stop: StopSignal | None = None,
    first: int | None = None,
) -> Plan[Parcel, SendReport]:
    """Send `parcel` by the instant `at`, beginning at `now`; report.

    `first`: when a first send that was answered at once had ended. `stop` may end it sooner.
    """
    started = now
    sends = waited = 0
    if first is not None:
        now, sends, waited = first, 1, first - now
    parcel.look()
    outcome = judge(parcel.ask, now >= at, stop)
    while outcome is None:
        limit = min(idle_ns, at - now)
        parcel.limit = limit if limit < FAR_NS else None
        parcel.since = before = now
        sends += 1
        now, reply = yield parcel
        waited += now - before
        parcel.look()
        outcome = judge(parcel.ask, now >= at, stop)
        if outcome is None and reply is Reply.SILENCE:
            # Only the idle timeout is left that can have ended it.
            outcome = SendOutcome.IDLE_TIMEOUT
    return report_of(parcel, outcome, sends, now - started, waited, max(now - at, 0))


def judge(
    left: int,
    late: bool,  # noqa: FBT001
    stop: StopSignal | None,
) -> SendOutcome | None:
    """Return the outcome that the facts call for, or None to go on."""
    if stop is not None and left and stop.requested():
        return SendOutcome.STOPPED
    if late:
        return SendOutcome.DEADLINE_EXPIRED
    return None if left else _COMPLETE


def report_of(
    parcel: Parcel, outcome: SendOutcome, sends: int, elapsed: int, waited: int, late: int
) -> SendReport:
    """Return the report of a send that has ended so."""
    accepted = parcel.requested - parcel.ask
    return SendReport(
        outcome, parcel.requested, accepted, parcel.in_doubt, sends, elapsed, waited, late
    )


def at_once(
    parcel: Parcel, deadline: Deadline, do: Callable[[Parcel], bool]
) -> SendReport | tuple[int, int | None]:
    """Send once without waiting; return the report if that was all of it.

    Else when it began and, if a send was answered, when that had ended.
    """
    if parcel.ask == 0:
        return report_of(parcel, _COMPLETE, 0, 0, 0, 0)
    clock, at, stop = deadline._now, deadline._at, deadline._stop
    now = clock()
    if judge(parcel.ask, now >= at, stop) is not None or not do(parcel):
        return now, None
    then = clock()
    parcel.look()
    if then < now:
        not_backwards(now, then)
    if judge(parcel.ask, then >= at, stop) is _COMPLETE:
        return report_of(parcel, _COMPLETE, 1, then - now, then - now, 0)
    return now, then


@final
class Outbox:
    """The message that was not sent whole, and the last report."""

    __slots__ = ("_state",)

    # One store for both.
    _state: tuple[Parcel | None, SendReport | None]

    def __init__(self) -> None:
        self._state = (None, None)

    @property
    def report(self) -> SendReport | None:
        """What the last send reported, until the next one begins."""
        return self._state[1]

    @property
    def open(self) -> bool:
        """Whether a message has gone out in part: nothing but its rest may follow."""
        parcel = self._state[0]
        return parcel is not None and parcel.open

    @property
    def unsent(self) -> bytes:
        """A copy of what was not accepted of the last message."""
        parcel = self._state[0]
        return b"" if parcel is None else bytes(parcel.rest())

    def begin(self, wanted: memoryview | None, *, torn: bool) -> Parcel:
        """Begin a new send, or (None) go on with the unfinished one.

        Raises:
            Unfinished: an earlier one is open, or there is none to go on with.
        """
        parcel = self._state[0]
        _refuse_torn(torn)
        if wanted is None:
            if parcel is None:
                msg = "nothing is unfinished, so there is nothing to resume: call send_all"
                raise Unfinished(msg)
        elif parcel is not None and parcel.open:
            msg = (
                f"{parcel} has not finished, {parcel.accepted} bytes of it were accepted and the "
                "peer waits for the rest: call resume(deadline) or discard() first"
            )
            raise Unfinished(msg)
        else:
            parcel = Parcel(wanted)
        self._state = (parcel, None)
        return parcel

    def settle(self, parcel: Parcel, report: SendReport) -> None:
        """End a send; what is left of it stays."""
        self._state = (parcel if parcel.ask else None, report)

    def discard(self, *, torn: bool) -> bytes:
        """Give up the message that was not sent whole; return what was not accepted of it.

        Raises:
            Unfinished: a part of it is in doubt, so that only its rest may follow.
        """
        parcel, report = self._state
        _refuse_torn(torn)
        if parcel is not None and parcel.in_doubt:
            msg = f"{parcel.in_doubt} bytes of {parcel} are on their way: resume(deadline) or close"
            raise Unfinished(msg)
        unsent = self.unsent
        self._state = (None, report)
        return unsent


def _refuse_torn(torn: bool) -> None:  # noqa: FBT001
    if torn:
        msg = "a send was interrupted inside the socket's send, which may have taken bytes"
        raise Unfinished(f"{msg}: nothing can follow, close the connection")


def conclude(report: SendReport, parcel: Parcel, idle_ns: int, deadline: Deadline) -> None:
    """Return after a complete send, or raise the error of its outcome."""
    outcome = report.outcome
    if outcome is _COMPLETE:
        return
    if report.satisfied:
        kept = f"all {report.requested} bytes were accepted, too late"
    else:
        doubt = f", {report.in_doubt} are in doubt" if report.in_doubt else ""
        kept = (
            f"{report.accepted} bytes were accepted{doubt}; resume() sends the other {report.left}"
        )
    if outcome is SendOutcome.DEADLINE_EXPIRED:
        ended = deadline._missed(str(parcel), deadline._at + report.overshoot_ns)
        raise DeadlineExceeded(f"{ended}; {kept}", report=report)
    if outcome is SendOutcome.STOPPED:
        ended = deadline._stopped(str(parcel), deadline._now())
        raise StopRequested(f"{ended}; {kept}", report=report)
    silent = f"the peer took nothing for {idle_ns / NS:g} s"
    raise IdleTimeout(f"{parcel}: {silent}; {kept}", report=report)
