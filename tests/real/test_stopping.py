"""T2, T4, R14 and the cases A52, A56 on real sockets, loops, signals and processes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import time

import pytest
from lines import plain, running, tls

import children
from timebounds import (
    MONOTONIC,
    BudgetedReceiver,
    Deadline,
    ReceiveOutcome,
    Stop,
    StopRequested,
    StopSignal,
    wait_requested,
)
from timebounds.testing import FakeClock, Gate

pytestmark = pytest.mark.real

KINDS = {"plain": plain, "tls": tls}
# Long enough for any wait that is not woken to be noticed, well below the watchdog.
FAR = 40


@pytest.fixture(params=KINDS)
def line(request):
    with KINDS[request.param]() as pair:
        yield pair


@contextlib.contextmanager
def takes_less_than(seconds):
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < seconds, f"{took:g} s"


@contextlib.contextmanager
def asking(stop, *, after=0.1):
    """Ask for a stop from another thread, so many seconds from now."""
    with running(lambda _: (MONOTONIC.sleep(after), stop.request("shutdown"))):
        yield


def stopped(verb, *arguments):
    with pytest.raises(StopRequested) as caught:
        verb(*arguments)
    assert caught.value.report.outcome is ReceiveOutcome.STOPPED
    return caught.value.report


# ------------------------------------------------------------------ sockets


@pytest.mark.parametrize("timeout", [None, 5.0, 0.0])
def test_a_stop_from_another_thread_wakes_a_blocked_read(line, timeout):
    """R14: without the peer's help; bytes kept, the socket usable and in the mode it had."""
    ours, theirs = line
    ours.settimeout(timeout)
    blocking = os.get_blocking(ours.fileno())
    receiver, stop = BudgetedReceiver(ours), StopSignal()
    theirs.sendall(b"AB")
    with asking(stop), takes_less_than(5):
        report = stopped(receiver.receive_exactly, 4, Deadline.after(FAR, stop=stop))
    assert (report.data, receiver.pending, report.satisfied) == (b"AB", b"AB", False)
    assert 0.05 < report.elapsed < 5
    assert ours.gettimeout() == timeout
    assert os.get_blocking(ours.fileno()) == blocking
    theirs.sendall(b"CDEF")
    assert receiver.resume(Deadline.after(FAR)) == b"ABCD"
    ours.settimeout(FAR)
    assert ours.recv(2) == b"EF"
    ours.sendall(b"still there")
    assert theirs.recv(11) == b"still there"


def test_a_stop_wakes_a_read_of_a_fake_deadline(line):
    """R14, R15: real sockets, no time at all."""
    ours, theirs = line
    clock, stop = FakeClock(), StopSignal()
    receiver = BudgetedReceiver(ours, idle_timeout=50)

    def ask(_):
        clock.wait_until_waiting(1)
        clock.advance(2)
        stop.request()

    with running(ask), takes_less_than(5):
        report = stopped(receiver.receive_some, 4, Deadline.after(60, clock=clock, stop=stop))
    assert (report.elapsed, report.reads, clock.now()) == (2.0, 1, 2.0)
    theirs.sendall(b"AB")
    assert receiver.receive_some(4, clock.deadline(1)) == b"AB"


def test_a_stop_that_the_clock_brings_wakes_a_read():
    """R14, R15: on the way of a clock that moves itself."""
    clock = FakeClock(auto_advance=True)
    stop = StopSignal(clock=clock)
    clock.call_later(1, stop.request)
    with plain() as (ours, _):
        report = stopped(
            BudgetedReceiver(ours).receive_exactly, 1, Deadline.after(60, clock=clock, stop=stop)
        )
    assert (report.elapsed, clock.now(), stop.observed_at) == (1.0, 1.0, 1.0)


def test_a_stop_of_a_parent_wakes_a_read_below_it(line):
    """R14, T6, D9: through a child and through a join."""
    ours, _ = line
    parent = StopSignal()
    deadline = Deadline.after(FAR, stop=parent.child()).stopping(StopSignal())
    with asking(parent), takes_less_than(5):
        stopped(BudgetedReceiver(ours).receive_exactly, 4, deadline.within(FAR - 1))
    assert not parent._callbacks


def test_data_comes_before_a_stop_when_both_are_there(line):
    """R3: a satisfied receive is none that was stopped."""
    ours, theirs = line
    receiver, stop = BudgetedReceiver(ours), StopSignal()

    def both(_):
        MONOTONIC.sleep(0.1)
        theirs.sendall(b"AB")
        stop.request()

    with running(both):
        try:
            got = receiver.receive_exactly(2, Deadline.after(FAR, stop=stop))
        except StopRequested:
            got = receiver.resume(Deadline.after(FAR))
    assert got == b"AB"


