"""The shelf: what a cache holds, for how long it is fresh, and who loads what is not there.

A machine: its methods take the time, and whoever has several threads holds a lock around each.

Rules (X1 of the contracts):
- At or after its time a value is not fresh. Stale values are served by declaration alone.
- One load a key at a time. Whoever else asks waits for it, or is served what is still good.
- A failure reaches all who wait and is not kept, unless that was asked for. One that is the
  loader's caller's own, a bound of his or a cancel, is nobody else's: one of them loads.
- Values are handed out as they were put in. There are never more than the maximum.

What must not live here: clocks, locks, waiting, calling loaders.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, final

from timebounds._checks import FAR_NS, NS, count, nanoseconds, shown
from timebounds._settled import Returned
from timebounds.bounds.expiry import Expiry
from timebounds.bounds.stop import StopSignal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

    from timebounds._checks import Seconds

__all__ = ["CacheReport", "Freshness"]

ValueT = TypeVar("ValueT")
# For how many ns a value is fresh, and until when.
Lasting = tuple[int, Expiry | None]
_ANY: Any = object()


@final
class Freshness(StrEnum):
    """What a cache has to say of a key."""

    FRESH = "fresh"
    STALE = "stale"
    """Its time is over, and it is still served while it is loaded anew."""
    MISS = "miss"


@final
class CacheReport(NamedTuple):
    """What a cache has done so far."""

    hits: int
    """Fresh values handed out without a load."""
    stale: int
    """Values handed out whose time was over."""
    loads: int
    failures: int
    """Loads that raised."""
    evicted: int
    """Values that were dropped since there were too many."""


@final
class Entry(Generic[ValueT]):
    """A value, or (kept on demand) an error, and its times."""

    __slots__ = ("ahead", "error", "expiry", "fresh", "plain", "stale", "trace", "value")

    value: ValueT
    error: Exception | None
    # Instants in ns: until it is handed out without more ado, is fresh, is served stale.
    ahead: int
    fresh: int
    stale: int
    expiry: Expiry | None
    # Of the error, as it came: each raise makes it longer.
    trace: TracebackType | None
    # A value without an expiry of its own.
    plain: bool


@final
class Flight(Generic[ValueT]):
    """A load that is under way: who waits is woken by `done`, and finds the outcome."""

    __slots__ = ("begun", "done", "outcome", "owner", "task", "waiters")

    begun: bool
    done: StopSignal
    owner: object
    waiters: int
    outcome: Returned[ValueT] | Exception | None
    """None also when it ended without one that is any of the others' business."""

    def __init__(self, owner: object) -> None:
        self.begun = False
        self.outcome = None
        self.owner = owner
        self.task: Any = None
        self.waiters = 0


