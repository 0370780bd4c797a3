"""When: each open alert is reminded of at a cadence, under a key of its own each time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from timebounds import Deadline, Every, Missed, QueueFull

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from alerts import Alert

    from timebounds import AsyncScheduler, Tick


@dataclass(frozen=True)
class Command:
    """What a worker is to do: a value, which nobody goes on changing."""

    key: str
    text: str


def check(payload: object) -> None:
    """Refuse what is no command: an object of the domain may change while it waits."""
    if type(payload) is not Command:
        msg = f"a command is handed in, not a {type(payload).__name__} that others may change"
        raise TypeError(msg)


class Coordinator:
    """Says when; what is to be done it hands in."""

    def __init__(
        self,
        scheduler: AsyncScheduler,
        submit: Callable[..., Awaitable[object]],
        *,
        cadence: float = 60.0,
        good_for: float = 45.0,
        missed: Missed = Missed.coalesce(),  # noqa: B008  (a frozen value)
    ) -> None:
        self._submit = submit
        self._good_for = good_for
        self._open: dict[str, Alert] = {}
        self._clock = scheduler.clock
        self.refused: list[str] = []
        self.job = scheduler.add(Every(cadence, missed=missed), self.remind, name="reminder")

    def open(self, alert: Alert) -> None:
        """Remind of this alert from now on; of one that is open already nothing changes."""
        self._open.setdefault(alert.key, alert)

    def settle(self, key: str) -> None:
        """Remind of it no more."""
        self._open.pop(key, None)

    async def remind(self, tick: Tick) -> None:
        """Hand in a command for each open alert. A tick that is fired twice gives the same keys."""
        for alert in list(self._open.values()):
            command = Command(f"{alert.key}/{tick.key}", alert.text)
            # A reminder that is late is no use: it is stale before the next one is due.
            deadline = Deadline.after(self._good_for, clock=self._clock)
            try:
                await self._submit(command, deadline, key=command.key)
            except QueueFull:
                self.refused.append(command.key)
