"""A87, W1: the deadline around a client's calls."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from timebounds import (
    BoundReached,
    ClockError,
    Deadline,
    DeadlineExceeded,
    StopRequested,
    StopSignal,
    bounding,
    current_deadline,
    detached,
    offload,
)
from timebounds.testing import FakeClock


def test_it_holds_inside_and_not_outside():
    clock = FakeClock()
    assert current_deadline() is None
    with bounding(clock.deadline(1)) as inside:
        assert current_deadline() is inside
        assert inside == clock.deadline(1)
    assert current_deadline() is None


def test_nested_ones_only_shorten():
    """D2: the earlier holds, with the stop signals of both."""
    clock = FakeClock()
    stop = StopSignal(clock=clock)
    with bounding(Deadline.after(2, clock=clock, stop=stop)) as outer:
        with bounding(clock.deadline(5)) as inner:
            assert inner == outer
        with bounding(clock.deadline(1)) as inner:
            assert inner.remaining() == 1
            assert inner.stop is stop
        assert current_deadline() is outer


def test_two_clocks_are_not_compared_and_nothing_is_set():
    """D3."""
    with bounding(FakeClock().deadline(1)) as outer:
        with pytest.raises(ClockError), bounding(FakeClock().deadline(1)):
            pass
        assert current_deadline() is outer


def test_a_number_is_no_deadline():
    """N5."""
    with pytest.raises(TypeError, match=r"Deadline\.after\(2\)"):
        bounding(2)


def test_a_block_may_be_entered_again_and_inside_itself():
    clock = FakeClock()
    block = bounding(clock.deadline(1))
    with block, block, detached():
        assert current_deadline() is None
    with block:
        assert current_deadline() is not None
    assert current_deadline() is None


def test_detaching_is_one_word_and_keeps_the_rest_of_the_context():
    """A87: a detached job of 0.2 goes on behind a deadline of 0.05; a child is bounded."""
    clock = FakeClock()
    name = contextvars.ContextVar("name", default="")

    async def job(seconds):
        bound = current_deadline()
        await clock.asleep(seconds)
        return name.get(), None if bound is None else bound.remaining()

    async def main():
        name.set("request 7")
        with bounding(clock.deadline(0.05)):
            child = asyncio.create_task(job(0))
            with detached():
                background = asyncio.create_task(job(0.2))
        return await child, await background

    child, background = clock.run(main())
    assert child == ("request 7", 0.05)
    assert background == ("request 7", None)
    assert clock.now() == 0.2


def test_an_offloaded_function_sees_it_and_a_new_thread_does_not():
    """A87."""
    seen = []

    async def main():
        with bounding(Deadline.after(60)) as inside:
            seen.append(await offload(current_deadline, deadline=Deadline.after(60)) is inside)
            thread = threading.Thread(target=lambda: seen.append(current_deadline()))
            thread.start()
            thread.join()

    asyncio.run(main())
    assert seen == [True, None]


class ClientError(Exception):
    def __init__(self, text, reason=None):
        super().__init__(text)
        self.reason = reason


def ours():
    return DeadlineExceeded("recv: the deadline of 1 s was missed by 0.1 s", report="evidence")


def by_cause():
    try:
        raise ours()
    except DeadlineExceeded as error:
        raise ClientError("read failed") from error


def by_context():
    try:
        raise ours()
    except DeadlineExceeded:
        raise ClientError("read failed")  # noqa: B904


def hidden():
    try:
        raise ours()
    except DeadlineExceeded:
        raise ClientError("read failed") from None


def by_reason():
    raise ClientError("read failed", reason=ours())


def by_argument():
    raise ClientError(ClientError("retries", reason=ours()))


@pytest.mark.parametrize("fail", [by_cause, by_context, hidden, by_reason, by_argument])
def test_a_clients_error_that_hides_ours_becomes_ours(fail):
    """W1: one fact has one class."""
    expected = pytest.raises(DeadlineExceeded, match="the deadline of 1 s was missed")
    with expected as caught, bounding(FakeClock().deadline(1)):
        fail()
    assert isinstance(caught.value.__cause__, ClientError)
    assert caught.value.report == "evidence"
    assert current_deadline() is None


def test_a_stop_is_told_as_a_stop():
    with pytest.raises(StopRequested), bounding(FakeClock().deadline(1)):
        try:
            raise StopRequested("recv: stopped")
        except StopRequested as error:
            raise ClientError from error


@pytest.mark.parametrize(
    "error", [ClientError("other"), ours(), KeyboardInterrupt(), TimeoutError()]
)
def test_any_other_error_passes_through_as_it_is(error):
    with pytest.raises(type(error)) as caught, bounding(FakeClock().deadline(1)):
        raise error
    assert caught.value is error


def test_an_interrupt_that_came_on_top_of_ours_stays_an_interrupt():
    with pytest.raises(KeyboardInterrupt), bounding(FakeClock().deadline(1)):
        try:
            raise ours()
        except BoundReached:
            raise KeyboardInterrupt  # noqa: B904


def test_errors_that_name_each_other_in_a_circle_or_a_long_line_are_left_alone():
    first, second = ClientError("first"), ClientError("second")
    first.reason, second.reason = second, first
    with pytest.raises(ClientError) as caught, bounding(FakeClock().deadline(1)):
        raise first
    assert caught.value is first
    line = ours()
    for n in range(200):
        line = ClientError(n, reason=line)
    with pytest.raises(ClientError), bounding(FakeClock().deadline(1)):
        raise line


def test_one_block_serves_tasks_that_run_at_the_same_time():
    """Each leaves for itself."""
    clock = FakeClock()
    block = bounding(clock.deadline(5))

    async def job(before, inside):
        await clock.asleep(before)
        with block as bound:
            await clock.asleep(inside)
            assert current_deadline() is bound
        assert current_deadline() is None

    async def main():
        async with asyncio.TaskGroup() as group:
            for before, inside in ((0, 2), (1, 2), (1, 0.5)):
                group.create_task(job(before, inside))

    clock.run(main())


def test_generators_may_be_left_in_another_order_and_in_another_context():
    """A87: and no block outlives its end."""
    clock = FakeClock()

    def generator():
        with bounding(clock.deadline(1)):
            yield

    first = generator()
    next(first)
    with bounding(clock.deadline(2)) as inside:
        first.close()
        assert current_deadline() is inside
    assert current_deadline() is None
    second = generator()
    contextvars.copy_context().run(next, second)
    with bounding(clock.deadline(3)) as inside:
        second.close()
        assert current_deadline() is inside
    assert current_deadline() is None
