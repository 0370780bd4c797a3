"""G1-G3, M1-M3, X1 under attack: hooks, interrupts, odd clocks and odd nights."""

from __future__ import annotations

import asyncio
import dis
import functools
import gc
import sys
import threading
import weakref
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo

import anywhere
import pytest
from moments import until

import timebounds.blocking.cache
import timebounds.blocking.scheduler
import timebounds.blocking.worker
import timebounds.bounds._threads
import timebounds.policies.agenda
import timebounds.policies.caching
import timebounds.policies.desk
import timebounds.policies.jobs
import timebounds.policies.mailbox
import timebounds.policies.runner
import timebounds.policies.shelf
import timebounds.policies.work
from timebounds import (
    Admission,
    AsyncExpiringCache,
    AsyncScheduler,
    AsyncWorker,
    Clock,
    ClockError,
    Daily,
    Deadline,
    DeadlineExceeded,
    Every,
    ExpiringCache,
    Expiry,
    Freshness,
    Missed,
    Missing,
    Overflow,
    QueueClosed,
    QueueFull,
    Repeated,
    Scheduler,
    StopSignal,
    Work,
    Worker,
)
from timebounds.testing import FakeClock

# Times of day.


def instants(daily, after, many):
    found = []
    for _ in range(many):
        after = daily.next_after(after)
        found.append(after)
    return found


def test_runs_of_one_day_may_lie_among_those_of_the_next():
    """G3. In Newfoundland clocks were set back from 0:01 to 23:01 of the day before."""
    newfoundland = Daily(
        time(0, 0, 30),
        time(23, 30),
        zone="America/St_Johns",
        repeated=Repeated.BOTH,
        missing=Missing.SHIFT,
    )
    found = instants(newfoundland, datetime(2010, 11, 6, 12, tzinfo=UTC), 5)
    assert [each.strftime("%d %H:%M:%S") for each in found] == [
        "07 02:00:00", "07 02:30:30", "07 03:00:00", "07 03:30:30", "08 03:00:00",
    ]  # fmt: skip


def test_a_time_that_is_shifted_over_midnight_hides_none_of_the_next_day():
    """G3. In Toronto, in 1919, clocks were set forward from 23:30 to 0:30 of the next day."""
    toronto = Daily(
        time(0, 35),
        time(23, 45),
        zone="America/Toronto",
        repeated=Repeated.FIRST,
        missing=Missing.SHIFT,
    )
    found = instants(toronto, datetime(1919, 3, 30, 20, tzinfo=UTC), 3)
    local = [each.astimezone(toronto.zone) for each in found]
    assert [each.strftime("%d %H:%M") for each in local] == ["31 00:35", "31 00:45", "31 23:45"]


def test_the_calendar_has_a_first_and_a_last_day():
    """G3."""
    east, west = (timezone(timedelta(hours=hours)) for hours in (14, -5))
    options = {"repeated": Repeated.FIRST, "missing": Missing.SHIFT}
    nine = Daily(time(9), zone=UTC, **options)
    for start in (datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=east)):
        assert nine.next_after(start) == datetime(1, 1, 1, 9, tzinfo=UTC)
    ends = Daily(time(0), time(23), zone=west, **options)
    last = datetime(9999, 12, 31, 5, tzinfo=UTC)
    assert ends.next_after(last - timedelta(hours=1)) == last
    assert ends.next_after(last) is None


