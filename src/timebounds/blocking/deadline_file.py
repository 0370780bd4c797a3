"""Files over a `DeadlineSocket`: they lose no byte when a limit strikes, and go on afterwards.

Rules (W2 of the contracts):
- What was taken from the socket is held until it is handed out. A call that ends early, by whatever
  error of the socket, hands out nothing and keeps everything. (What a signal handler raises may
  come between the kernel and us: for that there is `BudgetedReceiver`.)
- The standard library's own reader drops what it had, and refuses to be read again.

What must not live here: deadlines; they are the socket's.
"""

from __future__ import annotations

import codecs
import io
import re
import socket
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer, WriteableBuffer

__all__: list[str] = []

_CHUNK = 65_536
_FEW = 1_024


@final
class RawFile(socket.SocketIO):
    """An unbuffered file over a socket, which can be read again after a limit."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Receive into `buffer`; None where that would block and the socket does not wait."""
        over: Any = self
        over._checkClosed()
        over._checkReadable()
        try:
            got: int = over._sock.recv_into(buffer)
        except BlockingIOError:
            return None
        return got


@final
class DeadlineFile(io.BufferedIOBase):
    """A buffered reader over a socket, and a writer beside it where both were asked for."""

    def __init__(self, raw: RawFile, mode: str, size: int, writer: Any = None) -> None:
        self.raw = raw
        self.mode = mode
        self._size = size
        self._writer = writer
        self._held = bytearray()
        self._start = 0

    def __repr__(self) -> str:
        return f"<DeadlineFile name={self.name!r}>"

    @property
    def name(self) -> Any:
        """The descriptor."""
        return self.raw.name

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.raw.closed

    def readable(self) -> bool:
        """Say whether it can be read."""
        return self.raw.readable()

    def writable(self) -> bool:
        """Say whether it can be written."""
        return self._writer is not None

    def seekable(self) -> bool:
        """Say that a stream has no positions."""
        return False

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self.raw.fileno()

    def close(self) -> None:
        """Send what was written and close; the socket's connection ends with its last user."""
        if not self.closed:
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                self.raw.close()

    def flush(self) -> None:
        """Send what was written."""
        self._check()
        if self._writer is not None:
            self._writer.flush()

    def write(self, data: ReadableBuffer, /) -> int:
        """Write `data`, buffered."""
        if self._writer is None:
            msg = "not writable"
            raise io.UnsupportedOperation(msg)
        written: int = self._writer.write(data)
        return written

    def detach(self) -> Any:
        """Refuse: what is held would be lost."""
        msg = "a file that holds bytes can not be detached from its socket"
        raise io.UnsupportedOperation(msg)

    # Reading.

    def _check(self) -> None:
        if self.raw.closed:
            msg = "I/O operation on closed file."
            raise ValueError(msg)

    def _fill(self, size: int) -> bool | None:
        """Receive once, at least for a buffer; False at the end, None where it would block."""
        room = bytearray(max(size, self._size))
        got = self.raw.readinto(room)
        if got:
            del room[got:]
            if self._held:
                self._held += room
            else:
                self._held = room
        return None if got is None else got > 0

    def _there(self) -> int:
        return len(self._held) - self._start

    def _take(self, size: int) -> bytes:
        """Hand out the first `size` bytes that are held, or all."""
        start, end = self._start, len(self._held)
        if size >= 0:
            end = min(start + size, end)
        if end - start < _FEW:
            # A copy of a copy then costs less than a view.
            data = bytes(self._held[start:end])
        else:
            with memoryview(self._held) as view:
                data = bytes(view[start:end])
        if end == len(self._held):
            self._held.clear()
            end = 0
        elif end > _CHUNK:
            # Only when much lies before it: linear over a stream's life.
            del self._held[:end]
            end = 0
        self._start = end
        return data

    def read(self, size: int | None = -1, /) -> bytes:
        """Return `size` bytes, less at the end of the stream; all of it without a size."""
        self._check()
        size = -1 if size is None else size
        more = self._gather(size)
        # As the standard library's: None where it does not wait and has nothing.
        nothing: Any = None
        return nothing if more is None and not self._there() else self._take(size)

    def _gather(self, size: int) -> bool | None:
        """Receive until `size` bytes are there, or all; otherwise as `_fill`."""
        more: bool | None = True
        while more and (size < 0 or self._there() < size):
            more = self._fill(_CHUNK if size < 0 else min(size - self._there(), _CHUNK))
        return more

    def read1(self, size: int = -1, /) -> bytes:
        """Return what is there, at most `size` bytes, after at most one receive."""
        self._check()
        if size == 0:
            return b""
        if not self._there():
            self._fill(min(size, _CHUNK))
        return self._take(size)

    def peek(self, size: int = 0, /) -> bytes:  # noqa: ARG002
        """Return what is there after at most one receive, and keep it."""
        self._check()
        if not self._there():
            self._fill(0)
        return bytes(self._held[self._start :])

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer`; less only at the end of the stream."""
        got: int = self._into(buffer, self.read)
        return got

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        """Receive into `buffer` at most once."""
        got: int = self._into(buffer, self.read1)
        return got

    def _into(self, buffer: WriteableBuffer, read: Any) -> Any:
        with memoryview(buffer) as view, view.cast("B") as room:
            if room.readonly:
                msg = "a buffer that is read into must be writable, such as bytearray(1024)"
                raise TypeError(msg)
            data = read(len(room))
            if data is None:
                return None
            room[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line with its end; at most `size` bytes, less at the end of the stream."""
        self._check()
        most = -1 if size is None else size
        held, start = self._held, self._start
        end = held.find(b"\n", start) + 1
        if 0 < end < len(held) and end <= _CHUNK and (most < 0 or end - start <= most):
            # As most of them are: whole, and not the last that is held.
            self._start = end
            return bytes(held[start:end])
        searched = start
        while True:
            end = self._held.find(b"\n", searched)
            if end >= 0:
                length = end + 1 - self._start
                return self._take(length if most < 0 else min(length, most))
            if 0 <= most <= self._there():
                return self._take(most)
            # What was searched is not searched again.
            searched = len(self._held)
            if not self._fill(0):
                return self._take(-1)

    def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Return all lines, or those that begin in the first `hint` bytes."""
        lines: list[bytes] = []
        try:
            _collect(lines, self.readline, hint)
        except BaseException:
            self._held[: self._start] = b"".join(lines)
            self._start = 0
            raise
        return lines


def _collect(lines: list[Any], readline: Callable[[], Any], hint: int | None) -> None:
    """Read lines until the end of the stream, or until there are more than `hint` bytes."""
    size = 0
    while line := readline():
        lines.append(line)
        size += len(line)
        if hint is not None and 0 < hint < size:
            return


@final
class TextFile(io.TextIOWrapper):
    """Text over a `DeadlineFile`. Writes as the standard library's, whose reading drops half lines.

    Bytes are decoded before they are taken, so that those that are no text stay where they are.
    """

    def __init__(
        self, file: DeadlineFile, encoding: str, errors: str | None, newline: str | None
    ) -> None:
        super().__init__(file, encoding, errors, newline)
        self._file = file
        decoder = codecs.getincrementaldecoder(self.encoding)(self.errors or "strict")
        self._decoder: Any = decoder
        if not newline:
            self._decoder = io.IncrementalNewlineDecoder(decoder, translate=newline is None)
        # Universal newlines that are not translated may end with any of three.
        self._end = re.compile("\r\n|\r|\n" if newline == "" else re.escape(newline or "\n"))
        self._text = ""

    @property
    def newlines(self) -> Any:  # type: ignore[override] # pyright: ignore[reportIncompatibleVariableOverride]
        """The ends of lines that were met, where they are translated."""
        return getattr(self._decoder, "newlines", None)

    def _more(self) -> tuple[str, bool]:
        """Receive at most once, and decode; say whether there may be more."""
        data = self._file.peek()
        text: str = self._decoder.decode(data, final=not data)
        self._file.read1(len(data))
        return text, bool(data)

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Return a line with its end; at most `size` characters."""
        piece, self._text = self._text, ""
        pieces: list[str] = []
        length, more = 0, True
        try:
            while (end := self._end.search(piece)) is None and more:
                if 0 <= size <= length + len(piece):
                    break
                # An end may have two characters.
                cut = len(piece) - piece.endswith("\r")
                pieces.append(piece[:cut])
                length, piece = length + cut, piece[cut:]
                arrived, more = self._more()
                piece += arrived
            cut = len(piece) if end is None else end.end()
            if 0 <= size < length + cut:
                cut = size - length
            line = "".join([*pieces, piece[:cut]])
            pieces.clear()
            piece = piece[cut:]
        finally:
            self._text = "".join([*pieces, piece])
        return line

    def read(self, size: int | None = -1, /) -> str:
        """Return `size` characters, less at the end of the stream; all of it without a size."""
        size = -1 if size is None else size
        more = True
        while more and (size < 0 or len(self._text) < size):
            # No character has less than a byte.
            self._file._gather(size if size < 0 else size - len(self._text))
            arrived, more = self._more()
            self._text += arrived
        length = len(self._text) if size < 0 else size
        text, self._text = self._text[:length], self._text[length:]
        return text

    def readlines(self, hint: int | None = -1, /) -> list[str]:  # type: ignore[override]
        """Return all lines, or those that begin in the first `hint` characters."""
        lines: list[str] = []
        try:
            _collect(lines, self.readline, hint)
        except BaseException:
            self._text = "".join(lines) + self._text
            raise
        return lines

    def detach(self) -> Any:
        """Refuse: what is held would be lost."""
        return self._file.detach()
