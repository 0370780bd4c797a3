"""Looking on from outside: when each read of a socket, or each wait on a clock, began and ended."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, NamedTuple, final

from timebounds import MONOTONIC, SteadyClock
from timebounds.demo.waterfall import Kind, Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds import Poller, SocketLike

__all__ = ["ReadLog", "Seen", "WatchedSocket", "WatchedStream", "WatchingClock", "as_row"]


class Seen(NamedTuple):
    """One read: instants in seconds of its clock, and how many bytes it brought."""

    start: float
    end: float
    size: int


def as_row(seen: Seen, label: str, since: float, note: str) -> Row:
    """Return the row of a read in a chart that begins at the instant `since`."""
    kind = Kind.READ if seen.size else Kind.EMPTY
    return Row(label, seen.start - since, seen.end - since, kind, note)


@final
class ReadLog:
    """Runs reads and notes them."""

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self.reads: list[Seen] = []

    def note(self, read: Callable[[], int]) -> None:
        """Run one read, which returns its number of bytes; one that raises brought none."""
        start, size = self._clock.now(), 0
        try:
            size = read()
        finally:
            self.reads.append(Seen(start, self._clock.now(), size))


@final
class WatchedStream:
    """A socket-like object whose every recv is noted in `log`."""

    def __init__(self, sock: SocketLike, log: ReadLog) -> None:
        self._sock = sock
        self._log = log

    def recv(self, bufsize: int, /) -> bytes:
        """Receive, and note it."""
        chunks: list[bytes] = []

        def read() -> int:
            chunks.append(self._sock.recv(bufsize))
            return len(chunks[0])

        self._log.note(read)
        return chunks[0]

    def settimeout(self, value: float | None, /) -> None:
        """Set the limit of one recv."""
        self._sock.settimeout(value)

    def gettimeout(self) -> float | None:
        """Return the limit of one recv."""
        return self._sock.gettimeout()


@final
class WatchedSocket(socket.socket):
    """A real socket whose `recv_into`, by which file objects read, is noted in `log`."""

    log: ReadLog

    @classmethod
    def adopt(cls, sock: socket.socket, log: ReadLog) -> WatchedSocket:
        """Take over the descriptor of `sock`, which is closed thereby, and its timeout."""
        timeout = sock.gettimeout()
        watched = cls(fileno=sock.detach())
        watched.settimeout(timeout)
        watched.log = log
        return watched

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive, and note it."""
        sizes: list[int] = []

        def read() -> int:
            sizes.append(super(WatchedSocket, self).recv_into(buffer, nbytes, flags))
            return sizes[0]

        self.log.note(read)
        return sizes[0]


@final
class WatchingClock(SteadyClock):
    """The real clock; it notes each wait for a socket that is made on it.

    The receiver under watch reads a plain socket by itself, so nothing stands between the two:
    a deadline carries its clock, and every wait goes through it.

    Args:
        held: tells how many bytes the receiver holds.
    """

    def __init__(self, held: Callable[[], int]) -> None:
        self._held = held
        self._waits: list[Seen] = []

    def now_ns(self) -> int:
        """Read the real clock."""
        return MONOTONIC.now_ns()

    def poll(self, poller: Poller, seconds: float | None) -> list[tuple[int, int]]:
        """Wait in real time, and note it."""
        held, start = self._held(), self.now()
        found = MONOTONIC.poll(poller, seconds)
        self._waits.append(Seen(start, self.now(), held))
        return found

    def reads(self) -> list[Seen]:
        """Return the waits until now, each with the bytes that came after it."""
        before = [wait.size for wait in self._waits]
        after = [*before[1:], self._held()]
        return [
            Seen(wait.start, wait.end, then - now)
            for wait, now, then in zip(self._waits, before, after, strict=False)
        ]
