"""H2, H3: nothing grows, nothing stays."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import tracemalloc
import weakref

import pytest
from lines import plain, tls

from timebounds import BudgetedReceiver, Deadline, DeadlineExceeded, RetryAllowance
from timebounds.testing import Data, FakeClock, ScriptedSocket, Silence

pytestmark = pytest.mark.real


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def growth(fn, rounds):
    """Bytes that stay after `rounds` calls, a first few left out."""
    for _ in range(200):
        fn()
    gc.collect()
    tracemalloc.start()
    try:
        fn()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(rounds):
            fn()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def receive_everything(ours, theirs, receiver):
    """One operation of each kind, with its failures."""
    theirs.sendall(b"abcdline\nsome")
    deadline = Deadline.after(5)
    receiver.receive_exactly(4, deadline)
    receiver.receive_until(b"\n", 9, deadline)
    receiver.receive_into(bytearray(2), deadline)
    receiver.receive_some(2, deadline)
    with contextlib.suppress(DeadlineExceeded):
        receiver.receive_exactly(1, Deadline.after(0))
    receiver.discard()


@pytest.mark.slow
@pytest.mark.parametrize("line", [plain, tls])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_nothing_grows_with_the_number_of_operations(line, timeout):
    """H2."""
    with line() as (ours, theirs):
        ours.settimeout(timeout)
        receiver = BudgetedReceiver(ours, idle_timeout=1)
        descriptors, threads = open_descriptors(), set(threading.enumerate())
        assert growth(lambda: receive_everything(ours, theirs, receiver), 1_000) < 4096
        assert open_descriptors() == descriptors
        # One of before may have ended meanwhile, for want of work.
        assert set(threading.enumerate()) <= threads


@pytest.mark.soak
def test_nothing_grows_in_a_hundred_thousand_operations():
    """H2."""
    with plain() as (ours, theirs):
        receiver = BudgetedReceiver(ours, idle_timeout=1)
        assert growth(lambda: receive_everything(ours, theirs, receiver), 25_000) < 4096


@pytest.mark.slow
def test_nothing_grows_in_fake_time():
    """H2: a fake clock keeps no waiter that has gone."""
    clock = FakeClock(auto_advance=True)

    def once():
        sock = ScriptedSocket(clock, Data(b"AB", after=0.5), Silence())
        receiver = BudgetedReceiver(sock, idle_timeout=1, allowance=RetryAllowance(1))
        with contextlib.suppress(DeadlineExceeded):
            receiver.receive_exactly(4, clock.deadline(2))
        clock.call_later(1, lambda: None).cancel()
        clock.call_later(1, lambda: None)
        clock.advance(1)

    assert growth(once, 2_000) < 4096


def test_no_cycle_keeps_a_socket_alive():
    """H3: it goes with its last reference, without the collector."""
    gc.collect()
    gc.disable()
    try:
        ours, theirs = socket.socketpair()
        with theirs:
            receiver = BudgetedReceiver(ours)
            theirs.sendall(b"AB")
            receiver.receive_exactly(1, Deadline.after(5))
            with contextlib.suppress(DeadlineExceeded):
                receiver.receive_exactly(5, Deadline.after(0.01))
            gone = weakref.ref(ours)
            ours.close()
            del receiver, ours
            assert gone() is None
    finally:
        gc.enable()


def test_many_tiny_chunks_take_little_more_than_their_own_memory():
    """R6, security 4: and linear time."""
    clock = FakeClock()

    class Dripping:
        left = 200_000
        clock = None

        def recv(self, size):
            self.left -= 1
            return b"x" if self.left >= 0 else b""

        def settimeout(self, value):
            pass

        def gettimeout(self):
            return None

    sock = Dripping()
    sock.clock = clock
    receiver = BudgetedReceiver(sock)
    tracemalloc.start()
    try:
        data = receiver.receive_exactly(200_000, clock.deadline(5))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data) == 200_000
    assert peak < 3 * 200_000
