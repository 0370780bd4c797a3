"""Alarms: a function that a loop calls when a clock says so.

Rules: never before its clock says so, at most once; a loop on fake time has no alarms of real time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, final

from timebounds._checks import NS
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
    """An alarm by the timers of the running loop, which looks at the clock before it goes off.

    A clock that goes back puts it off, or sets it off at once where it is `strict`.
    """

    __slots__ = ("_at", "_handle", "_longest", "_loop", "_read", "_seen", "_strict", "_wake")

    def __init__(
        self,
        loop: Any,
        read: Callable[[], int],
        now: int,
        at: int,
        longest: int,
        wake: Callable[[], object],
        *,
        strict: bool = False,
    ) -> None:
        self._read = read
        self._seen = (now, now)
        self._at = at
        self._longest = longest
        self._wake = wake
        self._strict = strict
        self._loop = loop
        left = at - now
        self._handle = loop.call_later((left if left < longest else longest) / NS, self._look)

    def _look(self) -> None:
        before, now = self._seen[1], self._read()
        left = self._at - now
        if self._strict:
            self._seen = (before, now)
        if left > 0 and not (self._strict and now < before):
            self._handle = self._loop.call_later(min(left, self._longest) / NS, self._look)
        else:
            self._wake()

    def check(self) -> None:
        """Raise ClockError when it went off because the clock had gone back."""
        not_backwards(*self._seen)

    def cancel(self) -> None:
        """Call it off."""
        self._handle.cancel()


def not_backwards(before_ns: int, now_ns: int) -> None:
    """Raise ClockError when the second reading is earlier than the first."""
    if now_ns < before_ns:
        msg = f"the clock went backwards by {(before_ns - now_ns) / NS} s"
        raise ClockError(msg)


def refuse_fake_loop(clock: object, loop: object) -> None:
    """Raise ClockError when a loop runs on fake time and this clock does not."""
    fake = getattr(loop, "timebounds_clock", None)
    if fake is not None:
        msg = f"the loop runs on {fake!r} and this wait is on {clock!r}: use clock.deadline(...)"
        raise ClockError(msg)
