"""The wire, for any duration and any text: nothing grows on it, and junk never means "no limit"."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from timebounds import Deadline, DeadlineExceeded, SteadyClock
from timebounds._checks import nanoseconds
from timebounds.testing import FakeClock
from timebounds.wire import (
    from_grpc_timeout,
    from_milliseconds,
    from_retry_after,
    to_grpc_timeout,
    to_milliseconds,
)

PAIRS = [(to_grpc_timeout, from_grpc_timeout, 1), (to_milliseconds, from_milliseconds, 10**6)]
# What a unit of a text is in nanoseconds; milliseconds have none.
UNITS = {"n": 1, "u": 10**3, "m": 10**6, "S": 10**9, "M": 60 * 10**9, "H": 3600 * 10**9}

# Around each change of unit, anywhere, and beyond all of them.
EDGES = [10**n + more for n in range(25) for more in (-1, 0, 1)]
nanos = st.sampled_from(EDGES) | st.integers(0, 10**12) | st.integers(0, 10**25)
seconds = (
    nanos.map(lambda ns: ns / 10**9)
    | st.floats(min_value=0, max_value=1e6)
    | st.floats(min_value=0, max_value=sys.float_info.max)
)
texts = (
    st.text(max_size=12)
    | st.binary(max_size=12)
    | st.text("0123456789HMSmun", max_size=20)
    | st.from_regex(r"\A[+-]?[\d_.,e ]{0,18}(ms|[HMSmunsh])?\s?\Z")
)


class Hands(SteadyClock):
    """A clock that says what the test says."""

    def __init__(self, now):
        self.reading = now

    def now_ns(self):
        return self.reading


def exactly(ns):
    """Return a deadline with so many ns left, where float seconds could not say it."""
    whole = -(-ns // 10**9)
    return Deadline.at(whole, clock=Hands(whole * 10**9 - ns))


@pytest.mark.parametrize(("send", "read", "unit"), PAIRS)
@given(asked=seconds, passed=seconds, start=st.integers(0, 10**6))
def test_what_arrives_is_at_most_what_was_left_and_more_than_nothing(
    send, read, unit, asked, passed, start
):
    """P1, case A86: decode(encode(x)) <= x, and > 0."""
    clock, there = FakeClock(), FakeClock(start)
    deadline = clock.deadline(asked)
    clock.jump(passed)
    left = deadline.remaining()
    if left < unit / 10**9:
        with pytest.raises(DeadlineExceeded):
            send(deadline)
        return
    text = send(deadline)
    assert 0 < read(text, clock=there).remaining() <= left
    assert 0 < read(text, maximum=1, clock=there).remaining() <= min(1, left)


@pytest.mark.parametrize(("send", "read", "unit"), PAIRS)
@given(ns=nanos, transit=st.just(0) | seconds)
def test_rounding_takes_less_than_a_unit_of_the_text(send, read, unit, ns, transit):
    """P1: in whole nanoseconds, after the transit."""
    rest = ns - nanoseconds(transit, "transit")
    deadline = exactly(ns)
    if rest < unit:
        with pytest.raises(DeadlineExceeded):
            send(deadline, transit=transit)
        return
    text = send(deadline, transit=transit)
    arrived = read(text, clock=Hands(0))._at
    assert 0 < arrived <= rest
    # And the transit may as well be deducted on arrival.
    assert read(send(deadline), transit=transit, clock=Hands(0))._at <= rest
    if not text.startswith("9" * 8):
        assert rest - arrived < UNITS.get(text[-1], unit)


def result_or_error(read, *args, **more):
    """Return what came of it; an error of another class than ValueError itself fails the test."""
    try:
        return read(*args, **more)
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        return error


@given(text=texts, maximum=st.none() | st.floats(min_value=1e-9, max_value=1e9))
@example(text="", maximum=None)
@example(text="1\n", maximum=None)
@example(text="1m\n", maximum=1.0)
def test_no_text_removes_the_limit(text, maximum):
    """P1, case A86: it is read, as a finite deadline, or it is a ValueError."""
    for read in (from_grpc_timeout, from_milliseconds):
        came = result_or_error(read, text, maximum=maximum, clock=FakeClock())
        if isinstance(came, ValueError):
            assert str(came).isprintable()
        else:
            assert came.remaining() <= (maximum or sys.float_info.max)


@given(text=texts | st.from_regex(r"\A\w{3}, ?\d+ \w{3} \d+ \d+:\d+:\d+ ?[GMTZ+-]*\d*\Z"))
def test_no_retry_after_is_negative_or_endless(text):
    """P1: it is read, or it is a ValueError."""
    came = result_or_error(from_retry_after, text, wall=FakeClock().wall)
    if isinstance(came, ValueError):
        assert str(came).isprintable()
    else:
        assert 0 <= came < math.inf
