"""R1-R12, R16, R20 on scripted sockets and fake time; the cases A01-A09 of receiving."""

from __future__ import annotations

import copy
import errno
import pickle
import tracemalloc
from enum import IntEnum

import pytest
from colours import scripted

from timebounds import (
    Backoff,
    BoundReached,
    BudgetedReceiver,
    ClockError,
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    LimitExceeded,
    MinRate,
    Overrun,
    PeerClosed,
    ReceiveOutcome,
    ReceiveReport,
    RetryAllowance,
    SteadyClock,
    TooSlow,
    Unfinished,
)
from timebounds.testing import Data, End, Failure, FakeClock, ScriptedSocket, Silence


class Line:
    """A receiver over a script, with everything in reach."""

    colour = "blocking"

    def __init__(self, *script, timeout=None, **options):
        if self.colour == "asyncio":
            self.clock, self.sock, self.receiver = scripted(*script, **options)
            return
        self.clock = FakeClock(auto_advance=True)
        self.sock = ScriptedSocket(self.clock, *script, timeout=timeout)
        self.receiver = BudgetedReceiver(self.sock, **options)

    def within(self, seconds):
        return self.clock.deadline(seconds)


@pytest.fixture(autouse=True, params=["blocking", "asyncio"])
def colour(request, monkeypatch):
    """Both colours run the same scenarios."""
    monkeypatch.setattr(Line, "colour", request.param)
    return request.param


# What speaks of a socket's own timeout, or of its recv.
blocking_only = pytest.mark.parametrize("colour", ["blocking"], indirect=True)


def far(line):
    return line.within(1000)


def drip(count, gap):
    return [Data(b"x", after=gap)] * count


# ------------------------------------------------------------------ one deadline


def test_a_call_ends_at_its_deadline_and_keeps_its_bytes():
    """R1, R2, R4, case A01."""
    line = Line(*drip(100, 0.9), idle_timeout=1.0)
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_exactly(100, line.within(5.0))
    report = caught.value.report
    assert (report.outcome, report.data, report.received) == ("deadline_expired", b"xxxxx", 5)
    assert line.sock.granted == [1, 1, 1, 1, 1, 0.5]
    assert line.clock.now() == 5.0
    assert line.receiver.pending == b"xxxxx"
    assert line.receiver.report is report


def test_without_an_idle_timeout_each_read_has_what_remains():
    """R1."""
    line = Line(*drip(3, 0.5))
    assert line.receiver.receive_exactly(3, line.within(2)) == b"xxx"
    assert line.sock.granted == [2.0, 1.5, 1.0]


def test_the_limit_in_force_is_this_calls():
    """R1, case A08: nothing is left over from the call before."""
    line = Line(Silence(), Data(b"A", after=1.0))
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_some(1, line.within(0.1))
    assert line.receiver.receive_some(1, line.within(10)) == b"A"
    assert line.sock.granted == [0.1, 10.0]


@blocking_only
def test_under_a_never_deadline_a_read_waits_in_slices():
    """N3: no read is granted more than a day at once."""
    line = Line(Data(b"A", after=3 * 86_400))
    assert line.receiver.receive_exactly(1, Deadline.never(clock=line.clock)) == b"A"
    assert line.sock.granted == [86_400.0] * 3


@pytest.mark.parametrize("verb", ["exactly", "into", "until", "some"])
def test_an_expired_deadline_starts_no_read(verb):
    """R2, N4."""
    line = Line(Data(b"A\n"))
    call = {
        "exactly": lambda d: line.receiver.receive_exactly(2, d),
        "into": lambda d: line.receiver.receive_into(bytearray(2), d),
        "until": lambda d: line.receiver.receive_until(b"\n", 9, d),
        "some": lambda d: line.receiver.receive_some(9, d),
    }[verb]
    with pytest.raises(DeadlineExceeded) as caught:
        call(line.within(0))
    assert caught.value.report.reads == 0
    assert line.sock.granted == []


AROUND = [(-1, "complete"), (0, "deadline_expired"), (1, "deadline_expired")]


@pytest.mark.parametrize(("offset", "outcome"), AROUND)
def test_the_last_bytes_around_the_deadline(offset, outcome):
    """R2, R3: at the instant it is too late, and the bytes are there."""
    line = Line(Data(b"AB", after=1 + offset * 1e-9))
    deadline = line.within(1)
    if outcome == "complete":
        assert line.receiver.receive_exactly(2, deadline) == b"AB"
        return
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_exactly(2, deadline)
    assert caught.value.report.satisfied == (offset == 0)


