"""O1-O13: blocking work in threads that is stopped, released, awaited, and only then closed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import logging
import os
import socket
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from offloads import Resource, turns, until

from timebounds import (
    BudgetedReceiver,
    Busy,
    Deadline,
    DeadlineExceeded,
    OffloadOutcome,
    ShieldedOffload,
    StopRequested,
    StopSignal,
    Unfinished,
    WorkerStuck,
    offload,
    offload_job,
    offload_report,
    stuck,
)
from timebounds.testing import FakeClock, Gate, Trace


def far():
    return Deadline.after(60)


def scope_over(resource, **options):
    return ShieldedOffload(release=resource.release, close=[resource.close], **options)


async def started(resource):
    await until(lambda: "entered" in resource.trace.events)


async def cancelled(task, times=1):
    """Cancel a task; check that one CancelledError comes out and that all were counted."""
    for _ in range(times):
        task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert task.cancelled()
    assert task.cancelling() == times
    return caught.value


# ------------------------------------------------------------------ O1: the order


def test_a_cancel_stops_releases_waits_closes_and_then_goes_on():
    """O1, O10, case A43: the order, always."""

    async def main():
        resource = Resource()
        async with scope_over(resource) as scope:
            task = asyncio.create_task(scope.run(resource.work, deadline=far()))
            await started(resource)
            task.cancel()
            assert resource.trace.events[:2] == ["entered", "released"], "inside cancel() itself"
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert "closed" not in resource.trace.events
            report = offload_report(caught.value)
        assert resource.trace.events == ["entered", "released", "returned", "closed"]
        assert resource.wrong == []
        assert report.outcome is OffloadOutcome.CANCELLED
        [report] = scope.reports
        assert [name for name, _ in report.steps] == [
            "submitted",
            "entered",
            "stop requested",
            "released",
            "returned",
            "closed",
        ]

    asyncio.run(main())


def test_the_resources_are_closed_last_in_first_out_each_once():
    """O1: in a thread, since closing may block."""
    order = []

    async def main():
        closers = [
            lambda: order.append(("first", threading.current_thread() is threading.main_thread())),
            lambda: order.append(("second", threading.current_thread() is threading.main_thread())),
        ]
        async with ShieldedOffload(close=closers) as scope:
            assert await scope.run(int, "5", deadline=far()) == 5
            assert order == []

    asyncio.run(main())
    assert order == [("second", False), ("first", False)]


def test_a_release_is_called_only_while_the_function_is_inside():
    """O1: after the return there is nothing to release."""

    async def main():
        resource = Resource()
        resource.gate.open()
        async with scope_over(resource) as scope:
            handle = scope.start(resource.work, 7, deadline=far())
            await until(lambda: handle.report is not None)
            handle.stop("too late")
            assert await handle == 7
        assert resource.releases == 0
        assert resource.closed == 1

    asyncio.run(main())


def test_no_release_follows_a_commit():
    """O1, T3: the point of no return was passed first."""

    async def main():
        resource = Resource(obeys=False)
        committed = Gate("committed")

        def work(job):
            job.commit()
            committed.enter()
            return resource.work("done")

        async with scope_over(resource) as scope:
            task = asyncio.create_task(scope.run_job(work, deadline=far()))
            await until(lambda: committed._arrived)
            task.cancel()
            assert resource.releases == 0
            committed.open()
            resource.gate.open()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
        report = offload_report(caught.value)
        assert resource.releases == 0
        assert report.value == "done"
        assert report.committed is not None
        assert report.stop_requested is None
        assert resource.closed == 1

    asyncio.run(main())


def test_a_release_under_way_is_over_before_anything_is_closed():
    """O1, case A44: they exclude each other; no descriptor is freed meanwhile."""

    async def main():
        resource = Resource()
        release = Gate("release")

        def slow_release():
            resource.gate.open()
            release.enter()
            resource.release()

        async with ShieldedOffload(release=slow_release, close=[resource.close]) as scope:
            task = asyncio.create_task(scope.run(resource.work, deadline=far()))
            await started(resource)
            canceller = threading.Thread(target=task.cancel)
            canceller.start()
            release.wait_arrived()
            resource.trace.wait_for("returned")
            handle = scope.reports
            assert handle == (), "it counts as inside until the release is over"
            resource.inside += 1  # what the release still uses
            release.open()
            canceller.join()
            resource.inside -= 1
            with pytest.raises(asyncio.CancelledError):
                await task
        assert resource.trace.events == ["entered", "returned", "released", "closed"]
        assert resource.wrong == []

    asyncio.run(main())


# ------------------------------------------------------------------ O2: repeated cancels


@pytest.mark.parametrize("times", [1, 2, 5, 100])
@pytest.mark.parametrize("spread", [False, True])
def test_any_number_of_cancels_is_one_stop_one_release_one_close(times, spread):
    """O2, case A49: and one plain CancelledError out, with `cancelling()` untouched."""

    async def main():
        resource = Resource(obeys=False)

        async def use():
            async with scope_over(resource) as scope:
                return await scope.run(resource.work, deadline=far())

        task = asyncio.create_task(use())
        await started(resource)
        for _ in range(times):
            task.cancel()
            if spread:
                await turns(3)
        assert not task.done()
        assert resource.trace.events == ["entered", "released"]
        resource.gate.open()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelling() == times
        assert type(caught.value) is asyncio.CancelledError
        assert resource.trace.events == ["entered", "released", "returned", "closed"]
        assert offload_report(caught.value).cancels >= 1

    asyncio.run(main())


def test_a_hundred_cancels_wake_the_waiting_task_at_most_twice():
    """O2: it is not woken to be told again what it knows."""

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(offload(resource.work, deadline=far()))
        await started(resource)
        loop = asyncio.get_running_loop()
        handed = []
        before = loop.call_soon
        loop.call_soon = lambda *a, **k: (handed.append(a[0]), before(*a, **k))[1]
        try:
            for _ in range(100):
                task.cancel()
                await turns()
        finally:
            del loop.call_soon
        wakes = [each for each in handed if getattr(each, "__self__", None) is task]
        assert wakes == []
        resource.gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_timeout_around_it_is_a_timeout_and_waits():
    """O2: asyncio.timeout behaves as documented."""

    async def main():
        resource = Resource()
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.01):
                await offload(resource.work, deadline=far(), release=resource.release)
        assert type(caught.value) is TimeoutError
        assert resource.trace.events == ["entered", "released", "returned"]
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(main())


def test_a_cancel_beside_a_timeout_is_a_cancel():
    """O2: with an outer cancel CancelledError comes out."""

    async def main():
        resource = Resource(obeys=False)

        async def use():
            async with asyncio.timeout(0.01):
                await offload(resource.work, deadline=far(), release=resource.release)

        task = asyncio.create_task(use())
        await until(lambda: resource.releases)
        task.cancel()
        resource.gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    asyncio.run(main())


def test_a_task_group_waits_for_it_when_a_sibling_fails():
    """O2: the group ends with the sibling's error."""

    async def main():
        resource = Resource()

        async def fail():
            await started(resource)
            raise KeyError("sibling")

        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                group.create_task(offload(resource.work, deadline=far(), release=resource.release))
                group.create_task(fail())
        assert [type(each) for each in caught.value.exceptions] == [KeyError]
        assert resource.trace.events == ["entered", "released", "returned"]

    asyncio.run(main())


