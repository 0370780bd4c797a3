"""Every strategy for waiting on a socket; nothing else in the package knows sockets' modes.

Rules (R8, R9, R11, R13, R15, R17-R19 of the contracts):
- The socket is borrowed: never closed, and its timeout afterwards is what it was before.
- *Plain stream sockets* are switched at no moment. They are read without blocking first, and
  polled only when that would block: one system call for a read with data ready. A blocking one
  is read with MSG_DONTWAIT. One with a timeout of its own would be polled by Python first, so it
  is read through its descriptor, which then is non-blocking already.
- The bytes go from the kernel to the store by a chain that is all C: a signal handler runs only
  between bytecodes, so what it raises finds the bytes in the kernel or in the store.
- *TLS sockets* are made non-blocking for the operation. They are read before they are waited for,
  since decrypted bytes are invisible to poll(), and waited for in the direction they ask for. An
  end without the closing message is an error that says so, not an end of the stream.
- *Any other object* with recv, settimeout and gettimeout is given each read's limit by settimeout.
- With the last two an exception out of a signal handler may lose bytes that recv had taken. The
  port then is `in_doubt`, and the receiver says so instead of guessing.
- A wait ends early only for an answer; when it ends in silence, the deadline's clock agrees.

What must not live here: deadlines, retries, outcomes.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
from typing import TYPE_CHECKING, Any, Protocol, final

from timebounds._checks import NS
from timebounds.bounds.clock import not_backwards
from timebounds.errors import BoundReached, ClockError
from timebounds.policies.inbox import Into, Reply, Target

if TYPE_CHECKING:
    from types import ModuleType

    from timebounds.bounds.deadline import Deadline

__all__ = ["SocketLike"]

_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)
_FLAGS = (_DONTWAIT,)
_DAY_NS = 86_400 * NS
# A module's name is looked up several times faster than a member of an enum.
_ANSWER = Reply.ANSWER
_SILENCE = Reply.SILENCE
# More early ends than any real socket has within one reading of its clock.
_STANDSTILL = 10_000


class SocketLike(Protocol):
    """What a receiver needs of an object that is no real socket; `recv_into` is used if it is there."""

    def recv(self, bufsize: int, /) -> bytes:
        """Return at most `bufsize` bytes, b"" at the end; raise TimeoutError in silence."""
        ...

    def settimeout(self, value: float | None, /) -> None:
        """Set the limit of one recv in seconds."""

    def gettimeout(self) -> float | None:
        """Return the limit of one recv."""
        ...


class SocketPort(Protocol):
    """A port over one socket."""

    in_doubt: bool
    """Whether an exception may have lost bytes inside recv."""

    def read_now(self, target: Target, /) -> bool:
        """Read without waiting, where this port can; False when there is nothing yet."""
        ...

    def perform(self, target: Target, deadline: Deadline, /) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        ...

    def give_back(self) -> None:
        """Leave the socket as it was lent, whatever happened."""


def port_for(sock: SocketLike | socket.socket) -> SocketPort:
    """Return the port for a socket, or say why it can not be received from.

    Raises:
        TypeError: a datagram socket, or no socket-like object at all.
        ValueError: the socket is closed.
    """
    needed = ("recv", "settimeout", "gettimeout")
    missing = [name for name in needed if not callable(getattr(sock, name, None))]
    if missing:
        msg = (
            f"sock must be a connected stream socket, or have recv, settimeout and gettimeout: "
            f"{type(sock).__name__} has no {' and no '.join(missing)}"
        )
        raise TypeError(msg)
    kind = getattr(sock, "type", socket.SOCK_STREAM)
    if kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        msg = (
            f"sock must be a stream socket, not {kind!r}: a datagram that is cut short is lost, "
            "so a deadline over many of them needs another kind of receiver"
        )
        raise TypeError(msg)
    if isinstance(sock, socket.socket):
        if sock.fileno() < 0:
            msg = "sock is closed: make the receiver while the connection is open"
            raise ValueError(msg)
        # ssl is loaded wherever a TLS socket exists, and costs much where none does.
        ssl = sys.modules.get("ssl")
        if ssl is not None and isinstance(sock, ssl.SSLSocket):
            return TlsPort(sock, ssl)
        cls = type(sock)
        in_c = cls.recv is socket.socket.recv and cls.recv_into is socket.socket.recv_into
        if in_c and _DONTWAIT:
            return PlainPort(sock)
    return TimeoutPort(sock)




@final
class _Wait:
    """The waiting of one read: how much of its limit is left, by the deadline's clock."""

    __slots__ = ("_deadline", "_last", "_limit", "_start")

    def __init__(self, limit: int | None, deadline: Deadline) -> None:
        self._deadline = deadline
        self._limit = limit
        self._start = self._last = deadline._now()

    def left(self) -> int | None:
        """Read the clock and return the nanoseconds left: 0 when over, None without a limit."""
        now = self._deadline._now()
        not_backwards(self._last, now)
        self._last = now
        return None if self._limit is None else max(0, self._start + self._limit - now)

    def standing_still(self) -> bool:
        """Say whether the clock has not moved since the wait began."""
        return self._last == self._start

    def ready(self, fd: int, events: int) -> bool:
        """Wait until `fd` is ready for `events`; False when the limit is over first."""
        poller = select.poll()
        poller.register(fd, events)
        left = self.left()
        while left is None or left > 0:
            found = self._deadline.clock.poll(poller, None if left is None else left / NS)
            if found and found[0][1] & select.POLLNVAL:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if found:
                return True
            left = self.left()
        return False