@pytest.mark.parametrize(("offset", "eof"), [(-1, True), (0, True), (1, False)])
def test_the_end_around_the_deadline(offset, eof):
    """R2, R3: expiry beats the end of the stream."""
    line = Line(End(after=1 + offset * 1e-9))
    with pytest.raises(PeerClosed if offset < 0 else DeadlineExceeded) as caught:
        line.receiver.receive_exactly(2, line.within(1))
    assert caught.value.report.eof == eof


def test_late_but_whole_is_handed_out_with_the_error():
    """R2, R4: nothing stays open."""
    line = Line(Data(b"ABCD", after=1))
    with pytest.raises(DeadlineExceeded, match="all 4 bytes came, too late") as caught:
        line.receiver.receive_exactly(4, line.within(1))
    assert caught.value.report.data == b"ABCD"
    assert caught.value.report.satisfied
    assert line.receiver.pending == b""
    with pytest.raises(Unfinished, match="nothing is unfinished"):
        line.receiver.resume(far(line))


def test_pending_bytes_that_meet_the_target_can_be_late_too():
    """R2: the deadline is looked at once at entry."""
    line = Line(Data(b"one\ntwo\n"))
    assert line.receiver.receive_until(b"\n", 9, far(line)) == b"one\n"
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_until(b"\n", 9, line.within(0))
    assert caught.value.report.satisfied
    assert caught.value.report.data == b"two\n"
    assert line.receiver.pending == b""


def test_a_late_and_short_operation_that_met_the_end_says_both():
    """R3: expiry first, the end when asked again."""
    line = Line(Data(b"AB"), End(after=1))
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_exactly(4, line.within(1))
    assert caught.value.report.eof
    assert not caught.value.report.satisfied
    with pytest.raises(PeerClosed) as caught:
        line.receiver.resume(far(line))
    assert caught.value.report.data == b"AB"
    assert caught.value.report.reads == 0


def test_a_leap_of_time_before_the_read_is_an_ordinary_expiry():
    """R2, case A09: no negative limit reaches the socket."""
    line = Line(Data(b"A", after=20))

    class Leaping(ScriptedSocket):
        pass

    deadline = line.within(10)
    granted = []

    def settimeout(value):
        granted.append(value)
        line.clock.jump(16.9)
        line.sock._timeout = value

    line.sock.settimeout = settimeout
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_exactly(1, deadline)
    assert all(value is None or value > 0 for value in granted)


# ------------------------------------------------------------------ what each verb takes


def test_exactly_stops_the_instant_it_is_whole():
    """R5, case A05: the silence behind it is untouched."""
    line = Line(Data(b"ABCD"), Data(b"EFGH"), Silence())
    assert line.receiver.receive_exactly(8, far(line)) == b"ABCDEFGH"
    assert line.receiver.report.reads == 2
    assert len(line.sock.granted) == 2


def test_exactly_never_asks_for_more_than_is_missing():
    """R5, case A05: the next message stays in the socket."""
    line = Line(Data(b"ABCDEFGHIJ"))
    assert line.receiver.receive_exactly(8, far(line)) == b"ABCDEFGH"
    assert line.receiver.pending == b""
    assert line.sock.unread == b"IJ"
    buffer = bytearray(1)
    line.receiver.receive_into(buffer, far(line))
    assert (buffer, line.sock.unread) == (b"I", b"J")


def test_nothing_is_complete_without_a_look_at_socket_or_clock():
    """R6, case A05."""
    line = Line()
    expired = line.within(0)
    assert line.receiver.receive_exactly(0, expired) == b""
    line.receiver.receive_into(bytearray(), expired)
    assert line.sock.granted == []
    assert line.receiver.report == ReceiveReport(
        ReceiveOutcome.COMPLETE, b"", 0, 0, True, False, 0, 0, 0, 0, 0, 0
    )


def test_nothing_does_not_jump_over_an_open_operation():
    """R10."""
    line = Line(Silence())
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_exactly(1, line.within(1))
    with pytest.raises(Unfinished):
        line.receiver.receive_exactly(0, far(line))


def test_memory_follows_what_came_and_not_what_was_announced():
    """R6, case A06."""
    line = Line(Data(b"0123456789"), End())
    tracemalloc.start()
    try:
        with pytest.raises(PeerClosed) as caught:
            line.receiver.receive_exactly(2**33, far(line))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.report.data == b"0123456789"
    assert peak < 1 << 20


