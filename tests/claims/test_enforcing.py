"""`enforcing`, `run_async` and `Deadline.from_scope`: D6 and the cases A48, A52, A53, A54."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from types import SimpleNamespace

import pytest
from offloads import turns, until

from timebounds import (
    MONOTONIC,
    Deadline,
    DeadlineExceeded,
    Enforced,
    EnforceReport,
    SteadyClock,
    StopRequested,
    StopSignal,
    blocking_allowed,
    enforcing,
    run_async,
)
from timebounds.testing import FakeClock, Gate, Trace

NO_LIMIT = Deadline.never()


async def for_ever():
    await asyncio.get_running_loop().create_future()


async def sleep(seconds):
    await asyncio.sleep(seconds)  # fake time


def at_rest(task):
    """Nothing of a bound is left on the task."""
    return task.cancelling() == 0 and not getattr(task, "_must_cancel", False)


# ------------------------------------------------------------------ whose clock


def test_it_follows_a_fake_clock_that_is_advanced_in_a_normal_loop():
    """D6: at the instant, not a nanosecond before."""
    clock = FakeClock()

    async def bounded():
        async with enforcing(clock.deadline(60)) as block:
            try:
                await for_ever()
            finally:
                seen.append(block.report)

    async def main():
        task = asyncio.create_task(bounded())
        await until(lambda: clock.waiting)
        clock.advance(59.999999999)
        await turns(5)
        assert not task.done()
        clock.advance(1e-9)
        with pytest.raises(DeadlineExceeded) as caught:
            await task
        return caught.value

    seen = []
    error = asyncio.run(main())
    assert str(error) == "block: the deadline of 60 s was reached"
    assert error.report == EnforceReport(Enforced.DEADLINE_EXPIRED, 60.0, 0.0)
    assert isinstance(error.__cause__, asyncio.CancelledError)
    assert seen == [None]
    assert clock.waiting == ()


def test_it_follows_a_fake_clock_on_its_own_loop():
    """F3: an hour costs nothing, and ends exactly."""
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(3600)):
            await sleep(7200)

    with pytest.raises(DeadlineExceeded, match=r"the deadline of 3600 s was reached"):
        clock.run(main())
    assert clock.now() == 3600.0
    assert clock.waiting == ()


@pytest.mark.real
def test_it_follows_the_real_clock():
    async def main():
        began = MONOTONIC.now()
        with pytest.raises(DeadlineExceeded) as caught:
            async with enforcing(Deadline.after(0.05)):
                await for_ever()
        assert at_rest(asyncio.current_task())
        return MONOTONIC.now() - began, caught.value.report

    took, report = asyncio.run(main())
    assert 0.05 <= report.elapsed <= took < 10
    assert report.outcome is Enforced.DEADLINE_EXPIRED
    assert 0 <= report.overshoot < 10


@pytest.mark.parametrize("years", [11, 1_000, 30_000])
def test_it_is_never_early_where_seconds_are_too_coarse_for_nanoseconds(years):
    """C4, F3: a float of so many seconds does not reach the nanosecond."""
    clock = FakeClock()
    clock.advance(1 / 3)
    far = Deadline.after(years * 365 * 86_400 + 0.123456789, clock=clock)
    clock.advance(1 / 7)

    async def main():
        async with enforcing(far, raises=False) as block:
            await for_ever()
        return block.report

    report = clock.run(main())
    assert report.outcome is Enforced.DEADLINE_EXPIRED
    assert far.expired()
    assert report.overshoot < 1e-3


def test_a_clock_that_rings_too_early_is_asked_again():
    """C4: the alarm is a hint, the clock's own reading decides."""
    clock = FakeClock()
    ring = clock.alarm
    asked = []

    def early(seconds, wake):
        asked.append(seconds)
        return ring(seconds / 2 if len(asked) < 3 else seconds, wake)

    async def main():
        clock.alarm = early
        async with enforcing(clock.deadline(8), raises=False) as block:
            await for_ever()
        return block.report

    assert clock.run(main()) == (Enforced.DEADLINE_EXPIRED, 8.0, 0.0)
    assert asked == [8.0, 4.0, 2.0]


