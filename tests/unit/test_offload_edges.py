"""The branches of offloading and of the asyncio colour that only a rare order of events reaches."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from queue import Empty, SimpleQueue

import moments
import pytest
from offloads import turns, until

from timebounds import (
    AsyncBudgetedReceiver,
    ClockError,
    Deadline,
    DeadlineExceeded,
    OffloadOutcome,
    ShieldedOffload,
    SteadyClock,
    StopRequested,
    StopSignal,
    WorkerStuck,
    kill_process,
    offload_job,
    request_stop,
    stuck,
)
from timebounds.aio import completion
from timebounds.aio.arguments import errand
from timebounds.aio.handle import OffloadHandle
from timebounds.bounds._threads import POOL, Pool, _discard
from timebounds.testing import FakeClock, Gate


def far():
    return Deadline.after(60)


def nothing(work):
    """Hand in nothing: the work is carried out by the test."""


def launched(fn=int, *, deadline=None, must_run=False, on_late=None, grace=None, submit=nothing):
    work = errand(fn, (), far() if deadline is None else deadline, must_run, None, on_late)
    handle = OffloadHandle(work, grace=grace)
    handle._launch(submit)
    return handle


# ------------------------------------------------------------------ waiting for the end


def test_a_cancel_that_was_told_and_never_came_is_not_waited_for_for_ever(monkeypatch):
    """O2: the foreign thread may have died between two lines of `Task.cancel()`."""
    monkeypatch.setattr(completion, "_TURNS", 3)
    monkeypatch.setattr(completion, "_MOMENT", 0)
    assert asyncio.run(completion._on_its_way()) is None


def test_a_timer_that_is_some_nanoseconds_short_is_armed_again():
    """O5: never early."""
    clock = FakeClock()

    async def main():
        handle = launched(deadline=clock.deadline(1))
        handle._expire()
        assert handle.report is None
        clock.advance(1)
        with pytest.raises(DeadlineExceeded, match="never started"):
            await handle

    asyncio.run(main())


def test_a_loop_that_is_taken_down_waits_for_nobody(monkeypatch):
    """O8: the cancel of `asyncio.run` leaves the work to its thread."""
    monkeypatch.setattr("timebounds.aio.handle.interrupted", lambda loop: True)

    async def main():
        handle = launched(must_run=True)
        task = asyncio.create_task(handle.result())
        await turns(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.name for each in stuck()] == ["int"]
        handle._work()
        assert stuck() == ()

    asyncio.run(main())


def test_who_gives_up_work_that_has_not_started_takes_it_back():
    """O4, O8."""

    async def main():
        handle = launched()
        handle._give_up()
        await turns()
        assert handle.report.outcome is OffloadOutcome.NEVER_STARTED

    asyncio.run(main())


def test_who_gives_up_work_that_has_just_returned_leaves_nothing_stuck():
    """O4: the thread was first."""

    async def main():
        handle = launched()
        handle._work()
        handle._give_up()
        assert handle._work.give_up() is False
        assert stuck() == ()
        assert await handle == 0

    asyncio.run(main())


def test_work_whose_end_nobody_wants_to_know_tells_nobody():
    """O9."""
    work = errand(int, (), far(), must_run=False, release=None, on_late=None)
    work()
    assert work.value == (0,)


def late(monkeypatch, *, grace=None):
    """Return what on_late_result was given when a cancel came just behind the return."""
    taken = []

    async def main():
        handle = launched(lambda: "value", on_late=taken.append, grace=grace)
        task = asyncio.create_task(handle.result())
        await turns(2)
        handle._work()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return handle

    return asyncio.run(main()), taken


def test_a_value_that_a_cancel_overtook_is_taken_by_whoever_was_named_for_it(monkeypatch):
    """O6: also with a grace, whose alarm is called off."""
    _, taken = late(monkeypatch, grace=30)
    assert taken == ["value"]


def test_a_late_value_is_taken_at_once_where_no_thread_is_to_be_had(monkeypatch):
    """O6: better here than never."""

    class Care:
        def submit(self, work):
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr("timebounds.aio.handle.CARE", Care())
    _, taken = late(monkeypatch)
    assert taken == ["value"]


def test_a_late_value_that_is_taken_after_the_end_of_the_loop_is_logged(monkeypatch, caplog):
    """O6: its caller has left, and its loop with it."""
    from timebounds.aio import handle

    def tell(loop, fn):
        loop.call_soon_threadsafe(fn)
        return getattr(fn, "__name__", "") != "done"

    monkeypatch.setattr(handle, "tell", tell)
    caplog.set_level("INFO", logger="timebounds")
    _, taken = late(monkeypatch)
    # In a thread of its own, which nobody waits for any more.
    moments.until(lambda: "returned after its caller had left" in caplog.text)
    assert taken == ["value"]


def test_the_end_of_a_scope_in_a_loop_that_is_taken_down_waits_for_nobody(monkeypatch):
    """O8, O12."""
    gate, closed = Gate("inside"), []

    async def main():
        async def use():
            async with ShieldedOffload(close=[lambda: closed.append(1)]) as scope:
                scope.start(gate.enter, deadline=far())
                await until(lambda: gate._arrived)

        task = asyncio.create_task(use())
        await until(lambda: gate._arrived)
        await turns(3)
        monkeypatch.setattr("timebounds.aio.offload.interrupted", lambda loop: True)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == []
        gate.open()
        await until(lambda: closed)

    asyncio.run(main())


def test_a_run_left_inside_that_nobody_awaited_comes_out_of_its_scope():
    """O4: as WorkerStuck, at the end of the block."""
    gate = Gate("inside")

    async def main():
        with pytest.raises(WorkerStuck, match="has not returned in its grace"):
            async with ShieldedOffload(grace=0.02) as scope:
                handle = scope.start(gate.enter, deadline=far())
                await until(lambda: gate._arrived)
                handle.stop("enough")
        gate.open()
        await until(lambda: not stuck())

    asyncio.run(main())


def test_two_releases_at_once_are_both_called_and_the_first_gives_the_time():
    """O3: a job may block in one thing inside another."""
    inner, outer, woken = Gate("inner"), Gate("outer"), []

    def wake(gate):
        woken.append(gate)
        gate.open()

    def work(job):
        with job.releasing(lambda: wake(outer)), job.releasing(lambda: wake(inner)):
            inner.enter()
            outer.enter()

    async def main():
        task = asyncio.create_task(offload_job(work, deadline=far()))
        await until(lambda: inner._arrived)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert set(woken) == {inner, outer}


def test_ready_made_releases_do_what_they_say():
    """O3."""
    stop = StopSignal()
    request_stop(stop, "by hand")()
    assert stop.reason == "by hand"

    class Process:
        killed = 0

        def kill(self):
            self.killed += 1

    process = Process()
    kill_process(process)()
    assert process.killed == 1


# ------------------------------------------------------------------ threads


def test_a_thread_that_ends_finds_what_was_put_in_line_meanwhile():
    """O9: by one who still counted on it."""

    class Line(SimpleQueue):
        waits = 0

        def get(self, *args, **kwargs):
            self.waits += 1
            if self.waits == 1:
                self.put((None, note))
                raise Empty
            return super().get(*args, **kwargs)

    def note():
        ran.append(threading.current_thread() in pool.threads)

    ran = []
    pool = Pool(limit=1, linger=0.01)
    pool._line = Line()
    pool._serve()
    assert ran == [True]
    assert pool.threads == {}


def test_what_is_taken_out_of_the_line_leaves_the_others_in_their_order():
    """O6."""
    line = SimpleQueue()
    work = [object() for _ in range(4)]
    for each in work:
        line.put(each)
    _discard(line, work[1])
    assert [line.get_nowait() for _ in range(3)] == [work[0], *work[2:]]


def test_a_handler_that_somebody_kept_passes_a_signal_on_after_its_block():
    """T6: who came after us calls what was there when he came."""
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append("before"))
    try:
        with StopSignal.on_signals(signal.SIGUSR1) as stop:
            ours = signal.getsignal(signal.SIGUSR1)
        ours(signal.SIGUSR1, None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == ["before"]
    assert not stop.requested()


# ------------------------------------------------------------------ reading in tasks


def pair():
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    return ours, peer


def test_a_stop_and_the_data_in_one_turn_lose_no_byte():
    """R14, R4."""

    async def main():
        reader, stop = asyncio.StreamReader(), StopSignal()
        receiver = AsyncBudgetedReceiver(reader)
        task = asyncio.create_task(receiver.receive_exactly(3, Deadline.after(60, stop=stop)))
        await turns(2)
        stop.request()
        reader.feed_data(b"ab")
        with pytest.raises(StopRequested):
            await task
        kept = receiver.discard()
        reader.feed_eof()
        assert kept + await reader.read() == b"ab"

    asyncio.run(main())


def test_a_reader_whose_read_returns_a_future_will_do():
    """R9: anything that can be awaited."""

    class Reader:
        def read(self, n):
            future = asyncio.get_running_loop().create_future()
            future.set_result(b"ab"[:n])
            return future

    async def main():
        return await AsyncBudgetedReceiver(Reader()).receive_exactly(2, far())

    assert asyncio.run(main()) == b"ab"


def test_a_socket_without_a_descriptor_says_so():
    """R9: as any call on it would."""

    class Closing(socket.socket):
        looks = 0

        def fileno(self):
            self.looks += 1
            return super().fileno() if self.looks == 1 else -1

    async def main():
        ours, peer = pair()
        odd = Closing(fileno=ours.detach())
        odd.setblocking(False)
        odd.looks = 0
        with peer, odd, pytest.raises(OSError, match="Bad file descriptor"):
            await AsyncBudgetedReceiver(odd).receive_exactly(2, far())

    asyncio.run(main())


def test_a_wake_for_nothing_waits_again(monkeypatch):
    """R9: somebody else took the byte that the loop had seen."""
    from timebounds.aio import ports

    settle, taken = ports.settle, []

    async def main():
        ours, peer = pair()

        def steal(ready):
            if not taken:
                taken.append(ours.recv(1))
                asyncio.get_running_loop().call_later(0.01, peer.sendall, b"ab")
            settle(ready)

        monkeypatch.setattr(ports, "settle", steal)
        with ours, peer:
            task = asyncio.create_task(AsyncBudgetedReceiver(ours).receive_exactly(2, far()))
            await turns(2)
            peer.sendall(b"x")
            return await task

    assert asyncio.run(main()) == b"ab"
    assert taken == [b"x"]


def test_a_socket_that_is_closed_as_it_becomes_ready_says_so(monkeypatch):
    """R9: its number may be somebody else's by now, so it is not touched again."""
    from timebounds.aio import ports

    settle = ports.settle

    async def main():
        ours, peer = pair()

        def close(ready):
            asyncio.get_running_loop().remove_reader(ours.fileno())
            ours.close()
            settle(ready)

        monkeypatch.setattr(ports, "settle", close)
        with peer:
            task = asyncio.create_task(AsyncBudgetedReceiver(ours).receive_exactly(2, far()))
            await turns(2)
            peer.sendall(b"x")
            with pytest.raises(OSError, match="Bad file descriptor"):
                await task

    asyncio.run(main())