def test_many_receivers_of_one_signal_are_woken_by_one_request():
    """R14: each in its own thread, over one descriptor."""
    stop, woken = StopSignal(), []
    deadline = Deadline.after(FAR, stop=stop)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            ours, _ = stack.enter_context(plain())
            receiver = BudgetedReceiver(ours)
            stack.enter_context(
                running(lambda _, r=receiver: woken.append(stopped(r.receive_some, 1, deadline)))
            )
        with takes_less_than(5):
            while len(stop._callbacks) < 10:
                MONOTONIC.sleep(0.01)
            stop.request()
            stack.close()
    assert len(woken) == 10
    assert not stop._callbacks
    assert len(stop._waker) == 1


def test_the_descriptor_is_closed_with_its_signal():
    """R14: and was made only because somebody waited."""
    stop = StopSignal()
    with plain() as (ours, theirs):
        theirs.sendall(b"A")
        receiver = BudgetedReceiver(ours)
        assert receiver.receive_some(1, Deadline.after(FAR, stop=stop)) == b"A"
        assert not stop._waker
        with asking(stop):
            stopped(receiver.receive_some, 1, Deadline.after(FAR, stop=stop))
    (waker,) = stop._waker.values()
    (fds,) = waker._pipes
    assert waker.fd == fds[0]
    assert not any(os.get_inheritable(fd) for fd in fds)
    del waker, stop
    gc.collect()
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


# ------------------------------------------------------------------ signals


@pytest.fixture
def on_signal():
    """Install a handler for one signal: `on_signal(number, fn)`."""
    before = {}

    def install(number, fn):
        before.setdefault(number, signal.signal(number, lambda *_: fn()))

    yield install
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_handler_wakes_a_blocked_read(line, on_signal):
    """T2, R14: of the thread that it interrupts."""
    ours, theirs = line
    receiver, stop = BudgetedReceiver(ours), StopSignal()
    on_signal(signal.SIGUSR1, stop.request)

    def send(_):
        MONOTONIC.sleep(0.1)
        os.kill(os.getpid(), signal.SIGUSR1)

    with running(send), takes_less_than(5):
        stopped(receiver.receive_exactly, 2, Deadline.after(FAR, stop=stop))
    theirs.sendall(b"AB")
    assert receiver.resume(Deadline.after(FAR)) == b"AB"


def test_a_system_signal_ends_a_loop_that_is_idle():
    """T4: `on_signals` and `wait_requested` are all that a service needs."""

    async def main(stop):
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, os.kill, os.getpid(), signal.SIGUSR1)
        return await wait_requested(stop, Deadline.after(FAR))

    with takes_less_than(5), StopSignal.on_signals(signal.SIGUSR1) as stop:
        assert asyncio.run(main(stop))
    assert stop.reason == "SIGUSR1"


@pytest.mark.slow
def test_a_handler_every_millisecond_meets_no_lock(on_signal):
    """T2, case A56: while this thread looks, waits, registers and removes."""
    stop = StopSignal()
    fired = 0

    def ask():
        nonlocal fired
        fired += 1
        stop.request()

    on_signal(signal.SIGALRM, ask)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    until, rounds = time.monotonic() + 2, 0
    while time.monotonic() < until:
        rounds += 1
        parent = StopSignal()
        stop = parent if rounds % 2 else parent.child()
        ran = []
        registration = stop.on_request(lambda ran=ran: ran.append(1))
        removed = stop.on_request(lambda ran=ran: ran.append(2))
        told = removed.remove()
        before = list(ran)
        stop.requested()
        with contextlib.suppress(StopRequested):
            stop.check()
        if rounds % 10 == 0:
            assert stop.wait(Deadline.after(FAR)), "the handler comes within a millisecond"
        assert told
        assert registration.remove()
        assert ran.count(2) == before.count(2)
        assert ran.count(1) <= 1
        assert not stop._callbacks
        assert not parent._callbacks
    assert fired > 100
    assert rounds > 100


# ------------------------------------------------------------------ loops


def test_an_idle_loop_is_woken_from_a_foreign_thread():
    """T4, case A52: within 0.25 s, although it would sleep for a minute."""
    stop, gate, asked = StopSignal(), Gate(), []

    def ask(_):
        gate.enter()
        # Until the loop has gone to sleep.
        MONOTONIC.sleep(0.1)
        asked.append(time.monotonic())
        stop.request("from afar")

    async def main():
        asyncio.get_running_loop().call_soon(gate.open)
        answer = await wait_requested(stop, Deadline.after(60))
        return answer, time.monotonic()

    with running(ask):
        answer, woken = asyncio.run(main())
    assert answer
    assert woken - asked[0] < 0.25


