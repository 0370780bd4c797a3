"""`DeadlineSocket`: a socket for other people's clients, all of whose calls obey one deadline.

Rules: those of the calls (bounded_calls.py). Beside them:
- A plain socket is taken over. A TLS socket stays the object that it is: its session can not move.
- A handshake is bounded like any call. A TLS record that went out in part is followed by its rest
  or by nothing.

What must not live here: certificates, and which context is right.
"""

from __future__ import annotations

import io
import os
import select
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from timebounds._checks import shown
from timebounds.blocking.below_tls import BelowTls
from timebounds.blocking.bounded_calls import BoundedCalls
from timebounds.blocking.bounding import as_bound
from timebounds.blocking.deadline_file import DeadlineFile, RawFile, TextFile
from timebounds.blocking.sending_port import RECORD
from timebounds.blocking.socket_port import stream, tls_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from timebounds.blocking.bounding import Bound
    from timebounds.bounds.deadline import Deadline

__all__ = ["DeadlineSocket", "bounded_tls"]

T = TypeVar("T")
ContextT = TypeVar("ContextT", bound=ssl.SSLContext)


class DeadlineSocket(BoundedCalls):
    """A connected socket whose calls obey one deadline, for clients that know only timeouts.

    sock = DeadlineSocket(socket.create_connection(address), Deadline.after(0.5))

    It takes over `sock`, which is closed to its old user; a TLS socket is changed in place. With
    `deadline=None` the `bounding` blocks around each call hold, so pooled connections obey the
    deadline of each request. `settimeout` limits one call, as ever. For threads; on one that runs
    an event loop it blocks that, as its client would have done anyway.

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
        return _file(self, mode, buffering, encoding=encoding, errors=errors, newline=newline)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """Send a file, to its end or `count` bytes; return how many. Always by `send`."""
        over: Any = self
        sent: int = over._sendfile_use_send(file, offset, count)
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


def _file(
    sock: socket.socket,
    mode: str,
    buffering: int | None,
    *,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """Return the file that `socket.makefile` would, over one that loses nothing."""
    if not set(mode) <= {"r", "w", "b"}:
        msg = f"invalid mode {mode!r} (only r, w, b allowed)"
        raise ValueError(msg)
    writing = "w" in mode
    reading = "r" in mode or not writing
    binary = "b" in mode
    size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
    if size == 0 and not binary:
        msg = "unbuffered streams must be binary"
        raise ValueError(msg)
    kind: Any = "r" * reading + "w" * writing
    raw = RawFile(sock, kind)
    # As the standard library counts them: the connection ends with its last user.
    sock._io_refs += 1  # type: ignore[attr-defined]
    if size == 0:
        return raw
    writer = io.BufferedWriter(raw, size) if writing else None
    if not reading:
        buffered: Any = writer
    else:
        buffered = DeadlineFile(raw, kind + "b", size, writer)
    if binary:
        return buffered
    encoding = io.text_encoding(encoding)
    if not reading:
        text: Any = io.TextIOWrapper(buffered, encoding, errors, newline)
    else:
        text = TextFile(buffered, encoding, errors, newline)
    text.mode = mode
    return text


# The stubs narrow what TLS sockets take: only the names of arguments and datagrams differ.
class DeadlineTlsSocket(DeadlineSocket, ssl.SSLSocket, BelowTls):  # type: ignore[misc] # pyright: ignore[reportIncompatibleMethodOverride]
    """A `DeadlineSocket` over TLS. Made by `DeadlineSocket`, `wrap_tls` or `bounded_tls`."""

    # It has none: its descriptor is non-blocking.
    _flags: int = 0
    _sslobj: Any
    # A session that is read and written by two threads at once tells one the other's state.
    _lock: threading.RLock

    def _alone(self, fn: Callable[..., T], *args: Any) -> T:
        """Call what does not wait, and is no concern of another thread until it is over."""
        with self._lock:
            return fn(*args)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make the bare object: ssl does the rest."""
        made = ssl.SSLSocket.__new__(cls, *args, **kwargs)
        made._lock = threading.RLock()
        return made

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
        if self._own == 0 or self._sslobj is None:
            # Who does not wait has to send the same again by himself.
            sent = self._alone(super()._send_some, data, flags)
            self._half = False
            return sent
        # Said first: what a signal handler raises may come at any point.
        before, self._half = self._half, True
        try:
            with memoryview(data) as view, view.cast("B")[:RECORD] as record:
                sent = self._alone(super()._send_some, record, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except (OSError, TypeError, ValueError) as error:
            # A connection that is lost says so again; arguments were wrong before any was sent.
            self._half = before and not isinstance(error, OSError)
            raise
        self._half = False
        return sent

    # By these names TLS sockets take their arguments; what means nothing over TLS, they refuse.

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive at most `buflen` bytes."""
        return super().recv(buflen, flags)

    def recvfrom(self, buflen: int = 1024, flags: int = 0) -> tuple[bytes, Any]:
        """Receive a datagram, before there is TLS."""
        return super().recvfrom(buflen, flags)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send some of `data`, at most one record; return how many bytes."""
        return super().send(data, flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:
        """Send all of `data`; both limits hold for the whole of it."""
        super().sendall(data, flags)

    def sendto(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, data: ReadableBuffer, flags_or_addr: Any, addr: Any = None
    ) -> int:
        """Send a datagram, before there is TLS."""
        return super().sendto(data, flags_or_addr, *(() if addr is None else (addr,)))

    def dup(self) -> NoReturn:
        """Refuse: a session has one socket."""
        msg = f"Can't dup() {type(self).__name__} instances"
        raise NotImplementedError(msg)

    def detach(self) -> int:
        """Give the descriptor away, in the mode that the timeout stands for."""
        if self._own is None and self.fileno() >= 0:
            ssl.SSLSocket.settimeout(self, None)
        return super().detach()

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002
        """Shake hands within both limits."""
        own = self._own
        if block and own == 0:
            self._own = None
        try:
            self._do("TLS handshake", select.POLLIN, self._alone, super().do_handshake)
        finally:
            self._own = own

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002
        """Receive at most `len` bytes."""
        read: Any = super().read  # pyright: ignore[reportDeprecated]
        got = self._do("recv", select.POLLIN, self._alone, read, len, buffer)
        if not got:
            # To CPython 3.11 a descriptor that was closed meanwhile is an end of the stream.
            self._must_be_open()
        return got

    def write(self, data: ReadableBuffer) -> int:
        """Send some of `data`, at most one record; return how many bytes."""
        if self._sslobj is None:
            # Here `send` would go on in plain text.
            msg = "write on a TLS socket that is closed, unwrapped or not connected"
            raise ValueError(msg)
        return self.send(data)

    def unwrap(self) -> Any:
        """End TLS within both limits, and return what is below it: this socket, plain."""
        return self._do("TLS shutdown", select.POLLIN, self._alone, super().unwrap)


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
        bare: Any = sock
        bare._lock = threading.RLock()
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
