"""What a TLS socket falls back on without a session: the plain calls of its connection.

Rules:
- A TLS socket lets go of its session first when it is closed. A call of another thread that comes
  between that and the end of its descriptor must not go on in plain text: it would hand out what
  is still encrypted, or send what is secret.
- Before TLS, and after it was unwrapped, these calls are the connection's, also for a file that
  outlives the socket.

What must not live here: limits. They are above TLS.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__: list[str] = []


class BelowTls(socket.socket):
    """Comes behind `ssl.SSLSocket` among the bases of a class: its `super()`."""

    _closed: bool
    _io_refs: int

    def _must_be_open(self) -> None:
        # As the standard library sees it: closed, and used by no file any more.
        if self._closed and self._io_refs <= 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Receive, where the connection is not about to end."""
        self._must_be_open()
        return super().recv(bufsize, flags)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a buffer, where the connection is not about to end."""
        self._must_be_open()
        return super().recv_into(buffer, nbytes, flags)

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """Receive, where the connection is not about to end."""
        self._must_be_open()
        return super().recvfrom(bufsize, flags)

    def recvfrom_into(
        self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0
    ) -> tuple[int, Any]:
        """Receive into a buffer, where the connection is not about to end."""
        self._must_be_open()
        return super().recvfrom_into(buffer, nbytes, flags)

    def send(self, data: ReadableBuffer, flags: int = 0, /) -> int:
        """Send, where the connection is not about to end."""
        self._must_be_open()
        return super().send(data, flags)

    def sendto(self, *args: Any) -> int:
        """Send, where the connection is not about to end."""
        self._must_be_open()
        return super().sendto(*args)
