"""`aconnect` and `AsyncConnection`: as `connect` and `Connection`, for tasks.

The rules of making one are in `policies/dialing.py`. Here (K3, K4, A16 of the cases):
- Names are looked up in slots of their own, not in the loop's executor, which others keep busy.
- The loop's own streams are made over the socket; from then on it is theirs.
- Whatever ends the call, a cancel too, what was opened is closed.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, final

from timebounds._settled import Raised, Returned
from timebounds.aio.ports import settle, wait
from timebounds.aio.receiver import AsyncBudgetedReceiver
from timebounds.aio.sender import AsyncBudgetedSender
from timebounds.bounds.deadline import as_deadline
from timebounds.bounds.lookup import Question, nothing_found, numeric, resolve, unanswered
from timebounds.errors import Unfinished
from timebounds.policies.dialing import Dial, Lookup, Step, conclude, dialing
from timebounds.policies.plan import Reply, adrive
from timebounds.policies.wants import as_address, as_hostname, as_idle, as_resolver, as_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext

    from _typeshed import ReadableBuffer, WriteableBuffer

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.dialing import DialReport

__all__ = ["AsyncConnection", "aconnect"]

# The loop's own limit of a handshake, which must not be the earlier one: eleven days.
_LONG = 1e6


async def aconnect(
    address: tuple[str, int],
    deadline: Deadline,
    *,
    tls: SSLContext | None = None,
    server_hostname: str | None = None,
    idle_timeout: Seconds | None = None,
    resolver: Callable[[str, int], Sequence[Any]] = resolve,
    source_address: tuple[str, int] | None = None,
) -> AsyncConnection:
    """Return a connection to the host and port of `address`, made within `deadline`.

    As `connect`, for tasks. A cancel closes what was opened.
    """
    host, number = as_address(address, "address")
    context = as_tls(tls, "tls")
    as_idle(idle_timeout)
    as_deadline(deadline)
    port = TaskDialPort(
        (host, number),
        as_resolver(resolver, "resolver"),
        None if source_address is None else as_address(source_address, "source_address"),
        context,
        as_hostname(server_hostname, "server_hostname") or host,
    )
    now = deadline._now()
    endpoints = numeric(host, number)
    plan = dialing(
        deadline._at, now, deadline._stop, endpoints=endpoints, shake=context is not None
    )
    made = False
    try:
        what = f"connect to {host}:{number}"
        report = conclude(
            await adrive(plan, port, deadline, now), what, deadline, unanswered(port.lookup)
        )
        assert port.streams is not None
        connection = AsyncConnection(*port.streams, report, idle_timeout)
        made = True
    finally:
        if not made:
            await port.close()
    return connection


@final
class TaskDialPort:
    """Carries out the steps of dialing for a task."""

    __slots__ = (
        "_address", "_context", "_hostname", "_reader", "_resolver", "_source", "_transport",
        "lookup", "streams",
    )  # fmt: skip

    lookup: Question[Any] | None
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None

    def __init__(
        self,
        address: tuple[str, int],
        resolver: Callable[[str, int], Sequence[Any]],
        source: tuple[str, int] | None,
        context: SSLContext | None,
        hostname: str,
    ) -> None:
        self._address = address
        self._resolver = resolver
        self._source = source
        self._context = context
        self._hostname = hostname
        # The loop's own, over the socket, plain.
        self._transport: Any = None
        self.lookup = None
        self.streams = None

    async def perform(self, step: Step, deadline: Deadline) -> Returned[Any] | Raised | Reply:
        """Carry out one step within its limit."""
        try:
            if isinstance(step, Lookup):
                return await self._look_up(deadline)
            do = self._dial if isinstance(step, Dial) else self._shake
            ready = await do(step, deadline)
        except Exception as error:  # noqa: BLE001  (the plan decides what follows)
            return Raised(error)
        return Returned(None) if ready else Reply.SILENCE

    async def close(self) -> None:
        """Close what was opened and is not wanted."""
        if self._transport is not None:
            self._transport.abort()
            # It closes its socket in the loop's next turn.
            await asyncio.sleep(0)

    async def _look_up(self, deadline: Deadline) -> Returned[Any] | Raised | Reply:
        self.lookup = question = Question(self._resolver, *self._address)
        answer = await question.await_answer(deadline)
        if isinstance(answer, Returned) and not answer.value:
            return Raised(nothing_found(self._address[0]))
        return Reply.SILENCE if answer is None else answer

    async def _dial(self, step: Any, deadline: Deadline) -> bool:
        family, kind, proto, _, address = step.endpoint
        sock = socket.socket(family, kind, proto)
        made = False
        try:
            sock.settimeout(0.0)
            if self._source is not None:
                sock.bind(self._source)
            connected = await self._connect(sock, address, step, deadline)
            made = connected and await self._make_streams(sock, step, deadline)
        finally:
            # What became its transport's is closed with that.
            if not made and self._transport is None:
                sock.close()
        return made

    async def _connect(
        self, sock: socket.socket, address: Any, step: Step, deadline: Deadline
    ) -> bool:
        try:
            sock.connect(address)
        except BlockingIOError:
            loop = asyncio.get_running_loop()
            ready = loop.create_future()
            loop.add_writer(sock, settle, ready)
            try:
                if not await wait(ready, step, deadline):
                    return False
            finally:
                loop.remove_writer(sock)
            failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                raise OSError(failure, os.strerror(failure)) from None
        return True

    async def _make_streams(self, sock: Any, step: Step, deadline: Deadline) -> bool:
        """Make the loop's transport over the socket, which is its own from here on."""
        loop = asyncio.get_running_loop()
        protocol = self._protocol() if self._context is None else _Quiet()
        making = asyncio.ensure_future(loop.create_connection(lambda: protocol, sock=sock))
        try:
            made = await self._finish(making, step, deadline)
        finally:
            # Also what was made in the very turn of a cancel.
            failed = making.cancelled() or making.exception() is not None
            self._transport = None if failed else making.result()[0]
        if made and self._context is None:
            self._attach(self._transport, protocol)
        return made

    async def _shake(self, step: Step, deadline: Deadline) -> bool:
        loop = asyncio.get_running_loop()
        protocol = self._protocol()
        assert self._transport is not None
        assert self._context is not None
        # The plain transport stays ours until its end: what `create_connection` makes for TLS is
        # nobody's when it is cancelled before the handshake has begun.
        shaking = asyncio.ensure_future(
            loop.start_tls(
                self._transport,
                protocol,
                self._context,
                server_hostname=self._hostname,
                ssl_handshake_timeout=_LONG,
            )
        )
        made = await self._finish(shaking, step, deadline)
        if made:
            secure: Any = shaking.result()
            protocol.connection_made(secure)
            self._attach(secure, protocol)
        return made

    async def _finish(self, making: asyncio.Future[Any], step: Step, deadline: Deadline) -> bool:
        """Wait for something that is being made; what is not made in time is not made."""
        try:
            made = await wait(making, step, deadline)
        finally:
            if not making.done():
                making.cancel()
                await asyncio.wait({making})
        if made:
            making.result()
        return made

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(loop=loop)
        return asyncio.StreamReaderProtocol(self._reader, loop=loop)

    def _attach(self, transport: Any, protocol: Any) -> None:
        loop = asyncio.get_running_loop()
        writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
        self.streams = (self._reader, writer)


