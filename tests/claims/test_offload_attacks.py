"""What an attacker found in offloading, one by one."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from offloads import Resource, turns, until

from timebounds import (
    Deadline,
    DeadlineExceeded,
    OffloadOutcome,
    ShieldedOffload,
    SteadyClock,
    Stop,
    StopRequested,
    StopSignal,
    offload,
    offload_job,
    offload_report,
    shut_peer,
    shut_reading,
    stuck,
)
from timebounds.bounds._threads import Pool
from timebounds.policies.offload_evidence import _ATTRIBUTE
from timebounds.testing import FakeClock, Gate


def far():
    return Deadline.after(60)


async def started(resource):
    await until(lambda: "entered" in resource.trace.events)


class Unexpected(Exception):
    pass


# ------------------------------------------------------------------ who closes, and where


def test_closing_stands_in_no_line_behind_what_it_waits_for(monkeypatch):
    """O3: with every thread of the pool busy, what was withdrawn is closed at once."""
    monkeypatch.setattr("timebounds.aio.arguments.POOL", Pool(limit=1, linger=0.0))
    gate, closed = Gate("busy"), []

    async def main():
        busy = asyncio.create_task(offload(gate.enter, deadline=far()))
        await until(lambda: gate._arrived)

        async def use():
            async with ShieldedOffload(close=[lambda: closed.append(1)]) as scope:
                await scope.run(int, deadline=far())

        task = asyncio.create_task(use())
        await turns(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == [1]
        gate.open()
        await busy

    asyncio.run(main())


def test_what_is_withdrawn_last_closes_in_a_thread_and_not_in_the_loops():
    """O1: closing may block."""
    where = []

    async def main():
        gate = Gate("busy")
        with ThreadPoolExecutor(1) as executor:
            executor.submit(gate.enter)
            clock = FakeClock()

            async def use():
                async with ShieldedOffload(
                    close=[lambda: where.append(threading.current_thread())], executor=executor
                ) as scope:
                    scope.start(int, deadline=clock.deadline(1))

            task = asyncio.create_task(use())
            await turns(5)
            clock.advance(1)
            with pytest.raises(ExceptionGroup) as caught:
                await task
            gate.open()
        assert [type(each) for each in caught.value.exceptions] == [DeadlineExceeded]

    asyncio.run(main())
    assert where[0] is not threading.main_thread()


# ------------------------------------------------------------------ what nobody awaited


def test_an_expiry_that_nobody_awaited_comes_out_of_the_block():
    """O5: and so does what never started."""
    clock = FakeClock()

    async def main():
        resource = Resource()

        async def use():
            async with ShieldedOffload(release=resource.release) as scope:
                scope.start(resource.work, deadline=clock.deadline(1))

        task = asyncio.create_task(use())
        await started(resource)
        clock.advance(1)
        with pytest.raises(ExceptionGroup) as caught:
            await task
        assert [type(each) for each in caught.value.exceptions] == [DeadlineExceeded]

    asyncio.run(main())


def test_a_stop_after_the_end_changes_neither_the_error_nor_the_report():
    """O5, T1: a report never changes; the stop comes too late."""

    async def main():
        stop = StopSignal()
        with pytest.raises(ExceptionGroup) as caught:
            async with ShieldedOffload() as scope:
                resource = Resource()
                resource.gate.open()
                deadline = Deadline.after(60, stop=stop)
                handle = scope.start(resource.work, OSError("no space"), deadline=deadline)
                await until(lambda: handle.report is not None)
                before = handle.report
                assert handle.stop("done") is Stop.TOO_LATE
                stop.request("everything")
                assert handle.report == before
                assert before.stop_requested is None
        assert "no space" in str(caught.value.exceptions[0])

    asyncio.run(main())


def test_failures_that_were_awaited_are_not_kept():
    """H2: a long-lived scope does not grow."""

    async def main():
        async with ShieldedOffload() as scope:
            for _ in range(20):
                handle = scope.start(_raise, deadline=far())
                await until(lambda: handle.report is not None)  # noqa: B023  (at once)
                with suppress(Unexpected):
                    await handle
            assert len(scope._unawaited) <= 1

    asyncio.run(main())


def _raise():
    raise Unexpected


# ------------------------------------------------------------------ executors


@pytest.mark.parametrize("must_run", [False, True])
def test_an_executor_that_drops_its_work_is_said_to_have_done_so(must_run):
    """O3: neither the call nor the scope hangs."""
    ran = []

    async def main():
        gate = Gate("busy")
        executor = ThreadPoolExecutor(1)
        executor.submit(gate.enter)
        closed = []

        async def use():
            async with ShieldedOffload(
                close=[lambda: closed.append(1)], executor=executor
            ) as scope:
                await scope.run(ran.append, 1, deadline=far(), must_run=must_run)

        task = asyncio.create_task(use())
        await turns(3)
        executor.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(RuntimeError, match="the executor dropped it before it began"):
            await task
        assert closed == [1]
        gate.open()
        executor.shutdown()

    asyncio.run(main())
    assert ran == []


def test_an_executor_that_can_not_carry_it_out_is_quoted():
    """O5: its own error is the cause."""

    class Broken:
        def submit(self, work):
            from concurrent.futures import Future

            future = Future()
            future.set_exception(OSError("can't pickle"))
            return future

    async def main():
        with pytest.raises(RuntimeError, match="dropped it") as caught:
            await offload(int, deadline=far(), executor=Broken())
        assert "pickle" in str(caught.value.__cause__)

    asyncio.run(main())


# ------------------------------------------------------------------ hostile parts


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit])
def test_a_release_that_raises_what_is_no_exception_loses_no_cancel(kind):
    """O2: `cancel()` itself returns."""

    async def main():
        resource = Resource()

        def release():
            resource.release()
            raise kind("release")

        task = asyncio.create_task(offload(resource.work, deadline=far(), release=release))
        await started(resource)
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelled()
        assert [type(each) for each in offload_report(caught.value).errors] == [kind]

    logging.disable()
    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


def test_an_interrupt_in_a_release_passes_through():
    """O8: Ctrl-C is not kept for later."""

    async def main():
        resource = Resource()

        def release():
            resource.release()
            raise KeyboardInterrupt

        task = asyncio.create_task(offload(resource.work, deadline=far(), release=release))
        await started(resource)
        with pytest.raises(KeyboardInterrupt):
            task.cancel()
        await until(lambda: "returned" in resource.trace.events)
        task.cancel()
        with suppress(BaseException):
            await task

    asyncio.run(main())


class Hostile(Exception):
    def __repr__(self):
        raise ZeroDivisionError

    def add_note(self, note):
        raise TypeError


def test_errors_that_can_not_be_shown_replace_nothing():
    """O2, O5: neither the caller's error nor a bound."""

    async def main():
        def close():
            raise Hostile

        def work(job):
            job.own(1, close=lambda _: close())
            raise Unexpected("mine")

        with pytest.raises(Unexpected, match="mine"):
            await offload_job(work, deadline=far())
        with pytest.raises(Hostile):
            async with ShieldedOffload(close=[close]):
                raise Hostile

    asyncio.run(main())


