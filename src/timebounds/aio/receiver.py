"""`AsyncBudgetedReceiver`: as `BudgetedReceiver`, for tasks.

The rules are in `policies/receiving.py`, the ways of waiting in `ports.py`.
"""

from __future__ import annotations

from sys import maxsize
from typing import TYPE_CHECKING, final

from timebounds._checks import writable
from timebounds.aio.ports import port_for
from timebounds.bounds.alarm import not_backwards
from timebounds.bounds.allowance import Overrun, RetryAllowance
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.errors import Busy
from timebounds.policies.evidence import ReceiveOutcome, ReceiveReport
from timebounds.policies.inbox import Exactly, Inbox, Target
from timebounds.policies.plan import adrive
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

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from timebounds._checks import Seconds
    from timebounds.aio.ports import Source
    from timebounds.bounds.allowance import Allowance
    from timebounds.policies.receiving import MinRate

__all__ = ["AsyncBudgetedReceiver"]

_COMPLETE = ReceiveOutcome.COMPLETE


@final
class AsyncBudgetedReceiver:
    """Receives bytes in a task from a stream that stays the caller's, under one deadline each.

    The same verbs, rules and reports as `BudgetedReceiver`. A cancel in the middle of a receive
    loses no byte: what had come is `pending`, and the operation `Unfinished` until `resume` or
    `discard`. For one task at a time. With data there already a verb makes no turn of the loop.

    Args:
        source: an `asyncio.StreamReader`, or anything with such a `read`; or a connected,
            non-blocking stream socket. It is never closed, and nobody else may read from it.
        idle_timeout, allowance, min_rate, overrun: as for `BudgetedReceiver`.
    """

    __slots__ = ("_allowance", "_inbox", "_inside", "_port", "_rules")

    def __init__(
        self,
        source: Source,
        *,
        idle_timeout: Seconds | None = None,
        allowance: Allowance = RetryAllowance.none(),  # noqa: B008  (frozen)
        min_rate: MinRate | None = None,
        overrun: Overrun = Overrun.CAP,
    ) -> None:
        self._rules = as_rules(idle_timeout, allowance, min_rate, overrun)
        self._allowance = allowance
        self._port = port_for(source)
        self._inbox = Inbox()
        self._inside = False

    @property
    def report(self) -> ReceiveReport | None:
        """What the last operation reported; None before the first and while one is under way."""
        return self._inbox.report

    @property
    def pending(self) -> bytes:
        """A copy of the bytes that were taken from the stream and not handed out."""
        return self._inbox.pending

    async def receive_exactly(self, size: int, deadline: Deadline) -> bytes:
        """Return exactly `size` bytes; never ask the stream for more.

        Bounds the whole operation, backoff included, by `deadline`. Raises as the blocking one;
        a cancel passes through, with the bytes kept.
        """
        if type(size) is int and 0 <= size <= maxsize:  # mostly without a call
            return await self._receive(Exactly(size, self._allowance), deadline)
        return await self._receive(exactly(size, self._allowance), deadline)

    async def receive_into(self, buffer: WriteableBuffer, deadline: Deadline) -> None:
        """Fill the whole writable `buffer`; the bytes are handed out as they come."""
        await self._receive(writable(buffer, "buffer"), deadline)

    async def receive_until(self, delimiter: bytes, max_bytes: int, deadline: Deadline) -> bytes:
        """Return the bytes up to and including `delimiter`, at most `max_bytes` with it."""
        return await self._receive(until(delimiter, max_bytes, self._allowance), deadline)

    async def receive_some(self, max_bytes: int, deadline: Deadline) -> bytes:
        """Return what is there, between 1 and `max_bytes` bytes; b"" only at the end."""
        return await self._receive(some(max_bytes, self._allowance), deadline)

    async def resume(self, deadline: Deadline) -> bytes:
        """Go on with the unfinished operation: same target, kept bytes, the rest of the allowance.

        Raises:
            Unfinished: nothing is unfinished, or resuming can not help.
        """
        return await self._receive(None, deadline)

    def discard(self) -> bytes:
        """Give up the unfinished operation; return the pending bytes, which are handed out by it.

        Waits for nothing.
        """
        self._refuse_a_second()
        return discard(self._inbox)

    def _refuse_a_second(self) -> None:
        if self._inside:
            msg = "an AsyncBudgetedReceiver is in use by another task: one user at a time"
            raise Busy(msg)

    async def _receive(self, wanted: Target | memoryview | None, deadline: Deadline) -> bytes:
        """Run one operation: a new target, a buffer to fill, or (None) the unfinished one."""
        if type(deadline) is not Deadline:
            as_deadline(deadline)
        if self._inside:
            self._refuse_a_second()
        self._inside = True
        inbox = self._inbox
        try:
            target = begin(inbox, wanted, self._allowance, in_doubt=False)
            if target.requested == 0:
                return nothing(inbox, target)
            try:
                now = deadline._now()
                # A first read whose answer is there already needs no plan: the same rule judges it.
                first = self._at_once(target, deadline, now)
                if isinstance(first, bytes):
                    return first
                report = await self._run(target, deadline, now, first)
            except BaseException as error:
                inbox.notice_end()
                target.look()
                error.add_note(f"{target}: {target.kept(len(inbox))}")
                raise
            return conclude(report, target, inbox, self._rules, deadline)
        finally:
            self._port.give_back()
            self._inside = False

    def _at_once(
        self, target: Target, deadline: Deadline, now: int
    ) -> bytes | tuple[int, int] | None:
        """Return the value if it is there already; else when a first read had ended, and its size.

        None where there was no first read.
        """
        inbox, stop, at = self._inbox, deadline._stop, deadline._at
        if self._rules.min_rate is not None or judge(target.ask, inbox.eof, now >= at, stop):
            return None
        if not self._port.at_once(target):
            return None
        then, arrived = deadline._now(), target.look()
        if then < now:
            not_backwards(now, then)
        if judge(target.ask, not arrived, then >= at, stop) is _COMPLETE:
            return settle_at_once(target, inbox, then - now, arrived)
        return then, arrived

    async def _run(
        self, target: Target, deadline: Deadline, now: int, first: tuple[int, int] | None
    ) -> ReceiveReport:
        at, stop = deadline._at, deadline._stop
        plan = receiving(target, self._inbox, self._rules, at, now, first, stop)
        return await adrive(plan, self._port, deadline, first[0] if first else now)
