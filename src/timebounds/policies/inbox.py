"""The inbox: bytes that were taken from a stream and not handed out yet, and what is wanted.

Rules (R4-R6, R10, R18 of the contracts):
- Bytes taken from the socket = bytes handed out for good + bytes held here, at every moment,
  between any two bytecodes. So the port lets C code append to `buffer`, nothing is counted that
  can be derived, and an operation ends by *one* store of a new state: from then on the value is
  in the report and no longer pending, never both and never neither.
- Memory follows what has arrived, not what was announced.
- A search for a delimiter never looks at a byte twice, but for the delimiter's own length.

What must not live here: time.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from timebounds.bounds.allowance import Allowance
    from timebounds.policies.receiving import ReceiveReport

# One read's size: large enough for throughput, small enough to be allocated at a stranger's word.
CHUNK = 65_536


@final
class Reply(Enum):
    """How a port answers a read."""

    ANSWER = "answer"
    """The socket answered: bytes were stored, or none, which is the end of the stream."""
    SILENCE = "silence"
    """The limit passed without an answer."""


@final
class Read:
    """Command: append at most `size` bytes to `buffer`; wait at most `limit` ns (None: no limit)."""

    __slots__ = ("buffer", "limit", "size")

    def __init__(self, buffer: bytearray) -> None:
        self.buffer = buffer
        self.size = 0
        self.limit: int | None = None


@final
class ReadInto:
    """Command: fill the last `size` bytes of `view` and append the count to `counts`.

    What a socket gives beyond that goes to `buffer`.
    """

    __slots__ = ("buffer", "counts", "limit", "size", "view")

    def __init__(self, view: memoryview, counts: list[int], buffer: bytearray) -> None:
        self.buffer = buffer
        self.view = view
        self.counts = counts
        self.size = 0
        self.limit: int | None = None


class Target(Protocol):
    """What one operation wants. It outlives the call when the operation stays unfinished."""

    allowance: Allowance
    requested: int
    keeps_position: bool
    """Whether the stream's position is known although the target was not met."""

    def command(self, buffer: bytearray) -> Read | ReadInto:
        """Return the command that reads for this target."""
        ...

    def held(self, buffer: bytearray, start: int) -> int:
        """Return how many bytes are there for this target."""
        ...

    def ask(self, buffer: bytearray, start: int) -> int:
        """Return how many bytes to ask for next; 0: met; -1: the limit is exceeded."""
        ...

    def value(self, buffer: bytearray, start: int) -> int:
        """Return how many bytes of the buffer are the value of the met target."""
        ...


@final
class Exactly:
    """Exactly `requested` bytes, none beyond."""

    __slots__ = ("allowance", "requested")

    keeps_position = False

    def __init__(self, size: int, allowance: Allowance) -> None:
        self.requested = size
        self.allowance = allowance

    def command(self, buffer: bytearray) -> Read:
        return Read(buffer)

    def held(self, buffer: bytearray, start: int) -> int:
        return len(buffer) - start

    def ask(self, buffer: bytearray, start: int) -> int:
        missing = self.requested - len(buffer) + start
        return CHUNK if missing > CHUNK else missing if missing > 0 else 0

    def value(self, buffer: bytearray, start: int) -> int:  # noqa: ARG002
        return self.requested

    def __str__(self) -> str:
        return f"receive_exactly({self.requested})"


@final
class Until:
    """Everything up to the delimiter, which counts; at most `requested` bytes."""

    __slots__ = ("_end", "_searched", "allowance", "delimiter", "requested")

    keeps_position = False

    def __init__(self, delimiter: bytes, max_bytes: int, allowance: Allowance) -> None:
        self.delimiter = delimiter
        self.requested = max_bytes
        self.allowance = allowance
        self._searched = 0
        self._end = 0

    def command(self, buffer: bytearray) -> Read:
        return Read(buffer)

    def held(self, buffer: bytearray, start: int) -> int:
        return len(buffer) - start

    def ask(self, buffer: bytearray, start: int) -> int:
        # The delimiter may straddle what was searched before and what came since.
        begin = start + max(0, self._searched - len(self.delimiter) + 1)
        found = buffer.find(self.delimiter, begin, start + self.requested)
        if found >= 0:
            self._end = found + len(self.delimiter) - start
            return 0
        self._searched = len(buffer) - start
        return -1 if self._searched >= self.requested else CHUNK

    def value(self, buffer: bytearray, start: int) -> int:  # noqa: ARG002
        return self._end

    def __str__(self) -> str:
        return f"receive_until({self.delimiter[:16]!r}, {self.requested})"


