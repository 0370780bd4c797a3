"""N1-N7: what is a number of seconds or a count, at every door that takes one."""

from __future__ import annotations

import asyncio
import math
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebounds import (
    MONOTONIC,
    Backoff,
    BudgetedReceiver,
    Deadline,
    Expiry,
    MinRate,
    RetryAllowance,
)
from timebounds._checks import (
    FAR_NS,
    NS,
    as_delimiter,
    count,
    member,
    nanoseconds,
    number,
    writable,
)
from timebounds.testing import Data, End, FakeClock, ForbiddenClock, ScriptedSocket
from timebounds.wire import from_milliseconds, from_retry_after, to_milliseconds

WRONG = [
    (math.nan, ValueError),
    (math.inf, ValueError),
    (-math.inf, ValueError),
    (-1, ValueError),
    (-1e-300, ValueError),
    (timedelta(seconds=-1), ValueError),
    (True, TypeError),
    (False, TypeError),
    ("1", TypeError),
    (b"1", TypeError),
    (1j, TypeError),
]

# Under a clock that nobody may touch: a refusal comes before any reading.
FORBIDDEN = ForbiddenClock()


def scripted(**options):
    clock = FakeClock()
    return BudgetedReceiver(ScriptedSocket(clock), **options)


DOORS = {
    "Deadline.after": ("seconds", lambda x: Deadline.after(x, clock=FORBIDDEN)),
    "Deadline.at": ("seconds", lambda x: Deadline.at(x, clock=FORBIDDEN)),
    "within": ("seconds", lambda x: Deadline.never(clock=FORBIDDEN).within(x)),
    "reserving": ("seconds", lambda x: Deadline.never(clock=FORBIDDEN).reserving(x)),
    "timeout": ("seconds", lambda x: Deadline.never(clock=FORBIDDEN).timeout(x)),
    "timeout_ms": ("seconds", lambda x: Deadline.never(clock=FORBIDDEN).timeout_ms(x)),
    "maximum": ("maximum", lambda x: from_milliseconds("1", maximum=x, clock=FORBIDDEN)),
    "transit": ("transit", lambda x: from_milliseconds("1", transit=x, clock=FORBIDDEN)),
    "transit sent": ("transit", lambda x: to_milliseconds(Deadline.never(), transit=x)),
    "Retry-After": ("maximum", lambda x: from_retry_after("1", maximum=x)),
    "Expiry.after": ("seconds", lambda x: Expiry.after(x, clock=FORBIDDEN)),
    "sleep": ("seconds", MONOTONIC.sleep),
    "poll": ("seconds", lambda x: MONOTONIC.poll(None, x)),
    "wait": ("seconds", lambda x: MONOTONIC.wait(None, x)),
    "asleep": ("seconds", lambda x: asyncio.run(MONOTONIC.asleep(x))),
    "await_done": ("seconds", lambda x: asyncio.run(MONOTONIC.await_done(None, x))),
    "idle_timeout": ("idle_timeout", lambda x: scripted(idle_timeout=x)),
    "grace": ("grace", lambda x: MinRate(1.0, x)),
    "fixed": ("seconds", Backoff.fixed),
    "linear initial": ("initial", lambda x: Backoff.linear(x, cap=1)),
    "linear step": ("step", lambda x: Backoff.linear(1, step=x, cap=1)),
    "linear cap": ("cap", lambda x: Backoff.linear(1, cap=x)),
    "exponential initial": ("initial", lambda x: Backoff.exponential(x, cap=1)),
    "exponential cap": ("cap", lambda x: Backoff.exponential(1, cap=x)),
    "advance": ("seconds", lambda x: FakeClock().advance(x)),
    "jump": ("seconds", lambda x: FakeClock().jump(x)),
    "suspend": ("seconds", lambda x: FakeClock().suspend(x)),
    "call_later": ("seconds", lambda x: FakeClock().call_later(x, print)),
    "oversleep": ("seconds", lambda x: FakeClock().script_oversleep(x)),
    "start": ("start", FakeClock),
    "patience": ("patience", lambda x: FakeClock(patience=x)),
    "within real": ("within", lambda x: FakeClock().wait_until_waiting(1, within=x)),
    "Data": ("after", lambda x: ScriptedSocket(FakeClock(), Data(b"x", after=x))),
    "End": ("after", lambda x: ScriptedSocket(FakeClock(), End(after=x))),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("value", "error"), WRONG, ids=repr)
def test_every_door_refuses_what_is_no_duration(door, value, error):
    """N1, N2, cases A20 and A21: at once, naming the parameter, nothing touched."""
    name, call = DOORS[door]
    with pytest.raises(error, match=f"^{name} must"):
        call(value)


def test_infinity_is_refused_with_the_right_line():
    """N2."""
    with pytest.raises(ValueError, match=r"Deadline\.never\(\).*None.*within"):
        Deadline.after(math.inf)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, timedelta(0)])
def test_zero_is_legal_and_already_due(value):
    """N4."""
    clock = FakeClock()
    assert Deadline.after(value, clock=clock).expired()
    clock.sleep(value)
    assert clock.waiting == ()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("idle_timeout", lambda: scripted(idle_timeout=0)),
        ("bytes_per_second", lambda: MinRate(0.0, 1)),
        ("seconds", lambda: Deadline.never().timeout(0)),
        ("max_bytes", lambda: scripted().receive_some(0, Deadline.never())),
        ("max_bytes", lambda: scripted().receive_until(b"ab", 1, Deadline.never())),
    ],
)
def test_zero_is_refused_where_it_could_never_work(name, call):
    """N4."""
    with pytest.raises(ValueError, match=name):
        call()


