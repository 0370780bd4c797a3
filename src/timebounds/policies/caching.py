"""What both colours of a cache share: what a caller finds, and how a load ends.

What must not live here: waiting, calling loaders, making locks.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from timebounds._checks import NS, nanoseconds
from timebounds._settled import Returned
from timebounds.bounds.clock import SteadyClock, reader
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.errors import BoundReached, ClockError, DeadlineExceeded
from timebounds.policies.shelf import Freshness, Shelf, as_load

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from timebounds._checks import Seconds
    from timebounds.bounds.expiry import Expiry
    from timebounds.policies.shelf import CacheReport, Entry, Flight, Lasting

__all__: list[str] = []

ValueT = TypeVar("ValueT")


class Found(NamedTuple, Generic[ValueT]):
    """What a caller finds: something to hand out, a load of his own, or another's to wait for."""

    entry: Entry[ValueT] | None
    """What is served at once; beside a load of his own, what is served if that fails."""
    mine: Flight[ValueT] | None
    other: Flight[ValueT] | None


class Cache(Generic[ValueT]):
    """Base of both caches."""

    def __init__(
        self,
        load: Callable[[Any, Deadline], object],
        shelf: tuple[
            Seconds | Callable[[ValueT], Seconds | Expiry], Seconds, Seconds, Seconds, int
        ],
        limit: Seconds | None,
        clock: SteadyClock,
    ) -> None:
        self._load: Any = as_load(load)
        self._shelf: Shelf[ValueT] = Shelf(*shelf)
        self._limit_ns = None if limit is None else nanoseconds(limit, "limit", positive=True)
        self._entries = self._shelf.entries
        self._hit = self._shelf.count_hit
        self._now = reader(clock)
        self.clock = clock
        """The steady clock by which values age."""
        self._lock = self._new_lock()

    @abstractmethod
    def _new_lock(self) -> AbstractContextManager[Any]:
        """Return what keeps others out for a few lines."""

    @property
    def report(self) -> CacheReport:
        """What was done so far: hits, stale values, loads, failures, evictions."""
        return self._shelf.report

    def look(self, key: Hashable) -> tuple[Freshness, ValueT | None]:
        """Say how fresh the value of `key` is, and what it is. Loads nothing, waits for nothing.

        A kept error is a miss.
        """
        with self._lock:
            freshness, entry = self._shelf.look(key, self._now())
        if entry is None or entry.error is not None:
            return Freshness.MISS, None
        return freshness, entry.value

    def put(self, key: Hashable, value: ValueT) -> None:
        """Store a value, as if it had just been loaded.

        What is being loaded meanwhile may be older: it is handed out and not stored.
        """
        lasting = self._shelf.lasting(value)
        with self._lock:
            self._shelf.put(key, value, self._now(), lasting)

    def drop(self, key: Hashable, *value: ValueT) -> bool:
        """Drop the value of `key`; say whether there was one.

        With a value: only if it is that very object, so that what somebody else has loaded since
        stays. Without: what is being loaded meanwhile is handed out and not stored.
        """
        with self._lock:
            return self._shelf.drop(key, *value)

    def clear(self) -> None:
        """Drop everything. What is being loaded is handed out and not stored."""
        with self._lock:
            self._shelf.clear()

    def __len__(self) -> int:
        return len(self._shelf.entries)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} values, {self.report}>"

    # For both colours.

    def _find(self, key: Hashable, deadline: Deadline, flight: Flight[ValueT]) -> Found[ValueT]:
        """Look a key up; begin `flight` where a load is needed and none is under way."""
        if type(deadline) is not Deadline:
            deadline = as_deadline(deadline)
        if deadline._clock is not self.clock:
            msg = f"values age by {self.clock!r}, the deadline is on {deadline.clock!r}: use one"
            raise ClockError(msg)
        shelf = self._shelf
        with self._lock:
            now = self._now()
            stop = deadline._stop
            if now >= deadline._at or (stop is not None and stop.requested()):
                deadline.check("cache")
            entry = shelf.hit(key, now)
            if entry is not None:
                return Found(entry, None, None)
            freshness, entry = shelf.look(key, now)
            if shelf.begin(key, flight):
                return Found(entry, flight, None)
            if entry is not None:
                shelf.served(freshness)
                return Found(entry, None, None)
            other = shelf.flights[key]
            if other.owner is not None and other.owner == flight.owner:
                msg = "the load of this key asks for the same key: it would wait for itself"
                raise RuntimeError(msg)
            return Found(None, None, other)

    def _abandon(self, key: Hashable, flight: Flight[ValueT]) -> None:
        """Leave no load behind that nobody ends, whatever interrupted it: those who wait load."""
        if flight.begun and not flight.done.requested():
            with self._lock:
                self._shelf.abandon(key, flight)
            flight.done.request()

    def _limited(self, deadline: Deadline) -> Deadline:
        """Return the deadline of a load."""
        return deadline if self._limit_ns is None else deadline.within(self._limit_ns / NS)

    def _end(
        self,
        key: Hashable,
        flight: Flight[ValueT],
        outcome: Returned[ValueT] | BaseException,
        deadline: Deadline,
    ) -> BaseException | None:
        """End a load and wake who waits; return what became of it where that is an error."""
        failure: BaseException | None = None
        told: Returned[ValueT] | Exception | None = None
        lasting: Lasting = (0, None)
        now = self._now()
        if isinstance(outcome, Returned):
            told = outcome
            try:
                lasting = self._shelf.lasting(outcome.value)
            except Exception as error:  # noqa: BLE001  (what `fresh_for` said is of no use)
                failure = told = error
        else:
            failure = outcome
            if isinstance(outcome, Exception) and not _own(outcome, deadline, now):
                told = outcome
        with self._lock:
            self._shelf.end(key, flight, told, now, lasting)
        flight.done.request()
        return failure

    def _instead(self, entry: Entry[ValueT] | None, failure: object, now: int) -> bool:
        """Say whether an older value is served instead of a failure."""
        if entry is None or entry.error is not None or not isinstance(failure, Exception):
            return False
        if now >= entry.stale:
            return False
        with self._lock:
            self._shelf.served(Freshness.FRESH if now < entry.fresh else Freshness.STALE)
        return True