class _Quiet(asyncio.Protocol):
    """Reads nothing: what comes is for the handshake."""

    def connection_made(self, transport: Any) -> None:
        """Pause before the first read."""
        transport.pause_reading()


@final
class AsyncConnection:
    """A stream to a peer, owned: a reader and a writer of the loop, a receiver and a sender.

    As `Connection`, for tasks; one may receive while another sends. An async context manager, at
    whose end it is closed. Made by `aconnect` or `AsyncConnection.over`.
    """

    __slots__ = ("_report", "_writer", "receiver", "sender")

    receiver: AsyncBudgetedReceiver
    """Its receiving half, for `resume`, `discard` and `pending`."""
    sender: AsyncBudgetedSender
    """Its sending half, for `resume`, `discard` and `unsent`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        report: DialReport | None,
        idle_timeout: Seconds | None,
    ) -> None:
        self.receiver = AsyncBudgetedReceiver(reader, idle_timeout=idle_timeout)
        self.sender = AsyncBudgetedSender(writer, idle_timeout=idle_timeout)
        self._writer = writer
        self._report = report

    @staticmethod
    def over(
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        idle_timeout: Seconds | None = None,
    ) -> AsyncConnection:
        """Return a connection over streams that exist, such as those that a server is given.

        It owns them from the call on. A server's handshakes are bounded where it is started, by
        `asyncio.start_server(..., ssl_handshake_timeout=...)`.
        """
        return AsyncConnection(reader, writer, None, idle_timeout)

    @property
    def report(self) -> DialReport | None:
        """How it was made; None over streams that existed."""
        return self._report

    @property
    def usable(self) -> bool:
        """Whether another exchange may begin: open, whole in both directions, nothing unread."""
        inbox = self.receiver._inbox
        return (
            not self._writer.transport.is_closing()
            and inbox.state[2] is None
            and not (inbox.eof or inbox.pending)
            and not self.sender._outbox.open
        )

    async def receive_exactly(self, size: int, deadline: Deadline) -> bytes:
        """Return exactly `size` bytes. As `BudgetedReceiver.receive_exactly`."""
        return await self.receiver.receive_exactly(size, deadline)

    async def receive_into(self, buffer: WriteableBuffer, deadline: Deadline) -> None:
        """Fill the whole `buffer`. As `BudgetedReceiver.receive_into`."""
        await self.receiver.receive_into(buffer, deadline)

    async def receive_until(self, delimiter: bytes, max_bytes: int, deadline: Deadline) -> bytes:
        """Return the bytes up to and including `delimiter`. As `BudgetedReceiver`'s."""
        return await self.receiver.receive_until(delimiter, max_bytes, deadline)

    async def receive_some(self, max_bytes: int, deadline: Deadline) -> bytes:
        """Return what is there, at most `max_bytes`. As `BudgetedReceiver.receive_some`."""
        return await self.receiver.receive_some(max_bytes, deadline)

    async def send_all(self, data: ReadableBuffer, deadline: Deadline) -> None:
        """Send all of `data`. As `Connection.send_all`."""
        target = self.receiver._inbox.state[2]
        # One that another task is at has not ended.
        if target is not None and not self.receiver._inside:
            msg = f"{target} has not finished: resume or discard it before the next message"
            raise Unfinished(msg)
        await self.sender.send_all(data, deadline)

    def close(self) -> None:
        """Close at once, in the loop's next turn. What was not sent is lost; twice is no error."""
        self._writer.transport.abort()

    async def __aenter__(self) -> AsyncConnection:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()
        # It closes its socket in the loop's next turn.
        await asyncio.sleep(0)

    def __repr__(self) -> str:
        state = "usable" if self.usable else "not usable"
        return f"<AsyncConnection {state} over {self._writer.transport!r:.80}>"
