"""`AsyncWorker`: as `Worker`, in tasks of the loop that it is used in."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

from timebounds._checks import count, nanoseconds
from timebounds.bounds.clock import MONOTONIC, SteadyClock
from timebounds.bounds.stop import StopSignal
from timebounds.bounds.waking import wait_in_task
from timebounds.errors import QueueFull, StopRequested
from timebounds.policies.desk import Desk
from timebounds.policies.work import Admission, FailurePolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from contextlib import AbstractContextManager

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.expiry import Expiry
    from timebounds.policies.work import Overflow, Work, WorkerReport

__all__ = ["AsyncWorker"]

PayloadT = TypeVar("PayloadT")


@final
class AsyncWorker(Desk[PayloadT]):
    """Handles pieces of work in tasks of its own, first in, first out. For the tasks of a loop.

    As `Worker`; `handle` is `async`, and `tasks` says how many pieces are handled at the same
    time. What is still under way when its grace is over is cancelled.
    """

    def __init__(
        self,
        handle: Callable[[Work[PayloadT]], Awaitable[object]],
        *,
        capacity: int,
        overflow: Overflow,
        tasks: int = 1,
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
        self._most = count(tasks, "tasks", minimum=1)
        # Held here: a loop holds its tasks weakly.
        self._tasks: set[asyncio.Task[None]] = set()

    def _new_lock(self) -> AbstractContextManager[Any]:
        # Between two awaits there is nobody else.
        return nullcontext()

    async def submit(
        self,
        payload: PayloadT,
        deadline: Deadline,
        *,
        key: Hashable | None = None,
        expires: Expiry | None = None,
        wait: Seconds | None = None,
    ) -> Admission:
        """Hand in work, to be done by `deadline`. As `Worker.submit`.

        A cancel while it waits for room takes it back.
        """
        work = self._prepare(payload, deadline, key, expires)
        room = deadline if wait is None else self._room(deadline, wait)
        try:
            admission = self._box.admit(work, self._now(), room)
            if isinstance(admission, StopSignal):
                self._call_in_again()
                # A stop of the room's is told where it is seen what became of the work.
                with suppress(StopRequested):
                    await wait_in_task(admission, room)
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
        task = asyncio.ensure_future(self._work(hand))
        self._tasks.add(task)
        # Called for one that is cancelled before its first turn, too.
        task.add_done_callback(partial(self._left, hand))

    def _left(self, hand: object, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._dismiss(hand)

    async def close(self, deadline: Deadline, *, reserve: Seconds = 0.0) -> WorkerReport:
        """Accept nothing more, let what waits be done, and report. Back by `deadline`.

        As `Worker.close`. A cancel goes on; what is under way then is left to the next call.
        """
        self._own(deadline)
        nanoseconds(reserve, "reserve")
        self._close()
        if not self._box.final:
            await self._await_quiet(deadline.reserving(reserve))
            self._end_draining()
            await self._await_quiet(deadline)
        report = self._give_up()
        for each in self._tasks:
            each.cancel()
        # It reaches them in the loop's next turn.
        await asyncio.sleep(0)
        return report

    async def _await_quiet(self, deadline: Deadline) -> None:
        going_on = True
        while going_on:
            # Before the look: what ends after it wakes the wait.
            ended = StopSignal()
            self._closers[ended] = None
            try:
                self._call_in_again()
                going_on = not self._quiet() and await wait_in_task(ended, deadline)
            except StopRequested:
                going_on = False
            finally:
                del self._closers[ended]

    async def _work(self, hand: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        done = None
        while True:
            work = self._box.take(self._now(), done)
            # An error's record holds this frame: it must hold nothing else.
            done = None
            if work is None:
                # From here on whoever submits calls another one in.
                self._hands.discard(hand)
                return
            if work._ended is not None:
                self._deliver()
                continue
            try:
                await self._handle(work)
            except Exception as error:  # noqa: BLE001  (it is recorded, and the sink is told)
                self._failed(work, error)
            except BaseException as error:
                cancelled = isinstance(error, asyncio.CancelledError)
                asked = task.cancelling() > 0
                self._failed(work, error, cancelled=cancelled and asked)
                # A cancel that nobody has asked for is a failure like any other.
                if asked or not cancelled:
                    raise
            else:
                done = work
