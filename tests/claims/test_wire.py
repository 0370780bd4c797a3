"""P1, D5: what crosses a process boundary is time left, rounded down, never an instant."""

from __future__ import annotations

import math
import pickle
import sys
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest

from timebounds import (
    Deadline,
    DeadlineExceeded,
    SteadyClock,
    StopRequested,
    StopSignal,
    WallClock,
    wire,
)
from timebounds.testing import FakeClock, ForbiddenClock
from timebounds.wire import (
    from_grpc_timeout,
    from_milliseconds,
    from_retry_after,
    to_grpc_timeout,
    to_milliseconds,
)

SENDERS = [to_grpc_timeout, to_milliseconds]
READERS = [from_grpc_timeout, from_milliseconds]
PAIRS = [(to_grpc_timeout, from_grpc_timeout), (to_milliseconds, from_milliseconds)]
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Hands(SteadyClock):
    """A clock that says what the test says."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def now_ns(self):
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


# ---------------------------------------------------------------- sending


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-9, "1n"),
        (0.099999999, "99999999n"),
        (0.1, "100000u"),
        (0.3, "300000u"),
        (1.5, "1500000u"),
        (99.999999999, "99999999u"),
        (100, "100000m"),
        (100.0009, "100000m"),
        (99_999.9999, "99999999m"),
        (100_000, "100000S"),
        (99_999_999.9, "99999999S"),
        (100_000_000, "1666666M"),
        (timedelta(days=365 * 200), "1752000H"),
        (1e300, "99999999H"),
    ],
)
def test_a_grpc_timeout_has_the_finest_unit_that_fits_in_eight_digits(seconds, text):
    """P1, case A86."""
    assert to_grpc_timeout(FakeClock().deadline(seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.001, "1"),
        (0.0019999, "1"),
        (0.3, "300"),
        (1.001, "1001"),
        (2, "2000"),
        (1e6, "1000000000"),
        (1e12, "9" * 15),
        (1e300, "9" * 15),
    ],
)
def test_milliseconds_are_rounded_down_and_saturate(seconds, text):
    """P1: a size that nobody means is sent as the largest that can be read."""
    assert to_milliseconds(FakeClock().deadline(seconds)) == text


@pytest.mark.parametrize("send", SENDERS)
def test_a_deadline_that_never_comes_sends_nothing(send):
    """P1: absent means no deadline."""
    assert send(Deadline.never(clock=FakeClock())) is None
    assert send(Deadline.never(clock=FakeClock()), transit=5) is None


@pytest.mark.parametrize("send", SENDERS)
def test_an_expired_deadline_is_not_sent(send):
    """P1, case A86: the callee must not begin, and a zero is not everywhere taken for one."""
    clock = FakeClock()
    deadline = clock.deadline(2)
    clock.advance(2.5)
    expected = rf"^{send.__name__}: the deadline of 2 s was missed by 0\.5 s$"
    with pytest.raises(DeadlineExceeded, match=expected):
        send(deadline)
    with pytest.raises(DeadlineExceeded):
        send(clock.deadline(0))


@pytest.mark.parametrize("send", SENDERS)
def test_a_stopped_deadline_is_not_sent(send):
    """P1, D9: a never-deadline too."""
    stop = StopSignal(clock=FakeClock())
    stop.request("shutting down")
    for deadline in (FakeClock().deadline(2), Deadline.never(clock=FakeClock())):
        with pytest.raises(StopRequested, match="shutting down"):
            send(deadline.stopping(stop))


def test_less_than_one_unit_is_not_sent():
    """P1: rounded down it would be nothing, and rounded up it would be more than there is."""
    expected = (
        r"^to_milliseconds: 0\.0009 s of the deadline of 0\.0009 s are left, "
        r"which is no whole ms$"
    )
    with pytest.raises(DeadlineExceeded, match=expected):
        to_milliseconds(FakeClock().deadline(0.0009))
    # Below what a clock can tell, and so below the unit.
    with pytest.raises(DeadlineExceeded, match=r"no whole ns$"):
        to_grpc_timeout(FakeClock().deadline(1e-12))


def test_nothing_is_left_after_the_transit():
    """P1: the allowance for the way is deducted by the sender, or by the receiver."""
    clock = FakeClock()
    assert to_milliseconds(clock.deadline(2), transit=0.5) == "1500"
    assert to_grpc_timeout(clock.deadline(2), transit=timedelta(milliseconds=1)) == "1999000u"
    expected = (
        r"^to_milliseconds: 2 s of the deadline of 2 s are left, "
        r"which after 1\.9999 s of transit is no whole ms$"
    )
    with pytest.raises(DeadlineExceeded, match=expected):
        to_milliseconds(clock.deadline(2), transit=1.9999)
    with pytest.raises(DeadlineExceeded, match="of the deadline at 3 s are left"):
        to_grpc_timeout(Deadline.at(3, clock=clock), transit=1e300)


def test_a_deadline_that_expires_while_it_is_encoded_is_not_sent():
    """P1: the clock is read twice, and may reach the instant in between."""
    deadline = Deadline.after(1e-6, clock=Hands(0, 0, 5_000))
    with pytest.raises(DeadlineExceeded, match="0 s of the deadline"):
        to_grpc_timeout(deadline)


def test_a_clock_that_went_back_sends_no_more_than_was_asked():
    """P1, D2."""
    clock = Hands(10**12)
    deadline = Deadline.after(0.3, clock=clock)
    clock.readings = [0]
    assert from_grpc_timeout(to_grpc_timeout(deadline), clock=FakeClock()).remaining() <= 0.3


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1n", 1e-9),
        ("250u", 0.00025),
        ("1500m", 1.5),
        ("2S", 2.0),
        ("3M", 180.0),
        ("1H", 3600.0),
        ("00000001S", 1.0),
        ("99999999n", 0.099999999),
        ("99999999H", 359_999_996_400.0),
        (b"100m", 0.1),
        ("0n", 0.0),
        ("0H", 0.0),
        ("00000000S", 0.0),
    ],
)
def test_a_grpc_timeout_is_read(text, seconds):
    """P1, case A86: good units, and zero is expired, not unlimited."""
    deadline = from_grpc_timeout(text, clock=FakeClock(7))
    assert deadline.remaining() == seconds
    assert deadline.expired() == (seconds == 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 0.001),
        ("1500", 1.5),
        ("007", 0.007),
        (b"20", 0.02),
        ("9" * 15, 999_999_999_999.999),
        ("0", 0.0),
        ("000", 0.0),
    ],
)
def test_milliseconds_are_read(text, seconds):
    """P1, case A86."""
    deadline = from_milliseconds(text, clock=FakeClock(7))
    assert deadline.remaining() == seconds
    assert deadline.expired() == (seconds == 0)


# What no reader takes: everything else that looks like a number somewhere.
def named(text):
    """Return a name for a text; without a backslash, which pytest escapes anew each time."""
    return ascii(text)[:20].replace("\\", "")


JUNK = [
    "",
    " ",
    "-1",
    "+1",
    "1e3",
    "1.5",
    "1_000",
    "0x10",
    "nan",
    "NaN",
    "inf",
    "Infinity",
    "None",
    "١٢",
    "１００",
    "²",
    "1\x00",
    "1,2",
    "9" * 5000,
    b"",
    b"\xff",
    b"\xb2",
    "１００".encode(),
]
JUNK_GRPC = [
    "100",
    "m",
    "123456789m",
    "000000001S",
    "1.5S",
    "-1S",
    "+1S",
    "1e3m",
    "1_000m",
    "１００m",
    "1 m",
    " 1m",
    "1m ",
    "1m\n",
    "1s",
    "1h",
    "1ms",
    "1m1m",
    "1µ",
    "nanS",
    "infS",
    b"1\xb5",
]
JUNK_MS = ["100m", "1000ms", " 1", "1 ", "1\n", "0" * 16, "9" * 16, "-0", "1S"]


@pytest.mark.parametrize("text", JUNK + JUNK_GRPC, ids=named)
@pytest.mark.parametrize("maximum", [None, 5])
def test_junk_is_no_grpc_timeout(text, maximum):
    """P1, case A86: it does not remove the limit, it is an error that shows the right form."""
    with pytest.raises(ValueError, match=r"^text must be .* like '1500m', not ") as caught:
        from_grpc_timeout(text, maximum=maximum, clock=ForbiddenClock())
    assert_is_one_line(caught.value)


@pytest.mark.parametrize("text", JUNK + JUNK_MS, ids=named)
@pytest.mark.parametrize("maximum", [None, 5])
def test_junk_is_no_number_of_milliseconds(text, maximum):
    """P1, case A86."""
    with pytest.raises(ValueError, match=r"^text must be .* like '1500', not ") as caught:
        from_milliseconds(text, maximum=maximum, clock=ForbiddenClock())
    assert_is_one_line(caught.value)


def assert_is_one_line(error):
    """What a stranger wrote neither fills a log nor begins a line of its own there."""
    assert len(str(error)) < 220
    assert str(error).isprintable()


def test_junk_of_any_size_costs_nothing():
    """P1: it is neither computed with nor shown whole."""
    text = "9" * 4_000_000
    tracemalloc.start()
    try:
        for read in READERS:
            with pytest.raises(ValueError, match="like '1500"):
                read(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [5, 1.5, True, math.nan, bytearray(b"1m"), ["1m"], timedelta(1)])
def test_what_is_no_text_is_refused(text):
    """P1, case A86."""
    readers = [(read, {"clock": ForbiddenClock()}) for read in READERS] + [(from_retry_after, {})]
    for read, more in readers:
        with pytest.raises(TypeError, match=r"^text must be .* or None where .* absent, not"):
            read(text, **more)


@pytest.mark.parametrize("read", READERS)
def test_an_absent_text_means_no_deadline_of_the_sender(read):
    """P1: the receiver's own maximum stays."""
    clock = FakeClock()
    assert read(None, clock=clock) == Deadline.never(clock=clock)
    assert read(None, maximum=5, clock=clock).remaining() == 5.0
    # Nothing came, so nothing was on the way.
    assert read(None, maximum=5, transit=1, clock=clock).remaining() == 5.0
    assert read(None).clock is Deadline.never().clock


