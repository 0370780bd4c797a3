"""Values: made once, never changed, equal by their parts.

What a frozen, slotted dataclass would be, without the module that makes one: it takes as long to
import as the rest of this library. Nothing of ours is imported.
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__: list[str] = []


class Value:
    """Base of unchanging values: `__slots__` names the parts, and private ones are not shown."""

    __slots__: tuple[str, ...] = ()

    def _set(self, **parts: object) -> None:
        """Give the parts, once, while the value is made."""
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Value)
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))

    def __repr__(self) -> str:
        shown = [name for name in self.__slots__ if not name.startswith("_")]
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__name__}({inside})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        kind = type(self).__name__
        article = "an" if kind[0] in "AEIOU" else "a"
        msg = f"{article} {kind} never changes: make another one instead of setting {name}"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._parts())


def _rebuild(kind: type[Value], parts: tuple[object, ...]) -> Value:
    value = object.__new__(kind)
    value._set(**dict(zip(kind.__slots__, parts, strict=True)))
    return value
