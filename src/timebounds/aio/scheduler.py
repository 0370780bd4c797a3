"""`AsyncScheduler`: as `Scheduler`, in the task that runs it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, final

from timebounds.bounds.waking import wait_in_task
from timebounds.errors import StopRequested
from timebounds.policies.agenda import Due
from timebounds.policies.jobs import SchedulerOutcome
from timebounds.policies.runner import Runner

if TYPE_CHECKING:
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.jobs import SchedulerReport

__all__ = ["AsyncScheduler"]


@final
class AsyncScheduler(Runner):
    """Runs jobs when they are due, in the task that awaits `run`. As `Scheduler`.

    A job's function may be `async`. Jobs are added and cancelled from any thread.
    """

    async def run(self, deadline: Deadline) -> SchedulerReport:
        """Run what is due until `deadline`, its stop, or `close`; return why it ended.

        As `Scheduler.run`. A cancel reaches the run that is under way, and goes on.
        """
        run = object()
        try:
            self._enter(deadline, run)
            while True:
                turn = self._turn(deadline)
                if isinstance(turn, SchedulerOutcome):
                    return self._report(turn)
                if isinstance(turn, Due):
                    await self._call(turn, deadline)
                    # Functions that never wait must not keep the loop to themselves.
                    await asyncio.sleep(0)
                else:
                    with suppress(StopRequested):
                        await wait_in_task(self._agenda.wake, turn)
        finally:
            self._runs.pop(run, None)

    async def _call(self, due: Due, deadline: Deadline) -> None:
        if due.due is None:
            return
        tick = due.tick(deadline)
        failure = None
        try:
            result = due.job._fn(tick)
            if isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001  (it is told of, and others go on)
            failure = error
        try:
            self._ended(due, tick, failure)
        finally:
            # Its traceback holds this frame.
            del failure
