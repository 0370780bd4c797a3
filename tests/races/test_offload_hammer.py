"""O1, O2, O5, H2: thousands of rounds of cancels at random instants, and nothing out of order.

What the exploration enumerates with a played thread, this does with real ones: threads switch every
few microseconds, cancels come after a random part of a millisecond, from the loop and from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import sys
import threading
import tracemalloc
from collections import Counter

import pytest
from offloads import turns, until

from timebounds import (
    Deadline,
    DeadlineExceeded,
    OffloadOutcome,
    ShieldedOffload,
    StopRequested,
    StopSignal,
    offload,
    offload_job,
    offload_report,
)
from timebounds.bounds._threads import CARE, POOL

SEED = 20_261_129
# In each of four tests, which have to end well before the watchdog.
ROUNDS = 6_000
AT_ONCE = 20


@pytest.fixture
def _small_switch_interval():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Failed(Exception):
    pass


class Round:
    """One offload over a resource: what is to happen, and what has happened."""

    def __init__(self, chance):
        # Short enough that a cancel meets every place: before the start, inside, at the return.
        self.stays = chance.random() * 0.0006
        self.ends = chance.choice(["value", "value", "error", "stop"])
        self.commits = chance.random() < 0.2
        self.delays = [chance.random() * 0.0008 for _ in range(chance.choice([0, 1, 2, 5]))]
        self.hands_on = chance.random() < 0.5
        self.handle = self.got = None
        self.bound = chance.choice([60, 60, 60, 0.0005])
        self.let_go = threading.Event()
        self.inside = self.entered = self.returned = self.closed = 0
        self.releases = self.releasing = self.asked = self.committed = 0
        self.accepted = 0
        self.late = []
        self.wrong = []

    def work(self, job):
        self.entered += 1
        self.inside += 1
        try:
            self.let_go.wait(self.stays)
            if self.commits:
                job.commit()
                self.committed += 1
            if self.closed:
                self.wrong.append("closed while inside")
            if self.ends == "error":
                raise Failed
            if self.ends == "stop":
                job.deadline.check()
            return self
        finally:
            self.returned += 1
            self.inside -= 1

    def release(self):
        self.releasing += 1
        self.releases += 1
        if self.closed or self.committed:
            self.wrong.append("released too late")
        self.let_go.set()
        self.releasing -= 1

    def close(self):
        self.closed += 1
        if self.inside or self.releasing:
            self.wrong.append("closed while inside")

    async def use(self):
        async with ShieldedOffload(release=self.release, close=[self.close]) as scope:
            handle = scope.start_job(
                self.work,
                deadline=Deadline.after(self.bound),
                on_late_result=self.late.append if self.hands_on else None,
            )
            self.handle = handle
            handle._work.stop.on_request(self.ask)
            self.got = await handle
            return self.got

    def ask(self):
        self.asked += 1

    def cancel(self, task):
        self.accepted += task.cancel()

    def judge(self, task, *, foreign):
        """Hold one round against the law; return how it ended."""
        assert self.wrong == []
        # Cancelled before its first step, a task owns nothing.
        assert self.closed == 1 or (self.accepted and not self.entered)
        assert self.entered == self.returned <= 1
        assert self.releases <= 1
        assert self.asked <= 1
        assert task.cancelling() == self.accepted
        # A foreign thread's may come in the very step with which the task ends: asyncio accepts
        # it, and has nobody left to give it to.
        self.overtaken = task._must_cancel
        assert foreign or not self.overtaken
        if self.handle is not None:
            self.judge_report(self.handle.report)
        return self.ending(task)

    def ending(self, task):
        if task.cancelled():
            assert self.accepted
            return "cancelled"
        error = task.exception()
        if error is None:
            assert self.overtaken or not self.accepted, "a cancel was swallowed"
            assert task.result() is self
            return "value"
        # What the function raised of itself, though its last check of the bound too.
        own = type(error) is Failed or (type(error) is DeadlineExceeded and self.ends == "stop")
        assert own or self.overtaken or not self.accepted, "only an unexpected error beats a cancel"
        assert offload_report(error) is not None
        return type(error).__name__

    def judge_report(self, report):
        assert not self.releases or report.stop_requested is not None
        assert report.released is None or report.released <= report.returned
        assert report.stop_requested is None or report.committed is None
        self.judge_value(report)

    def judge_value(self, report):
        """Exactly one has the value: the caller, the one it was handed on to, or the report."""
        if not self.entered:
            assert report.outcome is OffloadOutcome.NEVER_STARTED
            assert (report.value, report.error, self.late) == (None, None, [])
            assert not self.releases
        elif report.error is not None:
            assert isinstance(report.error, (Failed, StopRequested, DeadlineExceeded))
            assert (report.value, self.late) == (None, [])
        elif self.got is None and self.hands_on:
            assert (report.value, self.late) == (None, [self])
        else:
            assert (report.value, self.late) == (self, [])


def cancel_in_the_loop(pairs):
    """Plan the cancels of each as timers of the loop."""
    loop = asyncio.get_running_loop()
    timers = []
    for each, task in pairs:
        at = loop.time()
        for delay in each.delays:
            at += delay
            timers.append(loop.call_at(at, each.cancel, task))
    return timers


def cancel_from_outside(pairs, chance):
    """What another thread does: it cancels them all, in any order, again and again."""
    pause = threading.Event()
    cancels = [(delay, pair) for pair in pairs for delay in pair[0].delays]
    chance.shuffle(cancels)
    for delay, (each, task) in cancels:
        pause.wait(delay / AT_ONCE)
        each.cancel(task)


async def play(chance, rounds, *, foreign):
    """Play the rounds, some at a time; return how often each ending came."""
    endings = Counter()
    for _ in range(rounds // AT_ONCE):
        pairs = []
        for _ in range(AT_ONCE):
            each = Round(chance)
            pairs.append((each, asyncio.ensure_future(each.use())))
        tasks = [task for _, task in pairs]
        if foreign:
            # Begun, so that a cancel meets an offload and not a task that nobody has started.
            await asyncio.sleep(0)
            thread = threading.Thread(target=cancel_from_outside, args=(pairs, chance))
            thread.start()
            await asyncio.wait(tasks)
            await until(lambda thread=thread: not thread.is_alive())
        else:
            timers = cancel_in_the_loop(pairs)
            await asyncio.wait(tasks)
            for timer in timers:
                timer.cancel()
        for each, task in pairs:
            try:
                ending = each.judge(task, foreign=foreign)
            except AssertionError as error:
                error.add_note(f"{vars(each)}")
                raise
            endings[ending] += 1
    return endings


@pytest.mark.slow
@pytest.mark.usefixtures("_small_switch_interval")
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_offloads_under_random_cancels_keep_the_protocol(part, caplog):
    """O1, O2, O5: one stop, one release, one close, in order; every value has one owner."""
    chance = random.Random(SEED + part)
    stray = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: stray.append(context["message"])
        )
        # What debugging slows down is what is raced here.
        asyncio.get_running_loop().set_debug(False)
        return await play(chance, ROUNDS, foreign=part % 2 == 1)

    with caplog.at_level(logging.INFO):
        endings = asyncio.run(main())
        gc.collect()
    assert stray == []
    assert [record.getMessage() for record in caplog.records] == []
    assert endings.total() == ROUNDS
    # Each ending was met often, or the hammer has missed.
    for wanted in ("value", "cancelled", "Failed", "DeadlineExceeded"):
        assert endings[wanted] > ROUNDS // 100, endings


# ------------------------------------------------------------------ nothing grows

WARM = 2_000
OFFLOADS = 100_000


def at_work():
    return set(threading.enumerate()) - POOL.resting - CARE.resting


def held():
    """What a leak would add to: threads at work, descriptors, timers and callbacks of the loop."""
    loop = asyncio.get_running_loop()
    live = [timer for timer in loop._scheduled if not timer.cancelled()]
    descriptors = len(os.listdir("/proc/self/fd"))
    return len(at_work()), descriptors, len(live), len(loop._ready), len(asyncio.all_tasks())


async def quiet():
    """Wait until the pool's threads have gone back to rest, and the loop has nothing to do."""
    await until(lambda: not any(each.name == "timebounds worker" for each in at_work()))
    await turns()


