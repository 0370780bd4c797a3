"""How a task reads: from a stream reader, and from a raw socket through its loop.

Rules (R4, R9, R14 of the contracts):
- What is there already is taken at once, without a turn of the loop.
- A read that waits is a coroutine of the reader that is stepped by hand: it is waited for by the
  deadline's clock, woken by its stop, and closed when the limit is over. No task is cancelled, and
  no byte is taken by a read that nobody waits for.
- Bytes are stored in the step that takes them: no await lies between.

What must not live here: deadlines, retries, outcomes.
"""

from __future__ import annotations

import errno
import os
import socket
from abc import abstractmethod
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final

from timebounds._checks import NS, running_loop
from timebounds.bounds.alarm import not_backwards
from timebounds.bounds.waking import tell
from timebounds.errors import Busy
from timebounds.policies.inbox import Into, Target
from timebounds.policies.plan import Reply, Timed, one_turn

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Generator

    from timebounds.bounds.deadline import Deadline

__all__ = ["ReaderLike"]

CommandT = TypeVar("CommandT", bound=Timed)

_ANSWER = Reply.ANSWER
_SILENCE = Reply.SILENCE


class ReaderLike(Protocol):
    """What a receiver needs of a stream reader; `asyncio.StreamReader` has it."""

    def read(self, n: int = -1, /) -> Awaitable[bytes]:
        """Return at most `n` bytes, b"" at the end.

        It is stepped by hand: it may await futures, has no limit of its own inside, and takes no
        byte when it is closed while it waits.
        """
        ...


Source = ReaderLike | socket.socket


class TaskPort(Protocol):
    """A port over one stream, for tasks."""

    def at_once(self, target: Target, /) -> bool:
        """Read without waiting; False when there is nothing yet."""
        ...

    async def perform(self, target: Target, deadline: Deadline, /) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        ...

    def give_back(self) -> None:
        """Leave nothing behind in the stream or the loop."""


def port_for(source: object) -> TaskPort:
    """Return the port for a reader or a non-blocking socket, or say why there is none.

    Raises:
        TypeError: neither of them, a datagram socket, or a TLS socket.
        ValueError: a closed or blocking socket.
    """
    if isinstance(source, socket.socket):
        check_raw(source, "source", "recv", "reader", "receiver")
        return RawPort(source)
    if callable(getattr(source, "read", None)):
        return StreamPort(source)
    blocking = ": a blocking one belongs to BudgetedReceiver" * hasattr(source, "recv")
    name = type(source).__name__
    msg = f"source must be an asyncio.StreamReader or a non-blocking socket, not {name}{blocking}"
    raise TypeError(msg)


def check_raw(sock: socket.socket, name: str, verb: str, stream: str, door: str) -> None:
    """Say why a task can not use this socket, if it can not."""
    if sock.type != socket.SOCK_STREAM:
        msg = f"{name} must be a stream socket, not {sock.type!r}"
        raise TypeError(msg)
    if getattr(type(sock), verb) is not getattr(socket.socket, verb):
        kind = type(sock).__name__
        msg = f"{name} is a {kind}: for TLS use the {stream} of asyncio.open_connection(ssl=...)"
        raise TypeError(msg)
    if sock.fileno() < 0:
        msg = f"{name} is closed: make the {door} while the connection is open"
        raise ValueError(msg)
    if sock.gettimeout() != 0.0:
        msg = f"{name} must be non-blocking in a loop: call {name}.setblocking(False) first"
        raise ValueError(msg)


async def wait(future: Future[Any], target: Timed, deadline: Deadline) -> bool:
    """Wait until `future` is done; False when the target's limit, or a stop, is first."""
    stop, clock = deadline._stop, deadline._clock
    if stop is None:
        if target.limit is None:
            await clock.await_done(future, None)
        else:
            left = _left(target, deadline)
            while left > 0 and not await clock.await_done(future, left / NS):
                left = _left(target, deadline)
        return future.done()
    loop = running_loop()
    woken = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    future.add_done_callback(wake)
    registration = stop.on_request(lambda: tell(loop, wake))
    try:
        limit = None if target.limit is None else max(0, _left(target, deadline)) / NS
        await clock.await_done(woken, limit)
    finally:
        registration.remove()
        future.remove_done_callback(wake)
    return future.done()


def _left(target: Timed, deadline: Deadline) -> int:
    assert target.limit is not None
    now = deadline._now()
    not_backwards(target.since, now)
    return target.since + target.limit - now


