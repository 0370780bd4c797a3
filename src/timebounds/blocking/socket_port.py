"""Every strategy for waiting on a socket; nothing else in the package knows sockets' modes.

Rules (R9, R13, R15, R17, R18 of the contracts):
- The socket is borrowed: never closed, and its timeout afterwards is what it was before.
- *Plain stream sockets* are switched at no moment. They are read without blocking first, and
  polled only when that would block: one system call for a read with data ready. A blocking one
  is read with MSG_DONTWAIT. One with a timeout of its own would be polled by Python first, so it
  is read through its descriptor, which then is non-blocking already.
- The bytes go from the kernel to the store by a chain that is all C: a signal handler runs only
  between bytecodes, so what it raises finds the bytes in the kernel or in the store.
- TLS sockets, and objects that only look like sockets, must be switched: `switched_port.py`.

What must not live here: deadlines, retries, outcomes.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import TYPE_CHECKING, Any, final

from timebounds.blocking.switched_port import TimeoutPort, TlsPort
from timebounds.blocking.waiting import ANSWER, SILENCE, SocketLike, SocketPort, Wait
from timebounds.policies.inbox import Into, Target

if TYPE_CHECKING:
    from types import ModuleType

    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.plan import Reply

_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)
FLAGS = (_DONTWAIT,)


def port_for(sock: SocketLike | socket.socket) -> SocketPort:
    """Return the port for a socket, or say why it can not be received from.

    Raises:
        TypeError: a datagram socket, or no socket-like object at all.
        ValueError: the socket is closed.
    """
    stream(sock, "recv", "receiver")
    if isinstance(sock, socket.socket):
        ssl = tls_of(sock)
        if ssl is not None:
            return TlsPort(sock, ssl)
        cls = type(sock)
        in_c = cls.recv is socket.socket.recv and cls.recv_into is socket.socket.recv_into
        if in_c and _DONTWAIT:
            return PlainPort(sock)
    return TimeoutPort(sock)


def stream(sock: object, verb: str, door: str) -> None:
    """Say why this is no stream socket with that verb, if it is none."""
    needed = (verb, "settimeout", "gettimeout")
    missing = [name for name in needed if not callable(getattr(sock, name, None))]
    if missing:
        msg = (
            f"sock must be a connected stream socket, or have {verb}, settimeout and gettimeout: "
            f"{type(sock).__name__} has no {' and no '.join(missing)}"
        )
        raise TypeError(msg)
    kind = getattr(sock, "type", socket.SOCK_STREAM)
    if kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        msg = (
            f"sock must be a stream socket, not {kind!r}: a datagram that is cut short is lost, "
            f"so a deadline over many of them needs another kind of {door}"
        )
        raise TypeError(msg)
    if isinstance(sock, socket.socket) and sock.fileno() < 0:
        msg = f"sock is closed: make the {door} while the connection is open"
        raise ValueError(msg)


def tls_of(sock: object) -> ModuleType | None:
    """Return the ssl module if this is one of its sockets."""
    # It is loaded wherever a TLS socket exists, and costs much where none does.
    ssl = sys.modules.get("ssl")
    return ssl if ssl is not None and isinstance(sock, ssl.SSLSocket) else None


@final
class PlainPort:
    """A stream socket whose recv is the system's own: read first, never switched."""

    __slots__ = ("_sock", "in_doubt")

    in_doubt: bool

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.in_doubt = False

    def at_once(self, target: Target) -> bool:
        """Read without waiting; False when there is nothing yet."""
        sock = self._sock
        stored: list[Any] = target.counts if type(target) is Into else target.chunks
        before = len(stored)
        try:
            if sock.gettimeout():
                _read_descriptor(target, sock)
            # One chain of C calls from the kernel to the store.
            elif type(target) is Into:
                stored.extend(map(sock.recv_into, (target.view[-target.ask :],), (0,), FLAGS))
            else:
                stored.extend(map(sock.recv, (target.ask,), FLAGS))
        except BlockingIOError:
            return False
        if len(stored) == before:
            # `map` takes a StopIteration for its end, and nothing stored would look like EOF.
            msg = "a signal handler raised StopIteration during a read"
            raise RuntimeError(msg)
        return True

    def perform(self, target: Target, deadline: Deadline) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        wait: Wait | None = None
        while not self.at_once(target):
            # Nothing yet, or another reader was faster, or a wake-up for nothing.
            wait = wait or Wait(target, deadline)
            if not wait.ready(self._sock.fileno(), select.POLLIN):
                return SILENCE
        return ANSWER

    def give_back(self) -> None:
        """Nothing was changed."""


def _read_flagged(target: Target, sock: socket.socket) -> None:
    """Read without blocking, by one chain of C calls from the kernel to the store."""
    if type(target) is Into:
        rest = target.view[-target.ask :]
        target.counts.extend(map(sock.recv_into, (rest,), (0,), FLAGS))
    else:
        target.chunks.extend(map(sock.recv, (target.ask,), FLAGS))


def _read_descriptor(target: Target, sock: socket.socket) -> None:
    """Read from a socket with a timeout of its own, which Python would poll first."""
    fd = sock.fileno()
    if os.get_blocking(fd):
        # Somebody who shares the descriptor made it blocking under the socket's own timeout.
        with socket.socket(sock.family, sock.type, sock.proto, os.dup(fd)) as twin:
            twin.settimeout(None)
            _read_flagged(target, twin)
    elif type(target) is Into:
        target.counts.extend(map(os.readv, (fd,), ([target.view[-target.ask :]],)))
    else:
        target.chunks.extend(map(os.read, (fd,), (target.ask,)))
