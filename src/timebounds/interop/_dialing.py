"""How other people's clients get a connection: a `DeadlineSocket`, made under the same deadline.

Rules (W1, K1-K3 of the contracts):
- Lookup, addresses and what follows on the socket obey one deadline: a given one, or, without, that
  of the `bounding` blocks around each call.
- A client's own timeout is a limit within. It ends in a plain `TimeoutError`, in whose chain
  nothing of ours stands: whoever leaves the block must not be told that the deadline came.
- What was opened is closed when it could not be made whole.

What must not live here: any client.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from timebounds import Deadline, DeadlineExceeded, DeadlineSocket, StopSignal, connect
from timebounds import current_deadline as current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from timebounds import Connection

__all__: list[str] = []

Given = Deadline | None
"""What a client is given: a deadline for ever, or none, and then the `bounding` ones hold."""

# As long as nothing tells when a full queue of a UNIX socket has room.
_TRY_AGAIN = 0.005


def look_up(host: str, port: int) -> Sequence[Any]:
    """Ask the system for the addresses of a stream."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def dial(
    address: tuple[str, int],
    given: Given = None,
    *,
    timeout: float | None = None,
    source_address: tuple[str, int] | None = None,
    options: Iterable[Any] = (),
    resolver: Callable[[str, int], Sequence[Any]] = look_up,
) -> DeadlineSocket:
    """Return a connected socket under `given`; its timeout is `timeout`, and its options are set.

    The options are set when it is connected: no earlier moment is open to them.
    """
    bound = _holding(given)
    limit = bound if timeout is None else bound.within(timeout)
    connection = _connect(address, bound, limit, resolver, _source(source_address))
    if connection is None:
        msg = f"connect to {address[0]}:{address[1]} timed out after {timeout:g} s"
        raise TimeoutError(msg)
    return _fitted(DeadlineSocket(connection.socket, given), timeout, options)


def _connect(
    address: tuple[str, int],
    bound: Deadline,
    limit: Deadline,
    resolver: Callable[[str, int], Sequence[Any]],
    source: tuple[str, int] | None,
) -> Connection | None:
    """Connect within both; None where the client's own limit came first."""
    try:
        return connect(address, limit, resolver=resolver, source_address=source)
    except DeadlineExceeded:
        if limit is bound or bound.expired():
            raise
    return None


def dial_unix(
    path: str, *, timeout: float | None = None, options: Iterable[Any] = ()
) -> DeadlineSocket:
    """Return a socket that is connected to a path, under the `bounding` blocks."""
    bound = _holding(None)
    limit = bound if timeout is None else bound.within(timeout)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected = False
    try:
        sock.settimeout(0.0)
        while not connected:
            bound.check(f"connect to {path}")
            try:
                sock.connect(path)
                connected = True
            except BlockingIOError:
                if limit.expired() and not bound.expired():
                    msg = f"connect to {path} timed out after {timeout:g} s"
                    raise TimeoutError(msg) from None
                StopSignal().wait(limit.within(_TRY_AGAIN))
    finally:
        if not connected:
            sock.close()
    return _fitted(DeadlineSocket(sock), timeout, options)


def pause(seconds: float) -> None:
    """Wait so long, or until the deadline around; its stop raises."""
    StopSignal().wait(_holding(None).within(seconds))


def run_out(deadline: Deadline, what: str) -> None:
    """Raise the error of a deadline for whose whole rest a client has waited in vain."""
    # The client's clock may have been a little faster.
    StopSignal().wait(deadline)
    deadline.check(what)


def _holding(given: Given) -> Deadline:
    bound = current() if given is None else given
    return Deadline.never() if bound is None else bound


def _source(address: tuple[str, int] | None) -> tuple[str, int] | None:
    """Read a source address as the standard library does: an empty host is any."""
    if not address:
        return None
    return address[0] or "0.0.0.0", address[1]  # noqa: S104  (to connect from, not to serve)


def _fitted(sock: DeadlineSocket, timeout: float | None, options: Iterable[Any]) -> DeadlineSocket:
    fitted = False
    try:
        sock.settimeout(timeout)
        for option in options:
            sock.setsockopt(*option)
        fitted = True
    finally:
        if not fitted:
            sock.close()
    return sock
