"""A test of a ten-minute timeout: exact, and over before you notice."""

from time import perf_counter

from timebounds import BudgetedReceiver, DeadlineExceeded
from timebounds.testing import Data, FakeClock, ScriptedSocket


def ask(sock, deadline):
    """The code under test: it takes its deadline, and with it its clock, from its caller."""
    sock.sendall(b"report?\n")
    return BudgetedReceiver(sock).receive_until(b"\n", 80, deadline)


def test_a_peer_that_stops_in_the_middle_is_given_ten_minutes():
    clock = FakeClock(auto_advance=True)
    sock = ScriptedSocket(clock, Data(b"all is", after=590))
    try:
        ask(sock, clock.deadline(600))
    except DeadlineExceeded as error:
        report = error.report
    assert report.data == b"all is"
    assert clock.now() == 600.0
    assert sock.granted == [600.0, 10.0]
    assert sock.sent == b"report?\n"


begin = perf_counter()
test_a_peer_that_stops_in_the_middle_is_given_ten_minutes()
print(f"ten minutes of timeout, tested in {(perf_counter() - begin) * 1000:.1f} ms")