# ------------------------------------------------------------------ only its own expiry


def test_a_block_in_time_is_left_alone():
    clock = FakeClock()
    stop = StopSignal(clock=clock)

    async def main():
        block = enforcing(clock.deadline(10).stopping(stop))
        async with block as same:
            assert same is block
            await sleep(3)
        assert at_rest(asyncio.current_task())
        assert clock.waiting == ()
        assert stop._callbacks == {}
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 3.0, 0.0)


def test_a_deadline_that_never_comes_bounds_nothing():
    clock = FakeClock()

    async def main():
        async with enforcing(Deadline.never(clock=clock)) as block:
            assert clock.waiting == ()
            await sleep(10**9)
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 1e9, 0.0)


@pytest.mark.parametrize(
    "error", [ValueError("own"), TimeoutError("another's"), DeadlineExceeded("another's")]
)
def test_an_error_of_the_block_goes_on_as_it_is(error):
    clock = FakeClock()

    async def main():
        with pytest.raises(type(error)) as caught:
            async with enforcing(clock.deadline(10)) as block:
                raise error
        assert caught.value is error
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 0.0, 0.0)
    assert clock.waiting == ()


def test_a_cancel_by_somebody_else_goes_on_as_a_cancel():
    clock = FakeClock()
    blocks = []

    async def bounded():
        async with enforcing(clock.deadline(10)) as block:
            blocks.append(block)
            await for_ever()

    async def main():
        task = asyncio.create_task(bounded())
        await sleep(1)
        task.cancel("somebody else")
        with pytest.raises(asyncio.CancelledError, match="somebody else"):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1

    clock.run(main())
    assert blocks[0].report == (Enforced.COMPLETED, 1.0, 0.0)
    assert clock.waiting == ()


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("first", ["deadline", "cancel"])
def test_a_cancel_at_the_very_instant_of_the_deadline_is_not_lost(first, raises):
    """Case A48: cancellation beats expiry when both are due, in whatever order."""
    clock = FakeClock()

    async def bounded():
        async with enforcing(clock.deadline(10), raises=raises):
            await for_ever()

    async def main():
        loop = asyncio.get_running_loop()
        if first == "cancel":
            clock.call_later(10, lambda: loop.call_soon(task.cancel))
        task = asyncio.create_task(bounded())
        await asyncio.sleep(0)
        if first == "deadline":
            clock.call_later(10, lambda: loop.call_soon(task.cancel))
        await asyncio.wait([task])
        assert task.cancelled()
        assert task.cancelling() == 1

    clock.run(main())
    assert clock.now() == 10.0


def test_an_error_that_the_block_makes_of_the_cancel_goes_on():
    clock = FakeClock()

    async def main():
        with pytest.raises(ValueError, match="of its own"):
            async with enforcing(clock.deadline(10)) as block:
                try:
                    await for_ever()
                except asyncio.CancelledError as error:
                    raise ValueError("of its own") from error
        assert at_rest(asyncio.current_task())
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 10.0, 0.0)


# ------------------------------------------------------------------ due on entry


def expired(clock):
    deadline = clock.deadline(5)
    clock.advance(7)
    return deadline


def asked(clock):
    stop = StopSignal(clock=clock)
    stop.request("closing")
    return clock.deadline(5).stopping(stop)


