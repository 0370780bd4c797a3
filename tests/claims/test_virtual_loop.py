"""F1-F3 and the cases A79-A84 on asyncio's side: a loop on fake time behaves like a loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import signal
import socket
import threading

import pytest
from offloads import turns, until

from timebounds import (
    MONOTONIC,
    ClockError,
    Deadline,
    DeadlineExceeded,
    StopSignal,
    enforcing,
    offload,
    offload_job,
    wait_requested,
)
from timebounds.bounds.lookup import SLOTS
from timebounds.testing import FakeClock, Gate, Trace
from timebounds.testing.loop import VirtualLoop

DAY = 86_400
ELEVEN_YEARS = 11 * 365


async def sleep(seconds):
    await asyncio.sleep(seconds)  # fake time


async def for_ever():
    await asyncio.get_running_loop().create_future()


def now():
    return asyncio.get_running_loop().time()


def real_wait(seconds):
    """Let real time pass: what is under test is that fake time does not."""
    threading.Event().wait(seconds)


# ------------------------------------------------------------------ exact


def test_ten_sleeps_of_a_tenth_are_one():
    """F1: exactly, by the clock and by the loop."""
    clock = FakeClock()

    async def main():
        seen = []
        for _ in range(10):
            await sleep(0.1)
            seen.append(clock.now_ns())
        return seen, now()

    assert clock.run(main()) == ([n * 100_000_000 for n in range(1, 11)], 1.0)


@pytest.mark.parametrize("start", [0, 1 / 3, 1e6 + 1 / 7])
def test_sleeps_end_at_their_own_nanosecond(start):
    """F1: from whatever start, for whatever decimal."""
    clock = FakeClock(start=start)
    begin = clock.now_ns()

    async def main():
        for seconds in (0.1, 0.25, 1e-6, 3.3, 1e-3, 59.999):
            before = clock.now_ns()
            await sleep(seconds)
            assert clock.now_ns() - before == round(seconds * 1e9)

    clock.run(main())
    assert clock.now_ns() - begin == 63_650_001_000


@pytest.mark.slow
def test_daily_timers_for_eleven_years_end_at_exactly_their_days():
    """F3: 4015 days and not a nanosecond more."""
    clock = FakeClock()

    async def main():
        for _ in range(ELEVEN_YEARS):
            await sleep(DAY)

    clock.run(main())
    assert clock.now_ns() == ELEVEN_YEARS * DAY * 1_000_000_000


@pytest.mark.parametrize("way", ["loop", "clock", "deadline"])
def test_one_sleep_of_eleven_years(way):
    """F3: by the loop's time, by the clock's, and as a deadline."""
    clock = FakeClock()
    seconds = ELEVEN_YEARS * DAY

    async def main():
        if way == "loop":
            await sleep(seconds)
        elif way == "clock":
            await clock.asleep(seconds)
        else:
            async with enforcing(clock.deadline(seconds), raises=False):
                await for_ever()

    clock.run(main())
    assert clock.now_ns() == seconds * 1_000_000_000


def test_a_recurring_callback_sees_each_of_its_instants():
    """Case A82: it is called ten times in ten seconds, and sees 1, 2, 3 ..."""
    clock = FakeClock()
    seen = []

    async def main():
        loop = asyncio.get_running_loop()

        def again():
            seen.append((loop.time(), clock.now()))
            loop.call_later(1, again)

        loop.call_later(1, again)
        await sleep(10.5)

    clock.run(main())
    assert seen == [(float(n), float(n)) for n in range(1, 11)]
    assert clock.now() == 10.5


# ------------------------------------------------------------------ in order


def test_timers_of_the_loop_and_waiters_of_the_clock_go_off_in_one_order():
    """F1, case A82: each at its own instant, equal ones in order of arming within their kind."""
    clock = FakeClock()
    seen = []

    async def by_loop(name, seconds):
        await sleep(seconds)
        seen.append((name, clock.now()))

    async def by_clock(name, seconds):
        await clock.asleep(seconds)
        seen.append((name, clock.now()))

    async def main():
        clock.call_later(2.5, lambda: seen.append(("callback", clock.now())))
        async with asyncio.TaskGroup() as group:
            for which, name, seconds in (
                (by_loop, "loop 3", 3),
                (by_clock, "clock 1", 1),
                (by_loop, "loop 1.5", 1.5),
                (by_clock, "clock 4", 4),
                (by_loop, "loop 2", 2),
                (by_loop, "second loop 2", 2),
                (by_clock, "clock 3.5", 3.5),
            ):
                group.create_task(which(name, seconds))

    clock.run(main())
    assert seen == [
        ("clock 1", 1.0), ("loop 1.5", 1.5), ("loop 2", 2.0), ("second loop 2", 2.0),
        ("callback", 2.5), ("loop 3", 3.0), ("clock 3.5", 3.5), ("clock 4", 4.0),
    ]  # fmt: skip


def test_a_cancelled_timer_moves_nothing():
    clock = FakeClock()

    async def main():
        asyncio.get_running_loop().call_later(5, pytest.fail).cancel()
        await sleep(1)

    clock.run(main())
    assert clock.now() == 1.0


def test_somebody_may_advance_the_clock_from_within():
    """Case A82: over the loop's own timers too; they are late, and say so."""
    clock = FakeClock()
    seen = []

    async def main():
        asyncio.get_running_loop().call_later(1, lambda: seen.append(now()))
        await turns(2)
        clock.advance(10)
        await turns(2)

    clock.run(main())
    assert seen == [10.0]


