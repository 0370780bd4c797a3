"""`BudgetedReceiver`: reads from a borrowed socket, each read capped by what remains.

The rules are in `policies/receiving.py`; the ways of waiting in `socket_port.py`. Here the two
meet: arguments are checked, one user at a time is let in, and the plan is driven.
"""

from __future__ import annotations

from sys import _getframe, maxsize, modules
from typing import TYPE_CHECKING, final

from timebounds._checks import refuse_on_loop_thread, writable
from timebounds.blocking.socket_port import port_for
from timebounds.blocking.turn import Turn
from timebounds.bounds.alarm import not_backwards
from timebounds.bounds.allowance import Overrun, RetryAllowance
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.policies.evidence import ReceiveOutcome, ReceiveReport
from timebounds.policies.inbox import Exactly, Inbox, Target
from timebounds.policies.plan import drive
from timebounds.policies.receiving import (
    begin,
    conclude,
    discard,
    judge,
    nothing,
    receiving,
    settle_at_once,
)
from timebounds.policies.wants import as_rules, exactly, some, until

COMPLETE = ReceiveOutcome.COMPLETE

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from _typeshed import WriteableBuffer

    from timebounds._checks import Seconds
    from timebounds.blocking.waiting import SocketLike
    from timebounds.bounds.allowance import Allowance
    from timebounds.policies.receiving import MinRate

__all__ = ["BudgetedReceiver"]