def test_a_log_handler_that_fails_keeps_nobody_waiting():
    """O6: the grace ends the call."""

    class Failing(logging.Handler):
        def emit(self, record):
            raise ZeroDivisionError

    handler = Failing()
    logger = logging.getLogger("timebounds")
    logger.addHandler(handler)

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(offload(resource.work, Unexpected(), deadline=far(), grace=0))
        await started(resource)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        resource.gate.open()
        await until(lambda: not stuck())

    try:
        asyncio.run(main())
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("fails_at", range(2, 12))
@pytest.mark.parametrize("ends", ["return", "cancel", "own"])
def test_a_clock_that_fails_at_any_reading_hangs_nothing(fails_at, ends):
    """C4, O2: and loses no cancel."""

    class Failing(SteadyClock):
        def __init__(self):
            self.readings = 0

        def now_ns(self):
            self.readings += 1
            if self.readings == fails_at:
                raise OSError("no time")
            return self.readings

    async def main():
        clock, resource = Failing(), Resource()
        if ends != "cancel":
            resource.gate.open()
        deadline = Deadline.after(60, clock=clock)

        def work(job):
            if ends == "own":
                job.own(resource)
            return resource.work(5)

        async with ShieldedOffload(release=resource.release) as scope:
            task = asyncio.create_task(scope.run_job(work, deadline=deadline))
            await until(lambda: task.done() or "entered" in resource.trace.events)
            if ends == "cancel":
                task.cancel()
            await asyncio.wait([task], timeout=20)
            assert task.done()
            if ends == "cancel" and "entered" in resource.trace.events:
                assert task.cancelled()
            else:
                task.cancelled() or task.exception()

    logging.disable()
    try:
        with suppress(OSError, ExceptionGroup):
            asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