@final
class PlainPort:
    """A stream socket whose recv is the system's own: read first, never switched."""

    __slots__ = ("_sock", "in_doubt")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.in_doubt = False

    def read_now(self, target: Target) -> bool:
        """Read without waiting; False when there is nothing yet."""
        sock = self._sock
        stored: list[Any] = target.counts if type(target) is Into else target.chunks
        before = len(stored)
        try:
            if sock.gettimeout():
                _read_descriptor(target, sock)
            # One chain of C calls from the kernel to the store.
            elif type(target) is Into:
                stored.extend(map(sock.recv_into, (target.view[-target.ask :],), (0,), _FLAGS))
            else:
                stored.extend(map(sock.recv, (target.ask,), _FLAGS))
        except BlockingIOError:
            return False
        if len(stored) == before:
            # `map` takes a StopIteration for its end, and nothing stored would look like EOF.
            msg = "a signal handler raised StopIteration during a read"
            raise RuntimeError(msg)
        return True

    def perform(self, target: Target, deadline: Deadline) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        wait: _Wait | None = None
        while not self.read_now(target):
            # Nothing yet, or another reader was faster, or a wake-up for nothing.
            wait = wait or _Wait(target.limit, deadline)
            if not wait.ready(self._sock.fileno(), select.POLLIN):
                return _SILENCE
        return _ANSWER

    def give_back(self) -> None:
        """Nothing was changed."""


def _read_flagged(target: Target, sock: socket.socket) -> None:
    """Read without blocking, by one chain of C calls from the kernel to the store."""
    if type(target) is Into:
        rest = target.view[-target.ask :]
        target.counts.extend(map(sock.recv_into, (rest,), (0,), _FLAGS))
    else:
        target.chunks.extend(map(sock.recv, (target.ask,), _FLAGS))


def _read_descriptor(target: Target, sock: socket.socket) -> None:
    """Read from a socket with a timeout of its own, which Python would poll first."""
    fd = sock.fileno()
    if os.get_blocking(fd):
        # Somebody who shares the descriptor made it blocking under the socket's own timeout.
        with socket.socket(sock.family, sock.type, sock.proto, os.dup(fd)) as twin:
            twin.settimeout(None)
            _read_flagged(target, twin)
    elif type(target) is Into:
        target.counts.extend(map(os.readv, (fd,), ([target.view[-target.ask :]],)))
    else:
        target.chunks.extend(map(os.read, (fd,), (target.ask,)))