# ------------------------------------------------------------------ O3, O4: before it starts


@pytest.fixture
def one_thread():
    """An executor with one thread, which is busy until the gate opens."""
    gate = Gate("busy")
    with ThreadPoolExecutor(1) as executor:
        executor.submit(gate.enter)
        gate.wait_arrived()
        executor.gate = gate
        yield executor
        gate.open()


def test_a_pending_cancel_starts_nothing():
    """O3: the function never runs."""
    ran = []

    async def main():
        async def use():
            asyncio.current_task().cancel()
            await offload(ran.append, 1, deadline=far())

        task = asyncio.create_task(use())
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelling() == 1
        assert offload_report(caught.value).outcome is OffloadOutcome.NEVER_STARTED

    asyncio.run(main())
    assert ran == []


def test_an_expired_deadline_starts_nothing():
    """O3: at or after it."""
    ran = []
    clock = FakeClock()

    async def main():
        with pytest.raises(DeadlineExceeded, match="it never started") as caught:
            await offload(ran.append, 1, deadline=clock.deadline(0))
        assert caught.value.report.outcome is OffloadOutcome.NEVER_STARTED
        assert "no thread" not in str(caught.value)

    asyncio.run(main())
    assert ran == []


def test_a_pending_cancel_beats_an_expired_deadline():
    """Case A48: a cancel is never hidden by a bound that is due too."""

    async def main():
        async def use():
            asyncio.current_task().cancel()
            await offload(int, deadline=Deadline.after(0))

        task = asyncio.create_task(use())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())


def test_a_requested_stop_starts_nothing():
    """O3, D9: the deadline's own signal."""
    ran = []
    stop = StopSignal()
    stop.request("shutdown")

    async def main():
        with pytest.raises(StopRequested, match=r"stopped \(shutdown\)") as caught:
            await offload(ran.append, 1, deadline=Deadline.after(5, stop=stop))
        assert caught.value.report.outcome is OffloadOutcome.NEVER_STARTED

    asyncio.run(main())
    assert ran == []


def test_what_was_cancelled_in_the_queue_never_starts(one_thread):
    """O3, case A46: not even when a thread is free later."""
    ran = []

    async def main():
        resource = Resource()
        async with ShieldedOffload(close=[resource.close], executor=one_thread) as scope:
            task = asyncio.create_task(scope.run(ran.append, 1, deadline=far()))
            await turns(3)
            await cancelled(task)
        assert resource.closed == 1, "at once: nobody is inside"
        [report] = scope.reports
        assert report.outcome is OffloadOutcome.NEVER_STARTED

    asyncio.run(main())
    one_thread.gate.open()
    one_thread.submit(int).result()
    assert ran == []


def test_what_must_run_runs_exactly_once_although_it_was_cancelled_in_the_queue(one_thread):
    """O3, case A46: whether queued work may be dropped is the caller's decision."""
    ran = []

    async def main():
        async with ShieldedOffload(executor=one_thread) as scope:
            task = asyncio.create_task(scope.run(ran.append, 1, deadline=far(), must_run=True))
            await turns(3)
            for _ in range(3):
                task.cancel()
                await turns()
            assert not task.done()
            one_thread.gate.open()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert ran == [1]


@pytest.mark.parametrize("why", ["cancel", "deadline", "stop"])
def test_what_must_run_runs_although_a_bound_was_reached_before(why):
    """O3: a pending cancel, an expired deadline and a requested stop alike."""
    ran = []

    async def main():
        stop = StopSignal()
        if why == "stop":
            stop.request()
        deadline = Deadline.after(0 if why == "deadline" else 60, stop=stop)
        if why == "cancel":
            asyncio.current_task().cancel()
        with suppress(asyncio.CancelledError, DeadlineExceeded, StopRequested):
            await offload(ran.append, 1, deadline=deadline, must_run=True)

    asyncio.run(main())
    assert ran == [1]


def test_the_wait_for_a_thread_is_inside_the_budget_and_reported_apart(one_thread):
    """O4, cases A16, A45: never started is another outcome than started and overran."""
    clock = FakeClock()
    ran = []

    async def main():
        task = asyncio.create_task(
            offload(ran.append, 1, deadline=clock.deadline(1), executor=one_thread)
        )
        await turns(3)
        clock.advance(1)
        with pytest.raises(DeadlineExceeded, match="never started: no thread was free") as caught:
            await task
        report = caught.value.report
        assert report.outcome is OffloadOutcome.NEVER_STARTED
        assert (report.queued, report.ran, report.entered) == (1.0, 0.0, None)

    asyncio.run(main())
    one_thread.gate.open()
    one_thread.submit(int).result()
    assert ran == []


def test_work_whose_deadline_passed_in_the_queue_is_not_begun_by_a_late_thread(one_thread):
    """O3, case A45: also when the loop was too busy to notice."""
    clock = FakeClock()
    ran = []

    async def main():
        task = asyncio.create_task(
            offload(ran.append, 1, deadline=clock.deadline(1), executor=one_thread)
        )
        await turns(3)
        clock.jump(2)  # before the loop has made another turn, the thread comes
        one_thread.gate.open()
        one_thread.submit(int).result()
        with pytest.raises(DeadlineExceeded, match="never started"):
            await task

    asyncio.run(main())
    assert ran == []


