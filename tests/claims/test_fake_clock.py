"""F1, F2, F4, F5 and the cases A79-A84: fake time behaves like time."""

from __future__ import annotations

import asyncio
import queue
import select
import socket
import threading
from datetime import UTC, datetime, timedelta

import pytest

from timebounds import ClockError, Deadline, Expiry
from timebounds.testing import (
    Data,
    End,
    Failure,
    FakeClock,
    ForbiddenClock,
    Gate,
    ScriptedSocket,
    Silence,
    Trace,
)


class Thread(threading.Thread):
    """A thread that keeps what its function returned or raised."""

    def __init__(self, fn, name=None):
        super().__init__(name=name)
        self.fn = fn
        self.start()

    def run(self):
        self.result = self.error = None
        try:
            self.result = self.fn()
        except BaseException as error:
            self.error = error

    def end(self):
        self.join(30)
        assert not self.is_alive()
        if self.error:
            raise self.error
        return self.result


# ------------------------------------------------------------------ three ways to move


def test_ten_tenths_are_one():
    """F1."""
    clock = FakeClock()
    deadline = clock.deadline(1.0)
    for _ in range(10):
        assert not deadline.expired()
        clock.advance(0.1)
    assert clock.now() == 1.0
    assert deadline.expired()


def test_callbacks_see_their_own_instant_in_order():
    """F1, case A82: equal instants in order of arming."""
    clock = FakeClock()
    seen = []
    for name, due in (("c", 3), ("a", 1), ("b", 2), ("a2", 1)):
        clock.call_later(due, lambda name=name: seen.append((name, clock.now())))
    clock.advance(10)
    assert seen == [("a", 1.0), ("a2", 1.0), ("b", 2.0), ("c", 3.0)]
    assert clock.now() == 10.0


def test_a_callback_that_arms_itself_again_is_called_each_time():
    """F1, case A82."""
    clock = FakeClock()
    seen = []

    def again():
        seen.append(clock.now())
        clock.call_later(1, again)

    clock.call_later(1, again)
    clock.advance(10)
    assert seen == [float(n) for n in range(1, 11)]


def test_a_callback_that_arms_itself_without_delay_ends_with_an_error():
    """Case A84: time cannot go on, and that is said."""
    clock = FakeClock()

    def again():
        clock.call_later(0, again)

    timer = clock.call_later(0, again)
    with pytest.raises(ClockError, match="without a delay"):
        clock.advance(0)
    assert not timer.cancel()


def test_a_chain_without_delay_runs_within_one_advance():
    """F1: what is armed meanwhile is included."""
    clock = FakeClock()
    seen = []

    def next_one():
        seen.append(clock.now())
        if len(seen) < 5:
            clock.call_later(0, next_one)

    clock.call_later(1, next_one)
    clock.advance(1)
    assert seen == [1.0] * 5


def test_a_cancelled_callback_is_not_called():
    clock = FakeClock()
    seen = []
    timer = clock.call_later(1, lambda: seen.append(1))
    clock.call_later(2, lambda: seen.append(2))
    assert timer.cancel()
    assert clock.advance_to_next() == 2.0
    assert seen == [2]


def test_a_jump_goes_over_all_timers_at_once():
    """F1: like a frozen process."""
    clock = FakeClock()
    seen = []
    for due in (2, 1):
        clock.call_later(due, lambda due=due: seen.append((due, clock.now())))
    clock.jump(10)
    assert seen == [(1, 10.0), (2, 10.0)]


def test_advancing_to_the_next_waiter():
    """F1."""
    clock = FakeClock(5)
    clock.call_later(2, lambda: None)
    assert clock.advance_to_next() == 7.0
    with pytest.raises(ClockError, match="nobody waits"):
        clock.advance_to_next()


def test_time_never_goes_backwards_through_a_callback_that_advances():
    """F1."""
    clock = FakeClock()
    clock.call_later(1, lambda: clock.advance(100))
    clock.advance(2)
    assert clock.now() == 101.0


