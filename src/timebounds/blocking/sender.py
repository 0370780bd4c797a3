"""`BudgetedSender`: sends to a borrowed socket under one deadline for each whole message.

The rules are in `policies/sending.py`; the ways of waiting in `sending_port.py`.
"""

from __future__ import annotations

from sys import _getframe
from typing import TYPE_CHECKING, final

from timebounds._checks import readable, refuse_on_loop_thread
from timebounds.blocking.sending_port import sending_port_for
from timebounds.blocking.turn import Turn
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.policies.plan import drive
from timebounds.policies.sending import Outbox, SendReport, at_once, conclude, sending
from timebounds.policies.wants import as_idle

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from _typeshed import ReadableBuffer

    from timebounds._checks import Seconds
    from timebounds.blocking.sending_port import SendingLike
    from timebounds.policies.sending import Parcel

__all__ = ["BudgetedSender"]


@final
class BudgetedSender:
    """Sends bytes to a borrowed stream socket under one deadline for each whole message.

    Nothing that was accepted is sent twice: after an error `report` says how many bytes the kernel
    has taken, `resume` sends the rest and nothing else, and until then no other message is let in
    between.

    The socket is never closed and afterwards has the timeout it had before. Plain sockets are not
    switched at all, so another thread may receive meanwhile; a TLS socket serves one thread in
    both directions. For one thread at a time, and for no thread with a running event loop.

    Args:
        sock: a connected stream socket, plain or TLS, or an object with send, settimeout and
            gettimeout.
        idle_timeout: seconds in which the peer takes nothing; None for no such limit.
    """

    __slots__ = ("_idle_ns", "_outbox", "_port", "_turn")

    def __init__(
        self, sock: SendingLike | socket.socket, *, idle_timeout: Seconds | None = None
    ) -> None:
        self._idle_ns = as_idle(idle_timeout)
        self._port = sending_port_for(sock)
        self._outbox = Outbox()
        self._turn = Turn()

    @property
    def report(self) -> SendReport | None:
        """What the last send reported; None before the first and while one is under way."""
        return self._outbox.report

    @property
    def unsent(self) -> bytes:
        """A copy of what was not accepted of the last message."""
        return self._outbox.unsent

    def send_all(self, data: ReadableBuffer, deadline: Deadline) -> None:
        """Send all of `data`; return when the kernel has accepted it.

        Bounds the whole send by `deadline`. Empty data touches neither socket nor clock. Large
        data is not copied; what is left of it after an error is, so the buffer is yours again.

        Raises:
            DeadlineExceeded: the deadline passed, with all bytes accepted or not.
            StopRequested: the deadline's stop signal was requested, and not all was accepted.
            IdleTimeout: the peer took nothing for too long.
            Unfinished, Busy: an earlier message is half sent; another user is inside.
            OSError: as the socket raised it, with a note that counts the bytes accepted.
        """
        self._send(readable(data, "data"), deadline)

    def resume(self, deadline: Deadline) -> None:
        """Send the rest of the message that was not sent whole, and nothing else.

        Raises as `send_all`, and Unfinished when there is none.
        """
        self._send(None, deadline)

    def discard(self) -> bytes:
        """Give up the message that was not sent whole; return what was not accepted of it.

        The peer still waits for that: only a protocol that can cope goes on. Waits for nothing.

        Raises:
            Unfinished: a part is in doubt, so that nothing but its rest may follow.
        """
        mine: list[FrameType] = []
        if self._turn.setdefault("holder", mine) is not mine:
            self._turn.contend(mine, "a BudgetedSender")
        try:
            return self._outbox.discard(torn=self._port.in_doubt)
        finally:
            self._turn.clear()

    def _send(self, wanted: memoryview | None, deadline: Deadline) -> None:
        """Send a new message or (None) the rest of the last one."""
        if type(deadline) is not Deadline:
            deadline = as_deadline(deadline)
        refuse_on_loop_thread("BudgetedSender", "AsyncBudgetedSender")
        mine: list[FrameType] = []
        if self._turn.setdefault("holder", mine) is not mine:
            self._turn.contend(mine, "a BudgetedSender")
        try:
            parcel = self._outbox.begin(wanted, torn=self._port.in_doubt)
            report = self._run(parcel, deadline, mine)
            self._outbox.settle(parcel, report)
            conclude(report, parcel, self._idle_ns, deadline)
        finally:
            try:
                self._port.give_back()
            finally:
                # The frame in it holds it: a cycle, if it were left.
                if mine:
                    mine.clear()
                self._turn.clear()

    def _run(self, parcel: Parcel, deadline: Deadline, mine: list[FrameType]) -> SendReport:
        port, at, stop = self._port, deadline._at, deadline._stop
        try:
            # A first send that is taken whole at once needs no plan: the same rule judges it.
            first = at_once(parcel, deadline, port.at_once)
            if isinstance(first, SendReport):
                return first
            mine.append(_getframe(1))  # from here on it may wait
            now, then = first
            plan = sending(parcel, self._idle_ns, at, now, stop, then)
            return drive(plan, port, deadline, now if then is None else then)
        except BaseException as error:
            parcel.note(error)
            raise
        finally:
            parcel.keep()
