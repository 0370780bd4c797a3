"""The domain: what is a breach, and what is said of it.

It knows no clock, no thread, no socket and no queue: the same reading gives the same alert, at any
time, on any machine. Everything that knows them is in the other files.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Reading:
    """What a sensor said, and when."""

    sensor: str
    value: float
    at: datetime

    def __post_init__(self) -> None:
        if self.at.utcoffset() is None:
            msg = f"at must be aware, {self.at!r} has no time zone: write datetime.now(UTC)"
            raise ValueError(msg)


@dataclass(frozen=True)
class Alert:
    """A breach that somebody should know of. Its key is the breach's own."""

    key: str
    text: str


@dataclass(frozen=True)
class Rule:
    """What a sensor may say."""

    sensor: str
    limit: float

    def judge(self, reading: Reading) -> Alert | None:
        """Return the alert that a reading is, if it is one."""
        if reading.sensor != self.sensor or reading.value <= self.limit:
            return None
        at = reading.at.astimezone(UTC).isoformat()
        text = f"{self.sensor} is at {reading.value:g}, more than {self.limit:g}"
        return Alert(f"{self.sensor}@{at}", text)
