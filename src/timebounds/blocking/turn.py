"""One user at a time: a second thread, or a re-entrant call, is refused at once.

A lock would do, but for exceptions that strike between any two bytecodes (Ctrl-C does): one that
lands between taking the lock and entering `try` would leave it taken for ever. Here the turn is
taken by one `dict.setdefault`, which is atomic, and names its holder. Who finds it taken looks
whether the holder is still on some thread's stack; a turn that nobody holds is passed on.
"""

from __future__ import annotations

import sys
from threading import RLock
from typing import TYPE_CHECKING, final

from timebounds.errors import Busy

if TYPE_CHECKING:
    from types import FrameType

# Re-entrant: a signal handler may come here while this thread is inside.
_repair = RLock()


@final
class Turn(dict[str, list[None]]):
    """Whose turn it is: a door takes it, works, and clears it.

    mine: list[None] = []
    if turn.setdefault("holder", mine) is not mine:
        turn.contend(mine, "a BudgetedReceiver")
    try: ...
    finally: turn.clear()

    `mine` must be a new list in a local of that name: that is how a holder is found again.
    """

    __slots__ = ()

    def contend(self, mine: list[None], what: str) -> None:
        """Take the turn that somebody else has, if he is gone; raise Busy if he is not."""
        holder = self.setdefault("holder", mine)
        while holder is not mine:
            if _on_some_stack(holder):
                msg = (
                    f"{what} serves one user at a time, and another thread (or this one, outside "
                    "a signal handler or finaliser) is using it"
                )
                raise Busy(msg)
            with _repair:
                if self.get("holder") is holder:
                    self.clear()
            holder = self.setdefault("holder", mine)


def _on_some_stack(holder: list[None]) -> bool:
    """Say whether a frame that took this turn is still running."""
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_locals.get("mine") is holder:
                return True
            frame = frame.f_back
    return False
