"""The allowance: how many retries are left in the whole operation.

Rules (A1, A3 of the contracts):
- A frozen value. `spend()` changes nothing: it returns what is left, and nothing refills it.
- An allowance handed to many operations starts anew in each; to share one count among nested
  calls or threads, hand down `allowance.shared()`.
- What a backoff that would use up the budget means is chosen by `Overrun`.

What must not live here: waiting, and the decision what may be retried.
"""

from __future__ import annotations

import itertools
from enum import Enum
from typing import Protocol, final

from timebounds._checks import count
from timebounds._values import Value
from timebounds.bounds.backoff import Backoff

__all__ = ["Allowance", "Granted", "Overrun", "Refused", "RetryAllowance", "SharedAllowance"]


_NO_WAIT = Backoff.none()


@final
class Overrun(Enum):
    """What happens when the next backoff would use up all that remains of the deadline."""

    CAP = "cap"
    """Wait to the end of the budget, then stop. For what may still become true meanwhile."""
    REFUSE = "refuse"
    """Give up at once. Waiting only to fail would be a waste."""


@final
class Granted(Value):
    """One more retry, after `delay` seconds; `rest` is the allowance from then on."""

    __slots__ = ("delay", "rest")

    delay: float
    rest: Allowance

    def __init__(self, delay: float, rest: Allowance) -> None:
        self._set(delay=delay, rest=rest)


@final
class Refused(Value):
    """No retry is left."""

    __slots__ = ()


class Allowance(Protocol):
    """What a policy asks for a retry: a `RetryAllowance`, or a `SharedAllowance`."""

    def spend(self) -> Granted | Refused:
        """Ask for one retry."""
        ...


@final
class RetryAllowance(Value):
    """At most `retries` retries in one whole operation, each after the wait of `backoff`.

    `RetryAllowance(3, Backoff.exponential(0.1, cap=2.0))`. Progress never refills it.
    """

    __slots__ = ("retries", "backoff", "_spent", "_previous")  # noqa: RUF023  (as shown)

    retries: int
    backoff: Backoff
    _spent: int
    _previous: float

    def __init__(self, retries: int, backoff: Backoff = _NO_WAIT) -> None:
        count(retries, "retries")
        if not isinstance(backoff, Backoff):
            msg = f"backoff must be a Backoff such as Backoff.fixed(0.5), not {backoff!r:.80}"
            raise TypeError(msg)
        self._set(retries=retries, backoff=backoff, _spent=0, _previous=0.0)

    @staticmethod
    def none() -> RetryAllowance:
        """Return the allowance without any retry."""
        return RetryAllowance(0)

    def spend(self) -> Granted | Refused:
        """Return `Granted(delay, rest)`, or `Refused` when nothing is left. Changes nothing."""
        if self.retries == 0:
            return Refused()
        delay = self.backoff.delay(self._spent + 1, self._previous)
        rest = RetryAllowance(self.retries - 1, self.backoff)
        rest._set(_spent=self._spent + 1, _previous=delay)
        return Granted(delay, rest)

    def shared(self) -> SharedAllowance:
        """Return one counter for many users, which starts from this value."""
        return SharedAllowance(self)


@final
class SharedAllowance:
    """One allowance for nested calls, threads and tasks: all of them together get its retries.

    Each `spend()` takes from the same count. Safe in threads and signal handlers; never blocks.
    """

    __slots__ = ("_allowance", "_granted", "_numbers", "_previous")

    def __init__(self, allowance: RetryAllowance) -> None:
        if not isinstance(allowance, RetryAllowance):
            msg = f"write RetryAllowance(3).shared(), not SharedAllowance({allowance!r:.80})"
            raise TypeError(msg)
        self._allowance = allowance
        # Each number is handed out once, by one call into C: to threads and signal handlers alike.
        self._numbers = itertools.count(1)
        self._granted: list[None] = []
        self._previous = 0.0

    @property
    def retries(self) -> int:
        """How many retries are left."""
        return max(0, self._allowance.retries - len(self._granted))

    def spend(self) -> Granted | Refused:
        """Take one retry from the common count: `Granted(delay, rest)`, rest being this object."""
        if not self.retries or (number := next(self._numbers)) > self._allowance.retries:
            return Refused()
        self._granted.append(None)
        spent = self._allowance._spent + number
        delay = self._previous = self._allowance.backoff.delay(spent, self._previous)
        return Granted(delay, self)

    def __repr__(self) -> str:
        return f"<SharedAllowance, {self.retries} retries left>"
