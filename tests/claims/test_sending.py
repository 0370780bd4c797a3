"""S1-S3, in both colours: what was accepted is known, and never sent again."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from colours import sender

from timebounds import (
    AsyncBudgetedSender,
    BudgetedSender,
    Busy,
    ClockError,
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    SendOutcome,
    SendReport,
    SteadyClock,
    StopRequested,
    StopSignal,
    Unfinished,
)
from timebounds._checks import FAR_NS
from timebounds.bounds.deadline import NEVER_NS
from timebounds.policies.plan import Reply
from timebounds.policies.sending import Outbox, Parcel, at_once, conclude, report_of, sending
from timebounds.testing import (
    Accept,
    Failure,
    FakeClock,
    ScriptedSocket,
    ScriptedStream,
    Silence,
)

KIB = 1024


@pytest.fixture(params=["blocking", "tasks"])
def colour(request):
    return request.param


def scripted(colour, *steps, **options):
    clock = FakeClock()
    sock = ScriptedSocket(clock)
    if steps:
        sock.accepting(*steps)
    return clock, sock, sender(colour, sock, **options)


def test_all_is_sent_at_once_where_the_peer_takes_it(colour):
    """S1."""
    clock, sock, made = scripted(colour)
    assert made.report is None
    assert made.send_all(b"abcdef", clock.deadline(1)) is None
    assert bytes(sock.sent) == b"abcdef"
    assert made.report == SendReport(SendOutcome.COMPLETE, 6, 6, 0, 1, 0, 0, 0)
    assert (made.report.satisfied, made.report.left, made.unsent) == (True, 0, b"")


def test_nothing_to_send_touches_neither_socket_nor_clock(colour):
    """S1."""
    _, sock, made = scripted(colour)
    made.send_all(b"", FakeClock().deadline(0))
    assert sock.allowed == []
    assert made.report.outcome is SendOutcome.COMPLETE


def test_only_the_rest_follows_a_send_that_was_cut_short(colour):
    """S1, A18: 3 bytes are accepted, then nothing; the peer sees each byte once."""
    clock, sock, made = scripted(colour, Accept(3), Silence(), Accept(100), idle_timeout=1)
    with pytest.raises(IdleTimeout, match="3 bytes were accepted; resume") as caught:
        made.send_all(b"abcdefghi", clock.deadline(10))
    assert (caught.value.report.accepted, caught.value.report.left) == (3, 6)
    assert made.report is caught.value.report
    assert made.unsent == b"defghi"
    made.resume(clock.deadline(1))
    assert bytes(sock.sent) == b"abcdefghi"
    assert (made.report.requested, made.report.accepted, made.report.satisfied) == (9, 9, True)


def test_nothing_else_is_let_in_before_the_rest(colour):
    """S1, R10: the peer would read it as a part of the first message."""
    clock, sock, made = scripted(colour, Accept(3), Silence(), Accept(100))
    with pytest.raises(DeadlineExceeded):
        made.send_all(b"abcdef", clock.deadline(1))
    with pytest.raises(Unfinished, match=r"3 bytes of it were accepted.*resume"):
        made.send_all(b"xyz", clock.deadline(1))
    assert made.discard() == b"def"
    made.send_all(b"xyz", clock.deadline(1))
    assert bytes(sock.sent) == b"abcxyz"
    with pytest.raises(Unfinished, match="nothing is unfinished"):
        made.resume(clock.deadline(1))


def test_a_send_of_which_nothing_went_leaves_the_stream_where_it_was(colour):
    """R10: it may be resumed, or another may follow."""
    clock, sock, made = scripted(colour, Silence(), Silence(), Accept(100))
    with pytest.raises(DeadlineExceeded):
        made.send_all(b"abc", clock.deadline(1))
    with pytest.raises(DeadlineExceeded):
        made.resume(clock.deadline(1))
    made.send_all(b"xyz", clock.deadline(1))
    assert bytes(sock.sent) == b"xyz"


def test_an_idle_limit_alone_lets_a_slow_peer_take_as_long_as_it_likes(colour):
    """S3, A19: 1 KiB every 0.9 s, 50 KiB: complete at 45.0."""
    clock, sock, made = scripted(
        colour, *[Accept(KIB, after=0.9) for _ in range(50)], idle_timeout=1.0
    )
    made.send_all(bytes(50 * KIB), Deadline.never(clock=clock))
    assert clock.now() == 45.0
    assert len(sock.sent) == 50 * KIB
    assert (made.report.sends, made.report.waited) == (50, 45.0)


def test_a_total_limit_ends_it_whatever_the_progress(colour):
    """S3, A19: at 10.0, with 11 KiB accepted; neither limit implies the other."""
    clock, sock, made = scripted(
        colour, *[Accept(KIB, after=0.9) for _ in range(50)], idle_timeout=1.0
    )
    with pytest.raises(DeadlineExceeded) as caught:
        made.send_all(bytes(50 * KIB), clock.deadline(10))
    assert clock.now() == 10.0
    report = caught.value.report
    assert (report.outcome, report.accepted) == (SendOutcome.DEADLINE_EXPIRED, 11 * KIB)
    assert len(sock.sent) == 11 * KIB
    assert sock.allowed[-1] == pytest.approx(0.1)


def test_what_is_accepted_at_the_deadline_is_late(colour):
    """R3: all was accepted, too late; there is nothing to resume."""
    clock, _, made = scripted(colour, Accept(3, after=1))
    with pytest.raises(DeadlineExceeded, match="all 3 bytes were accepted, too late") as caught:
        made.send_all(b"abc", clock.deadline(1))
    assert caught.value.report.satisfied
    assert caught.value.report.overshoot == 0.0
    with pytest.raises(Unfinished, match="nothing is unfinished"):
        made.resume(clock.deadline(1))


def test_an_expired_deadline_sends_nothing(colour):
    """R2."""
    clock, sock, made = scripted(colour)
    with pytest.raises(DeadlineExceeded, match="0 bytes were accepted"):
        made.send_all(b"abc", clock.deadline(0))
    assert sock.allowed == []
    assert made.report.sends == 0


def test_a_stop_beats_the_deadline_and_sends_nothing_more(colour):
    """R14."""
    clock, sock, made = scripted(colour)
    stop = StopSignal(clock=clock)
    stop.request("shutting down")
    with pytest.raises(StopRequested, match="shutting down") as caught:
        made.send_all(b"abc", Deadline.after(0, clock=clock, stop=stop))
    assert caught.value.report.outcome is SendOutcome.STOPPED
    assert sock.allowed == []


def test_what_the_socket_raises_passes_through_with_a_count(colour):
    """S1: the rest is kept, though only another connection may help."""
    error = ConnectionResetError("reset")
    clock, _, made = scripted(colour, Accept(2), Failure(error))
    with pytest.raises(ConnectionResetError) as caught:
        made.send_all(b"abcdef", clock.deadline(1))
    assert caught.value is error
    assert error.__notes__ == ["send_all(6 bytes): 2 bytes were accepted, resume() sends the rest"]
    assert made.report is None
    assert made.unsent == b"cdef"


def test_the_buffer_is_its_owners_again_after_every_ending(colour):
    """S1: a copy of the rest is kept, so that what is resumed is what was meant."""
    clock, sock, made = scripted(colour, Accept(2), Silence(), Accept(100))
    buffer = bytearray(b"abcdef")
    with pytest.raises(DeadlineExceeded):
        made.send_all(buffer, clock.deadline(1))
    buffer.clear()
    made.resume(clock.deadline(1))
    assert bytes(sock.sent) == b"abcdef"
    again = bytearray(b"gh")
    made.send_all(memoryview(again), clock.deadline(1))
    again.clear()
    assert bytes(sock.sent) == b"abcdefgh"


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("text", r"text\.encode"),
        (None, "bytes"),
        (5, "bytes"),
        (memoryview(b"abcd")[::2], "contig"),
    ],
)
def test_what_is_no_bytes_is_refused(colour, data, hint):
    """N4."""
    clock, _, made = scripted(colour)
    with pytest.raises(TypeError, match=f"data.*{hint}"):
        made.send_all(data, clock.deadline(1))


def test_a_buffer_of_larger_items_is_sent_as_its_bytes(colour):
    """S1."""
    from array import array

    clock, sock, made = scripted(colour)
    made.send_all(array("H", [1, 2]), clock.deadline(1))
    assert bytes(sock.sent) == array("H", [1, 2]).tobytes()


def test_a_number_is_no_deadline(colour):
    """N5."""
    _, sock, made = scripted(colour)
    with pytest.raises(TypeError, match=r"Deadline\.after\(5\)"):
        made.send_all(b"abc", 5)
    assert sock.allowed == []


def test_a_report_survives_pickling_and_shows_no_payload():
    """R16."""
    report = SendReport(SendOutcome.DEADLINE_EXPIRED, 9, 3, 2, 4, 1_500_000_000, 10**9, 5 * 10**8)
    assert pickle.loads(pickle.dumps(report)) == report
    assert repr(report) == (
        "<SendReport deadline_expired: 3 of 9 bytes accepted, 2 in doubt, 4 sends in 1.5 s, "
        "0.5 s late>"
    )
    assert (report.elapsed, report.waited, report.overshoot) == (1.5, 1.0, 0.5)


@pytest.mark.parametrize("idle", [0, -1, float("nan"), "1"])
def test_an_idle_timeout_that_could_never_work_is_refused(colour, idle):
    """N1."""
    with pytest.raises((TypeError, ValueError), match="idle_timeout"):
        scripted(colour, idle_timeout=idle)


def test_a_clock_that_goes_back_is_said_and_nothing_forgotten():
    """C1."""

    class Back(SteadyClock):
        readings = iter((10, 9, 9, 9))

        def now_ns(self):
            return next(self.readings)

    from socket import socketpair

    ours, peer = socketpair()
    with ours, peer:
        made = BudgetedSender(ours)
        with pytest.raises(ClockError, match="back"):
            made.send_all(b"abc", Deadline.at(60, clock=Back()))
        assert peer.recv(10) == b"abc"
        assert made.unsent == b""


def test_a_second_user_is_refused_in_a_task():
    """R11."""

    async def main():
        from timebounds.testing import ScriptedStream

        clock = FakeClock()
        made = AsyncBudgetedSender(ScriptedStream(clock))
        made._inside = True
        for verb in (made.discard, lambda: made.resume(clock.deadline(1))):
            with pytest.raises(Busy, match="another task"):
                result = verb()
                await result

    asyncio.run(main())


def test_a_second_user_is_refused_in_a_thread():
    """R11: a handler that sends inside a send, whatever came first."""
    clock = FakeClock()
    seen = []

    class Nested:
        def settimeout(self, value):
            pass

        def gettimeout(self):
            return None

        def send(self, data):
            for verb in (made.discard, lambda: made.send_all(b"x", clock.deadline(1))):
                with pytest.raises(Busy, match="BudgetedSender"):
                    verb()
                seen.append(verb)
            return len(data)

    made = BudgetedSender(Nested())
    made.send_all(b"abc", clock.deadline(1))
    assert len(seen) == 2


@pytest.mark.parametrize("taken", [-1, 4, None, True, 1.0])
def test_an_object_that_counts_wrongly_is_not_believed(taken):
    """S1: what it has taken nobody knows, so nothing may follow."""

    class Odd:
        def settimeout(self, value):
            pass

        def gettimeout(self):
            return None

        def send(self, data):
            return taken

    clock = FakeClock()
    made = BudgetedSender(Odd())
    with pytest.raises(RuntimeError, match=r"Odd\.send took"):
        made.send_all(b"abc", clock.deadline(1))
    for verb in (made.discard, lambda: made.resume(clock.deadline(1))):
        with pytest.raises(Unfinished, match="close the connection"):
            verb()


def test_a_blocking_sender_is_refused_where_a_loop_runs():
    """A54."""

    async def main():
        clock = FakeClock()
        with pytest.raises(RuntimeError, match="AsyncBudgetedSender"):
            BudgetedSender(ScriptedSocket(clock)).send_all(b"abc", clock.deadline(1))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("step", "error", "hint"),
    [
        (b"abc", TypeError, "Accept, Silence and Failure"),
        (Accept(0), ValueError, "size"),
        (Accept(1, after=-1), ValueError, "after"),
    ],
)
def test_a_script_of_sends_is_checked_before_it_runs(step, error, hint):
    """F4."""
    with pytest.raises(error, match=hint):
        ScriptedSocket(FakeClock()).accepting(step)


def test_sendall_of_a_scripted_socket_follows_the_script():
    """F4: as a real one does, piece by piece."""
    clock = FakeClock()
    sock = ScriptedSocket(clock)
    sock.accepting(Accept(2), Accept(2, after=0.5), Accept(9))
    sock.sendall(b"abcdef")
    assert (bytes(sock.sent), clock.now()) == (b"abcdef", 0.5)
    with pytest.raises(AssertionError, match="a send without a limit"):
        ScriptedSocket.accepting(sock) or sock.sendall(bytes(100))


def test_a_writer_whose_drain_only_wants_a_turn_is_given_one():
    """R9: anything that can be awaited."""

    class Writer:
        held = 0

        @property
        def transport(self):
            return self

        def is_closing(self):
            return False

        def get_write_buffer_size(self):
            return self.held

        def get_write_buffer_limits(self):
            return 1, 2

        def set_write_buffer_limits(self, **limits):
            self.limits = limits

        def write(self, data):
            self.held = len(data)

        async def drain(self):
            await asyncio.sleep(0)
            self.held = 0

    async def main():
        writer = Writer()
        made = AsyncBudgetedSender(writer)
        await made.send_all(b"abc", Deadline.after(60))
        assert made.report.accepted == 3
        assert writer.limits == {"high": 2, "low": 1}

    asyncio.run(main())


def test_a_scripted_stream_takes_what_is_sent():
    """F4: through the port of a stream writer."""
    clock = FakeClock()
    stream = ScriptedStream(clock)

    async def main():
        made = AsyncBudgetedSender(stream)
        await made.send_all(b"hello", clock.deadline(1))
        return made.report

    assert clock.run(main()).accepted == 5
    assert stream.sent == b"hello"


# Figures and words, on a clock that does not begin at 0.


def late(colour, *steps, **options):
    clock = FakeClock(100)
    sock = ScriptedSocket(clock)
    sock.accepting(*steps)
    return clock, sender(colour, sock, **options)


SECOND = 1_000_000_000


def test_a_report_holds_the_figures_of_its_send(colour):
    """S1."""
    clock, made = late(colour, Accept(3, after=0.5), Accept(3, after=1.5))
    made.send_all(b"abcdef", clock.deadline(5))
    figures = (2 * SECOND, 2 * SECOND, 0)
    assert made.report == SendReport(SendOutcome.COMPLETE, 6, 6, 0, 2, *figures)


def test_a_report_says_by_how_much_it_was_late_and_the_message_too():
    """S3: whoever waits may sleep over."""
    parcel = Parcel(memoryview(b"abcdef"))
    plan = sending(parcel, NEVER_NS, 105 * SECOND, 100 * SECOND)
    next(plan)
    parcel.counts.append(3)
    with pytest.raises(StopIteration) as ended:
        plan.send((105 * SECOND + SECOND // 4, Reply.SILENCE))
    report = ended.value.value
    spent = 5 * SECOND + SECOND // 4
    figures = (spent, spent, SECOND // 4)
    assert report == SendReport(SendOutcome.DEADLINE_EXPIRED, 6, 3, 0, 1, *figures)
    with pytest.raises(DeadlineExceeded) as caught:
        conclude(report, parcel, 0, FakeClock(100).deadline(5))
    assert str(caught.value) == (
        "send_all(6 bytes): the deadline of 5 s was missed by 0.25 s; "
        "3 bytes were accepted; resume() sends the other 3"
    )


def test_the_words_of_a_send_that_was_stopped_or_stood_still(colour):
    """S1, T3."""
    clock, made = late(colour, Accept(3), Silence(), idle_timeout=2)
    with pytest.raises(IdleTimeout) as caught:
        made.send_all(b"abcdef", clock.deadline(5))
    assert str(caught.value) == (
        "send_all(6 bytes): the peer took nothing for 2 s; "
        "3 bytes were accepted; resume() sends the other 3"
    )
    stop = StopSignal()
    stop.request("drain")
    with pytest.raises(StopRequested) as caught:
        made.resume(clock.deadline(5).stopping(stop))
    assert str(caught.value) == (
        "send_all(6 bytes): stopped (drain) 0 s into the deadline of 5 s; "
        "3 bytes were accepted; resume() sends the other 3"
    )


def test_the_words_of_a_refused_send(colour):
    clock, made = late(colour, Accept(3), Silence(), Accept(9))
    with pytest.raises(Unfinished) as caught:
        made.resume(clock.deadline(1))
    assert str(caught.value) == (
        "nothing is unfinished, so there is nothing to resume: call send_all"
    )
    with pytest.raises(DeadlineExceeded):
        made.send_all(b"abcdef", clock.deadline(1))
    with pytest.raises(Unfinished) as caught:
        made.send_all(b"xyz", clock.deadline(1))
    assert str(caught.value) == (
        "send_all(6 bytes) has not finished, 3 bytes of it were accepted and the "
        "peer waits for the rest: call resume(deadline) or discard() first"
    )


def test_what_may_have_been_torn_or_is_in_doubt_is_told_word_for_word():
    """S2: nothing may follow."""
    box = Outbox()
    with pytest.raises(Unfinished) as caught:
        box.begin(memoryview(b"abc"), torn=True)
    assert str(caught.value) == (
        "a send was interrupted inside the socket's send, which may have taken bytes: "
        "nothing can follow, close the connection"
    )
    parcel = box.begin(memoryview(b"abcdef"), torn=False)
    parcel.in_doubt = 2
    with pytest.raises(Unfinished) as caught:
        box.discard(torn=False)
    assert str(caught.value) == (
        "2 bytes of send_all(6 bytes) are on their way: resume(deadline) or close"
    )
    report = report_of(parcel, SendOutcome.DEADLINE_EXPIRED, 1, 0, 0, 0)
    with pytest.raises(DeadlineExceeded) as caught:
        conclude(report, parcel, 0, FakeClock(100).deadline(1))
    assert str(caught.value) == (
        "send_all(6 bytes): the deadline of 1 s was reached; "
        "0 bytes were accepted, 2 are in doubt; resume() sends the other 6"
    )


class Ticking(SteadyClock):
    """A clock that goes on by a second with each look."""

    ns = 100 * SECOND

    def now_ns(self):
        self.ns += SECOND
        return self.ns


def taking(size):
    """Return a port's first send, which takes so many bytes, or None."""

    def do(parcel):
        if size is not None:
            parcel.counts.append(size)
        return size is not None

    return do