@final
class StreamPort:
    """A stream reader, read by stepping its `read`."""

    __slots__ = ("_reader", "_step", "_streak")

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._streak = 0
        # A read that waits, and what it waits for.
        self._step: tuple[Generator[Any, None, bytes], Future[Any]] | None = None

    def at_once(self, target: Target) -> bool:
        """Read without waiting; False when there is nothing yet."""
        step: Any
        if self._step is None:
            reading = step = self._reader.read(target.ask)
            if type(reading) is CoroutineType:
                pass  # it is stepped as it is
            elif not hasattr(reading, "__await__"):
                if isinstance(reading, bytes):
                    _store(target, reading)
                name = type(self._reader).__name__
                msg = f"{name}.read is not async: a blocking reader belongs to a thread"
                raise TypeError(msg)
            else:
                step = reading.__await__()
        else:
            step, _ = self._step
            self._step = None
        try:
            waits_for = step.send(None)
        except StopIteration as end:
            _store(target, end.value)
            return True
        if waits_for is None:
            # It only wants the loop to make a turn.
            waits_for = running_loop().create_future()
            running_loop().call_soon(settle, waits_for)
        # As a task does it: who takes the future takes this mark, too.
        waits_for._asyncio_future_blocking = False
        self._step = (step, waits_for)
        return False

    async def perform(self, target: Target, deadline: Deadline) -> Reply:
        """Read once, waiting at most the target's limit on the deadline's clock."""
        try:
            # One that at_once has left waiting is waited for first.
            while self._step is not None or not self.at_once(target):
                assert self._step is not None
                if not await wait(self._step[1], target, deadline):
                    return _SILENCE
                if self.at_once(target):
                    break
        except BaseException:
            if self._step is not None and self._step[1].done():
                # It may have taken bytes already: they are stored, whatever ends this.
                self._finish(target)
            raise
        finally:
            self.give_back()
        self._streak = await fair(self._streak)
        return _ANSWER

    def give_back(self) -> None:
        """Give up a read that waits: the reader is free for whoever comes."""
        if self._step is not None:
            self._step[0].close()
            self._step = None

    def _finish(self, target: Target) -> None:
        try:
            self.at_once(target)
        except Exception:  # noqa: BLE001  (what ends the receive is on its way)
            return


def _store(target: Target, data: object) -> None:
    """Store what a read brought, all of it; complain when that is not what was asked for."""
    if not isinstance(data, (bytes, bytearray)):
        msg = f"read({target.ask}) returned {type(data).__name__}, not bytes"
        raise TypeError(msg)
    ask = target.ask
    if type(target) is Into:
        target.view[-ask:][: len(data)] = data[:ask]
        target.counts.append(min(len(data), ask))
        if len(data) <= ask:
            return
        target.chunks.append(bytes(data[ask:]))
    else:
        target.chunks.append(bytes(data))
    if len(data) > ask:
        msg = f"read({ask}) returned {len(data)} bytes: all are kept"
        raise RuntimeError(msg)


class Raw(Generic[CommandT]):
    """A non-blocking socket: tried first, watched by the loop only when that would block."""

    __slots__ = ("_sock", "_streak")

    # What the loop is asked to do, and to do no more.
    _watch: tuple[str, str, str]

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._streak = 0

    @abstractmethod
    def at_once(self, command: CommandT, /) -> bool:
        """Do it without waiting; False when that would block."""

    async def perform(self, command: CommandT, deadline: Deadline) -> Reply:
        """Do it once, waiting at most the command's limit on the deadline's clock."""
        loop = running_loop()
        add, remove, who = self._watch
        while not self.at_once(command):
            ready = loop.create_future()
            fd = self._sock.fileno()
            if fd < 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            watch = (id(loop), fd, who)
            if watch in _watched:
                msg = f"another {who} waits for descriptor {fd}: one user at a time"
                raise Busy(msg)
            _watched.add(watch)
            getattr(loop, add)(fd, settle, ready)
            try:
                if not await wait(ready, command, deadline):
                    return _SILENCE
            finally:
                _watched.discard(watch)
                # Closed meanwhile, its number may be somebody else's.
                if self._sock.fileno() == fd:
                    getattr(loop, remove)(fd)
        self._streak = await fair(self._streak)
        return _ANSWER

    def give_back(self) -> None:
        """Nothing is left behind."""


@final
class RawPort(Raw[Target]):
    """A non-blocking stream socket to receive from."""

    __slots__ = ()

    _watch = ("add_reader", "remove_reader", "receiver")

    def at_once(self, target: Target, /) -> bool:
        """Read without waiting; False when there is nothing yet."""
        sock, ask = self._sock, target.ask
        try:
            # One chain of C calls from the kernel to the store.
            if type(target) is Into:
                target.counts.extend(map(sock.recv_into, (target.view[-ask:],), (0,), FLAGS))
            else:
                target.chunks.extend(map(sock.recv, (ask,), FLAGS))
        except BlockingIOError:
            return False
        return True


# Reads without a turn of the loop, after which it is given one: a fast peer must not stop it.
_FAIR = 32
FLAGS = (getattr(socket, "MSG_DONTWAIT", 0),)
_watched: set[tuple[int, int, str]] = set()


async def fair(streak: int) -> int:
    """Count a read; let the loop make a turn after so many."""
    if streak < _FAIR:
        return streak + 1
    await one_turn()
    return 0


def settle(ready: Future[None]) -> None:
    """Wake who waits, unless that has happened."""
    if not ready.done():
        ready.set_result(None)
