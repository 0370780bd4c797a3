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

    It goes off at once when the clock fails or goes back; `error` then says so.
    """

    __slots__ = ("_at", "_handle", "_longest", "_loop", "_read", "_seen", "_wake", "error")

    error: Exception | None

    def __init__(
        self,
        loop: Any,
        read: Callable[[], int],
        now: int,
        at: int,
        longest: int,
        wake: Callable[[], object],
    ) -> None:
        self._read = read
        self._seen = now
        self._at = at
        self._longest = longest
        self._wake = wake
        self.error = None
        self._loop = loop
        left = at - now
        self._handle = loop.call_later((left if left < longest else longest) / NS, self._look)

    def _look(self) -> None:
        try:
            before, self._seen = self._seen, self._read()
            not_backwards(before, self._seen)
        except Exception as error:  # noqa: BLE001  (in the loop nobody could catch it)
            self.error = error
            self._wake()
            return
        left = self._at - self._seen
        if left > 0:
            self._handle = self._loop.call_later(min(left, self._longest) / NS, self._look)
        else:
            self._wake()

    def check(self) -> None:
        """Raise what the clock failed with, if it did."""
        if self.error is not None:
            raise self.error

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