@final
class Some:
    """At least one byte, at most `requested`: what is there."""

    __slots__ = ("allowance", "requested")

    keeps_position = True

    def __init__(self, max_bytes: int, allowance: Allowance) -> None:
        self.requested = max_bytes
        self.allowance = allowance

    def command(self, buffer: bytearray) -> Read:
        return Read(buffer)

    def held(self, buffer: bytearray, start: int) -> int:
        return len(buffer) - start

    def ask(self, buffer: bytearray, start: int) -> int:
        return 0 if len(buffer) > start else min(self.requested, CHUNK)

    def value(self, buffer: bytearray, start: int) -> int:
        return min(self.requested, len(buffer) - start)

    def __str__(self) -> str:
        return f"receive_some({self.requested})"


@final
class Into:
    """The whole of a caller's buffer. Its bytes are handed out as soon as they are counted."""

    __slots__ = ("_counts", "_view", "allowance", "requested")

    keeps_position = False

    def __init__(self, view: memoryview, filled: int, allowance: Allowance) -> None:
        self._view = view
        self._counts = [filled]
        self.requested = len(view)
        self.allowance = allowance

    def command(self, buffer: bytearray) -> ReadInto:
        return ReadInto(self._view, self._counts, buffer)

    def held(self, buffer: bytearray, start: int) -> int:  # noqa: ARG002
        counts = self._counts
        if len(counts) > 1:
            counts[:] = (sum(counts),)
        return counts[0]

    def ask(self, buffer: bytearray, start: int) -> int:
        return self.requested - self.held(buffer, start)

    def value(self, buffer: bytearray, start: int) -> int:  # noqa: ARG002
        return 0

    def __str__(self) -> str:
        return f"receive_into(buffer of {self.requested})"


_State = tuple[bytearray, int, "Target | None", "ReceiveReport | None"]


@final
class Inbox:
    """The bytes held for one stream, the operation under way, and the last report."""

    __slots__ = ("_state", "eof")

    def __init__(self) -> None:
        self._state: _State = (bytearray(), 0, None, None)
        self.eof = False

    @property
    def held(self) -> tuple[bytearray, int]:
        """The buffer, and where in it the bytes begin that were not handed out."""
        return self._state[:2]

    def __len__(self) -> int:
        """How many bytes were not handed out."""
        return len(self._state[0]) - self._state[1]

    @property
    def pending(self) -> bytes:
        """A copy of the bytes that were not handed out."""
        buffer, start = self._state[:2]
        return bytes(memoryview(buffer)[start:])

    @property
    def target(self) -> Target | None:
        """What an unfinished operation still wants."""
        return self._state[2]

    @property
    def report(self) -> ReceiveReport | None:
        """What the last operation reported, until the next one begins."""
        return self._state[3]

    def begin(self, target: Target) -> None:
        """Begin an operation: it is unfinished until it is settled."""
        buffer, start, _, _ = self._state
        self._state = (buffer, start, None if target.keeps_position else target, None)

    def begin_into(self, view: memoryview, allowance: Allowance) -> Into:
        """Begin to fill `view`, with what is pending first."""
        buffer, start, _, _ = self._state
        moved = min(len(view), len(buffer) - start)
        view[:moved] = memoryview(buffer)[start : start + moved]
        target = Into(view, moved, allowance)
        # Only this store hands the copied bytes out: until then they are pending.
        self._state = (*_rest(buffer, start + moved), target, None)
        return target

    def data(self, size: int) -> bytes:
        """Return a copy of the first `size` bytes held."""
        buffer, start = self._state[:2]
        if start == 0 and size == len(buffer):
            return bytes(buffer)
        return bytes(memoryview(buffer)[start : start + size])

    def settle(self, taken: int, target: Target | None, report: ReceiveReport | None) -> None:
        """End an operation: `taken` bytes are handed out, `target` is still wanted."""
        buffer, start, _, _ = self._state
        self._state = (*_rest(buffer, start + taken), target, report)


def _rest(buffer: bytearray, start: int) -> tuple[bytearray, int]:
    """Return the buffer and start that hold the bytes from `start` on."""
    if start == len(buffer):
        return bytearray(), 0
    # Copy the rest only when at least as much lies before it: linear over a stream's life.
    return (buffer[start:], 0) if start >= CHUNK and 2 * start >= len(buffer) else (buffer, start)