def test_into_fills_across_reads_and_serves_what_is_pending_first():
    """R5."""
    line = Line(Data(b"a\nBC"), Data(b"DE"), Data(b"FG"))
    assert line.receiver.receive_until(b"\n", 9, far(line)) == b"a\n"
    buffer = bytearray(5)
    assert line.receiver.receive_into(buffer, far(line)) is None
    assert buffer == b"BCDEF"
    assert line.receiver.report.received == 3
    assert line.receiver.report.data == b""
    assert line.sock.unread == b"G"


def test_into_can_be_served_by_what_is_pending_alone():
    """R5."""
    line = Line(Data(b"a\nBCDEF"))
    line.receiver.receive_until(b"\n", 9, far(line))
    buffer = bytearray(3)
    line.receiver.receive_into(buffer, far(line))
    assert (buffer, line.receiver.pending) == (b"BCD", b"EF")
    assert line.receiver.report.reads == 0


def test_into_goes_on_where_it_stood():
    """R4, R10: what is in the buffer is handed out, resume fills the rest."""
    line = Line(Data(b"AB"), Silence(), Data(b"CD"))
    buffer = bytearray(4)
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_into(buffer, line.within(1))
    assert (caught.value.report.received, caught.value.report.data) == (2, b"AB")
    assert "2 of 4 bytes are in the buffer, resume() fills the rest" in str(caught.value)
    assert buffer == b"AB\0\0"
    assert line.receiver.pending == b""
    assert line.receiver.resume(far(line)) == b""
    assert buffer == b"ABCD"


def test_into_shows_in_its_error_what_is_in_the_buffer():
    """R4: what was pending and what came in earlier calls included."""
    line = Line(Data(b"a\nBC"), Data(b"D"), End())
    line.receiver.receive_until(b"\n", 9, far(line))
    buffer = bytearray(5)
    with pytest.raises(PeerClosed, match="closed after 3 bytes") as caught:
        line.receiver.receive_into(buffer, far(line))
    assert caught.value.report.data == b"BCD"
    late = Line(Data(b"ABCD", after=1))
    with pytest.raises(DeadlineExceeded, match="was reached; all 4 bytes came, too late") as caught:
        late.receiver.receive_into(bytearray(4), late.within(1))
    assert caught.value.report.data == b"ABCD"


def test_into_that_is_discarded_leaves_the_buffer_to_its_owner():
    """R4."""
    line = Line(Data(b"AB"), Silence(), Data(b"CD"))
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_into(bytearray(4), line.within(1))
    assert line.receiver.discard() == b""
    assert line.receiver.receive_exactly(2, far(line)) == b"CD"


def test_until_counts_its_delimiter_and_keeps_the_surplus():
    """R5."""
    line = Line(Data(b"one\r"), Data(b"\ntwo\r\nthree"))
    assert line.receiver.receive_until(b"\r\n", 5, far(line)) == b"one\r\n"
    assert line.receiver.receive_until(b"\r\n", 5, far(line)) == b"two\r\n"
    assert line.receiver.report.reads == 0
    assert line.receiver.pending == b"three"
    assert line.receiver.receive_exactly(5, far(line)) == b"three"


@pytest.mark.parametrize(
    ("data", "limit", "fits"), [(b"abc\n", 4, True), (b"abc\n", 3, False), (b"abcd", 4, False)]
)
def test_until_allows_exactly_its_limit(data, limit, fits):
    """R3: a delimiter beyond the limit is no delimiter."""
    line = Line(Data(data))
    if fits:
        assert line.receiver.receive_until(b"\n", limit, far(line)) == data
        return
    with pytest.raises(LimitExceeded, match=f"no delimiter in the first {limit} bytes") as caught:
        line.receiver.receive_until(b"\n", limit, far(line))
    assert caught.value.report.data == data
    assert not caught.value.report.satisfied


def test_after_an_exceeded_limit_only_discarding_helps():
    """R10."""
    line = Line(Data(b"abcdef"), Data(b"next"))
    with pytest.raises(LimitExceeded):
        line.receiver.receive_until(b"\n", 4, far(line))
    with pytest.raises(Unfinished, match=r"discard\(\)"):
        line.receiver.resume(far(line))
    with pytest.raises(Unfinished, match="has not finished"):
        line.receiver.receive_some(1, far(line))
    assert line.receiver.discard() == b"abcdef"
    assert line.receiver.receive_exactly(4, far(line)) == b"next"


