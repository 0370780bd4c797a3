"""Name lookup: a question to a function that may never answer, asked in a daemon thread.

Rules (K3 of the contracts, A15 and A16 of the cases):
- It is asked in one of a bounded number of slots; whoever waits leaves on time, asked or not.
- An answer that comes when nobody waits is dropped. The process does not wait for it either.
- Whether it was ever asked is told: a full line is no slow answer.
- A host that is a number is looked up without a thread: there is nothing to wait for.

What must not live here: connecting.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from timebounds._settled import Raised, Returned
from timebounds.bounds._threads import Pool
from timebounds.bounds.stop import StopSignal
from timebounds.bounds.waking import wait_in_task, wait_in_thread
from timebounds.errors import StopRequested

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from timebounds.bounds.deadline import Deadline

__all__: list[str] = []

T = TypeVar("T")

SLOTS = Pool(limit=16)
"""The threads of this process in which names are looked up: no other work may keep them busy."""

_NUMERIC = int(socket.AI_NUMERICHOST | socket.AI_NUMERICSERV)

AWAITED: set[object] = set()
"""The questions that somebody waits for: fake time stands still for them."""


@final
class Question(Generic[T]):
    """One call of `fn(*args)` in a slot. Called by the slot's thread."""

    __slots__ = ("_answer", "_answered", "_args", "_fn", "asked")

    asked: bool
    """Whether a slot was free for it."""

    def __init__(self, fn: Callable[..., T], *args: Any) -> None:
        self._fn = fn
        self._args = args
        self.asked = False
        self._answer: list[Returned[T] | Raised] = []
        self._answered = StopSignal()

    def __call__(self) -> None:
        """Ask, in a thread."""
        self.asked = True
        try:
            self._answer.append(Returned(self._fn(*self._args)))
        except Exception as error:  # noqa: BLE001  (an answer like any other)
            self._answer.append(Raised(error))
        self._answered.request()

    def wait(self, deadline: Deadline) -> Returned[T] | Raised | None:
        """Ask and wait in this thread; None when the deadline, or its stop, is first."""
        try:
            AWAITED.add(self)
            SLOTS.submit(self)
            # A stop of the deadline's is told by the deadline.
            with suppress(StopRequested):
                wait_in_thread(self._answered, deadline)
        finally:
            AWAITED.discard(self)
        return self._answer[0] if self._answer else None

    async def await_answer(self, deadline: Deadline) -> Returned[T] | Raised | None:
        """Ask and wait in this task; None when the deadline, or its stop, is first."""
        try:
            AWAITED.add(self)
            SLOTS.submit(self)
            with suppress(StopRequested):
                await wait_in_task(self._answered, deadline)
        finally:
            AWAITED.discard(self)
        return self._answer[0] if self._answer else None


def outstanding() -> int:
    """Return how many questions have no answer yet, or only just got it."""
    return SLOTS.working()


def resolve(host: str, port: int) -> Sequence[Any]:
    """Ask the system: what `socket.getaddrinfo` returns for streams."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def numeric(host: str, port: int) -> Sequence[Any] | None:
    """Return the endpoint of a host that is a number; None for a name."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=_NUMERIC)
    except (socket.gaierror, UnicodeError):
        return None


def nothing_found(host: str) -> socket.gaierror:
    """Return the error for a resolver that found no address."""
    return socket.gaierror(socket.EAI_NONAME, f"no address found for {host!r}")


def unanswered(question: Question[Any] | None) -> str:
    """Say in a message what became of a lookup that was waited for in vain."""
    if question is None:
        return ""
    state = "" if question.asked else ", which never started: no slot was free"
    return f"{state}; lookups outstanding: {outstanding()}"