@final
class Shelf(Generic[ValueT]):
    """The values of one cache."""

    __slots__ = (
        "_ahead_ns", "_counts", "_errors_ns", "_fresh_for", "_max_size", "_stale_ns", "entries",
        "flights",
    )  # fmt: skip

    def __init__(
        self,
        fresh_for: Seconds | Callable[[ValueT], Seconds | Expiry],
        stale_for: Seconds,
        refresh_ahead: Seconds,
        errors_for: Seconds,
        max_size: int,
    ) -> None:
        if not callable(fresh_for):
            nanoseconds(fresh_for, "fresh_for")
        self._fresh_for = fresh_for
        self._stale_ns = nanoseconds(stale_for, "stale_for")
        self._ahead_ns = nanoseconds(refresh_ahead, "refresh_ahead")
        self._errors_ns = nanoseconds(errors_for, "errors_for")
        self._max_size = count(max_size, "max_size", minimum=1)
        # Those that were asked for the longest time ago come first.
        self.entries: OrderedDict[Hashable, Entry[ValueT]] = OrderedDict()
        self.flights: dict[Hashable, Flight[ValueT]] = {}
        self._counts = [0, 0, 0, 0, 0]

    @property
    def report(self) -> CacheReport:
        """What was done so far."""
        return CacheReport(*self._counts)

    def look(self, key: Hashable, now: int) -> tuple[Freshness, Entry[ValueT] | None]:
        """Return how fresh the value is, and the entry unless there is none that is served."""
        entry = self.entries.get(key)
        if entry is None:
            return Freshness.MISS, None
        if now < entry.fresh and (entry.expiry is None or entry.expiry.fresh()):
            return Freshness.FRESH, entry
        if now < entry.stale and entry.error is None:
            return Freshness.STALE, entry
        return Freshness.MISS, None

    def hit(self, key: Hashable, now: int) -> Entry[ValueT] | None:
        """Return the entry if it is fresh and no load is worth while."""
        entry = self.entries.get(key)
        if entry is None or now >= entry.ahead:
            return None
        if entry.expiry is not None and not entry.expiry.fresh():
            return None
        self.count_hit(key)
        return entry

    def count_hit(self, key: Hashable) -> None:
        """Count a value that was handed out, and that it was asked for."""
        self._counts[0] += 1
        try:
            self.entries.move_to_end(key)
        except KeyError:
            return  # dropped a moment ago

    def begin(self, key: Hashable, flight: Flight[ValueT]) -> bool:
        """Begin a load, unless one is under way; say so."""
        if key in self.flights:
            return False
        flight.done = StopSignal()
        flight.begun = True
        self.flights[key] = flight
        self._counts[2] += 1
        return True

    def end(
        self,
        key: Hashable,
        flight: Flight[ValueT],
        outcome: Returned[ValueT] | Exception | None,
        now: int,
        lasting: Lasting,
    ) -> None:
        """End a load: store what it brought, unless the key was dropped or put meanwhile."""
        flight.outcome = outcome
        current = self.flights.get(key) is flight
        if current:
            del self.flights[key]
        if isinstance(outcome, Returned):
            if current:
                self.put(key, outcome.value, now, lasting)
            return
        self._counts[3] += 1
        keeps = outcome is not None and current and self._errors_ns
        # Not in the place of a value that is still good for something.
        if keeps and self.look(key, now)[1] is None:
            self._keep(key, _ANY, outcome, now + self._errors_ns, None)

    def abandon(self, key: Hashable, flight: Flight[ValueT]) -> None:
        """Let the next who asks begin a load of his own."""
        if self.flights.get(key) is flight:
            del self.flights[key]

    def served(self, freshness: Freshness) -> None:
        """Count what was handed out instead of loaded."""
        self._counts[freshness is Freshness.STALE] += 1

    def lasting(self, value: ValueT) -> Lasting:
        """Ask `fresh_for` of a value. That is not ours, and takes its time: outside of locks."""
        length: object = self._fresh_for
        if callable(length):
            length = length(value)
        if isinstance(length, Expiry):
            # By the wall clock; but one that is set back makes nothing fresh for longer.
            return min(FAR_NS, round(length.remaining() * NS)), length
        return nanoseconds(length, "fresh_for"), None

    def put(self, key: Hashable, value: ValueT, now: int, lasting: Lasting) -> None:
        """Store a value. What is being loaded may be older: it is not stored."""
        self.flights.pop(key, None)
        left, expiry = lasting
        self._keep(key, value, None, now + left, expiry)

    def _keep(
        self,
        key: Hashable,
        value: ValueT,
        error: Exception | None,
        fresh: int,
        expiry: Expiry | None,
    ) -> None:
        entry: Entry[ValueT] = Entry()
        entry.value, entry.error, entry.expiry = value, error, expiry
        entry.trace = None if error is None else error.__traceback__
        entry.plain = error is None and expiry is None
        entry.fresh, entry.stale = fresh, fresh + self._stale_ns
        entry.ahead = fresh if error is not None else fresh - self._ahead_ns
        # Room first: an interrupt leaves too little, and never too much.
        self.entries.pop(key, None)
        if len(self.entries) >= self._max_size:
            self.entries.popitem(last=False)
            self._counts[4] += 1
        self.entries[key] = entry

    def drop(self, key: Hashable, value: object = _ANY) -> bool:
        """Drop a value, or (given one) only that very object; say whether it was there."""
        entry = self.entries.get(key)
        if value is _ANY:
            # What is being loaded may be older than the drop: it is not stored.
            self.flights.pop(key, None)
        elif entry is None or entry.value is not value:
            return False
        return self.entries.pop(key, None) is not None

    def clear(self) -> None:
        """Drop everything."""
        self.entries.clear()
        self.flights.clear()


def as_load(load: Any) -> Any:
    """Return the loader, if it can be called."""
    if not callable(load):
        msg = f"load must be a function of key and deadline, not {shown(load)}"
        raise TypeError(msg)
    return load


def as_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Return the key of a call."""
    return args, tuple(sorted(kwargs.items()))