@pytest.mark.parametrize(("read", "text"), [(from_grpc_timeout, "2S"), (from_milliseconds, "2000")])
def test_what_is_read_is_at_most_the_maximum_and_less_the_transit(read, text):
    """P1: the sender can shorten, never lengthen."""
    clock = FakeClock(3)
    assert read(text, maximum=5, clock=clock).remaining() == 2.0
    assert read(text, maximum=1.5, clock=clock).remaining() == 1.5
    assert read(text, maximum=1e-12, clock=clock).remaining() <= 1e-12
    assert read(text, transit=0.5, clock=clock).remaining() == 1.5
    assert read(text, transit=0.5, maximum=1.75, clock=clock).remaining() == 1.5
    for transit in (2, 2.5, 1e300):
        assert read(text, transit=transit, clock=clock).expired()
        assert read(text, transit=transit, clock=clock).remaining() == 0.0
        with pytest.raises(DeadlineExceeded, match=r"the deadline of 0 s was reached$"):
            read(text, transit=transit, clock=clock).check()


@pytest.mark.parametrize(("read", "text"), [(from_grpc_timeout, "2S"), (from_milliseconds, "2000")])
def test_a_deadline_that_came_is_one_like_any_other(read, text):
    """P1, D6, D9: on the receiver's clock, with the receiver's stop; an expiry names its size."""
    clock = FakeClock(3)
    stop = StopSignal(clock=clock)
    deadline = read(text, clock=clock, stop=stop)
    assert deadline.stop is stop
    assert deadline.clock is clock
    assert deadline == Deadline.at(5, clock=clock, stop=stop)
    assert read(None, clock=clock, stop=stop).stop is stop
    clock.advance(2)
    with pytest.raises(DeadlineExceeded, match=r"^work: the deadline of 2 s was reached$"):
        deadline.check("work")