class Counting(tzinfo):
    """A zone that counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def utcoffset(self, when):
        self.asked += 1
        return timedelta(hours=1)

    def dst(self, when):
        return timedelta(0)


def test_a_long_leap_of_the_wall_is_work_by_the_instant():
    """G1. A machine without a battery wakes in 1970, and is then told the time."""
    clock, zone, ran = FakeClock(auto_advance=True), Counting(), []
    hours = [time(hour) for hour in range(24)]
    hourly = Daily(*hours, zone=zone, repeated=Repeated.FIRST, missing=Missing.SHIFT)
    scheduler = Scheduler(clock=clock, wall=clock.wall)
    scheduler.add(hourly, ran.append)
    clock.step_wall(86_400 * 100)
    scheduler.run(clock.deadline(1))
    [tick] = ran
    assert tick.missed == 2400
    assert zone.asked < 2400 * 20


# Scheduler.


class Empty(Exception):
    """An error that is false."""

    def __len__(self):
        return 0


def test_an_error_that_is_false_is_an_error():
    """G1."""
    clock = FakeClock(auto_advance=True)
    scheduler = Scheduler(clock=clock, on_error=lambda tick, error: None)

    def run(tick):
        raise Empty

    job = scheduler.add(Every(1), run)
    scheduler.run(clock.deadline(1.5))
    assert type(job.report.last_error) is Empty


def test_a_job_that_the_hook_cancels_does_not_run():
    """G1."""
    clock, ran, told = FakeClock(auto_advance=True), [], []

    def on_missed(job, many):
        told.append((job.cancel(), many))

    scheduler = Scheduler(clock=clock, on_missed=on_missed)
    scheduler.add(Every(1), ran.append)
    clock.jump(5)
    report = scheduler.run(clock.deadline(3))
    assert (ran, told, report.runs) == ([], [(True, 4)], 0)


def test_a_naive_wall_clock_is_told():
    """C2."""

    class Naive(Clock):
        def now(self):
            return datetime(2026, 1, 1)  # noqa: DTZ001

    scheduler = Scheduler(wall=Naive())
    nine = Daily(time(9), zone=UTC, repeated=Repeated.FIRST, missing=Missing.SKIP)
    with pytest.raises(ClockError, match="not an aware datetime"):
        scheduler.add(nine, print)


def test_jobs_that_never_wait_leave_the_loop_to_others():
    """G1. A function that takes longer than its interval is always due."""
    clock, runs = FakeClock(), []
    scheduler = AsyncScheduler(clock=clock)

    def run(tick):
        runs.append(tick)
        clock.jump(2)
        if len(runs) == 100:
            scheduler.close()

    scheduler.add(Every(1, first=0), run)

    async def main():
        asyncio.get_running_loop().call_soon(scheduler.close)
        return await scheduler.run(clock.deadline(1e6))

    assert asyncio.run(main()).runs < 3


# Worker.


def test_stale_work_ends_the_wait_of_a_close():
    """M3. Nothing is done any more, and nobody is left to wake who closes."""
    clock = FakeClock()

    async def handle(work):
        pass

    async def main():
        worker = AsyncWorker(handle, capacity=5, overflow=Overflow.REJECT, clock=clock)
        stop = StopSignal()
        await worker.submit("late", Deadline.after(50, clock=clock, stop=stop))
        stop.request()
        return await worker.close(clock.deadline(1000)), clock.now()

    report, at = clock.run(main())
    assert (report.stale, at) == (1, 0.0)


def test_a_slow_sink_makes_no_stale_work_begin():
    """A73: the look is at the last moment."""
    clock, ready, handled = FakeClock(), threading.Event(), []

    def handle(work):
        handled.append(work.payload)
        ready.wait(20)
        clock.advance(10)

    worker = Worker(
        handle,
        capacity=5,
        overflow=Overflow.REJECT,
        clock=clock,
        dead_letter=lambda work: clock.advance(100),
    )
    for payload, seconds in ("first", 1000), ("stale by then", 5), ("stale by the sink", 50):
        worker.submit(payload, clock.deadline(seconds))
    ready.set()
    report = worker.close(clock.deadline(10_000))
    assert handled == ["first"]
    assert (report.completed, report.stale) == (1, 2)


def test_what_expires_while_it_waits_for_room_is_stale_and_no_duplicate():
    """M1, M2."""
    clock, gate, told, letters = FakeClock(), threading.Event(), [], []
    worker = Worker(
        lambda work: gate.wait(20),
        capacity=1,
        overflow=Overflow.WAIT,
        clock=clock,
        dead_letter=letters.append,
    )
    worker.submit(0, clock.deadline(1000))
    until(lambda: worker.report.running)
    worker.submit(1, clock.deadline(1000))

    def submit():
        expires = Expiry.after(5, clock=clock.wall)
        told.append(worker.submit(2, clock.deadline(1000), expires=expires))

    thread = threading.Thread(target=submit)
    thread.start()
    clock.wait_until_waiting(1)
    clock.advance(6)
    gate.set()
    thread.join(20)
    report = worker.close(clock.deadline(10))
    assert told == [Admission.ACCEPTED]
    assert (report.accepted, report.completed, report.stale) == (3, 2, 1)
    assert [each.payload for each in letters] == [2]


def test_an_expiry_that_tells_no_instant_is_a_failure_of_its_own_work():
    """M2."""

    class Broken(Clock):
        def now(self):
            return None

    handled, letters = [], []
    worker = Worker(
        lambda work: handled.append(work.payload),
        capacity=5,
        overflow=Overflow.REJECT,
        dead_letter=letters.append,
    )
    expires = Expiry.at(datetime(2030, 1, 1, tzinfo=UTC), clock=Broken())
    worker.submit("broken", Deadline.after(60), expires=expires)
    worker.submit("good", Deadline.after(60))
    report = worker.close(Deadline.after(20))
    assert handled == ["good"]
    assert (report.accepted, report.completed, report.failed) == (2, 1, 1)
    assert type(letters[0].record.error) is ClockError


def test_a_sink_that_exits_ends_no_hand(monkeypatch):
    """M2."""
    told, handled = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))

    def handle(work):
        handled.append(work.payload)
        raise ValueError

    worker = Worker(
        handle,
        capacity=5,
        overflow=Overflow.REJECT,
        dead_letter=lambda work: sys.exit(3),
    )
    for each in range(3):
        worker.submit(each, Deadline.after(60))
    report = worker.close(Deadline.after(20))
    assert handled == [0, 1, 2]
    assert (report.failed, told) == (3, [SystemExit] * 3)


def test_an_interrupt_of_the_main_thread_is_not_the_sinks():
    """M3."""
    gate = threading.Event()

    def sink(work):
        raise KeyboardInterrupt

    worker = Worker(
        lambda work: gate.wait(20),
        capacity=1,
        overflow=Overflow.DROP_OLDEST,
        dead_letter=sink,
    )
    worker.submit(0, Deadline.after(60))
    until(lambda: worker.report.running)
    worker.submit(1, Deadline.after(60))
    with pytest.raises(KeyboardInterrupt):
        worker.submit(2, Deadline.after(60))
    gate.set()
    report = worker.close(Deadline.after(20))
    assert (report.accepted, report.completed, report.dropped) == (3, 2, 1)


def test_the_first_of_two_closes_to_give_up_ends_the_other():
    """M3: the report is final, and there is nothing to wait for."""
    clock, gate, reports = FakeClock(), threading.Event(), []
    worker = Worker(
        lambda work: gate.wait(60),
        capacity=5,
        overflow=Overflow.REJECT,
        clock=clock,
    )
    worker.submit(0, clock.deadline(1000))
    until(lambda: worker.report.running)
    thread = threading.Thread(target=lambda: reports.append(worker.close(clock.deadline(1000))))
    thread.start()
    clock.wait_until_waiting(1)
    report = worker.close(clock.deadline(0))
    thread.join(20)
    gate.set()
    assert reports == [report]
    assert report.interrupted == 1


@pytest.mark.parametrize("again", [False, True])
def test_work_that_counted_on_a_thread_that_never_began_is_done_at_the_close(again):
    """M3: or unstarted, when no thread can be started then either."""
    worker = Worker(lambda work: None, capacity=5, overflow=Overflow.REJECT)
    submit = worker._pool.submit

    def no_thread(work):
        raise RuntimeError("can't start new thread")

    def meanwhile(work):
        assert worker.submit("other", Deadline.after(60)) is Admission.ACCEPTED
        no_thread(work)

    worker._pool.submit = meanwhile
    with pytest.raises(RuntimeError, match="new thread"):
        worker.submit("mine", Deadline.after(60))
    worker._pool.submit = no_thread if again else submit
    report = worker.close(Deadline.after(0.01 if again else 20))
    assert (report.accepted, report.completed, report.unstarted) == (1, not again, again)


def test_whoever_asks_for_a_handlers_deadline_meanwhile_is_given_all_of_it():
    """M1: a handler may hand its work to several threads."""
    seen = []

    clock = FakeClock()
    stop = StopSignal()
    work = Work("payload", clock.deadline(100), None, None, (stop, 5_000_000_000))
    work._begun_at = 0
    stopping = Deadline.stopping

    def meanwhile(self, signal):
        if not seen:
            seen.append(None)
            seen[0] = work.deadline
        return stopping(self, signal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deadline, "stopping", meanwhile)
        assert work.deadline.remaining() == 5
    assert seen[0].remaining() == 5
    stop.request()
    assert seen[0].stop.requested()


# Cache.


@pytest.mark.parametrize("tasks", [False, True])
@pytest.mark.parametrize("option", ["refresh_ahead", "stale_for"])
def test_a_kept_error_takes_no_good_value_away(tasks, option):
    """X1."""
    clock, loads = FakeClock(), []

    def load(key, deadline):
        loads.append(key)
        if len(loads) > 1:
            raise ConnectionError
        return "good"

    async def task(key, deadline):
        return load(key, deadline)

    options = {"fresh_for": 10, option: 8, "errors_for": 2, "max_size": 5, "clock": clock}
    cache = AsyncExpiringCache(task, **options) if tasks else ExpiringCache(load, **options)

    def get():
        found = cache.get("key", clock.deadline(1))
        return clock.run(found) if tasks else found

    found = [get()]
    clock.advance(6 if option == "refresh_ahead" else 11)
    found += [get(), get()]
    assert found == ["good"] * 3
    clock.advance(10)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            get()
    # From then on it is kept.
    assert len(loads) == 4


def test_a_value_is_not_served_after_its_time_since_a_load_took_so_long():
    """X1."""
    clock = FakeClock()
    answers = ["good"]

    def load(key, deadline):
        if answers:
            return answers.pop()
        clock.advance(100)
        raise ConnectionError

    cache = ExpiringCache(load, fresh_for=10, stale_for=5, max_size=5, clock=clock)
    assert cache.get("key", clock.deadline(1000)) == "good"
    clock.advance(12)
    with pytest.raises(ConnectionError):
        cache.get("key", clock.deadline(1000))


def test_an_error_that_is_raised_again_does_not_grow():
    """X1."""
    clock = FakeClock()

    def load(key, deadline):
        raise ConnectionError

    cache = ExpiringCache(load, fresh_for=10, errors_for=60, max_size=5, clock=clock)
    lengths = set()
    for _ in range(10):
        with pytest.raises(ConnectionError) as caught:
            cache.get("key", clock.deadline(1))
        lengths.add(len(caught.traceback))
    assert len(lengths) < 3


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_put_during_a_load_is_newer(fails):
    """X1: as for what is dropped meanwhile."""
    clock = FakeClock()

    def load(key, deadline):
        cache.put(key, "new")
        if fails:
            raise ConnectionError
        return "old"

    cache = ExpiringCache(load, fresh_for=10, errors_for=5, max_size=5, clock=clock)
    if fails:
        with pytest.raises(ConnectionError):
            cache.get("key", clock.deadline(1))
    else:
        assert cache.get("key", clock.deadline(1)) == "old"
    assert cache.look("key") == (Freshness.FRESH, "new")


def test_an_interrupted_fresh_for_leaves_no_load_behind():
    """X1: what is no Exception is its caller's own."""
    clock, answers, flights = FakeClock(), [KeyboardInterrupt], []

    def load(key, deadline):
        flights.append(cache._shelf.flights[key])
        return key

    def fresh_for(value):
        if answers:
            raise answers.pop()
        return 10

    cache = ExpiringCache(load, fresh_for=fresh_for, max_size=5, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        cache.get("key", clock.deadline(5))
    # Whoever waits for it is woken.
    assert flights[0].done.requested()
    assert cache.get("key", clock.deadline(5)) == "key"


def test_a_load_that_is_cancelled_before_its_first_turn_is_told():
    """X1, A77."""
    clock = FakeClock()

    async def load(key, deadline):
        return key

    async def main():
        cache = AsyncExpiringCache(load, fresh_for=10, max_size=5, clock=clock)
        asking = asyncio.ensure_future(cache.get("key", clock.deadline(1000)))
        await asyncio.sleep(0)
        [task] = asyncio.all_tasks() - {asyncio.current_task(), asking}
        task.cancel()
        with pytest.raises(RuntimeError, match="cancelled before it began"):
            await asking
        return await cache.get("key", clock.deadline(1000)), clock.now()

    assert clock.run(main()) == ("key", 0.0)


def test_a_slow_fresh_for_holds_up_no_other_key():
    """X1: it may wait for another load, and is asked outside of the lock."""
    clock, gate, inside = FakeClock(), threading.Event(), threading.Event()

    def fresh_for(value):
        if value == "slow":
            inside.set()
            assert gate.wait(20)
        return 10

    cache = ExpiringCache(
        lambda key, deadline: key,
        fresh_for=fresh_for,
        max_size=5,
        clock=clock,
    )
    found = []

    def other():
        found.append(cache.get("other", clock.deadline(5)))
        gate.set()

    slow = threading.Thread(target=lambda: found.append(cache.get("slow", clock.deadline(5))))
    slow.start()
    assert inside.wait(20)
    quick = threading.Thread(target=other)
    quick.start()
    slow.join(30)
    quick.join(30)
    assert found == ["other", "slow"]


# What a signal handler raises, wherever the interpreter looks for signals.


@functools.cache
def handler_of(code, offset):
    """Return which clean-up an exception at this bytecode comes to."""
    found = None
    for each in dis._parse_exception_table(code):
        if each.start <= offset < each.end:
            found = each.target
    return found


class Interrupt:
    """Raises, or acts, at the n-th place of some code where the interpreter looks for signals.

    That is at the end of a call, at the beginning of a function, and where a loop turns back. The
    error is raised a bytecode later here: only where that has the same clean-up.
    """

    def __init__(self, among, n, act=None):
        self.among = set(among)
        self.left = n
        self.act = act
        self.acted = False
        self.last = {}
        self.thread = threading.get_ident()

    def step(self, code, offset):
        if threading.get_ident() != self.thread:
            return
        before = self.last.get(code)
        self.last[code] = offset
        if before is None or handler_of(code, before) != handler_of(code, offset):
            return
        if dis.opname[code.co_code[before]].startswith(("CALL", "RESUME", "JUMP_BACKWARD")):
            self.left -= 1
            if self.left == 0:
                if self.act is None:
                    raise anywhere.Injected
                self.acted = True
                self.act()

    def trace(self, frame, event, arg):
        if frame.f_code not in self.among:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and self.left > 0:
            self.step(frame.f_code, frame.f_lasti)
        return self.trace

    def run(self, fn):
        """Run `fn`; say whether it was interrupted, or anything was done in between."""
        monitoring = getattr(sys, "monitoring", None)
        before = sys.gettrace()
        if monitoring is None:
            sys.settrace(self.trace)
        else:
            monitoring.use_tool_id(3, "interrupt")
            monitoring.register_callback(3, monitoring.events.INSTRUCTION, self.step)
            for code in self.among:
                monitoring.set_local_events(3, code, monitoring.events.INSTRUCTION)
        try:
            fn()
        except anywhere.Injected:
            return True
        finally:
            if monitoring is None:
                sys.settrace(before)
            else:
                for code in self.among:
                    monitoring.set_local_events(3, code, 0)
                monitoring.register_callback(3, monitoring.events.INSTRUCTION, None)
                monitoring.free_tool_id(3)
        return self.acted


WORKING = anywhere.codes(
    timebounds.blocking.worker,
    timebounds.bounds._threads,
    timebounds.policies.desk,
    timebounds.policies.mailbox,
    timebounds.policies.work,
)
CACHING = anywhere.codes(
    timebounds.blocking.cache, timebounds.policies.caching, timebounds.policies.shelf
)
SCHEDULING = anywhere.codes(
    timebounds.blocking.scheduler,
    timebounds.policies.agenda,
    timebounds.policies.jobs,
    timebounds.policies.runner,
)


def everywhere(attempt):
    """Attempt with an interrupt at each place in turn."""
    n = 1
    while attempt(n):
        n += 1
    assert n > 10


def test_an_interrupted_submit_leaves_all_or_nothing_and_a_worker_that_works():
    """M3."""

    def attempt(n):
        handled = []
        worker = Worker(
            lambda work: handled.append(work.payload), capacity=5, overflow=Overflow.REJECT
        )
        hit = Interrupt(WORKING, n).run(lambda: worker.submit(1, Deadline.after(60)))
        worker.submit(2, Deadline.after(60))
        report = worker.close(Deadline.after(20))
        assert report.accepted == report.completed == len(handled), n
        assert handled in ([1, 2], [2]), n
        return hit

    everywhere(attempt)


def test_an_interrupted_wait_for_room_leaves_nobody_waiting():
    """M1, M3."""

    def attempt(n):
        handled, gate, stop = [], threading.Event(), StopSignal()

        def handle(work):
            handled.append(work.payload)
            gate.wait(20)

        worker = Worker(handle, capacity=1, overflow=Overflow.WAIT)
        worker.submit(0, Deadline.after(60))
        until(lambda: worker.report.running)
        worker.submit(1, Deadline.after(60))
        asked = threading.Event()

        def make_room():
            asked.wait(20)
            until(lambda: worker._box.wanting or stop.requested())
            gate.set()

        thread = threading.Thread(target=make_room)
        thread.start()
        asked.set()
        hit = Interrupt(WORKING, n).run(lambda: worker.submit(2, Deadline.after(60)))
        stop.request()
        thread.join(20)
        worker.submit(3, Deadline.after(20))
        report = worker.close(Deadline.after(20))
        assert report.accepted == report.completed == len(handled), n
        assert handled in ([0, 1, 2, 3], [0, 1, 3]), n
        return hit

    everywhere(attempt)


def test_an_interrupted_close_is_ended_by_the_next_one():
    """M2, M3."""

    def attempt(n):
        gate, told, letters = threading.Event(), [], []
        worker = Worker(
            lambda work: gate.wait(20),
            capacity=1,
            overflow=Overflow.WAIT,
            dead_letter=letters.append,
        )
        worker.submit(0, Deadline.after(60))
        until(lambda: worker.report.running)
        worker.submit(1, Deadline.after(60))

        def wait():
            try:
                worker.submit(2, Deadline.after(60))
            except QueueClosed as error:
                told.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: worker._box.wanting)
        hit = Interrupt(WORKING, n).run(lambda: worker.close(Deadline.after(0)))
        report = worker.close(Deadline.after(0))
        thread.join(20)
        gate.set()
        assert len(told) == 1, n
        assert (report.accepted, report.unstarted, report.interrupted) == (2, 1, 1), n
        assert [each.outcome for each in worker.history] == ["unstarted", "interrupted"], n
        assert len(letters) == len(set(letters)) <= 2, n
        return hit

    everywhere(attempt)


