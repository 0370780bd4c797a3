"""The inbox: bytes that were taken from a stream and not handed out yet, and what is wanted.

Rules (R4-R6, R10, R18 of the contracts):
- Bytes taken from the socket = bytes handed out for good + bytes held here, at every moment,
  between any two bytecodes. So the port lets C code append to `chunks`, nothing is counted that
  can be derived, and an operation ends by *one* store of a new state: from then on the value is
  in the report and no longer pending, never both and never neither.
- Memory follows what has arrived, not what was announced.
- A search for a delimiter never looks at a byte twice, but for the delimiter's own length.

What must not live here: time.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, final

from timebounds.policies.evidence import ReceiveReport

if TYPE_CHECKING:
    from timebounds.bounds.allowance import Allowance
    from timebounds.policies.evidence import Facts

# One read's size: large enough for throughput, small enough to be allocated at a stranger's word.
CHUNK = 65_536


class Target:
    """What one operation wants; also the command that a port carries out: read for it once.

    It outlives the call when the operation stays unfinished. `ask` and `limit` are the command:
    append at most `ask` bytes to `chunks`, waiting at most `limit` ns (None: no limit) from the
    instant `since`. An `ask` of 0 means that the target is met, -1 that its limit is exceeded.
    The bytes that are held for it are those of `chunks` from `start` on.
    """

    __slots__ = ("_seen", "allowance", "ask", "chunks", "limit", "requested", "since", "start")

    requested: int
    allowance: Allowance
    chunks: Chunks
    start: int
    ask: int
    limit: int | None
    since: int
    _seen: int
    keeps_position: bool = False
    """Whether the stream's position is known although the target was not met."""

    def __init__(self, requested: int, allowance: Allowance) -> None:
        self.requested = requested
        self.allowance = allowance

    @abstractmethod
    def look(self) -> int:
        """See what is there: set `ask`, and return how many bytes came since the last look."""

    def value(self) -> int:
        """Return how many of the bytes held are the value of the met target."""
        return self.requested

    def evidence(self, data: bytes) -> bytes:
        """Return what the report of an incomplete operation shows, given what the inbox holds."""
        return data

    def end(self) -> None:
        """Let go of what belongs to the caller: the operation is over for good."""

    def kept(self, pending: int) -> str:
        """Say in a message what became of the bytes of an unfinished operation."""
        return f"{pending} bytes kept for resume() or discard()"


@final
class Exactly(Target):
    """Exactly `requested` bytes, none beyond."""

    __slots__ = ()

    def look(self) -> int:
        """See how much is missing."""
        chunks = self.chunks
        # What `length` does, without a call where there is nothing to fold.
        known = len(chunks)
        held = (len(chunks[0]) if known == 1 else length(chunks) if known else 0) - self.start
        missing = self.requested - held
        self.ask: int = CHUNK if missing > CHUNK else missing if missing > 0 else 0
        arrived = held - self._seen
        self._seen = held
        return arrived

    def __str__(self) -> str:
        return f"receive_exactly({self.requested})"


@final
class Until(Target):
    """Everything up to the delimiter, which counts; at most `requested` bytes."""

    __slots__ = ("_end", "_searched", "delimiter")

    delimiter: bytes

    def __init__(self, delimiter: bytes, max_bytes: int, allowance: Allowance) -> None:
        super().__init__(max_bytes, allowance)
        self.delimiter = delimiter
        self._end = 0
        self._searched = 0

    def look(self) -> int:
        """Search what is new."""
        held = length(self.chunks) - self.start
        arrived = held - self._seen
        self._seen = held
        # The delimiter may straddle what was searched before and what came since.
        begin = self.start + max(0, self._searched - len(self.delimiter) + 1)
        until = self.start + self.requested
        found = self.chunks[0].find(self.delimiter, begin, until) if held else -1
        if found >= 0:
            self._end = found + len(self.delimiter) - self.start
            self.ask: int = 0
        else:
            self._searched = held
            self.ask = -1 if held >= self.requested else CHUNK
        return arrived

    def value(self) -> int:
        """Return how many bytes end with the delimiter."""
        return self._end

    def __str__(self) -> str:
        return f"receive_until({self.delimiter[:16]!r}, {self.requested})"


@final
class Some(Target):
    """At least one byte, at most `requested`: what is there."""

    __slots__ = ()

    keeps_position: bool = True

    def look(self) -> int:
        """See whether there is anything."""
        held = length(self.chunks) - self.start
        arrived = held - self._seen
        self._seen = held
        self.ask: int = 0 if held else min(self.requested, CHUNK)
        return arrived

    def value(self) -> int:
        """Return how many of the bytes held are handed out."""
        return min(self.requested, length(self.chunks) - self.start)

    def __str__(self) -> str:
        return f"receive_some({self.requested})"


