"""The thread colour of retrying: a port that calls the function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from timebounds._settled import Raised, Returned

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.deadline import Deadline
    from timebounds.policies.retrying import Attempt


@final
class CallPort:
    """Makes an attempt by calling a function with it."""

    __slots__ = ("_args", "_fn", "value")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._fn = fn
        self._args = args
        self.value: Any = None

    def perform(self, attempt: Attempt, _: Deadline, /) -> Returned[Any] | Raised:
        """Call, and answer how that ended; what is no Exception passes through."""
        try:
            self.value = self._fn(attempt, *self._args)
        except Exception as error:  # noqa: BLE001  (the plan decides what is retried)
            return Raised(error)
        return Returned(self.value)