class Full:
    """A worker that drops the oldest, with one piece under way and others that wait."""

    def __init__(self, *waiting):
        self.gate, self.handled, self.letters = threading.Event(), [], []
        self.worker = Worker(
            self.handle,
            capacity=len(waiting),
            overflow=Overflow.DROP_OLDEST,
            dead_letter=lambda work: self.letters.append(work.payload),
        )
        self.submit("A")
        until(lambda: self.worker.report.running)
        for each in waiting:
            self.submit(each)

    def handle(self, work):
        if work.payload == "A":
            self.gate.wait(20)
        self.handled.append(work.payload)

    def submit(self, payload):
        self.worker.submit(payload, Deadline.after(60))

    def end(self):
        """Return the report, after checking what each one must show."""
        report = self.worker.report
        assert report.waiting <= self.worker._box._capacity
        assert report.accepted == sum(report[1:])
        self.gate.set()
        report = self.worker.close(Deadline.after(20))
        assert report.accepted == sum(report[1:])
        assert (report.running, report.waiting, report.interrupted) == (0, 0, 0)
        assert len(self.letters) == report.dropped
        assert len(self.handled) == report.completed
        ends = [*self.letters, *self.handled]
        assert len(ends) == len(set(ends)) == report.accepted
        return report


def test_an_interrupted_drop_drops_once():
    """M2: a letter for each, and nothing stays under way."""

    def attempt(n):
        world = Full("B")
        hit = Interrupt(WORKING, n).run(lambda: world.submit("C"))
        world.end()
        return hit

    everywhere(attempt)


