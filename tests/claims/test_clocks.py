"""C1, C3, C4, N3, N5 and the kind of case A22-A27: clocks and their waits."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from offloads import turns, until

import children
import timebounds.bounds.clock
from timebounds import (
    MONOTONIC,
    WALL,
    BootClock,
    BudgetedReceiver,
    ClockError,
    Deadline,
    MonotonicClock,
    SteadyClock,
    WallClock,
)
from timebounds.bounds.alarm import LoopAlarm
from timebounds.testing import FakeClock

DAY = 86_400


class Stub(SteadyClock):
    """A clock that the waits of the test move; it never really waits."""

    def __init__(self, step=None):
        self.ns = 0
        self.asked = []
        self.step = step

    def now_ns(self):
        return self.ns

    def wake(self, seconds):
        """Stand in for an operating system's wait."""
        self.asked.append(seconds)
        self.ns += round((seconds if self.step is None else self.step) * 1e9)
        return False


@pytest.fixture
def stub(monkeypatch):
    clock = Stub()
    monkeypatch.setattr("timebounds.bounds.clock.time.sleep", clock.wake)
    return clock


def test_the_wall_is_aware_and_in_utc():
    """C1."""
    now = WALL.now()
    assert now.tzinfo is UTC
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=5)
    assert repr(WallClock()) == "WallClock()"


def test_the_boot_clock_counts_suspend_where_the_system_can():
    """C1, case A27."""
    steady, boot = MONOTONIC.now_ns(), BootClock()
    assert boot.now_ns() >= steady
    assert repr(boot) == "BootClock()"
    with pytest.raises(RuntimeError, match=r"use MonotonicClock\(\)"):
        BootClock(_which=None)


def test_the_monotonic_clock_reads_the_systems():
    before = time.monotonic_ns()
    assert before <= MonotonicClock().now_ns() <= time.monotonic_ns()
    assert repr(MONOTONIC) == "MonotonicClock()"


def test_a_long_wait_is_cut_into_days(stub):
    """N3, case A22."""
    stub.sleep(2.5 * DAY)
    assert stub.asked == [DAY, DAY, DAY / 2]


def test_a_wait_of_any_size_can_begin(stub):
    """N3."""

    class Enough(Exception):
        pass

    def once(seconds):
        assert seconds <= DAY
        raise Enough

    condition = threading.Condition()
    condition.wait = once
    for seconds in (1e10, sys.maxsize, 2**63, 10**400, None):
        with pytest.raises(Enough):
            stub.wait(condition, seconds)


def test_a_wait_that_wakes_early_goes_on_until_the_clock_agrees(stub):
    """N5, case A24: truncation to milliseconds makes no busy loop and no early end."""

    def truncating(seconds):
        stub.asked.append(seconds)
        stub.ns += max(1_000_000, int(seconds * 1000) * 1_000_000)

    import timebounds.bounds.clock as module

    module.time.sleep, kept = truncating, module.time.sleep
    try:
        stub.sleep(1.0004)
    finally:
        module.time.sleep = kept
    assert stub.ns >= 1_000_400_000
    assert len(stub.asked) <= 3
    assert all(seconds > 0 for seconds in stub.asked)


@pytest.mark.parametrize("verb", ["poll", "await_done"])
def test_a_wait_asks_for_no_more_than_is_left_and_for_nothing_when_nothing_is(verb, monkeypatch):
    """N4, N5: in both colours."""
    clock = Stub()

    class Never:
        def poll(self, milliseconds):
            return clock.wake(milliseconds / 1000) or []

    async def await_done(seconds):
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def call_later(delay, wake):
            clock.wake(delay)
            return later(0, wake)

        monkeypatch.setattr(loop, "call_later", call_later)
        await clock.await_done(loop.create_future(), seconds)

    for seconds, asked in ((0, [0.0]), (1e-9, [1e-9]), (1.5, [1.5]), (1.5 * DAY, [DAY, DAY / 2])):
        clock.asked.clear()
        if verb == "poll":
            clock.poll(Never(), seconds)
        else:
            asyncio.run(await_done(seconds))
        assert clock.asked == pytest.approx(asked)