def test_started_and_overran_gives_both_durations():
    """O4, case A40: by default the call waits for the return, and says how long it took."""
    clock = FakeClock()

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(
            offload(resource.work, "late", deadline=clock.deadline(1), release=resource.release)
        )
        await started(resource)
        clock.advance(1)
        await until(lambda: resource.releases)
        clock.advance(2)
        resource.gate.open()
        with pytest.raises(
            DeadlineExceeded, match=r"missed by 2 s; its value came too l"
        ) as caught:
            await task
        report = caught.value.report
        assert report.outcome is OffloadOutcome.DEADLINE_EXPIRED
        assert (report.queued, report.ran, report.value) == (0.0, 3.0, "late")
        assert (report.stop_requested, report.released, report.returned) == (1.0, 1.0, 3.0)

    asyncio.run(main())


def test_the_function_sees_the_same_deadline():
    """O4: the job's deadline is the caller's, with the stop inside."""
    clock = FakeClock()
    deadline = clock.deadline(7)

    async def main():
        seen = await offload_job(lambda job: job.deadline, deadline=deadline)
        assert seen.clock is clock
        assert seen.remaining() == 7.0
        assert seen.stop is not None

    asyncio.run(main())


# ------------------------------------------------------------------ O5: what comes late


def test_a_late_value_goes_to_whoever_was_named_for_it():
    """O5, case A42: what was opened after the cancel still has an owner."""
    late = []

    async def main():
        resource = Resource()
        task = asyncio.create_task(
            offload(
                resource.work,
                "connection",
                deadline=far(),
                release=resource.release,
                on_late_result=late.append,
            )
        )
        await started(resource)
        error = await cancelled(task)
        assert offload_report(error).value is None, "exactly one has it"

    asyncio.run(main())
    assert late == ["connection"]


def test_a_value_in_time_is_the_callers_alone():
    """O5: exactly one of the two gets it."""
    late = []
    value = asyncio.run(offload(int, "5", deadline=far(), on_late_result=late.append))
    assert (value, late) == (5, [])


def test_a_cancel_between_the_return_and_its_delivery_makes_the_value_late():
    """O5, case A47: neither the cancel nor the value is lost."""
    late = []

    async def main():
        gate = Gate("go")
        returned = threading.Event()

        def work(job):
            job.own(returned, close=threading.Event.set)
            gate.enter()
            return "value"

        task = asyncio.create_task(offload_job(work, deadline=far(), on_late_result=late.append))
        await until(lambda: gate._arrived)
        gate.open()
        assert returned.wait(5)  # the loop has not turned meanwhile
        error = await cancelled(task, 3)
        assert offload_report(error).value is None
        assert offload_report(error).outcome is OffloadOutcome.CANCELLED

    asyncio.run(main())
    assert late == ["value"]


def test_a_value_that_comes_after_the_deadline_is_late_although_nobody_had_noticed():
    """O5, D1: at or after it, by the clock and not by the loop's luck."""
    clock = FakeClock()
    late = []

    async def main():
        with pytest.raises(DeadlineExceeded, match="value came too late and went to"):
            await offload(clock.jump, 1, deadline=clock.deadline(1), on_late_result=late.append)

    asyncio.run(main())
    assert late == [None]


class Unexpected(Exception):
    pass


def test_an_unexpected_error_beats_the_cancel():
    """O5: it is raised in its place, and the cancels stay counted."""

    async def main():
        resource = Resource()
        task = asyncio.create_task(
            offload(resource.work, Unexpected("bug"), deadline=far(), release=resource.release)
        )
        await started(resource)
        task.cancel()
        task.cancel()
        with pytest.raises(Unexpected):
            await task
        assert task.cancelling() == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    "error", [StopRequested("seen"), OSError(9, "bad"), EOFError("gone"), ConnectionResetError()]
)
def test_an_error_that_the_stop_caused_does_not(error):
    """O5: it is kept in the report."""

    async def main():
        resource = Resource()
        task = asyncio.create_task(
            offload(resource.work, error, deadline=far(), release=resource.release)
        )
        await started(resource)
        assert offload_report(await cancelled(task)).error is error

    asyncio.run(main())
    error.__traceback__ = None


def test_an_error_without_a_stop_is_the_callers():
    """O5: with its report attached, which does not hold it again."""

    async def main():
        with pytest.raises(OSError, match="mine") as caught:
            await offload(Resource.work, _opened(), OSError("mine"), deadline=far())
        report = offload_report(caught.value)
        assert report.outcome is OffloadOutcome.RAISED
        assert report.error is None

    asyncio.run(main())


def _opened():
    resource = Resource()
    resource.gate.open()
    return resource


def failing_work(resource, closed):
    def work(job):
        job.own(1, close=closed.append)
        job.own(2, close=_raise_in_close)
        job.own(3, close=closed.append)
        return resource.work()

    return work


def failing_release(resource):
    def release():
        resource.release()
        raise Unexpected("release")

    return release


def test_errors_of_the_clean_up_are_grouped_and_skip_nothing():
    """O5: the wait and the other closers come all the same."""
    closed = []

    async def main():
        resource = _opened()
        with pytest.raises(ExceptionGroup, match="clean-up failed") as caught:
            await offload_job(failing_work(resource, closed), deadline=far())
        assert [str(each) for each in caught.value.exceptions] == ["close 2"]
        assert offload_report(caught.value).errors == caught.value.exceptions

    asyncio.run(main())
    assert closed == [3, 1]


def test_a_failing_clean_up_replaces_no_cancel_and_is_logged(caplog):
    """O5, O6: what is around stays right, and nothing is lost to silence."""
    closed = []

    async def main():
        resource = Resource()
        work, release = failing_work(resource, closed), failing_release(resource)
        task = asyncio.create_task(offload_job(work, deadline=far(), release=release))
        await started(resource)
        error = await cancelled(task)
        assert [str(each) for each in offload_report(error).errors] == ["release", "close 2"]

    asyncio.run(main())
    assert closed == [3, 1]
    assert [str(record.exc_info[1]) for record in caplog.records] == ["release", "close 2"]
    caplog.clear()


def test_a_failing_clean_up_replaces_no_bound_and_is_noted():
    """O6: the deadline's error, never anything else."""
    closed = []

    async def main():
        clock = FakeClock()
        resource = Resource()
        work, release = failing_work(resource, closed), failing_release(resource)
        task = asyncio.create_task(offload_job(work, deadline=clock.deadline(1), release=release))
        await started(resource)
        clock.advance(1)
        with pytest.raises(DeadlineExceeded) as caught:
            await task
        assert caught.value.__notes__ == [
            "its clean-up raised Unexpected('release')",
            "its clean-up raised Unexpected('close 2')",
        ]

    asyncio.run(main())
    assert closed == [3, 1]


