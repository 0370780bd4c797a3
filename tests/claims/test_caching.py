"""X1, in both colours: what is served, who loads, and whose failure it is."""

from __future__ import annotations

import asyncio
import inspect
import threading
from datetime import timedelta

import pytest
from moments import until

from timebounds import (
    AsyncExpiringCache,
    CacheReport,
    ClockError,
    Deadline,
    DeadlineExceeded,
    ExpiringCache,
    Expiry,
    Freshness,
    StopRequested,
    StopSignal,
)
from timebounds.policies.shelf import Flight
from timebounds.testing import FakeClock


class World:
    """A cache of one colour on fake time; `loads` are the keys that were loaded, and when."""

    def __init__(self, tasks, *, takes=0.0, answer=None, **options):
        self.tasks = tasks
        self.clock = FakeClock(auto_advance=not tasks)
        self.loads = []
        self.takes = takes
        self.answer = answer or (lambda key: [key])
        options.setdefault("fresh_for", 10)
        options.setdefault("max_size", 100)
        kind = AsyncExpiringCache if tasks else ExpiringCache
        self.cache = kind(self._task if tasks else self._blocking, clock=self.clock, **options)

    def _blocking(self, key, deadline):
        self.loads.append((key, self.clock.now()))
        self.clock.sleep(self.takes)
        deadline.check("load")
        return self.answer(key)

    async def _task(self, key, deadline):
        self.loads.append((key, self.clock.now()))
        await self.clock.asleep(self.takes)
        deadline.check("load")
        return self.answer(key)

    def get(self, key, seconds=100.0, stop=None):
        deadline = Deadline.after(seconds, clock=self.clock, stop=stop)
        if self.tasks:
            return self.clock.run(self.cache.get(key, deadline))
        return self.cache.get(key, deadline)


@pytest.fixture(params=["blocking", "tasks"])
def tasks(request):
    return request.param == "tasks"


# What is served.


def test_a_value_is_loaded_once_and_handed_out_as_it_was_put_in(tasks):
    """X1."""
    world = World(tasks)
    first = world.get("a")
    assert first == ["a"]
    assert world.get("a") is first
    assert world.loads == [("a", 0.0)]
    assert len(world.cache) == 1
    assert world.cache.report == CacheReport(1, 0, 1, 0, 0)


def test_at_its_time_a_value_is_no_longer_fresh(tasks):
    """X1, A78: fresh until just before 1.0, a miss at 1.0."""
    world = World(tasks, fresh_for=1)
    world.get("a")
    world.clock.advance(0.999)
    assert world.cache.look("a") == (Freshness.FRESH, ["a"])
    world.get("a")
    world.clock.advance(0.001)
    assert world.cache.look("a") == (Freshness.MISS, None)
    world.get("a")
    assert world.loads == [("a", 0.0), ("a", 1.0)]


def test_a_value_that_is_fresh_for_nothing_never_hits(tasks):
    """A78."""
    world = World(tasks, fresh_for=0)
    world.get("a")
    world.get("a")
    assert len(world.loads) == 2


def test_freshness_counts_from_the_end_of_the_load(tasks):
    world = World(tasks, takes=5, fresh_for=10)
    world.get("a")
    world.clock.advance(9.999)
    assert world.cache.look("a")[0] is Freshness.FRESH


def test_a_value_may_say_itself_how_long_it_is_fresh(tasks):
    """X1: seconds, a timedelta, or an expiry by the wall clock."""
    clocks = []
    lengths = {
        "short": lambda: 1,
        "delta": lambda: timedelta(seconds=3),
        "expiry": lambda: Expiry.after(5, clock=clocks[0].wall),
    }
    world = World(tasks, fresh_for=lambda value: lengths[value[0]]())
    clocks.append(world.clock)
    for key in lengths:
        world.get(key)

    def fresh():
        return [key for key in lengths if world.cache.look(key)[0] is Freshness.FRESH]

    assert fresh() == ["short", "delta", "expiry"]
    world.clock.advance(1)
    assert fresh() == ["delta", "expiry"]
    world.clock.step_wall(4)
    assert fresh() == ["delta"]
    assert world.get("expiry") == ["expiry"]
    assert [key for key, _ in world.loads].count("expiry") == 2