@final
class BudgetedReceiver:
    """Receives bytes from a borrowed stream socket under one deadline for each whole operation.

    A read waits for at most the least of `idle_timeout`, the rate allowance of `min_rate` and what
    remains of the deadline, so a peer that drips bytes cannot stretch a call. Every verb returns
    its value or raises; either way `report` tells what happened, and no byte is lost: what a verb
    did not hand out is `pending`.

    The socket is never closed and afterwards has the timeout it had before. Plain sockets are not
    switched at all, so another thread may send meanwhile; a TLS socket, or an object with recv and
    settimeout, is switched during a receive. For one thread at a time, and for no thread with a
    running event loop (see `blocking_allowed`).

    Args:
        sock: a connected stream socket, plain or TLS, or an object with recv, settimeout and
            gettimeout. Datagram sockets are refused.
        idle_timeout: seconds of silence that end a read; None for no such limit.
        allowance: how often an idle wait is tried again, after which backoff. Each operation
            starts with all of it; `resume` goes on with the rest.
        min_rate: the slowest acceptable stream.
        overrun: what a backoff means that would use up the budget: wait to its end (CAP), or
            give up at once (REFUSE).
    """

    __slots__ = ("_allowance", "_inbox", "_port", "_rules", "_turn")

    def __init__(
        self,
        sock: SocketLike | socket.socket,
        *,
        idle_timeout: Seconds | None = None,
        allowance: Allowance = RetryAllowance.none(),  # noqa: B008  (frozen)
        min_rate: MinRate | None = None,
        overrun: Overrun = Overrun.CAP,
    ) -> None:
        self._rules = as_rules(idle_timeout, allowance, min_rate, overrun)
        self._allowance = allowance
        self._port = port_for(sock)
        self._inbox = Inbox()
        self._turn = Turn()

    @property
    def report(self) -> ReceiveReport | None:
        """What the last operation reported; None before the first and while one is under way."""
        return self._inbox.report

    @property
    def pending(self) -> bytes:
        """A copy of the bytes that were taken from the socket and not handed out."""
        return self._inbox.pending

    def receive_exactly(self, size: int, deadline: Deadline) -> bytes:
        """Return exactly `size` bytes; never ask the socket for more.

        Bounds the whole operation, backoff included, by `deadline`. A size of 0 touches neither
        socket nor clock. Memory follows what arrives, not `size`.

        Raises:
            DeadlineExceeded: the deadline passed, with all bytes there or not.
            StopRequested: the deadline's stop signal was requested, and not all bytes were there.
            IdleTimeout, TooSlow: the peer was silent too long, or too slow.
            PeerClosed: the stream ended first; what came is in `error.report.data`.
            Unfinished, Busy: an earlier operation is open; another user is inside.
            OSError: as the socket raised it, with a note that counts the bytes kept.

        A stop by any exception, Ctrl-C too, keeps the bytes: `resume` goes on, `discard` gives up.
        """
        if type(size) is int and 0 <= size <= maxsize:  # mostly without a call
            return self._receive(Exactly(size, self._allowance), deadline)
        return self._receive(exactly(size, self._allowance), deadline)

    def receive_into(self, buffer: WriteableBuffer, deadline: Deadline) -> None:
        """Fill the whole writable `buffer`; never ask the socket for more.

        As `receive_exactly`, but the bytes are handed out as they come: after an error
        `len(error.report.data)` of them are in the buffer, and `resume` fills the rest.
        """
        self._receive(writable(buffer, "buffer"), deadline)

    def receive_until(self, delimiter: bytes, max_bytes: int, deadline: Deadline) -> bytes:
        r"""Return the bytes up to and including `delimiter`, at most `max_bytes` with it.

        May read beyond the delimiter: the surplus stays pending and is served first.
        As `receive_exactly`, and:

        Raises:
            LimitExceeded: no delimiter within `max_bytes`. Only `discard` helps then.
        """
        return self._receive(until(delimiter, max_bytes, self._allowance), deadline)

    def receive_some(self, max_bytes: int, deadline: Deadline) -> bytes:
        """Return what is there, between 1 and `max_bytes` bytes; b"" only at the end.

        Bounded and raising as `receive_exactly`, without PeerClosed. It has no target to miss, so
        after a timeout the position in the stream is known and the next verb may follow.
        """
        return self._receive(some(max_bytes, self._allowance), deadline)

    def resume(self, deadline: Deadline) -> bytes:
        """Go on with the unfinished operation: same target, kept bytes, the rest of the allowance.

        Returns what the unfinished verb would have returned (b"" for `receive_into`, whose bytes
        are in its buffer), and raises the same.

        Raises:
            Unfinished: nothing is unfinished, or resuming can not help: the limit was exceeded, or
                bytes may have been lost.
        """
        return self._receive(None, deadline)

    def discard(self) -> bytes:
        """Give up the unfinished operation; return the pending bytes, which are handed out by it.

        Afterwards the receiver starts anew at whatever the stream brings next. Waits for nothing.
        """
        mine: list[FrameType] = []
        if self._turn.setdefault("holder", mine) is not mine:
            self._turn.contend(mine, "a BudgetedReceiver")
        try:
            kept = discard(self._inbox)
            self._port.in_doubt = False
            return kept
        finally:
            self._turn.clear()

    def _receive(self, wanted: Target | memoryview | None, deadline: Deadline) -> bytes:
        """Run one operation: a new target, a buffer to fill, or (None) the unfinished one."""
        if type(deadline) is not Deadline:
            deadline = as_deadline(deadline)
        if "asyncio.events" in modules:
            refuse_on_loop_thread("BudgetedReceiver", "AsyncBudgetedReceiver")
        mine: list[FrameType] = []
        if self._turn.setdefault("holder", mine) is not mine:
            self._turn.contend(mine, "a BudgetedReceiver")
        try:
            inbox, rules, port = self._inbox, self._rules, self._port
            target = begin(inbox, wanted, self._allowance, in_doubt=port.in_doubt)
            if target.requested == 0:
                return nothing(inbox, target)
            at, clock, stop = deadline._at, deadline._now, deadline._stop
            try:
                now, first = clock(), None
                # A first read whose answer is there already needs no plan: the same rule judges it.
                if (
                    rules.min_rate is None
                    and judge(target.ask, inbox.eof, now >= at, stop) is None
                    and port.at_once(target)
                ):
                    then, arrived = clock(), target.look()
                    if then < now:
                        not_backwards(now, then)
                    if judge(target.ask, not arrived, then >= at, stop) is COMPLETE:
                        return settle_at_once(target, inbox, then - now, arrived)
                    first = (then, arrived)
                mine.append(_getframe())  # from here on it may wait
                plan = receiving(target, inbox, rules, at, now, first, stop)
                report = drive(plan, port, deadline, first[0] if first else now)
            except BaseException as error:
                inbox.notice_end()
                target.look()
                error.add_note(f"{target}: {target.kept(len(inbox))}")
                raise
            return conclude(report, target, inbox, rules, deadline)
        finally:
            try:
                self._port.give_back()
            finally:
                # The frame in it holds it: a cycle, if it were left.
                if mine:
                    mine.clear()
                self._turn.clear()
