"""What a receive leaves behind: an outcome and the facts, never a guess.

Rules: a report never changes, survives pickle and copy, holds durations and no instants, and shows
counts instead of payload.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, final

from timebounds._checks import NS

__all__ = ["ReceiveOutcome", "ReceiveReport"]


@final
class ReceiveOutcome(StrEnum):
    """How a receive ended. Only COMPLETE, and EOF of `receive_some`, return a value."""

    COMPLETE = "complete"
    EOF = "eof"
    IDLE_TIMEOUT = "idle_timeout"
    DEADLINE_EXPIRED = "deadline_expired"
    TOO_SLOW = "too_slow"
    LIMIT_EXCEEDED = "limit_exceeded"
    STOPPED = "stopped"


# A report before anybody has asked for it.
Facts = tuple["ReceiveOutcome", bytes, int, int, bool, bool, int, int, int, int, int, int]


class _Facts(NamedTuple):
    """What a plan counts; `ReceiveReport` speaks of it in seconds."""

    outcome: ReceiveOutcome
    data: bytes
    requested: int
    received: int
    satisfied: bool
    eof: bool
    reads: int
    idle_retries: int
    elapsed_ns: int
    waited_ns: int
    slept_ns: int
    overshoot_ns: int


class ReceiveReport(_Facts):
    """The unchanging record of one receive; durations by the deadline's clock.

    `outcome`: how it ended. `data`: the value (empty for `receive_into`, whose bytes are in its
    buffer); or, where the operation raised, a copy of all that it has. `requested`: how many bytes
    were wanted or, with a delimiter, allowed. `received`: how many bytes this call took from the
    socket. `satisfied`: whether all that was asked for is there, in time or late. `eof`: whether
    the peer has closed its side. `reads`: how many reads were started. `idle_retries`: how many of
    them after an idle wait.
    """

    # Tuple-backed, with seconds computed when asked for: a report is made for every receive.
    __slots__ = ()

    @property
    def elapsed(self) -> float:
        """Seconds from the call to its end."""
        return self.elapsed_ns / NS

    @property
    def waited(self) -> float:
        """Seconds in reads."""
        return self.waited_ns / NS

    @property
    def slept(self) -> float:
        """Seconds in backoff, as measured."""
        return self.slept_ns / NS

    @property
    def overshoot(self) -> float:
        """Seconds by which the end was later than the deadline."""
        return self.overshoot_ns / NS

    def __repr__(self) -> str:
        """Show counts, not payload: reports end up in logs."""
        late = f", {self.overshoot:g} s late" if self.overshoot_ns else ""
        met = ", satisfied" if self.satisfied else ""
        return (
            f"<ReceiveReport {self.outcome}{met}: {len(self.data)} bytes of {self.requested}, "
            f"{self.reads} reads, {self.idle_retries} idle retries in {self.elapsed:g} s{late}>"
        )
