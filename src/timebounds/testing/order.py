"""`Gate` and `Trace`: the order of threads in tests, made and recorded without sleeping."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

from timebounds._checks import patience as real_seconds

if TYPE_CHECKING:
    from timebounds._checks import Seconds

__all__ = ["Gate", "Trace"]


@final
class Gate:
    """A point that threads reach and do not pass before the test opens it.

    `patience`: real seconds after which either side gives up with a TimeoutError that says so.
    """

    def __init__(self, name: str = "gate", *, patience: Seconds = 30) -> None:
        self._name = name
        self._patience = real_seconds(patience, "patience")
        self._changed = threading.Condition()
        self._arrived = 0
        self._open = False

    def enter(self) -> None:
        """Say that this thread is here, and block until the gate is open."""
        with self._changed:
            self._arrived += 1
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._open, self._patience):
                msg = f"{self._name} was not opened for {self._patience:g} s"
                raise TimeoutError(msg)

    def wait_arrived(self, threads: int = 1) -> None:
        """Block until that many threads have come to the gate."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._arrived >= threads, self._patience):
                msg = f"{threads} threads were expected at {self._name}, {self._arrived} came"
                raise TimeoutError(msg)

    def open(self) -> None:
        """Let everybody through, now and later."""
        with self._changed:
            self._open = True
            self._changed.notify_all()


@final
class Trace:
    """What happened, in order, from any number of threads.

    `patience`: real seconds after which `wait_for` gives up.
    """

    def __init__(self, *, patience: Seconds = 30) -> None:
        self._patience = real_seconds(patience, "patience")
        self._changed = threading.Condition()
        self._events: list[str] = []

    def add(self, event: str) -> None:
        """Append an event."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def wait_for(self, event: str) -> None:
        """Block until the event is there; TimeoutError shows the trace when it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: event in self._events, self._patience):
                msg = f"{event!r} did not come within {self._patience:g} s: {self._events}"
                raise TimeoutError(msg)

    @property
    def events(self) -> list[str]:
        """A copy of the events so far."""
        with self._changed:
            return list(self._events)
