"""`connect` and `Connection`: socket, receiver and sender together, made under one deadline.

The rules of making one are in `policies/dialing.py`. Here (R10):
- What was opened is closed when it could not be made whole.
- While the position in the stream is unknown, in either direction, it is not usable, and sends
  nothing but the rest of what it has begun.
- TLS serves one thread in both directions; a plain socket one in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from timebounds._checks import refuse_on_loop_thread, shown
from timebounds.blocking.dial_port import DialPort
from timebounds.blocking.receiver import BudgetedReceiver
from timebounds.blocking.sender import BudgetedSender
from timebounds.blocking.socket_port import stream, tls_of
from timebounds.bounds.deadline import as_deadline
from timebounds.bounds.lookup import numeric, resolve, unanswered
from timebounds.errors import Unfinished
from timebounds.policies.dialing import conclude, dialing, shaking
from timebounds.policies.plan import drive
from timebounds.policies.wants import as_address, as_hostname, as_idle, as_resolver, as_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from socket import socket as Socket  # noqa: N812  (the attribute has the plain name)
    from ssl import SSLContext

    from _typeshed import ReadableBuffer, WriteableBuffer

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.dialing import DialReport

__all__ = ["Connection", "connect"]


def connect(
    address: tuple[str, int],
    deadline: Deadline,
    *,
    tls: SSLContext | None = None,
    server_hostname: str | None = None,
    idle_timeout: Seconds | None = None,
    resolver: Callable[[str, int], Sequence[Any]] = resolve,
    source_address: tuple[str, int] | None = None,
) -> Connection:
    """Return a connection to the host and port of `address`, made within `deadline`.

    Bounds lookup, every address and the TLS handshake together. Each address may use its fair share
    of what remains, at least a quarter of a second. A name is looked up in a daemon thread that is
    left behind when it does not answer. `connection.report` tells how the time was spent, and so
    does `dial_report(error)` after a failure, which closes what was opened.

    Args:
        address: host, a name or a number, and port.
        deadline: of the connecting alone; each verb of the connection takes its own.
        tls: the context to shake hands with, such as `ssl.create_default_context()`; None for none.
        server_hostname: the name that the certificate must have; None for the host.
        idle_timeout: of the connection's receives and sends.
        resolver: called with host and port in a thread; returns what `socket.getaddrinfo` does.
        source_address: host and port to connect from.

    Raises:
        DeadlineExceeded, StopRequested: a bound was reached; the message names the phase.
        OSError: what the system said of the last address, with a note for each one.
    """
    host, number = as_address(address, "address")
    context = as_tls(tls, "tls")
    as_idle(idle_timeout)
    as_deadline(deadline)
    refuse_on_loop_thread("connect", "aconnect")
    port = DialPort(
        (host, number),
        resolver=as_resolver(resolver, "resolver"),
        source=None if source_address is None else as_address(source_address, "source_address"),
        context=context,
        hostname=as_hostname(server_hostname, "server_hostname") or host,
    )
    now = deadline._now()
    endpoints = numeric(host, number)
    plan = dialing(
        deadline._at, now, deadline._stop, endpoints=endpoints, shake=context is not None
    )
    made = False
    try:
        what = f"connect to {host}:{number}"
        report = conclude(drive(plan, port, deadline, now), what, deadline, unanswered(port.lookup))
        connection = Connection(port.sock, report, idle_timeout)
        made = True
    finally:
        if not made:
            port.close()
    return connection


@final
class Connection:
    """A stream to a peer, owned: its socket, a receiver and a sender.

    The verbs are those of `BudgetedReceiver` and `BudgetedSender`, each under its own deadline. A
    context manager, at whose end it is closed. Made by `connect` or `Connection.over`.
    """

    __slots__ = ("_report", "_secure", "receiver", "sender", "socket")

    socket: Socket
    """The socket, which is the connection's to close."""
    receiver: BudgetedReceiver
    """Its receiving half, for `resume`, `discard` and `pending`."""
    sender: BudgetedSender
    """Its sending half, for `resume`, `discard` and `unsent`."""

    def __init__(
        self, sock: Socket, report: DialReport | None, idle_timeout: Seconds | None
    ) -> None:
        self.socket = sock
        self.receiver = BudgetedReceiver(sock, idle_timeout=idle_timeout)
        self.sender = BudgetedSender(sock, idle_timeout=idle_timeout)
        self._report = report
        self._secure = tls_of(sock) is not None
        if self._secure:
            # Its session is one for both directions.
            self.sender._turn = self.receiver._turn

    @staticmethod
    def over(
        sock: Socket,
        deadline: Deadline,
        *,
        tls: SSLContext | None = None,
        server_side: bool = False,
        server_hostname: str | None = None,
        idle_timeout: Seconds | None = None,
    ) -> Connection:
        """Return a connection over a socket that is connected; with `tls`, shake hands first.

        For what a server has accepted: a client that never says hello then costs no more than
        `deadline`. It owns the socket from the call on, and closes it when that fails.

        Raises:
            DeadlineExceeded, StopRequested: a bound was reached in the handshake.
            OSError: the handshake failed, a certificate that is not trusted for example.
        """
        stream(sock, "recv", "connection")
        context = as_tls(tls, "tls")
        as_idle(idle_timeout)
        as_hostname(server_hostname, "server_hostname")
        as_deadline(deadline)
        refuse_on_loop_thread("Connection.over", "AsyncConnection.over")
        port = DialPort(
            None, sock=sock, context=context, hostname=server_hostname, server_side=server_side
        )
        made, report = False, None
        try:
            if context is not None:
                now = deadline._now()
                plan = shaking(deadline._at, now, deadline._stop)
                report = conclude(drive(plan, port, deadline, now), "TLS handshake", deadline)
            connection = Connection(port.sock, report, idle_timeout)
            made = True
        finally:
            if not made:
                port.close()
        return connection

    @property
    def report(self) -> DialReport | None:
        """How it was made; None over a socket that was connected already, without TLS."""
        return self._report

    @property
    def usable(self) -> bool:
        """Whether another exchange may begin: open, whole in both directions, nothing unread."""
        receiver, sender = self.receiver, self.sender
        whole = receiver._inbox.state[2] is None and not receiver._port.in_doubt
        return (
            self.socket.fileno() >= 0
            and whole
            and not (receiver._inbox.eof or receiver._inbox.pending)
            and not (sender._outbox.open or sender._port.in_doubt)
        )

    def receive_exactly(self, size: int, deadline: Deadline) -> bytes:
        """Return exactly `size` bytes. As `BudgetedReceiver.receive_exactly`."""
        return self.receiver.receive_exactly(size, deadline)

    def receive_into(self, buffer: WriteableBuffer, deadline: Deadline) -> None:
        """Fill the whole `buffer`. As `BudgetedReceiver.receive_into`."""
        self.receiver.receive_into(buffer, deadline)

    def receive_until(self, delimiter: bytes, max_bytes: int, deadline: Deadline) -> bytes:
        """Return the bytes up to and including `delimiter`. As `BudgetedReceiver`'s."""
        return self.receiver.receive_until(delimiter, max_bytes, deadline)

    def receive_some(self, max_bytes: int, deadline: Deadline) -> bytes:
        """Return what is there, at most `max_bytes`. As `BudgetedReceiver.receive_some`."""
        return self.receiver.receive_some(max_bytes, deadline)

    def send_all(self, data: ReadableBuffer, deadline: Deadline) -> None:
        """Send all of `data`. As `BudgetedSender.send_all`.

        Raises:
            Unfinished: also when a receive is unfinished: the answer would not be to this.
        """
        target = self.receiver._inbox.state[2]
        # One that another thread is at has not ended.
        if target is not None and not self.receiver._turn.taken():
            msg = f"{target} has not finished: resume or discard it before the next message"
            raise Unfinished(msg)
        self.sender.send_all(data, deadline)

    def close(self) -> None:
        """Close the socket. What was not sent is lost. Waits for nothing; twice is no error."""
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = "TLS connection" if self._secure else "Connection"
        state = "closed" if self.socket.fileno() < 0 else "usable" if self.usable else "not usable"
        return f"<{kind} {state} over {shown(self.socket)}>"
