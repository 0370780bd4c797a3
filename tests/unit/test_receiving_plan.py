"""The plan of a receive by hand, on a clock that does not begin at 0."""

from __future__ import annotations

import pytest

from timebounds import Backoff, MinRate, Overrun, RetryAllowance, StopSignal
from timebounds import ReceiveOutcome as Outcome
from timebounds._checks import FAR_NS
from timebounds.bounds.deadline import NEVER_NS
from timebounds.policies.inbox import Exactly, Inbox, Until
from timebounds.policies.plan import Pause, Reply
from timebounds.policies.receiving import Rules, receiving

S = 1_000_000_000


class Driven:
    """A plan that the test answers: the instants are seconds, 100 is the beginning."""

    def __init__(
        self, *, idle=NEVER_NS, min_rate=None, overrun=Overrun.CAP, retries=0, backoff=2, at=120,
        first=None, stop=None, target=None, held=b"",
    ):  # fmt: skip
        self.inbox = Inbox()
        allowance = RetryAllowance(retries, Backoff.fixed(backoff))
        self.target = target or Exactly(4, allowance)
        self.inbox.begin(self.target)
        if held:
            self.target.chunks.append(held)
            self.target.look()
        if first is not None:
            first = (round(first[0] * S), first[1])
        self.plan = receiving(
            self.target, self.inbox, Rules(idle, min_rate, overrun), at * S, 100 * S, first, stop
        )

    def next(self):
        """Return the command that it begins with: what it is, and its limit in seconds."""
        return self._shown(next(self.plan))

    def answer(self, at, data=None):
        """Answer the command; return the next one."""
        if data:
            self.target.chunks.append(data)
        reply = Reply.SILENCE if data is None else Reply.ANSWER
        return self._shown(self.plan.send((round(at * S), reply)))

    def _shown(self, command):
        if isinstance(command, Pause):
            return "pause", command.ns / S
        assert command is self.target
        limit = None if command.limit is None else command.limit / S
        return command.since / S, limit

    def ends(self, act, *args):
        """Return the report that this leads to."""
        with pytest.raises(StopIteration) as ended:
            act(*args)
        return ended.value.value


def test_every_figure_counts_from_the_beginning():
    """R19."""
    plan = Driven(idle=5 * S, retries=1)
    assert plan.next() == (100, 5)
    assert plan.answer(103, b"ab") == (103, 5)
    assert plan.answer(108) == ("pause", 2)
    assert plan.answer(110.5) == (110.5, 5)
    report = plan.ends(plan.answer, 112, b"cd")
    assert (report.outcome, report.data, report.received) == (Outcome.COMPLETE, b"abcd", 4)
    assert (report.reads, report.idle_retries) == (3, 1)
    times = report.elapsed, report.waited, report.slept, report.overshoot
    assert times == (12, 9.5, 2.5, 0)


def test_two_pauses_add_up():
    """R19."""
    plan = Driven(idle=1 * S, retries=2)
    plan.next()
    assert plan.answer(101) == ("pause", 2)
    assert plan.answer(103.5) == (103.5, 1)
    assert plan.answer(104.5) == ("pause", 2)
    assert plan.answer(106.75) == (106.75, 1)
    report = plan.ends(plan.answer, 107.75)
    assert (report.outcome, report.slept, report.idle_retries) == (Outcome.IDLE_TIMEOUT, 4.75, 2)


@pytest.mark.parametrize(
    ("at", "outcome", "late"),
    [(120, Outcome.DEADLINE_EXPIRED, 0), (121, Outcome.DEADLINE_EXPIRED, 1)],
)
def test_a_pause_that_ends_at_the_deadline_is_followed_by_nothing(at, outcome, late):
    """R3, R10."""
    plan = Driven(idle=19 * S, retries=1)
    plan.next()
    assert plan.answer(119) == ("pause", 1)
    report = plan.ends(plan.answer, at)
    assert (report.outcome, report.reads, report.idle_retries) == (outcome, 1, 0)
    assert report.overshoot == late


def test_a_stop_during_a_pause_is_its_outcome():
    """D9."""
    stop = StopSignal()
    plan = Driven(idle=5 * S, retries=1, stop=stop)
    plan.next()
    assert plan.answer(105) == ("pause", 2)
    stop.request()
    assert plan.ends(plan.answer, 106).outcome is Outcome.STOPPED


def test_a_stop_before_the_beginning_reads_nothing():
    """D9."""
    stop = StopSignal()
    stop.request()
    plan = Driven(stop=stop)
    report = plan.ends(plan.next)
    assert (report.outcome, report.reads, report.elapsed) == (Outcome.STOPPED, 0, 0)


def test_a_first_read_counts_as_one():
    """R1: it was answered at once."""
    plan = Driven(first=(103, 2), held=b"ab")
    assert plan.next() == (103, 17)
    report = plan.ends(plan.answer, 104, b"cd")
    assert (report.reads, report.waited, report.elapsed, report.received) == (2, 4, 4, 4)


def test_a_first_read_of_nothing_is_the_end_of_the_stream():
    """R7."""
    plan = Driven(first=(101, 0))
    report = plan.ends(plan.next)
    assert (report.outcome, report.eof, report.waited) == (Outcome.EOF, True, 1)
    assert plan.inbox.eof is True


def test_a_stream_that_has_used_up_its_grace_is_not_read():
    """R14: a nanosecond that is left is."""
    slow = MinRate(1, 1)
    plan = Driven(min_rate=slow, first=(102, 1), held=b"a")
    assert plan.ends(plan.next).outcome is Outcome.TOO_SLOW
    plan = Driven(min_rate=slow, first=(102 - 1e-9, 1), held=b"a")
    assert plan.next() == (102 - 1e-9, 1e-9)
    plan = Driven(min_rate=slow)
    assert plan.next() == (100, 1)
    assert plan.answer(101 - 1e-9) == (101 - 1e-9, 1e-9)
    assert plan.ends(plan.answer, 101).outcome is Outcome.TOO_SLOW


def test_the_farthest_instant_is_no_limit_to_a_read():
    """N3."""
    for idle, limit in ((FAR_NS, None), (FAR_NS - 1, (FAR_NS - 1) / S)):
        plan = Driven(idle=idle, at=FAR_NS // S + 101)
        assert plan.next() == (100, limit)


def test_of_a_long_delimiter_the_beginning_is_shown():
    mark = b"0123456789abcdefg"
    shown = "receive_until(b'0123456789abcdef', 99)"
    assert str(Until(mark, 99, RetryAllowance(0))) == shown
