"""The golden tables of the contracts: every figure by ==, in both colours."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from timebounds import (
    AsyncBudgetedReceiver,
    Backoff,
    BoundReached,
    Overrun,
    PeerClosed,
    RetryAllowance,
)
from timebounds.blocking.switched_port import TimeoutPort
from timebounds.bounds.deadline import Deadline
from timebounds.policies.inbox import Exactly, Inbox
from timebounds.policies.plan import adrive, drive
from timebounds.policies.receiving import Rules, receiving
from timebounds.testing import Data, End, FakeClock, ScriptedSocket, ScriptedStream, Silence

SECOND = 1_000_000_000
NO_RETRY = RetryAllowance.none()


class AsyncScriptedPort:
    """The scripted socket for tasks: the port only forwards."""

    def __init__(self, sock):
        self._port = TimeoutPort(sock)

    async def perform(self, command, deadline):
        await asyncio.sleep(0)
        return self._port.perform(command, deadline)


class Recording:
    """A port that notes what each read was given."""

    def __init__(self, port):
        self._port = port
        self.granted = []

    def at_once(self, target):
        return self._port.at_once(target)

    def give_back(self):
        self._port.give_back()

    async def perform(self, target, deadline):
        self.granted.append(None if target.limit is None else target.limit / SECOND)
        return await self._port.perform(target, deadline)


def received(clock, size, idle, seconds, script, allowance):
    """Run the receiver for tasks in a loop on the clock's own time."""
    stream = ScriptedStream(clock, *script)
    receiver = AsyncBudgetedReceiver(stream, idle_timeout=idle, allowance=allowance)
    receiver._port = port = Recording(receiver._port)

    async def main():
        deadline = Deadline.never(clock=clock) if seconds is None else clock.deadline(seconds)
        with contextlib.suppress(BoundReached, PeerClosed):
            await receiver.receive_exactly(size, deadline)

    clock.run(main())
    return receiver.report, port.granted, list(clock.sleeps), clock.now()


def run(colour, *, size, idle, seconds, script, allowance=NO_RETRY, oversleep=0):
    """Run one receive in one colour; return the report, the grants, the sleeps and the time."""
    clock = FakeClock(auto_advance=colour != "a task's receiver")
    if oversleep:
        clock.script_oversleep(oversleep)
    if colour == "a task's receiver":
        return received(clock, size, idle, seconds, script, allowance)
    sock = ScriptedSocket(clock, *script)
    deadline = Deadline.never(clock=clock) if seconds is None else clock.deadline(seconds)
    rules = Rules(round(idle * SECOND), None, Overrun.CAP)
    inbox, target = Inbox(), Exactly(size, allowance)
    inbox.begin(target)
    plan = receiving(target, inbox, rules, deadline._at, clock.now_ns())
    if colour == "blocking":
        report = drive(plan, TimeoutPort(sock), deadline, clock.now_ns())
    else:
        report = asyncio.run(adrive(plan, AsyncScriptedPort(sock), deadline, clock.now_ns()))
    return report, sock.granted, list(clock.sleeps), clock.now()


@pytest.fixture(params=["blocking", "asyncio", "a task's receiver"])
def colour(request):
    return request.param


CHUNKS = (Data(b"AB", after=0.75), Data(b"CD", after=0.75), Data(b"EF", after=0.75))


@pytest.mark.parametrize(
    ("seconds", "outcome", "satisfied", "data", "granted", "time"),
    [
        (None, "complete", True, b"ABCDEF", [1, 1, 1], 2.25),
        (2.0, "deadline_expired", False, b"ABCD", [1, 1, 0.5], 2.0),
        (2.25, "deadline_expired", True, b"ABCDEF", [1, 1, 0.75], 2.25),
        (2.5, "complete", True, b"ABCDEF", [1, 1, 1], 2.25),
    ],
)
def test_one_deadline_is_shared_by_all_reads(
    colour, seconds, outcome, satisfied, data, granted, time
):
    """R1, R2: the first golden table."""
    report, grants, sleeps, now = run(colour, size=6, idle=1.0, seconds=seconds, script=CHUNKS)
    assert (report.outcome, report.satisfied, report.data) == (outcome, satisfied, data)
    assert grants == granted
    assert sleeps == []
    assert now == report.elapsed == time