DUE = {"zero": lambda clock: clock.deadline(0), "expired": expired, "stopped": asked}


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("due", DUE)
def test_a_pending_cancel_wins_over_a_bound_that_is_due_on_entry(due, raises):
    """Case A48: CancelledError leaves and the task is cancelled."""
    clock = FakeClock()
    entered = []

    async def bounded():
        asyncio.current_task().cancel("pending")
        async with enforcing(DUE[due](clock), raises=raises):
            entered.append("entered")
            await for_ever()

    async def main():
        task = asyncio.create_task(bounded())
        with pytest.raises(asyncio.CancelledError, match="pending"):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1

    clock.run(main())
    assert entered == []
    assert clock.waiting == ()


def test_a_bound_that_is_due_runs_nothing_of_the_block():
    """D1, D10: at the instant is expired; the error says by how much."""
    clock = FakeClock()

    async def main():
        with pytest.raises(DeadlineExceeded) as caught:
            async with enforcing(expired(clock)):
                pytest.fail("the block has run")
        assert at_rest(asyncio.current_task())
        return caught.value

    error = clock.run(main())
    assert str(error) == "block: the deadline of 5 s was missed by 2 s"
    assert error.report == (Enforced.DEADLINE_EXPIRED, 0.0, 2.0)
    with pytest.raises(DeadlineExceeded, match="of 0 s was reached"):
        run_async(for_ever, deadline=clock.deadline(0))


def test_a_stop_that_was_requested_before_runs_nothing_of_the_block():
    clock = FakeClock()
    deadline = asked(clock)

    async def main():
        async with enforcing(deadline):
            pytest.fail("the block has run")

    with pytest.raises(StopRequested, match=r"^block: stopped \(closing\) 0 s into") as caught:
        clock.run(main())
    assert caught.value.report == (Enforced.STOPPED, 0.0, 0.0)
    assert deadline.stop._callbacks == {}


def test_a_stop_that_is_due_with_the_deadline_comes_first():
    """D8: a stop before an expiry."""
    clock = FakeClock()
    deadline = asked(clock)
    clock.advance(5)

    async def main():
        async with enforcing(deadline, raises=False) as block:
            await for_ever()
        return block.report

    assert clock.run(main()).outcome is Enforced.STOPPED


@pytest.mark.parametrize("due", DUE)
def test_without_raising_a_bound_that_is_due_cancels_the_first_wait(due):
    clock = FakeClock()
    seen = []

    async def main():
        async with enforcing(DUE[due](clock), raises=False) as block:
            seen.append("before")
            await asyncio.sleep(0)
            seen.append("after")
        assert at_rest(asyncio.current_task())
        return block.report.outcome

    outcome = clock.run(main())
    assert outcome is (Enforced.STOPPED if due == "stopped" else Enforced.DEADLINE_EXPIRED)
    assert seen == ["before"]


def test_without_raising_a_bound_that_is_due_does_not_outlive_a_block_that_never_waits():
    """The wait after the block is nobody's but the task's own."""
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(0), raises=False) as block:
            pass
        assert at_rest(asyncio.current_task())
        await sleep(1)
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 0.0, 0.0)
    assert clock.now() == 1.0


# ------------------------------------------------------------------ nesting


@pytest.mark.parametrize("how", ["within", "nested"])
def test_the_bound_that_fired_is_the_one_that_is_named(how):
    """D6, case A53: own 600, parent 0.05."""
    clock = FakeClock()

    async def operation(parent):
        own = parent.within(600) if how == "within" else clock.deadline(600)
        async with enforcing(own):
            await for_ever()

    async def main():
        parent = clock.deadline(0.05)
        async with enforcing(parent):
            await operation(parent)

    with pytest.raises(DeadlineExceeded) as caught:
        clock.run(main())
    assert str(caught.value) == "block: the deadline of 0.05 s was reached"
    assert clock.now() == 0.05
    assert clock.waiting == ()