def test_a_wall_that_is_set_back_makes_nothing_fresh_for_longer(tasks):
    clocks = []
    world = World(tasks, fresh_for=lambda value: Expiry.after(5, clock=clocks[0].wall))
    clocks.append(world.clock)
    world.get("a")
    world.clock.step_wall(-1000)
    world.clock.advance(5)
    assert world.cache.look("a")[0] is Freshness.MISS


def test_a_stale_value_is_served_where_its_load_fails_by_declaration(tasks):
    """X1."""
    failing = []

    def answer(key):
        if failing:
            raise ValueError("down")
        return [key]

    world = World(tasks, answer=answer, stale_for=20)
    first = world.get("a")
    failing.append(True)
    world.clock.advance(10)
    assert world.cache.look("a") == (Freshness.STALE, ["a"])
    assert world.get("a") is first
    world.clock.advance(20)
    with pytest.raises(ValueError, match="down"):
        world.get("a")
    assert world.cache.report == CacheReport(0, 1, 3, 2, 0)


def test_without_a_declaration_nothing_stale_is_served(tasks):
    answers = [["a"]]

    def answer(key):
        return answers.pop()

    world = World(tasks, answer=answer)
    world.get("a")
    world.clock.advance(10)
    with pytest.raises(IndexError):
        world.get("a")


def test_a_value_is_refreshed_ahead_of_its_end_by_declaration(tasks):
    """X1: and a failure then hurts nobody."""
    failing = []

    def answer(key):
        if failing:
            raise ValueError("down")
        return [key]

    world = World(tasks, answer=answer, refresh_ahead=3)
    first = world.get("a")
    world.clock.advance(6.9)
    assert world.get("a") is first
    assert len(world.loads) == 1
    world.clock.advance(0.1)
    failing.append(True)
    assert world.get("a") is first
    failing.clear()
    second = world.get("a")
    assert second == first
    assert second is not first
    assert world.cache.look("a") == (Freshness.FRESH, second)
    assert world.cache.report == CacheReport(2, 0, 3, 1, 0)


# Failures.


def test_an_error_is_not_kept_unless_asked(tasks):
    """X1, A75."""

    def answer(key):
        raise ValueError(key)

    world = World(tasks, answer=answer)
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            world.get("a")
    assert len(world.loads) == 2

    world = World(tasks, answer=answer, errors_for=5)
    for _ in range(2):
        with pytest.raises(ValueError, match="a"):
            world.get("a")
    assert len(world.loads) == 1
    assert world.cache.look("a") == (Freshness.MISS, None)
    world.clock.advance(5)
    with pytest.raises(ValueError, match="a"):
        world.get("a")
    assert len(world.loads) == 2


def test_what_fresh_for_says_of_a_value_may_be_wrong(tasks):
    world = World(tasks, fresh_for=lambda value: -1)
    with pytest.raises(ValueError, match="fresh_for"):
        world.get("a")
    assert len(world.cache) == 0


def test_an_expired_deadline_begins_nothing_and_is_given_nothing(tasks):
    """D3: a hit neither."""
    world = World(tasks)
    with pytest.raises(DeadlineExceeded):
        world.get("a", 0)
    assert world.loads == []
    world.get("a")
    with pytest.raises(DeadlineExceeded):
        world.get("a", 0)
    stop = StopSignal()
    stop.request()
    with pytest.raises(StopRequested):
        world.get("a", stop=stop)


def test_a_value_that_comes_too_late_is_kept_for_the_others(tasks):
    def answer(key):
        return [key]

    world = World(tasks, answer=answer)

    def late(key, deadline):
        world.clock.sleep(5)
        return [key]

    async def late_task(key, deadline):
        await world.clock.asleep(5)
        return [key]

    world.cache._load = late_task if tasks else late
    with pytest.raises(DeadlineExceeded):
        world.get("a", 4)
    if not tasks:
        assert world.cache.look("a") == (Freshness.FRESH, ["a"])


def test_a_failure_by_the_callers_own_deadline_is_not_kept():
    """X1: the next one has time."""
    world = World(False, takes=5, errors_for=60)
    with pytest.raises(DeadlineExceeded):
        world.get("a", 4)
    assert world.get("a") == ["a"]


