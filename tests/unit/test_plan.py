"""The plan kit and the inbox by themselves: numbers in, commands out."""

from __future__ import annotations

import asyncio

import pytest

from timebounds import ClockError, RetryAllowance, SteadyClock
from timebounds.bounds.deadline import NEVER_NS, Deadline
from timebounds.policies.inbox import CHUNK, Exactly, Inbox, Until, length
from timebounds.policies.plan import Pause, Reply, adrive, drive
from timebounds.policies.receiving import Rules, receiving
from timebounds.testing import FakeClock

S = 1_000_000_000
NONE = RetryAllowance.none()


def begin(target):
    inbox = Inbox()
    inbox.begin(target)
    return inbox


def test_a_plan_is_tested_by_sending_it_numbers():
    target = Exactly(4, RetryAllowance(1))
    inbox = begin(target)
    plan = receiving(target, inbox, Rules(S, None, None), at=10 * S, now=0)
    assert plan.send(None) is target
    assert (target.ask, target.limit) == (4, S)
    target.chunks.append(b"AB")
    assert plan.send((2 * S, Reply.ANSWER)) is target
    assert (target.ask, target.limit) == (2, S)
    target.chunks.append(b"CD")
    with pytest.raises(StopIteration) as caught:
        plan.send((3 * S, Reply.ANSWER))
    assert caught.value.value.data == b"ABCD"
    assert caught.value.value.elapsed == 3.0


def test_a_silence_that_ends_before_any_bound_is_read_on():
    """R1: a port that wakes for nothing costs a read, not the operation."""
    target = Exactly(1, NONE)
    plan = receiving(target, begin(target), Rules(NEVER_NS, None, None), at=10 * S, now=0)
    plan.send(None)
    assert target.limit == 10 * S
    assert plan.send((4 * S, Reply.SILENCE)) is target
    assert target.limit == 6 * S


def test_without_any_bound_a_read_has_no_limit():
    """N2: no infinity reaches a port."""
    target = Exactly(1, NONE)
    plan = receiving(target, begin(target), Rules(NEVER_NS, None, None), at=NEVER_NS, now=0)
    plan.send(None)
    assert target.limit is None


class Port:
    def perform(self, command, deadline):
        return "answer"


class AsyncPort:
    async def perform(self, command, deadline):
        return "answer"


def conversation():
    first = yield "command"
    second = yield Pause(S)
    return first, second


def run(colour, clock, now):
    deadline = Deadline.never(clock=clock)
    if colour == "blocking":
        return drive(conversation(), Port(), deadline, now)
    return asyncio.run(adrive(conversation(), AsyncPort(), deadline, now))


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_both_drivers_answer_with_the_time(colour):
    clock = FakeClock(auto_advance=True)
    assert run(colour, clock, 0) == ((0, "answer"), (S, None))


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_both_drivers_notice_a_clock_that_goes_back(colour):
    """C4."""

    class Fixed(SteadyClock):
        def now_ns(self):
            return 5

    with pytest.raises(ClockError, match="went backwards"):
        run(colour, Fixed(), 10)


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_stop_iteration_of_a_port_is_not_the_end_of_the_plan(colour):
    class Broken(Port):
        def perform(self, command, deadline):
            raise StopIteration("not yours")

    class AsyncBroken(AsyncPort):
        async def perform(self, command, deadline):
            raise KeyError("not yours")

    deadline = Deadline.never(clock=FakeClock())
    with pytest.raises((StopIteration, KeyError), match="not yours"):
        if colour == "blocking":
            drive(conversation(), Broken(), deadline, 0)
        else:
            asyncio.run(adrive(conversation(), AsyncBroken(), deadline, 0))


# ------------------------------------------------------------------ inbox


def test_chunks_are_folded_without_losing_one():
    chunks = [b"AB", b"", b"CD"]
    assert length(chunks) == 4
    assert b"".join(chunks) == b"ABCD"
    chunks.append(b"E")
    assert length(chunks) == 5
    assert length([]) == 0


def test_what_was_handed_out_does_not_fill_the_memory():
    """R6: the rest is moved to the front once enough lies before it."""
    inbox = Inbox()
    line = b"x" * 99 + b"\n"
    inbox.state = ([line * 2000], 0, None, None)
    for handed in range(1, 2001):
        target = Until(b"\n", 200, NONE)
        inbox.begin(target)
        data, chunks, start = inbox.split(target.value())
        inbox.state = (chunks, start, None, None)
        assert data == line
        assert len(inbox) == len(line) * (2000 - handed)
        assert sum(map(len, chunks)) <= max(2 * CHUNK, 2 * len(inbox) + CHUNK)
    assert inbox.state[:2] == ([], 0)


def test_a_single_chunk_is_handed_out_without_a_copy():
    """Speed: the bytes that the kernel gave are the value."""
    inbox, chunk = Inbox(), b"x" * 100
    inbox.state = ([chunk], 0, None, None)
    assert inbox.split(100)[0] is chunk
