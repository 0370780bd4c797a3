"""One user at a time: a second thread, or a re-entrant call, is refused at once.

A lock would do, but for exceptions that strike between any two bytecodes (Ctrl-C does): one that
lands between taking the lock and entering `try` would leave it taken for ever. Here the turn is
taken by one `dict.setdefault`, which is atomic, and names its holder: a new list in a local of the
door. Who finds it taken looks whether the holder still runs; a turn whose holder has ended is
passed on. A door that is going to wait puts its own frame into the list first: a frame answers by
one call into C whether it runs. Before that it is looked for on the stacks of all threads, where a
door that does not wait can be found, since it is in no generator and switches to no greenlet.
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
class Turn(dict[str, "list[FrameType]"]):
    """Whose turn it is: a door takes it, works, and clears it.

    mine: list[FrameType] = []
    if turn.setdefault("holder", mine) is not mine:
        turn.contend(mine, "a BudgetedReceiver")
    try: ...  # and mine.append(<the frame of the door>) before it waits
    finally: turn.clear()
    """

    __slots__ = ()

    def contend(self, mine: list[FrameType], what: str) -> None:
        """Take the turn that somebody else has, if he is gone; raise Busy if he is not."""
        holder = self.setdefault("holder", mine)
        while holder is not mine:
            if _runs(holder):
                msg = (
                    f"{what} serves one user at a time, and another thread (or this one, outside "
                    "a signal handler or finaliser) is using it"
                )
                raise Busy(msg)
            with _repair:
                if self.get("holder") is holder:
                    self.clear()
            holder = self.setdefault("holder", mine)

    def taken(self) -> bool:
        """Say whether somebody has the turn at this moment."""
        holder = self.get("holder")
        return holder is not None and _runs(holder)


def _runs(holder: list[FrameType]) -> bool:
    """Say whether the door that took the turn has not ended."""
    found = _on_some_stack(holder)
    # It may have begun to wait while it was looked for.
    for frame in holder:
        try:
            frame.clear()
        except RuntimeError:
            return True
        # Clearing a frame that has ended is harmless.
        return False
    return found


def _on_some_stack(holder: list[FrameType]) -> bool:
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            # Only in functions are locals a plain dictionary.
            if "mine" in frame.f_code.co_varnames and frame.f_locals.get("mine") is holder:
                return True
            frame = frame.f_back
    return False
