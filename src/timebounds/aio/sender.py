"""`AsyncBudgetedSender`: as `BudgetedSender`, for tasks.

The rules are in `policies/sending.py`, the ways of waiting in `sending_ports.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from timebounds._checks import readable
from timebounds.aio.sending_ports import sending_port_for
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.errors import Busy
from timebounds.policies.plan import adrive
from timebounds.policies.sending import Outbox, SendReport, at_once, conclude, sending
from timebounds.policies.wants import as_idle

if TYPE_CHECKING:
    import socket

    from _typeshed import ReadableBuffer

    from timebounds._checks import Seconds
    from timebounds.aio.sending_ports import WriterLike
    from timebounds.policies.sending import Parcel

__all__ = ["AsyncBudgetedSender"]


@final
class AsyncBudgetedSender:
    """Sends bytes in a task to a stream that stays the caller's, under one deadline each.

    The same verbs, rules and reports as `BudgetedSender`. A cancel in the middle of a send forgets
    nothing: `report` is None, `resume` sends the rest. For one task at a time. Beside it nobody may
    write to the stream.

    Args:
        target: an `asyncio.StreamWriter`, or anything with such a `write`, `drain` and
            `transport`; or a connected, non-blocking stream socket. It is never closed.
        idle_timeout: seconds in which the peer takes nothing; None for no such limit.
    """

    __slots__ = ("_idle_ns", "_inside", "_outbox", "_port")

    def __init__(
        self, target: WriterLike | socket.socket, *, idle_timeout: Seconds | None = None
    ) -> None:
        self._idle_ns = as_idle(idle_timeout)
        self._port = sending_port_for(target)
        self._outbox = Outbox()
        self._inside = False

    @property
    def report(self) -> SendReport | None:
        """What the last send reported; None before the first and while one is under way."""
        return self._outbox.report

    @property
    def unsent(self) -> bytes:
        """A copy of what was not accepted of the last message."""
        return self._outbox.unsent

    async def send_all(self, data: ReadableBuffer, deadline: Deadline) -> None:
        """Send all of `data`; return when it was accepted: by the kernel, or by the TLS layer.

        Bounds the whole send by `deadline`. Raises as the blocking one; a cancel passes through.
        """
        await self._send(readable(data, "data"), deadline)

    async def resume(self, deadline: Deadline) -> None:
        """Send the rest of the message that was not sent whole, and nothing else."""
        await self._send(None, deadline)

    def discard(self) -> bytes:
        """Give up the message that was not sent whole; return what was not accepted of it.

        Raises:
            Unfinished: a part is with the transport still, and can not be taken back.
        """
        self._refuse_a_second()
        return self._outbox.discard(torn=False)

    def _refuse_a_second(self) -> None:
        if self._inside:
            msg = "an AsyncBudgetedSender is in use by another task: one user at a time"
            raise Busy(msg)

    async def _send(self, wanted: memoryview | None, deadline: Deadline) -> None:
        if type(deadline) is not Deadline:
            as_deadline(deadline)
        self._refuse_a_second()
        self._inside = True
        outbox = self._outbox
        try:
            parcel = outbox.begin(wanted, torn=False)
            report = await self._run(parcel, deadline)
            outbox.settle(parcel, report)
            conclude(report, parcel, self._idle_ns, deadline)
        finally:
            self._port.give_back()
            self._inside = False

    async def _run(self, parcel: Parcel, deadline: Deadline) -> SendReport:
        port, at, stop = self._port, deadline._at, deadline._stop
        try:
            # A first send that is taken whole at once needs no plan.
            first = at_once(parcel, deadline, port.at_once)
            if isinstance(first, SendReport):
                return first
            now, then = first
            plan = sending(parcel, self._idle_ns, at, now, stop, then)
            return await adrive(plan, port, deadline, now if then is None else then)
        except BaseException as error:
            parcel.note(error)
            raise
        finally:
            parcel.keep()
