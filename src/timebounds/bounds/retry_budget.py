"""A budget of retries across all calls to one destination, so that an outage is not multiplied.

Rules:
- It never blocks: a retry is paid for at once, or refused.
- A retry is paid for before its backoff, and given back when it never starts.
- Successes earn tokens back, up to the capacity.
- Refusals are counted: a budget that says no in silence looks like an outage of its own.

One object per destination, shared by its policies, threads and tasks.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, final

from timebounds._checks import NS, number
from timebounds.bounds.clock import MONOTONIC, SteadyClock, reader

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RetryBudget"]

# Ten tenths are one token, whatever floats say.
_DUST = 1e-9


@final
class RetryBudget:
    """A token bucket: retries cost tokens, successes earn some back.

    Three published presets: `per_failure` (500 tokens, 14 for a retry, 5 after throttling, refund
    on success), `throttle` (10 tokens, a failure costs 1, a success earns 0.1, no retry at or below
    half) and `ratio` (retries at most a share of the calls that succeed, with a floor a second).
    Thread-safe; never blocks for longer than a moment of counting.

    Args:
        capacity: the most tokens there can be, and how many there are at first.
        cost: tokens that a retry costs; or a function of the failure.
        earned: tokens that a success earns, beside the refund.
        refund: whether a success gives back what its last retry had cost.
        threshold: no retry while no more than so many tokens would be left.
        per_second: tokens that time alone brings.
        clock: by which it brings them.
    """

    __slots__ = (
        "_capacity", "_cost", "_earned", "_lock", "_now", "_per_second", "_refund", "_refused",
        "_threshold", "_tokens", "_updated",
    )  # fmt: skip

    def __init__(
        self,
        capacity: float,
        *,
        cost: float | Callable[[Exception], float] = 1,
        earned: float = 0,
        refund: bool = False,
        threshold: float = 0,
        per_second: float = 0,
        clock: SteadyClock = MONOTONIC,
    ) -> None:
        self._capacity = number(capacity, "capacity", minimum=0.0)
        self._threshold = number(threshold, "threshold", minimum=0.0)
        price = 0.0 if callable(cost) else number(cost, "cost", minimum=0.0)
        self._cost = cost
        left = self._capacity - price
        if left < 0 or not self._capacity or (self._threshold and left <= self._threshold):
            msg = f"capacity must allow one retry at least: {capacity!r} tokens never do"
            raise ValueError(msg)
        self._earned = number(earned, "earned", minimum=0.0)
        self._refund = refund
        self._per_second = number(per_second, "per_second", minimum=0.0)
        self._now = reader(clock)
        self._tokens = self._capacity
        self._updated: int | None = None
        self._refused = 0
        # Re-entrant: a signal handler may retry while this thread is counting.
        self._lock = threading.RLock()

    @staticmethod
    def per_failure(
        *, capacity: float = 500, cost: float = 14, throttled: float = 5,
        is_throttling: Callable[[Exception], bool] = lambda _: False,
    ) -> RetryBudget:  # fmt: skip
        """Return the 500/14/5 budget: a retry costs 14, or 5 after throttling; success refunds."""
        normal = number(cost, "cost", minimum=0.0)
        less = number(throttled, "throttled", minimum=0.0)

        def price(error: Exception) -> float:
            return less if is_throttling(error) else normal

        return RetryBudget(capacity, cost=price, earned=1, refund=True)

    @staticmethod
    def throttle(*, tokens: float = 10, ratio: float = 0.1) -> RetryBudget:
        """Return the 10/0.1 budget: a retry costs 1, a success earns 0.1, none below half."""
        half = number(tokens, "tokens", minimum=0.0) / 2
        return RetryBudget(tokens, earned=ratio, threshold=half)

    @staticmethod
    def ratio(
        share: float = 0.2, *, floor: float = 10, burst: float = 100, clock: SteadyClock = MONOTONIC
    ) -> RetryBudget:
        """Return a budget of retries per success, with a floor of retries a second."""
        return RetryBudget(burst, earned=share, per_second=floor, clock=clock)

    @property
    def tokens(self) -> float:
        """How many tokens there are now. Reads the clock."""
        with self._lock:
            self._bring()
            return self._tokens

    @property
    def refused(self) -> int:
        """How many retries were refused so far."""
        return self._refused

    def spend(self, error: Exception) -> float | None:
        """Pay for a retry after `error`; return what it cost, or None when it is refused."""
        cost = self._cost
        price = number(cost(error) if callable(cost) else cost, "cost", minimum=0.0)
        with self._lock:
            self._bring()
            left = self._tokens - price
            if left < -_DUST or (self._threshold and left <= self._threshold + _DUST):
                self._refused += 1
                return None
            self._tokens -= price
            return price

    def give_back(self, spent: float) -> None:
        """Take back what a retry had cost that never started."""
        with self._lock:
            self._tokens = min(self._capacity, self._tokens + spent)

    def succeeded(self, spent: float | None) -> None:
        """Earn what a success brings; `spent` is what the call's last retry had cost."""
        with self._lock:
            earned = self._earned
            if self._refund and spent is not None:
                earned = spent
            self._tokens = min(self._capacity, self._tokens + earned)

    def _bring(self) -> None:
        """Add what time has brought."""
        if not self._per_second:
            return
        now = self._now()
        if self._updated is None:
            self._updated = now
        elif now > self._updated:
            brought = (now - self._updated) / NS * self._per_second
            self._tokens = min(self._capacity, self._tokens + brought)
            self._updated = now

    def __repr__(self) -> str:
        return (
            f"<RetryBudget, {self._tokens:g} of {self._capacity:g} tokens, {self._refused} refused>"
        )
