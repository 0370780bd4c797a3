"""The calls of a `DeadlineSocket`, plain or TLS: each obeys one deadline.

Rules (W1, W2, R9, R14 of the contracts):
- It is a real socket, and takes over the one it is made of. The timeout that a client sets is kept
  as a limit of one call, as the client means it, and never reaches the system's calls.
- A call is tried first, and waited for by the deadline's clock only when it would block. It ends
  at the earlier of the two limits: the deadline's with `DeadlineExceeded`, which clients take for
  the `TimeoutError` that it is; the client's with a plain `TimeoutError`.
- An expired deadline begins nothing. What a call has taken it returns, however late it is.
- With timeout 0 a call waits for nothing, and so needs no bound.
- Ambient (no deadline given), a call is bounded by the `bounding` blocks around it, and a read
  also by those around the last send: a body that is streamed keeps the deadline of its request.

What must not live here: lookup and connecting (connection.py), buffering (deadline_file.py), TLS
(deadline_socket.py).
"""

from __future__ import annotations

import errno
import select
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from timebounds._checks import NS, nanoseconds, readable
from timebounds.blocking.bounding import as_bound, current_deadline, returned
from timebounds.blocking.waiting import Limit, Wait, fill
from timebounds.bounds.deadline import Deadline
from timebounds.errors import DeadlineExceeded, StopRequested, Unfinished

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from _typeshed import ReadableBuffer, WriteableBuffer

    from timebounds.blocking.bounding import Bound

__all__: list[str] = []

T = TypeVar("T")

_NO_BOUND = Deadline.never()
_DONTWAIT = getattr(socket, "MSG_DONTWAIT", 0)