@pytest.mark.parametrize("size", [-1, True, 2.0, "2"])
def test_a_bad_size_is_refused_before_anything_is_read(size):
    """N4."""

    async def main():
        receiver = AsyncBudgetedReceiver(asyncio.StreamReader())
        with pytest.raises((TypeError, ValueError), match="size"):
            await receiver.receive_exactly(size, far())

    asyncio.run(main())


def test_a_number_is_no_deadline():
    """N5."""

    async def main():
        receiver = AsyncBudgetedReceiver(asyncio.StreamReader())
        with pytest.raises(TypeError, match=r"Deadline\.after"):
            await receiver.receive_exactly(1, 5)

    asyncio.run(main())


def test_a_clock_that_goes_back_while_a_byte_is_taken_says_so_and_keeps_it():
    """C1, R4."""

    class Back(SteadyClock):
        readings = iter((10, 10, 9, 9, 9, 9))

        def now_ns(self):
            return next(self.readings)

    async def main():
        reader = asyncio.StreamReader()
        reader.feed_data(b"ab")
        receiver = AsyncBudgetedReceiver(reader)
        with pytest.raises(ClockError, match="back"):
            await receiver.receive_exactly(2, Deadline.after(60, clock=Back()))
        assert receiver.pending == b"ab"

    asyncio.run(main())


def test_a_cancel_between_the_return_and_its_delivery_makes_the_value_late():
    """O5: the loop was held up while the thread returned."""
    late, entered, gate = [], threading.Event(), threading.Event()

    def fn():
        entered.set()
        gate.wait(20)
        return "value"

    async def main():
        async with ShieldedOffload() as scope:
            task = asyncio.ensure_future(
                scope.run(fn, deadline=Deadline.after(30), on_late_result=late.append)
            )
            await until(entered.is_set)
            gate.set()
            pause = threading.Event()
            # In this very turn: nothing is delivered before it ends.
            while POOL.working():
                pause.wait(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert late == ["value"]
