"""Sockets that have to be switched for an operation, and are given back as they were.

Rules (R8, R9, R13, R18, R19 of the contracts):
- *TLS sockets* are made non-blocking for the operation. They are read before they are waited for,
  since decrypted bytes are invisible to poll(), and waited for in the direction they ask for. An
  end without the closing message is an error that says so, not an end of the stream.
- *Any other object* with recv, settimeout and gettimeout is given each read's limit by settimeout.
  Its clock is asked whether a silence was long enough.
- An exception out of a signal handler may lose bytes that a recv in Python had taken. The port
  then is `in_doubt`, and the receiver says so instead of guessing.

What must not live here: deadlines, retries, outcomes.
"""

from __future__ import annotations

import select
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from timebounds._checks import NS
from timebounds.blocking.waiting import ANSWER, SILENCE, Wait
from timebounds.errors import BoundReached, ClockError
from timebounds.policies.inbox import Into
from timebounds.policies.plan import Timed

if TYPE_CHECKING:
    from types import ModuleType

    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.inbox import Target
    from timebounds.policies.plan import Reply

CommandT = TypeVar("CommandT", bound=Timed)

_DAY_NS = 86_400 * NS
# More early ends than any real socket has within one reading of its clock.
_STANDSTILL = 10_000


class SwitchedTls(Generic[CommandT]):
    """A TLS socket: non-blocking for the operation, tried before it is waited for."""

    __slots__ = ("_lent", "_sock", "_ssl", "in_doubt")

    in_doubt: bool

    def __init__(self, sock: Any, ssl: ModuleType) -> None:
        self._sock = sock
        self._ssl: Any = ssl
        self._lent: tuple[float | None, bool] | None = None
        self.in_doubt = False

    def at_once(self, command: CommandT) -> bool:
        """Do it with what is decrypted, or can be, without waiting; False when it has to wait."""
        self._borrow()
        return not self._try(command)

    def perform(self, command: CommandT, deadline: Deadline) -> Reply:
        """Do it once, waiting at most the command's limit on the deadline's clock."""
        self._borrow()
        wait: Wait | None = None
        while True:
            events = self._try(command)
            if not events:
                return ANSWER
            wait = wait or Wait(command, deadline)
            if not wait.ready(self._sock.fileno(), events):
                return SILENCE

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

    def _try(self, command: CommandT) -> int:
        """Do it without waiting; return the poll events to wait for, or 0 when it is done."""
        try:
            self.in_doubt = True
            self._once(command)
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

    @abstractmethod
    def _once(self, command: CommandT, /) -> int:
        """Read or send once, store how much moved, and return it."""


@final
class TlsPort(SwitchedTls["Target"]):
    """A TLS socket to receive from."""

    __slots__ = ()

    def _once(self, target: Target, /) -> int:
        return _store(target, self._sock)


class SwitchedByTimeout(Generic[CommandT]):
    """Any object with settimeout: each limit is set as its timeout."""

    __slots__ = ("_lent", "_sock", "in_doubt")

    in_doubt: bool

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._lent: tuple[float | None] | None = None
        self.in_doubt = False

    def at_once(self, command: CommandT) -> bool:  # noqa: ARG002
        """Say no: what it does without a limit, only the object knows."""
        return False

    def perform(self, command: CommandT, deadline: Deadline) -> Reply:
        """Do it once, waiting at most the command's limit on the deadline's clock."""
        own = getattr(self._sock, "clock", deadline.clock)
        if own is not deadline.clock and hasattr(own, "now_ns"):
            msg = f"the socket waits on {own!r}, the deadline is on {deadline.clock!r}: use one"
            raise ClockError(msg)
        if self._lent is None:
            self._lent = (self._sock.gettimeout(),)
        wait = Wait(command, deadline)
        left = command.limit
        timeouts = 0
        while left is None or left > 0:
            self._sock.settimeout(min(left or _DAY_NS, _DAY_NS) / NS)
            if self._try(command):
                return ANSWER
            left = wait.left()
            timeouts += 1
            if timeouts >= _STANDSTILL and wait.standing_still():
                msg = (
                    f"the socket timed out {timeouts} times while {deadline.clock!r} stood still: "
                    "give the deadline the clock by which the socket waits"
                )
                raise ClockError(msg)
        return SILENCE

    def give_back(self) -> None:
        """Leave the socket as it was lent."""
        if self._lent is not None:
            _restore_timeout(self._sock, self._lent[0])
            self._lent = None

    def _try(self, command: CommandT) -> bool:
        """Do it once; False when the socket's timeout passed without an answer."""
        try:
            self.in_doubt = True
            moved = self._once(command)
        except TimeoutError as error:
            self.in_doubt = False
            if error.errno is not None or isinstance(error, BoundReached):
                raise  # a dead connection, or a bound of somebody below
            return False
        except OSError:
            self.in_doubt = False
            raise
        self.in_doubt = False
        if moved > command.ask:
            name = type(self._sock).__name__
            msg = f"{name}.recv({command.ask}) returned {moved} bytes: all are kept"
            raise RuntimeError(msg)
        return True

    @abstractmethod
    def _once(self, command: CommandT, /) -> int:
        """Read or send once, store how much moved, and return it."""


@final
class TimeoutPort(SwitchedByTimeout["Target"]):
    """Any object with recv and settimeout."""

    __slots__ = ()

    def _once(self, target: Target, /) -> int:
        return _store(target, self._sock)


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
    # A copy of what is no bytes object: its owner may use it again.
    surplus = bytes(data)
    if type(target) is Into:
        target.view[-ask:][: len(data)] = data[:ask]
        target.counts.append(min(len(data), ask))
        surplus = surplus[ask:]
    target.chunks.append(surplus)
    return len(data)


def _restore_timeout(sock: Any, timeout: float | None) -> None:
    try:
        sock.settimeout(timeout)
    except OSError:
        # Closed meanwhile, by whoever owns it. Whatever ended the operation says so already.
        return
