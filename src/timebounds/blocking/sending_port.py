"""How a socket is sent to: the ways of waiting of `socket_port.py`, in the other direction.

Rules (S1, S2, R9, R13, R18 of the contracts):
- *Plain stream sockets* are switched at no moment: sent to without blocking first, and polled only
  when that would block. What was accepted is counted by a chain that is all C.
- *TLS sockets* are sent to in slices of one record. A slice that did not go out at once is held by
  the TLS layer, half sent perhaps: it is in doubt, and the same slice is what comes next.
- *Any other object* with send, settimeout and gettimeout is given each limit by settimeout.

What must not live here: deadlines, outcomes.
"""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING, Any, Protocol, final

from timebounds.blocking.socket_port import FLAGS, stream, tls_of
from timebounds.blocking.switched_port import SwitchedByTimeout, SwitchedTls
from timebounds.blocking.waiting import ANSWER, SILENCE, Wait

if TYPE_CHECKING:
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.plan import Reply
    from timebounds.policies.sending import Parcel

__all__ = ["SendingLike"]

# What one TLS record holds.
RECORD = 16_384


class SendingLike(Protocol):
    """What a sender needs of an object that is no real socket."""

    def send(self, data: Any, /) -> int:
        """Take some of `data` and return how much; raise TimeoutError when none was taken."""
        ...

    def settimeout(self, value: float | None, /) -> None:
        """Set the limit of one send in seconds."""

    def gettimeout(self) -> float | None:
        """Return the limit of one send."""
        ...


class SendPort(Protocol):
    """A port over one socket."""

    in_doubt: bool
    """Whether an exception may have struck inside send, which nobody can repair."""

    def at_once(self, parcel: Parcel, /) -> bool:
        """Send without waiting, where this port can; False when nothing was taken."""
        ...

    def perform(self, parcel: Parcel, deadline: Deadline, /) -> Reply:
        """Send once, waiting at most the parcel's limit on the deadline's clock."""
        ...

    def give_back(self) -> None:
        """Leave the socket as it was lent, whatever happened."""


def sending_port_for(sock: SendingLike | socket.socket) -> SendPort:
    """Return the port for a socket, or say why nothing can be sent to it.

    Raises:
        TypeError: a datagram socket, or no socket-like object at all.
        ValueError: the socket is closed.
    """
    stream(sock, "send", "sender")
    if isinstance(sock, socket.socket):
        ssl = tls_of(sock)
        if ssl is not None:
            return TlsSendPort(sock, ssl)
        if type(sock).send is socket.socket.send and FLAGS[0]:
            return PlainSendPort(sock)
    return TimeoutSendPort(sock)


@final
class PlainSendPort:
    """A stream socket whose send is the system's own: sent to first, never switched."""

    __slots__ = ("_sock", "in_doubt")

    in_doubt: bool

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.in_doubt = False

    def at_once(self, parcel: Parcel) -> bool:
        """Send without waiting; False when the kernel's buffer is full."""
        sock, counts = self._sock, parcel.counts
        before = len(counts)
        try:
            with parcel.rest() as rest:
                if sock.gettimeout():
                    _write_descriptor(counts, rest, sock)
                else:
                    # One chain of C calls from the kernel's answer to the store.
                    counts.extend(map(sock.send, (rest,), FLAGS))
        except BlockingIOError:
            return False
        if len(counts) == before:
            # `map` takes a StopIteration for its end.
            msg = "a signal handler raised StopIteration during a send"
            raise RuntimeError(msg)
        return True

    def perform(self, parcel: Parcel, deadline: Deadline) -> Reply:
        """Send once, waiting at most the parcel's limit on the deadline's clock."""
        wait: Wait | None = None
        while not self.at_once(parcel):
            wait = wait or Wait(parcel, deadline)
            if not wait.ready(self._sock.fileno(), select.POLLOUT):
                return SILENCE
        return ANSWER

    def give_back(self) -> None:
        """Nothing was changed."""


def _write_descriptor(counts: list[int], rest: memoryview, sock: socket.socket) -> None:
    """Send to a socket with a timeout of its own, which Python would poll first."""
    fd = sock.fileno()
    if os.get_blocking(fd):
        # Somebody who shares the descriptor made it blocking under the socket's own timeout.
        with socket.socket(sock.family, sock.type, sock.proto, os.dup(fd)) as twin:
            twin.settimeout(None)
            counts.extend(map(twin.send, (rest,), FLAGS))
    else:
        counts.extend(map(os.write, (fd,), (rest,)))


@final
class TlsSendPort(SwitchedTls["Parcel"]):
    """A TLS socket to send to, a record at a time."""

    __slots__ = ()

    def _once(self, parcel: Parcel, /) -> int:
        with parcel.rest() as rest, rest[:RECORD] as record:
            # Until it is answered for: after a refusal the TLS layer holds it, half sent perhaps.
            parcel.in_doubt = len(record)
            sent: int = self._sock.send(record)
        parcel.counts.append(sent)
        parcel.in_doubt = 0
        return sent


@final
class TimeoutSendPort(SwitchedByTimeout["Parcel"]):
    """Any object with send and settimeout."""

    __slots__ = ()

    def _once(self, parcel: Parcel, /) -> int:
        with parcel.rest() as rest:
            sent: int = self._sock.send(rest)
        if type(sent) is not int or not 0 <= sent <= parcel.ask:
            msg = f"{type(self._sock).__name__}.send took {sent!r} of {parcel.ask} bytes"
            raise RuntimeError(msg)
        parcel.counts.append(sent)
        return sent
