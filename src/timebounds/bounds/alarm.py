"""Alarms: a function that a loop calls when a clock says so.

Rules: never before its clock says so, at most once; a loop on fake time has no alarms of real time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from timebounds._checks import NS, running_loop
from timebounds.errors import ClockError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Alarm"]


class Alarm(Protocol):
    """What `SteadyClock.alarm` returns."""

    def cancel(self) -> object:
        """Call it off, if it has not gone off."""
        ...


@final
class LoopAlarm:
    """An alarm by the timers of the running loop, which looks at the clock before it goes off."""

    __slots__ = ("_at", "_handle", "_longest", "_loop", "_read", "_wake")

    def __init__(
        self, read: Callable[[], int], ns: int, longest: int, wake: Callable[[], object]
    ) -> None:
        self._read = read
        self._at = self._read() + ns
        self._wake = wake
        self._loop = running_loop()
        self._longest = longest
        self._handle = self._loop.call_later(min(ns, self._longest) / NS, self._look)

    def _look(self) -> None:
        left = self._at - self._read()
        if left > 0:
            self._handle = self._loop.call_later(min(left, self._longest) / NS, self._look)
        else:
            self._wake()

    def cancel(self) -> None:
        """Call it off."""
        self._handle.cancel()


def refuse_fake_loop(clock: object, loop: object) -> None:
    """Raise ClockError when a loop runs on fake time and this clock does not."""
    fake = getattr(loop, "timebounds_clock", None)
    if fake is not None:
        msg = f"the loop runs on {fake!r} and this wait is on {clock!r}: use clock.deadline(...)"
        raise ClockError(msg)
