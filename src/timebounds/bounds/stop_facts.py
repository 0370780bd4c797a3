"""What can be said of a stop: how a request was received, and the one verdict."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, final

__all__ = ["Stop"]


@final
class Stop(Enum):
    """How a request was received."""

    ACCEPTED = "accepted"
    """It is the first one, and its reason counts."""
    ALREADY = "already"
    """An earlier one is in force."""
    TOO_LATE = "too_late"
    """The point of no return had been passed: nothing will be stopped."""


class Requested(NamedTuple):
    """Somebody asked to stop, first."""

    reason: str
    at: int


class Committed(NamedTuple):
    """The point of no return was passed first."""

    at: int
    # Of work that is over: its end is no commit, and a stop comes too late all the same.
    sealed: bool = False
