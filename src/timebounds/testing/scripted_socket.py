"""`ScriptedSocket`: a peer that follows a script, on a fake clock that it moves itself.

Rules (F4 and the golden tables of the contracts):
- A scripted delay counts from the start of the read that meets it. A read that ends before it
  uses that part of the delay up; the rest is carried to the next read.
- `Silence` uses up one read's limit. What is due exactly at the limit is delivered.
- After the end of the script the peer is silent for ever.
- Sends follow a script of their own, by the same rules, if there is one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, final

from timebounds._checks import NS, count, nanoseconds

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from timebounds._checks import Seconds
    from timebounds.testing.fake_clock import FakeClock

__all__ = ["Accept", "Data", "End", "Failure", "ScriptedSocket", "Silence"]


StepT = TypeVar("StepT")


@final
@dataclass(frozen=True, slots=True)
class Data:
    """Bytes that arrive `after` seconds."""

    data: bytes
    after: Seconds = 0


@final
@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing for the whole limit of one read."""


@final
@dataclass(frozen=True, slots=True)
class End:
    """The end of the stream `after` seconds; every later read meets it at once."""

    after: Seconds = 0


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that recv raises `after` seconds."""

    error: BaseException
    after: Seconds = 0


@final
@dataclass(frozen=True, slots=True)
class Accept:
    """Room for `size` more bytes that are sent, `after` seconds."""

    size: int
    after: Seconds = 0


Step = Data | Silence | End | Failure
SendStep = Accept | Silence | Failure


def checked(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps of a script, if they are some."""
    for step in steps:
        if not isinstance(step, Data | Silence | End | Failure):
            msg = f"a script holds Data, Silence, End and Failure, not {step!r:.80}"
            raise TypeError(msg)
        if not isinstance(step, Silence):
            nanoseconds(step.after, "after")
        if isinstance(step, Data) and not step.data:
            msg = "Data must not be empty, which would look like the end: use End() or Silence()"
            raise ValueError(msg)
    return steps


# Calls into the silence after the script, one after the other: a day each, under no deadline.
_FOR_EVER = 100_000


class _Script(Generic[StepT]):
    """The steps of one direction, and how much of a delay was waited for in vain."""

    def __init__(self, clock: FakeClock) -> None:
        self.steps: deque[StepT] = deque()
        self._clock = clock
        self._waited = 0
        self._silent = 0

    def meet(self, timeout: float | None, what: str) -> StepT:
        """Wait for the next step; return it, still in its place."""
        limit = None if timeout is None else nanoseconds(timeout, "timeout")
        steps = self.steps
        self._silent = 0 if steps else self._silent + 1
        if not steps or isinstance(steps[0], Silence):
            if steps:
                steps.popleft()
            self._time_out(limit, what)
        step: Any = steps[0]
        delay = max(0, nanoseconds(step.after, "after") - self._waited)
        if limit is not None and delay > limit:
            self._waited += limit
            self._time_out(limit, what)
        self._clock.advance(delay / NS)
        self._waited = 0
        if isinstance(step, Failure):
            steps.popleft()
            raise step.error
        return steps[0]

    def _time_out(self, limit: int | None, what: str) -> NoReturn:
        if limit is None or self._silent > _FOR_EVER:
            msg = f"a {what} without a limit met the silence of the script: it would never end"
            raise AssertionError(msg)
        if limit == 0:
            raise BlockingIOError
        self._clock.advance(limit / NS)
        msg = "timed out"
        raise TimeoutError(msg)


@final
class ScriptedSocket:
    """A stream socket by its looks (recv, recv_into, send, timeouts), a script by its nature.

    `granted` records the limit of each read, `allowed` that of each send, `sent` every byte that
    was accepted. A door refuses a
    deadline of another clock than `clock` with a ClockError. To wait without a limit for what the
    script never brings is an AssertionError: it would never end.

    Args:
        clock: the fake clock, moved by what the script says.
        script: the steps, in order; `extend` adds more.
        timeout: the socket's own timeout, as `settimeout` sets it.
    """

    def __init__(self, clock: FakeClock, *script: Step, timeout: float | None = None) -> None:
        self.clock: FakeClock = clock
        self._reads: _Script[Step] = _Script(clock)
        self._sends: _Script[SendStep] | None = None
        self._timeout = timeout
        self.granted: list[float | None] = []
        self.allowed: list[float | None] = []
        self.sent: bytearray = bytearray()
        self.extend(*script)

    def extend(self, *steps: Step) -> None:
        """Add steps to the end of the script."""
        self._reads.steps.extend(checked(steps))

    @property
    def unread(self) -> bytes:
        """The scripted bytes that nobody has read yet."""
        return b"".join(step.data for step in self._reads.steps if isinstance(step, Data))

    def gettimeout(self) -> float | None:
        """Return the socket's timeout."""
        return self._timeout

    def settimeout(self, value: float | None, /) -> None:
        """Set the socket's timeout; what a real socket refuses is refused."""
        if value is not None:
            nanoseconds(value, "timeout")
        self._timeout = value

    def recv(self, bufsize: int, /) -> bytes:
        """Follow the script for one read."""
        self.granted.append(self._timeout)
        step = self._reads.meet(self._timeout, "receive")
        steps = self._reads.steps
        if isinstance(step, End):
            steps[0] = End()
            return b""
        assert isinstance(step, Data)
        steps.popleft()
        if len(step.data) > bufsize:
            steps.appendleft(Data(step.data[bufsize:]))
        return step.data[:bufsize]

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Follow the script for one read into `buffer`."""
        data = self.recv(nbytes or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def accepting(self, *steps: SendStep) -> None:
        """Let the peer take what is sent as these steps say, and nothing after them.

        Without any it takes all at once.
        """
        for step in steps:
            if not isinstance(step, Accept | Silence | Failure):
                msg = f"a script of sends holds Accept, Silence and Failure, not {step!r:.80}"
                raise TypeError(msg)
            if isinstance(step, Accept):
                count(step.size, "size", minimum=1)
            if not isinstance(step, Silence):
                nanoseconds(step.after, "after")
        if self._sends is None:
            self._sends = _Script(self.clock)
        self._sends.steps.extend(steps)

    def send(self, data: ReadableBuffer, /) -> int:
        """Accept some of `data`: all at once, or as `accepting` has said."""
        data = memoryview(data)
        size = len(data)
        self.allowed.append(self._timeout)
        if self._sends is not None:
            step = self._sends.meet(self._timeout, "send")
            assert isinstance(step, Accept)
            self._sends.steps.popleft()
            if step.size > size:
                self._sends.steps.appendleft(Accept(step.size - size))
            size = min(size, step.size)
        self.sent += data[:size]
        return size

    def sendall(self, data: ReadableBuffer, /) -> None:
        """Send all of `data`."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]