# ------------------------------------------------------------------ grace


def test_a_grace_of_nothing_is_over_at_once_on_a_fake_clock_too():
    """O6, N4, case A40: without a further advance."""
    clock = FakeClock(100)

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(offload(resource.work, deadline=clock.deadline(1), grace=0))
        await started(resource)
        clock.advance(1)
        with pytest.raises(DeadlineExceeded):
            await task
        clock.advance(1)
        assert [(age, thread) for _, age, thread in stuck()] == [(2, resource.thread)]
        resource.gate.open()
        await until(lambda: not stuck())

    asyncio.run(main())


def test_an_error_with_something_else_in_the_reports_place_has_none():
    error = ValueError()
    assert offload_report(error) is None
    setattr(error, _ATTRIBUTE, "mine")
    assert offload_report(error) is None


def test_grace_counts_from_the_request_however_late_the_loop_comes_to_it():
    """O6: not from when the loop has noticed."""
    clock = FakeClock()

    async def main():
        resource = Resource(obeys=False)
        task = asyncio.create_task(offload(resource.work, deadline=clock.deadline(9), grace=3))
        await started(resource)
        task.cancel()
        clock.jump(5)  # before the loop has made a turn
        with pytest.raises(asyncio.CancelledError):
            await task
        resource.gate.open()
        await until(lambda: not stuck())

    asyncio.run(main())


def test_a_late_taker_that_blocks_is_waited_for_no_longer_than_the_grace():
    """O6: its cancels are counted too."""
    clock = FakeClock()
    gate = Gate("taker")

    async def main():
        returned, go = threading.Event(), Gate("go")

        def work(job):
            job.own(returned, close=threading.Event.set)
            go.enter()
            return "value"

        task = asyncio.create_task(
            offload_job(
                work, deadline=clock.deadline(60), grace=2, on_late_result=lambda _: gate.enter()
            )
        )
        await until(lambda: go._arrived)
        go.open()
        assert returned.wait(5)
        task.cancel()  # the loop has not turned meanwhile
        await until(lambda: gate._arrived)
        task.cancel()
        await turns(3)
        assert not task.done()
        clock.advance(2)
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert task.cancelling() == 2
        assert offload_report(caught.value).cancels == 2
        gate.open()

    asyncio.run(main())


def test_what_must_run_and_waits_in_line_is_listed_and_not_said_to_be_inside():
    """O3, O6: it will run, and a release has nothing to do with it."""
    ran = []

    async def main():
        gate = Gate("busy")
        with ThreadPoolExecutor(1) as executor:
            executor.submit(gate.enter)
            released = []
            task = asyncio.create_task(
                offload(
                    ran.append,
                    1,
                    deadline=far(),
                    must_run=True,
                    grace=0,
                    executor=executor,
                    release=lambda: released.append(1),
                )
            )
            await turns(3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert "still in line, and will run" in caught.value.__notes__[0]
            [listed] = stuck()
            assert (listed.name, listed.thread) == ("list.append", None)
            gate.open()
            await until(lambda: not stuck())
        assert released == []

    logging.disable()
    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)
    assert ran == [1]


# ------------------------------------------------------------------ one expiry, one error


@pytest.mark.parametrize("kind", [TimeoutError, OSError, EOFError])
def test_an_error_at_the_deadline_is_the_deadlines(kind):
    """O4: whether the function or the alarm was faster, and the evidence is with it."""
    clock = FakeClock()

    def work():
        clock.jump(1)
        raise kind("timed out")

    async def main():
        with pytest.raises(DeadlineExceeded) as caught:
            await offload(work, deadline=clock.deadline(1))
        assert caught.value.report.outcome is OffloadOutcome.DEADLINE_EXPIRED
        assert type(caught.value.__cause__) is kind

    asyncio.run(main())


def test_the_functions_own_deadline_error_has_the_report():
    """D6: `error.report` tells the rest."""
    clock, ended = FakeClock(), threading.Event()

    def work(job):
        job.own(ended, threading.Event.set)
        clock.jump(1)
        job.deadline.check("mine")

    async def main():
        # The loop comes to its alarm when the function has ended.
        asyncio.get_running_loop().call_soon(ended.wait, 20)
        with pytest.raises(DeadlineExceeded, match="mine") as caught:
            await offload_job(work, deadline=clock.deadline(1))
        assert caught.value.report.outcome is OffloadOutcome.DEADLINE_EXPIRED

    asyncio.run(main())


# ------------------------------------------------------------------ jobs that are over


