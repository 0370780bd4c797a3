"""O1-O5, O7 as a table: where a cancel lands x how many x how the function ends x what is around.

Each row is one run of the real thing; gates hold the function, its release or its close at the
place where the cancels land.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from contextlib import suppress

import pytest
from offloads import turns, until

from timebounds import (
    Deadline,
    OffloadOutcome,
    ShieldedOffload,
    StopRequested,
    offload_report,
)
from timebounds.testing import Gate

pytestmark = pytest.mark.slow

PLACES = (
    "nowhere",
    "before dispatch",
    "queued",
    "at entry",
    "in a read",
    "in backoff",
    "between check and commit",
    "after commit",
    "in release",
    "while waiting",
    "in close",
    "after return",
)
TIMES = (1, 2, 5, 100)


class Unexpected(Exception):
    pass


ENDINGS = {
    "value": None,
    "error": Unexpected,
    "stop error": StopRequested,
    "StopIteration": StopIteration,
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
}
AROUND = ("a plain task", "a timeout", "nested timeouts", "a task group")


class Row:
    """One row under way."""

    def __init__(self, place, ending):
        self.place = place
        self.ending = ENDINGS[ending]
        self.gate = Gate(place)
        self.steps = []
        self.inside = threading.Event()
        self.over = threading.Event()

    def hold(self, place):
        """Stay here while the cancels land, if this is the place."""
        if self.place == place:
            self.gate.enter()

    def function(self, job):
        self.steps.append("entered")
        self.inside.set()
        try:
            self.hold("at entry")
            self.hold("in a read")
            with job.releasing(self.wake):
                self.hold("in release")
                self.hold("while waiting")
            if self.place == "in backoff":
                job.deadline.stop.wait(Deadline.after(30))
                self.gate.enter()
            with suppress(StopRequested):
                job.deadline.stop.check()
                self.hold("between check and commit")
                job.commit()
                self.steps.append("committed")
                self.hold("after commit")
            if self.ending is not None:
                raise self.ending("own")
            return "value"
        finally:
            self.steps.append("returned")

    def wake(self):
        self.steps.append("released")
        if self.place == "in release":
            # The function goes on in the middle of it.
            self.gate.open()

    def close(self):
        self.steps.append("closed")
        self.hold("in close")

    def submit(self, work):
        """An executor that keeps its work in line until it is told."""

        def carry_out():
            if self.place == "queued":
                self.gate.enter()
            work()
            self.over.set()

        threading.Thread(target=carry_out, daemon=True).start()

    async def use(self, around):
        async def run():
            if self.place == "before dispatch":
                asyncio.current_task().cancel()
            async with ShieldedOffload(close=[self.close], executor=self) as scope:
                return await scope.run_job(self.function, deadline=Deadline.after(60))

        if around == "a timeout":
            async with asyncio.timeout(50):
                return await run()
        if around == "nested timeouts":
            async with asyncio.timeout(50), asyncio.timeout(40):
                return await run()
        return await run()

    async def reach(self):
        """Wait until it is where the cancels are to land."""
        if self.place == "after return":
            await asyncio.sleep(0)
            assert self.over.wait(20)  # the loop does not turn meanwhile
        elif self.place == "in backoff":
            await until(self.inside.is_set)
        elif self.place in ("nowhere", "before dispatch"):
            await turns(2)
        else:
            await until(lambda: self.gate._arrived)


async def play(place, times, ending, around, factory=None):
    """Play one row; return it, its task, and how many cancels it was sent."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(factory)
    row = Row(place, ending)
    sent = 0
    if around == "a task group":
        task, sent = await in_a_group(row, times)
    else:
        task = asyncio.create_task(row.use(around))
        await row.reach()
        if place not in ("nowhere", "before dispatch"):
            for _ in range(times):
                sent += task.cancel()
                if place in ("while waiting", "in close"):
                    await turns()
        sent += place == "before dispatch"
        row.gate.open()
        with suppress(BaseException):
            await asyncio.wait([task])
    loop.set_task_factory(None)
    return row, task, sent


