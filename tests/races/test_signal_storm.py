"""R18, B2: signals that raise, aimed at a receive, by the thousand."""

from __future__ import annotations

import gc
import random
import signal
import socket

import pytest

from timebounds import BudgetedReceiver, Deadline

pytestmark = [pytest.mark.slow, pytest.mark.real]


class Hit(BaseException):
    """What the handler raises."""


def storm(rounds, timeout, seed=1):
    """Receive one byte under fire, `rounds` times; return how often it was hit and a byte lost."""
    rng = random.Random(seed)
    armed = False

    def handler(*_):
        if armed:
            raise Hit

    ours, theirs = socket.socketpair()
    hit = lost = 0
    before = signal.signal(signal.SIGALRM, handler)
    # What a handler raises inside somebody's hook of the collector is nobody's to catch.
    gc.collect()
    gc.disable()
    try:
        with ours, theirs:
            ours.settimeout(timeout)
            for _ in range(rounds):
                receiver = BudgetedReceiver(ours)
                deadline = Deadline.after(5)
                theirs.send(b"x")
                got = b""
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 25e-6))
                try:
                    armed = True
                    got = receiver.receive_exactly(1, deadline)
                    armed = False
                except Hit:
                    hit += 1
                finally:
                    armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
                if not got and receiver.report is not None:
                    got = receiver.report.data
                got = got or receiver.pending
                if not got:
                    # It is still in the socket, and nobody is locked out.
                    if receiver._inbox.state[2] is None:
                        got = receiver.receive_exactly(1, deadline)
                    else:
                        got = receiver.resume(deadline)
                lost += got != b"x"
                assert ours.gettimeout() == timeout
    finally:
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    return hit, lost


@pytest.mark.parametrize("timeout", [None, 7.0])
def test_a_storm_of_raising_signals_loses_no_byte(timeout):
    """R18."""
    hit, lost = storm(20_000, timeout)
    assert lost == 0
    assert hit > 100


@pytest.mark.soak
@pytest.mark.parametrize("timeout", [None, 7.0])
def test_a_long_storm_of_raising_signals_loses_no_byte(timeout):
    """R18."""
    hit, lost = storm(200_000, timeout, seed=2)
    assert (lost, hit > 10_000) == (0, True)
