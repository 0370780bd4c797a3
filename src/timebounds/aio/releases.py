"""Releases: what makes a blocked function return, ready made.

Each returns a function without arguments for `release=` or `job.releasing(...)`. It blocks on
nothing, and closes nothing that the function still uses.
"""

from __future__ import annotations

import errno
import socket
from functools import partial
from typing import TYPE_CHECKING, Protocol

from timebounds._checks import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.stop import StopSignal

__all__ = ["kill_process", "request_stop", "shut_peer", "shut_reading"]


class Killable(Protocol):
    """A process, such as `subprocess.Popen`."""

    def kill(self) -> object:
        """End it at once."""
        ...


def shut_reading(sock: socket.socket) -> Callable[[], None]:
    """Shut the reading half of `sock`: a blocked read returns as if the stream had ended.

    Sending goes on. Closing instead would not wake the reader, and free its descriptor under it.
    """
    return partial(_shut, _checked(sock, "sock"), socket.SHUT_RD)


def shut_peer(peer: socket.socket) -> Callable[[], None]:
    """Shut both halves of `peer`, the other end of the socket that the function reads.

    For tests and for both ends in one process: the reader sees the end of the stream.
    """
    return partial(_shut, _checked(peer, "peer"), socket.SHUT_RDWR)


def request_stop(stop: StopSignal, reason: str = "") -> Callable[[], object]:
    """Request `stop`, for a function that watches a signal of its own."""
    return partial(stop.request, reason)


def kill_process(process: Killable) -> Callable[[], object]:
    """Kill `process`: a function that reads its output, or waits for it, returns."""
    return process.kill


def _checked(sock: socket.socket, name: str) -> socket.socket:
    if not callable(getattr(sock, "shutdown", None)):
        msg = f"{name} must be a socket, not {shown(sock)}"
        raise TypeError(msg)
    return sock


def _shut(sock: socket.socket, how: int) -> None:
    try:
        if isinstance(sock, socket.socket):
            # Not the method of a TLS socket, which would take its session away from the reader.
            socket.socket.shutdown(sock, how)
        else:
            sock.shutdown(how)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            raise
