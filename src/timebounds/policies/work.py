"""Pieces of work, how they end, and what a worker reports of them."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar, final

from timebounds._checks import NS
from timebounds.bounds.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Hashable

    from timebounds.bounds.expiry import Expiry
    from timebounds.bounds.stop import StopSignal

__all__ = [
    "Admission",
    "FailurePolicy",
    "Overflow",
    "Work",
    "WorkOutcome",
    "WorkRecord",
    "WorkerReport",
]

PayloadT = TypeVar("PayloadT")

# Key, outcome, when it was accepted, begun and ended in ns, by how much it was late, its error.
Ended: TypeAlias = (
    "tuple[Hashable | None, WorkOutcome, int | None, int | None, int, int, BaseException | None]"
)
# What a worker adds to the deadline of what it has begun: its stop, its limit in ns.
Terms: TypeAlias = "tuple[StopSignal, int | None]"


@final
class Overflow(Enum):
    """What happens to work that comes when as much waits as may."""

    REJECT = "reject"
    """It is refused: `QueueFull`."""
    WAIT = "wait"
    """Whoever submits it waits for room, by his deadline."""
    DROP_OLDEST = "drop_oldest"
    """What has waited longest makes room."""


@final
class FailurePolicy(Enum):
    """What a failure means for the work that follows."""

    CONTINUE = "continue"
    CLOSE = "close"
    """No more work is accepted or begun."""


@final
class Admission(StrEnum):
    """What became of work that was submitted."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """Work of the same key was accepted within the duplicate window: nothing is done."""


@final
class WorkOutcome(StrEnum):
    """How accepted work ended. Each piece ends in exactly one way."""

    COMPLETED = "completed"
    FAILED = "failed"
    """It raised."""
    INTERRUPTED = "interrupted"
    """It was under way when the worker's grace was over, or its task was cancelled."""
    UNSTARTED = "unstarted"
    """It waited when the worker's grace was over."""
    STALE = "stale"
    """Its bound had passed before it began."""
    DROPPED = "dropped"
    """It made room for other work."""


@final
class WorkRecord(NamedTuple):
    """One piece of work that has ended. Durations in seconds of the worker's clock."""

    key: Hashable | None
    outcome: WorkOutcome
    queued: float
    """From being accepted to being begun, or to the end."""
    ran: float
    late: float
    """Of stale work: by how much its bound had passed; 0 for an expiry or a stop."""
    error: BaseException | None


def record_of(ended: Ended) -> WorkRecord:
    """Return the record of an end. Not before somebody asks: most ends are never looked at."""
    key, outcome, accepted, begun, now, late, error = ended
    assert accepted is not None
    queued = (now if begun is None else begun) - accepted
    ran = 0 if begun is None else now - begun
    return WorkRecord(key, outcome, queued / NS, ran / NS, late / NS, error)


@final
class WorkerReport(NamedTuple):
    """What became of all accepted work: accepted is the sum of the others."""

    accepted: int
    completed: int
    failed: int
    interrupted: int
    unstarted: int
    stale: int
    dropped: int
    waiting: int
    running: int


@final
class Work(Generic[PayloadT]):
    """A piece of work, as the handler and the dead-letter sink are given it."""

    __slots__ = (
        "_accepted_at", "_begun_at", "_deadline", "_ended", "_expires", "_key", "_payload",
        "_terms",
    )  # fmt: skip

    def __init__(
        self,
        payload: PayloadT,
        deadline: Deadline,
        key: Hashable | None,
        expires: Expiry | None,
        terms: Terms | None = None,
    ) -> None:
        self._payload = payload
        self._deadline = deadline
        self._terms = terms
        self._key = key
        self._expires = expires
        self._accepted_at: int | None = None
        self._begun_at: int | None = None
        self._ended: Ended | None = None

    @property
    def payload(self) -> PayloadT:
        """What was submitted."""
        return self._payload

    @property
    def deadline(self) -> Deadline:
        """Of the work; for the handler also its limit, and the stop at the worker's end."""
        terms, begun = self._terms, self._begun_at
        if begun is not None and terms is not None:
            # Not before somebody asks: many handlers wait for nothing.
            stop, limit_ns = terms
            deadline = self._deadline.stopping(stop)
            if limit_ns is not None:
                end = Deadline.at((begun + limit_ns) / NS, clock=deadline.clock)
                deadline = deadline.earliest(end)
            # Two threads may come here; whoever finds the one done finds the other.
            self._deadline = deadline
            self._terms = None
        return self._deadline

    @property
    def key(self) -> Hashable | None:
        """The key that it was submitted with."""
        return self._key

    @property
    def record(self) -> WorkRecord | None:
        """How it ended; None before."""
        return None if self._ended is None else record_of(self._ended)

    def __repr__(self) -> str:
        state = "not ended" if self._ended is None else self._ended[1]
        return f"<Work {self._key!r:.80}, {state}>"

    # For the mailbox.

    def _late_by(self, now: int) -> int | None:
        """Return by how many ns its deadline has passed, 0 for a stop; None for neither."""
        deadline = self._deadline
        if now >= deadline._at:
            return now - deadline._at
        stopped = deadline._stop is not None and deadline._stop.requested()
        return 0 if stopped else None

    def _stale_by(self, now: int) -> int | None:
        """Return by how many ns a bound has passed; None while none has."""
        late = self._late_by(now)
        if late is None and self._expires is not None and self._expires.stale():
            return 0
        return late
