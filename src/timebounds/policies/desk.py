"""What both colours of a worker share: admission, beginning, ending, and the dead-letter sink.

What must not live here: waiting, calling handlers, making locks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from timebounds._checks import NS, member, nanoseconds, shown
from timebounds.bounds.clock import SteadyClock, reader
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.bounds.expiry import Expiry
from timebounds.bounds.stop import StopSignal
from timebounds.bounds.waking import may_be_a_signals, unhandled
from timebounds.errors import ClockError, DeadlineExceeded, QueueClosed
from timebounds.policies.mailbox import Mailbox
from timebounds.policies.work import (
    Admission,
    FailurePolicy,
    Overflow,
    Work,
    WorkOutcome,
    record_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from timebounds._checks import Seconds
    from timebounds.policies.work import WorkerReport, WorkRecord

__all__: list[str] = []

PayloadT = TypeVar("PayloadT")


class Desk(Generic[PayloadT]):
    """Base of both workers."""

    _most: int
    """How many hands may be at work at the same time."""

    def __init__(
        self,
        handle: Callable[[Work[PayloadT]], object],
        mailbox: tuple[int, Overflow, Seconds | None, int],
        limit: Seconds | None,
        check: Callable[[PayloadT], object] | None,
        failures: FailurePolicy,
        dead_letter: Callable[[Work[PayloadT]], object] | None,
        clock: SteadyClock,
    ) -> None:
        functions: list[tuple[object, str]] = [
            (handle, "handle"), (check, "check"), (dead_letter, "dead_letter")
        ]  # fmt: skip
        for value, name in functions:
            if not callable(value) and (value is not None or name == "handle"):
                msg = f"{name} must be a function, not {shown(value)}"
                raise TypeError(msg)
        self._handle: Any = handle
        self._check = check
        self._dead_letter = dead_letter or _tell_nobody
        self._failures = member(failures, "failures", FailurePolicy)
        self._limit_ns = None if limit is None else nanoseconds(limit, "limit", positive=True)
        self._box = Mailbox(*mailbox)
        self._now = reader(clock)
        self.clock = clock
        """The steady clock by which it waits, and on which deadlines must be."""
        self.stop: StopSignal = StopSignal()
        """Requested when its grace begins to end: each handler's `work.deadline` carries it."""
        self._terms = (self.stop, self._limit_ns)
        # Threads or tasks that handle work, or are on their way to it.
        self._hands: set[object] = set()
        # Of those who wait for the end of something.
        self._closers: dict[StopSignal, None] = {}
        self._lock = self._new_lock()

    @abstractmethod
    def _new_lock(self) -> AbstractContextManager[Any]:
        """Return what keeps others out for a few lines."""

    @abstractmethod
    def _start(self, hand: object) -> None:
        """Have a hand take work until there is none."""

    @property
    def report(self) -> WorkerReport:
        """What became of all accepted work, so far or for good."""
        with self._lock:
            return self._box.report()

    @property
    def history(self) -> tuple[WorkRecord, ...]:
        """How the last pieces of work ended, the oldest first."""
        with self._lock:
            ended = list(self._box.history)
        return tuple(map(record_of, ended))

    def __repr__(self) -> str:
        state = "closed" if self._box.closed else "open"
        return f"<{type(self).__name__} {state}, {self.report}>"

    # For both colours.

    def _own(self, deadline: Deadline) -> Deadline:
        deadline = as_deadline(deadline)
        if deadline.clock is not self.clock:
            msg = f"the worker is on {self.clock!r}, the deadline on {deadline.clock!r}: use one"
            raise ClockError(msg)
        return deadline

    def _prepare(
        self,
        payload: PayloadT,
        deadline: Deadline,
        key: Hashable | None,
        expires: Expiry | None,
    ) -> Work[PayloadT]:
        """Check what is submitted; first of all whether anything is accepted any more."""
        if self._box.closed:
            self._box.refuse_closed()
        given: object = deadline
        if type(given) is not Deadline or given._clock is not self.clock:
            self._own(deadline)
        if expires is not None and not isinstance(expires, Expiry):
            msg = f"expires must be an Expiry such as Expiry.after(60), not {shown(expires)}"
            raise TypeError(msg)
        if key is not None:
            try:
                hash(key)
            except TypeError as error:
                msg = f"key must be hashable, such as a text or a tuple, not {shown(key)}"
                raise TypeError(msg) from error
        if self._check is not None:
            self._check(payload)
        return Work(payload, deadline, key, expires, self._terms)

    def _room(self, deadline: Deadline, wait: Seconds) -> Deadline:
        """Return the deadline by which there must be room."""
        return deadline.within(nanoseconds(wait, "wait") / NS)

    def _waited(self, work: Work[PayloadT], room: Deadline) -> Admission:
        """Return what became of work that waited for room, or raise."""
        with self._lock:
            if work._accepted_at is not None:
                return Admission.ACCEPTED
            now = self._now()
            self._box.withdraw(work, now)
            closed = self._box.closed
        if closed:
            msg = "the worker was closed while this waited for room"
            raise QueueClosed(msg)
        if now >= room._at and not (room._stop is not None and room._stop.requested()):
            raise DeadlineExceeded(room._missed("submit", now) + ", there was no room")
        room.check("submit")
        return Admission.DUPLICATE

    def _withdraw(self, work: Work[PayloadT]) -> None:
        with self._lock:
            self._box.withdraw(work, self._now())
        self._tell_closers()

    def _call_in(self) -> None:
        """Have one more hand begin, if one is wanted."""
        hand = object()
        try:
            with self._lock:
                wanted = len(self._hands) < self._most and bool(self._box.queue)
                if wanted:
                    self._hands.add(hand)
            if wanted:
                self._start(hand)
        except BaseException:
            self._hands.discard(hand)
            raise

    def _call_in_again(self) -> None:
        """Have a hand begin where what waits may wait for nobody.

        One was cancelled, failed to start, or was disowned by an interrupt.
        """
        with suppress(RuntimeError):
            self._call_in()

    def _dismiss(self, hand: object) -> None:
        """Note that a hand has ended, in whatever way."""
        self._hands.discard(hand)
        self._tell_closers()

    def _tell_closers(self) -> None:
        for each in list(self._closers):
            each.request()

    def _failed(
        self, work: Work[PayloadT], error: BaseException, *, cancelled: bool = False
    ) -> None:
        """End a piece of work that has raised."""
        interrupted = cancelled or self.stop.requested()
        outcome = WorkOutcome.INTERRUPTED if interrupted else WorkOutcome.FAILED
        with self._lock:
            now = self._now()
            self._box.finish(work, outcome, now, error)
            if not interrupted and self._failures is FailurePolicy.CLOSE:
                self._box.close()
                self._box.stop_draining(now)
        self._deliver()

    def _close(self) -> None:
        with self._lock:
            self._box.close()

    def _quiet(self) -> bool:
        """Say whether nothing waits, nothing is under way, and nobody is telling the sink.

        Work may be under way without a hand that is known: an interrupt of who called it in.
        """
        with self._lock:
            box = self._box
            return box.final or not (box.queue or box.running or self._hands)

    def _end_draining(self) -> None:
        with self._lock:
            self._box.stop_draining(self._now())
        self.stop.request("the worker is closing")

    def _give_up(self) -> WorkerReport:
        with self._lock:
            self._box.give_up(self._now())
            report = self._box.report()
        self._tell_closers()
        self._deliver()
        return report

    def _deliver(self) -> None:
        """Hand what was not completed to the dead-letter sink, outside of the lock."""
        ownerless = self._box.ownerless
        for work in list(ownerless):
            # By one of those who come here; a chain that is all C up to the sink: an interrupt
            # finds it untold, or inside.
            taken = filter(None, map(ownerless.pop, (work,), (None,)))
            try:
                deque(map(self._dead_letter, taken), 0)
            except BaseException as error:
                if may_be_a_signals(error):
                    raise
                # Other work is not to blame.
                unhandled(error)


def _tell_nobody(_: object) -> None:
    """Stand in for a dead-letter sink."""
