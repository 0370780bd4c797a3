"""`DeadlineSocket`: a socket for other people's clients, all of whose calls obey one deadline.

Rules: those of the calls (bounded_calls.py). Beside them:
- A plain socket is taken over. A TLS socket stays the object that it is: its session can not move.
- A handshake is bounded like any call. A TLS record that went out in part is followed by its rest
  or by nothing.

What must not live here: certificates, and which context is right.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from typing import TYPE_CHECKING, Any, Self, TypeVar

from timebounds._checks import shown
from timebounds.blocking.bounded_calls import BoundedCalls, as_bound
from timebounds.blocking.deadline_file import make
from timebounds.blocking.sending_port import RECORD
from timebounds.blocking.socket_port import stream, tls_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from timebounds.blocking.bounded_calls import Bound
    from timebounds.bounds.deadline import Deadline

__all__ = ["DeadlineSocket", "bounded_tls"]

ContextT = TypeVar("ContextT", bound=ssl.SSLContext)

_BLOCK = 65_536


class DeadlineSocket(BoundedCalls):
    """A connected socket whose calls obey one deadline, for clients that know only timeouts.

    sock = DeadlineSocket(socket.create_connection(address), Deadline.after(0.5))

    It takes over `sock`, which is closed to its old user; a TLS socket is changed in place. With
    `deadline=None` the `bounding` blocks around each call hold, so pooled connections obey the
    deadline of each request. `settimeout` limits one call, as ever. For a thread without a running
    event loop.

    Args:
        sock: a connected stream socket, plain or TLS.
        deadline: a Deadline; a function that returns one, or None, at each call; or None.

    Raises (each call):
        DeadlineExceeded: the deadline came first; it is a TimeoutError.
        StopRequested: its stop was requested.
        TimeoutError: the timeout that was set came first.
    """

    def __new__(  # noqa: PYI034  (a TLS socket stays the object that it is)
        cls,
        sock: socket.socket,
        deadline: Deadline | Callable[[], Bound] | None = None,
    ) -> DeadlineSocket:
        """Check the arguments; a TLS socket is bounded as it is."""
        stream(sock, "recv", "socket")
        as_bound(deadline)
        if not isinstance(sock, socket.socket):
            msg = f"sock must be a socket.socket, not {type(sock).__name__}"
            raise TypeError(msg)
        tls: Any = sock
        if tls_of(sock) is None:
            return super().__new__(cls)
        return adopt(tls, deadline)

    def __init__(
        self,
        sock: socket.socket,
        deadline: Deadline | Callable[[], Bound] | None = None,
    ) -> None:
        if sock is self:
            return  # a TLS socket, adopted already
        own = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._begin(deadline, own)

    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Return a file over this socket, which loses no byte when a limit strikes.

        It can be read again afterwards, and goes on where it was. As `socket.makefile`.
        """
        return make(self, mode, buffering, encoding=encoding, errors=errors, newline=newline)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """Send a file, to its end or `count` bytes; return how many."""
        if count is not None and (type(count) is not int or count <= 0):
            msg = f"count must be a positive int, or None for all, not {count!r}"
            raise ValueError(msg)
        if self._own == 0:
            msg = "non-blocking sockets are not supported"
            raise ValueError(msg)
        if offset:
            file.seek(offset)
        sent = 0
        while data := file.read(_BLOCK if count is None else min(_BLOCK, count - sent)):
            self.sendall(data)
            sent += len(data)
        if hasattr(file, "seek"):
            file.seek(offset + sent)
        return sent

    def dup(self) -> DeadlineSocket:
        """Return another socket on the same connection, under the same deadline."""
        twin = socket.socket(self.family, self.type, self.proto, fileno=os.dup(self.fileno()))
        twin.settimeout(self.gettimeout())
        return DeadlineSocket(twin, self._bound)

    def wrap_tls(
        self,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        server_side: bool = False,
    ) -> DeadlineSocket:
        """Return a TLS socket on this connection, under the same deadline, its handshake too.

        It takes this one over, which is closed to its users; where the handshake fails, the
        connection is closed.
        """
        return wrap(self, context, server_hostname=server_hostname, server_side=server_side)