def test_a_limit_bounds_each_load(tasks):
    world = World(tasks, takes=5, limit=3)
    with pytest.raises(DeadlineExceeded, match="load: the deadline of 3 s"):
        world.get("a")
    world = World(tasks, takes=5, limit=3, stale_for=100)
    world.cache.put("a", "old")
    world.clock.advance(50)
    assert world.get("a") == "old"


# Putting and dropping.


def test_what_is_put_is_served_and_what_is_dropped_is_not(tasks):
    """X1: dropped only while it is that very object."""
    world = World(tasks)
    value = ["put"]
    world.cache.put("a", value)
    assert world.get("a") is value
    assert not world.cache.drop("a", ["put"])
    assert not world.cache.drop("b", value)
    assert world.cache.drop("a", value)
    assert not world.cache.drop("a")
    world.cache.put("a", value)
    assert world.cache.drop("a")
    world.cache.put("a", value)
    world.cache.clear()
    assert len(world.cache) == 0
    assert "0 values" in repr(world.cache)


def test_what_was_dropped_while_it_was_loaded_is_handed_out_and_not_stored(tasks):
    """A76: it may be older than the drop."""

    def answer(key):
        world.cache.drop(key)
        return [key]

    world = World(tasks, answer=answer)
    assert world.get("a") == ["a"]
    assert len(world.cache) == 0


def test_there_are_never_more_than_the_maximum_and_what_is_used_stays(tasks):
    """X1, A76."""
    world = World(tasks, max_size=3, fresh_for=1000)
    for key in "abc":
        world.get(key)
    world.get("d")
    assert len(world.cache) == 3
    for key in "efgh":
        world.get("d")
        world.get(key)
        assert len(world.cache) == 3
    assert world.cache.look("d")[0] is Freshness.FRESH
    assert world.cache.report.evicted == 5


# Many at once.


def test_a_stampede_is_one_load_in_threads():
    """A75: 32 threads, one gated load; other keys are not held up."""
    gate, entered = threading.Event(), threading.Event()
    loads = []

    def load(key, deadline):
        loads.append(key)
        if key == "slow":
            entered.set()
            gate.wait(30)
        return [key]

    cache = ExpiringCache(load, fresh_for=60, max_size=10)
    values = []
    threads = [
        threading.Thread(target=lambda: values.append(cache.get("slow", Deadline.after(30))))
        for _ in range(32)
    ]
    for each in threads:
        each.start()
    assert entered.wait(10)
    assert cache.get("other", Deadline.after(5)) == ["other"]
    with pytest.raises(DeadlineExceeded, match="the load goes on"):
        cache.get("slow", Deadline.after(0.01))
    gate.set()
    for each in threads:
        each.join()
    assert loads == ["slow", "other"]
    assert all(each is values[0] for each in values)
    assert len(values) == 32


def test_a_stampede_is_one_load_in_tasks():
    """A75."""
    clock = FakeClock()
    loads = []

    async def load(key, deadline):
        loads.append(key)
        await asyncio.sleep(5)  # fake time
        return [key]

    cache = AsyncExpiringCache(load, fresh_for=60, max_size=10, clock=clock)

    async def main():
        waiting = [cache.get("slow", clock.deadline(30)) for _ in range(1000)]
        return await asyncio.gather(*waiting, cache.get("other", clock.deadline(30)))

    values = clock.run(main())
    assert loads == ["slow", "other"]
    assert len({id(each) for each in values}) == 2
    assert clock.now() == 5.0


def in_threads(count, fn):
    """Run `fn` in so many threads; return what each returned or raised."""
    outcomes = []

    def run():
        try:
            outcomes.append(fn())
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    return outcomes


def test_a_failure_reaches_all_who_wait():
    """A75."""
    gate = threading.Event()
    loads = []

    def load(key, deadline):
        loads.append(key)
        gate.wait(30)
        raise ValueError("down")

    cache = ExpiringCache(load, fresh_for=60, max_size=10)
    opener = threading.Thread(target=lambda: (until(lambda: waiting(cache, "a", 7)), gate.set()))
    opener.start()
    outcomes = in_threads(8, lambda: cache.get("a", Deadline.after(30)))
    opener.join()
    assert loads == ["a"]
    assert {str(each) for each in outcomes} == {"down"}
    assert len(cache) == 0