# ------------------------------------------------------------------ threads


def test_a_sleeping_thread_wakes_at_its_instant():
    """F3."""
    clock = FakeClock()

    def sleep():
        clock.sleep(5)
        return clock.now()

    thread = Thread(sleep)
    clock.wait_until_waiting(1)
    clock.advance(4.999)
    assert clock.waiting == (f"thread {thread.name} until 5 s",)
    clock.advance(0.001)
    assert thread.end() == 5.0
    assert clock.waiting == ()


def test_advance_waits_until_the_thread_has_left_its_wait():
    """F1: no race between waking and looking."""
    clock = FakeClock()
    for _ in range(300):
        thread = Thread(lambda: clock.sleep(1))
        clock.wait_until_waiting(1)
        clock.advance(1)
        assert clock.waiting == ()
        thread.end()


def test_a_rendezvous_loses_no_tick():
    """F1, case A81."""
    clock = FakeClock()
    ticks = []

    def work():
        for _ in range(200):
            clock.sleep(1)
            ticks.append(clock.now())

    thread = Thread(work)
    for _ in range(200):
        clock.wait_until_waiting(1)
        clock.advance(1)
    thread.end()
    assert ticks == [float(n) for n in range(1, 201)]


def test_a_wrong_number_of_waiters_is_told():
    """F1, case A81."""
    clock = FakeClock()
    with pytest.raises(ClockError, match=r"2 waiters were expected and 0 came.*nobody"):
        clock.wait_until_waiting(2, within=0.01)


def test_a_condition_in_fake_time():
    """F3: notified, or over."""
    clock = FakeClock()
    condition = threading.Condition()

    def wait():
        with condition:
            return clock.wait(condition, 5)

    thread = Thread(wait)
    clock.wait_until_waiting(1)
    clock.advance(5)
    assert thread.end() is False
    thread = Thread(wait)
    clock.wait_until_waiting(1)
    with condition:
        condition.notify()
    assert thread.end() is True
    assert clock.waiting == ()
    with condition:
        assert clock.wait(condition, 0) is False


def test_a_condition_without_a_limit_waits_for_its_notice():
    clock = FakeClock()
    condition = threading.Condition()

    def wait():
        with condition:
            return clock.wait(condition, None)

    thread = Thread(wait)
    clock.wait_until_waiting(1)
    clock.advance(1e9)
    with condition:
        condition.notify()
    assert thread.end() is True


def test_a_real_descriptor_under_fake_time():
    """F3, R15: ready, or over, whichever comes first."""
    clock = FakeClock()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller = select.poll()
        poller.register(ours, select.POLLIN)
        thread = Thread(lambda: clock.poll(poller, 5))
        clock.wait_until_waiting(1)
        clock.advance(5)
        assert thread.end() == []
        thread = Thread(lambda: clock.poll(poller, None))
        clock.wait_until_waiting(1)
        theirs.send(b"x")
        assert thread.end() == [(ours.fileno(), select.POLLIN)]
        assert clock.poll(poller, 0) == [(ours.fileno(), select.POLLIN)]


def test_ready_and_over_at_the_same_moment_closes_nothing_too_early():
    """The descriptor that wakes the poll lives until its byte was written."""
    clock = FakeClock()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller = select.poll()
        poller.register(ours, select.POLLIN)
        for _ in range(200):
            thread = Thread(lambda: clock.poll(poller, 1))
            clock.wait_until_waiting(1)
            theirs.send(b"x")
            clock.advance(1)
            assert thread.end() in ([], [(ours.fileno(), select.POLLIN)])
            ours.recv(1)