@final
class Into(Target):
    """The whole of a caller's buffer. Its bytes are handed out as soon as they are counted.

    As a command: fill the last `ask` bytes of `view` and append their number to `counts`; what a
    socket gives beyond that goes to `chunks`.
    """

    __slots__ = ("counts", "view")

    counts: list[int]
    view: memoryview

    def __init__(self, view: memoryview, filled: int, allowance: Allowance) -> None:
        super().__init__(len(view), allowance)
        self.view = view
        self.counts = [filled]

    def look(self) -> int:
        """See how much of the view is missing."""
        counts = self.counts
        # One store, so that between any two bytecodes the counts have the right sum.
        counts[:] = (sum(counts),)
        arrived = counts[0] - self._seen
        self._seen = counts[0]
        self.ask: int = self.requested - counts[0]
        return arrived

    def value(self) -> int:
        """Return 0: its bytes never lie in the inbox."""
        return 0

    def evidence(self, data: bytes) -> bytes:  # noqa: ARG002
        """Return a copy of what is in the caller's buffer."""
        return bytes(self.view[: self.requested - self.ask])

    def end(self) -> None:
        """Let go of the caller's buffer, which can not be resized as long as it is viewed."""
        self.view.release()

    def kept(self, pending: int) -> str:  # noqa: ARG002
        """Say how far the buffer is filled."""
        filled = self.requested - self.ask
        return f"{filled} of {self.requested} bytes are in the buffer, resume() fills the rest"

    def __str__(self) -> str:
        return f"receive_into(buffer of {self.requested})"


# What a port appends to. At rest it holds one chunk or none: `length` folds a second one in.
Chunks = list[bytes | bytearray]


def length(chunks: Chunks) -> int:
    """Return how many bytes the chunks hold, folded into the first one."""
    if not chunks:
        return 0
    while len(chunks) > 1:
        first = chunks[0]
        if type(first) is not bytearray:
            first = chunks[0] = bytearray(first)
        # Out of the list and into the first chunk by C alone: no bytecode sees it in neither.
        any(map(first.extend, map(chunks.pop, (1,))))
    return len(chunks[0])


# The last report as its facts: the object is made when somebody asks for it.
_State = tuple[Chunks, int, "Target | None", "Facts | None"]


@final
class Inbox:
    """The bytes held for one stream, the operation under way, and the last report.

    `state` is the chunks, where in them the bytes begin that were not handed out, what an
    unfinished operation still wants, and the last report's facts until the next operation begins.
    """

    __slots__ = ("eof", "state")

    state: _State
    eof: bool

    def __init__(self) -> None:
        self.state = ([], 0, None, None)
        self.eof = False

    def __len__(self) -> int:
        """How many bytes were not handed out."""
        return length(self.state[0]) - self.state[1]

    @property
    def pending(self) -> bytes:
        """A copy of the bytes that were not handed out."""
        chunks, start = self.state[:2]
        return b"".join(chunks)[start:]

    @property
    def report(self) -> ReceiveReport | None:
        """What the last operation reported, until the next one begins."""
        facts = self.state[3]
        if facts is None or isinstance(facts, ReceiveReport):
            return facts
        return ReceiveReport(*facts)

    def begin(self, target: Target) -> None:
        """Begin an operation: it is unfinished until it is settled."""
        chunks, start, _, _ = self.state
        if chunks:
            self.notice_end()
        target.chunks = chunks
        target.start = start
        target._seen = 0
        target.look()
        self.state = (chunks, start, None if target.keeps_position else target, None)

    def notice_end(self) -> None:
        """See an end of the stream that was stored before something else went wrong."""
        chunks = self.state[0]
        if chunks and not chunks[-1]:
            self.eof = True

    def begin_into(self, view: memoryview, allowance: Allowance) -> Into:
        """Begin to fill `view`, with what is pending first."""
        moved = min(len(view), len(self))
        data, chunks, start = self.split(moved)
        view[:moved] = data
        target = Into(view, moved, allowance)
        target.chunks = chunks
        target.start = start
        target._seen = 0
        target.look()
        # Only this store hands the copied bytes out: until then they are pending.
        self.state = (chunks, start, target, None)
        return target

    def split(self, size: int) -> tuple[bytes, Chunks, int]:
        """Return the first `size` bytes held, and the chunks and start that hold the rest."""
        chunks, start, _, _ = self.state
        if not start and len(chunks) == 1 and len(chunks[0]) == size:
            first = chunks[0]
            return first if type(first) is bytes else bytes(first), [], 0
        held = length(chunks)
        end = start + size
        data = bytes(memoryview(chunks[0])[start:end]) if size else b""
        if end == held:
            return data, [], 0
        if start >= CHUNK and 2 * start >= held:
            # Copied only when at least as much lies before it: linear over a stream's life.
            return data, [chunks[0][end:]], 0
        return data, chunks, end
