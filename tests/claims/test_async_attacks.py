"""What an attacker found in the asyncio colour and its fake time, one by one."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from offloads import turns, until

from timebounds import (
    MONOTONIC,
    AsyncBudgetedReceiver,
    Busy,
    ClockError,
    Deadline,
    DeadlineExceeded,
    SteadyClock,
    StopRequested,
    StopSignal,
    enforcing,
)
from timebounds.testing import FakeClock


def far():
    return Deadline.after(60)


# ------------------------------------------------------------------ receiving


def test_a_stop_between_two_looks_leaves_no_read_waiting_in_the_reader():
    """R14, R10: whoever reads next finds the reader free, and asks for its own size."""

    async def main():
        reader = asyncio.StreamReader()
        receiver = AsyncBudgetedReceiver(reader)
        stop = StopSignal()
        at_once = receiver._port.at_once

        class Port:
            """Asks for the stop just after the first look at the stream."""

            def at_once(self, target):
                there = at_once(target)
                stop.request()
                return there

            def __getattr__(self, name):
                return getattr(inner, name)

        inner, receiver._port = receiver._port, Port()
        with pytest.raises(StopRequested):
            await receiver.receive_exactly(8, Deadline.after(60, stop=stop))
        assert reader._waiter is None
        receiver._port = inner
        receiver.discard()
        reader.feed_data(b"abcdefgh")
        assert await receiver.receive_exactly(2, far()) == b"ab"
        assert await reader.read(3) == b"cde"

    asyncio.run(main())


def test_a_second_receiver_for_one_socket_is_busy():
    """R11: the first one keeps its watch."""

    async def main():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            first = asyncio.create_task(AsyncBudgetedReceiver(ours).receive_exactly(3, far()))
            await turns(2)
            with pytest.raises(Busy, match="another receiver waits for descriptor"):
                await AsyncBudgetedReceiver(ours).receive_exactly(3, far())
            theirs.sendall(b"abc")
            assert await first == b"abc"

    asyncio.run(main())


def test_a_socket_that_is_closed_during_a_receive_is_said_to_be():
    """R9: its number may be somebody else's by now."""

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            receiver = AsyncBudgetedReceiver(ours)
            ours.close()
            with pytest.raises(OSError, match="Bad file descriptor"):
                await receiver.receive_exactly(3, far())

    asyncio.run(main())


def test_a_socket_that_is_closed_while_a_receive_waits_ends_at_its_deadline():
    """R9: the loop's watch of that number is left alone, it may be another's."""

    async def main():
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            fd = ours.fileno()
            clock = FakeClock()
            task = asyncio.create_task(
                AsyncBudgetedReceiver(ours).receive_exactly(3, clock.deadline(5))
            )
            await until(lambda: clock.waiting)
            ours.close()
            clock.advance(5)
            with pytest.raises(DeadlineExceeded):
                await task
            assert asyncio.get_running_loop().remove_reader(fd)

    asyncio.run(main())


def test_a_reader_that_only_wants_a_turn_gets_one():
    """ReaderLike: a bare yield is no future."""

    class Polite:
        async def read(self, n):
            await asyncio.sleep(0)
            return b"abc"

    assert asyncio.run(AsyncBudgetedReceiver(Polite()).receive_exactly(3, far())) == b"abc"


@pytest.mark.parametrize("raw", [True, False])
def test_a_fast_peer_does_not_stop_the_loop(raw):
    """F: after so many reads without a wait the loop makes a turn."""

    async def main():
        count = 0

        async def others():
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        if raw:
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            theirs.sendall(b"x" * 400)
            source = ours
        else:
            source = asyncio.StreamReader()
            source.feed_data(b"x" * 400)

        class Bit:
            """One byte a read, whatever is asked for."""

            async def read(self, n):
                return await source.read(1)

        receiver = AsyncBudgetedReceiver(ours if raw else Bit())
        if raw:
            port = receiver._port

            class Small:
                recv = staticmethod(lambda size, flags: ours.recv(1, flags))
                fileno = ours.fileno

            port._sock = Small()
        await receiver.receive_exactly(400, far())
        assert count >= 10
        beside.cancel()
        if raw:
            ours.close()
            theirs.close()

    asyncio.run(main())


