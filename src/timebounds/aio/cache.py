"""`AsyncExpiringCache`: as `ExpiringCache`, for the tasks of one loop.

- A load is a task of its own, which belongs to all who wait for it: each one's cancel and deadline
  is its own, and when nobody waits any more the load is cancelled.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, final

from timebounds._settled import Returned
from timebounds.bounds.clock import MONOTONIC, SteadyClock
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.bounds.waking import wait_in_task
from timebounds.policies.caching import Cache, late, loader_of, memoized, settled, value_of
from timebounds.policies.shelf import Flight, as_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from contextlib import AbstractContextManager

    from timebounds._checks import Seconds
    from timebounds.bounds.expiry import Expiry

__all__ = ["AsyncExpiringCache"]

ValueT = TypeVar("ValueT")
ParamsT = ParamSpec("ParamsT")
# Of a decorated function: that of the class would be nothing where the class is not subscripted.
KeptT = TypeVar("KeptT")


class AsyncMemoized(Protocol[ParamsT, ValueT]):
    """An async function whose values are kept in `cache`."""

    cache: AsyncExpiringCache[ValueT]

    async def __call__(self, *args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ValueT:
        """Return the value for these arguments."""
        ...


@final
class AsyncExpiringCache(Cache[ValueT]):
    """Loads each key once, and hands its value out as long as it is fresh. For the tasks of a loop.

    As `ExpiringCache`, but `load` is `async`, and a load belongs to all who wait for it: it goes on
    when the one who asked first has left, and is cancelled when all have. Its deadline is `limit`
    seconds away, or never.
    """

    def __init__(
        self,
        load: Callable[[Any, Deadline], Awaitable[ValueT]],
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
        # Between two awaits there is nobody else.
        return nullcontext()

    async def get(self, key: Hashable, deadline: Deadline) -> ValueT:
        """Return the value of `key`, loaded if need be. Bounds the waiting for the load.

        Raises as `ExpiringCache.get`. A cancel is this caller's own.
        """
        mine: Flight[ValueT] = Flight(asyncio.current_task())
        try:
            found = self._find(key, deadline, mine)
            if found.mine is not None:
                mine.task = mine.owner = asyncio.ensure_future(self._run(key, mine))
                mine.task.add_done_callback(partial(self._landed, key, mine))
        except BaseException:
            self._abandon(key, mine)
            raise
        flight = found.mine or found.other
        if flight is None:
            assert found.entry is not None
            return value_of(found.entry)
        await self._wait(key, flight, deadline)
        outcome = flight.outcome
        try:
            failed = isinstance(outcome, Exception) and found.mine is not None
            if failed and self._instead(found.entry, outcome, self._now()):
                assert found.entry is not None
                return found.entry.value
            assert outcome is not None
            return settled(outcome, deadline)
        finally:
            # Its traceback holds this frame.
            del outcome, found, flight, mine

    async def _wait(self, key: Hashable, flight: Flight[ValueT], deadline: Deadline) -> None:
        flight.waiters += 1
        try:
            if not await wait_in_task(flight.done, deadline):
                raise late(deadline)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.done.requested():
                self._shelf.abandon(key, flight)
                flight.task.cancel()

    def _landed(self, key: Hashable, flight: Flight[ValueT], _: object) -> None:
        """End a load that could not do so itself: it was cancelled before its first turn."""
        if not flight.done.requested():
            told = RuntimeError("the load of this key was cancelled before it began")
            self._end(key, flight, told, Deadline.never(clock=self.clock))

    async def _run(self, key: Hashable, flight: Flight[ValueT]) -> None:
        outcome: Returned[ValueT] | BaseException
        never = Deadline.never(clock=self.clock)
        try:
            outcome = Returned(await self._load(key, self._limited(never)))
        except Exception as error:  # noqa: BLE001  (it is raised to all who wait)
            outcome = error
        except BaseException as error:
            told: BaseException = error
            if flight.waiters:
                told = RuntimeError("the load of this key was cancelled, by none who waited for it")
                told.__cause__ = error
            self._end(key, flight, told, never)
            raise
        try:
            self._end(key, flight, outcome, never)
        finally:
            del outcome

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
    ) -> Callable[[Callable[ParamsT, Awaitable[KeptT]]], AsyncMemoized[ParamsT, KeptT]]:
        """Return a decorator for `async` functions that take `deadline`. As `ExpiringCache`'s."""

        def decorate(fn: Callable[ParamsT, Awaitable[KeptT]]) -> AsyncMemoized[ParamsT, KeptT]:
            cache: AsyncExpiringCache[KeptT] = AsyncExpiringCache(
                loader_of(fn),
                fresh_for=fresh_for,
                max_size=max_size,
                stale_for=stale_for,
                refresh_ahead=refresh_ahead,
                errors_for=errors_for,
                limit=limit,
                clock=clock,
            )

            async def wrapper(*args: Any, deadline: Deadline, **kwargs: Any) -> KeptT:
                return await cache.get(as_key(args, kwargs), as_deadline(deadline))

            return cast("AsyncMemoized[ParamsT, KeptT]", memoized(wrapper, fn, cache))

        return decorate