def waiting(cache, key, count):
    """Whether so many threads wait for the load."""
    flight = cache._shelf.flights.get(key)
    return flight is not None and len(flight.done._callbacks) >= 2 * count


def test_one_callers_bound_is_nobody_elses():
    """A77, in threads: who waits loads himself when the first one's time is over."""
    gate = threading.Event()
    stop = StopSignal()
    loads = []

    def load(key, deadline):
        loads.append(key)
        if len(loads) == 1:
            gate.wait(30)
            stop.request("shutting down")
            deadline.check("load")
        return [key]

    cache = ExpiringCache(load, fresh_for=60, max_size=10)
    failed = []

    def first():
        with pytest.raises(StopRequested):
            cache.get("a", Deadline.after(30, stop=stop))
        failed.append(True)

    leader = threading.Thread(target=first)
    leader.start()
    until(lambda: loads)
    opener = threading.Thread(target=lambda: (until(lambda: waiting(cache, "a", 3)), gate.set()))
    opener.start()
    outcomes = in_threads(3, lambda: cache.get("a", Deadline.after(30)))
    opener.join()
    leader.join()
    assert failed == [True]
    assert loads == ["a", "a"]
    assert outcomes == [["a"]] * 3


def test_each_waiters_cancel_is_its_own():
    """A77: the first leaves, the others are given the value; all leave, the load ends."""
    clock = FakeClock()
    loads, ended = [], []

    async def load(key, deadline):
        loads.append(key)
        try:
            await asyncio.sleep(10)  # fake time
        except asyncio.CancelledError:
            ended.append(clock.now())
            raise
        return [key]

    cache = AsyncExpiringCache(load, fresh_for=60, max_size=10, clock=clock)

    async def main():
        tasks = [asyncio.ensure_future(cache.get("a", clock.deadline(30))) for _ in range(3)]
        await asyncio.sleep(1)  # fake time
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert await tasks[1] is await tasks[2]
        assert loads == ["a"]
        cache.clear()

        tasks = [asyncio.ensure_future(cache.get("a", clock.deadline(30))) for _ in range(3)]
        await asyncio.sleep(1)  # fake time
        for each in tasks:
            each.cancel()
        again = asyncio.ensure_future(cache.get("a", clock.deadline(30)))
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await again == ["a"]

    clock.run(main())
    assert ended in ([11.0], [])
    assert len(loads) in (2, 3)


def test_when_nobody_waits_any_more_the_load_ends_and_the_next_one_loads():
    """A77."""
    clock = FakeClock()
    loads, ended = [], []

    async def load(key, deadline):
        loads.append(key)
        try:
            await asyncio.sleep(10)  # fake time
        except asyncio.CancelledError:
            ended.append(clock.now())
            raise
        return [key]

    cache = AsyncExpiringCache(load, fresh_for=60, max_size=10, clock=clock)

    async def main():
        with pytest.raises(DeadlineExceeded, match="the load goes on"):
            await cache.get("a", clock.deadline(2))
        assert await cache.get("a", clock.deadline(30)) == ["a"]

    clock.run(main())
    assert ended == [2.0]
    assert loads == ["a", "a"]


def test_who_leaves_a_load_that_was_dropped_ends_it_and_no_other():
    """A77."""
    clock = FakeClock()
    loads = []

    async def load(key, deadline):
        loads.append(key)
        await asyncio.sleep(10)  # fake time
        return len(loads)

    cache = AsyncExpiringCache(load, fresh_for=60, max_size=10, clock=clock)

    async def main():
        first = asyncio.ensure_future(cache.get("a", clock.deadline(30)))
        await asyncio.sleep(1)  # fake time
        cache.drop("a")
        second = asyncio.ensure_future(cache.get("a", clock.deadline(30)))
        await asyncio.sleep(1)  # fake time
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second == 2
        assert await cache.get("a", clock.deadline(30)) == 2

    clock.run(main())
    assert loads == ["a", "a"]


def test_a_load_that_cancels_itself_is_told_as_a_failure():
    clock = FakeClock()

    async def load(key, deadline):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    cache = AsyncExpiringCache(load, fresh_for=60, max_size=10, clock=clock)

    async def main():
        with pytest.raises(RuntimeError, match="was cancelled, by none who waited"):
            await cache.get("a", clock.deadline(2))

    clock.run(main())


