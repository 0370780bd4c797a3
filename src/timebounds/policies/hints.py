"""What a server says about when to come back: `Retry-After`, in seconds or as an HTTP date.

Rules (A5 of the contracts): a hint is read strictly, never lengthens a budget (that is the plan's
part), and a malformed one is None: to be ignored or to stop, as the policy declares. A date is
compared with the wall clock, since that is what the server wrote it from.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from timebounds._checks import FAR_NS, NS, nanoseconds

if TYPE_CHECKING:
    from timebounds.bounds.clock import Clock

__all__: list[str] = []

# More digits than any wait has that anybody could mean.
_DIGITS = 18


def read_hint(said: object, wall: Clock[datetime]) -> int | None:
    """Return the hint in ns from now, at least 0; None when it is malformed.

    Takes seconds (int, float, timedelta), an aware datetime, or the text of a Retry-After header.
    """
    try:
        if isinstance(said, str):
            return _read_text(said.strip(" \t"), wall)
        if isinstance(said, datetime):
            return None if said.utcoffset() is None else _until(said, wall)
        return nanoseconds(said, "hint")
    except Exception:  # noqa: BLE001  (a stranger's word, and a stranger's time zone)
        return None


def _read_text(text: str, wall: Clock[datetime]) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text) * NS if len(text) <= _DIGITS else FAR_NS
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  (few calls ever see a date)

    date = parsedate_to_datetime(text)
    # HTTP dates are in GMT, whether they say so or not.
    return _until(date if date.utcoffset() is not None else date.replace(tzinfo=UTC), wall)


def _until(instant: datetime, wall: Clock[datetime]) -> int:
    left = (instant - wall.now()) // timedelta(microseconds=1)
    return max(0, left) * 1000