@pytest.mark.parametrize("verb", ["sleep", "wait", "poll", "asleep", "await_done"])
def test_a_forgotten_advance_is_an_error_that_names_the_waiter(verb):
    """Case A80: no hang."""
    clock = FakeClock(patience=0.05)
    condition = threading.Condition()
    poller = select.poll()

    async def asleep():
        await clock.asleep(9)

    async def await_done():
        await clock.await_done(asyncio.get_running_loop().create_future(), 9)

    calls = {
        "sleep": lambda: clock.sleep(9),
        "wait": lambda: clock.wait(condition, 9),
        "poll": lambda: clock.poll(poller, 9),
        "asleep": lambda: asyncio.run(asleep()),
        "await_done": lambda: asyncio.run(await_done()),
    }
    with condition, pytest.raises(ClockError, match=r"nobody advanced.*until 9 s still waits"):
        calls[verb]()
    assert clock.waiting == ()


def test_the_error_of_one_waiter_lists_the_others():
    """Case A80."""
    clock = FakeClock(patience=0.2)
    other = Thread(lambda: clock.poll(select.poll(), 7), name="other")
    clock.wait_until_waiting(1)
    with pytest.raises(ClockError) as caught:
        clock.sleep(9)
    assert "so do thread other until 7 s" in str(caught.value) or "MainThread" in str(caught.value)
    with pytest.raises(ClockError):
        other.end()


def test_a_thread_that_does_not_leave_its_wait_is_told():
    """F1."""
    clock = FakeClock(patience=0.05)
    condition = threading.Condition()
    held, go_on = threading.Event(), threading.Event()

    class Slow(threading.Condition):
        def wait(self, timeout=None):
            found = super().wait(timeout)
            held.set()
            go_on.wait()
            return found

    condition = Slow()

    def wait():
        with condition:
            clock.wait(condition, 1)

    clock._timeline.patience = 30
    thread = Thread(wait)
    clock.wait_until_waiting(1)
    clock._timeline.patience = 0.05
    with pytest.raises(ClockError, match="was woken and has not left"):
        clock.advance(1)
    held.wait()
    go_on.set()
    thread.end()


def test_real_waits_run_on_real_time_beside_a_fake_clock():
    """Case A79: only what was given the fake clock follows it."""
    FakeClock()
    with pytest.raises(queue.Empty):
        queue.Queue().get(timeout=0.01)
    asyncio.run(asyncio.sleep(0.01))  # fake time


# ------------------------------------------------------------------ tasks