# ------------------------------------------------------------------ asyncio's own


def test_a_timeout_of_asyncio_is_in_fake_time():
    clock = FakeClock()

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await for_ever()
        assert clock.now() == 30.0
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(for_ever(), 30)
        assert clock.now() == 60.0
        async with asyncio.timeout(30):
            await sleep(29)
        done, pending = await asyncio.wait([asyncio.create_task(for_ever())], timeout=30)
        assert (done, len(pending)) == (set(), 1)

    clock.run(main())
    assert clock.now() == 119.0


def test_a_queue_between_tasks_is_in_fake_time():
    clock = FakeClock()

    async def producer(queue):
        for n in range(3):
            await sleep(1.5)
            await queue.put(n)

    async def consumer(queue):
        got = []
        while len(got) < 3:
            try:
                got.append((await asyncio.wait_for(queue.get(), 1), clock.now()))
            except TimeoutError:
                got_nothing.append(clock.now())
        return got

    async def main():
        queue = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            group.create_task(producer(queue))
            task = group.create_task(consumer(queue))
        return task.result()

    got_nothing = []
    assert clock.run(main()) == [(0, 1.5), (1, 3.0), (2, 4.5)]
    assert got_nothing == [1.0, 2.5, 4.0]


def test_a_stop_in_fake_time_ends_a_wait_of_a_task():
    """F3."""
    clock = FakeClock()
    stop = StopSignal(clock=clock)

    async def main():
        clock.call_later(5, stop.request)
        assert await wait_requested(stop, clock.deadline(60))
        assert not await wait_requested(StopSignal(), clock.deadline(60))

    clock.run(main())
    assert (stop.requested_at, clock.now()) == (5.0, 65.0)


def test_real_time_goes_on_for_what_was_not_given_the_clock():
    """Case A79: nothing is patched; a loop beside it sleeps in real time."""
    clock = FakeClock()

    async def in_real_time():
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await for_ever()
        return asyncio.get_running_loop().time() - began

    async def main():
        took = await asyncio.to_thread(asyncio.run, in_real_time())
        return took, clock.now()

    took, fake = clock.run(main())
    assert took >= 0.0099
    assert fake == 0.0


# ------------------------------------------------------------------ threads


def test_threads_and_tasks_sleep_on_one_clock():
    """F3: in one order, each seeing its own instant."""
    clock = FakeClock()
    trace = Trace()

    def thread(name, seconds):
        for n in range(1, 4):
            clock.sleep(seconds)
            trace.add(f"{name} {n} at {clock.now():g}")

    async def task(name, seconds):
        for n in range(1, 4):
            await sleep(seconds)
            trace.add(f"{name} {n} at {clock.now():g}")

    async def main():
        await asyncio.gather(
            asyncio.to_thread(thread, "thread", 2),
            task("task", 3),
            offload(thread, "offload", 7, deadline=clock.deadline(60)),
        )

    clock.run(main())
    assert trace.events == [
        "thread 1 at 2", "task 1 at 3", "thread 2 at 4", "thread 3 at 6", "task 2 at 6",
        "offload 1 at 7", "task 3 at 9", "offload 2 at 14", "offload 3 at 21",
    ]  # fmt: skip


def offloaded(work):
    return offload(work, deadline=Deadline.never())


