"""One validator for each kind of argument: what is wrong is said before anything is touched.

Rules (N1-N7 of the contracts):
- Seconds are int, float or timedelta; bool, NaN, infinities, negatives and strings are refused.
- Inside, durations are whole nanoseconds. A remainder below one becomes 1 ns, never 0, and
  what is larger than `FAR_NS` saturates, so that no size overflows.
- Zero means "already due"; where that could never work, the caller passes `positive=True`.
- Counts are ints, and a bool is not an int.

Nothing here reads a clock, and nothing of ours is imported.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from math import inf, isnan
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from enum import Enum

# How every public door takes a duration.
Seconds = int | float | timedelta

NS = 1_000_000_000
# Forty thousand billion years: later than any instant that matters, earlier than "never".
FAR_NS = 1 << 100

_EnumT = TypeVar("_EnumT", bound="Enum")


def shown(value: object) -> str:
    """Return a value's repr, cut to a line; for what refuses one, its class."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001  (an error text must not fail itself)
        return f"<{type(value).__name__}>"


def nanoseconds(value: object, name: str, *, positive: bool = False) -> int:
    """Turn seconds (int, float or timedelta) into whole nanoseconds, rounded to the nearest.

    Raises:
        TypeError: not a number of seconds; the message names `name`.
        ValueError: NaN, infinite, negative, or zero where `positive` is asked for.
    """
    if isinstance(value, timedelta):
        ns = ((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) * 1_000
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        given = f"{type(value).__name__} {shown(value)}"
        msg = f"{name} must be a number of seconds (int, float or timedelta), not {given}"
        raise TypeError(msg)
    elif isinstance(value, int):
        ns = value * NS
    elif isnan(value):
        msg = f"{name} must be a number of seconds, not NaN"
        raise ValueError(msg)
    elif value == inf:
        msg = (
            f"{name} must be finite: for no limit write Deadline.never() or None where that is "
            "documented, and other.within(seconds) to shorten another deadline"
        )
        raise ValueError(msg)
    else:
        # Past 2**100 ns a float has no digits to lose, and value * 1e9 could become infinite.
        ns = round(value * 1e9) if -1e30 < value < 1e30 else FAR_NS if value > 0 else -FAR_NS
        if ns == 0 and value != 0:
            ns = 1 if value > 0 else -1
    if ns < 0:
        msg = f"{name} must not be negative, not {shown(value)}"
        raise ValueError(msg)
    if ns == 0 and positive:
        msg = (
            f"{name} must be more than 0: zero could never work, and no limit is None where allowed"
        )
        raise ValueError(msg)
    return min(ns, FAR_NS)


def signed_nanoseconds(value: object, name: str) -> int:
    """Do as `nanoseconds`, for a step that may lead backwards."""
    if isinstance(value, timedelta) and value < timedelta(0):
        return -nanoseconds(-value, name)
    if isinstance(value, (int, float)) and value < 0:
        return -nanoseconds(-value, name)
    return nanoseconds(value, name)


def patience(value: object, name: str) -> float:
    """Return real seconds for a wait that only guards a test: at most a day."""
    return min(nanoseconds(value, name, positive=True), 86_400 * NS) / NS


def count(value: object, name: str, *, minimum: int = 0) -> int:
    """Return `value` when it is an int from `minimum` to `sys.maxsize`; a bool is not an int."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        msg = f"{name} must be an int, not {type(value).__name__} {shown(value)}"
        raise TypeError(msg)
    if value < minimum:
        msg = f"{name} must be at least {minimum}, not {shown(value)}"
        raise ValueError(msg)
    if value > sys.maxsize:
        msg = f"{name} must be at most sys.maxsize"
        raise ValueError(msg)
    return value


def number(value: object, name: str, *, minimum: float) -> float:
    """Return a finite float of at least `minimum` (for factors; seconds go elsewhere)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        msg = f"{name} must be a number, not {type(value).__name__} {shown(value)}"
        raise TypeError(msg)
    if not minimum <= value < inf:
        msg = f"{name} must be finite and at least {minimum}, not {shown(value)}"
        raise ValueError(msg)
    # An int beyond every float is finite all the same.
    return float(min(value, sys.float_info.max))


def member(value: object, name: str, kind: type[_EnumT]) -> _EnumT:
    """Return `value` when it is a member of the enum `kind`."""
    if not isinstance(value, kind):
        choices = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
        msg = f"{name} must be one of {choices}, not {shown(value)}"
        raise TypeError(msg)
    return value


def writable(value: object, name: str) -> memoryview:
    """Return the writable, contiguous buffer as a view of single bytes."""
    try:
        view = memoryview(cast("bytearray", value))
    except TypeError:
        given = f"{type(value).__name__} {shown(value)}"
        msg = f"{name} must be a writable buffer such as bytearray(1024), not {given}"
        raise TypeError(msg) from None
    if view.readonly or not view.c_contiguous:
        msg = f"{name} must be writable and contiguous, such as bytearray(1024)"
        raise TypeError(msg)
    return view.cast("B")


def readable(value: object, name: str) -> memoryview:
    """Return the contiguous buffer as a view of single bytes."""
    try:
        view = memoryview(cast("bytes", value))
    except TypeError:
        given = f"{type(value).__name__} {shown(value)}"
        msg = f"{name} must be bytes or a buffer of bytes, not {given}"
        if isinstance(value, str):
            msg += ": write text.encode()"
        raise TypeError(msg) from None
    if not view.c_contiguous:
        msg = f"{name} must be contiguous: write bytes({name})"
        raise TypeError(msg)
    return view.cast("B") if view else memoryview(b"")


def as_delimiter(value: object, name: str) -> bytes:
    """Return the non-empty delimiter as bytes."""
    if not isinstance(value, (bytes, bytearray)):
        msg = f"{name} must be bytes such as b'\\n', not {type(value).__name__} {shown(value)}"
        raise TypeError(msg)
    mark = bytes(value)
    if not mark:
        msg = f"{name} must not be empty: every position would match; write b'\\n' for lines"
        raise ValueError(msg)
    return mark


class blocking_allowed:  # noqa: N801  (a context manager reads like a function)
    """Permit blocking doors inside this block, on this thread, although an event loop runs on it.

    Without it a blocking call on a loop's thread raises `RuntimeError` at once, since it would
    stall every task of the loop. Notebooks run a loop in the main thread and have nothing to
    stall: there this block is the right thing. It bounds nothing and may be nested. Each block
    belongs to the thread that entered it.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Enter: blocking doors work until the matching exit."""
        _permits.depth += 1

    def __exit__(self, *exc_info: object) -> None:
        """Leave: the rule of before holds again."""
        if not _permits.depth:
            msg = "blocking_allowed was left on a thread that had not entered it"
            raise RuntimeError(msg)
        _permits.depth -= 1


class _Permits(local):
    depth = 0


_permits = _Permits()


def running_loop() -> Any:
    """Return the event loop that runs on this thread; it has loaded asyncio itself."""
    return sys.modules["asyncio.events"].get_running_loop()


def no_deadline(value: object) -> TypeError:
    """Return the error for a deadline that is none; it shows the right line."""
    number = shown(value) if type(value) in (int, float) else "2.0"
    given = f"{type(value).__name__} {shown(value)}"
    msg = f"deadline must be a Deadline, not {given}: write Deadline.after({number})"
    return TypeError(msg)


def loop_runs_here() -> bool:
    """Say whether an event loop runs on this thread."""
    events = sys.modules.get("asyncio.events")
    # asyncio can be half imported by another thread, and then no loop of this thread runs either.
    running = getattr(events, "_get_running_loop", None)
    return running is not None and running() is not None


def refuse_second_loop(what: str) -> None:
    """Raise RuntimeError when an event loop runs on this thread already: it can have only one."""
    if loop_runs_here():
        msg = f"{what} needs an event loop of its own, and one runs on this thread: `await` it here"
        raise RuntimeError(msg)


def refuse_on_loop_thread(what: str, twin: str) -> None:
    """Raise RuntimeError when an event loop runs on this thread and nobody allowed blocking.

    `twin` is what a task uses instead. Looks asyncio up instead of importing it: where it is not
    loaded, no loop can run.
    """
    if loop_runs_here() and not _permits.depth:
        msg = (
            f"{what} blocks, and an event loop runs on this thread: use {twin}, call it in another "
            "thread (offload), or `with blocking_allowed():` where nothing else needs the loop"
        )
        raise RuntimeError(msg)
