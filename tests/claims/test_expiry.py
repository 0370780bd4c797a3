"""D7, C2 and C3: validity on the calendar."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from timebounds import MONOTONIC, WALL, Clock, ClockError, Expiry
from timebounds.testing import FakeClock


class Calendar(Clock):
    """A wall clock that says what the test says."""

    def __init__(self, now):
        self.reading = now

    def now(self):
        return self.reading


def test_at_the_instant_it_is_stale():
    """D7, case A78."""
    clock = FakeClock()
    expiry = Expiry.after(1, clock=clock.wall)
    clock.advance(0.999999)
    assert expiry.fresh()
    assert expiry.remaining() == 1e-6
    clock.advance(1e-6)
    assert expiry.stale()
    assert not expiry.fresh()
    assert expiry.remaining() == 0.0
    assert Expiry.after(0, clock=clock.wall).stale()


def test_it_follows_the_steps_of_the_wall_and_a_deadline_does_not():
    """C3, case A25."""
    clock = FakeClock()
    expiry, deadline = Expiry.after(10, clock=clock.wall), clock.deadline(10)
    clock.step_wall(3600)
    assert expiry.stale()
    assert deadline.remaining() == 10.0
    clock.step_wall(-7200)
    assert expiry.remaining() == 3610.0
    assert deadline.remaining() == 10.0


def test_a_naive_datetime_is_refused():
    """C2, case A29: guessing its zone made expired tokens valid."""
    with pytest.raises(ValueError, match=r"no time zone.*datetime\.now\(UTC\)"):
        Expiry.at(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="instant must be an aware datetime"):
        Expiry.at(0)


def test_arithmetic_goes_through_utc():
    """D7, case A29: a Berlin day over the autumn change counts 25 hours."""
    berlin = ZoneInfo("Europe/Berlin")
    clock = Calendar(datetime(2025, 10, 26, tzinfo=berlin))
    expiry = Expiry.at(datetime(2025, 10, 27, tzinfo=berlin), clock=clock)
    assert expiry.remaining() == 25 * 3600
    assert expiry.at_utc == datetime(2025, 10, 26, 23, tzinfo=UTC)
    assert expiry.at_utc.tzinfo is UTC


def test_the_zone_of_the_process_changes_nothing(monkeypatch):
    """Case A29: under TZ=Europe/Berlin ten seconds are ten."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    now = datetime.now(UTC)
    assert 9 < Expiry.at(now + timedelta(seconds=10)).remaining() <= 10


def test_a_steady_clock_is_refused():
    """C2."""
    for clock in (MONOTONIC, FakeClock()):
        for make in (lambda c: Expiry.after(1, clock=c), lambda c: Expiry.at(WALL.now(), clock=c)):
            with pytest.raises(TypeError, match="use Deadline"):
                make(clock)
    with pytest.raises(TypeError, match="wall clock"):
        Expiry.after(1, clock=None)


@pytest.mark.parametrize("reading", [datetime(2026, 1, 1), 0.0, None])  # noqa: DTZ001
def test_a_wall_clock_that_returns_no_aware_datetime_is_an_error(reading):
    """C1, C4."""
    with pytest.raises(ClockError, match="not an aware datetime"):
        Expiry.after(1, clock=Calendar(reading))


def test_it_saturates_at_the_ends_of_the_calendar():
    """N3."""
    latest = datetime.max.replace(tzinfo=UTC)
    # A float would not tell these apart.
    for part in range(40):
        wall = Calendar(datetime(2000, 1, 1, 0, 0, 0, part, tzinfo=UTC))
        for more in (0, 1):
            beyond = latest - wall.reading + timedelta(microseconds=more)
            assert Expiry.after(beyond, clock=wall).at_utc == latest
    assert Expiry.after(1e15).at_utc == latest
    clock = Calendar(datetime(2000, 1, 1, tzinfo=UTC))
    assert Expiry.after(timedelta(days=2_000_000), clock=clock).at_utc == datetime(
        7475, 10, 25, tzinfo=UTC
    )
    west, east = timezone(-timedelta(hours=5)), timezone(timedelta(hours=5))
    assert Expiry.at(datetime.max.replace(tzinfo=west)).at_utc.year == 9999
    assert Expiry.at(datetime.min.replace(tzinfo=east)).stale()


def test_validity_is_never_cut_short_by_rounding():
    """N5."""
    clock = FakeClock()
    assert Expiry.after(1e-9, clock=clock.wall).fresh()


def test_it_is_a_value_that_may_be_stored():
    """D7, case A28."""
    expiry = Expiry.after(60)
    copy = pickle.loads(pickle.dumps(Expiry.at(expiry.at_utc)))
    assert copy == expiry
    later = Expiry.after(3600)
    assert hash(copy) == hash(expiry) != hash(later)
    assert not expiry < copy
    assert expiry != later
    assert copy.fresh()
    assert expiry <= copy < later
    assert expiry != "soon"
    assert "on WallClock()" in repr(expiry)
    for compare in (lambda: expiry < 1, lambda: expiry <= 1):
        with pytest.raises(TypeError):
            compare()
    with pytest.raises(AttributeError, match="never changes"):
        expiry.at_utc = None
    with pytest.raises(AttributeError):
        del expiry.at_utc
    with pytest.raises(TypeError, match=r"fresh\(\)"):
        bool(expiry)
    with pytest.raises(TypeError, match=r"Expiry\.after"):
        Expiry(60)
