"""What an attacker found, one by one."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from datetime import UTC, timedelta

import anywhere
import pytest
from lines import running

import timebounds.blocking.receiver
import timebounds.policies.inbox
import timebounds.policies.receiving
from timebounds import (
    Backoff,
    BudgetedReceiver,
    Busy,
    ClockError,
    Deadline,
    DeadlineExceeded,
    Expiry,
    Granted,
    Jitter,
    MinRate,
    PeerClosed,
    RetryAllowance,
    SharedAllowance,
    SteadyClock,
    blocking_allowed,
)
from timebounds.testing import Data, End, FakeClock, Gate, ScriptedSocket, Trace


class Duck:
    """A socket of Python that answers what the test says."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.timeout = None
        self.calls = 0

    def recv(self, size):
        self.calls += 1
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def settimeout(self, value):
        self.timeout = value

    def gettimeout(self):
        return self.timeout


# ------------------------------------------------------------------ turns


def test_a_holder_inside_a_hook_of_its_plan_is_still_the_holder():
    """R11: a generator that is left while somebody looks for it hides what is below it."""
    inside, go_on = Gate("inside"), threading.Event()

    class Slow:
        def spend(self):
            inside.enter()
            go_on.wait()
            return RetryAllowance.none().spend()

    clock = FakeClock(auto_advance=True)
    receiver = BudgetedReceiver(ScriptedSocket(clock), idle_timeout=1, allowance=Slow())

    def receive(stop):
        with suppress(Exception):
            receiver.receive_exactly(1, clock.deadline(5))

    with running(receive):
        inside.wait_arrived()
        for _ in range(3):
            with pytest.raises(Busy):
                receiver.discard()
        inside.open()
        go_on.set()


@pytest.mark.real
def test_a_thread_that_looks_for_the_holder_never_takes_its_turn():
    """R11, R4: two threads on one receiver, free-running."""
    ours, theirs = socket.socketpair()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    sent = b"".join(n.to_bytes(4, "big") for n in range(400))
    got, errors = [], []
    with ours, theirs:
        receiver = BudgetedReceiver(
            ours, idle_timeout=1e-6, allowance=RetryAllowance(10**9), min_rate=None
        )
        done = threading.Event()

        def receive():
            while not done.is_set():
                try:
                    data = receiver.receive_some(8, Deadline.after(0.05))
                    got.append((data, threading.get_ident()))
                except (Busy, DeadlineExceeded):
                    pass
                except Exception as error:
                    errors.append(error)

        threads = [threading.Thread(target=receive) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for n in range(0, len(sent), 8):
                theirs.sendall(sent[n : n + 8])
                threading.Event().wait(0.001)
            for _ in range(500):
                if sum(len(data) for data, _ in got) == len(sent):
                    break
                threading.Event().wait(0.01)
        finally:
            done.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(interval)
    assert errors == []
    assert sum(len(data) for data, _ in got) == len(sent)


def test_a_class_body_on_some_stack_is_looked_past():
    """R11: its locals may be any mapping."""
    clock = FakeClock(auto_advance=True)
    receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"A")))
    receiver._turn["holder"] = []

    class Names(dict):
        def get(self, *_):
            raise AttributeError

    class Meta(type):
        @classmethod
        def __prepare__(cls, *_):
            return Names()

    class _Body(metaclass=Meta):
        mine = None
        value = receiver.receive_exactly(1, clock.deadline(1))

    assert _Body.value == b"A"


# ------------------------------------------------------------------ bytes


@pytest.mark.real
@pytest.mark.parametrize("unfinished", [False, True])
def test_an_exception_at_any_bytecode_of_discard_loses_nothing(unfinished):
    """R4, R18."""
    codes = anywhere.codes(
        timebounds.blocking.receiver, timebounds.policies.inbox, timebounds.policies.receiving
    )

    def attempt(n):
        clock = FakeClock(auto_advance=True)
        receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"A\nBCD")))
        receiver.receive_until(b"\n", 9, clock.deadline(1))
        if unfinished:
            with suppress(DeadlineExceeded):
                receiver.receive_exactly(9, clock.deadline(0))
            receiver._inbox.state = (*receiver._inbox.state[:3], None)
        value, count = anywhere.run(receiver.discard, codes, n)
        report = receiver.report
        handed = value if value is not None else b""
        if value is None and not receiver.pending:
            handed = report.data
        assert handed + receiver.pending == b"BCD", n
        return count

    for n in range(1, attempt(-1) + 1):
        attempt(n)


