"""Conformance suites: what every clock and every receiver must do, the real and the fake alike.

Run them on your own: `check_clock(MyClock)`, `check_receiver(my_line)`. Each check raises
AssertionError with a sentence that says what does not hold. They are plain functions, so any test
runner will do.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from timebounds import (
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    LimitExceeded,
    PeerClosed,
    ReceiveReport,
    SteadyClock,
    Unfinished,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

__all__ = ["ReceiverLine", "check_clock", "check_receiver"]

_T = TypeVar("_T")

# Long enough to be seen on any clock, short enough to be waited for.
_STEP = 0.02


def check_clock(
    make: Callable[[], SteadyClock], *, advance: Callable[[Any, float], object] | None = None
) -> None:
    """Check that a steady clock reads, refuses, and waits as every clock must.

    Args:
        make: returns a new clock.
        advance: for a clock that only a test moves: called with the clock and seconds while
            another thread waits on it. `FakeClock.advance` preceded by `wait_until_waiting(1)`.
    """
    for check in (_reads, _refuses, _sleeps, _waits, _polls, _suspends_tasks):
        check(make(), advance)


def _during(
    clock: SteadyClock,
    advance: Callable[[Any, float], object] | None,
    seconds: float,
    verb: Callable[[], _T],
) -> tuple[_T, float]:
    """Run a waiting verb, advancing the clock meanwhile where needed; return result and seconds."""
    begin = clock.now_ns()
    if advance is None:
        result = verb()
    else:
        results: list[_T] = []
        waiting = threading.Thread(target=lambda: results.append(verb()))
        waiting.start()
        advance(clock, seconds)
        waiting.join(30)
        _expect(results, "a verb returns once its clock was advanced past its limit")
        result = results[0]
    return result, (clock.now_ns() - begin) / 1e9


def _reads(clock: SteadyClock, _: object) -> None:
    first, second, third = clock.now_ns(), clock.now(), clock.now_ns()
    _expect(type(first) is int, "now_ns() returns whole nanoseconds")
    _expect(first / 1e9 <= second <= third / 1e9, "now() is now_ns() in seconds, never decreasing")


def _refuses(clock: SteadyClock, _: object) -> None:
    wrong: tuple[Any, ...] = (float("nan"), float("inf"), -1.0, True, "1", None)
    for value in wrong:
        try:
            clock.sleep(value)
        except (TypeError, ValueError) as error:
            _expect("seconds" in str(error), "a refusal names the parameter")
        else:
            _expect(False, f"sleep({value!r}) is refused")  # noqa: FBT003
    clock.sleep(0)


def _sleeps(clock: SteadyClock, advance: Callable[[Any, float], object] | None) -> None:
    _, took = _during(clock, advance, _STEP, lambda: clock.sleep(_STEP))
    _expect(took >= _STEP, "sleep never ends early")


def _waits(clock: SteadyClock, advance: Callable[[Any, float], object] | None) -> None:
    condition = threading.Condition()

    def wait() -> bool:
        with condition:
            return clock.wait(condition, _STEP)

    notified, took = _during(clock, advance, _STEP, wait)
    _expect(not notified, "wait returns False when the time was over first")
    _expect(took >= _STEP, "wait never ends early")


def _polls(clock: SteadyClock, advance: Callable[[Any, float], object] | None) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller = poll()
        poller.register(ours.fileno(), POLLIN)
        _expect(clock.poll(poller, 0) == [], "poll of 0 seconds looks without waiting")
        found, took = _during(clock, advance, _STEP, lambda: clock.poll(poller, _STEP))
        _expect(found == [], "poll returns nothing when the time was over first")
        _expect(took >= _STEP, "poll never ends early")
        theirs.send(b"x")
        ready = [(ours.fileno(), POLLIN)]
        _expect(clock.poll(poller, 1e9) == ready, "poll returns what is ready, and only that")
        _expect(clock.poll(poller, 0) == ready, "poll of 0 seconds sees what is ready")


def _suspends_tasks(clock: SteadyClock, advance: Callable[[Any, float], object] | None) -> None:
    async def never_done() -> bool:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done = await clock.await_done(future, _STEP)
        _expect(not future.cancelled(), "await_done leaves the future alone")
        return done

    async def already_done() -> bool:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return await clock.await_done(future, None)

    _, took = _during(clock, advance, _STEP, lambda: asyncio.run(_asleep(clock)))
    _expect(took >= _STEP, "asleep never ends early")
    done, took = _during(clock, advance, _STEP, lambda: asyncio.run(never_done()))
    _expect(not done, "await_done returns False when the time was over first")
    _expect(took >= _STEP, "await_done never ends early")
    _expect(asyncio.run(already_done()), "await_done returns True when the future is done")


async def _asleep(clock: SteadyClock) -> None:
    await clock.asleep(_STEP)


class _Receiver(Protocol):
    """The verbs of a receiver."""

    @property
    def report(self) -> ReceiveReport | None: ...
    @property
    def pending(self) -> bytes: ...
    def receive_exactly(self, size: int, deadline: Deadline) -> bytes: ...
    def receive_into(self, buffer: bytearray, deadline: Deadline) -> None: ...
    def receive_until(self, delimiter: bytes, max_bytes: int, deadline: Deadline) -> bytes: ...
    def receive_some(self, max_bytes: int, deadline: Deadline) -> bytes: ...
    def resume(self, deadline: Deadline) -> bytes: ...
    def discard(self) -> bytes: ...


class ReceiverLine(Protocol):
    """A receiver, the far end of its stream, and the clock between them."""

    def receiver(self, *, idle_timeout: float | None = None) -> _Receiver:
        """Return a receiver on the near end."""
        ...

    def deadline(self, seconds: float) -> Deadline:
        """Return a deadline on the clock by which the line waits."""
        ...

    def send(self, data: bytes) -> None:
        """Let the far end send `data` now."""

    def close(self) -> None:
        """Let the far end close its side."""

    def timeout(self) -> float | None:
        """Return the near socket's own timeout."""
        ...


