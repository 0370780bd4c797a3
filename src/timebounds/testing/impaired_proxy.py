"""`ImpairedProxy`: a real connection with a bad line in between, on the loopback interface.

Rules:
- It changes when bytes come, never which: their order and number stay. What a network loses comes
  later, after a retransmission, and holds up what follows, as TCP does.
- Chance is injected: with a seeded source a run can be repeated as far as chunks come alike.
- Real sockets and real time. One thread serves all connections; it ends with `close`, which closes
  every socket.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING, Any, final

from timebounds._checks import NS, nanoseconds, shown
from timebounds.bounds.clock import MONOTONIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds._checks import Seconds
    from timebounds.bounds.backoff import RandomSource

__all__ = ["ImpairedProxy"]

# What one packet carries: each has its own delay, jitter and chance to be lost.
_SEGMENT = 1460
# A sender is held up when so much is under way, as by a window.
_WINDOW = 262_144
_RESETTING = struct.pack("ii", 1, 0)
# Real seconds: an order that comes just when the thread ends is not answered.
_PATIENCE = 5.0
_LONGEST_MS = (1 << 31) - 1
_GONE = (OSError, ValueError)


@final
class _Line:
    """One direction of a connection: what is under way, and from when on it may arrive."""

    __slots__ = ("ended", "free", "held", "last", "sink", "source", "under_way")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        # Instants and bytes; no bytes are the end of the stream.
        self.under_way: deque[tuple[int, bytes]] = deque()
        self.held = 0
        self.last = 0
        self.free = 0
        self.ended = False


@final
class ImpairedProxy:
    """A bad line to `target`: connect to `address` instead.

    with ImpairedProxy(server.getsockname(), delay=0.05, loss=0.1, rng=Random(1)) as line:
        connection = connect(line.address, deadline)

    Args:
        target: host and port of the real server.
        delay: seconds that each packet takes, in each direction.
        jitter: up to so many seconds more, by chance. Order is kept.
        loss: the chance, from 0 to 1, that a packet is lost and comes `retransmission` later.
        retransmission: seconds until a lost packet comes again.
        rate: bytes per second in each direction; None for no limit.
        rng: where chance comes from, such as `random.Random(1)`; needed for jitter and loss.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        delay: Seconds = 0.0,
        jitter: Seconds = 0.0,
        loss: float = 0.0,
        retransmission: Seconds = 0.2,
        rate: float | None = None,
        rng: RandomSource | None = None,
    ) -> None:
        self._target = target
        self._delay = nanoseconds(delay, "delay")
        self._jitter = nanoseconds(jitter, "jitter")
        self._loss = _between(loss, "loss")
        self._again = nanoseconds(retransmission, "retransmission")
        self._rate = _positive(rate, "rate")
        if rng is None and (self._jitter or self._loss):
            msg = "rng must be given where chance plays: write rng=random.Random(1)"
            raise TypeError(msg)
        self._rng = rng
        self._lines: list[_Line] = []
        self._held = False
        self._orders: deque[Callable[[], object]] = deque()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0)
        host, port = self._listener.getsockname()
        self.address: tuple[str, int] = (host, port)
        """Where it listens: host and port."""
        self._awake, self._wake = socket.socketpair()
        self._open = True
        self._thread = threading.Thread(target=self._serve, name="impaired proxy", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Let nothing pass until `let_go`: the line is silent, and nobody is told."""
        self._order(lambda: setattr(self, "_held", True))

    def let_go(self) -> None:
        """Let pass what was held, and what follows."""
        self._order(lambda: setattr(self, "_held", False))

    def reset(self) -> None:
        """Reset every connection, on both sides; what was under way is lost."""
        self._order(lambda: self._drop_all(_RESETTING))

    def close(self) -> None:
        """End: the thread has returned and every socket is closed. Closing twice is no error."""
        with suppress(OSError):
            self._order(lambda: setattr(self, "_open", False))
        self._thread.join()
        self._wake.close()

    def __enter__(self) -> ImpairedProxy:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "{}:{}".format(*self.address)
        return f"<ImpairedProxy at {where} to {self._target!r}, {len(self._lines) // 2} clients>"

    def _order(self, do: Callable[[], object]) -> None:
        """Have the thread do it, and wait until it has; OSError when it has ended."""
        done = threading.Event()
        self._orders += (do, done.set)
        self._wake.send(b"!")
        done.wait(_PATIENCE)

    def _serve(self) -> None:
        try:
            while self._open:
                self._turn()
        finally:
            self._drop_all(None)
            self._listener.close()
            # From here on an order fails.
            self._awake.close()

    def _turn(self) -> None:
        """Wait for bytes, clients, orders or the next instant, and do what is due."""
        poller = poll()
        poller.register(self._awake, POLLIN)
        poller.register(self._listener, POLLIN)
        now = MONOTONIC.now_ns()
        events: dict[int, int] = {}
        for line in self._lines:
            if not line.ended and line.held < _WINDOW:
                fd = line.source.fileno()
                events[fd] = events.get(fd, 0) | POLLIN
            if self._is_due(line, now):
                fd = line.sink.fileno()
                events[fd] = events.get(fd, 0) | POLLOUT
        for fd, wanted in events.items():
            poller.register(fd, wanted)
        ready = dict(poller.poll(self._next_ms(now)))
        if self._awake.fileno() in ready:
            self._awake.recv(100)
            while self._orders:
                self._orders.popleft()()
        if self._listener.fileno() in ready:
            self._accept()
        now = MONOTONIC.now_ns()
        for line in list(self._lines):
            try:
                if ready.get(line.source.fileno(), 0) & ~POLLOUT and not line.ended:
                    self._take(line, now)
                if self._is_due(line, now):
                    self._pass_on(line, now)
            except BlockingIOError:
                continue
            except _GONE:
                self._drop(line, _RESETTING)

    def _is_due(self, line: _Line, now: int) -> bool:
        return not self._held and bool(line.under_way) and line.under_way[0][0] <= now

    def _next_ms(self, now: int) -> int | None:
        """Return the ms until something under way arrives, rounded up; None without anything."""
        if self._held:
            return None
        dues = [each.under_way[0][0] for each in self._lines if each.under_way]
        later = [due for due in dues if due > now]
        if not later:
            return None
        return min(-(-(min(later) - now) * 1000 // NS), _LONGEST_MS)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            # As a router would tell: by a reset.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETTING)
            client.close()
            return
        for each in (client, server):
            each.settimeout(0)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines += [_Line(client, server), _Line(server, client)]

    def _take(self, line: _Line, now: int) -> None:
        """Read what came, and decide when each packet of it arrives."""
        data = line.source.recv(65_536)
        if not data:
            line.ended = True
            line.under_way.append((max(line.last, now + self._delay), b""))
            return
        for start in range(0, len(data), _SEGMENT):
            packet = data[start : start + _SEGMENT]
            line.last = max(line.last, self._arrival(line, now, len(packet)))
            line.under_way.append((line.last, packet))
        line.held += len(data)

    def _arrival(self, line: _Line, now: int, size: int) -> int:
        at = now
        if self._rate is not None:
            at = line.free = max(line.free, now) + round(size / self._rate * NS)
        at += self._delay
        if self._rng is not None:
            at += round(self._jitter * self._rng.random())
            while self._rng.random() < self._loss:
                at += self._again
        return at

    def _pass_on(self, line: _Line, now: int) -> None:
        while self._is_due(line, now):
            due, packet = line.under_way[0]
            if not packet:
                line.under_way.popleft()
                self._end(line)
                return
            sent = line.sink.send(packet)
            line.held -= sent
            line.under_way.popleft()
            if sent < len(packet):
                line.under_way.appendleft((due, packet[sent:]))

    def _end(self, line: _Line) -> None:
        """Tell the end of one direction; let go of a connection that has ended in both."""
        line.sink.shutdown(socket.SHUT_WR)
        other = next(each for each in self._lines if each.source is line.sink)
        if other.ended and not other.under_way:
            self._drop(line, None)

    def _drop(self, line: _Line, linger: bytes | None) -> None:
        pair = (line.source, line.sink)
        for each in [each for each in self._lines if each.source in pair]:
            self._lines.remove(each)
            # Whoever has both at hand finds nothing to do for the other one.
            each.under_way.clear()
        for sock in pair:
            if linger is not None:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.close()

    def _drop_all(self, linger: bytes | None) -> None:
        while self._lines:
            self._drop(self._lines[0], linger)


def _between(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        msg = f"{name} must be a chance such as 0.1, from 0 to less than 1, not {shown(value)}"
        raise ValueError(msg)
    return float(value)


def _positive(value: Any, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        msg = f"{name} must be bytes per second such as 10_000, or None, not {shown(value)}"
        raise ValueError(msg)
    return float(value)