def test_a_failing_close_of_a_scope_replaces_no_cancel_and_is_logged(caplog):
    """O5, O6."""

    async def main():
        resource = Resource()

        async def use():
            async with ShieldedOffload(
                release=resource.release, close=[lambda: _raise_in_close(1)]
            ) as scope:
                await scope.run(resource.work, deadline=far())

        task = asyncio.create_task(use())
        await started(resource)
        await cancelled(task)

    asyncio.run(main())
    [record] = caplog.records
    assert str(record.exc_info[1]) == "close 1"
    caplog.clear()


def _raise_in_close(which):
    raise Unexpected(f"close {which}")


def test_the_functions_own_error_has_the_clean_ups_as_notes():
    """O5: none hides another."""

    async def main():
        def work(job):
            job.own(2, close=_raise_in_close)
            raise KeyError("mine")

        with pytest.raises(KeyError) as caught:
            await offload_job(work, deadline=far())
        assert caught.value.__notes__ == ["its clean-up raised Unexpected('close 2')"]

    asyncio.run(main())


def test_nothing_is_logged_as_never_retrieved(asyncio_complaints):
    """O5, case A50: neither for an error after the cancel nor for a late value."""

    async def main():
        for outcome in (StopRequested("seen"), "value"):
            resource = Resource()
            task = asyncio.create_task(
                offload(resource.work, outcome, deadline=far(), release=resource.release)
            )
            await started(resource)
            await cancelled(task)
        del task
        gc.collect()

    asyncio.run(main())
    assert asyncio_complaints() == []


def test_pending_work_survives_a_collection_without_a_reference():
    """Case A50: nothing that is under way hangs on a reference of the caller's."""

    async def main():
        resource = Resource()
        task = asyncio.create_task(offload(resource.work, 5, deadline=far()))
        await started(resource)
        gc.collect()
        resource.gate.open()
        assert await task == 5

    asyncio.run(main())


# ------------------------------------------------------------------ O6: what does not stop


def test_with_a_grace_the_call_ends_when_it_is_over_and_the_thread_closes():
    """O6, case A40: the deadline's error; the evidence says that it is still inside."""
    clock = FakeClock()
    late = []

    async def main():
        resource = Resource(obeys=False)
        async with scope_over(resource, grace=2) as scope:
            task = asyncio.create_task(
                scope.run(resource.work, 5, deadline=clock.deadline(1), on_late_result=late.append)
            )
            await started(resource)
            clock.advance(1)
            await until(lambda: resource.releases)
            await turns(5)
            clock.advance(1.5)
            assert not task.done()
            clock.advance(0.5)
            with pytest.raises(DeadlineExceeded) as caught:
                await task
            assert "still inside its thread" in caught.value.__notes__[0]
            assert caught.value.report.outcome is OffloadOutcome.STUCK
            assert caught.value.report.ran == 3.0
        assert resource.closed == 0
        [left] = stuck()
        assert left.name == "Resource.work"
        assert left.age == 3.0
        resource.gate.open()
        resource.trace.wait_for("closed")
        await until(lambda: scope.reports[0].outcome is OffloadOutcome.DEADLINE_EXPIRED)
        assert stuck() == ()
        assert scope.reports[0].value is None

    asyncio.run(main())
    assert late == [5]


def test_a_cancel_that_outlives_the_grace_is_a_cancel():
    """O6: never anything else."""

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(offload(resource.work, deadline=far(), grace=0))
        await started(resource)
        error = await cancelled(task, 2)
        assert offload_report(error).outcome is OffloadOutcome.STUCK
        resource.gate.open()
        await until(lambda: not stuck())

    asyncio.run(main())


def test_only_where_neither_is_under_way_the_worker_is_stuck():
    """O6: a stop alone."""

    async def main():
        resource = Resource(obeys=False)
        async with ShieldedOffload(grace=0) as scope:
            handle = scope.start(resource.work, deadline=far())
            await started(resource)
            handle.stop("enough")
            with pytest.raises(WorkerStuck, match=r"stopped \(enough\), and it has not returned"):
                await handle
        resource.gate.open()
        await until(lambda: not stuck())

    asyncio.run(main())


def test_a_scope_that_ends_over_a_stuck_function_says_so():
    """O6: nobody awaited the handle."""

    async def main():
        resource = Resource(obeys=False)
        with pytest.raises(
            WorkerStuck, match=r"Resource\.work has not returned in its grace"
        ) as caught:
            async with ShieldedOffload(grace=0, close=[resource.close]) as scope:
                handle = scope.start(resource.work, deadline=far())
                await started(resource)
                handle.stop()
        assert offload_report(caught.value).outcome is OffloadOutcome.STUCK
        assert resource.closed == 0
        resource.gate.open()
        resource.trace.wait_for("closed")
        await until(lambda: not stuck())

    asyncio.run(main())


def test_what_was_left_inside_can_do_no_more_through_its_job():
    """O6, case A40: its commit is refused, and what it opens is closed."""
    closed = []

    async def main():
        gate = Gate("abandoned")
        ended = []

        def work(job):
            gate.enter()
            job.own("late connection", close=closed.append)
            try:
                job.commit()
            except StopRequested as error:
                ended.append(error)

        task = asyncio.create_task(offload_job(work, deadline=Deadline.after(0.01), grace=0))
        with pytest.raises(DeadlineExceeded):
            await task
        gate.open()
        await until(lambda: not stuck())
        assert len(ended) == 1

    asyncio.run(main())
    assert closed == ["late connection"]


def test_an_error_after_the_caller_has_left_is_logged(caplog):
    """O6: it is not lost to silence; one that the stop caused, and a value, are no news."""
    caplog.set_level(logging.INFO, "timebounds")

    async def main():
        for outcome in (Unexpected("bug"), OSError("stopped"), 5):
            resource = Resource(obeys=False)
            task = asyncio.create_task(offload(resource.work, outcome, deadline=far(), grace=0))
            await started(resource)
            await cancelled(task)
            resource.gate.open()
            await until(lambda: not stuck())

    asyncio.run(main())
    told = [record for record in caplog.records if "after its caller" in record.message]
    assert [(record.levelname, record.message) for record in told] == [
        ("ERROR", "offload of Resource.work raised after its caller had left"),
        ("INFO", "offload of Resource.work returned after its caller had left"),
        ("INFO", "offload of Resource.work returned after its caller had left"),
    ]
    assert told[0].exc_info[0] is Unexpected
    caplog.clear()