def test_a_signal_handler_that_submits_anywhere_in_a_drop_loses_nothing():
    """M2, M3: the lock lets it in, since it is the same thread."""

    def attempt(n):
        world = Full("B", "C")
        hit = Interrupt(WORKING, n, lambda: world.submit("S")).run(lambda: world.submit("D"))
        report = world.end()
        assert report.accepted == 4 + hit
        return hit

    everywhere(attempt)


def test_close_waits_for_work_whose_thread_an_interrupt_had_disowned(monkeypatch):
    """M3: Ctrl-C comes while the new thread is waited for."""
    start, gate = threading.Thread.start, threading.Event()

    begun = threading.Event()

    def interrupted(thread):
        start(thread)
        begun.wait(20)
        raise KeyboardInterrupt

    def handle(_):
        begun.set()
        gate.wait(20)

    worker = Worker(handle, capacity=5, overflow=Overflow.REJECT)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Thread, "start", interrupted)
        worker.submit("A", Deadline.after(60))
    reports = []
    closing = threading.Thread(target=lambda: reports.append(worker.close(Deadline.after(20))))
    closing.start()
    until(lambda: worker._closers)
    assert not reports
    gate.set()
    closing.join(20)
    assert (reports[0].accepted, reports[0].completed) == (1, 1)