def test_a_search_looks_at_no_byte_twice():
    """R5: a line that comes byte by byte is searched in linear time."""

    class Counting(bytearray):
        looked = 0

        def find(self, sub, start, end):
            Counting.looked += max(0, min(end, len(self)) - start)
            return super().find(sub, start, end)

    line = Line(*[Data(b"x")] * 2000, Data(b"\r\n"))
    inbox = line.receiver._inbox
    inbox.state = ([Counting(b"y")], 0, None, None)
    assert len(line.receiver.receive_until(b"\r\n", 9999, far(line))) == 2003
    assert Counting.looked < 3 * 2003


def test_some_is_what_is_there():
    """R5."""
    line = Line(Data(b"ABCDEF"))
    assert line.receiver.receive_some(4, far(line)) == b"ABCD"
    assert line.receiver.receive_some(4, far(line)) == b"EF"


def test_some_serves_what_is_pending_without_a_read():
    """R5."""
    line = Line(Data(b"a\nBCD"))
    line.receiver.receive_until(b"\n", 9, far(line))
    assert line.receiver.receive_some(2, far(line)) == b"BC"
    assert line.receiver.receive_some(2, far(line)) == b"D"
    assert len(line.sock.granted) == 1


def test_some_leaves_no_unknown_position():
    """R10: it had no target to miss."""
    line = Line(Silence(), Data(b"A"))
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_some(4, line.within(1))
    assert line.receiver.receive_exactly(1, far(line)) == b"A"


def test_some_that_is_late_hands_out_with_the_error():
    """R2, R3."""
    line = Line(Data(b"A", after=1))
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_some(4, line.within(1))
    assert caught.value.report.satisfied
    assert caught.value.report.data == b"A"
    assert line.receiver.pending == b""


# ------------------------------------------------------------------ the end of the stream


def test_the_end_is_final():
    """R7, R10, case A02: never retried, never asked for again."""
    line = Line(Data(b"AB"), End(), idle_timeout=1, allowance=RetryAllowance(5))
    with pytest.raises(PeerClosed, match="closed after 2 bytes") as caught:
        line.receiver.receive_exactly(6, far(line))
    assert isinstance(caught.value, EOFError)
    report = caught.value.report
    assert (report.outcome, report.data, report.reads, report.idle_retries) == ("eof", b"AB", 2, 0)
    assert line.clock.sleeps == ()
    assert line.receiver.pending == b""
    for verb in (
        lambda: line.receiver.receive_exactly(1, far(line)),
        lambda: line.receiver.receive_until(b"\n", 9, far(line)),
        lambda: line.receiver.receive_into(bytearray(1), far(line)),
    ):
        with pytest.raises(PeerClosed):
            verb()
    assert line.receiver.receive_some(1, far(line)) == b""
    assert line.receiver.report.eof
    assert len(line.sock.granted) == 2


def test_what_is_pending_at_the_end_is_served_first():
    """R7."""
    line = Line(Data(b"a\nbc"), End())
    line.receiver.receive_until(b"\n", 9, far(line))
    with pytest.raises(PeerClosed) as caught:
        line.receiver.receive_exactly(3, far(line))
    assert caught.value.report.data == b"bc"
    line = Line(Data(b"a\nbc"), End())
    line.receiver.receive_until(b"\n", 9, far(line))
    assert line.receiver.receive_some(9, far(line)) == b"bc"
    assert line.receiver.receive_some(9, far(line)) == b""


# ------------------------------------------------------------------ idle, retries, rate


def test_an_idle_timeout_ends_the_operation_and_keeps_its_bytes():
    """R12, case A03."""
    line = Line(Data(b"line with "), Silence(), Data(b"dots\n"), idle_timeout=0.5)
    with pytest.raises(IdleTimeout, match=r"silent for 0\.5 s; 10 bytes kept") as caught:
        line.receiver.receive_until(b"\n", 99, far(line))
    assert caught.value.report.data == b"line with "
    assert line.receiver.resume(far(line)) == b"line with dots\n"


def test_a_tie_of_idle_and_remaining_is_the_deadline():
    """R3."""
    line = Line(idle_timeout=1.0)
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_exactly(1, line.within(1.0))


def test_an_allowance_starts_anew_in_each_operation_and_goes_on_in_resume():
    """A1, R10."""
    silent = [Silence()] * 20
    line = Line(*silent, idle_timeout=1, allowance=RetryAllowance(2))
    with pytest.raises(IdleTimeout) as caught:
        line.receiver.receive_exactly(1, far(line))
    assert caught.value.report.idle_retries == 2
    with pytest.raises(IdleTimeout) as caught:
        line.receiver.resume(far(line))
    assert caught.value.report.idle_retries == 0
    line.receiver.discard()
    with pytest.raises(IdleTimeout) as caught:
        line.receiver.receive_exactly(1, far(line))
    assert caught.value.report.idle_retries == 2


