"""The exception tree: the class says whose move is next.

    TimeboundsError         never raised itself
    ├─ BoundReached         you asked to stop here: trying again in the same bound is pointless
    │  ├─ DeadlineExceeded  the shared budget is spent                             (TimeoutError)
    │  ├─ IdleTimeout       the peer was silent too long; budget may remain        (TimeoutError)
    │  ├─ TooSlow           below the minimum rate                                 (TimeoutError)
    │  └─ StopRequested     someone asked to stop
    ├─ PeerClosed           the peer closed before the message was whole           (EOFError)
    ├─ LimitExceeded        more bytes than the caller allowed                     (ValueError)
    ├─ Busy                 two users of one receiver                              (RuntimeError)
    ├─ Unfinished           the stream position is unknown                         (RuntimeError)
    ├─ WorkerStuck          its grace is over and a function is still inside       (RuntimeError)
    └─ ClockError           a clock went back, gave no number, or two were mixed   (RuntimeError)

A caller's own mistake is a plain `ValueError`, `TypeError` or `RuntimeError`, raised at the call.

The class in brackets is a second base, so that code which knows only the standard library
catches the right thing. `TimeoutError` is an `OSError`, which takes two positional arguments
for errno and text: every error here takes its message alone, and the evidence as an attribute.
"""

from __future__ import annotations

from queue import Full
from typing import Any

__all__ = [
    "BoundReached",
    "Busy",
    "ClockError",
    "DeadlineExceeded",
    "IdleTimeout",
    "IllegalStep",
    "LimitExceeded",
    "NotOwner",
    "PeerClosed",
    "QueueClosed",
    "QueueFull",
    "StopRequested",
    "TimeboundsError",
    "TooSlow",
    "Unfinished",
    "WorkerStuck",
]


class TimeboundsError(Exception):
    """Root of every error that this library raises about time, streams and ownership."""


class _Evident(TimeboundsError):
    """An error that carries the report of the operation that it ended."""

    # Any: each kind of operation has its own report, and this floor knows none of them.
    report: Any

    def __init__(self, message: str = "", *, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


class BoundReached(_Evident):
    """A bound that the caller set was reached; trying again inside the same bound is pointless.

    `report` holds what happened until then, or None where no operation was under way.
    """


class DeadlineExceeded(BoundReached, TimeoutError):
    """The shared budget is spent: the deadline had passed when the operation ended."""


class IdleTimeout(BoundReached, TimeoutError):
    """The peer was silent for longer than the idle timeout; the deadline may still lie ahead."""


class TooSlow(BoundReached, TimeoutError):
    """Bytes arrived, but more slowly than the minimum rate that was asked for."""


class StopRequested(BoundReached):
    """Someone asked to stop: the deadline's stop signal was requested."""


class PeerClosed(_Evident, EOFError):
    """The peer closed the stream before the message was whole.

    `report.data` shows what had arrived; the receiver keeps none of it.
    """


class LimitExceeded(_Evident, ValueError):
    """More bytes came than the caller allowed; the stream can not be trusted any further."""


class Busy(TimeboundsError, RuntimeError):
    """A second thread, or a re-entrant call, used an object that serves one user at a time."""


class Unfinished(TimeboundsError, RuntimeError):
    """The position in the stream is unknown: resume the unfinished operation or discard it."""


class WorkerStuck(TimeboundsError, RuntimeError):
    """Work was asked to stop, its grace is over, and its function has not returned.

    Its resources are closed by its thread, when that returns.
    """


class ClockError(TimeboundsError, RuntimeError):
    """A clock went backwards or returned no number, or two clocks were mixed."""


class QueueFull(TimeboundsError, Full):
    """A worker has as much waiting work as it may have; the work was not accepted."""


class QueueClosed(TimeboundsError, RuntimeError):
    """A worker takes no more work; what was handed in stays with whoever did so."""


class IllegalStep(TimeboundsError, RuntimeError):
    """A journal was asked to mark a step that does not follow from the last one."""


class NotOwner(TimeboundsError, RuntimeError):
    """Something was changed by who does not own it."""
