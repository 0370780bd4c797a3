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
from typing import TYPE_CHECKING, Any, final

from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.errors import BoundReached

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["bounding", "current_deadline", "detached"]

Bound = Deadline | None

# The blocks around, from the inside: what holds, which block says so, and those around it.
_Blocks = tuple[Bound, "_Setting | None", Any]
_current: ContextVar[_Blocks] = ContextVar("timebounds deadline", default=(None, None, None))

# Longer chains of errors than any client makes.
_FAR = 100


def current_deadline() -> Deadline | None:
    """Return the deadline of the `bounding` blocks around this line; None without one."""
    return _current.get()[0]


def as_bound(
    deadline: Deadline | Callable[[], Bound] | None,
) -> Deadline | Callable[[], Bound] | None:
    """Return what a socket is bounded by: a deadline, a function of one, or the blocks around."""
    return deadline if deadline is None or callable(deadline) else as_deadline(deadline)


def returned(bound: Callable[[], Bound]) -> Bound:
    """Return the deadline that a function gives, or None."""
    deadline = bound()
    return None if deadline is None else as_deadline(deadline)


class _Setting:
    """A value of the context variable for the length of a block, in any number of tasks."""

    __slots__ = ()

    def _leave(self) -> None:
        """Take the block away, wherever it stands.

        Generators may be left in another order than they were entered in, or in another context,
        which knows nothing of the block.
        """
        inner: list[_Blocks] = []
        blocks = _current.get()
        while blocks[1] is not None and blocks[1] is not self:
            inner.append(blocks)
            blocks = blocks[2]
        if blocks[1] is self:
            left: _Blocks = blocks[2]
            for value, block, _ in reversed(inner):
                left = (value, block, left)
            _current.set(left)


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
        self._deadline = as_deadline(deadline)

    def __enter__(self) -> Deadline:
        """Begin, and return the deadline that holds inside."""
        blocks = _current.get()
        outer = blocks[0]
        inside = self._deadline if outer is None else self._deadline.earliest(outer)
        _current.set((inside, self, blocks))
        return inside

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End; raise ours where a client's error hides it."""
        blocks = _current.get()
        if blocks[1] is self:
            _current.set(blocks[2])
        else:
            self._leave()
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
        _current.set((None, self, _current.get()))

    def __exit__(self, *exc_info: object) -> None:
        """Go back to the deadline of the block around."""
        self._leave()


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