async def in_a_group(row, times):
    """One cancel comes from the group, whose other task fails; the others from outside."""
    sent = 0

    async def fail():
        raise KeyError("sibling")

    async def open_later():
        await turns(4)
        row.gate.open()

    # Outside of the group, whose failure cancels this task too.
    opener = None
    with suppress(BaseException):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(row.use("a plain task"))
            await row.reach()
            opener = asyncio.create_task(open_later())
            if row.place in ("nowhere", "before dispatch"):
                sent += row.place == "before dispatch"
            else:
                group.create_task(fail())
                sent = 1
                for _ in range(times - 1):
                    sent += task.cancel()
    await opener
    return task, sent


def check(row, task, sent, ending, *, by_group):
    steps = row.steps
    place = f"{row.place}: {steps}"
    assert task.done(), place
    # A group that is told of a failure cancels nobody who is done by then.
    assert sent - by_group <= task.cancelling() <= sent, place
    assert steps.count("closed") == 1, place
    assert steps.count("released") <= 1, place
    assert steps.count("entered") == steps.count("returned") <= 1, place
    assert steps[-1] == "closed", place
    if "released" in steps:
        assert steps.index("released") < steps.index("returned"), place
        assert "committed" not in steps[: steps.index("released")], place
    error = None if task.cancelled() else task.exception()
    if "entered" not in steps:
        assert task.cancelled(), place
    elif sent and ending in ("value", "stop error"):
        assert task.cancelled() or (ending == "stop error" and "committed" in steps), place
    elif sent:
        assert error is not None, place
    elif ending == "value":
        assert task.result() == "value", place
    else:
        assert error is not None, place
    if error is not None:
        wrapped = ending in ("StopIteration", "CancelledError")
        assert type(error) is (RuntimeError if wrapped else ENDINGS[ending]), place


FACTORIES = [None]
if sys.version_info >= (3, 12):
    FACTORIES.append(asyncio.eager_task_factory)


@pytest.mark.parametrize("factory", FACTORIES, ids=["lazy", "eager"][: len(FACTORIES)])
@pytest.mark.parametrize("around", AROUND)
def test_the_whole_table(around, factory, asyncio_complaints, caplog):
    """O1-O5, O7: every place, number of cancels and ending, inside each of what may be around."""
    reported = set()

    async def main():
        for place, times, ending in itertools.product(PLACES, TIMES, ENDINGS):
            if ending == "KeyboardInterrupt":
                continue  # it ends the loop itself: below
            row, task, sent = await play(place, times, ending, around, factory)
            check(row, task, sent, ending, by_group=around == "a task group")
            if task.cancelled():
                with suppress(asyncio.CancelledError) as _:
                    try:
                        task.result()
                    except asyncio.CancelledError as cancelled:
                        report = offload_report(cancelled)
                        reported.add(report and report.outcome)

    asyncio.run(main())
    assert {OffloadOutcome.CANCELLED, OffloadOutcome.NEVER_STARTED} <= reported
    assert asyncio_complaints() == []
    assert caplog.records == []


# Not in its close: after an interrupt that is done at once, in the loop's own thread.
@pytest.mark.parametrize("place", [place for place in PLACES if place != "in close"])
@pytest.mark.parametrize("times", TIMES)
def test_an_interrupt_out_of_the_function_at_every_place(place, times, asyncio_complaints):
    """O7, O8: it ends the loop as it would anywhere; what is owned is closed once."""
    rows, tasks = [], []

    async def main():
        row = Row(place, "KeyboardInterrupt")
        rows.append(row)
        task = asyncio.create_task(row.use("a plain task"))
        await row.reach()
        if place not in ("nowhere", "before dispatch"):
            for _ in range(times):
                task.cancel()
        tasks.append(task)
        row.gate.open()
        await asyncio.wait([task])

    with suppress(KeyboardInterrupt):
        asyncio.run(main())
    for task in tasks:
        # Its interrupt ended the loop, and nobody was left to look at it.
        task.cancelled() or task.exception()
    asyncio_complaints()
    [row] = rows
    assert row.steps.count("closed") == 1, row.steps
    assert row.steps[-1] == "closed", row.steps
