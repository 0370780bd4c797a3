"""A79: tools that mock time neither freeze a deadline nor break the fake clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from timebounds import (
    MONOTONIC,
    WALL,
    Deadline,
    DeadlineExceeded,
    Expiry,
    StopSignal,
    enforcing,
)
from timebounds.testing import FakeClock

THEN = datetime(2030, 1, 1, tzinfo=UTC)


def travelling():
    return pytest.importorskip("time_machine").travel(THEN, tick=False)


def frozen():
    return pytest.importorskip("freezegun").freeze_time(THEN, real_asyncio=True)


@pytest.fixture(params=[travelling, frozen])
def mocked(request):
    with request.param():
        yield


def test_a_deadline_goes_on_and_the_wall_stands_still(mocked):
    """C3, A79: waiting is real, the calendar is the tool's."""
    deadline = Deadline.after(0.02)
    assert not deadline.expired()
    MONOTONIC.sleep(0.03)
    assert deadline.expired()
    assert not StopSignal().wait(Deadline.after(0.01))
    assert WALL.now() == THEN
    assert Expiry.after(1).fresh()


def test_a_block_in_a_real_loop_is_ended(mocked):
    """A79: its timers are the loop's own."""

    async def main():
        with pytest.raises(DeadlineExceeded):
            async with enforcing(Deadline.after(0.02)):
                await asyncio.get_running_loop().create_future()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_the_fake_clock_moves_as_ever(mocked):
    """F1, F3: nothing of it asks the system."""
    clock = FakeClock()

    async def main():
        with pytest.raises(DeadlineExceeded):
            async with enforcing(clock.deadline(30)):
                await asyncio.sleep(60)  # fake time

    clock.run(main())
    assert clock.now() == 30.0
    clock.advance(1.5)
    assert clock.now() == 31.5
