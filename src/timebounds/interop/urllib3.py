"""urllib3 2.x under one deadline: pool managers whose connections obey the `bounding` blocks.

with bounding(Deadline.after(0.5)):
    response = DeadlinePoolManager().request("GET", url)

Rules (W1, W3 of the contracts, A08 of the cases):
- Lookup, every address, tunnels, TLS, each send and each read obey the deadline of their request,
  and so does waiting for a connection of the pool. urllib3's own timeouts are limits within.
- A retry is not begun when the deadline has passed, and waiting before one ends with it, whatever
  a `Retry-After` says. All attempts and redirections share the one deadline.

What must not live here: sockets and how they are made.
"""

from __future__ import annotations

import socket
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3 import connection, connectionpool
from urllib3.exceptions import (
    ConnectTimeoutError,
    EmptyPoolError,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
)
from urllib3.util.connection import allowed_gai_family
from urllib3.util.retry import Retry
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs, resolve_ssl_version

from timebounds import bounded_tls, current_deadline
from timebounds.interop._dialing import dial, pause, run_out

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from types import TracebackType

__all__ = [
    "DeadlineHTTPConnection",
    "DeadlineHTTPConnectionPool",
    "DeadlineHTTPSConnection",
    "DeadlineHTTPSConnectionPool",
    "DeadlinePoolManager",
    "DeadlineProxyManager",
    "bounded_pools",
]


class DeadlineHTTPConnection(connection.HTTPConnection):
    """A connection of urllib3 all of whose waiting obeys the `bounding` blocks."""

    def _new_conn(self) -> socket.socket:
        return _connected(self)


class DeadlineHTTPSConnection(connection.HTTPSConnection):
    """A TLS connection likewise; the handshakes are bounded too, that with a proxy as well.

    A context that was given is changed as `bounded_tls` does it: its sockets obey the blocks.
    """

    def _new_conn(self) -> socket.socket:
        return _connected(self)

    def connect(self) -> None:
        """Connect, through a proxy where there is one, and shake hands."""
        own: Any = self
        if own.ssl_context is None:
            own.ssl_context = self._context()
            if not self._authorities():
                own.ssl_context.load_default_certs()
        bounded_tls(own.ssl_context)
        config = self.proxy_config
        if config is not None and (config.ssl_context is not None or self.proxy_is_tunneling):
            context = config.ssl_context
            if context is None:
                # The pool's, as urllib3 has it.
                context = self._context()
                if self._authorities():
                    context.load_verify_locations(*self._authorities())
                else:
                    context.load_default_certs()
            own.proxy_config = config._replace(ssl_context=bounded_tls(context))
        super().connect()

    def _context(self) -> ssl.SSLContext:
        """Make the context that urllib3 makes where it was given none."""
        return create_urllib3_context(
            ssl_version=resolve_ssl_version(self.ssl_version),
            ssl_minimum_version=self.ssl_minimum_version,
            ssl_maximum_version=self.ssl_maximum_version,
            cert_reqs=resolve_cert_reqs(self.cert_reqs),
        )

    def _authorities(self) -> tuple[Any, ...]:
        given = (self.ca_certs, self.ca_cert_dir, self.ca_cert_data)
        return given if any(given) else ()


class _BoundedPool(connectionpool.HTTPConnectionPool):
    """What pools have in common: waiting for a connection and retries know the deadline."""

    # The pool's own retries, and the same as `_bounded` makes them: most requests give none.
    _default: tuple[Any, Any] = (None, None)

    def urlopen(  # type: ignore[override]  # as urllib3 itself overrides it
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        retries: Any = None,
        redirect: bool = True,  # noqa: FBT001, FBT002  (as urllib3 has it)
        *args: Any,
        **more: Any,
    ) -> Any:
        """Ask under the deadline around, all retries included. As urllib3's."""
        if current_deadline() is not None:
            if retries is None and isinstance(self.retries, Retry):
                retries = self._own_retries()
            else:
                retries = _bounded(Retry.from_int(retries, redirect=redirect, default=self.retries))
        return super().urlopen(method, url, body, headers, retries, redirect, *args, **more)

    def _own_retries(self) -> Any:
        theirs: Any = self.retries
        known, bounded = self._default
        if known is not theirs:
            bounded = _bounded(theirs)
            self._default = (theirs, bounded)
        return bounded

    def _get_conn(self, timeout: float | None = None) -> Any:
        deadline = current_deadline()
        if deadline is None or not self.block:
            return super()._get_conn(timeout)
        left = deadline.remaining()
        shorter = left if timeout is None or left < timeout else timeout
        try:
            return super()._get_conn(None if shorter == float("inf") else shorter)
        except EmptyPoolError:
            if shorter == left:
                run_out(deadline, "wait for a connection of the pool")
            raise


