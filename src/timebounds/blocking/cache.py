"""`ExpiringCache`: values that are loaded once, fresh for a time, by the injected clock.

What is fresh, who loads and what goes is decided in `policies/shelf.py`. Here:
- The first caller that finds no value loads it, in its own thread; the others wait, each by its
  own deadline.
- No lock is held while a value is loaded or waited for.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, final

from timebounds._checks import refuse_on_loop_thread
from timebounds._settled import Returned
from timebounds.bounds.clock import MONOTONIC, SteadyClock
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.bounds.waking import wait_in_thread
from timebounds.policies.caching import Cache, late, loader_of, memoized, settled, value_of
from timebounds.policies.shelf import Flight, as_key

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from timebounds._checks import Seconds
    from timebounds.bounds.expiry import Expiry
    from timebounds.policies.caching import Found

__all__ = ["ExpiringCache"]

ValueT = TypeVar("ValueT")
ParamsT = ParamSpec("ParamsT")
# Of a decorated function: that of the class would be nothing where the class is not subscripted.
KeptT = TypeVar("KeptT")


class Memoized(Protocol[ParamsT, ValueT]):
    """A function whose values are kept in `cache`."""

    cache: ExpiringCache[ValueT]

    def __call__(self, *args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ValueT:
        """Return the value for these arguments."""
        ...


@final
class ExpiringCache(Cache[ValueT]):
    """Loads each key once, and hands its value out as long as it is fresh. For threads.

    prices = ExpiringCache(fetch_price, fresh_for=60, max_size=1000)
    price = prices.get("ABC", deadline)

    Args:
        load: called as `load(key, deadline)` with the caller's deadline, in the caller's thread.
        fresh_for: seconds from the end of the load; or a function of the value that returns
            seconds or an `Expiry`.
        max_size: the most values; beyond it those go that nobody has asked for the longest.
        stale_for: seconds more in which a value is handed out while it is loaded anew, and where
            that fails.
        refresh_ahead: in so many seconds before its end a value is loaded anew by whoever asks
            first; the others are given what is there.
        limit: seconds that a load may take; None for the caller's deadline alone.
        errors_for: seconds for which a failed load is kept and raised again; none unless given.
        clock: the steady clock by which values age, and on which deadlines must be.
    """

    def __init__(
        self,
        load: Callable[[Any, Deadline], ValueT],
        *,
        fresh_for: Seconds | Callable[[ValueT], Seconds | Expiry],
        max_size: int,
        stale_for: Seconds = 0.0,
        refresh_ahead: Seconds = 0.0,
        errors_for: Seconds = 0.0,
        limit: Seconds | None = None,
        clock: SteadyClock = MONOTONIC,
    ) -> None:
        shelf = (fresh_for, stale_for, refresh_ahead, errors_for, max_size)
        super().__init__(load, shelf, limit, clock)

    def _new_lock(self) -> AbstractContextManager[Any]:
        # Reentrant, for signal handlers and finalisers; held for a few lines at a time.
        return threading.RLock()

    def get(self, key: Hashable, deadline: Deadline) -> ValueT:
        """Return the value of `key`, loaded if need be. Bounds the waiting for another's load.

        Raises:
            DeadlineExceeded, StopRequested: a bound was reached first. A load under way goes on.
            What the load raised; all who waited for it are given the same error.
            ClockError: the deadline is on another clock.
        """
        # Nearly always a plain hit: the same rules, without a call.
        if type(deadline) is not Deadline:
            deadline = as_deadline(deadline)
        entry = self._entries.get(key)
        if (
            entry is not None
            and deadline._clock is self.clock
            and deadline._stop is None
            and entry.plain
        ):
            now = self._now()
            if now < entry.ahead and now < deadline._at:
                with self._lock:
                    self._hit(key)
                return entry.value
        while True:
            flight: Flight[ValueT] = Flight(threading.get_ident())
            try:
                found = self._find(key, deadline, flight)
                if found.mine is not None:
                    return self._lead(key, found, deadline)
            except BaseException:
                self._abandon(key, flight)
                raise
            if found.other is None:
                assert found.entry is not None
                return value_of(found.entry)
            refuse_on_loop_thread("ExpiringCache", "AsyncExpiringCache")
            if not wait_in_thread(found.other.done, deadline):
                raise late(deadline)
            outcome = found.other.outcome
            # Without one it was its caller's own affair: one of those who waited loads now.
            if outcome is not None:
                return settled(outcome, deadline)

    def _lead(self, key: Hashable, found: Found[ValueT], deadline: Deadline) -> ValueT:
        outcome: Returned[ValueT] | BaseException
        failure: BaseException | None = None
        flight = found.mine
        assert flight is not None
        try:
            outcome = Returned(self._load(key, self._limited(deadline)))
        except BaseException as error:  # noqa: BLE001  (raised again below)
            outcome = error
        try:
            failure = self._end(key, flight, outcome, deadline)
            if failure is None:
                assert isinstance(outcome, Returned)
                return settled(outcome, deadline)
            if deadline.remaining() > 0 and self._instead(found.entry, failure, self._now()):
                assert found.entry is not None
                return found.entry.value
            raise failure
        finally:
            # Its traceback holds this frame.
            del outcome, failure, found

    @staticmethod
    def memoizing(
        *,
        fresh_for: Seconds | Callable[[Any], Seconds | Expiry],
        max_size: int,
        stale_for: Seconds = 0.0,
        refresh_ahead: Seconds = 0.0,
        errors_for: Seconds = 0.0,
        limit: Seconds | None = None,
        clock: SteadyClock = MONOTONIC,
    ) -> Callable[[Callable[ParamsT, KeptT]], Memoized[ParamsT, KeptT]]:
        """Return a decorator for functions that take `deadline`: their values are kept.

        `@ExpiringCache.memoizing(fresh_for=60, max_size=1000)` above a function whose other
        arguments then are the key. The cache is the function's `.cache`; the options are those of
        the class.
        """

        def decorate(fn: Callable[ParamsT, KeptT]) -> Memoized[ParamsT, KeptT]:
            cache: ExpiringCache[KeptT] = ExpiringCache(
                loader_of(fn),
                fresh_for=fresh_for,
                max_size=max_size,
                stale_for=stale_for,
                refresh_ahead=refresh_ahead,
                errors_for=errors_for,
                limit=limit,
                clock=clock,
            )

            def wrapper(*args: Any, deadline: Deadline, **kwargs: Any) -> KeptT:
                return cache.get(as_key(args, kwargs), as_deadline(deadline))

            return cast("Memoized[ParamsT, KeptT]", memoized(wrapper, fn, cache))

        return decorate