def test_what_is_stuck_is_so_until_its_end_is_logged():
    """O6: who sees that nothing is left inside has been told."""
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append([each.name for each in stuck()])

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(
            offload(resource.work, Unexpected("bug"), deadline=far(), grace=0)
        )
        await started(resource)
        await cancelled(task)
        resource.gate.open()
        await until(lambda: not stuck())

    handler = Handler(logging.ERROR)
    logging.getLogger("timebounds").addHandler(handler)
    try:
        asyncio.run(main())
    finally:
        logging.getLogger("timebounds").removeHandler(handler)
    assert seen == [["Resource.work"]]


def test_a_clean_up_that_fails_after_the_caller_has_left_is_logged(caplog):
    """O6."""
    caplog.set_level(logging.INFO, "timebounds")

    async def main():
        resource = Resource(obeys=False)

        def work(job):
            job.own(resource, fails)
            return resource.work()

        task = asyncio.create_task(offload_job(work, deadline=far(), grace=0))
        await started(resource)
        await cancelled(task)
        resource.gate.open()
        await until(lambda: not stuck())

    def fails(resource):
        raise OSError("close")

    asyncio.run(main())
    [told] = [record for record in caplog.records if "after its caller" in record.message]
    name = main.__qualname__ + ".<locals>.work"
    assert told.message == (
        f"offload of {name} has a clean-up that failed after its caller had left"
    )
    assert str(told.exc_info[1]) == "close"
    caplog.clear()


def test_a_long_wait_is_logged_with_the_threads_stack(caplog, monkeypatch):
    """O6: never silent."""
    monkeypatch.setattr("timebounds.aio.handle.LONG", 0.0)

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(offload(resource.work, deadline=far()))
        await started(resource)
        task.cancel()
        await until(lambda: caplog.records)
        resource.gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "Resource.work was asked to stop and has not returned: it is still" in record.message
    assert "in work\n    self.gate.enter()" in record.message


def test_a_long_wait_for_a_thread_is_logged_too(caplog, monkeypatch, one_thread):
    """O6: for what must run and has none."""
    monkeypatch.setattr("timebounds.aio.handle.LONG", 0.0)

    async def main():
        task = asyncio.create_task(offload(int, deadline=far(), must_run=True, executor=one_thread))
        await turns(2)
        task.cancel()
        await until(lambda: caplog.records)
        one_thread.gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert "no thread has taken it" in caplog.records[0].message


# ------------------------------------------------------------------ O7: every ending is one

variable = contextvars.ContextVar("variable", default="unset")


def test_context_variables_reach_the_function():
    """O7, O9: and what it sets stays in its copy."""

    async def main():
        variable.set("caller's")

        def work():
            seen = variable.get()
            variable.set("function's")
            return seen

        assert await offload(work, deadline=far()) == "caller's"
        assert variable.get() == "caller's"

    asyncio.run(main())


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit, asyncio.CancelledError])
def test_what_would_mean_something_else_in_a_coroutine_is_wrapped(kind):
    """O7, case A51: it neither hangs nor fakes a cancel."""

    async def main():
        task = asyncio.create_task(offload(_opened().work, kind("own"), deadline=far()))
        with pytest.raises(RuntimeError, match=f"raised {kind.__name__}") as caught:
            await asyncio.wait_for(task, 5)
        assert type(caught.value.__cause__) is kind
        assert not task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [StopAsyncIteration, concurrent.futures.CancelledError])
def test_other_endings_come_out_as_they_are(kind):
    """O7, case A51."""

    async def main():
        with pytest.raises(kind):
            await offload(_opened().work, kind("own"), deadline=far())

    asyncio.run(main())


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_out_of_the_function_ends_the_run_as_it_does_everywhere(kind):
    """O7, case A51: the call is complete, and the error is what it was."""

    async def main():
        await offload(_opened().work, kind("own"), deadline=far())

    with pytest.raises(kind, match="own"):
        asyncio.run(main())


# ------------------------------------------------------------------ O9: several runs


def test_the_first_failure_stops_the_others_and_the_last_return_closes():
    """O9: whoever is stopped says so."""

    async def main():
        slow, quick = Resource(), Resource()
        with pytest.raises(Unexpected):
            async with ShieldedOffload(
                release=slow.release, close=[slow.close, quick.close]
            ) as scope:
                other = scope.start(slow.work, deadline=far())
                await started(slow)
                failing = asyncio.create_task(
                    scope.run(quick.work, Unexpected("first"), deadline=far())
                )
                await started(quick)
                quick.gate.open()
                with pytest.raises(StopRequested, match="another run has failed"):
                    await other
                await failing
        assert (slow.closed, quick.closed) == (1, 1)
        assert (slow.wrong, quick.wrong) == ([], [])
        outcomes = {report.outcome for report in scope.reports}
        assert outcomes == {OffloadOutcome.RAISED, OffloadOutcome.STOPPED}

    asyncio.run(main())


def test_a_cancel_of_one_run_stops_no_other():
    """O9: it is no failure."""

    async def main():
        one, two = Resource(), Resource()
        async with ShieldedOffload() as scope:
            task = asyncio.create_task(scope.run(one.work, deadline=far()))
            other = scope.start(two.work, 2, deadline=far())
            await started(one)
            await started(two)
            task.cancel()
            one.gate.open()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert other.report is None
            two.gate.open()
            assert await other == 2

    asyncio.run(main())


def test_the_end_of_the_block_waits_for_runs_that_nobody_awaited():
    """O9: it stops none of them."""

    async def main():
        resource = Resource()

        async def use():
            async with scope_over(resource) as scope:
                scope.start(resource.work, 5, deadline=far())
            return scope.reports

        task = asyncio.create_task(use())
        await started(resource)
        await turns(5)
        assert not task.done()
        resource.gate.open()
        [report] = await task
        assert report.value == 5
        assert resource.trace.events == ["entered", "returned", "closed"]

    asyncio.run(main())


def test_a_failure_that_nobody_awaited_comes_out_of_the_block():
    """O5, O9: it is not lost."""

    async def main():
        with pytest.raises(ExceptionGroup, match="end of a ShieldedOffload") as caught:
            async with ShieldedOffload() as scope:
                handle = scope.start(_opened().work, Unexpected("mine"), deadline=far())
                await until(lambda: handle.report is not None)
        assert [type(each) for each in caught.value.exceptions] == [Unexpected]

    asyncio.run(main())