def test_a_request_to_a_loop_that_closed_under_its_waiter_is_no_error():
    """T4, case A52: the task never got to its clean-up."""
    stop = StopSignal()
    loop = asyncio.new_event_loop()
    waiting = wait_requested(stop, Deadline.after(60))
    task = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(stop._callbacks) == 1
    # As if the process had left in a hurry: the loop goes, its task stays.
    loop.close()
    with running(lambda _: stop.request()):
        pass
    assert stop.requested()
    # Nobody will run this task again, which asyncio would complain about.
    task._log_destroy_pending = False
    waiting.close()


def test_a_foreign_thread_and_the_end_of_the_loop_race():
    """T4, case A52: whichever is first, no error and no hang."""
    for _ in range(50):
        stop = StopSignal()

        async def main(stop=stop):
            return await wait_requested(stop, Deadline.after(0.002))

        with running(lambda _, stop=stop: (MONOTONIC.sleep(0.002), stop.request())):
            asyncio.run(main())
        assert not stop._callbacks


# ------------------------------------------------------------------ processes


FORKED = """
import os, signal, sys, threading, time, warnings
from timebounds import Deadline, StopSignal, StopRequested, BudgetedReceiver, MONOTONIC
import socket
warnings.simplefilter("ignore", DeprecationWarning)  # a fork with threads is the point
stop = StopSignal()
ours, theirs = socket.socketpair()
outcome = []
def wait():
    outcome.append(stop.wait(Deadline.after(30)))
def receive():
    # The idle timeout would strike if the read were woken for nothing.
    try:
        BudgetedReceiver(ours, idle_timeout=29).receive_exactly(1, Deadline.after(30, stop=stop))
    except Exception as error:
        outcome.append(type(error).__name__)
threads = [threading.Thread(target=each) for each in (wait, receive)]
for each in threads:
    each.start()
while len(stop._callbacks) < 2:
    MONOTONIC.sleep(0.01)
MONOTONIC.sleep(0.2)
child = os.fork()
if child == 0:
    stop.request("in the child")
    # Its own waits end by its own descriptor.
    ok = stop.wait(Deadline.after(5)) and not StopSignal().wait(Deadline.after(0.01))
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
began, cpu = time.monotonic(), time.process_time()
MONOTONIC.sleep(0.3)
assert outcome == [], outcome
assert not stop.requested()
assert time.process_time() - cpu < 0.2, "the parent spins"
stop.request("in the parent")
for each in threads:
    each.join(10)
print(sorted(map(str, outcome)))
ours.close(), theirs.close()
"""


def test_a_request_in_a_forked_child_does_not_wake_its_parent():
    """T2, T4: they share the descriptors, and not the signal."""
    out = children.python("-c", FORKED)
    assert out.stdout == "['StopRequested', 'True']\n", out.stderr
    assert out.stderr == ""


IMPATIENT = """
import os, signal
from timebounds import Deadline, StopSignal
with StopSignal.on_signals(signal.SIGTERM) as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.wait(Deadline.after(5))
    print("asked", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    stop.wait(Deadline.never())
    print("survived", flush=True)
"""


def test_the_second_sigterm_ends_the_process():
    """T2: as it would have done without us."""
    out = children.python("-c", IMPATIENT)
    assert (out.stdout, out.returncode) == ("asked\n", -signal.SIGTERM)


def test_a_stop_of_a_process_that_ends_meanwhile_prints_nothing():
    """T2: asked by a finaliser, at the very end."""
    code = (
        "from timebounds import StopSignal, Deadline\n"
        "class Owner:\n"
        "    def __init__(self): self.stop = StopSignal(); self.stop.wait(Deadline.after(0))\n"
        "    def __del__(self): self.stop.request('the end')\n"
        "owner = Owner(); owner.itself = owner; owner.stop.on_request(lambda: owner)\n"
    )
    out = children.python("-c", code)
    assert (out.returncode, out.stdout, out.stderr) == (0, "", "")


def test_a_closed_socket_is_an_error_although_a_stop_could_come():
    """R9: the wait for the stop hides nothing."""
    ours, theirs = socket.socketpair()
    stop = StopSignal()
    with theirs:
        receiver = BudgetedReceiver(ours)
        ours.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            receiver.receive_some(1, Deadline.after(FAR, stop=stop))
        assert stop.request() is Stop.ACCEPTED
