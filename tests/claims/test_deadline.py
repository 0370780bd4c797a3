"""D1-D6, D8, and C2, C4, C5 where a deadline meets its clock."""

from __future__ import annotations

import copy
import json
import math
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebounds import (
    MONOTONIC,
    ClockError,
    Deadline,
    DeadlineExceeded,
    SteadyClock,
    StopSignal,
    WallClock,
)
from timebounds.testing import FakeClock, ForbiddenClock

seconds = st.floats(min_value=0, max_value=1e9)


class Hands(SteadyClock):
    """A clock that says what the test says."""

    def __init__(self, now):
        self.reading = now

    def now_ns(self):
        return self.reading


def test_at_the_instant_it_is_expired():
    """D1, case A78: one boundary rule for everything."""
    clock = FakeClock()
    deadline = clock.deadline(1)
    clock.advance(0.999999999)
    assert not deadline.expired()
    assert deadline.remaining() == 1e-9
    clock.advance(1e-9)
    assert deadline.expired()
    assert deadline.remaining() == 0.0
    with pytest.raises(DeadlineExceeded):
        deadline.check()


@given(now=st.integers(0, 10**18), asked=st.floats(min_value=0, max_value=1e6))
def test_remaining_is_never_more_than_was_asked(now, asked):
    """D2, C4, case A23: exactly, for any instant and any duration."""
    clock = Hands(now)
    deadline = Deadline.after(asked, clock=clock)
    assert deadline.remaining() <= asked
    assert Deadline.never(clock=clock).within(asked).remaining() <= asked
    if asked:
        assert Deadline.never(clock=clock).timeout(asked) == asked
    clock.reading -= 10**9  # a clock that goes back lengthens nothing
    assert deadline.remaining() <= asked


@given(asked=seconds, steps=st.lists(st.floats(min_value=0, max_value=1e8), max_size=20))
def test_remaining_never_grows(asked, steps):
    """D2."""
    clock = FakeClock()
    deadline = clock.deadline(asked)
    before = deadline.remaining()
    for step in steps:
        clock.advance(step)
        assert deadline.remaining() <= before
        before = deadline.remaining()
    assert deadline.remaining() >= 0.0


@given(asked=seconds, other=seconds, reserve=seconds, passed=seconds)
def test_nothing_widens_a_deadline(asked, other, reserve, passed):
    """D3: for any nesting."""
    clock = FakeClock()
    deadline = clock.deadline(asked)
    clock.advance(passed)
    left = deadline.remaining()
    for child in (
        deadline.within(other),
        deadline.reserving(reserve),
        deadline.earliest(clock.deadline(other)),
        deadline.within(other).reserving(reserve).within(other),
    ):
        assert child <= deadline
        assert child.remaining() <= left
    if left:
        assert deadline.timeout() <= max(left, 1e-9)


def test_within_makes_a_never_deadline_finite():
    """D3."""
    clock = FakeClock(7)
    assert Deadline.never(clock=clock).within(2).remaining() == 2.0
    assert Deadline.never(clock=clock).remaining() == math.inf


def test_the_nearer_bound_is_the_same_object():
    """D3, D6: so its own figures are named when it fires."""
    parent = FakeClock().deadline(1)
    assert parent.within(600) is parent
    assert parent.reserving(0) is parent
    assert parent.earliest() is parent
    assert parent.within(1) is parent
    assert parent.earliest(parent.within(600), parent.clock.deadline(1)) is parent


def test_a_reserve_ends_earlier():
    """D3."""
    clock = FakeClock()
    deadline = clock.deadline(2.0)
    assert deadline.reserving(0.5).remaining() == 1.5
    assert deadline.reserving(5).expired()
    assert deadline.reserving(5).remaining() == 0.0
    assert repr(deadline.reserving(0.5)).startswith("<Deadline after 1.5 s, at 1.5 s on")
    assert repr(deadline.reserving(5)).startswith("<Deadline after 0 s, at -3 s on")
    never = Deadline.never(clock=clock)
    assert never.reserving(5) is never


def test_the_earliest_of_many():
    """D3."""
    clock = FakeClock()
    one, two, three = (clock.deadline(n) for n in (3, 1, 2))
    assert one.earliest(two, three) is two
    assert two.earliest(one, three) is two