def test_boot_waits_look_at_the_clock_every_second(monkeypatch):
    """C1, case A27: suspend stops the system's timers, not this clock."""
    now = [0]
    boot = BootClock(_read=lambda _: now[0])
    asked = []

    def sleep(seconds):
        asked.append(seconds)
        # The machine sleeps for a minute in the middle of the third second.
        now[0] += round(seconds * 1e9) + (60_000_000_000 if len(asked) == 3 else 0)

    monkeypatch.setattr("timebounds.bounds.clock.time.sleep", sleep)
    boot.sleep(10)
    assert asked == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("verb", ["sleep", "wait", "poll", "asleep", "await_done"])
def test_a_wait_that_sees_its_clock_go_back_is_an_error(verb):
    """C4."""

    class Backwards(SteadyClock):
        readings = iter([10**9, 10**9, 5])

        def now_ns(self):
            return next(self.readings)

    clock = Backwards()

    class NeverReady:
        def poll(self, timeout):
            return []

    async def await_done():
        await clock.await_done(asyncio.get_running_loop().create_future(), 0.001)

    async def asleep():
        await clock.asleep(0.001)

    condition = threading.Condition()
    calls = {
        "sleep": lambda: clock.sleep(0.001),
        "wait": lambda: clock.wait(condition, 0.001),
        "poll": lambda: clock.poll(NeverReady(), 0.001),
        "asleep": lambda: asyncio.run(asleep()),
        "await_done": lambda: asyncio.run(await_done()),
    }
    with condition, pytest.raises(ClockError, match="went backwards by"):
        calls[verb]()


def test_a_notified_wait_returns_true():
    """A waiter learns whether it was notified or the time was over."""
    condition = threading.Condition()
    woken = []

    def wait():
        with condition:
            inside.set()
            woken.append(MONOTONIC.wait(condition, None))

    inside = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    inside.wait()
    with condition:
        condition.notify()
    thread.join()
    assert woken == [True]


def test_a_wait_of_nothing_only_looks():
    """N4."""
    asyncio.run(MONOTONIC.asleep(0))
    asyncio.run(await_nothing())
    condition = threading.Condition()
    with condition:
        assert not MONOTONIC.wait(condition, 0)


async def await_nothing():
    future = asyncio.get_running_loop().create_future()
    assert not await MONOTONIC.await_done(future, 0)


def test_no_step_of_the_wall_moves_a_deadline_or_a_receive():
    """C3, cases A25 and A26."""
    from timebounds.testing import Data, ScriptedSocket

    clock = FakeClock(auto_advance=True)
    sock = ScriptedSocket(clock, Data(b"A", after=0.5), Data(b"B", after=0.25))
    deadline = clock.deadline(1)
    stepping = iter([3600, -7200, 86_400 * 365])
    plain = sock.recv

    def recv(size):
        clock.step_wall(next(stepping))
        return plain(size)

    sock.recv = recv
    assert BudgetedReceiver(sock, idle_timeout=1).receive_exactly(2, deadline) == b"AB"
    assert deadline.remaining() == 0.25
    assert sock.granted == [1.0, 0.5]


def test_a_clock_says_which_time_counts_through_suspend():
    """C1, case A27."""
    clock = FakeClock()
    steady, boot = clock.deadline(120), Deadline.after(120, clock=clock.boot)
    clock.advance(30)
    clock.suspend(60)
    assert (steady.remaining(), boot.remaining()) == (90.0, 30.0)


PATCHED = """
import time
from timebounds import Deadline
real = time.monotonic_ns
time.monotonic_ns = time.monotonic = lambda: 0
deadline = Deadline.after(0.05)
end = real() + 2_000_000_000
while not deadline.expired():
    assert real() < end, "the deadline is frozen"
print("expired")
"""


