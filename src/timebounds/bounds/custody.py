"""Custody: who may close what, and when.

Rules (O1, O9, O12 of the contracts):
- Nothing is closed while somebody is inside with it. What several share is closed, once, by whoever
  leaves last after the end was said; in a thread, since closing may block.
- A release may run only while its user is inside: leaving waits for one that is under way, and none
  begins afterwards.
- An error of one part of the clean-up is kept, and the next part is done all the same.

No lock: who stores looks afterwards, and one `dict.setdefault` decides who closes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, final

from timebounds._checks import shown
from timebounds.bounds._threads import CARE

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.stop import Registration, StopSignal

__all__: list[str] = []

_MOMENT = 0.0005


class Inside(Protocol):
    """Who uses what is in custody."""

    stop: StopSignal
    errors: list[BaseException]
    released: int | None
    returned: int | None

    @property
    def given_up(self) -> bool:
        """Whether whoever waited for it has left."""
        ...

    def now(self) -> int:
        """Read the clock of its deadline."""
        ...


@final
class Custody:
    """Resources that several errands share, and who is inside with them.

    `closers` are called in reverse order, once each, when `closing` has begun and nobody is inside.
    """

    __slots__ = (
        "_closer", "_now", "closed", "closers", "closing", "done", "errors", "inside", "on_closed",
    )  # fmt: skip

    closers: list[Callable[[], object]]
    closing: bool
    done: bool
    # Set before the end can come; not a method of the owner's, which would be a cycle.
    on_closed: Callable[[], object]

    def __init__(self, closers: list[Callable[[], object]]) -> None:
        self.closers = closers
        self.inside: dict[Inside, None] = {}
        self.closing = False
        self.done = False
        self.errors: list[BaseException] = []
        self._closer: dict[str, object] = {}
        self.closed: int | None = None
        self._now: Callable[[], int] | None = None

    def enter(self, inside: Inside) -> None:
        """Take one in, before it can start."""
        self._now = inside.now
        self.inside[inside] = None

    def leave(self, inside: Inside, *, here: bool) -> None:
        """Take the leave of one that was inside; the last one closes, `here` or in a thread."""
        self.inside.pop(inside, None)
        if self.closing:
            self.end(here=here)

    def end(self, *, here: bool = False) -> None:
        """Begin to close: if nobody is inside, in a thread or `here`; else whoever leaves last."""
        self.closing = True
        if self.inside or self.done:
            return
        if here or not self.closers:
            self.close()
            return
        try:
            CARE.submit(self.close)
        except RuntimeError:
            # No thread is to be had: better here than never.
            self.close()

    def close(self) -> None:
        """Close everything, once."""
        me = object()
        if self._closer.setdefault("me", me) is not me:
            return
        if self.closers:
            close_all(self.closers, self.errors)
            self.closed = None if self._now is None else self._now()
        self._now = None  # the last one's: a cycle
        self.done = True
        self.on_closed()


def close_all(closers: list[Callable[[], object]], errors: list[BaseException]) -> None:
    """Call the closers, last in, first out; keep what they raise."""
    while closers:
        attempt(closers.pop(), errors)


def attempt(fn: Callable[[], object], errors: list[BaseException]) -> None:
    """Call a part of the clean-up, in a thread; keep what it raises, the next one is called too."""
    try:
        fn()
    except BaseException as error:  # noqa: BLE001  (reported together, at the end)
        errors.append(error)


@final
class Releasing:
    """Inside it a stop calls `wake`, at most once; leaving it waits for a call under way."""

    __slots__ = ("_inside", "_registration", "_wake")

    _registration: Registration | None

    def __init__(self, inside: Inside, wake: Callable[[], object]) -> None:
        if not callable(wake):
            msg = f"wake must be a function without arguments, not {shown(wake)}"
            raise TypeError(msg)
        self._inside = inside
        self._wake = wake
        self._registration = None

    def __enter__(self) -> None:
        """Let a stop call it, at once if there was one."""
        if self._inside.returned is not None:
            msg = "the job has returned: what it used is closed, or somebody else's by now"
            raise RuntimeError(msg)
        if self._registration is not None:
            msg = "a releasing block is entered once: call job.releasing(wake) again"
            raise RuntimeError(msg)
        self._registration = self._inside.stop.on_request(self._release)

    def __exit__(self, *exc_info: object) -> None:
        """Let a stop call it no more."""
        # Until a call under way is over, what it uses must stay. Asked now and then instead of
        # being told: the other thread may be interrupted at any moment, and the call is short.
        assert self._registration is not None
        while not self._registration.remove():
            threading.Event().wait(_MOMENT)

    def _release(self) -> None:
        inside = self._inside
        if inside.released is None:
            inside.released = inside.now()
        try:
            self._wake()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (reported at the end, with the others)
            inside.errors.append(error)