@pytest.mark.real
@pytest.mark.parametrize("way", [asyncio.to_thread, offloaded])
def test_time_does_not_jump_over_work_in_a_thread(way):
    """Case A83: 0.2 s of real work inside a limit of 300 s; no fake time has passed."""
    clock = FakeClock()

    async def main():
        async with asyncio.timeout(300), enforcing(clock.deadline(300)):
            await way(lambda: real_wait(0.2))
        return clock.now()

    assert clock.run(main()) == 0.0


@pytest.mark.real
@pytest.mark.parametrize("way", [asyncio.to_thread, offloaded])
def test_a_stranger_that_waits_on_the_clock_does_not_stand_for_one_that_works(way):
    """Case A83: a plain thread sleeps on the clock, one of the loop's computes."""
    clock = FakeClock()

    async def main():
        stranger = threading.Thread(target=clock.sleep, args=(50,))
        stranger.start()
        clock.wait_until_waiting(1)
        await way(lambda: real_wait(0.1))
        at = clock.now()
        await sleep(100)
        stranger.join(30)
        return at, clock.now()

    assert clock.run(main()) == (0.0, 100.0)


def test_a_thread_that_waits_on_the_clock_lets_it_move():
    """F3: work that sleeps in fake time takes fake time, and no real time."""
    clock = FakeClock()

    async def main():
        await asyncio.to_thread(clock.sleep, 3600)
        await offload(clock.sleep, 3600, deadline=Deadline.never())

    clock.run(main())
    assert clock.now() == 7200.0


def test_the_deadline_of_an_offload_is_in_fake_time():
    """F3: the function waits until it is stopped, by the deadline that the loop walks to."""
    clock = FakeClock()

    def patient(job):
        job.deadline.stop.wait(Deadline.never(clock=clock))

    async def main():
        with pytest.raises(DeadlineExceeded) as caught:
            await offload_job(patient, deadline=clock.deadline(3600))
        return caught.value.report.ran

    assert clock.run(main()) == 3600.0


def test_a_condition_between_a_thread_and_another_is_in_fake_time():
    clock = FakeClock()
    condition = threading.Condition()
    trace = Trace()

    def waiter():
        with condition:
            notified = clock.wait(condition, 60)
        trace.add("woken")
        return notified, clock.now()

    def notifier():
        clock.sleep(5)
        with condition:
            condition.notify()
        # It works until the other has noticed: time stands still.
        trace.wait_for("woken")

    async def main():
        waiting = asyncio.create_task(asyncio.to_thread(waiter))
        await sleep(1)
        await asyncio.to_thread(notifier)
        return await waiting

    assert clock.run(main()) == (True, 6.0)


def test_a_thread_that_has_done_its_work_does_not_slow_time_down():
    """F3: an executor's idle threads are nobody whom one would have to wait for."""
    clock = FakeClock()
    seconds = 500

    async def main():
        await asyncio.to_thread(int)
        await offload(int, deadline=Deadline.never())
        loop = asyncio.get_running_loop()
        # The thread has told its result, and is about to rest.
        await until(lambda: not loop._is_watched())
        for _ in range(seconds):
            await sleep(1)

    began = MONOTONIC.now()
    clock.run(main())
    assert clock.now() == seconds
    assert MONOTONIC.now() - began < 10


def test_an_executor_of_ones_own_is_waited_for():
    """Case A83: threads, and what is no pool of threads at all."""
    clock = FakeClock()
    gate = Gate()

    class Inline(concurrent.futures.Executor):
        def submit(self, fn, /, *args, **kwargs):
            future = concurrent.futures.Future()
            gate.wait_arrived()
            future.set_result(fn(*args, **kwargs))
            gate.open()
            return future

    async def main():
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            entered = loop.run_in_executor(pool, gate.enter)
            assert await loop.run_in_executor(Inline(), divmod, 7, 2) == (3, 1)
            await entered
            await loop.run_in_executor(pool, clock.sleep, 5)
            assert loop._threads == set()

    clock.run(main())
    assert clock.now() == 5.0


def test_an_error_in_an_executor_leaves_as_it_is():
    clock = FakeClock()

    def fail():
        raise KeyError("own")

    async def main():
        with pytest.raises(KeyError, match="own"):
            await asyncio.to_thread(fail)
        await sleep(1)

    clock.run(main())
    assert clock.now() == 1.0


def test_the_end_of_the_loop_waits_for_abandoned_work_in_real_time():
    """Its 300 s for the executor are no fake ones: they would be over at once."""
    clock = FakeClock()
    gate = Gate()
    opener = threading.Thread(target=lambda: (gate.wait_arrived(), real_wait(0.05), gate.open()))
    opener.start()

    async def main():
        task = asyncio.create_task(asyncio.to_thread(gate.enter))
        await turns(2)
        task.cancel()

    clock.run(main())
    opener.join()
    assert clock.now() == 0.0