def first(size, seconds, *, stop=None, payload=b"abcdef", clock=None):
    """Send once without waiting."""
    deadline = Deadline.at(100 + seconds, clock=clock or Ticking(), stop=stop)
    return at_once(Parcel(memoryview(payload)), deadline, taking(size))


def test_a_send_that_is_answered_at_once_is_judged_by_the_same_rule():
    """S1, S3: it begins at 101, and has ended at 102."""
    stop = StopSignal()
    at = (101 * SECOND, 102 * SECOND)
    assert first(6, 3) == SendReport(SendOutcome.COMPLETE, 6, 6, 0, 1, SECOND, SECOND, 0)
    # By the deadline, or at it, all may be there and it is late.
    assert first(6, 2) == at
    assert first(3, 3) == at
    assert first(None, 3) == (101 * SECOND, None)
    # Nothing begins at the deadline, or under a stop.
    assert first(6, 1) == (101 * SECOND, None)
    stop.request()
    assert first(6, 3, stop=stop) == (101 * SECOND, None)
    assert first(0, 0, payload=b"") == SendReport(SendOutcome.COMPLETE, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(("size", "done"), [(6, True), (3, False)])
def test_a_stop_that_comes_with_the_last_byte_takes_nothing_away(size, done):
    """T3."""
    stop = StopSignal()

    def do(parcel):
        stop.request()
        parcel.counts.append(size)
        return True

    deadline = Deadline.at(103, clock=Ticking(), stop=stop)
    found = at_once(Parcel(memoryview(b"abcdef")), deadline, do)
    assert isinstance(found, SendReport) is done


def test_a_clock_that_stands_still_is_none_that_goes_back():
    clock = FakeClock(100)
    assert first(6, 1, clock=clock) == SendReport(SendOutcome.COMPLETE, 6, 6, 0, 1, 0, 0, 0)


def test_what_began_at_once_goes_on_from_there():
    """S1: its first send counts, and the time that it took."""
    parcel = Parcel(memoryview(b"abcdef"))
    parcel.counts.append(4)
    plan = sending(parcel, 10 * SECOND, 110 * SECOND, 101 * SECOND, first=102 * SECOND)
    command = next(plan)
    assert (command.limit, command.since, bytes(command.rest())) == (
        8 * SECOND, 102 * SECOND, b"ef",
    )  # fmt: skip
    parcel.counts.append(2)
    with pytest.raises(StopIteration) as ended:
        plan.send((105 * SECOND, Reply.ANSWER))
    figures = (4 * SECOND, 4 * SECOND, 0)
    assert ended.value.value == SendReport(SendOutcome.COMPLETE, 6, 6, 0, 2, *figures)
    endless = sending(Parcel(memoryview(b"a")), NEVER_NS, NEVER_NS, 0)
    assert next(endless).limit is None


def test_a_stop_before_the_first_send_sends_nothing():
    """T3: in the plan, too."""
    stop = StopSignal()
    stop.request()
    plan = sending(Parcel(memoryview(b"a")), SECOND, 110 * SECOND, 101 * SECOND, stop)
    with pytest.raises(StopIteration) as ended:
        next(plan)
    assert ended.value.value.outcome is SendOutcome.STOPPED
    assert ended.value.value.sends == 0


def test_a_stop_during_a_send_is_its_outcome():
    """T3: unless all of it went out."""
    for accepted, outcome in ((0, SendOutcome.STOPPED), (1, SendOutcome.COMPLETE)):
        stop = StopSignal()
        parcel = Parcel(memoryview(b"a"))
        plan = sending(parcel, SECOND, 110 * SECOND, 101 * SECOND, stop)
        next(plan)
        stop.request()
        parcel.counts.append(accepted)
        with pytest.raises(StopIteration) as ended:
            plan.send((101 * SECOND, Reply.SILENCE))
        assert ended.value.value.outcome is outcome


def test_the_farthest_instant_is_no_limit_to_a_send():
    """N3."""
    for limit, shown in ((FAR_NS, None), (FAR_NS - 1, FAR_NS - 1)):
        assert next(sending(Parcel(memoryview(b"a")), FAR_NS, limit, 0)).limit == shown


def test_of_a_message_that_is_kept_the_callers_buffer_is_let_go():
    """S2: also where all or nothing of it went out."""
    for taken, rest in ((0, b"abcdef"), (4, b"ef"), (6, b"")):
        buffer = bytearray(b"abcdef")
        parcel = Parcel(memoryview(buffer))
        parcel.counts.append(taken)
        parcel.keep()
        buffer.clear()
        assert parcel.rest() == rest
        if taken == 4:
            parcel.counts.append(1)
            assert parcel.rest() == b"f"
    lasting = memoryview(b"abcdef")
    parcel = Parcel(lasting)
    parcel.counts.append(4)
    parcel.keep()
    assert parcel.rest().obj is lasting.obj