def test_a_load_that_asks_for_its_own_key_is_told(tasks):
    world = World(tasks)

    def again(key, deadline):
        return world.cache.get(key, deadline)

    async def again_task(key, deadline):
        return await world.cache.get(key, deadline)

    world.cache._load = again_task if tasks else again
    with pytest.raises(RuntimeError, match="wait for itself"):
        world.get("a")


def test_an_interrupt_is_its_own_threads_and_the_next_one_loads():
    """A76."""
    answers = [KeyboardInterrupt(), ["a"]]

    def load(key, deadline):
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    cache = ExpiringCache(load, fresh_for=60, max_size=10)
    with pytest.raises(KeyboardInterrupt):
        cache.get("a", Deadline.after(5))
    assert cache.get("a", Deadline.after(5)) == ["a"]
    assert cache._shelf.flights == {}


def test_another_ones_stale_load_holds_nobody_up(tasks):
    """X1: while one loads, the others are given what is stale."""
    clock = FakeClock()
    gate = threading.Event()
    if tasks:

        async def load(key, deadline):
            await asyncio.sleep(5)  # fake time
            return "new"

        cache = AsyncExpiringCache(load, fresh_for=1, stale_for=10, max_size=1, clock=clock)

        async def main():
            loading = asyncio.ensure_future(cache.get("a", clock.deadline(30)))
            await asyncio.sleep(0)
            assert await cache.get("a", clock.deadline(30)) == "old"
            return await loading

        cache.put("a", "old")
        clock.advance(2)
        assert clock.run(main()) == "new"
        assert cache.report.stale == 1
        return

    def blocking(key, deadline):
        gate.wait(30)
        return "new"

    cache = ExpiringCache(blocking, fresh_for=1, stale_for=10, max_size=1, clock=clock)
    cache.put("a", "old")
    clock.advance(2)
    values = []
    thread = threading.Thread(target=lambda: values.append(cache.get("a", clock.deadline(30))))
    thread.start()
    until(lambda: cache._shelf.flights)
    assert cache.get("a", clock.deadline(30)) == "old"
    gate.set()
    thread.join()
    assert values == ["new"]


def test_a_thread_with_a_loop_is_refused_where_it_would_wait():
    gate = threading.Event()
    cache = ExpiringCache(lambda key, deadline: gate.wait(30), fresh_for=1, max_size=1)
    thread = threading.Thread(target=lambda: cache.get("a", Deadline.after(30)))
    thread.start()
    until(lambda: cache._shelf.flights)

    async def main():
        with pytest.raises(RuntimeError, match="AsyncExpiringCache"):
            cache.get("a", Deadline.after(1))

    try:
        asyncio.run(main())
    finally:
        gate.set()
        thread.join()


def test_threads_that_put_drop_and_expire_leave_no_key_poisoned():
    """A76: 8 threads, 50 keys, values that live for 1 ms."""
    cache = ExpiringCache(lambda key, deadline: [key], fresh_for=0.001, max_size=20)

    def storm():
        for n in range(1500):
            key = n * 7 % 50
            assert cache.get(key, Deadline.after(30)) == [key]
            if n % 5 == 0:
                cache.drop(key)
            if n % 7 == 0:
                cache.put(key, [key])
            assert len(cache) <= 21
        return True

    assert in_threads(8, storm) == [True] * 8
    for key in range(50):
        cache.put(key, [key])
        assert cache.get(key, Deadline.after(5)) == [key]
        cache.drop(key)
    assert cache._shelf.flights == {}
    assert len(cache) == 0 or len(cache) <= 20


def test_a_hit_on_what_was_dropped_a_moment_ago_is_a_hit_all_the_same():
    """A76."""
    cache = ExpiringCache(lambda key, deadline: [key], fresh_for=60, max_size=20)
    cache.put("a", "value")
    entry = cache._entries["a"]

    class Dropping:
        def __enter__(self):
            cache._shelf.drop("a")

        def __exit__(self, *exc_info):
            pass

    cache._lock = Dropping()
    assert cache.get("a", Deadline.after(5)) == "value"
    assert entry.value == "value"
    assert cache.report.hits == 1