def test_the_outer_block_goes_on_when_the_inner_bound_fired():
    """Case A53: own 0.05, parent 600; the parent's time is not spent."""
    clock = FakeClock()

    async def main():
        parent = clock.deadline(600)
        async with enforcing(parent) as outer:
            with pytest.raises(DeadlineExceeded, match=r"0\.05 s"):
                async with enforcing(parent.within(0.05)):
                    await for_ever()
            assert at_rest(asyncio.current_task())
            await sleep(1)
        return outer.report

    assert clock.run(main()) == (Enforced.COMPLETED, 1.05, 0.0)


def test_of_two_bounds_that_fire_together_the_outer_one_is_named():
    clock = FakeClock()

    async def main():
        deadline = clock.deadline(3)
        async with enforcing(deadline, raises=False) as outer, enforcing(deadline) as inner:
            await for_ever()
        assert at_rest(asyncio.current_task())
        return outer.report.outcome, inner.report.outcome

    assert clock.run(main()) == (Enforced.DEADLINE_EXPIRED, Enforced.COMPLETED)


def test_an_explicit_stop_is_no_expiry():
    """Case A53: stopped, not timed out; with its reason, when, and of what limit."""
    clock = FakeClock()
    stop = StopSignal(clock=clock)
    clock.call_later(0.05, lambda: stop.request("the caller left"))

    async def main():
        async with enforcing(clock.deadline(600).stopping(stop)):
            await for_ever()

    with pytest.raises(StopRequested) as caught:
        clock.run(main())
    assert not isinstance(caught.value, TimeoutError)
    text = "block: stopped (the caller left) 0.05 s into the deadline of 600 s"
    assert str(caught.value) == text
    assert caught.value.report == (Enforced.STOPPED, 0.05, 0.0)
    assert clock.waiting == ()
    assert stop._callbacks == {}


# ------------------------------------------------------------------ beside asyncio's own scopes


def test_inside_a_timeout_the_earlier_of_the_two_ends_it():
    clock = FakeClock()

    async def main():
        with pytest.raises(DeadlineExceeded):
            async with asyncio.timeout(20):
                async with enforcing(clock.deadline(10)):
                    await for_ever()
        assert at_rest(asyncio.current_task())
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(5):
                async with enforcing(clock.deadline(10)) as block:
                    await for_ever()
        assert type(caught.value) is TimeoutError
        assert at_rest(asyncio.current_task())
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 5.0, 0.0)
    assert clock.now() == 15.0


def test_around_a_timeout_the_earlier_of_the_two_ends_it():
    clock = FakeClock()

    async def main():
        with pytest.raises(DeadlineExceeded):
            async with enforcing(clock.deadline(10)):
                async with asyncio.timeout(20):
                    await for_ever()
        assert at_rest(asyncio.current_task())
        with pytest.raises(TimeoutError) as caught:
            async with enforcing(clock.deadline(10)):
                async with asyncio.timeout(5):
                    await for_ever()
        assert type(caught.value) is TimeoutError
        assert at_rest(asyncio.current_task())

    clock.run(main())
    assert clock.now() == 15.0


def test_around_a_task_group_it_ends_all_its_tasks():
    clock = FakeClock()
    ended = []

    async def member(name):
        try:
            await for_ever()
        finally:
            ended.append((name, clock.now()))

    async def main():
        with pytest.raises(DeadlineExceeded):
            async with enforcing(clock.deadline(10)), asyncio.TaskGroup() as group:
                group.create_task(member("a"))
                group.create_task(member("b"))
        assert at_rest(asyncio.current_task())

    clock.run(main())
    assert sorted(ended) == [("a", 10.0), ("b", 10.0)]


def test_inside_a_task_group_it_fails_its_own_task():
    clock = FakeClock()
    ended = []

    async def bounded():
        async with enforcing(clock.deadline(10)):
            await for_ever()

    async def other():
        try:
            await for_ever()
        finally:
            ended.append(clock.now())

    async def main():
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(bounded())
                group.create_task(other())
                # In its body: before Python 3.13 a group that is left already counts wrongly.
                await for_ever()
        assert at_rest(asyncio.current_task())
        return caught.value.exceptions

    (error,) = clock.run(main())
    assert isinstance(error, DeadlineExceeded)
    assert ended == [10.0]