def test_a_timeout_for_other_libraries():
    """D4."""
    clock = FakeClock()
    deadline = clock.deadline(2)
    assert deadline.timeout() == 2.0
    assert deadline.timeout(0.5) == 0.5
    assert deadline.timeout(5) == 2.0
    assert deadline.timeout(timedelta(seconds=1)) == 1.0
    assert Deadline.never(clock=clock).timeout() is None
    assert Deadline.never(clock=clock).timeout(3) == 3.0
    clock.advance(2)
    with pytest.raises(DeadlineExceeded, match=r"^timeout: the deadline of 2 s was reached$"):
        deadline.timeout()
    with pytest.raises(DeadlineExceeded):
        deadline.timeout(1)


@pytest.mark.parametrize(
    ("left", "ms"),
    [
        (2, 2000),
        (0.3, 300),
        (1.001, 1001),
        (0.0029999999, 2),
        (0.0029999999999999996, 2),
        (0.0005, 1),
        (1e-12, 1),
        (2_147_483, 2_147_483_000),
        (1e300, 2_147_483_000),
    ],
)
def test_a_timeout_in_milliseconds_is_rounded_down_but_never_to_nothing(left, ms):
    """D4: it fits in 32 bits, which is what `poll` and databases have for it."""
    clock = FakeClock()
    assert clock.deadline(left).timeout_ms() == ms
    assert clock.deadline(3e300).timeout_ms(left) == ms
    assert Deadline.never(clock=clock).timeout_ms(left) == ms
    assert type(clock.deadline(left).timeout_ms()) is int


def test_a_timeout_in_milliseconds_says_no_limit_and_expiry_as_the_other_does():
    """D4."""
    clock = FakeClock()
    assert Deadline.never(clock=clock).timeout_ms() is None
    deadline = clock.deadline(1)
    with pytest.raises(ValueError, match="seconds must be more than 0"):
        deadline.timeout_ms(0)
    clock.advance(1)
    with pytest.raises(DeadlineExceeded, match=r"^timeout: the deadline of 1 s was reached$"):
        deadline.timeout_ms()


@pytest.mark.parametrize("left", [2_147_484, 4_294_968, 1e10, 1e300])
def test_a_timeout_is_never_longer_than_a_c_int_of_milliseconds(left):
    """D4: of 4,294,968 s `settimeout` makes 0.7 s, silently, and `selectors` an OverflowError."""
    assert FakeClock().deadline(left).timeout() == 2_147_483.0
    assert Deadline.never(clock=FakeClock()).timeout(left) == 2_147_483.0


def test_a_timeout_is_no_zero_when_the_clock_moves_between_two_readings():
    """D4: other libraries take 0 for "do not block"."""
    readings = iter([0, 5, 10])

    class Moving(SteadyClock):
        def now_ns(self):
            return next(readings)

    assert Deadline.after(1e-8, clock=Moving()).timeout() == 1e-9


def test_a_deadline_does_not_travel():
    """D5, case A28: the instant means nothing elsewhere."""
    deadline = Deadline.after(1)
    expected = r"timebounds\.wire\.to_milliseconds\(deadline\).*from_milliseconds"
    with pytest.raises(TypeError, match=expected):
        pickle.dumps(deadline)
    with pytest.raises(TypeError):
        json.dumps(deadline)
    assert copy.copy(deadline) is deadline
    assert copy.deepcopy([deadline])[0] is deadline


def test_the_message_tells_what_was_bounded_and_by_how_much_it_was_missed():
    """D6."""
    clock = FakeClock()
    deadline = clock.deadline(2)
    clock.advance(2.5)
    expected = "loading users: the deadline of 2 s was missed by 0.5 s"
    with pytest.raises(DeadlineExceeded, match=expected):
        deadline.check("loading users")
    with pytest.raises(DeadlineExceeded, match="operation: the deadline at 1 s was missed"):
        Deadline.at(1, clock=clock).check()
    with pytest.raises(DeadlineExceeded, match=r"operation: the deadline of 0 s was reached"):
        clock.deadline(0).check()
    clock.deadline(1).check()


def test_the_nearer_parent_is_named():
    """D6, case A53: operators act on the stated cause."""
    clock = FakeClock()
    own = clock.deadline(0.05).within(600)
    clock.advance(1)
    with pytest.raises(DeadlineExceeded, match=r"the deadline of 0\.05 s"):
        own.check()


