"""`DeadlineSocket` over TLS, and contexts that make such sockets for other people's clients.

Rules: the same as for plain ones; a handshake is bounded like any call. A record that went out in
part is followed by its rest or by nothing.

What must not live here: certificates, and which context is right.
"""

from __future__ import annotations

import select
import ssl
from typing import TYPE_CHECKING, Any, Self, TypeVar

from timebounds._checks import shown
from timebounds.blocking.deadline_socket import DeadlineSocket
from timebounds.blocking.sending_port import RECORD

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    from timebounds.blocking.deadline_socket import Bound
    from timebounds.bounds.deadline import Deadline

__all__ = ["bounded_tls"]

ContextT = TypeVar("ContextT", bound=ssl.SSLContext)


class DeadlineTlsSocket(DeadlineSocket, ssl.SSLSocket):  # type: ignore[misc]
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
        return self._do("recv", select.POLLIN, super().read, len, buffer)

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