def check_receiver(line: Callable[[], AbstractContextManager[ReceiverLine]]) -> None:
    """Check that a receiver loses no byte and keeps every bound, on the real and on fakes.

    Args:
        line: returns a context manager that makes a new `ReceiverLine`.
    """
    checks = (
        _receives_what_was_sent,
        _keeps_the_surplus,
        _keeps_bytes_at_the_deadline,
        _starts_nothing_when_expired,
        _says_idle,
        _says_the_end,
        _says_the_limit,
    )
    for check in checks:
        with line() as made:
            before = made.timeout()
            check(made)
            _expect(made.timeout() == before, "the socket has its own timeout again")


def _receives_what_was_sent(line: ReceiverLine) -> None:
    receiver = line.receiver()
    line.send(b"ABCD")
    _expect(receiver.receive_exactly(3, line.deadline(5)) == b"ABC", "exactly what was asked for")
    line.send(b"EFGH")
    buffer = bytearray(4)
    receiver.receive_into(buffer, line.deadline(5))
    _expect(buffer == b"DEFG", "a buffer is filled across two sends")
    _expect(receiver.receive_some(10, line.deadline(5)) == b"H", "some is what is there")
    _expect(receiver.receive_exactly(0, line.deadline(0)) == b"", "nothing is complete at once")


def _keeps_the_surplus(line: ReceiverLine) -> None:
    receiver = line.receiver()
    line.send(b"one\ntwo\nthr")
    _expect(receiver.receive_until(b"\n", 9, line.deadline(5)) == b"one\n", "up to the delimiter")
    _expect(receiver.receive_until(b"\n", 9, line.deadline(5)) == b"two\n", "surplus comes first")
    _expect(receiver.receive_exactly(3, line.deadline(5)) == b"thr", "surplus serves every verb")


def _keeps_bytes_at_the_deadline(line: ReceiverLine) -> None:
    receiver = line.receiver()
    line.send(b"AB")
    error = _raises(DeadlineExceeded, lambda: receiver.receive_exactly(4, line.deadline(_STEP)))
    _expect(error.report.data == b"AB", "the report shows the bytes")
    _expect(receiver.pending == b"AB", "the bytes are pending")
    _raises(Unfinished, lambda: receiver.receive_some(1, line.deadline(5)))
    line.send(b"CD")
    _expect(receiver.resume(line.deadline(5)) == b"ABCD", "resume hands out the whole")
    _raises(Unfinished, lambda: receiver.resume(line.deadline(5)))
    line.send(b"E")
    _raises(DeadlineExceeded, lambda: receiver.receive_exactly(2, line.deadline(_STEP)))
    _expect(receiver.discard() == b"E", "discard hands out what was pending")
    line.send(b"F")
    _expect(receiver.receive_exactly(1, line.deadline(5)) == b"F", "and frees the receiver")


def _starts_nothing_when_expired(line: ReceiverLine) -> None:
    receiver = line.receiver()
    line.send(b"A")
    error = _raises(DeadlineExceeded, lambda: receiver.receive_exactly(1, line.deadline(0)))
    _expect(error.report.reads == 0, "an expired deadline starts no read")
    _expect(receiver.resume(line.deadline(5)) == b"A", "and loses nothing")


def _says_idle(line: ReceiverLine) -> None:
    receiver = line.receiver(idle_timeout=_STEP)
    error = _raises(IdleTimeout, lambda: receiver.receive_exactly(1, line.deadline(60)))
    _expect(error.report.elapsed >= _STEP, "an idle timeout is never early")


def _says_the_end(line: ReceiverLine) -> None:
    receiver = line.receiver()
    line.send(b"AB")
    line.close()
    error = _raises(PeerClosed, lambda: receiver.receive_exactly(4, line.deadline(5)))
    _expect(error.report.data == b"AB", "the report hands out the last bytes")
    _expect(receiver.pending == b"", "and nothing stays pending")
    _expect(receiver.receive_some(4, line.deadline(5)) == b"", "after the end comes the end")
    _expect(receiver.report is not None and receiver.report.reads == 0, "without a read")


def _says_the_limit(line: ReceiverLine) -> None:
    receiver = line.receiver()
    line.send(b"ABCDEF")
    _raises(LimitExceeded, lambda: receiver.receive_until(b"\n", 4, line.deadline(5)))
    _raises(Unfinished, lambda: receiver.resume(line.deadline(5)))
    _expect(receiver.discard() == b"ABCDEF", "what exceeded the limit is not lost")


_ErrorT = TypeVar("_ErrorT", bound=BaseException)


def _raises(kind: type[_ErrorT], verb: Callable[[], object]) -> _ErrorT:
    try:
        verb()
    except kind as error:
        return error
    msg = f"{kind.__name__} was expected"
    raise AssertionError(msg)


def _expect(held: object, sentence: str) -> None:
    if not held:
        msg = f"does not hold: {sentence}"
        raise AssertionError(msg)