def test_a_size_of_another_kind_of_int_has_the_same_allowance():
    """A1."""
    size = IntEnum("Size", ["ONE"]).ONE
    line = Line(Silence(), Data(b"A"), idle_timeout=1, allowance=RetryAllowance(1))
    assert line.receiver.receive_exactly(size, far(line)) == b"A"


def test_a_shared_allowance_is_spent_by_all_its_users():
    """A1."""
    shared = RetryAllowance(3).shared()
    counts = []
    for _ in range(2):
        line = Line(idle_timeout=1, allowance=shared)
        with pytest.raises(IdleTimeout) as caught:
            line.receiver.receive_exactly(1, far(line))
        counts.append(caught.value.report.idle_retries)
    assert counts == [3, 0]


def test_progress_never_refills_the_allowance():
    """A1."""
    script = [Silence(), Data(b"A"), Silence(), Data(b"B"), Silence()]
    line = Line(*script, idle_timeout=1, allowance=RetryAllowance(2))
    with pytest.raises(IdleTimeout) as caught:
        line.receiver.receive_exactly(3, far(line))
    assert (caught.value.report.idle_retries, caught.value.report.data) == (2, b"AB")


@pytest.mark.parametrize("left", [0.5, 0.75])
def test_a_refused_overrun_gives_up_at_once(left):
    """A3, R3: it ends as an idle timeout, and nothing was slept."""
    line = Line(
        idle_timeout=1.0,
        allowance=RetryAllowance(5, Backoff.fixed(0.75)),
        overrun=Overrun.REFUSE,
    )
    with pytest.raises(IdleTimeout) as caught:
        line.receiver.receive_exactly(1, line.within(1 + left))
    assert (caught.value.report.idle_retries, line.clock.now()) == (0, 1.0)
    assert line.clock.sleeps == ()


@pytest.mark.parametrize("kind", [TimeoutError, RuntimeError, KeyboardInterrupt])
def test_a_sleeper_that_fails_is_not_taken_for_the_socket(kind):
    """R12: its error propagates, TimeoutError too."""
    error = kind("the sleeper's")
    line = Line(
        Data(b"AB"), Silence(), idle_timeout=1, allowance=RetryAllowance(5, Backoff.fixed(1))
    )
    line.clock.script_sleep_failure(error)
    with pytest.raises(type(error)) as caught:
        line.receiver.receive_exactly(4, far(line))
    assert caught.value is error
    assert caught.value.__notes__ == ["receive_exactly(4): 2 bytes kept for resume() or discard()"]
    line.sock.extend(Data(b"CD"))
    assert line.receiver.resume(far(line)) == b"ABCD"


def test_a_minimum_rate_ends_a_drip():
    """R16: although it never trips the idle timeout."""
    line = Line(*drip(100, 0.9), idle_timeout=1.0, min_rate=MinRate(2.0, grace=2.0))
    with pytest.raises(TooSlow, match="is below MinRate") as caught:
        line.receiver.receive_exactly(100, far(line))
    # Waiting may total 2 + received / 2: after 3 bytes that is 3.5 s, of which 2.7 are spent.
    assert caught.value.report.received == 3
    assert line.clock.now() == 3.5
    assert line.sock.granted == [1, 1, 1, 0.8]
    assert isinstance(caught.value, TimeoutError)


def test_a_minimum_rate_lets_a_fast_peer_be():
    """R16."""
    line = Line(*drip(20, 0.25), min_rate=MinRate(2.0, grace=0.25))
    assert len(line.receiver.receive_exactly(20, far(line))) == 20


@blocking_only
def test_a_rate_that_is_used_up_by_a_late_answer_starts_no_further_read():
    """R16: data that came after the last of the allowance is kept."""
    line = Line(min_rate=MinRate(1, grace=1))

    def recv(size):
        line.clock.jump(5)  # the process froze, then the byte was there
        return b"A"

    line.sock.recv = recv
    with pytest.raises(TooSlow) as caught:
        line.receiver.receive_exactly(2, far(line))
    assert (caught.value.report.data, caught.value.report.reads) == (b"A", 1)
    assert MinRate(1, 1).left_ns(2, 0) == 3_000_000_000