HUGE = [1e8, 9e9, 1e10, sys.maxsize, 2**63, 1e300, 10**400, timedelta.max]


@pytest.mark.parametrize("seconds", HUGE)
def test_any_finite_size_works(seconds):
    """N3, case A22: it saturates, it does not overflow."""
    clock = FakeClock(5)
    deadline = Deadline.after(seconds, clock=clock)
    assert 0 < deadline.remaining() < math.inf
    assert not deadline.expired()
    assert deadline.timeout() <= 9_223_372_036
    assert deadline.within(seconds).remaining() <= deadline.remaining()
    assert deadline.reserving(seconds) <= deadline
    assert Deadline.at(seconds, clock=clock) <= Deadline.never(clock=clock)
    assert Expiry.after(seconds, clock=clock.wall).fresh()


@pytest.mark.parametrize("seconds", HUGE)
def test_any_finite_size_can_be_received_under(seconds):
    """N3, case A22: with data ready a huge budget is as good as any."""
    clock = FakeClock()
    receiver = BudgetedReceiver(ScriptedSocket(clock, Data(b"AB")), idle_timeout=seconds)
    assert receiver.receive_exactly(2, Deadline.after(seconds, clock=clock)) == b"AB"


def test_a_tiny_remainder_is_a_nanosecond_and_never_nothing():
    """N5."""
    assert nanoseconds(1e-12, "x") == nanoseconds(5e-324, "x") == 1
    clock = FakeClock()
    deadline = clock.deadline(1e-12)
    assert not deadline.expired()
    assert 0 < deadline.remaining() <= 1e-12
    clock.advance(1e-9)
    assert deadline.expired()


def test_decimal_fractions_of_a_second_are_exact():
    """N5, F1: ten tenths are one."""
    assert sum(nanoseconds(0.1, "x") for _ in range(10)) == NS
    assert nanoseconds(timedelta(days=1, microseconds=1), "x") == 86_400 * NS + 1000


@given(st.floats(min_value=0, max_value=1e308) | st.integers(min_value=0))
def test_nanoseconds_lie_within_half_of_one(seconds):
    """N5."""
    ns = nanoseconds(seconds, "x")
    assert 0 <= ns <= FAR_NS
    if ns < FAR_NS and seconds < 1e6:
        assert abs(ns - seconds * 1e9) <= 1


def test_a_clock_at_zero_is_a_clock():
    """N6."""
    clock = FakeClock(0)
    assert Deadline.after(1, clock=clock).remaining() == 1.0
    assert Deadline.at(0, clock=clock).expired()


def test_a_deadline_has_no_truth():
    """N6."""
    with pytest.raises(TypeError, match=r"is None.*expired\(\)"):
        bool(Deadline.after(1))


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_a_count_is_an_int(value):
    """N7."""
    for call in (
        lambda: RetryAllowance(value),
        lambda: scripted().receive_exactly(value, Deadline.never()),
        lambda: scripted().receive_some(value, Deadline.never()),
        lambda: Backoff.none().delay(value),
        lambda: FakeClock().wait_until_waiting(value),
    ):
        with pytest.raises(TypeError, match="must be an int"):
            call()


def test_a_count_is_not_negative():
    """N7."""
    with pytest.raises(ValueError, match="size must be at least 0, not -1"):
        scripted().receive_exactly(-1, Deadline.never())
    with pytest.raises(ValueError, match="retries"):
        RetryAllowance(-1)


class Size(int):
    pass


def test_an_int_of_its_own_class_is_a_count():
    """N7."""
    assert count(Size(3), "size") == 3


@pytest.mark.parametrize("value", [True, "2", None])
def test_a_factor_is_a_number(value):
    with pytest.raises(TypeError, match="factor"):
        Backoff.exponential(1, factor=value, cap=2)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.5, -1])
def test_a_factor_is_finite_and_grows(value):
    with pytest.raises(ValueError, match="factor"):
        Backoff.exponential(1, factor=value, cap=2)


def test_a_number_beyond_every_float_is_the_largest_float():
    assert number(10**400, "factor", minimum=1) == sys.float_info.max


def test_a_member_is_asked_for_by_its_choices():
    with pytest.raises(TypeError, match=r"overrun must be one of Overrun\.CAP, Overrun\.REFUSE"):
        scripted(overrun="cap")
    with pytest.raises(TypeError, match="Jitter"):
        member("full", "jitter", type(Backoff.none().jitter))


@pytest.mark.parametrize("value", ["\n", None, 10])
def test_a_delimiter_is_bytes(value):
    with pytest.raises(TypeError, match="delimiter must be bytes"):
        scripted().receive_until(value, 10, Deadline.never())


def test_an_empty_delimiter_is_refused():
    with pytest.raises(ValueError, match="delimiter must not be empty"):
        scripted().receive_until(b"", 10, Deadline.never())
    assert as_delimiter(bytearray(b"\r\n"), "delimiter") == b"\r\n"


@pytest.mark.parametrize("value", [b"abc", "abc", None, 3, memoryview(bytearray(8))[::2]])
def test_a_buffer_is_writable_and_contiguous(value):
    with pytest.raises(TypeError, match="buffer must be"):
        scripted().receive_into(value, Deadline.never())


def test_a_buffer_is_seen_as_bytes():
    assert len(writable(memoryview(bytearray(8)).cast("I"), "buffer")) == 8


@pytest.mark.parametrize("value", [2.0, 2, None, "soon", timedelta(seconds=2)])
def test_what_is_no_deadline_is_shown_the_right_line(value):
    with pytest.raises(TypeError, match=r"deadline must be a Deadline.*Deadline\.after\(2"):
        scripted().receive_exactly(1, value)
