"""`Scheduler`: runs functions when they are due, one at a time, in the thread that runs it.

When what is due, and what becomes of what was missed, is decided in `policies/agenda.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, final

from timebounds._checks import refuse_on_loop_thread
from timebounds.bounds.waking import wait_in_thread
from timebounds.errors import StopRequested
from timebounds.policies.agenda import Due
from timebounds.policies.jobs import SchedulerOutcome
from timebounds.policies.runner import Runner

if TYPE_CHECKING:
    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.jobs import SchedulerReport

__all__ = ["Scheduler"]


@final
class Scheduler(Runner):
    """Runs jobs when they are due, in the thread that calls `run`.

    scheduler = Scheduler()
    scheduler.add(Every(60), poll, limit=10)
    scheduler.run(Deadline.never(stop=signal))

    One run at a time: what takes long makes the others late, which their policies absorb and
    ticks tell of; hand long work to a worker. Jobs are added and cancelled from any thread.

    Args:
        clock: the steady clock by which intervals pass and `run` waits.
        wall: the wall clock of `Daily` jobs.
        on_missed: called with a job and how many of its instants passed without a run.
        on_error: called with a tick and the Exception that its run raised; without, it is logged.
            What a hook raises ends `run`.
    """

    def run(self, deadline: Deadline) -> SchedulerReport:
        """Run what is due until `deadline`, its stop, or `close`; return why it ended.

        A run that is under way then is waited for; its `tick.deadline` ends with this one.

        Raises:
            Busy: it runs already.
            ClockError: the deadline is on another clock.
            What is no Exception, as a run raised it: KeyboardInterrupt. The job stays.
        """
        refuse_on_loop_thread("Scheduler.run", "AsyncScheduler.run")
        run = object()
        try:
            self._enter(deadline, run)
            while True:
                turn = self._turn(deadline)
                if isinstance(turn, SchedulerOutcome):
                    return self._report(turn)
                if isinstance(turn, Due):
                    self._call(turn, deadline)
                else:
                    with suppress(StopRequested):
                        wait_in_thread(self._agenda.wake, turn)
        finally:
            self._runs.pop(run, None)

    def _call(self, due: Due, deadline: Deadline) -> None:
        if due.due is None:
            return
        tick = due.tick(deadline)
        failure = None
        try:
            due.job._fn(tick)
        except Exception as error:  # noqa: BLE001  (it is told of, and others go on)
            failure = error
        try:
            self._ended(due, tick, failure)
        finally:
            # Its traceback holds this frame.
            del failure
