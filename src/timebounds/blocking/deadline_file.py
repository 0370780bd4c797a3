"""Files over a `DeadlineSocket`: they lose no byte when a limit strikes, and go on afterwards.

Rules (W2 of the contracts):
- What was taken from the socket is held until it is handed out. A call that ends early, by whatever
  error, hands out nothing and keeps everything.
- The standard library's own reader drops what it had, and refuses to be read again.

What must not live here: deadlines; they are the socket's.
"""

from __future__ import annotations

import io
import socket
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__: list[str] = []

_CHUNK = 65_536


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
        self._ended = False
        # For a text layer above, which drops half a line: it is given whole ones.
        self._lines_only = False

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
        if self.closed:
            msg = "I/O operation on closed file."
            raise ValueError(msg)

    def _fill(self, size: int) -> bool | None:
        """Receive once, at least for a buffer; False at the end, None where it would block."""
        room = bytearray(max(size, self._size))
        got = self.raw.readinto(room)
        if got:
            with memoryview(room) as view, view[:got] as arrived:
                self._held += arrived
        return None if got is None else got > 0

    def _there(self) -> int:
        return len(self._held) - self._start

    def _take(self, size: int) -> bytes:
        """Hand out the first `size` bytes that are held, or all."""
        start, end = self._start, min(self._start + size, len(self._held))
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
        if size is None or size < 0:
            while (more := self._fill(_CHUNK)) is True:
                pass
            size = self._there()
        else:
            more = True
            while self._there() < size and more is True:
                more = self._fill(min(size - self._there(), _CHUNK))
        # As the standard library's: None where it does not wait and has nothing.
        nothing: Any = None
        return nothing if more is None and not self._there() else self._take(size)

    def read1(self, size: int = -1, /) -> bytes:
        """Return what is there, at most `size` bytes, after at most one receive."""
        self._check()
        if size == 0:
            return b""
        if self._lines_only:
            self._await_line()
        elif not self._there():
            self._fill(min(size, _CHUNK))
        return self._take(self._there() if size < 0 else size)

    def _await_line(self) -> None:
        """Receive until the end of a line is there, or the stream's."""
        searched = self._start
        while self._held.find(b"\n", searched) < 0:
            searched = len(self._held)
            if not self._fill(0):
                return

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
            data = read(len(room))
            if data is None:
                return None
            room[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line with its end; at most `size` bytes, less at the end of the stream."""
        self._check()
        most = -1 if size is None else size
        searched = self._start
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
                return self._take(self._there())


@final
class TextFile(io.TextIOWrapper):
    """Text over a `DeadlineFile`: the standard library's, which is given whole lines."""

    _lines: DeadlineFile | None = None
    _text = ""

    def over(self, buffered: DeadlineFile) -> TextFile:
        """Read lines of `buffered` as wholes."""
        self._lines = buffered
        return self

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        """Return a line; one that a limit has interrupted is read again from its beginning."""
        assert self._lines is not None
        if self._text or size >= 0:
            return self._split(size)
        self._lines._lines_only = True
        try:
            return super().readline()
        finally:
            self._lines._lines_only = False

    def _split(self, size: int) -> str:
        """Return at most `size` characters of a line, and hold the rest."""
        if "\n" not in self._text:
            held, self._text = self._text, ""
            try:
                held += self.readline()
            finally:
                self._text = held
        end = self._text.find("\n") + 1 or len(self._text)
        if 0 <= size < end:
            end = size
        line, self._text = self._text[:end], self._text[end:]
        return line

    def read(self, size: int | None = -1, /) -> str:
        """Return `size` characters, less at the end of the stream; all of it without a size."""
        if size is None or size < 0:
            text = super().read()
            held, self._text = self._text, ""
            return held + text
        # By one: more of them at once would be dropped when a limit strikes between.
        while len(self._text) < size and (each := super().read(1)):
            self._text += each
        text, self._text = self._text[:size], self._text[size:]
        return text


def make(
    sock: socket.socket,
    mode: str,
    buffering: int | None,
    *,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """Return the file that `socket.makefile` would, over one that loses nothing."""
    if not set(mode) <= {"r", "w", "b"}:
        msg = f"invalid mode {mode!r} (only r, w, b allowed)"
        raise ValueError(msg)
    writing = "w" in mode
    reading = "r" in mode or not writing
    binary = "b" in mode
    size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
    if size == 0 and not binary:
        msg = "unbuffered streams must be binary"
        raise ValueError(msg)
    kind: Any = "r" * reading + "w" * writing
    raw = RawFile(sock, kind)
    # As the standard library counts them: the connection ends with its last user.
    sock._io_refs += 1  # type: ignore[attr-defined]
    if size == 0:
        return raw
    writer = io.BufferedWriter(raw, size) if writing else None
    if not reading:
        buffered: Any = writer
    else:
        buffered = DeadlineFile(raw, kind + "b", size, writer)
    if binary:
        return buffered
    encoding = io.text_encoding(encoding)
    if not reading:
        text: Any = io.TextIOWrapper(buffered, encoding, errors, newline)
    else:
        text = TextFile(buffered, encoding, errors, newline).over(buffered)
    text.mode = mode
    return text