def test_an_error_in_the_block_stops_what_is_under_way_and_comes_out():
    """O9: after the last return and the close."""

    async def main():
        resource = Resource()
        with pytest.raises(Unexpected, match="body"):
            async with scope_over(resource) as scope:
                scope.start(resource.work, deadline=far())
                await started(resource)
                raise Unexpected("body")
        assert resource.trace.events == ["entered", "released", "returned", "closed"]

    asyncio.run(main())


def test_the_blocks_error_carries_what_its_end_brought_as_notes():
    """O5: neither is lost."""

    async def main():
        def close():
            raise KeyError("close")

        with pytest.raises(Unexpected) as caught:
            async with ShieldedOffload(close=[close]):
                raise Unexpected("body")
        assert caught.value.__notes__ == ["the end of a ShieldedOffload brought KeyError('close')"]
        with pytest.raises(ExceptionGroup):
            async with ShieldedOffload(close=[close]):
                pass

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 5])
def test_cancels_at_the_end_of_the_block_are_absorbed_until_all_is_closed(times):
    """O2, case A49: in the wait for a run, and in the close itself."""

    async def main():
        resource, closing = Resource(), Gate("closing")

        def close():
            resource.close()
            closing.enter()

        async def use():
            async with ShieldedOffload(release=resource.release, close=[close]) as scope:
                scope.start(resource.work, deadline=far())
                await started(resource)

        task = asyncio.create_task(use())
        await started(resource)
        await turns(5)
        for _ in range(times):
            task.cancel()
            await turns(3)
        await until(lambda: closing._arrived)
        for _ in range(times):
            task.cancel()
            await turns(3)
        assert not task.done()
        closing.open()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 2 * times
        assert resource.trace.events == ["entered", "released", "returned", "closed"]

    asyncio.run(main())


def test_slots_come_back_when_the_function_returns():
    """O9, case A55: not when its waiter leaves, and none is lost to a cancel."""

    async def main():
        with ThreadPoolExecutor(2) as executor:
            for round_ in range(200):
                task = asyncio.create_task(offload(int, deadline=far(), executor=executor))
                for _ in range(round_ % 4):
                    await turns()
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            gate = Gate("both")
            both = [
                asyncio.create_task(offload(gate.enter, deadline=far(), executor=executor))
                for _ in range(2)
            ]
            await until(lambda: gate._arrived == 2)
            gate.open()
            await asyncio.gather(*both)

    asyncio.run(main())


def test_a_lock_around_the_call_is_freed_only_after_the_return():
    """Case A41: ownership ends when the function returns."""

    async def main():
        trace, lock = Trace(), asyncio.Lock()
        steps = [Gate(f"step {n}") for n in range(3)]

        def rows():
            for step in steps:
                step.enter()
            trace.add("job returned")

        async def first():
            async with lock:
                await offload(rows, deadline=far())

        async def second():
            async with lock:
                trace.add("second start")

        one = asyncio.create_task(first())
        await until(lambda: steps[0]._arrived)
        steps[0].open()
        two = asyncio.create_task(second())
        await turns(3)
        one.cancel()
        await turns(5)
        assert trace.events == []
        steps[1].open()
        steps[2].open()
        with pytest.raises(asyncio.CancelledError):
            await one
        await two
        assert trace.events == ["job returned", "second start"]

    asyncio.run(main())


def test_stages_share_one_deadline():
    """Case A62: budgets nest, sums do not; what is left may be nothing, and is said."""
    clock = FakeClock()

    async def main():
        deadline = clock.deadline(10)
        given = []

        def stage(job, takes):
            given.append(job.deadline.remaining())
            clock.jump(takes)

        await offload_job(stage, 7, deadline=deadline)
        with pytest.raises(DeadlineExceeded, match="stage"):
            await offload_job(stage, 5, deadline=deadline)
        with pytest.raises(DeadlineExceeded, match="never started"):
            await offload_job(stage, 1, deadline=deadline)
        with suppress(DeadlineExceeded):
            await offload_job(stage, 1, deadline=deadline, must_run=True)
        assert given == [10.0, 3.0, 0.0]

    asyncio.run(main())


# ------------------------------------------------------------------ O10: the plain flag


def test_a_plain_flag_and_a_commit():
    """O10, T3: between the check and the effect a flag can be set; a commit decides."""

    def effect(check, stop, events):
        with suppress(StopRequested):
            if check == "plain":
                stop.check()
                events.append("checked")
                stop.request()
            else:
                stop.commit()
                events.append("checked")
                events.append(stop.request().value)
            events.append("effect")

    early = []
    stop = StopSignal()
    stop.request()
    effect("plain", stop, early)
    assert early == []
    plain, decided = [], []
    effect("plain", StopSignal(), plain)
    assert plain == ["checked", "effect"], "although it was asked to stop before"
    effect("commit", StopSignal(), decided)
    assert decided == ["checked", "too_late", "effect"]


# ------------------------------------------------------------------ O12: what is born inside


def test_what_a_job_owns_is_closed_after_the_return_in_reverse():
    """O12: in its thread, once, before the caller gets the value."""
    trace = Trace()

    class Thing:
        def close(self):
            trace.add("closed thing")

    async def main():
        def work(job):
            job.own(Thing())
            assert job.own("name", close=lambda name: trace.add(f"closed {name}")) == "name"
            trace.add("returned")
            return 5

        assert await offload_job(work, deadline=far()) == 5

    asyncio.run(main())
    assert trace.events == ["returned", "closed name", "closed thing"]


def test_a_stop_wakes_only_inside_the_block():
    """O12: what was handed back to a pool is never cancelled for someone else."""

    async def main():
        woken, inside, outside = [], Gate("inside"), Gate("outside")

        def work(job):
            with job.releasing(lambda: woken.append("first")):
                inside.enter()
            with job.releasing(lambda: woken.append("second")):
                outside.enter()

        task = asyncio.create_task(offload_job(work, deadline=far()))
        await until(lambda: inside._arrived)
        inside.open()
        await until(lambda: outside._arrived)
        task.cancel()
        assert woken == ["second"]
        outside.open()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_block_entered_after_the_stop_is_woken_at_once():
    """O12, T5: the stop is not missed."""

    async def main():
        woken, gate = [], Gate("before")

        def work(job):
            gate.enter()
            with job.releasing(lambda: woken.append("woken")):
                assert woken == ["woken"]

        task = asyncio.create_task(offload_job(work, deadline=far()))
        await until(lambda: gate._arrived)
        task.cancel()
        gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert woken == ["woken"]

    asyncio.run(main())