def test_an_error_that_is_kept_is_no_value_that_could_be_dropped():
    """X1: not even None is."""

    def fails(key):
        raise OSError(key)

    world = World(False, answer=fails, errors_for=5)
    for _ in range(2):
        with pytest.raises(OSError, match="a"):
            world.get("a")
        assert not world.cache.drop("a", None)
    assert len(world.loads) == 1
    assert world.cache.drop("a")


def test_a_load_has_begun_once_it_is_there_to_be_waited_for():
    flight = Flight(None)
    shelf = ExpiringCache(print, fresh_for=10, max_size=10)._shelf
    assert shelf.begin("a", flight)
    assert flight.begun
    assert not flight.done.requested()
    assert not shelf.begin("a", Flight(None))
    assert shelf.flights == {"a": flight}


def test_a_load_that_nobody_ends_is_given_up_once_and_only_its_own():
    """X1: whatever interrupted it."""
    cache = ExpiringCache(print, fresh_for=10, max_size=10)
    flights = cache._shelf.flights
    mine, others = Flight(None), Flight(None)
    mine.done = StopSignal()
    flights |= {"mine": mine, "other": others}
    cache._abandon("mine", mine)
    # It had not begun: it is not there for anybody to wait for.
    assert flights["mine"] is mine
    assert not mine.done.requested()
    mine.begun = True
    cache._abandon("other", mine)
    assert flights["other"] is others
    assert mine.done.requested()
    cache._abandon("mine", mine)
    assert flights["mine"] is mine
    mine.done = StopSignal()
    cache._abandon("mine", mine)
    assert flights == {"other": others}


# The decorator.


def test_a_function_is_memoized_by_its_arguments_without_the_deadline(tasks):
    calls = []
    clock = FakeClock(auto_advance=not tasks)
    options = {"fresh_for": 10, "max_size": 10, "clock": clock}
    if tasks:

        @AsyncExpiringCache.memoizing(**options)
        async def price(symbol, *, currency="EUR", deadline):
            """Ask for a price."""
            assert type(deadline) is Deadline
            calls.append((symbol, currency))
            return len(calls)

    else:

        @ExpiringCache.memoizing(**options)
        def price(symbol, *, currency="EUR", deadline):
            """Ask for a price."""
            assert type(deadline) is Deadline
            calls.append((symbol, currency))
            return len(calls)

    def ask(*args, **kwargs):
        value = price(*args, deadline=clock.deadline(5), **kwargs)
        return clock.run(awaiting(value)) if inspect.isawaitable(value) else value

    async def awaiting(value):
        return await value

    assert [ask("A"), ask("A"), ask("A", currency="USD"), ask("B")] == [1, 1, 2, 3]
    clock.advance(10)
    assert ask("A") == 4
    assert calls == [("A", "EUR"), ("A", "USD"), ("B", "EUR"), ("A", "EUR")]
    assert price.__name__ == "price"
    assert price.__doc__ == "Ask for a price."
    assert price.cache.report.loads == 4
    with pytest.raises(TypeError, match=r"Deadline\.after"):
        ask_with = price("A", deadline=5)
        clock.run(awaiting(ask_with))


# What is refused.


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"load": 1}, TypeError, "load must be a function of key and deadline"),
        ({"fresh_for": -1}, ValueError, "fresh_for"),
        ({"fresh_for": "1"}, TypeError, "fresh_for"),
        ({"stale_for": float("nan")}, ValueError, "stale_for"),
        ({"refresh_ahead": -1}, ValueError, "refresh_ahead"),
        ({"errors_for": -1}, ValueError, "errors_for"),
        ({"limit": 0}, ValueError, "limit"),
        ({"max_size": 0}, ValueError, "max_size"),
        ({"clock": 1}, TypeError, "clock"),
    ],
)
def test_wrong_arguments_are_named(wrong, error, text):
    given = {"load": print, "fresh_for": 1, "max_size": 1} | wrong
    with pytest.raises(error, match=text):
        ExpiringCache(given.pop("load"), **given)


def test_a_deadline_of_another_clock_is_refused(tasks):
    world = World(tasks)
    with pytest.raises(ClockError, match="use one"):
        got = world.cache.get("a", Deadline.after(1))
        world.clock.run(got)
    with pytest.raises(TypeError, match=r"Deadline\.after\(2\)"):
        got = world.cache.get("a", 2)
        world.clock.run(got)