async def one_of_each(number, stop):
    """One offload: a value, an error, an expiry, a cancel, a stop, in turn."""
    kind = number % 5
    if kind == 0:
        assert await offload(int, deadline=Deadline.after(3600, stop=stop)) == 0
    elif kind == 1:
        with contextlib.suppress(ZeroDivisionError):
            await offload(divmod, 1, 0, deadline=Deadline.after(3600, stop=stop))
    elif kind == 2:
        with contextlib.suppress(DeadlineExceeded):
            await offload(int, deadline=Deadline.after(0, stop=stop))
    elif kind == 3:
        task = asyncio.ensure_future(in_a_scope(stop))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    else:
        with contextlib.suppress(StopRequested):
            await offload_job(ask, deadline=Deadline.after(3600, stop=stop))


async def in_a_scope(stop):
    gate = threading.Event()
    async with ShieldedOffload(release=gate.set, close=[int]) as scope:
        await scope.run(gate.wait, 20, deadline=Deadline.after(3600, stop=stop))


def ask(job):
    job.deadline.stop.request("by itself")
    job.deadline.check()


def soaked(offloads):
    """Offload so many times; return what was held before and after, and the bytes that stayed."""

    async def main():
        stop = StopSignal()
        loop = asyncio.get_running_loop()
        loop.set_debug(False)
        for number in range(WARM):
            await one_of_each(number, stop)
        await quiet()
        gc.collect()
        tracemalloc.start()
        try:
            for number in range(50):
                await one_of_each(number, stop)
            await quiet()
            gc.collect()
            before, memory = held(), tracemalloc.get_traced_memory()[0]
            for number in range(offloads):
                await one_of_each(number, stop)
            await quiet()
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - memory
        finally:
            tracemalloc.stop()
        after = held()
        # Timers that were called off wait in the loop's heap for their turn to be thrown out.
        assert len(loop._scheduled) < 300
        assert not stop._callbacks
        return before, after, grown

    return asyncio.run(main())


@pytest.mark.slow
def test_nothing_grows_in_two_thousand_offloads():
    """H2: of each kind."""
    before, after, grown = soaked(2_000)
    assert after == before
    assert grown < 16_384


@pytest.mark.soak
def test_nothing_grows_in_a_hundred_thousand_offloads():
    """H2: threads, descriptors, memory, timers, callbacks."""
    before, after, grown = soaked(OFFLOADS)
    assert after == before
    assert grown < 16_384
