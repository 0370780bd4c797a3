"""What a server's hint is worth, in nanoseconds from now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from timebounds._checks import FAR_NS, NS
from timebounds.policies.hints import read_hint
from timebounds.testing import FakeClock

WALL = FakeClock(wall_start=datetime(2026, 1, 1, tzinfo=UTC)).wall


@pytest.mark.parametrize(
    ("said", "ns"),
    [
        ("0", 0),
        ("120", 120 * NS),
        (" \t7 ", 7 * NS),
        ("9" * 18, int("9" * 18) * NS),
        ("9" * 19, FAR_NS),
        ("9" * 5000, FAR_NS),
        (0.5, NS // 2),
        (timedelta(milliseconds=3), 3_000_000),
        (datetime(2026, 1, 1, 0, 0, 1, 500_001, tzinfo=UTC), 1_500_001_000),
        (datetime(2025, 1, 1, tzinfo=UTC), 0),
        ("Thu, 01 Jan 2026 00:00:02 GMT", 2 * NS),
        ("Thu, 01 Jan 2026 00:00:02 -0000", 2 * NS),
        ("Thu, 01 Jan 2026 01:00:03 +0100", 3 * NS),
        ("Wed, 31 Dec 2025 23:59:59 GMT", 0),
        ("\n7", None),
        ("X7X", None),
        ("", None),
        ("soon", None),
        (-1, None),
        (True, None),
        (None, None),
        (datetime(2026, 1, 1), None),  # noqa: DTZ001
    ],
)
def test_a_hint_is_read_strictly(said, ns):
    """A5."""
    got = read_hint(said, WALL)
    assert got == ns
    assert type(got) is type(ns)