class BoundedCalls(socket.socket):
    """What plain and TLS ones have in common."""

    _bound: Deadline | Callable[[], Bound] | None = None
    # Of the last send, where the deadline is ambient.
    _request: Bound = None
    _own: int | None = None
    # As it was said, in seconds.
    _said: float | None = None
    # Whether the TLS layer holds a record half sent: nothing else may follow.
    _half: bool = False
    # Of TLS sockets: connected, and so at their handshake or beyond it.
    _connected: bool = False
    # With it the system does not wait although the descriptor is blocking.
    _flags: int = getattr(socket, "MSG_DONTWAIT", 0)

    def _begin(self, deadline: Deadline | Callable[[], Bound] | None, own: float | None) -> None:
        self._bound = deadline
        self._request = None
        self.settimeout(own)

    @property
    def deadline(self) -> Bound:
        """The deadline that holds for a read now; None without one. Set another for a request."""
        bound = self._bound
        if isinstance(bound, Deadline):
            return bound
        return self._ambient() if bound is None else returned(bound)

    @deadline.setter
    def deadline(self, deadline: Deadline | Callable[[], Bound] | None) -> None:
        self._bound = as_bound(deadline)
        self._request = None

    def _ambient(self) -> Bound:
        here, request = current_deadline(), self._request
        if here is None:
            return request
        if request is None or request is here or request.clock is not here.clock:
            return here
        return here.earliest(request)

    # How one call is bounded.

    def _do(self, what: str, events: int, fn: Callable[..., T], *args: Any) -> T:
        """Call `fn` until it does not block, waiting within both limits."""
        own = self._own
        if own == 0:
            return fn(*args)
        if self._bound is None:
            deadline = current_deadline()
            # Mostly that of the request, or none at all.
            if deadline is not self._request:
                deadline = self._ambient()
        else:
            deadline = self.deadline
        if deadline is None:
            deadline = _NO_BOUND
        began = deadline._now()
        stop = deadline._stop
        if began >= deadline._at or (stop is not None and stop.requested()):
            deadline.check(what)
        wait: Wait | None = None
        while True:
            try:
                return fn(*args)
            except OSError as error:
                blocked = self._blocked(error)
                if not blocked:
                    raise
                # Of the two directions TLS may ask for either.
                wanted = blocked if blocked > 0 else events
            if wait is None:
                left = deadline._at - began
                wait = Wait(Limit(left if own is None else min(left, own), began), deadline)
            if not wait.ready(self.fileno(), wanted):
                raise self._ended(what, deadline)

    def _blocked(self, error: OSError) -> int:
        """Return the poll events to wait for; -1 for those of the call, 0 for another error."""
        return -1 if isinstance(error, BlockingIOError) else 0

    def _ended(self, what: str, deadline: Deadline) -> Exception:
        """Return the error for a wait that ended in silence."""
        now = deadline._now()
        if deadline._stop is not None and deadline._stop.requested():
            return StopRequested(deadline._stopped(what, now))
        if now >= deadline._at:
            return DeadlineExceeded(deadline._missed(what, now))
        return TimeoutError("timed out")

    def _sends(self) -> None:
        """A send begins: what is read afterwards answers it."""
        if self._bound is None:
            self._request = current_deadline()
        if self._half and self._own != 0:
            msg = "a TLS record was sent in part, and nothing else can follow: close the socket"
            raise Unfinished(msg)

    # What clients call.

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receive at most `bufsize` bytes."""
        if flags & _DONTWAIT:
            return super().recv(bufsize, flags)
        if self._whole(flags):
            room = bytearray(bufsize)
            del room[self.recv_into(room, 0, flags) :]
            return bytes(room)
        return self._do("recv", select.POLLIN, super().recv, bufsize, flags | self._flags)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = 0, flags: int = 0) -> int:
        """Receive into `buffer`; return how many bytes."""
        size, into = nbytes or 0, super().recv_into
        if flags & _DONTWAIT:
            return into(buffer, size, flags)
        if self._whole(flags):
            return fill(self.recv_into, buffer, size, flags & ~socket.MSG_WAITALL)
        return self._do("recv", select.POLLIN, into, buffer, size, flags | self._flags)

    def _whole(self, flags: int) -> bool:
        """Say whether a receive is to wait for all, which the system would not do here."""
        waits = self._own is None and self._flags
        return bool(waits) and flags & (socket.MSG_WAITALL | socket.MSG_PEEK) == socket.MSG_WAITALL

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """Receive at most `bufsize` bytes, and from where."""
        return self._flagged("recv", super().recvfrom, (bufsize,), flags)

    def recvfrom_into(
        self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0
    ) -> tuple[int, Any]:
        """Receive into `buffer`; return how many bytes, and from where."""
        return self._flagged("recv", super().recvfrom_into, (buffer, nbytes), flags)

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]:
        """Receive a message and what comes beside it."""
        return self._flagged("recv", super().recvmsg, (bufsize, ancbufsize), flags)

    def recvmsg_into(
        self, buffers: Iterable[WriteableBuffer], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[tuple[int, int, bytes]], int, Any]:
        """Receive a message into buffers, and what comes beside it."""
        # It may be tried more than once.
        rooms = list(buffers)
        return self._flagged("recv", super().recvmsg_into, (rooms, ancbufsize), flags)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send some of `data`; return how many bytes."""
        self._sends()
        return self._flagged("send", self._send_some, (data,), flags)

    def sendall(self, data: ReadableBuffer, flags: int = 0, /) -> None:
        """Send all of `data`; both limits hold for the whole of it."""
        self._sends()
        # The caller's buffer is free again when this ends, and while its error is looked at.
        with readable(data, "data") as view:
            self._flagged("send", self._send_rest, (view, [0]), flags)

    def sendmsg(
        self,
        buffers: Iterable[ReadableBuffer],
        ancdata: Iterable[Any] = (),
        flags: int = 0,
        address: Any = None,
        /,
    ) -> int:
        """Send a message and what goes beside it."""
        self._sends()
        parts, beside = list(buffers), list(ancdata)
        to = () if address is None else (address,)
        send = super().sendmsg

        def at_once(flags: int) -> int:
            return send(parts, beside, flags, *to)

        return self._flagged("send", at_once, (), flags)

    def sendto(self, data: ReadableBuffer, *args: Any) -> int:
        """Send some of `data`; return how many bytes."""
        self._sends()
        send = super().sendto
        if len(args) not in (1, 2):
            return send(data, *args)  # which says what is missing
        flags, address = args if len(args) > 1 else (0, *args)

        def at_once(flags: int) -> int:
            return send(data, flags, address)

        return self._flagged("send", at_once, (), flags)

    def _flagged(self, what: str, fn: Callable[..., T], args: tuple[Any, ...], flags: int) -> T:
        """Call `fn(*args, flags)` within both limits; at once where the flags say so."""
        if flags & _DONTWAIT:
            return fn(*args, flags)
        events = select.POLLIN if what == "recv" else select.POLLOUT
        return self._do(what, events, fn, *args, flags | self._flags)

    def _send_some(self, data: ReadableBuffer, flags: int) -> int:
        """Send once without waiting."""
        return super().send(data, flags)

    def _send_rest(self, data: memoryview, sent: list[int], flags: int) -> None:
        """Send until it would block; remember how much went out."""
        if not sent[0] and data:
            sent[0] = self._send_some(data, flags)
        while sent[0] < len(data):
            with data[sent[0] :] as rest:
                sent[0] += self._send_some(rest, flags)

    def connect(self, address: Any, /) -> None:
        """Connect within both limits; over TLS the handshake has the client's limit once more."""
        with self._switched():
            full = self._do("connect", select.POLLOUT, self._dial, super().connect, [address])
        if full is not None:
            try:
                raise full
            finally:
                del full

    def _dial(self, connect: Callable[[Any], None], tried: list[Any]) -> OSError | None:
        """Begin to connect; asked again, the system tells what came of it, with no look-up."""
        address = tried[0]
        with suppress(OSError):
            address = self.getpeername() if len(tried) > 1 else address
        tried.append(address)
        try:
            connect(address)
        except BlockingIOError as error:
            if error.errno == errno.EAGAIN:
                # A local server's queue is full, and nothing tells when it no longer is.
                return error
            raise
        return None

    def connect_ex(self, address: Any, /) -> int:
        """Connect within both limits; return an errno instead of raising what the system says."""
        if self._own == 0:
            return super().connect_ex(address)
        try:
            self.connect(address)
        except OSError as error:
            # As the standard library: of a handshake, or of a look-up, no errno would tell.
            told = self._connected or isinstance(error, (DeadlineExceeded, socket.gaierror))
            if isinstance(error, TimeoutError) and not told:
                return error.errno or errno.EAGAIN
            if told or error.errno is None:
                raise
            return error.errno
        return 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection: an ordinary blocking socket, whose TLS handshake is not bounded."""
        accept = super().accept
        with self._switched():
            return self._do("accept", select.POLLIN, accept)

    @contextmanager
    def _switched(self) -> Generator[None]:
        """Make the descriptor non-blocking for a call that takes no flags."""
        super().settimeout(0.0)
        try:
            yield
        finally:
            if self.fileno() >= 0:
                self._set_mode()

    # What clients set.

    def settimeout(self, value: float | None, /) -> None:
        """Limit each call to so many seconds; None for no limit, 0 for no waiting."""
        if value is not None and value == self._said and self._flags:
            return  # pools say the same before each request; of TLS the descriptor's mode matters
        if isinstance(value, bool):
            value = int(value)  # as the standard library takes it
        self._own = None if value is None else nanoseconds(value, "value")
        self._said = value
        self._set_mode()

    def _set_mode(self) -> None:
        """See that the system does not wait, and that a shared descriptor looks as ever."""
        blocking = self._own is None and self._flags
        super().settimeout(None if blocking else 0.0)

    def gettimeout(self) -> float | None:
        """Return the limit of a call that was set; the deadline is another matter."""
        return None if self._own is None else self._own / NS

    @property
    def timeout(self) -> float | None:
        """The limit of a call that was set."""
        return self.gettimeout()

    def setblocking(self, flag: bool, /) -> None:  # noqa: FBT001
        """Set the timeout to None or to 0."""
        self._own = None if flag else 0
        self._said = None
        self._set_mode()

    def getblocking(self) -> bool:
        """Say whether calls wait at all."""
        return self._own != 0