def test_the_jobs_deadline_carries_the_stop_into_a_receive():
    """O12, R14, case A04: the receive is stopped, its position unknown, and so not used again."""

    async def main():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            receiver = BudgetedReceiver(ours)
            theirs.sendall(b"ab")

            def fetch(job):
                return receiver.receive_exactly(5, job.deadline)

            task = asyncio.create_task(offload_job(fetch, deadline=far()))
            await until(lambda: receiver.pending == b"ab")
            error = await cancelled(task, 100)
            report = offload_report(error)
            assert isinstance(report.error, StopRequested)
            assert report.stop_observed is not None
            theirs.sendall(b"cde")
            with pytest.raises(Unfinished):
                await offload_job(fetch, deadline=far())
            resumed = await offload_job(lambda job: receiver.resume(job.deadline), deadline=far())
            assert resumed == b"abcde"

    asyncio.run(main())


def test_a_job_that_has_returned_takes_nothing_more():
    """O12: nobody would close it."""

    async def main():
        job = await offload_job(lambda job: job, deadline=far())
        with pytest.raises(RuntimeError) as caught:
            job.own(socket.socket, close=print)
        assert str(caught.value) == (
            "the job has returned, and nobody would close what it owns now"
        )
        with pytest.raises(RuntimeError) as caught:
            job.commit()
        assert str(caught.value) == "the job has returned: there is nothing left to commit"
        with pytest.raises(TypeError) as caught:
            job.own(7)
        assert str(caught.value) == (
            "resource must have a close(), which 7 has not: give close=..."
        )

    asyncio.run(main())


# ------------------------------------------------------------------ interrupts and shutdown


@pytest.mark.parametrize("how", ["interrupt", "dropped"])
def test_a_coroutine_that_nobody_runs_any_more_asks_its_work_to_stop(how):
    """O8: the thread is left, and closes what it owns when it returns."""

    async def main():
        resource = Resource(obeys=False)
        coroutine = offload(resource.work, deadline=far(), release=resource.release)
        coroutine.send(None)
        await started(resource)
        if how == "interrupt":
            with pytest.raises(KeyboardInterrupt):
                coroutine.throw(KeyboardInterrupt)
        else:
            coroutine.close()
        assert resource.releases == 1
        assert [each.name for each in stuck()] == ["Resource.work"]
        resource.gate.open()
        await until(lambda: not stuck())

    asyncio.run(main())


def test_a_scope_left_without_its_end_still_closes():
    """O8: an interrupt came before the first line of its end."""

    async def main():
        resource = Resource()
        scope = await scope_over(resource).__aenter__()
        await scope.run(int, deadline=far())
        del scope
        await until(lambda: resource.closed)
        never_entered = ShieldedOffload(close=[resource.close])
        del never_entered
        gc.collect()
        assert resource.closed == 1

    asyncio.run(main())


def test_an_interrupt_in_the_block_waits_for_nothing():
    """O8: whoever is inside closes when it returns."""

    async def main():
        resource = Resource(obeys=False)
        scope = await scope_over(resource).__aenter__()
        handle = scope.start(resource.work, deadline=far())
        await started(resource)
        error = KeyboardInterrupt()
        assert await scope.__aexit__(KeyboardInterrupt, error, None) is None
        assert resource.trace.events == ["entered", "released"]
        resource.gate.open()
        resource.trace.wait_for("closed")
        with pytest.raises(StopRequested):
            await handle

    asyncio.run(main())


# ------------------------------------------------------------------ the pool's edges


def test_when_no_thread_can_be_had_the_call_says_so_and_closes(monkeypatch):
    """O6: a clean error; the resource is closed once."""
    from timebounds.bounds._threads import Pool

    pool = Pool()

    def refuse(self):
        raise RuntimeError("can't start new thread")

    async def main():
        resource = Resource()
        monkeypatch.setattr("timebounds.bounds.custody.CARE", pool)
        monkeypatch.setattr("timebounds.aio.arguments.POOL", pool)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                async with ShieldedOffload(close=[resource.close]) as scope:
                    await scope.run(int, deadline=far())
        assert resource.closed == 1
        assert pool._line.empty()
        assert pool.threads == {}

    asyncio.run(main())


# ------------------------------------------------------------------ handles, busy, bad input


def test_a_handle_is_one_users():
    """R11's rule for offloads: its value can be had once."""

    async def main():
        async with ShieldedOffload() as scope:
            handle = scope.start(int, "5", deadline=far())
            assert "under way" in repr(handle)
            assert await handle == 5
            with pytest.raises(Busy, match="awaited already"):
                await handle
            assert repr(handle) == "<OffloadHandle of int: returned>"

    asyncio.run(main())


def test_a_foreign_threads_cancel_stops_the_work_at_once():
    """Case A52: it does not wait for the loop to notice."""

    async def main():
        resource = Resource()
        task = asyncio.create_task(offload(resource.work, deadline=far(), release=resource.release))
        await started(resource)
        canceller = threading.Thread(target=task.cancel)
        canceller.start()
        canceller.join()
        resource.trace.wait_for("returned")
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_foreign_cancel_that_is_still_on_its_way_is_waited_for():
    """O2: it has told the work and not yet the task, which is over in between."""

    async def main():
        entered, finish = threading.Event(), threading.Event()
        late = []

        def work(job):
            job.deadline.stop.on_request(lambda: finish.wait(20))
            entered.set()
            pause = threading.Event()
            while not job.deadline.stop.requested():
                pause.wait(0.001)
            return 5

        task = asyncio.create_task(offload_job(work, deadline=far(), on_late_result=late.append))
        await until(entered.is_set)
        foreign = threading.Thread(target=task.cancel)
        foreign.start()
        await until(lambda: late)
        await turns(20)
        finish.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert task.cancelling() == 1
        assert late == [5]
        foreign.join()

    asyncio.run(main())