@pytest.mark.parametrize("text", ["1", "1m", None])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"maximum": 0}, ValueError, "maximum must be more than 0"),
        ({"maximum": -1}, ValueError, "maximum must not be negative"),
        ({"maximum": math.inf}, ValueError, "maximum must be finite"),
        ({"maximum": "5"}, TypeError, "maximum must be a number of seconds"),
        ({"transit": -1}, ValueError, "transit must not be negative"),
        ({"transit": math.nan}, ValueError, "transit must be a number of seconds, not NaN"),
        ({"transit": None}, TypeError, "transit must be a number of seconds"),
        ({"clock": WallClock()}, TypeError, "use Expiry"),
        ({"stop": "now"}, TypeError, "stop must be"),
    ],
)
def test_a_wrong_argument_of_a_reader_is_named(text, wrong, error, message):
    """P1, N1."""
    read = from_grpc_timeout if text == "1m" else from_milliseconds
    with pytest.raises(error, match=message):
        read(text, **({"clock": ForbiddenClock()} | wrong))


@pytest.mark.parametrize("send", SENDERS)
def test_a_wrong_argument_of_a_sender_is_named(send):
    """P1, N1."""
    with pytest.raises(TypeError, match=r"deadline must be a Deadline.*Deadline\.after\(2"):
        send(2.0)
    never = Deadline.never(clock=ForbiddenClock())
    with pytest.raises(ValueError, match="transit must not be negative"):
        send(never, transit=-1)
    with pytest.raises(TypeError, match="transit must be a number"):
        send(never, transit=None)