def test_expiry_beats_a_slow_peer_and_a_slow_peer_beats_idleness():
    """R3."""
    line = Line(idle_timeout=2, min_rate=MinRate(1, grace=1))
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_exactly(1, line.within(1))
    line = Line(idle_timeout=1, min_rate=MinRate(1, grace=1))
    with pytest.raises(TooSlow):
        line.receiver.receive_exactly(1, far(line))


# ------------------------------------------------------------------ errors of the socket


def test_a_dead_connection_is_not_an_idle_wait():
    """R8: a TimeoutError with an errno is the kernel's."""
    dead = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
    line = Line(Data(b"AB"), Failure(dead), idle_timeout=1, allowance=RetryAllowance(5))
    with pytest.raises(TimeoutError) as caught:
        line.receiver.receive_exactly(4, far(line))
    assert caught.value is dead
    assert "2 bytes kept for resume()" in caught.value.__notes__[0]
    assert line.receiver.report is None
    assert line.receiver.pending == b"AB"


def test_a_bound_of_a_socket_below_propagates():
    """R8."""
    below = DeadlineExceeded("somebody else's")
    line = Line(Failure(below), idle_timeout=1, allowance=RetryAllowance(5))
    with pytest.raises(BoundReached) as caught:
        line.receiver.receive_exactly(1, far(line))
    assert caught.value is below


@pytest.mark.parametrize("kind", [ConnectionResetError, OSError, KeyboardInterrupt, StopIteration])
@pytest.mark.parametrize("timeout", [None, 0.0, 0.5, 1e-9])
@blocking_only
def test_whatever_ends_it_the_socket_is_as_it_was_lent(kind, timeout):
    """R9, case A07."""
    error = kind()
    line = Line(Data(b"AB"), Failure(error), timeout=timeout)
    with pytest.raises(type(error)):
        line.receiver.receive_exactly(4, far(line))
    assert line.sock.gettimeout() == timeout
    assert line.receiver.pending == b"AB"


def test_after_a_reset_the_position_is_unknown():
    """R10, case A04: with 0 bytes too, whatever ended it."""
    for error in (ConnectionResetError(), TimeoutError(110, "dead")):
        line = Line(Failure(error), Data(b"reply one"))
        with pytest.raises(OSError):
            line.receiver.receive_exactly(9, far(line))
        with pytest.raises(Unfinished, match=r"resume\(deadline\) or discard\(\)"):
            line.receiver.receive_exactly(9, far(line))
        assert line.receiver.resume(far(line)) == b"reply one"


def test_an_unanswered_request_is_not_answered_by_the_next_reply():
    """R10, case A04: nobody gets somebody else's reply."""
    line = Line(Silence(), Data(b"reply 1"), Data(b"reply 2"))
    with pytest.raises(DeadlineExceeded):
        line.receiver.receive_exactly(7, line.within(1))
    with pytest.raises(Unfinished):
        line.receiver.receive_exactly(7, far(line))
    assert line.receiver.resume(far(line)) == b"reply 1"
    assert line.receiver.receive_exactly(7, far(line)) == b"reply 2"


@blocking_only
def test_a_read_that_was_interrupted_inside_a_python_recv_is_not_guessed_about():
    """R18: only discarding helps."""
    line = Line(Data(b"AB"), Failure(KeyboardInterrupt()), Data(b"CD"))
    with pytest.raises(KeyboardInterrupt):
        line.receiver.receive_exactly(4, far(line))
    for verb in (
        lambda: line.receiver.resume(far(line)),
        lambda: line.receiver.receive_some(1, far(line)),
    ):
        with pytest.raises(Unfinished, match="may have lost bytes"):
            verb()
    assert line.receiver.discard() == b"AB"
    assert line.receiver.receive_exactly(2, far(line)) == b"CD"


class Wrong:
    """A socket that gives what it was not asked for."""

    def __init__(self, answer):
        self.answer = answer
        self.timeout = 7.0

    def recv(self, size):
        return self.answer

    def settimeout(self, value):
        self.timeout = value

    def gettimeout(self):
        return self.timeout


def test_a_recv_that_returns_too_much_is_an_error_and_all_is_kept():
    """R13."""
    receiver = BudgetedReceiver(Wrong(b"ABCDEFG"))
    with pytest.raises(RuntimeError, match=r"recv\(4\) returned 7 bytes: all are kept"):
        receiver.receive_exactly(4, Deadline.after(5))
    assert receiver.pending == b"ABCDEFG"
    assert receiver.resume(Deadline.after(5)) == b"ABCD"
    assert receiver.pending == b"EFG"


