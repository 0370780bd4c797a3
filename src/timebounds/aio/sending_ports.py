"""How a task sends: through a stream writer, and to a raw socket through its loop.

Rules (S1, S2, R4, R9, R14 of the contracts):
- What the kernel takes at once is sent without a turn of the loop.
- A stream writer takes all it is given, so it is given a slice at a time, and the next one when its
  transport holds nothing any more. What the transport holds when the time is over goes out later,
  or never: it is in doubt, and is not handed over a second time.
- Bytes are counted in the step that hands them over: no await lies between.

What must not live here: deadlines, outcomes.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Protocol, final

from timebounds._checks import running_loop
from timebounds.aio.ports import FLAGS, Raw, check_raw, fair, settle, wait
from timebounds.policies.plan import Reply

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.sending import Parcel

__all__ = ["WriterLike"]

_ANSWER = Reply.ANSWER
_SILENCE = Reply.SILENCE
# Small enough that little is in doubt, large enough for throughput.
_SLICE = 65_536


class WriterLike(Protocol):
    """What a sender needs of a stream writer; `asyncio.StreamWriter` has it."""

    @property
    def transport(self) -> Any:
        """The transport that holds what was not sent yet."""
        ...

    def write(self, data: Any, /) -> None:
        """Hand data over."""

    def drain(self) -> Coroutine[Any, Any, None]:
        """Wait until the transport holds little."""
        ...


class TaskSendPort(Protocol):
    """A port over one stream, for tasks."""

    def at_once(self, parcel: Parcel, /) -> bool:
        """Send without waiting; False when nothing was taken."""
        ...

    async def perform(self, parcel: Parcel, deadline: Deadline, /) -> Reply:
        """Send once, waiting at most the parcel's limit on the deadline's clock."""
        ...

    def give_back(self) -> None:
        """Leave the stream as it was lent."""


def sending_port_for(target: object) -> TaskSendPort:
    """Return the port for a writer or a non-blocking socket, or say why there is none.

    Raises:
        TypeError: neither of them, a datagram socket, or a TLS socket.
        ValueError: a closed or blocking socket.
    """
    if isinstance(target, socket.socket):
        check_raw(target, "target", "send", "writer", "sender")
        return RawSendPort(target)
    if callable(getattr(target, "drain", None)) and hasattr(target, "transport"):
        return WriterPort(target)
    blocking = ": a blocking one belongs to BudgetedSender" * hasattr(target, "send")
    name = type(target).__name__
    msg = f"target must be an asyncio.StreamWriter or a non-blocking socket, not {name}{blocking}"
    raise TypeError(msg)


@final
class WriterPort:
    """A stream writer, given a slice at a time."""

    __slots__ = ("_limits", "_streak", "_writer")

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._streak = 0
        self._limits: tuple[int, int] | None = None

    def at_once(self, parcel: Parcel) -> bool:
        """Hand over a slice if the transport holds nothing; False when it holds something."""
        if self._writer.transport.is_closing():
            msg = "the connection was lost or is being closed: its transport takes nothing more"
            raise ConnectionResetError(msg)
        self._look(parcel)
        if parcel.in_doubt:
            return False
        with parcel.rest() as rest, rest[:_SLICE] as part:
            parcel.in_doubt = len(part)
            # A copy: the transport keeps what it can not send at once.
            self._writer.write(bytes(part))
        self._look(parcel)
        return True

    def _look(self, parcel: Parcel) -> None:
        """Count what has left the transport since."""
        transport = self._writer.transport
        # One that has lost its connection has thrown away what it held.
        if parcel.in_doubt and not transport.is_closing():
            held = min(transport.get_write_buffer_size(), parcel.in_doubt)
            gone, parcel.in_doubt = parcel.in_doubt - held, held
            parcel.counts.append(gone)

    async def perform(self, parcel: Parcel, deadline: Deadline) -> Reply:
        """Send once, waiting at most the parcel's limit on the deadline's clock."""
        if self.at_once(parcel):
            if not parcel.in_doubt:
                self._streak = await fair(self._streak)
            return _ANSWER
        before = parcel.accepted
        transport = self._writer.transport
        if self._limits is None:
            self._limits = transport.get_write_buffer_limits()
            transport.set_write_buffer_limits(high=0)
        try:
            await self._drained(parcel, deadline)
        finally:
            self._look(parcel)
        return _ANSWER if parcel.accepted > before else _SILENCE

    async def _drained(self, parcel: Parcel, deadline: Deadline) -> None:
        """Wait until the transport holds nothing, stepping the writer's own wait by hand."""
        draining = self._writer.drain()
        step: Generator[Any, None, None] = draining.__await__()
        try:
            while True:
                try:
                    waits_for = next(step)
                except StopIteration:
                    return
                if waits_for is None:
                    # It only wants the loop to make a turn.
                    waits_for = running_loop().create_future()
                    running_loop().call_soon(settle, waits_for)
                # As a task does it: who takes the future takes this mark, too.
                waits_for._asyncio_future_blocking = False
                if not await wait(waits_for, parcel, deadline):
                    return
        finally:
            step.close()

    def give_back(self) -> None:
        """Give the transport its limits back."""
        if self._limits is not None:
            low, high = self._limits
            self._limits = None
            self._writer.transport.set_write_buffer_limits(high=high, low=low)


@final
class RawSendPort(Raw["Parcel"]):
    """A non-blocking stream socket to send to."""

    __slots__ = ()

    _watch = ("add_writer", "remove_writer", "sender")

    def at_once(self, parcel: Parcel, /) -> bool:
        """Send without waiting; False when nothing was taken."""
        try:
            with parcel.rest() as rest:
                # One chain of C calls from the kernel's answer to the store.
                parcel.counts.extend(map(self._sock.send, (rest,), FLAGS))
        except BlockingIOError:
            return False
        return True