# ---------------------------------------------------------------- both ends


@pytest.mark.parametrize(("send", "read"), PAIRS)
@pytest.mark.parametrize("years", [-1, 1])
def test_a_wall_clock_that_is_a_year_off_changes_nothing(send, read, years):
    """P1, case A85: no wall clock is read on either side, and the steady ones need not agree."""
    here = FakeClock(5, wall_start=NOW + timedelta(days=365 * years))
    there = FakeClock(123_456, wall_start=NOW)
    sent = send(here.deadline(2))
    here.step_wall(365 * 86_400 * years)
    assert read(sent, clock=there).remaining() == 2.0


@pytest.mark.parametrize(("send", "read"), PAIRS)
def test_each_hop_has_at_most_what_the_one_before_it_had(send, read):
    """P1: down a chain of processes, each with a clock of its own."""
    deadline = FakeClock().deadline(2.0000009)
    for hop in range(1, 6):
        clock = FakeClock(1000 * hop)
        passed = read(send(deadline), transit=0.01, clock=clock)
        assert 0 < passed.remaining() <= deadline.remaining() - 0.01 + 1e-12
        clock.advance(0.1)
        deadline = passed


def test_a_pickled_deadline_points_here():
    """D5."""
    with pytest.raises(TypeError, match=r"timebounds\.wire") as caught:
        pickle.dumps(FakeClock().deadline(1))
    assert "timebounds.wire.to_milliseconds(deadline)" in str(caught.value)
    assert "from_milliseconds" in str(caught.value)


def test_its_names_are_its_own():
    """P1: five functions of this module, none of them in the facade."""
    assert wire.__all__ == sorted(wire.__all__)
    assert set(wire.__all__) == {each.__name__ for each in [*SENDERS, *READERS, from_retry_after]}
    assert not set(wire.__all__) & set(dir(sys.modules["timebounds"]))
    assert all(getattr(wire, name).__doc__ for name in wire.__all__)


# ---------------------------------------------------------------- Retry-After


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7\t", 7.0),
        (b"7", 7.0),
        ("Thu, 01 Jan 2026 00:01:30 GMT", 90.0),
        ("Wed, 31 Dec 2025 23:59:59 GMT", 0.0),
        (None, None),
    ],
)
def test_a_retry_after_is_read_in_seconds(text, seconds):
    """P1, A5: a date is compared with the wall clock, since it was written from one."""
    assert from_retry_after(text, wall=FakeClock(wall_start=NOW).wall) == seconds


def test_a_retry_after_is_at_most_the_maximum():
    """P1: and finite without one."""
    assert from_retry_after("120", maximum=30) == 30.0
    assert from_retry_after("120", maximum=timedelta(hours=1)) == 120.0
    assert from_retry_after("1", maximum=0.1) == 0.1
    assert 1e17 < from_retry_after("9" * 5000) < math.inf
    assert Deadline.after(from_retry_after("9" * 5000), clock=FakeClock()).remaining() > 0


@pytest.mark.parametrize(
    "text",
    [
        *JUNK,
        "soon",
        "7s",
        "\n7",
        "Thu, 01 Jan ２０２６ 00:00:02 GMT",
        "Thu,\xa001 Jan 2026 00:00:02",
    ],
    ids=named,
)
def test_junk_is_no_retry_after(text):
    """P1, case A86; digits without end alone are a size, and saturate."""
    if text == "9" * 5000:
        return
    with pytest.raises(ValueError, match=r"^text must be .* like '120' .* not ") as caught:
        from_retry_after(text, maximum=5, wall=FakeClock(wall_start=NOW).wall)
    assert_is_one_line(caught.value)


def test_a_wrong_argument_of_from_retry_after_is_named():
    """P1, N1: with an absent text too."""
    for text in ("120", None):
        with pytest.raises(ValueError, match="maximum must be more than 0"):
            from_retry_after(text, maximum=0)
        with pytest.raises(TypeError, match="must be a wall clock"):
            from_retry_after(text, wall=FakeClock())