def test_a_transport_that_uses_its_buffer_again_changes_nothing_that_was_taken():
    """R4: what recv returned is copied when it is no bytes object."""
    clock = FakeClock()
    shared = bytearray()

    class Reusing(Duck):
        def recv(self, size):
            shared[:] = self.answers.pop(0)
            return shared

    receiver = BudgetedReceiver(Reusing(b"AB", b"CD", b"EF\nrest"))
    view = None
    assert receiver.receive_exactly(6 - 2, clock.deadline(1)) == b"ABCD"
    assert receiver.receive_until(b"\n", 9, clock.deadline(1)) == b"EF\n"
    shared[:] = b"XXXXXXX"
    view = memoryview(shared)
    assert receiver.receive_exactly(4, clock.deadline(1)) == b"rest"
    del view


def test_the_end_is_remembered_when_something_goes_wrong_right_after_it():
    """R7."""

    class Once(SteadyClock):
        broken = False

        def now_ns(self):
            if sock.calls == 2 and not self.broken:
                self.broken = True
                raise OSError("no clock")
            return 0

    sock = Duck(b"AB", b"", b"never asked for")
    receiver = BudgetedReceiver(sock)
    deadline = Deadline.after(1, clock=Once())
    with pytest.raises(OSError, match="no clock"):
        receiver.receive_exactly(4, deadline)
    with pytest.raises(PeerClosed) as caught:
        receiver.resume(deadline)
    assert caught.value.report.data == b"AB"
    assert sock.calls == 2


def test_a_buffer_that_was_not_filled_can_be_cut_at_once():
    """R4: nothing views it any longer when the operation is over."""
    clock = FakeClock(auto_advance=True)
    receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"AB"), End()))
    buffer = bytearray(4)
    try:
        receiver.receive_into(buffer, clock.deadline(1))
    except PeerClosed as error:
        del buffer[len(error.report.data) :]
    assert buffer == b"AB"
    receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"AB")))
    buffer = bytearray(4)
    try:
        receiver.receive_into(buffer, clock.deadline(1))
    except DeadlineExceeded as error:
        receiver.discard()
        del buffer[len(error.report.data) :]
    assert buffer == b"AB"


def test_an_error_in_the_middle_of_receive_into_tells_how_far_it_came():
    """R4."""
    clock = FakeClock()
    receiver = BudgetedReceiver(Duck(b"ABC", ConnectionResetError()))
    with pytest.raises(ConnectionResetError) as caught:
        receiver.receive_into(bytearray(8), clock.deadline(1))
    assert caught.value.__notes__ == [
        "receive_into(buffer of 8): 3 of 8 bytes are in the buffer, resume() fills the rest"
    ]


# ------------------------------------------------------------------ waiting


