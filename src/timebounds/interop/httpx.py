"""httpx under one deadline: a transport whose connections obey the `bounding` blocks.

client = httpx.Client(transport=DeadlineTransport())
with bounding(Deadline.after(0.5)):
    response = client.get(url)

Asynchronous clients need none: `async with enforcing(deadline):` bounds what a task awaits.

Rules (W1, W3 of the contracts, A08 of the cases):
- Lookup, every address, tunnels, TLS, each send and each read obey the deadline of their request,
  and so does waiting for a connection of the pool. httpx's own timeouts are limits within.
- HTTP/1.1 alone: a connection of HTTP/2 is shared by requests of different deadlines.

What must not live here: how sockets are made.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import httpcore
import httpx

from timebounds import DeadlineSocket, current_deadline
from timebounds.interop._dialing import dial, dial_unix, pause, run_out

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = ["DeadlineTransport"]

T = TypeVar("T")

_RECORD = 16_384
_PEEKING = socket.MSG_PEEK | socket.MSG_DONTWAIT


class DeadlineTransport(httpx.HTTPTransport):
    """A transport for `httpx.Client`: what it sends obeys the `bounding` blocks.

    Takes what `httpx.HTTPTransport` takes, but for `http2`. A streamed body keeps the deadline of
    its request. For proxies, give it `proxy=`: a client's own `proxy` makes a plain transport.

    Raises:
        httpx.TimeoutException: as ever; leaving the `bounding` block raises DeadlineExceeded from
            it where the deadline is the cause.
        ValueError: http2 was asked for.
    """

    def __init__(self, verify: ssl.SSLContext | str | bool = True, **options: Any) -> None:  # noqa: FBT001, FBT002
        if options.get("http2"):
            msg = (
                "http2=True lets requests share a connection, and so the shortest of their "
                "deadlines: leave it out"
            )
            raise ValueError(msg)
        super().__init__(verify, **options)
        pool: Any = self._pool
        if not isinstance(pool._network_backend, httpcore.NetworkBackend):
            msg = f"httpx {httpx.__version__} is unknown here: its pools take no network backend"
            raise TypeError(msg)
        pool._network_backend = _Backend()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and return the answer. Called by httpx."""
        deadline = current_deadline()
        if deadline is None:
            return super().handle_request(request)
        timeouts = dict(request.extensions.get("timeout", {}))
        own, left = timeouts.get("pool"), deadline.remaining()
        shortest = left if own is None or left < own else own
        timeouts["pool"] = None if shortest == float("inf") else shortest
        request.extensions = {**request.extensions, "timeout": timeouts}
        try:
            return super().handle_request(request)
        except httpx.PoolTimeout:
            if shortest == left:
                run_out(deadline, "wait for a connection of the pool")
            raise


class _Backend(httpcore.NetworkBackend):
    """Makes connections whose calls obey the `bounding` blocks."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        nodelay = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with _told_as(httpcore.ConnectTimeout, httpcore.ConnectError):
            sock = dial(
                (host, port),
                timeout=timeout,
                source_address=None if local_address is None else (local_address, 0),
                options=[*(socket_options or ()), nodelay],
            )
        return _Stream(sock)

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        with _told_as(httpcore.ConnectTimeout, httpcore.ConnectError):
            return _Stream(dial_unix(path, timeout=timeout, options=socket_options or ()))

    def sleep(self, seconds: float) -> None:
        pause(seconds)


class _Stream(httpcore.NetworkStream):
    """A connection over a `DeadlineSocket`."""

    def __init__(self, sock: DeadlineSocket) -> None:
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            self._sock.settimeout(timeout)
            return self._receive(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(error) from error
        except OSError as error:
            raise httpcore.ReadError(error) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._sock.settimeout(timeout)
            rest = memoryview(buffer)
            while rest:
                rest = rest[self._send(rest) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout(error) from error
        except OSError as error:
            raise httpcore.WriteError(error) from error

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        sock, made = self._sock, False
        try:
            with _told_as(httpcore.ConnectTimeout, httpcore.ConnectError):
                sock.settimeout(timeout)
                if _is_tls(sock):
                    stream: _Stream = _TlsInTls(sock, ssl_context, server_hostname)
                else:
                    stream = _Stream(sock.wrap_tls(ssl_context, server_hostname=server_hostname))
            made = True
        finally:
            if not made:
                self.close()
        return stream

    def get_extra_info(self, info: str) -> Any:
        sock = self._sock
        if info == "ssl_object":
            return sock if _is_tls(sock) else None
        ask: dict[str, Callable[[], Any]] = {
            "client_addr": sock.getsockname,
            "server_addr": sock.getpeername,
            "socket": lambda: sock,
            "is_readable": self._readable,
        }
        return ask[info]() if info in ask else None

    def _receive(self, most: int) -> bytes:
        return self._sock.recv(most)

    def _send(self, data: memoryview) -> int:
        return self._sock.send(data)

    def _readable(self) -> bool:
        """Look at the descriptor, below TLS: an idle connection has nothing to say."""
        try:
            socket.socket.recv(self._sock, 1, _PEEKING)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


class _TlsInTls(_Stream):
    """TLS through a proxy to which there is TLS already: the inner session lies in memory."""

    def __init__(
        self, sock: DeadlineSocket, context: ssl.SSLContext, server_hostname: str | None
    ) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._inner = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_hostname
        )
        self._do(self._inner.do_handshake)

    def _do(self, fn: Callable[..., T], *args: Any) -> T:
        while True:
            try:
                done = fn(*args)
            except ssl.SSLWantReadError:
                self._sock.sendall(self._outgoing.read())
                data = self._sock.recv(_RECORD)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._sock.sendall(self._outgoing.read())
                return done

    def _receive(self, most: int) -> bytes:
        return self._do(self._inner.read, most)

    def _send(self, data: memoryview) -> int:
        return self._do(self._inner.write, data)

    def get_extra_info(self, info: str) -> Any:
        return self._inner if info == "ssl_object" else super().get_extra_info(info)


def _is_tls(sock: object) -> bool:
    return isinstance(sock, ssl.SSLSocket)


@contextmanager
def _told_as(timeout: type[Exception], other: type[Exception]) -> Generator[None]:
    """Raise httpcore's errors for those of sockets, from them; where a few µs do not matter."""
    try:
        yield
    except TimeoutError as error:
        raise timeout(error) from error
    except OSError as error:
        raise other(error) from error