def test_a_recv_that_returns_too_much_for_a_buffer_is_an_error_and_all_is_kept():
    """R13: an object without recv_into."""
    receiver = BudgetedReceiver(Wrong(b"ABCDEFG"))
    buffer = bytearray(4)
    with pytest.raises(RuntimeError, match=r"recv\(4\) returned 7 bytes"):
        receiver.receive_into(buffer, Deadline.after(5))
    assert buffer == b"ABCD"
    assert receiver.pending == b"EFG"
    assert receiver.resume(Deadline.after(5)) == b""
    assert receiver.receive_exactly(3, Deadline.after(5)) == b"EFG"


def test_a_recv_into_that_counts_beyond_the_buffer_is_an_error():
    """R13."""
    for count in (5, -1):
        sock = Wrong(b"")
        sock.recv_into = lambda view, size, count=count: count
        receiver = BudgetedReceiver(sock)
        with pytest.raises(RuntimeError, match=f"recv_into counted {count} bytes in a buffer of 4"):
            receiver.receive_into(bytearray(4), Deadline.after(5))
        with pytest.raises(Unfinished):
            receiver.resume(Deadline.after(5))
        assert sock.timeout == 7.0


@pytest.mark.parametrize("answer", [None, "text", 4])
def test_a_recv_that_returns_no_bytes_is_an_error(answer):
    """R13."""
    receiver = BudgetedReceiver(Wrong(answer))
    with pytest.raises(TypeError, match=r"Wrong\.recv\(4\) returned .* not bytes"):
        receiver.receive_exactly(4, Deadline.after(5))
    assert receiver.pending == b""


def test_an_object_without_recv_into_fills_a_buffer_too():
    """R13."""
    receiver = BudgetedReceiver(Wrong(b"AB"))
    buffer = bytearray(4)
    receiver.receive_into(buffer, Deadline.after(5))
    assert buffer == b"ABAB"


def test_what_is_no_socket_is_refused():
    """R13."""
    with pytest.raises(TypeError, match="no recv and no settimeout and no gettimeout"):
        BudgetedReceiver(object())
    wrong = Wrong(b"")
    wrong.type = 2  # SOCK_DGRAM
    with pytest.raises(TypeError, match="stream socket"):
        BudgetedReceiver(wrong)
    for options in ({"allowance": 3}, {"min_rate": 100}):
        with pytest.raises(TypeError, match=next(iter(options))):
            BudgetedReceiver(Wrong(b""), **options)


# ------------------------------------------------------------------ clocks


class Backwards(SteadyClock):
    """Goes back at the reading after `good` ones."""

    def __init__(self, good):
        self.good = good
        self.readings = 0

    def now_ns(self):
        self.readings += 1
        return 10**9 + self.readings if self.readings <= self.good else 5


@pytest.mark.parametrize("good", [2, 3, 4])
def test_an_operation_that_sees_its_clock_go_back_raises_and_keeps_the_bytes(good):
    """C4."""
    script = ScriptedSocket(FakeClock(), Data(b"AB"), Data(b"CD"), Data(b"EF"))

    class Clockless(Wrong):
        def recv(self, size):
            return script.recv(size)

    receiver = BudgetedReceiver(Clockless(b""))
    deadline = Deadline.after(1000, clock=Backwards(good))
    with pytest.raises(ClockError, match="went backwards"):
        receiver.receive_exactly(6, deadline)
    assert receiver.pending + script.unread == b"ABCDEF"


@blocking_only
def test_a_scripted_peer_under_a_deadline_of_another_clock_is_refused():
    """C5: a fake peer under a real deadline would prove nothing."""
    line = Line(Data(b"A", after=5))
    with pytest.raises(ClockError, match=r"waits on <FakeClock.*on MonotonicClock\(\)"):
        line.receiver.receive_exactly(1, Deadline.after(0.5))
    assert line.sock.granted == []
    assert line.receiver.resume(far(line)) == b"A"


def test_a_socket_on_another_clock_than_the_deadline_is_found_out():
    """A socket that times out at once while the deadline's clock stands still would spin."""

    class Hasty(Wrong):
        def recv(self, size):
            raise TimeoutError

    receiver = BudgetedReceiver(Hasty(b""))
    with pytest.raises(ClockError, match="stood still"):
        receiver.receive_exactly(1, FakeClock().deadline(5))


def test_a_silence_that_ended_early_is_waited_out():
    """R12, N5: the clock decides, not the socket."""
    clock = FakeClock()
    calls = []

    class Early(Wrong):
        def recv(self, size):
            calls.append(self.timeout)
            clock.advance(min(self.timeout, 0.4))
            raise TimeoutError

    receiver = BudgetedReceiver(Early(b""), idle_timeout=1.0)
    with pytest.raises(IdleTimeout):
        receiver.receive_exactly(1, clock.deadline(100))
    assert calls == [1.0, 0.6, pytest.approx(0.2)]
    assert clock.now() == 1.0