def _own(error: Exception, deadline: Deadline, now: int) -> bool:
    """Say whether an error is the caller's own: his time was over, or his stop was requested."""
    if now >= deadline._at:
        return isinstance(error, (BoundReached, OSError, EOFError))
    stop = deadline._stop
    return isinstance(error, BoundReached) and stop is not None and stop.requested()


def value_of(entry: Entry[ValueT]) -> ValueT:
    """Return the value of an entry, or raise the error that was kept."""
    if entry.error is not None:
        raise entry.error.with_traceback(entry.trace)
    return entry.value


def settled(outcome: Returned[ValueT] | Exception, deadline: Deadline) -> ValueT:
    """Return what a load brought to one who waited for it, or raise."""
    if isinstance(outcome, Returned):
        if deadline._now() >= deadline._at:
            deadline.check("cache")
        return outcome.value
    raise outcome


def late(deadline: Deadline) -> DeadlineExceeded:
    """Return the error of one who waited in vain."""
    return DeadlineExceeded(f"{deadline._missed('cache', deadline._now())}, the load goes on")


def loader_of(fn: Callable[..., Any]) -> Callable[[Any, Deadline], Any]:
    """Return what loads the value of a call: of a function whose arguments are the key."""

    def load(key: Any, deadline: Deadline) -> Any:
        args, kwargs = key
        return fn(*args, **dict(kwargs), deadline=deadline)

    return load


def memoized(wrapper: Callable[..., Any], fn: Callable[..., Any], cache: object) -> Any:
    """Return the wrapper as the function that it stands for, with its cache."""
    made: Any = update_wrapper(wrapper, fn)
    made.cache = cache
    return made
