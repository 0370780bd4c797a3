"""`Worker`: bounded work for a few threads, which is accounted for to the last piece.

What is accepted, begun and ended is decided in `policies/mailbox.py`. Here: threads are made when
there is work, and end when there is none for a while; no lock is held while anything waits.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

from timebounds._checks import count, nanoseconds, refuse_on_loop_thread
from timebounds.bounds._threads import Pool
from timebounds.bounds.clock import MONOTONIC, SteadyClock
from timebounds.bounds.stop import StopSignal
from timebounds.bounds.waking import unhandled, wait_in_thread
from timebounds.errors import QueueFull, StopRequested
from timebounds.policies.desk import Desk
from timebounds.policies.work import Admission, FailurePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.expiry import Expiry
    from timebounds.policies.work import Overflow, Work, WorkerReport

__all__ = ["Worker"]

PayloadT = TypeVar("PayloadT")


@final
class Worker(Desk[PayloadT]):
    """Handles pieces of work in threads of its own, first in, first out. For any threads.

    worker = Worker(send, capacity=100, overflow=Overflow.REJECT)
    worker.submit(letter, deadline)
    report = worker.close(Deadline.after(10), reserve=2)

    Args:
        handle: called with each `Work`; `work.payload`, and `work.deadline` to hand down.
        capacity: how many pieces may wait.
        overflow: what happens to work that comes when so many wait.
        threads: how many pieces are handled at the same time.
        limit: seconds that a piece may take to be handled; None for its own deadline alone.
        duplicate_window: seconds in which work of a key that was accepted is not accepted again.
        check: called with each payload in the submitting thread; what it raises refuses it.
        failures: what a failure means for the work that follows.
        dead_letter: called with each `Work` that was not completed; `work.record` says why.
        history: how many records of ended work are kept.
        clock: the steady clock by which it waits, and on which deadlines must be.
    """

    def __init__(
        self,
        handle: Callable[[Work[PayloadT]], object],
        *,
        capacity: int,
        overflow: Overflow,
        threads: int = 1,
        limit: Seconds | None = None,
        duplicate_window: Seconds | None = None,
        check: Callable[[PayloadT], object] | None = None,
        failures: FailurePolicy = FailurePolicy.CONTINUE,
        dead_letter: Callable[[Work[PayloadT]], object] | None = None,
        history: int = 100,
        clock: SteadyClock = MONOTONIC,
    ) -> None:
        super().__init__(
            handle,
            (capacity, overflow, duplicate_window, history),
            limit,
            check,
            failures,
            dead_letter,
            clock,
        )
        self._most = count(threads, "threads", minimum=1)
        self._pool = Pool(limit=self._most)

    def _new_lock(self) -> AbstractContextManager[Any]:
        # Reentrant, for signal handlers and finalisers; held for a few lines at a time.
        return threading.RLock()

    def submit(
        self,
        payload: PayloadT,
        deadline: Deadline,
        *,
        key: Hashable | None = None,
        expires: Expiry | None = None,
        wait: Seconds | None = None,
    ) -> Admission:
        """Hand in work, to be done by `deadline`: waiting for room, in line and being handled.

        Args:
            payload: what the handler is given.
            deadline: work that has not begun by then is stale, and is not begun.
            key: of the effect; within the duplicate window the same one is not accepted again.
            expires: a calendar instant from which on it is stale, too.
            wait: seconds to wait for room at most; None for the deadline alone.

        Raises:
            QueueClosed, QueueFull: it was refused, and left no trace.
            DeadlineExceeded, StopRequested: a bound was reached first; it was not accepted.
            ClockError: the deadline is on another clock.
            What `check` raised.
        """
        work = self._prepare(payload, deadline, key, expires)
        room = deadline if wait is None else self._room(deadline, wait)
        try:
            with self._lock:
                admission = self._box.admit(work, self._now(), room)
            if isinstance(admission, StopSignal):
                refuse_on_loop_thread("Worker.submit", "AsyncWorker.submit")
                self._call_in_again()
                # A stop of the room's is told where it is seen what became of the work.
                with suppress(StopRequested):
                    wait_in_thread(admission, room)
                admission = self._waited(work, room)
            if len(self._hands) < self._most and admission is Admission.ACCEPTED:
                self._call_in()
        except QueueFull:
            self._call_in_again()
            raise
        except BaseException:
            self._withdraw(work)
            raise
        if self._box.ownerless:
            self._deliver()
        return admission

    def _start(self, hand: object) -> None:
        self._pool.submit(partial(self._work, hand))

    def close(self, deadline: Deadline, *, reserve: Seconds = 0.0) -> WorkerReport:
        """Accept nothing more, let what waits be done, and report. Back by `deadline`.

        `reserve` seconds before it draining ends: what waits then is unstarted, what is under way
        is asked to stop, and waited for. What is still under way at the deadline is interrupted;
        its thread is left behind. An expired deadline waits for nothing. A second call returns an
        equal report.
        """
        self._own(deadline)
        nanoseconds(reserve, "reserve")
        refuse_on_loop_thread("Worker.close", "AsyncWorker.close")
        self._close()
        if not self._box.final:
            self._await_quiet(deadline.reserving(reserve))
            self._end_draining()
            self._await_quiet(deadline)
        return self._give_up()

    def _await_quiet(self, deadline: Deadline) -> None:
        going_on = True
        while going_on:
            # Before the look: what ends after it wakes the wait.
            ended = StopSignal()
            self._closers[ended] = None
            try:
                self._call_in_again()
                going_on = not self._quiet() and wait_in_thread(ended, deadline)
            except StopRequested:
                going_on = False
            finally:
                del self._closers[ended]

    def _work(self, hand: object) -> None:
        """Handle work until there is none; called by a thread of the pool."""
        try:
            done = None
            while True:
                with self._lock:
                    work = self._box.take(self._now(), done)
                    if work is None:
                        # From here on whoever submits calls another one in.
                        self._hands.discard(hand)
                # An error's record holds this frame: it must hold nothing else.
                done = None
                if work is None:
                    return
                if work._ended is not None:
                    self._deliver()
                    continue
                try:
                    self._handle(work)
                except BaseException as error:  # noqa: BLE001  (it is recorded, the sink is told)
                    self._failed(work, error)
                    if not isinstance(error, Exception):
                        unhandled(error)
                else:
                    done = work
        finally:
            self._dismiss(hand)