def test_a_failure_of_a_group_at_the_deadline_is_not_hidden():
    """What the tasks of a group raise while they are cancelled is theirs, and leaves."""
    clock = FakeClock()

    async def member():
        try:
            await for_ever()
        finally:
            raise ValueError("in its clean-up")

    async def main():
        with pytest.raises(ExceptionGroup) as caught:
            async with enforcing(clock.deadline(10)) as block, asyncio.TaskGroup() as group:
                group.create_task(member())
        return caught.value.exceptions, block.report.outcome, asyncio.current_task().cancelling()

    errors, outcome, cancelling = clock.run(main())
    assert [str(error) for error in errors] == ["in its clean-up"]
    assert outcome is Enforced.COMPLETED
    assert cancelling == 0


def test_cancels_that_were_counted_before_stay_counted():
    """A task that has absorbed cancels of others has them counted still, and is bounded as ever."""
    clock = FakeClock()

    async def bounded():
        for _ in range(2):
            asyncio.current_task().cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
        with pytest.raises(DeadlineExceeded):
            async with enforcing(clock.deadline(10)):
                await for_ever()
        return asyncio.current_task().cancelling()

    async def main():
        task = asyncio.create_task(bounded())
        assert await task == 2

    clock.run(main())


def test_a_cancel_that_comes_after_the_expiry_leaves_as_a_cancel():
    """While the block cleans up, somebody else cancels: that one is not swallowed."""
    clock = FakeClock()

    async def bounded():
        async with enforcing(clock.deadline(10)):
            try:
                await for_ever()
            finally:
                await sleep(5)

    async def main():
        task = asyncio.create_task(bounded())
        await sleep(12)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert task.cancelling() == 1

    clock.run(main())
    assert clock.now() == 12.0


# ------------------------------------------------------------------ stop


def test_a_stop_from_another_thread_ends_it():
    """Case A52: the loop is woken, whatever thread asks."""
    stop = StopSignal()
    trace = Trace()

    def ask():
        trace.wait_for("inside")
        stop.request("shutting down")

    async def main():
        async with enforcing(NO_LIMIT.stopping(stop)):
            trace.add("inside")
            await for_ever()

    thread = threading.Thread(target=ask)
    thread.start()
    with pytest.raises(StopRequested, match=r"^block: stopped \(shutting down\)$") as caught:
        asyncio.run(main())
    thread.join()
    assert caught.value.report.outcome is Enforced.STOPPED
    assert caught.value.report.overshoot == 0.0
    assert stop._callbacks == {}


def test_a_stop_within_the_block_itself_ends_its_next_wait():
    clock = FakeClock()
    stop = StopSignal(clock=clock)
    seen = []

    async def main():
        async with enforcing(Deadline.never(clock=clock, stop=stop), raises=False) as block:
            stop.request()
            seen.append("still here")
            await for_ever()
        return block.report

    assert clock.run(main()) == (Enforced.STOPPED, 0.0, 0.0)
    assert seen == ["still here"]


def test_a_stop_that_comes_too_late_cancels_nothing():
    """The request is under way to the loop when the block ends."""
    clock = FakeClock()
    stop = StopSignal(clock=clock)

    async def main():
        async with enforcing(clock.deadline(10).stopping(stop)) as block:
            stop.request()
        await sleep(1)
        assert at_rest(asyncio.current_task())
        return block.report

    assert clock.run(main()).outcome is Enforced.COMPLETED


def test_a_stop_after_the_end_of_the_loop_is_no_error():
    """Case A52."""
    stop = StopSignal()
    blocks = []

    async def main():
        block = enforcing(NO_LIMIT.stopping(stop))
        await block.__aenter__()
        blocks.append(block)

    asyncio.run(main())
    stop.request()
    assert blocks[0].report is None