def test_work_that_reports_as_it_becomes_idle_is_not_overtaken():
    """Case A83: between the end of the work and the loop's next look no time passes."""
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(3600)):
            for _ in range(300):
                await offload(int, deadline=Deadline.never())
        return clock.now()

    assert clock.run(main()) == 0.0


# ------------------------------------------------------------------ the world outside


def test_a_plain_thread_may_wake_the_loop():
    """F3: within a moment of real time, before time goes on without it."""
    clock = FakeClock()

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(future.set_result, 1))
        async with asyncio.timeout(3600):
            thread.start()
            await future
        thread.join()

    # A machine that stalls for longer than the moment lets an hour pass: seldom twice.
    for _ in range(3):
        try:
            clock.run(main())
        except TimeoutError:
            continue
        break
    assert clock.now() in (0.0, 3600.0, 7200.0)


def test_a_plain_thread_may_wake_a_loop_that_has_no_timers():
    """However long it takes: there is nothing to go on to."""
    clock = FakeClock()
    gate = Gate()

    def wake(loop, future):
        gate.enter()
        real_wait(0.05)
        loop.call_soon_threadsafe(future.set_result, "woken")

    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        thread = threading.Thread(target=wake, args=(loop, future))
        thread.start()
        loop.call_soon(gate.open)
        value = await future
        thread.join()
        return value

    assert clock.run(main()) == "woken"
    assert clock.now() == 0.0


def test_a_real_socket_is_waited_for_in_real_time():
    """F3: both ends in the loop, minutes of fake time around them."""
    clock = FakeClock()

    async def echo(reader, writer):
        data = await reader.readexactly(4)
        await sleep(60)
        writer.write(data[::-1])
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"ABCD")
            data = await reader.read()
            writer.close()
            await writer.wait_closed()
        return data

    assert clock.run(main()) == b"DCBA"
    assert clock.now() == 60.0


def test_a_thread_that_polls_a_descriptor_on_the_clock_is_given_a_moment():
    """F3: it waits on the clock, and yet somebody else may wake it."""
    clock = FakeClock()
    ours, theirs = socket.socketpair()

    def receive():
        from timebounds import BudgetedReceiver

        return BudgetedReceiver(ours).receive_exactly(2, clock.deadline(60))

    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(asyncio.to_thread(receive))
        await sleep(1)
        assert loop._is_watched()
        theirs.sendall(b"AB")
        return await task

    with ours, theirs:
        assert clock.run(main()) == b"AB"
    assert clock.now() == 1.0


# ------------------------------------------------------------------ what would never end


def test_a_loop_without_a_delay_is_an_error():
    """Case A84: with a timer ahead, which is never reached."""
    clock = FakeClock(patience=0.1)

    async def spin():
        while True:
            await turns()

    async def main():
        spinning = asyncio.create_task(spin(), name="spinner")
        await sleep(5)
        spinning.cancel()

    with pytest.raises(ClockError) as caught:
        clock.run(main())
    text = str(caught.value)
    assert text.startswith("something loops without delay: ")
    assert "turns of the loop at 0 s of fake time, in 0." in text
    assert "spinner" in text
    assert text.endswith("; on the clock: nobody")
    assert clock.now() == 0.0


def test_a_callback_that_calls_itself_without_a_delay_is_an_error():
    """Case A84: with somebody on the clock, who is named."""
    clock = FakeClock(patience=0.1)

    async def main():
        loop = asyncio.get_running_loop()

        def again():
            loop.call_later(0, again)

        again()
        await clock.asleep(5)

    with pytest.raises(ClockError, match=r"loops without delay: .*on the clock: task .* until 5 s"):
        clock.run(main())


def test_many_turns_at_one_instant_are_no_error():
    """Case A84: it is the real time that they take that makes them one."""
    clock = FakeClock()

    async def main():
        async with enforcing(clock.deadline(5)):
            await turns(5_000)
        await sleep(1)

    clock.run(main())
    assert clock.now() == 1.0


def test_when_nobody_will_wake_the_loop_it_says_who_waits():
    """F1, case A80: tasks and waiters by their names, and at once, since nobody else is there."""
    clock = FakeClock()

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(for_ever(), name="the first")
            group.create_task(for_ever(), name="the second")
            await sleep(3)

    with pytest.raises(ClockError) as caught:
        clock.run(main())
    text = str(caught.value)
    assert text.startswith("nobody will wake this loop, at 3 s of fake time, after 0 real seconds")
    assert "the first, the second; on the clock: nobody" in text