def test_tasks_wake_by_it_too():
    """F3."""
    clock = FakeClock()

    async def main():
        future = asyncio.get_running_loop().create_future()
        sleeper = asyncio.create_task(clock.asleep(1))
        waiter = asyncio.create_task(clock.await_done(future, 2))
        ready = asyncio.create_task(clock.await_done(future, None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(clock.waiting) == 3
        clock.advance(1)
        await sleeper
        assert not waiter.done()
        future.set_result(None)
        assert await waiter
        assert await ready
        await clock.asleep(0)
        assert await clock.await_done(future, 0)

    asyncio.run(main())
    assert clock.waiting == ()


def test_a_cancelled_sleeper_leaves_nothing_behind():
    """F3."""
    clock = FakeClock()

    async def main():
        sleeper = asyncio.create_task(clock.asleep(1))
        await asyncio.sleep(0)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper

    asyncio.run(main())
    assert clock.waiting == ()
    clock.advance(2)


def test_waking_a_task_twice_is_no_error():
    """A task that was cancelled in the same pass as it was woken."""
    clock = FakeClock()

    async def main():
        sleeper = asyncio.create_task(clock.asleep(1))
        await asyncio.sleep(0)
        waiter = clock._timeline.waiting()[0]
        waiter.fire()
        waiter.fire()
        await sleeper

    asyncio.run(main())


def test_waking_a_task_of_a_closed_loop_is_no_error():
    clock = FakeClock()
    loop = asyncio.new_event_loop()

    async def main():
        await clock.asleep(1)

    coroutine = main()
    task = loop.create_task(coroutine)
    loop.call_soon(loop.stop)
    loop.run_forever()
    waiter = clock._timeline.waiting()[0]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    waiter.fire()


# ------------------------------------------------------------------ a clock that moves itself


def test_the_only_running_thread_moves_the_clock():
    """F1."""
    clock = FakeClock(auto_advance=True)
    clock.sleep(2.5)
    clock.sleep(0)
    condition = threading.Condition()
    with condition:
        assert clock.wait(condition, 0.5) is False
        with pytest.raises(ClockError, match="would never end"):
            clock.wait(condition, None)
    assert clock.poll(select.poll(), 1) == []
    assert (clock.now(), clock.sleeps) == (4.0, (2.5, 0.0))


def test_the_only_running_task_moves_the_clock():
    """F1."""
    clock = FakeClock(auto_advance=True)

    async def main():
        await clock.asleep(2)
        future = asyncio.get_running_loop().create_future()
        assert not await clock.await_done(future, 1)
        asyncio.get_running_loop().call_soon(future.set_result, None)
        assert await clock.await_done(future, 1)

    asyncio.run(main())
    assert clock.now() == 3.0


def test_scripted_sleeps():
    """F1: oversleeping, and failing."""
    clock = FakeClock(auto_advance=True)
    clock.script_oversleep(5)
    clock.script_sleep_failure(ValueError("broken"))
    clock.sleep(1)
    with pytest.raises(ValueError, match="broken"):
        clock.sleep(2)
    clock.sleep(3)
    assert (clock.now(), clock.sleeps) == (9.0, (1.0, 2.0, 3.0))


def test_a_real_descriptor_under_a_clock_that_moves_itself():
    clock = FakeClock(auto_advance=True)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller = select.poll()
        poller.register(ours, select.POLLIN)
        assert clock.poll(poller, 1) == []
        theirs.send(b"x")
        assert clock.poll(poller, 1) == clock.poll(poller, None) != []
        assert clock.now() == 1.0


# ------------------------------------------------------------------ three faces


def test_three_faces_of_one_time():
    """F2."""
    clock = FakeClock(wall_start=datetime(2026, 1, 1, 1, tzinfo=UTC))
    start = clock.wall.now()
    assert start == datetime(2026, 1, 1, 1, tzinfo=UTC)
    clock.advance(10)
    assert clock.wall.now() - start == timedelta(seconds=10)
    clock.step_wall(-3600)
    clock.step_wall(1.5)
    assert clock.wall.now() - start == timedelta(seconds=10 - 3600 + 1.5)
    assert clock.boot.now() == clock.now() == 10.0
    clock.suspend(100)
    assert (clock.now(), clock.boot.now()) == (10.0, 110.0)
    assert clock.wall.now() - start == timedelta(seconds=110 - 3600 + 1.5)
    assert "2025" in repr(clock.wall) or "2026" in repr(clock.wall)
    assert repr(clock) == "<FakeClock at 10 s>"
    with pytest.raises(ValueError, match="wall_start"):
        FakeClock(wall_start=datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_waiter_on_the_boot_face_wakes_by_suspend_and_a_steady_one_does_not():
    """F2."""
    clock = FakeClock()
    seen = []
    boot = Thread(lambda: (clock.boot.sleep(5), seen.append(clock.boot.now())))
    steady = Thread(lambda: (clock.sleep(5), seen.append(clock.now())))
    clock.wait_until_waiting(2)
    clock.suspend(60)
    boot.end()
    assert seen in ([5.0], [65.0])
    clock.advance(5)
    steady.end()
    assert seen[1] == 5.0


# ------------------------------------------------------------------ forbidden


def test_a_forbidden_clock_fails_at_the_line_that_touches_time():
    """F5."""
    clock = ForbiddenClock()
    assert repr(clock) == "ForbiddenClock()"
    condition = threading.Condition()
    for touch in (
        clock.now,
        clock.now_ns,
        lambda: clock.sleep(1),
        lambda: clock.wait(condition, 1),
        lambda: clock.poll(select.poll(), 1),
        lambda: asyncio.run(clock.asleep(1)),
        lambda: asyncio.run(clock.await_done(None, 1)),
        lambda: clock.alarm(1, print),
        lambda: Deadline.after(1, clock=clock),
        lambda: Deadline.at(1, clock=clock).check(),
    ):
        with pytest.raises(AssertionError, match="must not touch time"):
            touch()
    with pytest.raises(TypeError):
        Expiry.after(1, clock=clock)


# ------------------------------------------------------------------ scripted socket


def test_an_unused_part_of_a_delay_is_carried_to_the_next_read():
    """F4."""
    clock = FakeClock()
    sock = ScriptedSocket(clock, Data(b"ABCD", after=2.5), timeout=1)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            sock.recv(9)
    assert sock.recv(3) == b"ABC"
    assert clock.now() == 2.5
    assert sock.recv(9) == b"D"
    assert sock.granted == [1, 1, 1, 1]


def test_what_is_due_exactly_at_the_limit_is_delivered():
    """F4."""
    clock = FakeClock()
    assert ScriptedSocket(clock, Data(b"A", after=1), timeout=1).recv(1) == b"A"


def test_silence_the_end_and_failures():
    """F4."""
    clock = FakeClock()
    broken = ConnectionResetError()
    sock = ScriptedSocket(clock, Silence(), Failure(broken, after=1), End(after=1), timeout=2)
    with pytest.raises(TimeoutError) as caught:
        sock.recv(1)
    assert caught.value.errno is None
    with pytest.raises(ConnectionResetError):
        sock.recv(1)
    assert sock.recv(1) == b""
    assert sock.recv(1) == b""
    assert clock.now() == 4.0


def test_a_scripted_socket_that_does_not_block():
    """F4."""
    clock = FakeClock()
    sock = ScriptedSocket(clock, Silence(), Data(b"A"), Data(b"B", after=1), timeout=0.0)
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    assert sock.recv(1) == b"A"
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    assert clock.now() == 0.0


def test_reading_without_a_limit_into_silence_would_never_end():
    """F4."""
    with pytest.raises(AssertionError, match="never end"):
        ScriptedSocket(FakeClock()).recv(1)


def test_the_rest_of_a_scripted_socket():
    """F4."""
    sock = ScriptedSocket(FakeClock(), Data(b"AB"))
    assert sock.send(b"xy") == 2
    sock.sendall(b"z")
    assert sock.sent == b"xyz"
    view = memoryview(bytearray(4))
    assert sock.recv_into(view) == 2
    assert view[:2] == b"AB"
    sock.extend(Data(b"CD"))
    assert sock.unread == b"CD"
    assert sock.recv_into(view, 1) == 1
    for wrong in (b"AB", None):
        with pytest.raises(TypeError, match="a script holds"):
            sock.extend(wrong)
    with pytest.raises(ValueError, match="must not be empty"):
        Data(b"") and sock.extend(Data(b""))
    with pytest.raises(ValueError, match="timeout"):
        sock.settimeout(-1)


# ------------------------------------------------------------------ gate and trace


def test_a_gate_holds_threads_until_it_is_opened():
    gate, trace = Gate("the gate"), Trace()

    def work():
        trace.add("before")
        gate.enter()
        trace.add("after")

    threads = [Thread(work) for _ in range(3)]
    gate.wait_arrived(3)
    assert trace.events == ["before"] * 3
    gate.open()
    trace.wait_for("after")
    for thread in threads:
        thread.end()
    assert trace.events == ["before"] * 3 + ["after"] * 3


def test_a_gate_and_a_trace_give_up_with_a_sentence():
    gate, trace = Gate("the gate", patience=0.01), Trace(patience=0.01)
    with pytest.raises(TimeoutError, match="the gate was not opened"):
        gate.enter()
    with pytest.raises(TimeoutError, match="2 threads were expected at the gate, 1 came"):
        gate.wait_arrived(2)
    trace.add("a")
    with pytest.raises(TimeoutError, match=r"'b' did not come .*\['a'\]"):
        trace.wait_for("b")