# The stubs narrow what TLS sockets take: only the names of arguments and datagrams differ.
class DeadlineTlsSocket(DeadlineSocket, ssl.SSLSocket):  # type: ignore[misc] # pyright: ignore[reportIncompatibleMethodOverride]
    """A `DeadlineSocket` over TLS. Made by `DeadlineSocket`, `wrap_tls` or `bounded_tls`."""

    # It has none: its descriptor is non-blocking.
    _flags: int = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make the bare object: ssl does the rest."""
        return ssl.SSLSocket.__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Called by `DeadlineSocket(tls_sock)`, which has done all there is to do, or by mistake.
        if not args or args[0] is not self:
            super(DeadlineSocket, self).__init__(*args, **kwargs)

    def _blocked(self, error: OSError) -> int:
        if isinstance(error, ssl.SSLWantReadError):
            return select.POLLIN
        if isinstance(error, ssl.SSLWantWriteError):
            return select.POLLOUT
        return super()._blocked(error)

    def _send_some(self, data: ReadableBuffer, flags: int) -> int:
        if self._own == 0:
            # Who does not wait has to send the same again by himself.
            return super()._send_some(data, flags)
        with memoryview(data) as view, view.cast("B")[:RECORD] as record:
            try:
                sent = super()._send_some(record, flags)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._half = True
                raise
        self._half = False
        return sent

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002
        """Shake hands within both limits."""
        own = self._own
        if block and own == 0:
            self._own = None
        try:
            self._do("TLS handshake", select.POLLIN, super().do_handshake)
        finally:
            self._own = own

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002
        """Receive at most `len` bytes."""
        read: Any = super().read  # pyright: ignore[reportDeprecated]
        return self._do("recv", select.POLLIN, read, len, buffer)

    def write(self, data: ReadableBuffer) -> int:
        """Send some of `data`; return how many bytes."""
        return self.send(data)

    def unwrap(self) -> Any:
        """End TLS within both limits, and return what is below it: this socket, plain."""
        return self._do("TLS shutdown", select.POLLIN, super().unwrap)


def adopt(
    sock: ssl.SSLSocket, deadline: Deadline | Callable[[], Bound] | None
) -> DeadlineTlsSocket:
    """Bound the calls of a TLS socket; it stays the same object."""
    own = sock.gettimeout()
    if not isinstance(sock, DeadlineTlsSocket):
        if type(sock) is not ssl.SSLSocket:
            name = type(sock).__name__
            msg = f"sock must be an ssl.SSLSocket and no subclass: {name} has calls of its own"
            raise TypeError(msg)
        # Its session can not move to another object; nothing is added to the layout.
        sock.__class__ = DeadlineTlsSocket
    assert isinstance(sock, DeadlineTlsSocket)
    sock._begin(deadline, own)
    return sock


def wrap(
    sock: DeadlineSocket,
    context: ssl.SSLContext,
    *,
    server_hostname: str | None,
    server_side: bool,
) -> DeadlineTlsSocket:
    """Make a TLS socket of a plain one, under its deadline; close it where that fails."""
    bound = sock._bound
    tls = context.wrap_socket(
        sock,
        server_hostname=server_hostname,
        server_side=server_side,
        do_handshake_on_connect=False,
    )
    try:
        adopted = adopt(tls, bound)
        adopted.do_handshake(block=True)
    except BaseException:
        tls.close()
        raise
    return adopted


def bounded_tls(context: ContextT) -> ContextT:
    """Let the sockets of `context` obey the `bounding` blocks around their calls; return it.

    For clients that make their TLS sockets themselves and take a context. The handshake is
    bounded too.
    """
    if not isinstance(context, ssl.SSLContext):
        msg = f"context must be an ssl.SSLContext, not {shown(context)}"
        raise TypeError(msg)
    context.sslsocket_class = DeadlineTlsSocket
    return context