def test_the_first_of_two_bounds_is_told():
    clock = FakeClock()
    stop = StopSignal(clock=clock)

    async def bounded():
        async with enforcing(clock.deadline(10).stopping(stop)):
            try:
                await for_ever()
            finally:
                stop.request()
                await turns(3)

    with pytest.raises(DeadlineExceeded):
        clock.run(bounded())


# ------------------------------------------------------------------ the report


def test_without_raising_it_reports_a_late_clean_up():
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(10), raises=False) as block:
            assert block.report is None
            try:
                await for_ever()
            finally:
                await sleep(2)
        assert at_rest(asyncio.current_task())
        return block.report

    assert clock.run(main()) == (Enforced.DEADLINE_EXPIRED, 12.0, 2.0)


def test_the_error_tells_of_a_late_clean_up_too():
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(10)):
            try:
                await for_ever()
            finally:
                await sleep(2)

    with pytest.raises(DeadlineExceeded, match=r"of 10 s was missed by 2 s") as caught:
        clock.run(main())
    assert caught.value.report == (Enforced.DEADLINE_EXPIRED, 12.0, 2.0)


def test_a_block_that_ends_by_itself_but_late_has_ended():
    """What it brought is not taken away: it never waited while the time passed."""
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(10)) as block:
            clock.advance(15)
            value = "brought"
        await sleep(1)
        assert at_rest(asyncio.current_task())
        return value, block.report

    assert clock.run(main()) == ("brought", (Enforced.COMPLETED, 15.0, 5.0))


def test_a_block_that_absorbs_its_cancel_has_ended_by_itself():
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(10)) as block:
            try:
                await for_ever()
            except asyncio.CancelledError:
                await sleep(1)
        assert at_rest(asyncio.current_task())
        return block.report

    assert clock.run(main()) == (Enforced.COMPLETED, 11.0, 1.0)


# ------------------------------------------------------------------ misuse


def test_it_is_entered_once():
    clock = FakeClock()

    async def main():
        block = enforcing(clock.deadline(10))
        async with block:
            with pytest.raises(RuntimeError, match=r"entered once: write `async with enforcing\("):
                await block.__aenter__()
        with pytest.raises(RuntimeError, match="entered once"):
            await block.__aenter__()
        refused = enforcing(clock.deadline(0))
        with pytest.raises(DeadlineExceeded):
            await refused.__aenter__()
        with pytest.raises(RuntimeError, match="entered once"):
            await refused.__aenter__()

    clock.run(main())
    assert clock.waiting == ()


def test_it_is_refused_outside_of_a_task():
    async def main():
        refused = []

        def callback():
            entering = enforcing(Deadline.after(10)).__aenter__()
            try:
                entering.send(None)
            except RuntimeError as error:
                refused.append(str(error))

        asyncio.get_running_loop().call_soon(callback)
        await until(lambda: refused)
        return refused

    expected = "enforcing bounds a task, and none runs here: use it inside a coroutine's task"
    assert asyncio.run(main()) == [expected]


@pytest.mark.parametrize("door", [enforcing, lambda value: run_async(for_ever, deadline=value)])
@pytest.mark.parametrize(
    ("value", "line"),
    [
        (2.5, "write Deadline.after(2.5)"),
        (None, "write Deadline.after(2.0)"),
        ("2", "write Deadline.after(2.0)"),
    ],
)
def test_what_is_no_deadline_is_refused_at_once(door, value, line):
    with pytest.raises(TypeError) as caught:
        door(value)
    assert str(caught.value).startswith("deadline must be a Deadline, not ")
    assert str(caught.value).endswith(line)


# ------------------------------------------------------------------ from_scope


