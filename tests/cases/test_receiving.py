"""Public failures of other software, in our terms; what the claims do not cover already."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebounds import BudgetedReceiver, DeadlineExceeded, IdleTimeout, Unfinished
from timebounds.testing import Data, FakeClock, ScriptedSocket, Silence


class Unreadable:
    """A socket with bytes of its own, which no poll() can see."""

    def __init__(self, data):
        self.data = data
        self.timeout = None

    def fileno(self):
        return -1

    def recv(self, size):
        out, self.data = self.data[:size], self.data[size:]
        return out

    def settimeout(self, value):
        self.timeout = value

    def gettimeout(self):
        return self.timeout


def test_bytes_that_are_buffered_above_the_kernel_are_not_waited_for():
    """A11: the object is asked, not the kernel's view of the descriptor."""
    clock = FakeClock()
    receiver = BudgetedReceiver(Unreadable(b"x" * 16_400))
    for _ in range(164):
        assert receiver.receive_exactly(100, clock.deadline(5)) == b"x" * 100
        assert receiver.report.waited == 0.0


@given(
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=5).map(Data),
            st.just(Silence()),
        ),
        max_size=30,
    )
)
def test_a_line_survives_any_placing_of_timeouts(steps):
    """A03: all data handed out, joined, is all data sent."""
    steps = [
        Data(step.data.replace(b"\n", b" ")) if isinstance(step, Data) else step for step in steps
    ]
    sent = b"".join(step.data for step in steps if isinstance(step, Data)) + b"\n"
    clock = FakeClock()
    receiver = BudgetedReceiver(ScriptedSocket(clock, *steps, Data(b"\n")), idle_timeout=0.5)
    verb = None
    shown = []
    while True:
        try:
            if verb is None:
                line = receiver.receive_until(b"\n", 1000, clock.deadline(1e6))
            else:
                line = receiver.resume(clock.deadline(1e6))
            break
        except IdleTimeout as error:
            verb = "resume"
            shown.append(error.report.data)
    assert line == sent
    assert all(sent.startswith(data) for data in shown)
    assert len(shown) == sum(isinstance(step, Silence) for step in steps)


@pytest.mark.parametrize("ending", ["expiry", "interrupt"])
def test_the_next_request_never_gets_the_last_ones_reply(ending):
    """A04: whatever ended the first exchange, with 0 bytes received."""
    clock = FakeClock()
    sock = ScriptedSocket(clock)
    receiver = BudgetedReceiver(sock)

    def ask(request):
        sock.sendall(request)
        return receiver.receive_exactly(2, clock.deadline(1))

    if ending == "interrupt":

        def interrupted(size):
            del sock.recv
            raise KeyboardInterrupt

        sock.recv = interrupted
        with pytest.raises(KeyboardInterrupt):
            ask(b"1")
    else:
        with pytest.raises(DeadlineExceeded):
            ask(b"1")
    sock.extend(Data(b"R1"), Data(b"R2"))
    with pytest.raises(Unfinished):
        ask(b"2")
    if ending == "expiry":
        assert receiver.resume(clock.deadline(1)) == b"R1"
        assert receiver.receive_exactly(2, clock.deadline(1)) == b"R2"


@pytest.mark.parametrize("verb", ["sleep", "wait"])
def test_a_pending_wait_ends_on_time_when_the_wall_is_set_back_a_year(verb):
    """A26: a wait follows its own clock alone."""
    clock = FakeClock()
    condition = threading.Condition()
    ended = []

    def wait():
        if verb == "sleep":
            clock.sleep(10)
        else:
            with condition:
                clock.wait(condition, 10)
        ended.append(clock.now())

    thread = threading.Thread(target=wait)
    thread.start()
    clock.wait_until_waiting(1)
    clock.step_wall(-365 * 86_400)
    clock.advance(9.999)
    assert ended == []
    clock.advance(0.001)
    thread.join(30)
    assert ended == [10.0]