# ------------------------------------------------------------------ clocks that fail in a timer


class Failing(SteadyClock):
    """Fails, or goes back, when a timer of the loop looks at it."""

    def __init__(self, how):
        self.how, self.readings = how, 0

    def now_ns(self):
        self.readings += 1
        if self.readings < 5:
            return 10**9
        if self.how == "raises":
            raise OSError("no time")
        return 5 if self.how == "goes back" else 1.5


WHAT = [("raises", OSError), ("goes back", ClockError), ("gives no number", ClockError)]


@pytest.mark.parametrize(("how", "kind"), WHAT)
def test_a_receive_whose_clock_fails_ends_with_that(how, kind):
    """C4: it is not left without a bound."""

    async def main():
        clock = Failing(how)
        receiver = AsyncBudgetedReceiver(asyncio.StreamReader())
        with pytest.raises(kind):
            await receiver.receive_exactly(1, Deadline.after(0.01, clock=clock))

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize(("how", "kind"), WHAT)
def test_a_block_whose_clock_fails_ends_with_that(how, kind, raises):
    """C4: without its clock a bound can only be taken for reached."""

    async def main():
        clock = Failing(how)
        with pytest.raises(kind):
            async with enforcing(Deadline.after(0.01, clock=clock), raises=raises):
                await asyncio.get_running_loop().create_future()

    asyncio.run(asyncio.wait_for(main(), 20))


# ------------------------------------------------------------------ the loop on fake time


@pytest.mark.parametrize("start", [2**30, 350_000_000, 10**9])
def test_time_that_lands_on_a_timer_finds_it_due_after_years_too(start):
    """F3: floats are coarse there."""
    clock = FakeClock(start)

    async def main():
        loop = asyncio.get_running_loop()
        rung = []
        loop.call_later(0.1, rung.append, "loop")
        clock.call_later(0.05, loop.time)
        clock.advance(0.1)
        await turns(10)
        assert rung == ["loop"]
        async with asyncio.timeout(50):
            await asyncio.sleep(0.1)  # fake time
        return rung

    assert clock.run(main()) == ["loop"]


def test_a_cancelled_future_of_an_executor_leaves_its_thread_working():
    """F3, A83: time does not jump over it."""
    clock = FakeClock()
    go, woken = threading.Event(), []

    async def main():
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def work():
            go.wait(20)
            threading.Event().wait(0.1)
            loop.call_soon_threadsafe(done.set_result, "told")

        future = loop.run_in_executor(None, work)
        await until(lambda: loop._threads)
        future.cancel()
        await turns(3)
        go.set()
        async with asyncio.timeout(300):
            woken.append(await done)

    clock.run(main())
    assert woken == ["told"]
    assert clock.now() == 0.0


def test_a_cancelled_future_whose_work_never_began_counts_no_more():
    """F3: nobody is waited for."""
    clock = FakeClock()

    async def main():
        loop = asyncio.get_running_loop()
        gate = threading.Event()
        with ThreadPoolExecutor(1) as executor:
            busy = executor.submit(gate.wait, 20)
            future = loop.run_in_executor(executor, int)
            future.cancel()
            await turns(3)
            assert loop._jobs == set()
            gate.set()
            busy.result()

    clock.run(main())


def test_a_watched_signal_may_wake_the_loop():
    """F3: the world outside has a say."""
    clock = FakeClock()

    async def main():
        loop = asyncio.get_running_loop()
        came = loop.create_future()
        loop.add_signal_handler(signal.SIGALRM, came.set_result, "signal")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert await came == "signal"
        assert loop.remove_signal_handler(signal.SIGALRM)
        assert loop._signals == set()

    clock.run(main())


def test_traffic_from_outside_is_no_loop_without_delay():
    """F3: it takes its own time."""
    clock = FakeClock(patience=0.05)

    async def main():
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            began = clock.now()
            until_real = MONOTONIC.now() + 0.3
            while MONOTONIC.now() < until_real:
                await loop.sock_sendall(theirs, b"x")
                ready = loop.create_future()
                loop.add_reader(ours, lambda: ready.done() or ready.set_result(None))  # noqa: B023
                await ready
                loop.remove_reader(ours)
                ours.recv(1)
            assert clock.now() == began

    clock.run(main())
