"""R18, B2: an exception at any bytecode of a receive loses no byte and leaves nothing behind."""

from __future__ import annotations

import socket

import anywhere
import pytest

import timebounds.blocking.receiver
import timebounds.blocking.socket_port
import timebounds.blocking.turn
import timebounds.blocking.waiting
import timebounds.bounds.clock
import timebounds.bounds.deadline
import timebounds.bounds.stop
import timebounds.bounds.waking
import timebounds.policies.inbox
import timebounds.policies.plan
import timebounds.policies.receiving
from timebounds import BudgetedReceiver, Deadline, MinRate, PeerClosed, StopRequested, StopSignal
from timebounds.policies.inbox import Into
from timebounds.testing import FakeClock

pytestmark = [pytest.mark.slow, pytest.mark.real]

CODES = anywhere.codes(
    timebounds.blocking.receiver,
    timebounds.blocking.socket_port,
    timebounds.blocking.turn,
    timebounds.blocking.waiting,
    timebounds.bounds.clock,
    timebounds.bounds.deadline,
    timebounds.bounds.stop,
    timebounds.bounds.waking,
    timebounds.policies.inbox,
    timebounds.policies.plan,
    timebounds.policies.receiving,
)
# What strikes a finaliser is nobody's to catch: Python prints it.
CODES.remove(timebounds.bounds.waking.Waker.__del__.__code__)
SENT = b"ab\ncd\nef"


def in_hand(receiver, buffer, before=None):
    """What the caller has, by value or in the buffer, when the exception took the value away."""
    target, facts = receiver._inbox.state[2:]
    if target is None and facts is before:
        return b""
    report = receiver.report
    if type(target) is Into:
        return bytes(buffer[: sum(target.counts)])
    if report is not None and report.satisfied:
        return bytes(buffer) if report.requested == len(buffer) and not report.data else report.data
    return b""


def go_on(receiver, buffer):
    """Everything that is still to come, and so was not handed out before."""
    target = receiver._inbox.state[2]
    out = b""
    if target is not None:
        had = sum(target.counts) if type(target) is Into else 0
        try:
            out = receiver.resume(Deadline.after(5))
        except PeerClosed as error:
            out = error.report.data
        if type(target) is Into:
            out = bytes(buffer[had:])
    while chunk := receiver.receive_some(99, Deadline.after(5)):
        out += chunk
    return out


VERBS = {
    "exactly": lambda r, b, d: r.receive_exactly(4, d),
    "until": lambda r, b, d: r.receive_until(b"\n", 9, d),
    "some": lambda r, b, d: r.receive_some(4, d),
    "into": lambda r, b, d: r.receive_into(b, d),
}


def attempt(verb, n, *, timeout=None, pending=False, planned=False):
    """One receive with an exception before bytecode `n`; says how many bytecodes there were."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(timeout)
        rate = MinRate(1, grace=5) if planned else None  # with a rate, the plan always runs
        receiver = BudgetedReceiver(ours, idle_timeout=5, min_rate=rate)
        theirs.sendall(SENT)
        got = receiver.receive_until(b"\n", 9, Deadline.after(5)) if pending else b""
        buffer, before = bytearray(4), receiver._inbox.state[3]
        deadline = Deadline.after(5)
        value, count = anywhere.run(lambda: VERBS[verb](receiver, buffer, deadline), CODES, n)
        got += value if value is not None else in_hand(receiver, buffer, before)
        theirs.shutdown(socket.SHUT_WR)
        rest = go_on(receiver, buffer)
        assert got + rest == SENT, f"{verb} lost or repeated a byte at bytecode {n}: {got} + {rest}"
        assert ours.gettimeout() == timeout
        return count


@pytest.mark.parametrize("planned", [False, True], ids=["at once", "planned"])
@pytest.mark.parametrize("pending", [False, True], ids=["from the socket", "with pending bytes"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_exception_before_any_bytecode_loses_no_byte(verb, pending, planned):
    """R18: and the receiver goes on, with nobody locked out."""
    bytecodes = attempt(verb, -1, pending=pending, planned=planned)
    assert bytecodes > 100
    for n in range(1, bytecodes + 1):
        attempt(verb, n, pending=pending, planned=planned)


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_on_a_socket_with_a_timeout_of_its_own(verb):
    """R18, R9."""
    for n in range(1, attempt(verb, -1, timeout=7.0) + 1):
        attempt(verb, n, timeout=7.0)


def attempt_to_wait(verb, n, *, stopped):
    """The same, where the bytes come while it waits, or a stop comes before them."""
    ours, theirs = socket.socketpair()
    clock = FakeClock(auto_advance=True)
    stop = StopSignal(clock=clock)
    with ours, theirs:
        receiver, buffer = BudgetedReceiver(ours), bytearray(4)
        clock.call_later(1, stop.request if stopped else lambda: theirs.sendall(SENT))
        deadline = Deadline.after(5, clock=clock, stop=stop.child())

        def receive():
            try:
                return VERBS[verb](receiver, buffer, deadline)
            except StopRequested:
                return None

        value, count = anywhere.run(receive, CODES, n)
        got = value if value is not None else in_hand(receiver, buffer)
        clock.advance(1)
        if stopped:
            assert got == b""
            theirs.sendall(SENT)
        theirs.shutdown(socket.SHUT_WR)
        rest = go_on(receiver, buffer)
        assert got + rest == SENT, f"{verb} lost or repeated a byte at bytecode {n}: {got} + {rest}"
        return count


@pytest.mark.parametrize("stopped", [False, True], ids=["data", "a stop"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_same_while_it_waits_under_a_stop_signal(verb, stopped):
    """R18, R14: nor is a descriptor left behind."""
    bytecodes = attempt_to_wait(verb, -1, stopped=stopped)
    assert bytecodes > 100
    for n in range(1, bytecodes + 1):
        attempt_to_wait(verb, n, stopped=stopped)


def test_the_injection_finds_a_receiver_that_stores_by_bytecode(monkeypatch):
    """C: the check rejects what appends the result of recv by itself."""

    def at_once(self, target):
        data = self._sock.recv(target.ask)
        target.chunks.append(data)
        return True

    port = timebounds.blocking.socket_port.PlainPort
    monkeypatch.setattr(port, "at_once", at_once)
    codes = [*CODES, at_once.__code__]
    monkeypatch.setattr(anywhere, "codes", codes)

    def lost(n):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            receiver = BudgetedReceiver(ours)
            theirs.sendall(SENT)
            deadline = Deadline.after(5)
            value, _ = anywhere.run(lambda: receiver.receive_exactly(4, deadline), codes, n)
            got = value if value is not None else in_hand(receiver, bytearray(4))
            theirs.shutdown(socket.SHUT_WR)
            return got + go_on(receiver, bytearray(4)) != SENT

    assert any(lost(n) for n in range(1, 2000))