def test_patching_the_time_module_freezes_no_deadline():
    """Case A79: the reading function is bound in the clock."""
    out = children.python("-c", PATCHED)
    assert out.stdout == "expired\n", out.stderr


# ------------------------------------------------------------------ alarms


class Ticking(SteadyClock):
    """A clock that a test sets, and whose waits are real."""

    def __init__(self):
        self.ns = self.reads = 0

    def now_ns(self):
        self.reads += 1
        return self.ns


def test_an_alarm_never_goes_off_before_its_clock_says_so():
    """N5: a loop's timer that comes too soon is set again."""
    clock = Ticking()

    async def main():
        rung = []
        clock.alarm(0.001, lambda: rung.append(clock.ns))
        for clock.ns in (0, 999_999):
            reads = clock.reads
            await until(lambda reads=reads: clock.reads > reads + 3)
            assert rung == []
        clock.ns = 1_000_000
        await until(lambda: rung)
        assert rung == [1_000_000]

    asyncio.run(main())


def test_a_wait_that_is_over_leaves_nothing_at_its_future(monkeypatch):
    """Nor any alarm; with suspend counted, the clock is looked at every second."""
    made = []

    class Noting(LoopAlarm):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(timebounds.bounds.clock, "LoopAlarm", Noting)

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        assert not await MONOTONIC.await_done(future, 0.001)
        assert not future._callbacks
        waits = asyncio.create_task(BootClock().await_done(future, 1e10))
        await until(lambda: len(made) == 2)
        assert made[1]._handle.when() - loop.time() <= 1.0
        future.set_result(None)
        assert await waits
        assert [alarm._handle.cancelled() for alarm in made] == [True, True]

    asyncio.run(main())


def test_a_poll_without_a_limit_waits_for_what_comes():
    """None is no limit."""
    reads, writes = os.pipe()
    try:
        poller = select.poll()
        poller.register(reads, select.POLLIN)
        os.write(writes, b"!")
        assert MONOTONIC.poll(poller, None) == [(reads, select.POLLIN)]
    finally:
        os.close(reads)
        os.close(writes)


def test_an_alarm_can_be_called_off_and_takes_any_size():
    """N3: a wait of years is cut into days."""

    async def main():
        rung = []
        for seconds in (0.001, 1e10, 10**400, timedelta(days=9_000)):
            MONOTONIC.alarm(seconds, lambda: rung.append(1)).cancel()
        alarm = MONOTONIC.alarm(1e10, lambda: rung.append(1))
        delay = alarm._handle.when() - asyncio.get_running_loop().time()
        assert delay <= 86_400
        alarm.cancel()
        boot = BootClock().alarm(1e10, lambda: rung.append(1))
        assert boot._handle.when() - asyncio.get_running_loop().time() <= 1.0
        boot.cancel()
        await turns(5)
        assert rung == []
        with pytest.raises(TypeError, match=r"^seconds must be a number of seconds"):
            MONOTONIC.alarm("1", print)

    asyncio.run(main())


def test_a_fake_alarm_goes_off_when_the_clock_is_advanced():
    """F3: exactly at its instant, in its loop; it counts as somebody who waits."""
    clock = FakeClock()

    async def main():
        rung = []
        alarm = clock.alarm(2, lambda: rung.append(clock.now()))
        other = clock.alarm(2, lambda: rung.append("other"))
        assert clock.waiting[0].startswith("task ")
        other.cancel()
        clock.advance(1.5)
        await asyncio.sleep(0)
        assert rung == []
        clock.advance(0.5)
        await asyncio.sleep(0)
        assert rung == [2.0]
        assert alarm.cancel() is False

    asyncio.run(main())


def test_a_fake_alarm_after_its_loop_has_closed_rings_nowhere():
    """T4: nobody is left to be told."""
    clock = FakeClock()

    async def main():
        clock.alarm(1, lambda: pytest.fail("nobody is there"))

    asyncio.run(main())
    clock.advance(1)
