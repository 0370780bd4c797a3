"""http.client and urllib.request under one deadline: connections, and handlers for an opener.

opener = urllib.request.build_opener(DeadlineHTTPHandler(), DeadlineHTTPSHandler())
with bounding(Deadline.after(0.5)):
    body = opener.open(url).read()

Rules (W1, W3 of the contracts):
- Lookup, every address, a proxy's tunnel, the TLS handshake, each send and each read obey the same
  deadline. A body that is read later keeps that of its request.
- A connection on which a bound was reached, or whose last answer was left before its end, is not
  used again: the next request opens another.

What must not live here: sockets and how they are made.
"""

from __future__ import annotations

import http.client
import socket
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

from timebounds import BoundReached
from timebounds.interop._dialing import dial

if TYPE_CHECKING:
    import ssl

    from timebounds import Deadline

__all__ = [
    "DeadlineHTTPConnection",
    "DeadlineHTTPHandler",
    "DeadlineHTTPSConnection",
    "DeadlineHTTPSHandler",
]

_UNSAID: Any = object()
_NODELAY = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)


class _Answer(http.client.HTTPResponse):
    """An answer that knows whether it was left before its end."""

    left_early = False

    def close(self) -> None:
        self.left_early |= not self.isclosed() and self.length != 0
        super().close()


class DeadlineHTTPConnection(http.client.HTTPConnection):
    """An `http.client.HTTPConnection` all of whose waiting obeys one deadline.

    That is `deadline`, which can be set anew for each request, or without one that of the
    `bounding` blocks. `timeout` in seconds limits connecting as a whole, and then each call of the
    socket. For a thread without a running event loop.

    Raises (whatever waits):
        DeadlineExceeded, StopRequested: a bound was reached; the connection is closed.
        TimeoutError: the connection's own timeout came first.
    """

    response_class: type[http.client.HTTPResponse] = _Answer

    def __init__(
        self,
        host: str,
        port: int | None = None,
        timeout: Any = _UNSAID,
        source_address: tuple[str, int] | None = None,
        blocksize: int = 8192,
        *,
        deadline: Deadline | None = None,
    ) -> None:
        super().__init__(
            host, port, _seconds(timeout), source_address=source_address, blocksize=blocksize
        )
        self._deadline = deadline
        self._last: http.client.HTTPResponse | None = None

    @property
    def deadline(self) -> Deadline | None:
        """The deadline that it was given; None where the `bounding` blocks hold."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: Deadline | None) -> None:
        self._deadline = deadline
        sock: Any = self.sock
        if sock is not None:
            sock.deadline = deadline

    def connect(self) -> None:
        """Connect, through the proxy where a tunnel is set."""
        sys.audit("http.client.connect", self, self.host, self.port)
        own: Any = self
        own.sock = dial(
            (self.host, self.port),
            self._deadline,
            timeout=self.timeout,
            source_address=own.source_address,
            options=_NODELAY,
        )
        if own._tunnel_host:
            self._or_close(own._tunnel)

    def putrequest(self, *args: Any, **kwargs: Any) -> None:
        """Begin a request, on a new connection where the old one is of no use."""
        last = self._last
        if isinstance(last, _Answer) and last.left_early:
            self.close()
        self._last = None
        super().putrequest(*args, **kwargs)

    def send(self, data: Any) -> None:
        """Send `data`; a bound that is reached meanwhile closes the connection."""
        try:
            super().send(data)
        except BoundReached:
            self.close()
            raise

    def getresponse(self) -> http.client.HTTPResponse:
        """Return the answer; a bound that is reached before its head is there closes."""
        try:
            self._last = response = super().getresponse()
        except BoundReached:
            self.close()
            raise
        return response

    def _or_close(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what a step of connecting does; where it fails, nothing is left half made."""
        try:
            return fn(*args, **kwargs)
        except BaseException:
            self.close()
            raise


class DeadlineHTTPSConnection(DeadlineHTTPConnection, http.client.HTTPSConnection):
    """An `http.client.HTTPSConnection` likewise; the handshake is bounded too.

    `context` is as there, and stays as it is.
    """

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        timeout: Any = _UNSAID,
        source_address: tuple[str, int] | None = None,
        context: ssl.SSLContext | None = None,
        blocksize: int = 8192,
        deadline: Deadline | None = None,
    ) -> None:
        http.client.HTTPSConnection.__init__(
            self,
            host,
            port,
            timeout=_seconds(timeout),
            source_address=source_address,
            context=context,
            blocksize=blocksize,
        )
        self._deadline = deadline
        self._last = None

    def connect(self) -> None:
        """Connect, through the proxy where a tunnel is set, and shake hands."""
        super().connect()
        own: Any = self
        own.sock = self._or_close(
            own.sock.wrap_tls, own._context, server_hostname=own._tunnel_host or self.host
        )


class DeadlineHTTPHandler(urllib.request.HTTPHandler):
    """A handler of `http:` for `urllib.request.build_opener`, under the `bounding` blocks.

    Each redirection is under the same deadline. An opener's other schemes, such as `ftp:`, are not.
    """

    def http_open(self, req: urllib.request.Request) -> Any:
        """Open the request over a `DeadlineHTTPConnection`."""
        return self.do_open(DeadlineHTTPConnection, req)


class DeadlineHTTPSHandler(urllib.request.HTTPSHandler):
    """A handler of `https:` likewise, with a TLS context of your own or the default one."""

    def __init__(self, *, context: ssl.SSLContext | None = None) -> None:
        super().__init__(context=context)

    def https_open(self, req: urllib.request.Request) -> Any:
        """Open the request over a `DeadlineHTTPSConnection`."""
        own: Any = self
        return self.do_open(DeadlineHTTPSConnection, req, context=own._context)


def _seconds(timeout: Any) -> float | None:
    """Return a timeout in seconds; where nobody has said one, that of new sockets."""
    said = timeout is None or isinstance(timeout, (int, float))
    return timeout if said else socket.getdefaulttimeout()
