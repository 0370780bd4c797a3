"""The task colour of retrying: a port that awaits the function. It needs no loop to be imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from timebounds._settled import Raised, Returned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.retrying import Attempt


@final
class AsyncCallPort:
    """Makes an attempt by awaiting a function that is called with it."""

    __slots__ = ("_args", "_fn", "value")

    def __init__(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        self._fn = fn
        self._args = args
        self.value: Any = None

    async def perform(self, attempt: Attempt, _: Deadline, /) -> Returned[Any] | Raised:
        """Await, and answer how that ended; a cancel is no Exception and passes through."""
        try:
            self.value = await self._fn(attempt, *self._args)
        except Exception as error:  # noqa: BLE001  (the plan decides what is retried)
            return Raised(error)
        return Returned(self.value)
