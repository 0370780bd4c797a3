"""Ownership: who may change an object, said where it is made and looked at where it is changed.

Rules (U1 of the contracts):
- One owner: the thread, the event loop, or whoever holds the lock.
- Another one's use raises and names both sides. It guards nothing by itself: it shows a mistake
  that otherwise shows once a month.
- Handing over is one explicit word, by the owner.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, final

from timebounds._checks import loop_runs_here, running_loop, shown
from timebounds.errors import NotOwner

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ownership"]


@final
class Ownership:
    """Says who may change something: `check` at the head of whatever does.

    class Basket:
        def __init__(self):
            self._owner = Ownership.thread()

        def add(self, item):
            self._owner.check("Basket.add")
            ...

    Made by `thread()`, `loop()` or `lock(lock)`. Waits for nothing, reads no clock.
    """

    __slots__ = ("_owner", "_who")

    # What tells who is at it, and who has to be; None until somebody takes it over.
    _who: Callable[[], tuple[object, str]]
    _owner: tuple[object, str] | None

    def __init__(self, *_: object, **__: object) -> None:
        msg = "write Ownership.thread(), Ownership.loop() or Ownership.lock(lock)"
        raise TypeError(msg)

    @staticmethod
    def thread() -> Ownership:
        """Return the ownership of the thread that calls this."""
        return _make(_this_thread, _this_thread())

    @staticmethod
    def loop() -> Ownership:
        """Return the ownership of the event loop that runs here, for all of its tasks.

        Raises RuntimeError without a running loop.
        """
        if not loop_runs_here():
            msg = "Ownership.loop() needs a running event loop: make the object inside of it"
            raise RuntimeError(msg)
        return _make(_this_loop, _this_loop())

    @staticmethod
    def lock(lock: Any) -> Ownership:
        """Return the ownership of whoever holds `lock`.

        A `threading.RLock` or `Condition` knows its holder. Of another lock can only be told that
        somebody holds it.
        """
        holds = getattr(lock, "_is_owned", None) or getattr(lock, "locked", None)
        if not callable(holds):
            msg = f"lock must be a lock of threading or asyncio, not {shown(lock)}"
            raise TypeError(msg)
        name = f"whoever holds {lock!r:.60}"

        def who() -> tuple[object, str]:
            return (True, name) if holds() else (False, f"{_this_thread()[1]}, without the lock")

        return _make(who, (True, name))

    def check(self, what: str = "it") -> None:
        """Raise NotOwner unless the owner is at it; `what` names the change in the message."""
        here = self._who()
        if self._owner is None:
            self._owner = here
        elif self._owner[0] != here[0]:
            msg = f"{what} belongs to {self._owner[1]}, and {here[1]} uses it"
            raise NotOwner(msg)

    def hand_over(self, what: str = "it") -> None:
        """Give it up, as its owner: it belongs to the next one who checks."""
        self.check(what)
        if self._who in (_this_thread, _this_loop):
            self._owner = None

    def __repr__(self) -> str:
        owner = "nobody yet" if self._owner is None else self._owner[1]
        return f"<Ownership of {owner}>"


def _make(who: Callable[[], tuple[object, str]], owner: tuple[object, str]) -> Ownership:
    made = object.__new__(Ownership)
    made._who = who
    made._owner = owner
    return made


def _this_thread() -> tuple[object, str]:
    thread = threading.current_thread()
    # Its number may be given to another one later.
    return thread, f"thread {thread.name!r}"


def _this_loop() -> tuple[object, str]:
    if not loop_runs_here():
        return None, f"{_this_thread()[1]}, which runs no loop"
    loop = running_loop()
    return loop, f"the event loop in {_this_thread()[1]}, {id(loop):#x}"