def cancelling(overflow):
    """Return a worker of which one handler cancels the task that it is called in."""
    done = []

    async def handle(work):
        if work.payload == "A":
            asyncio.current_task().cancel()
            await asyncio.Event().wait()
        done.append(work.payload)

    return AsyncWorker(handle, capacity=1, overflow=overflow), done


def test_a_cancelled_task_leaves_a_worker_that_works():
    """M3: also where all room is taken by what waits."""

    async def main(overflow):
        worker, done = cancelling(overflow)
        await worker.submit("A", Deadline.after(60))
        await asyncio.sleep(0)
        await worker.submit("B", Deadline.after(60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (worker.report.interrupted, worker.report.waiting) == (1, 1)
        if overflow is Overflow.REJECT:
            with pytest.raises(QueueFull):
                await worker.submit("C", Deadline.after(60))
        else:
            await worker.submit("C", Deadline.after(20))
        report = await worker.close(Deadline.after(20))
        assert done == ["B", "C"][: report.completed]
        assert (report.unstarted, report.interrupted) == (0, 1)

    for overflow in (Overflow.REJECT, Overflow.WAIT):
        asyncio.run(main(overflow))


def test_what_waits_is_done_by_another_task_where_one_is_cancelled_while_it_drains():
    """M3."""

    async def main():
        worker, done = cancelling(Overflow.REJECT)
        await worker.submit("A", Deadline.after(60))
        await asyncio.sleep(0)
        closing = asyncio.create_task(worker.close(Deadline.after(20)))
        await worker.submit("B", Deadline.after(60))
        report = await closing
        assert done == ["B"]
        assert (report.completed, report.interrupted) == (1, 1)

    asyncio.run(main())


def test_room_that_comes_after_the_wait_for_it_goes_to_the_next():
    """M1: whoever asked for at most so many seconds is not given it later."""
    clock = FakeClock(100)
    box = timebounds.policies.mailbox.Mailbox(1, Overflow.WAIT, None, 5)
    pieces = [Work(n, clock.deadline(60), None, None) for n in range(3)]
    box.admit(pieces[0], clock.now_ns(), pieces[0].deadline)
    box.admit(pieces[1], clock.now_ns(), clock.deadline(2))
    box.admit(pieces[2], clock.now_ns(), pieces[2].deadline)
    clock.advance(2)
    assert box.take(clock.now_ns()) is pieces[0]
    assert [*box.queue] == [pieces[2]]


def test_who_is_passed_over_by_his_wait_is_told_that_there_was_no_room():
    """M1: he is no duplicate of anything."""
    clock = FakeClock(100)
    worker = Worker(print, capacity=1, overflow=Overflow.WAIT, clock=clock)
    passed_over = Work("C", clock.deadline(60), None, None)
    room = clock.deadline(2)
    clock.advance(2)
    with pytest.raises(DeadlineExceeded) as caught:
        worker._waited(passed_over, room)
    assert str(caught.value) == ("submit: the deadline of 2 s was reached, there was no room")


def test_a_record_of_an_error_keeps_no_other_payload_alive():
    """M2."""

    class Payload:
        pass

    gate = threading.Event()

    def handle(work):
        gate.wait(20)
        if work.payload == 1:
            raise ZeroDivisionError

    worker = Worker(handle, capacity=9, overflow=Overflow.REJECT)
    payload = Payload()
    gone = weakref.ref(payload)
    worker.submit(1, Deadline.after(60))
    worker.submit(payload, Deadline.after(60))
    del payload
    gate.set()
    worker.close(Deadline.after(20))
    assert len(worker.history) == 2
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("wrong", [{"wait": -1}, {"key": []}, {"expires": 5}])
@pytest.mark.parametrize("check", [None, print])
def test_a_closed_worker_says_so_whatever_it_is_given(wrong, check):
    """M1: closed before invalid."""
    worker = Worker(print, capacity=1, overflow=Overflow.WAIT, check=check)
    worker.close(Deadline.after(0))
    with pytest.raises(QueueClosed):
        worker.submit(1, Deadline.after(5), **wrong)


@pytest.mark.parametrize("ahead", [False, True])
def test_an_interrupted_get_leaves_no_load_that_nobody_ends(ahead):
    """X1, A76."""

    def attempt(n):
        clock = FakeClock()
        cache = ExpiringCache(
            lambda key, deadline: key,
            fresh_for=10,
            refresh_ahead=5 * ahead,
            max_size=1,
            clock=clock,
        )
        cache.put("key" if ahead else "other", "key")
        clock.advance(7)
        hit = Interrupt(CACHING, n).run(lambda: cache.get("key", clock.deadline(5)))
        assert cache._shelf.flights == {}, n
        assert len(cache) < 2, n
        assert cache.get("key", clock.deadline(5)) == "key", n
        return hit

    everywhere(attempt)


@pytest.mark.parametrize("missed", [Missed.coalesce(), Missed.skip(), Missed.catch_up(3)])
def test_an_interrupted_run_counts_each_instant_once_and_keeps_its_keys(missed):
    """G1, G2."""

    def attempt(n):
        clock, ticks = FakeClock(auto_advance=True), []
        scheduler = Scheduler(clock=clock)
        job = scheduler.add(Every(1, missed=missed), ticks.append, name="job")
        clock.jump(5)
        hit = Interrupt(SCHEDULING, n).run(lambda: scheduler.run(clock.deadline(1.5)))
        scheduler.run(clock.deadline(2))
        assert all(tick.key == f"job#{tick.due - 1:g}" for tick in ticks), n
        ran = {tick.due for tick in ticks}
        assert job.report.missed + len(ran) == max(ran), n
        return hit

    everywhere(attempt)