@pytest.mark.real
@pytest.mark.parametrize("timeout", [None, 0.0, 5.0])
def test_a_socket_that_is_closed_before_the_wait_is_a_bad_descriptor(timeout):
    """R9."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(timeout)
        receiver = BudgetedReceiver(ours)
        port = receiver._port

        class Closing:
            def __getattr__(self, name):
                return getattr(ours, name)

            def recv(self, *_):
                ours.close()
                raise BlockingIOError

            def gettimeout(self):
                return None

        port._sock = Closing()
        with pytest.raises(OSError) as caught:
            receiver.receive_exactly(1, Deadline.after(5))
        assert caught.value.errno == errno.EBADF


@pytest.mark.real
def test_a_socket_with_nothing_but_errors_to_show_does_not_spin():
    """S3: its error queue stays ready, and has nothing to read."""
    ours, theirs = socket.socketpair()
    reads = []
    polls = []

    class Clock(SteadyClock):
        def now_ns(self):
            return timebounds.MONOTONIC.now_ns()

        def poll(self, poller, seconds):
            polls.append(seconds)
            if seconds == 0.001:
                return super().poll(poller, seconds)
            return [(ours.fileno(), select.POLLERR)]

    class Empty:
        def gettimeout(self):
            return None

        def fileno(self):
            return ours.fileno()

        def recv(self, *_):
            reads.append(None)
            raise BlockingIOError

    with ours, theirs:
        receiver = BudgetedReceiver(ours)
        receiver._port._sock = Empty()
        with pytest.raises(DeadlineExceeded):
            receiver.receive_exactly(1, Deadline.after(0.05, clock=Clock()))
    assert len(reads) < 60


@pytest.mark.parametrize("back_at", [1, 2])
def test_a_clock_that_goes_back_at_the_start_of_a_wait_is_noticed(back_at):
    """C4."""
    readings = iter([0, 10, *([5] * back_at), *range(20, 10**6, 10**5)])

    class Back(SteadyClock):
        def now_ns(self):
            return next(readings)

    class Silent(Duck):
        def recv(self, size):
            raise TimeoutError

    with pytest.raises(ClockError, match="went backwards"):
        BudgetedReceiver(Silent()).receive_exactly(1, Deadline.after(1e-3, clock=Back()))


def test_a_script_that_ended_is_no_endless_wait_under_no_deadline():
    """F4."""
    clock = FakeClock()
    receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"A")))
    with pytest.raises(AssertionError, match="would never end"):
        receiver.receive_exactly(2, Deadline.never(clock=clock))


# ------------------------------------------------------------------ rates and allowances


def test_a_rate_needs_some_grace():
    """R16, N4: without any the first read could never begin."""
    with pytest.raises(ValueError, match="grace must be more than 0"):
        MinRate(1e9, 0)
    with pytest.raises(TypeError, match="grace"):
        MinRate(1e9)


@pytest.mark.parametrize("rate", [5e-324, 1e-308, 1e-300])
def test_the_slowest_rate_of_all_is_a_rate(rate):
    """N3."""
    clock = FakeClock(auto_advance=True)
    sock = ScriptedSocket(clock, Data(b"AB"), Data(b"CD", after=1e6))
    receiver = BudgetedReceiver(sock, min_rate=MinRate(rate, 1))
    assert receiver.receive_exactly(4, clock.deadline(1e9)) == b"ABCD"


def test_a_signal_handler_that_spends_gets_none_that_was_given_to_another():
    """A1."""
    granted = []

    class Interrupting:
        def random(self):
            os.kill(os.getpid(), signal.SIGUSR1)
            return 0.5

    shared = RetryAllowance(1, Backoff.fixed(1, jitter=Jitter.FULL, rng=Interrupting())).shared()

    def handler(*_):
        granted.append(shared.spend())

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        granted.append(shared.spend())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sum(isinstance(each, Granted) for each in granted) == 1


def test_only_an_allowance_is_shared():
    for wrong in (3, RetryAllowance(1).shared(), None):
        with pytest.raises(TypeError, match=r"RetryAllowance\(3\)\.shared\(\)"):
            SharedAllowance(wrong)
    assert isinstance(SharedAllowance(RetryAllowance(1)).spend(), Granted)


# ------------------------------------------------------------------ fake time


@pytest.mark.parametrize("way", ["advance", "jump"])
def test_any_number_may_wait_for_one_instant(way):
    """F1, A82: only who arms itself again and again keeps time from going on."""
    clock = FakeClock()
    seen = []
    for n in range(12_000):
        clock.call_later(1 if way == "advance" else n + 1, lambda: seen.append(None))
    getattr(clock, way)(12_000)
    assert len(seen) == 12_000


def test_a_poll_is_released_although_its_wake_up_was_interrupted():
    """A80: no hang, whatever happened to the one who advances."""
    clock = FakeClock(patience=0.2)
    errors = []

    def wait():
        try:
            clock.poll(select.poll(), 5)
        except ClockError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    clock.wait_until_waiting(1)
    waiter, _ = clock._timeline._take(10**10, suspended=False)  # and then Ctrl-C
    thread.join(10)
    assert not thread.is_alive()
    assert waiter.fired
    assert len(errors) == 1


def test_a_condition_that_is_held_while_the_clock_is_advanced_is_told():
    """A80."""
    clock = FakeClock(patience=0.2)
    condition = threading.Condition(threading.Lock())

    def wait():
        with condition, suppress(ClockError):
            clock.wait(condition, 1)

    thread = threading.Thread(target=wait)
    thread.start()
    clock.wait_until_waiting(1)
    with condition, pytest.raises(ClockError, match="was held while the clock was advanced"):
        clock.advance(1)
    thread.join(10)
    assert not thread.is_alive()


def test_a_clock_that_moves_itself_stops_at_what_happens_on_the_way():
    """F1: time passes through every instant."""
    clock = FakeClock(auto_advance=True)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        clock.call_later(1, lambda: theirs.send(b"x"))
        assert BudgetedReceiver(ours).receive_exactly(1, clock.deadline(5)) == b"x"
        assert clock.now() == 1.0
    condition = threading.Condition()
    with condition:
        clock.call_later(1, lambda: None)
        assert clock.wait(condition, 5)
        assert clock.now() == 2.0
        assert not clock.wait(condition, 5)

    async def main():
        future = asyncio.get_running_loop().create_future()
        clock.call_later(1, lambda: future.set_result(None))
        return await clock.await_done(future, 5)

    assert asyncio.run(main())
    assert clock.now() == 8.0


def test_timers_that_were_called_off_do_not_pile_up():
    """H2."""
    clock = FakeClock()
    for _ in range(5_000):
        clock.call_later(1e6, lambda: None).cancel()
    assert len(clock._timeline._heaps[False]) < 500


def test_the_calendar_of_a_fake_clock_ends_with_the_calendar():
    """N3."""
    clock = FakeClock()
    expiry = Expiry.after(1, clock=clock.wall)
    clock.advance(1e12)
    assert clock.wall.now().year == 9999
    assert "9999" in repr(clock.wall)
    assert expiry.stale()
    assert "9999" in repr(expiry)


@pytest.mark.parametrize("value", [True, "1", None, float("nan"), float("inf")])
def test_the_testing_kit_checks_its_seconds_too(value):
    """N1."""
    for call, name in (
        (lambda: FakeClock().step_wall(value), "seconds"),
        (lambda: Gate(patience=value), "patience"),
        (lambda: Trace(patience=value), "patience"),
    ):
        with pytest.raises((TypeError, ValueError), match=name):
            call()


def test_steps_of_the_wall_in_either_direction_and_of_any_kind():
    clock = FakeClock()
    start = clock.wall.now()
    for step in (timedelta(hours=1), -timedelta(minutes=30), -1800.0, 0):
        clock.step_wall(step)
    assert clock.wall.now() == start
    assert clock.wall.now().tzinfo is UTC


def test_a_huge_patience_is_a_day():
    """N3."""
    clock = FakeClock(patience=sys.maxsize)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"x")
        assert BudgetedReceiver(ours).receive_exactly(1, clock.deadline(1)) == b"x"
        thread = threading.Thread(target=lambda: clock.poll(select.poll(), 1))
        thread.start()
        clock.wait_until_waiting(1)
        clock.advance(1)
        thread.join()


# ------------------------------------------------------------------ numbers and permissions


def test_numbers_that_refuse_to_be_printed_are_refused_all_the_same():
    """N1: an error text does not fail itself."""
    clock = FakeClock()
    receiver = BudgetedReceiver(ScriptedSocket(clock))
    with pytest.raises(ValueError, match=r"size must be at most sys\.maxsize"):
        receiver.receive_exactly(10**5000, clock.deadline(1))
    with pytest.raises(ValueError, match="seconds must not be negative, not <int>"):
        Deadline.after(-(10**5000))
    with pytest.raises(TypeError, match="deadline must be a Deadline"):
        receiver.receive_exactly(1, 10**5000)


@pytest.mark.parametrize("previous", [float("nan"), True, "x", None, -1])
def test_the_delay_before_is_a_number_too(previous):
    """N1."""
    with pytest.raises((TypeError, ValueError), match="previous"):
        Backoff.fixed(1).delay(1, previous)


def test_a_permission_that_was_not_taken_can_not_be_given_back():
    """R11."""
    with ExitStack() as stack:
        with pytest.raises(RuntimeError, match="had not entered it"):
            stack.push(blocking_allowed()).__exit__(None, None, None)
        stack.pop_all()

    async def main():
        clock = FakeClock(auto_advance=True)
        receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"A")))
        with pytest.raises(RuntimeError, match="event loop"):
            receiver.receive_exactly(1, clock.deadline(1))

    asyncio.run(main())