class DeadlineHTTPConnectionPool(_BoundedPool):
    """A pool of connections to one host under the `bounding` blocks."""

    ConnectionCls: Any = DeadlineHTTPConnection


class DeadlineHTTPSConnectionPool(_BoundedPool, connectionpool.HTTPSConnectionPool):
    """A pool of TLS connections to one host under the `bounding` blocks."""

    ConnectionCls: Any = DeadlineHTTPSConnection


_POOLS: dict[str, Any] = {"http": DeadlineHTTPConnectionPool, "https": DeadlineHTTPSConnectionPool}
_THEIRS: dict[str, Any] = {
    "http": connectionpool.HTTPConnectionPool,
    "https": connectionpool.HTTPSConnectionPool,
}


def bounded_pools(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """Let the pools of a manager obey the `bounding` blocks; return it.

    For managers that others make. Pools that it has made already stay as they are.

    Raises:
        TypeError: its pools are of its own kind, such as those of a SOCKS proxy.
    """
    theirs = manager.pool_classes_by_scheme
    if theirs not in (_THEIRS, _POOLS):
        msg = f"{type(manager).__name__} has pools of its own, and can not be put under a deadline"
        raise TypeError(msg)
    manager.pool_classes_by_scheme = _POOLS
    return manager


class DeadlinePoolManager(urllib3.PoolManager):
    """A `urllib3.PoolManager` that obeys the `bounding` blocks around each request.

    Takes what that takes. A body with `preload_content=False` keeps the deadline of its request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        bounded_pools(self)


class DeadlineProxyManager(urllib3.ProxyManager):
    """A `urllib3.ProxyManager` that obeys the `bounding` blocks, tunnels included."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        bounded_pools(self)


def _connected(conn: connection.HTTPConnection) -> socket.socket:
    """Connect for urllib3, and fail as it does."""
    host: str = conn._dns_host  # pyright: ignore[reportAttributeAccessIssue]
    host = host.strip("[]") if host.startswith("[") else host
    try:
        host.encode("idna")
    except UnicodeError:
        msg = f"'{host}', label empty or too long"
        raise LocationParseError(msg) from None
    try:
        sock = dial(
            (host, conn.port),
            timeout=conn.timeout,
            source_address=conn.source_address,
            options=conn.socket_options or (),
            resolver=_look_up,
        )
    except socket.gaierror as error:
        raise NameResolutionError(conn.host, conn, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(conn, f"Connection to {conn.host} timed out: {error}") from error
    except OSError as error:
        msg = f"Failed to establish a new connection: {error}"
        raise NewConnectionError(conn, msg) from error
    sys.audit("http.client.connect", conn, conn.host, conn.port)
    return sock


def _look_up(host: str, port: int) -> Sequence[Any]:
    # Of the families that urllib3 wants.
    return socket.getaddrinfo(host, port, allowed_gai_family(), socket.SOCK_STREAM)


class _Bounded(Retry):
    """Retries that end with the deadline."""

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: TracebackType | None = None,
    ) -> Any:
        """Count one more; after an error behind the deadline there is none left."""
        deadline = current_deadline()
        last = self
        if error is not None and deadline is not None and self.total is not False:
            stop = deadline.stop
            if deadline.expired() or (stop is not None and stop.requested()):
                last = self.new(total=0)
        return super(_Bounded, last).increment(method, url, response, error, _pool, _stacktrace)

    def sleep_for_retry(self, response: Any) -> bool:
        """Wait as the server asks, but not behind the deadline."""
        seconds = self.get_retry_after(response) or 0.0
        pause(seconds)
        return seconds > 0

    def sleep(self, response: Any = None) -> None:
        """Wait before the next attempt, but not behind the deadline."""
        asked = response is not None and self.respect_retry_after_header
        if not (asked and self.sleep_for_retry(response)):
            pause(self.get_backoff_time())


@cache
def _bounded_kind(kind: type[Retry]) -> type[Retry]:
    return kind if issubclass(kind, _Bounded) else type(kind.__name__, (_Bounded, kind), {})


def _bounded(retries: Retry) -> Retry:
    """Return the same retries, a class of their own too, ended by the deadline."""
    kind = type(retries)
    # What copy.copy does, four times as fast. A class is hashable: mypy takes it for its instance.
    twin = Retry.__new__(_bounded_kind(kind))  # type: ignore[arg-type]
    vars(twin).update(vars(retries))
    return twin
