"""How a call ended: it returned a value, or it raised. Nothing of ours is imported."""

from __future__ import annotations

from typing import Generic, TypeVar, final

__all__: list[str] = []

T_co = TypeVar("T_co", covariant=True)


@final
class Returned(Generic[T_co]):
    """The call returned `value`."""

    __slots__ = ("value",)

    value: T_co

    def __init__(self, value: T_co) -> None:
        self.value = value


@final
class Raised:
    """The call raised an Exception: nothing else is an answer.

    The error is taken out of it once. Its traceback holds the frames that hand this record on, and
    would be held by them: a cycle.
    """

    __slots__ = ("_error",)

    _error: Exception | None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def take(self) -> Exception:
        """Return the error, which is no longer here then."""
        error, self._error = self._error, None
        assert error is not None
        return error