CD = Data(b"CD", after=0.25)


@pytest.mark.parametrize(
    (
        "backoff",
        "oversleep",
        "later",
        "outcome",
        "satisfied",
        "data",
        "retries",
        "granted",
        "slept",
        "time",
    ),
    [
        (0, 0, CD, "complete", True, b"ABCD", 1, [1, 1, 0.75], [], 1.5),
        (0, 0, Silence(), "deadline_expired", False, b"AB", 1, [1, 1, 0.75], [], 2.0),
        (0.25, 0, CD, "complete", True, b"ABCD", 1, [1, 1, 0.5], [0.25], 1.75),
        (0.25, 0, Silence(), "deadline_expired", False, b"AB", 1, [1, 1, 0.5], [0.25], 2.0),
        (0.5, 0, CD, "deadline_expired", True, b"ABCD", 1, [1, 1, 0.25], [0.5], 2.0),
        (0.75, 0, CD, "deadline_expired", False, b"AB", 0, [1, 1], [0.75], 2.0),
        (0.75, 0, Silence(), "deadline_expired", False, b"AB", 0, [1, 1], [0.75], 2.0),
        (1.0, 0, CD, "deadline_expired", False, b"AB", 0, [1, 1], [0.75], 2.0),
        (0.25, 5, CD, "deadline_expired", False, b"AB", 0, [1, 1], [0.25], 6.5),
    ],
)
def test_backoff_spends_the_same_budget(
    colour, backoff, oversleep, later, outcome, satisfied, data, retries, granted, slept, time
):
    """R12: the second golden table."""
    report, grants, sleeps, now = run(
        colour,
        size=4,
        idle=1.0,
        seconds=2.0,
        script=(Data(b"AB", after=0.25), Silence(), later),
        allowance=RetryAllowance(1, Backoff.fixed(backoff)),
        oversleep=oversleep,
    )
    assert (report.outcome, report.satisfied, report.data) == (outcome, satisfied, data)
    assert (report.idle_retries, grants, sleeps) == (retries, granted, slept)
    assert now == report.elapsed == time
    assert report.slept == sum(slept) + oversleep
    assert report.overshoot == max(0, time - 2.0)


def test_without_allowance_the_first_idle_wait_ends_it(colour):
    """R12."""
    report, _, _, now = run(
        colour, size=4, idle=1.0, seconds=2.0, script=(Data(b"AB", after=0.25), Silence())
    )
    assert (report.outcome, report.data, report.idle_retries) == ("idle_timeout", b"AB", 0)
    assert now == 1.25


def test_silence_alone_uses_the_allowance_until_the_deadline(colour):
    """R12: a tie of idle and remaining is the deadline."""
    report, grants, _, now = run(
        colour, size=4, idle=1.0, seconds=2.5, script=(), allowance=RetryAllowance(9)
    )
    assert (report.outcome, report.idle_retries) == ("deadline_expired", 2)
    assert (grants, now) == ([1, 1, 0.5], 2.5)


def test_the_end_of_the_stream_is_never_retried(colour):
    """R7, case A02."""
    script = (Data(b"AB", after=0.25), End(after=0.25))
    report, grants, sleeps, _ = run(
        colour, size=6, idle=1.0, seconds=2.0, script=script, allowance=RetryAllowance(5)
    )
    assert (report.outcome, report.data, report.eof) == ("eof", b"AB", True)
    assert (report.idle_retries, report.reads, len(grants), sleeps) == (0, 2, 2, [])


def test_a_drip_never_buys_time(colour):
    """R1, case A01."""
    drip = [Data(b"x", after=0.9)] * 100
    report, grants, _, now = run(colour, size=100, idle=1.0, seconds=5.0, script=drip)
    assert (report.outcome, len(report.data)) == ("deadline_expired", 5)
    assert (grants, now) == ([1, 1, 1, 1, 1, 0.5], 5.0)