def test_a_job_that_is_over_wakes_and_commits_nothing():
    """O12: as it takes nothing more."""

    async def main():
        job = await offload_job(lambda job: job, deadline=far())
        with pytest.raises(RuntimeError, match="the job has returned"), job.releasing(print):
            pass
        with pytest.raises(RuntimeError, match="nothing left to commit"):
            job.commit()

    asyncio.run(main())


def test_a_releasing_block_is_entered_once():
    """O12: nested in itself it would wake after it was left."""

    def work(job):
        block = job.releasing(print)
        with block, pytest.raises(RuntimeError) as caught:
            block.__enter__()
        assert str(caught.value) == (
            "a releasing block is entered once: call job.releasing(wake) again"
        )
        return job

    job = asyncio.run(offload_job(work, deadline=far()))
    with pytest.raises(RuntimeError) as caught:
        job.releasing(print).__enter__()
    assert str(caught.value) == (
        "the job has returned: what it used is closed, or somebody else's by now"
    )
    with pytest.raises(TypeError) as caught:
        job.releasing(7)
    assert str(caught.value) == "wake must be a function without arguments, not 7"


def test_a_stop_that_came_before_the_function_leaves_it_out():
    """O3: between the thread's start and the function's."""
    ran = []

    async def main():
        handed = []

        class Later:
            def submit(self, work):
                handed.append(work)

        task = asyncio.create_task(offload(ran.append, 1, deadline=far(), executor=Later()))
        await turns(2)
        [work] = handed
        work.stop.request("early")
        with pytest.raises(StopRequested):
            await task
        work()

    asyncio.run(main())
    assert ran == []


# ------------------------------------------------------------------ loops


def test_a_run_belongs_to_its_loop():
    """O9: awaiting it in another one would hang."""
    scope = ShieldedOffload()

    async def begin():
        await scope.__aenter__()
        handle = scope.start(int, deadline=far())
        await until(lambda: handle.report is not None)
        return handle

    async def elsewhere(handle):
        with pytest.raises(RuntimeError, match="in another loop: await it there"):
            await handle
        with pytest.raises(RuntimeError, match="entered in another loop"):
            scope.start(int, deadline=far())

    with asyncio.Runner() as one, asyncio.Runner() as other:
        handle = one.run(begin())
        other.run(elsewhere(handle))
        one.run(scope.__aexit__(None, None, None))


# ------------------------------------------------------------------ arguments


async def asynchronous():
    raise AssertionError


class Callable:
    async def __call__(self):
        raise AssertionError


def in_disguise():
    return asynchronous()


@pytest.mark.parametrize("fn", [functools.partial(asynchronous), Callable(), in_disguise])
def test_an_async_function_in_disguise_is_refused(fn):
    """N1: a thread would not run it."""
    with pytest.raises(TypeError, match=r"await it"):
        asyncio.run(offload(fn, deadline=far()))


def test_a_partial_shows_its_function_and_nothing_that_it_binds():
    """R20's rule: secrets are often bound."""

    async def main():
        with pytest.raises(DeadlineExceeded) as caught:
            await offload(functools.partial(int, "secret"), deadline=Deadline.after(0))
        assert "offload of int:" in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize("release", [shut_reading, shut_peer])
def test_a_release_of_what_is_no_socket_is_refused_when_it_is_made(release):
    """N1: not when it is needed."""
    with pytest.raises(TypeError, match="must be a socket, not 5"):
        release(5)
    told = []

    class Transport:
        def shutdown(self, how):
            told.append(how)

    release(Transport())()
    assert len(told) == 1


# ------------------------------------------------------------------ told when nobody waits


@pytest.mark.parametrize("where", ["close", "own", "late"])
def test_a_clean_up_that_fails_after_the_caller_has_left_is_logged(where, caplog):
    """O5: nothing is lost to silence."""

    def fail(_=None):
        raise Unexpected("clean-up")

    async def main():
        resource = Resource(obeys=False)

        def work(job):
            if where == "own":
                job.own(1, close=fail)
            return resource.work(5)

        late = fail if where == "late" else None
        with pytest.raises(DeadlineExceeded):
            async with ShieldedOffload(close=[fail] if where == "close" else (), grace=0) as scope:
                await scope.run_job(work, deadline=Deadline.after(0.01), on_late_result=late)
        resource.gate.open()
        await until(lambda: not stuck())
        await until(lambda: any("clean-up" in str(r.exc_info) for r in caplog.records), 5)

    asyncio.run(main())
