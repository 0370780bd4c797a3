"""One user at a time: a second thread, or a re-entrant call, is refused at once.

A lock would do, but for exceptions that strike between any two bytecodes (Ctrl-C does): one that
lands between taking the lock and entering `try` would leave it taken for ever. Here the turn is
taken by one `dict.setdefault`, which is atomic, and names its holder. Who finds it taken looks
whether the holder is still on its thread's stack; a turn that nobody holds any more is passed on.
"""

from __future__ import annotations

import sys
from threading import RLock, get_ident
from typing import final

from timebounds.errors import Busy

# Re-entrant: a signal handler may come here while this thread is inside.
_repair = RLock()


@final
class Turn:
    """Whose turn it is. `holder` is a fresh `(thread id,)`, kept in a local named `mine`."""

    __slots__ = ("_holder",)

    def __init__(self) -> None:
        self._holder: dict[str, tuple[int]] = {}

    def take(self, mine: tuple[int], what: str) -> None:
        """Take the turn for the calling frame, which keeps `mine` in a local of that name.

        Raises Busy when somebody else has it. Never blocks for longer than a look.
        """
        holder = self._holder.setdefault("holder", mine)
        while holder is not mine:
            if _on_stack(holder):
                same = " (a signal handler or a finaliser?)" if holder[0] == get_ident() else ""
                msg = f"{what} serves one user at a time, and thread {holder[0]} is using it{same}"
                raise Busy(msg)
            with _repair:
                if self._holder.get("holder") is holder:
                    self._holder.clear()
            holder = self._holder.setdefault("holder", mine)

    def give_back(self) -> None:
        """Let the next one in."""
        self._holder.clear()


def _on_stack(holder: tuple[int]) -> bool:
    """Say whether a frame that took this turn is still running."""
    frame = sys._current_frames().get(holder[0])
    while frame is not None:
        if frame.f_locals.get("mine") is holder:
            return True
        frame = frame.f_back
    return False