def test_the_limit_of_a_timeout_is_taken_over():
    """On whatever clock: the same time is left."""
    clock = FakeClock(start=5)
    other = FakeClock(start=70)
    stop = StopSignal()

    async def main():
        async with asyncio.timeout(30) as scope:
            await sleep(10)
            return (
                Deadline.from_scope(scope, clock=clock),
                Deadline.from_scope(scope, clock=other, stop=stop),
                Deadline.from_scope(scope),
            )

    same, others, real = clock.run(main())
    assert same == Deadline.at(35, clock=clock)
    assert others == Deadline.at(90, clock=other, stop=stop)
    assert real.clock is MONOTONIC
    assert 0 < real.remaining() <= 20


def test_a_scope_that_is_over_gives_a_deadline_that_is():
    clock = FakeClock()

    async def main():
        scope = asyncio.timeout(30)
        clock.advance(40)
        shaped = SimpleNamespace(deadline=float("-inf"))
        return [Deadline.from_scope(each, clock=clock) for each in (scope, shaped)]

    assert clock.run(main()) == [Deadline.at(40, clock=clock)] * 2


def test_a_scope_without_a_limit_gives_no_limit():
    clock = FakeClock()
    stop = StopSignal()
    shaped = SimpleNamespace(deadline=float("inf"))

    async def main():
        scopes = asyncio.timeout(None), shaped
        return [Deadline.from_scope(each, clock=clock, stop=stop) for each in scopes]

    assert clock.run(main()) == [Deadline.never(clock=clock, stop=stop)] * 2
    # Without a limit there is nothing to ask a loop for.
    assert Deadline.from_scope(shaped) == Deadline.never()


def test_a_scope_of_anyios_shape_is_taken_over():
    """By its shape alone: its deadline is an instant of the loop."""
    clock = FakeClock()

    async def main():
        await sleep(10)
        shaped = SimpleNamespace(deadline=asyncio.get_running_loop().time() + 7)
        return Deadline.from_scope(shaped, clock=clock)

    assert clock.run(main()) == Deadline.at(17, clock=clock)


@pytest.mark.parametrize(
    "scope",
    [
        None, 5, 2.5, True, "soon", object(), Deadline.after(1),
        SimpleNamespace(deadline=True), SimpleNamespace(deadline="soon"),
        SimpleNamespace(when=lambda: "soon"), SimpleNamespace(deadline=Deadline.after(1)),
    ],
)  # fmt: skip
def test_what_is_no_scope_is_refused(scope):
    with pytest.raises(TypeError, match=r"scope must be an asyncio\.Timeout or an anyio Cancel"):
        Deadline.from_scope(scope)


def test_a_scope_whose_limit_is_no_number_is_refused():
    """N1: NaN, which asyncio takes for a limit."""

    async def main():
        with pytest.raises(ValueError, match="not NaN"):
            Deadline.from_scope(SimpleNamespace(deadline=float("nan")))

    asyncio.run(main())


# ------------------------------------------------------------------ run_async


def test_a_synchronous_thread_runs_one_async_operation():
    async def operation(one, two):
        await asyncio.sleep(0)
        return one + two

    assert run_async(operation, 1, 2, deadline=Deadline.after(60)) == 3


def test_the_operations_error_leaves_as_it_is():
    error = KeyError("own")

    async def operation():
        raise error

    with pytest.raises(KeyError) as caught:
        run_async(operation, deadline=Deadline.after(60))
    assert caught.value is error


@pytest.mark.real
def test_the_operation_ends_at_the_deadline():
    with pytest.raises(DeadlineExceeded, match=r"^block: the deadline of 0\.02 s was"):
        run_async(for_ever, deadline=Deadline.after(0.02))


def test_the_operation_ends_by_a_stop():
    stop = StopSignal()

    async def operation():
        stop.request("enough")
        await for_ever()

    with pytest.raises(StopRequested, match="enough"):
        run_async(operation, deadline=NO_LIMIT.stopping(stop))


