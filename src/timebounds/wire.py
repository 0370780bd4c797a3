"""Remaining time across a process boundary: what a header, an argument or a message can carry.

Rules (P1, D5 of the contracts):
- What crosses is time left, never an instant: two processes share no steady clock, and wall clocks
  are set, by a year at times.
- Every step rounds down. Nobody gets more than the sender had, and what is less than one unit is
  not sent at all: it raises, as an expired deadline does.
- Absent means that the sender has no deadline. Zero means expired. What is malformed is an error,
  and never "no limit": a stranger cannot remove the limit, nor lengthen the receiver's `maximum`.
- `transit`, an allowance for the way, is deducted at either end, never added.

What must not live here: arithmetic of deadlines, clocks, headers' names, any transport.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from timebounds._checks import NS, nanoseconds, shown
from timebounds.bounds.clock import MONOTONIC, WALL
from timebounds.bounds.deadline import Deadline, as_deadline, capped, left_ns
from timebounds.bounds.expiry import wall_clock
from timebounds.errors import DeadlineExceeded
from timebounds.policies.hints import read_hint

if TYPE_CHECKING:
    from datetime import datetime

    from timebounds._checks import Seconds
    from timebounds.bounds.clock import Clock, SteadyClock
    from timebounds.bounds.stop import StopSignal

__all__ = [
    "from_grpc_timeout",
    "from_milliseconds",
    "from_retry_after",
    "to_grpc_timeout",
    "to_milliseconds",
]

_MS = 1_000_000
# In nanoseconds, the finest first.
_UNITS = {"n": 1, "u": 1_000, "m": _MS, "S": NS, "M": 60 * NS, "H": 3600 * NS}
_MOST_GRPC = 10**8 - 1
# More than 30,000 years, and a whole number for every reader that keeps numbers in a double.
_MOST_MS = 10**15 - 1

_grpc_timeout = re.compile("([0-9]{1,8})([numSMH])").fullmatch
_milliseconds = re.compile("[0-9]{1,15}").fullmatch

_GRPC_FORM = "a gRPC timeout, 1 to 8 digits and one of H M S m u n, like '1500m'"
_MS_FORM = "whole milliseconds, 1 to 15 digits, like '1500'"
_RETRY_FORM = "whole seconds like '120' or a date like 'Thu, 01 Jan 2026 00:00:00 GMT'"


def to_grpc_timeout(deadline: Deadline, *, transit: Seconds = 0) -> str | None:
    """Return the time left for the header `grpc-timeout`, in the finest unit that fits.

    Rounded down, by less than a thousandth of a percent. None for a deadline that never comes:
    send no header then. `transit` seconds are taken off for the way.

    Raises:
        DeadlineExceeded: it has passed, or less than 1 ns is left after `transit`.
        StopRequested: its stop signal was requested.
    """
    left = _to_send(deadline, transit, 1, "ns", "to_grpc_timeout")
    if left is None:
        return None
    for unit, ns in _UNITS.items():
        if left // ns <= _MOST_GRPC:
            return f"{left // ns}{unit}"
    return f"{_MOST_GRPC}H"


def from_grpc_timeout(
    text: str | bytes | None,
    *,
    maximum: Seconds | None = None,
    transit: Seconds = 0,
    clock: SteadyClock = MONOTONIC,
    stop: StopSignal | None = None,
) -> Deadline:
    """Return the deadline that a `grpc-timeout` header gives, from now on `clock`.

    None, an absent header, means that the sender set none: the result is `maximum` seconds from
    now, or never without one. A text of 0 means expired. `transit` seconds are taken off for the
    way, and the result is at most `maximum` seconds. It also ends by `stop`, which is yours.

    Raises ValueError for anything malformed, and TypeError for what is no text.
    """
    if text is None:
        return _received(None, maximum, transit, clock, stop)
    match = _grpc_timeout(_text(text, _GRPC_FORM))
    if match is None:
        raise _malformed(text, _GRPC_FORM)
    return _received(int(match[1]) * _UNITS[match[2]], maximum, transit, clock, stop)


def to_milliseconds(deadline: Deadline, *, transit: Seconds = 0) -> str | None:
    """Return the time left in whole milliseconds, for a header or an argument of your own.

    Rounded down; at most 15 digits. None for a deadline that never comes: send nothing then.
    `transit` seconds are taken off for the way.

    Raises:
        DeadlineExceeded: it has passed, or less than 1 ms is left after `transit`.
        StopRequested: its stop signal was requested.
    """
    left = _to_send(deadline, transit, _MS, "ms", "to_milliseconds")
    return None if left is None else str(min(left // _MS, _MOST_MS))


def from_milliseconds(
    text: str | bytes | None,
    *,
    maximum: Seconds | None = None,
    transit: Seconds = 0,
    clock: SteadyClock = MONOTONIC,
    stop: StopSignal | None = None,
) -> Deadline:
    """Return the deadline that whole milliseconds give, from now on `clock`.

    None, nothing sent, means that the sender set none: the result is `maximum` seconds from now,
    or never without one. A text of 0 means expired. `transit` seconds are taken off for the way,
    and the result is at most `maximum` seconds. It also ends by `stop`, which is yours.

    Raises ValueError for anything malformed, and TypeError for what is no text.
    """
    if text is None:
        return _received(None, maximum, transit, clock, stop)
    if _milliseconds(_text(text, _MS_FORM)) is None:
        raise _malformed(text, _MS_FORM)
    return _received(int(text) * _MS, maximum, transit, clock, stop)


def from_retry_after(
    text: str | bytes | None,
    *,
    maximum: Seconds | None = None,
    wall: Clock[datetime] = WALL,
) -> float | None:
    """Return how many seconds a `Retry-After` header asks to wait: at least 0, at most `maximum`.

    None for an absent header. A date is compared with `wall`, since a wall clock wrote it. It is
    the least time to wait and no deadline: `deadline.remaining()` says whether it is worth it.

    Raises ValueError for anything malformed, and TypeError for what is no text.
    """
    wall_clock(wall)
    most = None if maximum is None else nanoseconds(maximum, "maximum", positive=True)
    if text is None:
        return None
    said = _text(text, _RETRY_FORM)
    # The reader of dates takes other scripts' digits and blanks.
    ns = read_hint(said, wall) if said.isascii() else None
    if ns is None:
        raise _malformed(text, _RETRY_FORM)
    return (ns if most is None else min(ns, most)) / NS


def _to_send(deadline: Deadline, transit: Seconds, unit: int, name: str, what: str) -> int | None:
    """Return the ns to send, at least one `unit`; None for never."""
    as_deadline(deadline)
    allowance = nanoseconds(transit, "transit")
    deadline.check(what)
    left = left_ns(deadline)
    if left is None:
        return None
    if left - allowance < unit:
        after = f" after {allowance / NS:g} s of transit" if allowance else ""
        which = f"{left / NS:g} s of {deadline._named()}"
        msg = f"{what}: {which} are left, which{after} is no whole {name}"
        raise DeadlineExceeded(msg)
    return left - allowance


def _received(
    sent: int | None,
    maximum: Seconds | None,
    transit: Seconds,
    clock: SteadyClock,
    stop: StopSignal | None,
) -> Deadline:
    allowance = nanoseconds(transit, "transit")
    deadline = Deadline.never(clock=clock, stop=stop)
    if maximum is not None:
        nanoseconds(maximum, "maximum", positive=True)
        deadline = deadline.within(maximum)
    if sent is None:
        return deadline
    left = max(0, sent - allowance)
    return capped(deadline, left, left / NS, deadline._now())


def _text(value: object, form: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        # No reader takes the characters that this makes of other bytes.
        return value.decode("ascii", "replace")
    given = f"{type(value).__name__} {shown(value)}"
    msg = f"text must be {form}, as str or bytes, or None where it is absent, not {given}"
    raise TypeError(msg)


def _malformed(text: str | bytes, form: str) -> ValueError:
    # Cut before it is shown: it may be of any size.
    return ValueError(f"text must be {form}, not {shown(text[:80])}")
