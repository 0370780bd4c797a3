"""What the ports of sockets share: what a socket looks like, and how long one wait may last.

Rules: a wait ends early only for an answer, or when the deadline's stop signal was requested, which
wakes it from any thread; when it ends in silence otherwise, the deadline's clock agrees.
"""

from __future__ import annotations

import errno
import os
import select
from typing import TYPE_CHECKING, Protocol, final

from timebounds._checks import NS
from timebounds.bounds.alarm import not_backwards
from timebounds.bounds.waking import Waking
from timebounds.errors import BoundReached
from timebounds.policies.plan import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

    from timebounds.bounds.clock import Poller
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.inbox import Target
    from timebounds.policies.plan import Timed

__all__ = ["SocketLike"]

# A module's name is looked up several times faster than a member of an enum.
ANSWER = Reply.ANSWER
SILENCE = Reply.SILENCE


class SocketLike(Protocol):
    """What a receiver needs of an object that is no real socket; `recv_into` may be there too."""

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

    def at_once(self, target: Target, /) -> bool:
        """Read without waiting, where this port can; False when there is nothing yet."""
        ...

    def perform(self, target: Target, deadline: Deadline, /) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        ...

    def give_back(self) -> None:
        """Leave the socket as it was lent, whatever happened."""


@final
class Limit:
    """What a `Wait` needs of a command, where there is no plan."""

    __slots__ = ("ask", "limit", "since")

    ask: int
    limit: int | None
    since: int

    def __init__(self, limit: int, since: int) -> None:
        self.ask = 0
        self.limit = limit
        self.since = since


@final
class Wait:
    """The waiting of one read or send: what is left of its limit, by the deadline's clock."""

    __slots__ = ("_deadline", "_last", "_limit", "_only_errors", "_start")

    def __init__(self, command: Timed, deadline: Deadline) -> None:
        self._deadline = deadline
        self._limit = command.limit
        self._start = self._last = command.since
        self._only_errors = False

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
        """Wait until `fd` is ready for `events`; False when the limit, or a stop, is first."""
        if fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        poller = select.poll()
        if self._only_errors:
            # The socket's queue of errors stays ready and has nothing to read: do not spin on it.
            self._deadline.clock.poll(poller, 0.001)
        poller.register(fd, events)
        stop = self._deadline._stop
        if stop is None:
            return self._poll(poller, fd)
        with Waking(stop) as wake:
            poller.register(wake, select.POLLIN)
            return self._poll(poller, fd)

    def _poll(self, poller: Poller, fd: int) -> bool:
        left = self.left()
        while left is None or left > 0:
            found = dict(self._deadline.clock.poll(poller, None if left is None else left / NS))
            ready = found.get(fd, 0)
            if ready & select.POLLNVAL:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            if ready:
                self._only_errors = ready == select.POLLERR
                return True
            if found:
                return False
            left = self.left()
        return False


def fill(
    recv_into: Callable[[memoryview, int, int], int], buffer: WriteableBuffer, size: int, flags: int
) -> int:
    """Fill `buffer`; as the system does it, return what came before the end or a limit."""
    got, more = 0, 1
    with memoryview(buffer) as items, items.cast("B") as room:
        size = size or len(room)
        while more and got < size:
            with room[got:size] as rest:
                try:
                    more = recv_into(rest, 0, flags)
                except BoundReached:
                    if not got:
                        raise
                    more = 0
            got += more
    return got