def test_a_fake_clock_moves_the_operation_of_a_thread():
    """F3: the loop is a real one, the deadline's clock decides."""
    clock = FakeClock()
    errors = []

    def serve():
        try:
            run_async(for_ever, deadline=clock.deadline(60))
        except DeadlineExceeded as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    clock.wait_until_waiting(1, within=30)
    clock.advance(60)
    thread.join()
    assert [error.report.elapsed for error in errors] == [60.0]


@pytest.mark.filterwarnings("error")
def test_on_a_thread_with_a_running_loop_it_is_refused_at_once(recwarn):
    """Case A54: nothing is scheduled that would stall, and no coroutine is left un-awaited."""
    called = []

    async def operation():
        called.append("called")

    async def main():
        for permit in (contextlib.nullcontext(), blocking_allowed()):
            with permit, pytest.raises(RuntimeError, match="run_async needs an event loop of its"):
                run_async(operation, deadline=Deadline.after(60))

    asyncio.run(main())
    gc.collect()
    assert called == []
    assert [str(each.message) for each in recwarn] == []


def test_a_function_that_is_not_async_is_said_to_be_none():
    """Case A54: an async door called with a synchronous function."""
    with pytest.raises(TypeError, match="fn must be async, and int returned int: call it with"):
        run_async(int, deadline=Deadline.after(60))


def test_a_coroutine_instead_of_a_function_is_refused_and_closed(recwarn):
    """Case A54: the message shows the right line, and no warning follows."""
    with pytest.raises(TypeError) as caught:
        run_async(for_ever(), deadline=Deadline.after(60))
    assert str(caught.value).startswith("fn must be an async function, not <coroutine object")
    assert str(caught.value).endswith("write run_async(fn, *args, ...)")
    with pytest.raises(TypeError, match="fn must be an async function, not 5"):
        run_async(5, deadline=Deadline.after(60))
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_the_threads_own_context_is_seen_by_the_operation():
    """What a service keeps in context variables is there."""
    import contextvars

    request = contextvars.ContextVar("request")
    request.set("of this thread")

    async def operation():
        return request.get()

    assert run_async(operation, deadline=Deadline.after(60)) == "of this thread"


def test_from_a_worker_thread_under_a_loop_it_is_allowed():
    """Both bridges, one inside the other: a loop, a thread of it, and a loop of its own."""
    gate = Gate()
    gate.open()

    async def inner():
        gate.enter()
        await asyncio.sleep(0)
        return threading.current_thread()

    async def main():
        return await asyncio.to_thread(run_async, inner, deadline=Deadline.after(60))

    assert asyncio.run(main()) is not threading.current_thread()


class Slipping(SteadyClock):
    """A clock on which every look takes a millisecond; it begins with other readings."""

    def __init__(self, *readings):
        self.readings = [each * 1_000_000 for each in readings]
        self.reading = 0

    def now_ns(self):
        if self.readings:
            return self.readings.pop(0)
        self.reading += 1_000_000
        return self.reading


@pytest.mark.parametrize("milliseconds", range(1, 6))
def test_a_bound_that_comes_between_two_looks_is_no_error_of_its_own(milliseconds):
    """At whatever look it is over: expired, or a wait of what was left."""
    clock = Slipping()
    deadline = Deadline.at(milliseconds / 1000, clock=clock, stop=StopSignal())

    async def main():
        async with enforcing(deadline, raises=False) as block:
            await for_ever()
        return block.report.outcome

    assert asyncio.run(main()) is Enforced.DEADLINE_EXPIRED


def test_a_clock_that_goes_back_while_a_cancel_is_looked_for_bounds_all_the_same():
    """C4: what was over for a moment is waited for."""
    clock = Slipping(9)

    async def main():
        async with enforcing(Deadline.at(0.004, clock=clock), raises=False) as block:
            await for_ever()
        return block.report.outcome

    assert asyncio.run(main()) is Enforced.DEADLINE_EXPIRED
    assert clock.reading >= 4_000_000
