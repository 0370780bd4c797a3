"""`bounding`: a deadline for clients that take no argument of ours, as far as their calls reach.

Rules (W1 of the contracts, A87 of the cases):
- It lies on a context variable: tasks that are started inside, and offloaded functions, see it too.
- Nested ones only shorten. To go without is one explicit word: `detached()`.
- Nothing of ours reads it but `DeadlineSocket` and what is made of it for other people's clients:
  whoever can be given a deadline is given it.
- One fact has one class: where a bound of ours is in the chain of a client's error, leaving the
  block raises ours from that.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, final

from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.errors import BoundReached

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import Token

__all__ = ["bounding", "current_deadline", "detached"]

_current: ContextVar[Deadline | None] = ContextVar("timebounds deadline", default=None)

# Longer chains of errors than any client makes.
_FAR = 100


def current_deadline() -> Deadline | None:
    """Return the deadline of the `bounding` blocks around this line; None without one."""
    return _current.get()


class _Setting:
    """A value of the context variable for the length of a block."""

    __slots__ = ("_tokens", "_value")

    _value: Deadline | None

    def __init__(self) -> None:
        self._tokens: list[Token[Deadline | None]] = []

    def _set(self, value: Deadline | None) -> None:
        self._tokens.append(_current.set(value))

    def _reset(self) -> None:
        _current.reset(self._tokens.pop())


@final
class bounding(_Setting):  # noqa: N801  (a context manager reads like a function)
    """Bound what clients do inside this block, over sockets that look at it, by `deadline`.

    with bounding(Deadline.after(0.5)):
        response = opener.open(url)

    Inside another block it can only shorten: the earlier of the two holds, and the stop signals of
    both. It reaches tasks started inside and offloaded functions; a new thread starts without.
    Leaving the block after a client's error that a bound of ours has caused raises our
    `DeadlineExceeded` or `StopRequested` from it. Bounds no line of your own: those take the
    deadline as an argument.

    Raises:
        ClockError: the block around it is bounded on another clock.
    """

    __slots__ = ("_deadline",)

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = as_deadline(deadline)

    def __enter__(self) -> Deadline:
        """Begin, and return the deadline that holds inside."""
        outer = _current.get()
        inside = self._deadline if outer is None else self._deadline.earliest(outer)
        self._set(inside)
        return inside

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End; raise ours where a client's error hides it."""
        self._reset()
        if isinstance(error, Exception) and not isinstance(error, BoundReached):
            for each in _chain(error):
                if isinstance(each, BoundReached):
                    ours = type(each)(str(each), report=each.report)
                    try:
                        raise ours from error
                    finally:
                        del ours, each, error


@final
class detached(_Setting):  # noqa: N801
    """Go without the deadline of the blocks around, for work that outlives the request.

    with detached():
        asyncio.create_task(refresh())

    Other context variables are seen as before.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin without a deadline."""
        self._set(None)

    def __exit__(self, *exc_info: object) -> None:
        """Go back to the deadline of the block around."""
        self._reset()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give an error and those that it names as what led to it, however it does so."""
    line, seen = [error], {id(error)}
    while line and len(seen) < _FAR:
        each = line.pop(0)
        yield each
        for cause in (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args):
            if isinstance(cause, BaseException) and id(cause) not in seen:
                seen.add(id(cause))
                line.append(cause)
