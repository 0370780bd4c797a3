"""`ScriptedSocket`: a peer that follows a script, on a fake clock that it moves itself.

Rules (F4 and the golden tables of the contracts):
- A scripted delay counts from the start of the read that meets it. A read that ends before it
  uses that part of the delay up; the rest is carried to the next read.
- `Silence` uses up one read's limit. What is due exactly at the limit is delivered.
- After the end of the script the peer is silent for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, final

from timebounds._checks import NS, nanoseconds

if TYPE_CHECKING:
    from timebounds._checks import Seconds
    from timebounds.testing.fake_clock import FakeClock

__all__ = ["Data", "End", "Failure", "ScriptedSocket", "Silence"]


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


Step = Data | Silence | End | Failure


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


# Reads into the silence after the script, one after the other: a day each, under no deadline.
_FOR_EVER = 100_000


@final
class ScriptedSocket:
    """A stream socket by its looks (recv, recv_into, send, timeouts), a script by its nature.

    `granted` records the limit of each read, `sent` every byte that was sent. A receiver refuses a
    deadline of another clock than `clock` with a ClockError. Reading without a limit into silence
    is an AssertionError: it would never end.

    Args:
        clock: the fake clock, moved by what the script says.
        script: the steps, in order; `extend` adds more.
        timeout: the socket's own timeout, as `settimeout` sets it.
    """

    def __init__(self, clock: FakeClock, *script: Step, timeout: float | None = None) -> None:
        self.clock: FakeClock = clock
        self._script: deque[Step] = deque()
        self._waited = 0
        self._silent = 0
        self._timeout = timeout
        self.granted: list[float | None] = []
        self.sent: bytearray = bytearray()
        self.extend(*script)

    def extend(self, *steps: Step) -> None:
        """Add steps to the end of the script."""
        self._script.extend(checked(steps))

    @property
    def unread(self) -> bytes:
        """The scripted bytes that nobody has read yet."""
        return b"".join(step.data for step in self._script if isinstance(step, Data))

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
        limit = None if self._timeout is None else nanoseconds(self._timeout, "timeout")
        step = self._script[0] if self._script else Silence()
        self._silent = 0 if self._script else self._silent + 1
        if isinstance(step, Silence):
            if self._script:
                self._script.popleft()
            self._time_out(limit)
        delay = max(0, nanoseconds(step.after, "after") - self._waited)
        if limit is not None and delay > limit:
            self._waited += limit
            self._time_out(limit)
        self.clock.advance(delay / NS)
        self._waited = 0
        if isinstance(step, End):
            self._script[0] = End()
            return b""
        self._script.popleft()
        if isinstance(step, Failure):
            raise step.error
        if len(step.data) > bufsize:
            self._script.appendleft(Data(step.data[bufsize:]))
        return step.data[:bufsize]

    def recv_into(self, buffer: memoryview, nbytes: int = 0, /) -> int:
        """Follow the script for one read into `buffer`."""
        data = self.recv(nbytes or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def send(self, data: bytes, /) -> int:
        """Accept all of `data` at once."""
        self.sent += data
        return len(data)

    def sendall(self, data: bytes, /) -> None:
        """Accept all of `data` at once."""
        self.sent += data

    def _time_out(self, limit: int | None) -> NoReturn:
        if limit is None or self._silent > _FOR_EVER:
            msg = "a receive without a limit met the silence of the script: it would never end"
            raise AssertionError(msg)
        if limit == 0:
            raise BlockingIOError
        self.clock.advance(limit / NS)
        msg = "timed out"
        raise TimeoutError(msg)
