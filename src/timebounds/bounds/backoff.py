"""Backoff: how long to wait before a retry. A value; it waits for nothing itself.

Rules (A4 of the contracts):
- Saturated before it is computed: whether attempt 1 or attempt 1,000,000, the delay is finite,
  at most the cap, and costs the same few operations. `factor ** attempt` is never formed where
  it could overflow.
- Jitter is applied after the cap and stays within [0, cap], whatever the random source returns.
- The random source is injected; with a seeded one a run repeats.

What must not live here: sleeping, clocks, counting.
"""

from __future__ import annotations

import sys
from enum import Enum
from math import inf, log
from typing import TYPE_CHECKING, Protocol, final

from timebounds._checks import NS, count, member, nanoseconds, number
from timebounds._values import Value

if TYPE_CHECKING:
    from timebounds._checks import Seconds

__all__ = ["Backoff", "Jitter", "RandomSource"]


class RandomSource(Protocol):
    """What a backoff needs of `random.Random`: numbers in [0, 1)."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


@final
class Jitter(Enum):
    """How a delay is randomised, so that many clients do not come back in step."""

    NONE = "none"
    FULL = "full"
    """Anywhere in [0, delay]."""
    EQUAL = "equal"
    """Half of the delay, and anywhere in the other half."""
    DECORRELATED = "decorrelated"
    """Anywhere between the initial delay and three times the previous one, at most the cap."""


@final
class Backoff(Value):
    """The wait before each retry: none, fixed, linear or exponential, with a cap and a jitter.

    Make one with `none`, `fixed`, `linear` or `exponential`. Seconds throughout. Immutable,
    shared freely between threads and tasks (the random source must allow that: `random.Random`
    does).
    """

    __slots__ = ("initial", "step", "factor", "cap", "jitter", "rng")  # noqa: RUF023  (as shown)

    initial: float
    step: float
    factor: float
    cap: float
    jitter: Jitter
    rng: RandomSource | None

    def __init__(self, *_: object, **__: object) -> None:
        msg = "write Backoff.none(), .fixed(0.5), .linear(0.5, cap=5) or .exponential(0.1, cap=5)"
        raise TypeError(msg)

    @staticmethod
    def none() -> Backoff:
        """Return the backoff that never waits."""
        return _make(0.0, 0.0)

    @staticmethod
    def fixed(
        seconds: Seconds, *, jitter: Jitter = Jitter.NONE, rng: RandomSource | None = None
    ) -> Backoff:
        """Return the backoff that waits `seconds` before every retry."""
        delay = _seconds(seconds, "seconds")
        return _make(delay, delay, jitter=jitter, rng=rng)

    @staticmethod
    def linear(
        initial: Seconds,
        *,
        step: Seconds | None = None,
        cap: Seconds,
        jitter: Jitter = Jitter.NONE,
        rng: RandomSource | None = None,
    ) -> Backoff:
        """Return the backoff `initial`, `initial + step`, ...; at most `cap`.

        `step` is `initial` unless given.
        """
        first = _seconds(initial, "initial")
        growth = first if step is None else _seconds(step, "step")
        return _make(first, _seconds(cap, "cap"), step=growth, jitter=jitter, rng=rng)

    @staticmethod
    def exponential(
        initial: Seconds,
        *,
        factor: float = 2.0,
        cap: Seconds,
        jitter: Jitter = Jitter.NONE,
        rng: RandomSource | None = None,
    ) -> Backoff:
        """Return the backoff `initial`, `initial * factor`, ...; at most `cap`. `factor` >= 1."""
        first, most = _seconds(initial, "initial"), _seconds(cap, "cap")
        growth = number(factor, "factor", minimum=1.0)
        return _make(first, most, factor=growth, jitter=jitter, rng=rng)

    def delay(self, attempt: int, previous: float = 0.0) -> float:
        """Return the seconds to wait before retry number `attempt` (from 1).

        `previous` is the delay before the retry before; only `Jitter.DECORRELATED` asks for it.
        """
        # A count, but one that nobody holds in memory: 10**400 is as good as any.
        attempt = count(
            min(attempt, sys.maxsize) if type(attempt) is int else attempt, "attempt", minimum=1
        )
        previous = number(previous, "previous", minimum=0.0)
        plain = self._plain(attempt - 1)
        if self.jitter is Jitter.NONE or self.cap == 0.0:
            return plain
        portion = _portion(self.rng)
        if self.jitter is Jitter.FULL:
            return plain * portion
        if self.jitter is Jitter.EQUAL:
            return plain / 2 + plain / 2 * portion
        low = min(self.initial, self.cap)
        high = max(low, min(self.cap, 3 * max(previous, low)))
        return min(self.cap, low + (high - low) * portion)

    def _plain(self, grown: int) -> float:
        """Return the delay without jitter after `grown` steps of growth."""
        if self.initial >= self.cap:
            return self.cap
        if self.step:
            # The number of steps that reach the cap is finite, so compare before multiplying.
            room = (self.cap - self.initial) / self.step
            return self.initial + grown * self.step if grown < room else self.cap
        if self.factor == 1.0 or self.initial == 0.0:
            return self.initial
        room = log(self.cap / self.initial) / log(self.factor)
        return min(self.cap, self.initial * self.factor**grown) if grown < room else self.cap


def _seconds(value: object, name: str) -> float:
    return nanoseconds(value, name) / NS


def _make(
    initial: float,
    cap: float,
    *,
    step: float = 0.0,
    factor: float = 1.0,
    jitter: object = Jitter.NONE,
    rng: RandomSource | None = None,
) -> Backoff:
    if rng is not None and not callable(getattr(rng, "random", None)):
        msg = f"rng must have a random() method, as random.Random(7) has, not {rng!r:.80}"
        raise TypeError(msg)
    backoff = object.__new__(Backoff)
    jitter = member(jitter, "jitter", Jitter)
    backoff._set(initial=initial, step=step, factor=factor, cap=cap, jitter=jitter, rng=rng)
    return backoff


def _portion(rng: RandomSource | None) -> float:
    """Return a number in [0, 1], whatever the random source says."""
    if rng is None:
        import random  # noqa: PLC0415  (a third of the time of importing this library)

        return random.random()  # noqa: S311  (spreads load, protects nothing)
    portion: object = rng.random()
    if not isinstance(portion, (int, float)) or not -inf < portion < inf:
        msg = f"rng.random() returned {portion!r:.80}, not a number in [0, 1)"
        raise ValueError(msg)
    return min(1.0, max(0.0, float(portion)))