@pytest.mark.parametrize("when", ["inside", "queued"])
def test_whoever_awaits_a_run_of_a_scope_that_is_cancelled_sees_it_stopped(when, one_thread):
    """O2, O5: the cancel was the scope's task's, and this task was not cancelled."""

    async def main():
        resource, late, handles = Resource(), [], []

        async def use():
            executor = one_thread if when == "queued" else None
            async with scope_over(resource, executor=executor) as scope:
                handles.append(
                    scope.start(resource.work, 5, deadline=far(), on_late_result=late.append)
                )

        task = asyncio.create_task(use())
        await until(lambda: handles)
        waits = asyncio.ensure_future(handles[0].result())
        if when == "inside":
            await started(resource)
        await turns(3)
        await cancelled(task)
        with pytest.raises(StopRequested, match="work: stopped"):
            await waits
        assert late == ([5] if when == "inside" else [])

    asyncio.run(main())


def test_a_report_shows_no_value():
    """R20's rule: reports end up in logs."""

    async def main():
        async with ShieldedOffload() as scope:
            await scope.run(str, "secret", deadline=far())
        report = scope.reports[0]
        assert repr(report) == (
            "<OffloadReport str returned: submitted 0, "
            f"entered {report.entered:g}, returned {report.returned:g}>"
        )
        assert scope.reports[0].value == "secret"

    asyncio.run(main())


def test_a_scope_keeps_the_last_hundred_reports():
    """H2: a long-lived one does not grow."""

    async def main():
        async with ShieldedOffload() as scope:
            for n in range(120):
                await scope.run(int, str(n), deadline=far())
            assert [report.value for report in scope.reports] == list(range(20, 120))

    asyncio.run(main())


def test_nothing_keeps_what_the_function_used():
    """H3: no cycle, on the way of a value or of an error or of a cancel."""

    class Thing:
        pass

    async def main():
        gone = []

        def work(thing, kind):
            gone.append(weakref.ref(thing))
            if kind is not None:
                raise kind

        gc.disable()
        try:
            await offload(work, Thing(), None, deadline=far())
            with suppress(Unexpected):
                await offload(work, Thing(), Unexpected, deadline=far())
            with suppress(OSError):
                await offload(work, Thing(), OSError, deadline=far())
            await until(lambda: all(ref() is None for ref in gone), 5)
        finally:
            gc.enable()
        assert len(gone) == 3

    asyncio.run(main())


@pytest.mark.parametrize("ending", ["value", "cancel", "abandoned"])
def test_nothing_keeps_a_scope_and_what_it_was_given(ending):
    """H3: no cycle; its last reference is the end of it, and of what release and close hold."""

    async def use(resource):
        async with scope_over(resource) as scope:
            await scope.run(int if ending == "value" else resource.work, deadline=far())

    async def main():
        resource = Resource()
        trace, gone = resource.trace, weakref.ref(resource)
        gc.disable()
        try:
            if ending == "abandoned":
                await scope_over(resource).__aenter__()
                await until(lambda: "closed" in trace.events, 5)
            elif ending == "value":
                await use(resource)
            else:
                task = asyncio.create_task(use(resource))
                await started(resource)
                task.cancel()
                await asyncio.wait([task])
                del task
            del resource
            await until(lambda: gone() is None, 5)
        finally:
            gc.enable()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: offload(int, deadline=2.0), r"write Deadline\.after\(2\.0\)"),
        (lambda: offload(5, deadline=far()), r"fn must be a function, not 5: write offload\(fn"),
        (lambda: offload(turns, deadline=far()), r"turns is async, so a thread would not run it"),
        (lambda: offload(int, deadline=far(), release=5), "release must be a function"),
        (lambda: offload(int, deadline=far(), grace="1"), "grace must be a number of seconds"),
        (lambda: offload(int, deadline=far(), on_late_result=5), "on_late_result must be"),
        (lambda: offload(int, deadline=far(), executor=5), r"must be a concurrent\.futures\.Exec"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_touched(call, message):
    """N1: by name, with the right line."""
    with pytest.raises(TypeError, match=message):
        asyncio.run(call())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": 5}, "release must be a function without arguments, not 5"),
        ({"close": [5]}, r"close must hold functions such as sock\.close, not 5"),
        ({"grace": -1}, "grace must not be negative"),
        ({"executor": 5}, "executor must be"),
    ],
)
def test_a_scope_refuses_bad_arguments(options, message):
    """N1."""
    with pytest.raises((TypeError, ValueError), match=message):
        ShieldedOffload(**options)


def test_one_closer_may_be_given_alone():
    """Adopted in five minutes: a function where a list was meant is that function."""
    closed = []

    async def main():
        async with ShieldedOffload(close=lambda: closed.append(1)):
            pass

    asyncio.run(main())
    assert closed == [1]


def test_a_scope_is_entered_once_and_runs_inside_only():
    """O9: before and after it there is nobody to own the run."""

    async def main():
        scope = ShieldedOffload()
        with pytest.raises(RuntimeError, match="was not entered: run inside"):
            await scope.run(int, deadline=far())
        async with scope:
            with pytest.raises(RuntimeError, match="is entered once"):
                await scope.__aenter__()
        with pytest.raises(RuntimeError, match="has ended: run inside"):
            scope.start(int, deadline=far())

    asyncio.run(main())


def test_a_jobs_own_bad_arguments():
    """N1."""

    async def main():
        def own(job):
            job.own(5)

        def releasing(job):
            job.releasing(5)

        with pytest.raises(TypeError, match=r"resource must have a close\(\), which 5 has not"):
            await offload_job(own, deadline=far())
        with pytest.raises(TypeError, match="wake must be a function without arguments, not 5"):
            await offload_job(releasing, deadline=far())

    asyncio.run(main())


def test_virtual_time_stands_still_while_a_function_computes():
    """Case A83: an offload that is out is activity."""
    clock = FakeClock(auto_advance=True)

    async def main():
        pause = threading.Event()
        assert await offload(pause.wait, 0.2, deadline=clock.deadline(300)) is False
        assert clock.now() == 0.0

    asyncio.run(main())


def test_the_descriptor_is_valid_at_the_functions_last_line():
    """O1, case A43: a hundred cancels, no help of the peer's, closed once after the return."""

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            number = ours.fileno()
            inode = os.fstat(number).st_ino
            seen = []

            entered = threading.Event()

            def fetch(job):
                entered.set()
                try:
                    return BudgetedReceiver(ours).receive_exactly(5, job.deadline)
                finally:
                    seen.append(os.fstat(ours.fileno()).st_ino)

            async def use():
                async with ShieldedOffload(close=[ours.close]) as scope:
                    return await scope.run_job(fetch, deadline=far())

            task = asyncio.create_task(use())
            await until(entered.is_set)
            await cancelled(task, 100)
            assert seen == [inode]
            assert ours.fileno() == -1

    asyncio.run(main())