def test_a_stranger_that_does_nothing_is_waited_for_with_patience():
    """Case A80: it could wake the loop, so the error takes as long as patience does."""
    clock = FakeClock(patience=0.1)
    gate = Gate()
    stranger = threading.Thread(target=gate.enter)
    stranger.start()
    gate.wait_arrived()
    with pytest.raises(ClockError, match=r"nobody will wake .* after 0\.1 real seconds"):
        clock.run(for_ever())
    gate.open()
    stranger.join()


def test_work_that_does_not_return_is_an_error_that_says_so():
    """Case A83: time stands still for it, but not for ever."""
    clock = FakeClock(patience=0.1)
    gate = Gate()

    async def release():
        try:
            await for_ever()
        finally:
            gate.open()

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(offload(gate.enter, deadline=clock.deadline(60)), name="stuck")
            group.create_task(release())

    with pytest.raises(ClockError) as caught:
        clock.run(main())
    text = str(caught.value)
    assert text.startswith("an offload has not returned, at 0 s of fake time, after 0.1 real s")
    assert "stuck" in text
    assert "until 60 s" in text


def test_a_deadline_of_a_real_clock_is_refused_on_it():
    """C2: it would wait in real time for what comes in fake time; the message shows the way."""
    clock = FakeClock()
    done = []

    async def main():
        with pytest.raises(ClockError) as enforced:
            async with enforcing(Deadline.after(5)):
                pytest.fail("it has run")
        with pytest.raises(ClockError, match=r"use clock\.deadline\("):
            await wait_requested(StopSignal(), Deadline.after(5))
        with pytest.raises(ClockError) as asleep:
            await MONOTONIC.asleep(5)
        with pytest.raises(ClockError) as alarmed:
            MONOTONIC.alarm(5, print)
        with pytest.raises(ClockError) as awaited:
            await MONOTONIC.await_done(asyncio.get_running_loop().create_future(), 5)
        for caught in (enforced, asleep, alarmed, awaited):
            assert str(caught.value) == (
                "the loop runs on <FakeClock at 0 s> and this wait is on MonotonicClock(): "
                "use clock.deadline(...)"
            )
        done.append(asyncio.current_task().cancelling())

    clock.run(main())
    assert done == [0]


def test_another_fake_clock_is_moved_by_whoever_moves_it():
    clock, other = FakeClock(), FakeClock()

    async def main():
        task = asyncio.create_task(other.asleep(5))
        await sleep(1)
        assert not task.done()
        other.advance(5)
        await task

    clock.run(main())
    assert (clock.now(), other.now()) == (1.0, 5.0)


# ------------------------------------------------------------------ the same every time


def scenario():
    clock = FakeClock()
    seen = []

    async def worker(name, queue):
        while True:
            item = await queue.get()
            async with enforcing(clock.deadline(2.5), raises=False) as block:
                await sleep(item)
            seen.append((name, item, block.report.outcome.value, clock.now()))

    async def main():
        queue = asyncio.Queue()
        workers = [asyncio.create_task(worker(name, queue)) for name in "ab"]
        for item in (1, 3, 2, 1, 4):
            queue.put_nowait(item)
            await sleep(0.75)
        await sleep(10)
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    clock.run(main())
    return seen


@pytest.mark.slow
def test_a_thousand_repetitions_are_one_and_the_same():
    """F1, case A81: no tick is lost, nothing is sooner or later."""
    expected = scenario()
    assert expected == [
        ("a", 1, "completed", 1.0),
        ("b", 3, "deadline_expired", 3.25),
        ("a", 2, "completed", 3.5),
        ("b", 1, "completed", 4.25),
        ("a", 4, "deadline_expired", 6.0),
    ]
    for _ in range(999):
        assert scenario() == expected


@pytest.mark.slow
def test_a_thousand_repetitions_with_threads_are_one_and_the_same():
    """F3, case A81: an offload arrives at the clock before time goes on, always."""

    def once():
        clock = FakeClock()
        seen = []

        def work(job):
            clock.sleep(2)
            seen.append(("thread", clock.now()))
            clock.sleep(2)
            return clock.now()

        async def main():
            task = asyncio.create_task(offload_job(work, deadline=clock.deadline(60)))
            for _ in range(3):
                await sleep(1.5)
                seen.append(("task", clock.now()))
            seen.append(await task)

        clock.run(main())
        return seen, clock.now()

    expected = [("task", 1.5), ("thread", 2.0), ("task", 3.0), ("task", 4.5), 4.0]
    for _ in range(1000):
        assert once() == (expected, 4.5)