# ------------------------------------------------------------------ evidence


def test_report_and_error_survive_pickle_and_copy():
    line = Line(Data(b"AB"), Silence())
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_exactly(4, line.within(1))
    error = caught.value
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is DeadlineExceeded
        assert str(twin) == str(error)
        assert twin.report == error.report
        assert type(twin.report) is ReceiveReport
        assert twin.report.elapsed == 1.0


@blocking_only
def test_a_report_tells_times_in_seconds():
    line = Line(Data(b"AB", after=0.25), Silence(), Data(b"CD", after=0.25), idle_timeout=1)
    line.receiver = BudgetedReceiver(
        line.sock, idle_timeout=1, allowance=RetryAllowance(1, Backoff.fixed(0.5))
    )
    line.receiver.receive_exactly(4, far(line))
    report = line.receiver.report
    assert (report.elapsed, report.waited, report.slept, report.overshoot) == (2.0, 1.5, 0.5, 0.0)
    assert (report.requested, report.received, report.reads) == (4, 4, 3)


def test_no_payload_in_messages_and_reprs():
    """R20."""
    secret = b"hunter2"
    line = Line(Data(secret), Silence())
    with pytest.raises(DeadlineExceeded) as caught:
        line.receiver.receive_exactly(100, line.within(1))
    for text in (str(caught.value), repr(caught.value), repr(caught.value.report)):
        assert "hunter2" not in text
        assert "7 bytes" in text or "DeadlineExceeded" in text
    assert "1 s late" not in repr(caught.value.report)
    assert repr(caught.value.report) == (
        "<ReceiveReport deadline_expired: 7 bytes of 100, 2 reads, 0 idle retries in 1 s>"
    )
    late = Line(Data(b"A", after=1))
    with pytest.raises(DeadlineExceeded) as caught:
        late.receiver.receive_exactly(1, late.within(1))
    assert repr(caught.value.report) == (
        "<ReceiveReport deadline_expired, satisfied: 1 bytes of 1, 1 reads, 0 idle retries in 1 s>"
    )


def test_an_overshoot_is_told():
    """D6."""
    line = Line(
        Data(b"AB"), Silence(), idle_timeout=1, allowance=RetryAllowance(1, Backoff.fixed(0.5))
    )
    line.clock.script_oversleep(5)
    with pytest.raises(
        DeadlineExceeded,
        match=r"receive_exactly\(4\): the deadline of 2 s was missed by 4\.5 s; 2 bytes kept",
    ) as caught:
        line.receiver.receive_exactly(4, line.within(2))
    assert caught.value.report.overshoot == 4.5
    assert "4.5 s late" in repr(caught.value.report)


def test_the_last_report_stays_until_the_next_operation_begins():
    """R18: an exception between our return and the caller's assignment loses nothing."""
    line = Line(Data(b"AB"), Silence())
    line.receiver.receive_exactly(2, far(line))
    assert line.receiver.report.data == b"AB"
    with pytest.raises(Unfinished):
        line.receiver.resume(far(line))
    assert line.receiver.report.data == b"AB"
    assert line.receiver.discard() == b""
    assert line.receiver.report.data == b""


def test_names_of_the_verbs_in_messages():
    line = Line(idle_timeout=1)
    for verb, name in (
        (lambda: line.receiver.receive_exactly(5, far(line)), r"receive_exactly\(5\)"),
        (
            lambda: line.receiver.receive_until(b"\r\n", 9, far(line)),
            r"receive_until\(b'\\r\\n', 9\)",
        ),
        (
            lambda: line.receiver.receive_into(bytearray(3), far(line)),
            r"receive_into\(buffer of 3\)",
        ),
        (lambda: line.receiver.receive_some(7, far(line)), r"receive_some\(7\)"),
    ):
        with pytest.raises(IdleTimeout, match=name):
            verb()
        line.receiver.discard()


def test_discarding_has_a_report_of_its_own():
    """R18: every fact of it, by ==."""
    line = Line(Data(b"a\nBCD"))
    line.receiver.receive_until(b"\n", 9, far(line))
    assert line.receiver.discard() == b"BCD"
    assert line.receiver.report == ("complete", b"BCD", 3, 0, True, False, 0, 0, 0, 0, 0, 0)
