"""`DripServer`: a real peer on the loopback interface that misbehaves in one way.

Rules:
- Real sockets and real time: for what a script on a fake clock cannot show. One thread serves all
  clients; it ends with `close`, which closes every socket.
- It reads and forgets what clients send, so that no client is held up by its own request.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import StrEnum
from select import POLLIN, poll
from typing import TYPE_CHECKING, final

from timebounds._checks import NS, member, nanoseconds, shown
from timebounds.bounds.clock import MONOTONIC

if TYPE_CHECKING:
    from timebounds._checks import Seconds

__all__ = ["DripServer", "Misbehaviour"]

# As many milliseconds `poll` can take for an int of C: three weeks, and then it looks again.
_LONGEST_MS = (1 << 31) - 1
_RESETTING = struct.pack("ii", 1, 0)


@final
class Misbehaviour(StrEnum):
    """What a DripServer does to each of its clients."""

    DRIP_BODY = "drip_body"
    """Sends the head at once, then the body byte by byte, then the end of the stream."""
    DRIP_HEADER = "drip_header"
    """Sends head and body byte by byte, then the end of the stream."""
    STALL = "stall"
    """Sends the head and half of the body at once, then nothing more."""
    RESET = "reset"
    """Sends the head and half of the body at once, and resets the connection `interval` later."""
    NEVER_ACCEPT = "never_accept"
    """Takes no connection: the system makes it, and nobody is there."""
    SILENT = "silent"
    """Takes the connection, and sends nothing."""


@final
class _Client:
    """One connection: what is sent at once, what byte by byte, how it ends, and the next step."""

    __slots__ = ("burst", "drip", "due", "ends", "sock")

    def __init__(self, sock: socket.socket, mode: Misbehaviour, head: bytes, body: bytes) -> None:
        sock.settimeout(0)
        self.sock = sock
        self.burst = b""
        self.drip = b""
        self.ends = mode in {Misbehaviour.DRIP_BODY, Misbehaviour.DRIP_HEADER}
        # In ns of the clock; None where nothing more is to come.
        self.due: int | None = None
        if mode is Misbehaviour.DRIP_BODY:
            self.burst, self.drip = head, body
        elif mode is Misbehaviour.DRIP_HEADER:
            self.drip = head + body
        elif mode is not Misbehaviour.SILENT:
            self.burst = head + body[: len(body) // 2]

    def step(self) -> bool:
        """Send what is to be sent now; say whether something is left to be sent later."""
        # A client that does not read is not waited for: the same bytes, the next time. One that
        # has gone is told of by the poll.
        with suppress(OSError):
            if self.burst:
                self.burst = self.burst[self.sock.send(self.burst) :]
            else:
                self.drip = self.drip[self.sock.send(self.drip[:1]) :]
            if self.ends and not (self.burst or self.drip):
                self.sock.shutdown(socket.SHUT_WR)
        return bool(self.burst or self.drip)

    def reset(self) -> None:
        """End the connection so that the client's next read fails."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETTING)
        self.sock.close()


@final
class DripServer:
    """A misbehaving peer at `address`, in a thread of its own, until it is closed.

    with DripServer(Misbehaviour.STALL) as peer, peer.connect() as sock: ...

    Args:
        mode: what it does to each client.
        head: what comes before the body, such as the head of an HTTP response.
        body: what a client waits for.
        interval: seconds before each byte, and before a reset.
    """

    def __init__(
        self,
        mode: Misbehaviour = Misbehaviour.DRIP_BODY,
        *,
        head: bytes = b"",
        body: bytes = b"one byte at a time",
        interval: Seconds = 0.05,
    ) -> None:
        self._mode = member(mode, "mode", Misbehaviour)
        self._head = _bytes(head, "head")
        self._body = _bytes(body, "body")
        self._interval = nanoseconds(interval, "interval")
        self._clients: dict[int, _Client] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0)
        host, port = self._listener.getsockname()
        self.address: tuple[str, int] = (host, port)
        """Where it listens: host and port, as `socket.create_connection` takes them."""
        self._awake, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name=f"drip {mode}", daemon=True)
        self._thread.start()

    def connect(self, *, timeout: float = 5.0) -> socket.socket:
        """Return a client's blocking socket that is connected to this server.

        `timeout` bounds the connecting alone, in real seconds.
        """
        sock = socket.create_connection(self.address, timeout=timeout)
        sock.settimeout(None)
        return sock

    def close(self) -> None:
        """End: the thread has returned and every socket is closed. Closing twice is no error."""
        with suppress(OSError):
            self._wake.send(b"!")
        self._thread.join()
        self._wake.close()

    def __enter__(self) -> DripServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<DripServer {self._mode} at {self.address[0]}:{self.address[1]}>"

    def _serve(self) -> None:
        self._poller = poll()
        self._poller.register(self._awake, POLLIN)
        if self._mode is not Misbehaviour.NEVER_ACCEPT:
            self._poller.register(self._listener, POLLIN)
        try:
            while self._turn():
                pass
        finally:
            for each in self._clients.values():
                each.sock.close()
            self._listener.close()
            self._awake.close()

    def _turn(self) -> bool:
        """Wait for clients or the next byte, and do what is due; False at the end."""
        for fd, _ in self._poller.poll(self._next_ms()):
            if fd == self._awake.fileno():
                return False
            if fd == self._listener.fileno():
                self._accept()
            else:
                self._hear(fd)
        now = MONOTONIC.now_ns()
        for fd, client in list(self._clients.items()):
            if client.due is not None and client.due <= now:
                self._act(fd, client, now)
        return True

    def _next_ms(self) -> int | None:
        """Return the ms until the next step, rounded up; None without one."""
        dues = [each.due for each in self._clients.values() if each.due is not None]
        if not dues:
            return None
        left = max(0, min(dues) - MONOTONIC.now_ns())
        return min(-(-left * 1000 // NS), _LONGEST_MS)

    def _accept(self) -> None:
        # The client may have gone in between.
        with suppress(OSError):
            sock, _ = self._listener.accept()
            client = _Client(sock, self._mode, self._head, self._body)
            self._clients[sock.fileno()] = client
            self._poller.register(sock, POLLIN)
            now = MONOTONIC.now_ns()
            if client.burst:
                client.due = now
            elif self._mode not in {Misbehaviour.STALL, Misbehaviour.SILENT}:
                client.due = now + self._interval

    def _hear(self, fd: int) -> None:
        """Forget what a client sends, and let go of one that has gone."""
        try:
            gone = not self._clients[fd].sock.recv(65_536)
        except OSError:
            gone = True
        if gone:
            self._drop(fd)

    def _act(self, fd: int, client: _Client, now: int) -> None:
        if self._mode is Misbehaviour.RESET and not client.burst:
            self._poller.unregister(fd)
            self._clients.pop(fd).reset()
            return
        more = client.step() or self._mode is Misbehaviour.RESET
        client.due = now + self._interval if more else None

    def _drop(self, fd: int) -> None:
        self._poller.unregister(fd)
        self._clients.pop(fd).sock.close()


def _bytes(value: object, name: str) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        msg = f"{name} must be bytes, not {type(value).__name__} {shown(value)}"
        raise TypeError(msg)
    return bytes(value)