@final
class TlsPort:
    """A TLS socket: non-blocking for the operation, read before it is waited for."""

    __slots__ = ("_lent", "_sock", "_ssl", "in_doubt")

    def __init__(self, sock: Any, ssl: ModuleType) -> None:
        self._sock = sock
        self._ssl: Any = ssl
        self._lent: tuple[float | None, bool] | None = None
        self.in_doubt = False

    def read_now(self, target: Target) -> bool:
        """Read what is decrypted, or can be, without waiting."""
        self._borrow()
        return not self._read(target)

    def perform(self, target: Target, deadline: Deadline) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        self._borrow()
        wait: _Wait | None = None
        while True:
            events = self._read(target)
            if not events:
                return _ANSWER
            wait = wait or _Wait(target.limit, deadline)
            if not wait.ready(self._sock.fileno(), events):
                return _SILENCE

    def give_back(self) -> None:
        """Leave the socket as it was lent."""
        if self._lent is not None:
            timeout, self._sock.suppress_ragged_eofs = self._lent
            _restore_timeout(self._sock, timeout)
            self._lent = None

    def _borrow(self) -> None:
        if self._lent is None:
            self._lent = (self._sock.gettimeout(), self._sock.suppress_ragged_eofs)
        self._sock.settimeout(0.0)
        # With it, a connection that was cut looks like one that was closed.
        self._sock.suppress_ragged_eofs = False

    def _read(self, target: Target) -> int:
        """Read without waiting; return the poll events to wait for, or 0 when answered."""
        try:
            self.in_doubt = True
            _store(target, self._sock)
        except (self._ssl.SSLWantReadError, BlockingIOError):
            events = select.POLLIN
        except self._ssl.SSLWantWriteError:
            events = select.POLLOUT
        except OSError as error:
            self.in_doubt = False
            if isinstance(error, self._ssl.SSLEOFError):
                error.add_note("truncated: the TLS stream ended without its closing message")
            raise
        else:
            events = 0
        self.in_doubt = False
        return events


@final
class TimeoutPort:
    """Any object with recv and settimeout: each read's limit is set as its timeout."""

    __slots__ = ("_lent", "_sock", "in_doubt")

    def __init__(self, sock: SocketLike) -> None:
        self._sock = sock
        self._lent: tuple[float | None] | None = None
        self.in_doubt = False

    def read_now(self, target: Target) -> bool:  # noqa: ARG002
        """Say no: what recv does without a limit, only the object knows."""
        return False

    def perform(self, target: Target, deadline: Deadline) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        if self._lent is None:
            self._lent = (self._sock.gettimeout(),)
        wait = _Wait(target.limit, deadline)
        left = target.limit
        timeouts = 0
        while left is None or left > 0:
            self._sock.settimeout(min(left or _DAY_NS, _DAY_NS) / NS)
            if self._read(target):
                return _ANSWER
            left = wait.left()
            timeouts += 1
            if timeouts >= _STANDSTILL and wait.standing_still():
                msg = (
                    f"the socket timed out {timeouts} times while {deadline.clock!r} stood still: "
                    "give the deadline the clock by which the socket waits"
                )
                raise ClockError(msg)
        return _SILENCE

    def give_back(self) -> None:
        """Leave the socket as it was lent."""
        if self._lent is not None:
            _restore_timeout(self._sock, self._lent[0])
            self._lent = None

    def _read(self, target: Target) -> bool:
        """Read once; False when the socket's timeout passed without an answer."""
        try:
            self.in_doubt = True
            got = _store(target, self._sock)
        except TimeoutError as error:
            self.in_doubt = False
            if error.errno is not None or isinstance(error, BoundReached):
                raise  # a dead connection, or a bound of somebody below
            return False
        except OSError:
            self.in_doubt = False
            raise
        self.in_doubt = False
        if got > target.ask:
            name = type(self._sock).__name__
            msg = f"{name}.recv({target.ask}) returned {got} bytes: all are kept"
            raise RuntimeError(msg)
        return True


def _store(target: Target, sock: Any) -> int:
    """Receive once from an object whose recv is Python; store all it gives, return how much."""
    ask = target.ask
    if type(target) is Into and hasattr(sock, "recv_into"):
        got: int = sock.recv_into(target.view[-ask:], ask)
        if not 0 <= got <= ask:
            msg = f"{type(sock).__name__}.recv_into counted {got} bytes in a buffer of {ask}"
            raise RuntimeError(msg)
        target.counts.append(got)
        return got
    data = sock.recv(ask)
    if not isinstance(data, (bytes, bytearray)):
        msg = f"{type(sock).__name__}.recv({ask}) returned {type(data).__name__}, not bytes"
        raise TypeError(msg)
    surplus = data
    if type(target) is Into:
        target.view[-ask:][: len(data)] = data[:ask]
        target.counts.append(min(len(data), ask))
        surplus = data[ask:]
    target.chunks.append(surplus)
    return len(data)


def _restore_timeout(sock: Any, timeout: float | None) -> None:
    try:
        sock.settimeout(timeout)
    except OSError:
        # Closed meanwhile, by whoever owns it. Whatever ended the operation says so already.
        return