# ------------------------------------------------------------------ endings


@pytest.fixture
def loops(monkeypatch):
    """The loops that `clock.run` has made."""
    made = []
    begin = VirtualLoop.__init__

    def keep(self, clock):
        begin(self, clock)
        made.append(self)

    monkeypatch.setattr(VirtualLoop, "__init__", keep)
    return made


def test_run_returns_the_value_and_closes_the_loop(loops):
    clock = FakeClock()

    async def main():
        await sleep(1)
        return "value"

    assert clock.run(main()) == "value"
    assert [each.is_closed() for each in loops] == [True]
    assert loops[0].timebounds_clock is clock


@pytest.mark.parametrize("error", [ValueError("own"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_leaves_the_loop_closed_and_the_other_tasks_ended(loops, error):
    clock = FakeClock()
    ended = []

    async def other():
        try:
            await for_ever()
        finally:
            await sleep(1)
            ended.append(clock.now())

    async def main():
        kept.append(asyncio.create_task(other()))
        await sleep(1)
        raise error

    kept = []
    with pytest.raises(type(error)) as caught:
        clock.run(main())
    assert caught.value is error
    assert ended == [2.0]
    assert kept[0].cancelled()
    assert loops[0].is_closed()


def test_an_interrupt_leaves_the_loop_closed(loops):
    """As `asyncio.run` does: the main task is cancelled, and KeyboardInterrupt leaves."""
    clock = FakeClock()
    ended = []

    async def main():
        try:
            signal.raise_signal(signal.SIGINT)
            await sleep(60)
        finally:
            ended.append(clock.now())

    with pytest.raises(KeyboardInterrupt):
        clock.run(main())
    assert ended == [0.0]
    assert loops[0].is_closed()


def test_a_clock_error_leaves_the_loop_closed(loops):
    clock = FakeClock()
    ended = []

    async def main():
        try:
            await for_ever()
        finally:
            ended.append("cleaned up")

    with pytest.raises(ClockError):
        clock.run(main())
    assert ended == ["cleaned up"]
    assert loops[0].is_closed()


def test_one_clock_serves_one_loop_after_the_other():
    clock = FakeClock()
    for n in range(1, 4):
        clock.run(sleep(1))
        assert clock.now() == n


def test_run_is_refused_where_a_loop_runs(recwarn):
    """Case A54: at once, and no coroutine is left un-awaited."""
    clock = FakeClock()

    async def main():
        with pytest.raises(RuntimeError, match=r"^clock\.run needs an event loop of its own"):
            clock.run(for_ever())

    clock.run(main())
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_what_a_callback_takes_in_fake_time_is_no_complaint():
    """In debug mode, where asyncio tells of slow callbacks."""
    clock = FakeClock()

    async def main():
        asyncio.get_running_loop().set_debug(True)
        clock.advance(100)
        await asyncio.sleep(0)

    clock.run(main())


def test_a_plain_runner_takes_it():
    """F3: through asyncio's own door, `loop_factory`."""
    clock = FakeClock()

    async def main():
        await sleep(30)
        return now()

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        assert runner.run(main()) == 30.0
        assert runner.run(main()) == 60.0


@pytest.mark.real
@pytest.mark.parametrize("shell", [True, False])
def test_time_stands_still_while_a_subprocess_runs(shell):
    """F3, case A83's rule: nothing is jumped over, the limit is the fake clock's."""
    clock = FakeClock()

    async def main():
        async with asyncio.timeout(300):
            if shell:
                process = await asyncio.create_subprocess_shell("sleep 0.2; exit 3")
            else:
                process = await asyncio.create_subprocess_exec("sleep", "0.2")
            assert await process.wait() == (3 if shell else 0)
        assert clock.now() == 0.0
        await asyncio.sleep(5)  # fake time

    clock.run(main())
    assert clock.now() == 5.0


def test_a_thread_that_rests_after_a_lookup_is_nobody_who_will_wake_the_loop():
    """F1: nor one of a worker."""
    SLOTS.submit(lambda: None)
    while not SLOTS.resting or SLOTS.working():
        threading.Event().wait(0.001)
    with pytest.raises(ClockError, match="after 0 real seconds"):
        FakeClock().run(for_ever())