def test_an_expiry_is_a_timeout_error_with_one_argument():
    """D6: an OSError with two would take the first for errno."""
    with pytest.raises(TimeoutError) as caught:
        Deadline.at(0).check()
    assert caught.value.errno is None
    assert caught.value.report is None


def test_the_budget_begins_with_the_deadline():
    """D8: what comes after it is inside it."""
    clock = FakeClock()
    deadline = clock.deadline(1)
    clock.advance(0.75)  # queueing, connecting, checking arguments
    assert deadline.remaining() == 0.25


def test_making_and_comparing_reads_no_clock_where_none_is_needed():
    """C6."""
    clock = ForbiddenClock()
    early, never = Deadline.at(1, clock=clock), Deadline.never(clock=clock)
    assert early < never
    assert early.earliest(never) is early
    assert early.reserving(1) < early
    assert hash(early) == hash(Deadline.at(1, clock=clock))
    assert "never" in repr(never)
    with pytest.raises(AssertionError, match="must not touch time"):
        early.expired()


def test_it_is_ordered_and_hashable_within_one_clock():
    """D1."""
    clock = FakeClock()
    one, same, two = clock.deadline(1), clock.deadline(1), clock.deadline(2)
    assert one == same
    assert len({one, same, two}) == 2
    assert hash(one) == hash(same) != hash(two)
    assert hash(one) != hash(Deadline.at(1))
    assert hash(one) != hash(one.stopping(StopSignal()))
    assert not one < same
    assert not one > same
    assert one != two
    assert one != Deadline.at(1)
    assert one < two
    assert two > one
    assert one <= same
    assert one >= same
    assert sorted([two, one]) == [one, two]
    assert one != 1.0
    assert (one == 1.0) is False
    for compare in (
        lambda: one < 1,
        lambda: one <= 1,
        lambda: one > 1,
        lambda: one >= 1,
    ):
        with pytest.raises(TypeError):
            compare()


def test_two_clocks_never_mix():
    """C5: the message names both."""
    here, there = FakeClock().deadline(1), MONOTONIC
    other = Deadline.after(1, clock=there)
    assert here != other
    for mix in (
        lambda: here < other,
        lambda: here <= other,
        lambda: here > other,
        lambda: here >= other,
        lambda: here.earliest(other),
    ):
        with pytest.raises(ClockError, match=r"FakeClock.*MonotonicClock"):
            mix()
    with pytest.raises(TypeError, match="Deadline"):
        here.earliest(2.0)


def test_a_wall_clock_is_refused():
    """C2: and the right class is named."""
    for clock in (WallClock(), FakeClock().wall):
        with pytest.raises(TypeError, match="use Expiry"):
            Deadline.after(2, clock=clock)
    for wrong in (None, FakeClock):
        with pytest.raises(TypeError, match="steady clock"):
            Deadline.never(clock=wrong)


@pytest.mark.parametrize("reading", [math.nan, 1.0, None, "now", True])
def test_a_clock_that_returns_no_whole_number_is_an_error(reading):
    """C4."""
    clock = Hands(0)
    deadline = Deadline.after(1, clock=clock)
    clock.reading = reading
    for read in (deadline.remaining, deadline.expired, deadline.check):
        with pytest.raises(ClockError, match="not a whole number"):
            read()


def test_it_never_changes():
    """D1."""
    deadline = Deadline.after(1)
    with pytest.raises(AttributeError, match="never changes"):
        deadline.clock = FakeClock()
    with pytest.raises(AttributeError):
        del deadline.clock
    for wrong in (Deadline, lambda: Deadline(2.0), lambda: Deadline(seconds=2)):
        with pytest.raises(TypeError, match=r"Deadline\.after"):
            wrong()
    assert not hasattr(deadline, "__dict__")


def test_its_repr_tells_instant_and_clock():
    clock = FakeClock(3)
    assert repr(clock.deadline(2)) == "<Deadline after 2 s, at 5 s on <FakeClock at 3 s>>"
    assert repr(Deadline.at(9, clock=clock)) == "<Deadline at 9 s on <FakeClock at 3 s>>"
    assert repr(Deadline.never(clock=clock)) == "<Deadline never on <FakeClock at 3 s>>"
