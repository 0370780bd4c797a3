"""Residents, word for word and figure for figure, on a clock that does not begin at 0."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from datetime import UTC, datetime, time

import pytest

from timebounds import (
    Admission,
    After,
    AsyncWorker,
    CacheReport,
    Clock,
    Daily,
    Deadline,
    DeadlineExceeded,
    Every,
    ExpiringCache,
    Expiry,
    FailurePolicy,
    Freshness,
    Missed,
    Missing,
    Once,
    Overflow,
    Ownership,
    QueueClosed,
    Repeated,
    Scheduler,
    SendOutcome,
    SendReport,
    StopSignal,
    Tick,
    Work,
    Worker,
    WorkOutcome,
    WorkRecord,
    wait_requested,
)
from timebounds.policies.mailbox import Mailbox
from timebounds.testing import FakeClock

NS = 1_000_000_000


@pytest.fixture
def clock():
    return FakeClock(100)


def said(fails, *args, **options):
    """Return what a verb raises, as text."""
    with pytest.raises(Exception) as caught:
        fails(*args, **options)
    return str(caught.value)


# The mailbox, by hand.


def box(capacity=1, overflow=Overflow.WAIT, window=None, history=10):
    return Mailbox(capacity, overflow, window, history)


def work(clock, payload, *, seconds=1000.0, key=None, stop=None):
    return Work(payload, Deadline.after(seconds, clock=clock, stop=stop), key, None, None)


def admit(mailbox, piece, now):
    """Hand in a piece that waits for room as long as it has time."""
    return mailbox.admit(piece, now, piece.deadline)


def test_a_record_holds_the_durations_of_its_work(clock):
    """M2."""
    mailbox = box(2, Overflow.REJECT)
    piece = work(clock, "payload", key="k")
    assert repr(piece) == "<Work 'k', not ended>"
    assert admit(mailbox, piece, 100 * NS) is Admission.ACCEPTED
    assert piece.record is None
    assert mailbox.take(102 * NS) is piece
    mailbox.finish(piece, WorkOutcome.COMPLETED, 105 * NS, None)
    assert piece.record == WorkRecord("k", WorkOutcome.COMPLETED, 2.0, 3.0, 0.0, None)
    assert repr(piece) == "<Work 'k', completed>"
    assert [*mailbox.history] == [piece._ended]


def test_what_is_not_under_way_any_more_is_not_completed(clock):
    """M2: it has ended once, whatever its hand says later."""
    mailbox = box(2, Overflow.REJECT)
    piece = work(clock, "payload")
    admit(mailbox, piece, 100 * NS)
    mailbox.take(100 * NS)
    mailbox.finish(piece, WorkOutcome.FAILED, 101 * NS, None)
    ended = piece._ended
    assert mailbox.take(102 * NS, piece) is None
    assert piece._ended is ended
    assert [*mailbox.history] == [ended]
    # Nor what never was: it would take the place of what comes next.
    following = work(clock, "following")
    admit(mailbox, following, 102 * NS)
    stranger = work(clock, "stranger")
    assert mailbox.take(103 * NS, stranger) is following
    assert (stranger._ended, following._ended) == (None, None)


def test_what_is_late_or_stopped_says_by_how_much(clock):
    """M2: by nothing where it was stopped."""
    mailbox, stop = box(5, Overflow.REJECT), StopSignal()
    late, stopped = work(clock, "late", seconds=5), work(clock, "stopped", stop=stop)
    for each in (late, stopped):
        admit(mailbox, each, 100 * NS)
    stop.request()
    assert mailbox.take(107 * NS) is late
    assert mailbox.take(107 * NS) is stopped
    assert late.record == WorkRecord(None, WorkOutcome.STALE, 7.0, 0.0, 2.0, None)
    assert stopped.record == WorkRecord(None, WorkOutcome.STALE, 7.0, 0.0, 0.0, None)


def test_room_for_one_lets_one_in(clock):
    """M1: of those who wait for it the first."""
    mailbox = box()
    pieces = [work(clock, n) for n in range(4)]
    admit(mailbox, pieces[0], 100 * NS)
    wakers = [admit(mailbox, each, 100 * NS) for each in pieces[1:]]
    assert mailbox.take(101 * NS) is pieces[0]
    assert [each.requested() for each in wakers] == [True, False, False]
    assert (len(mailbox.queue), mailbox.accepted) == (1, 2)


def test_who_waits_for_room_beyond_his_deadline_is_passed_over(clock):
    """M1: whether or not he has noticed it himself."""
    mailbox, stop = box(), StopSignal()
    first, expired = work(clock, 0), work(clock, 1, seconds=5)
    stopped, last = work(clock, 2, stop=stop), work(clock, 3)
    admit(mailbox, first, 100 * NS)
    wakers = [admit(mailbox, each, 100 * NS) for each in (expired, stopped, last)]
    stop.request()
    mailbox.take(105 * NS)
    assert [*mailbox.queue] == [last]
    assert all(each.requested() for each in wakers)
    assert expired._accepted_at is stopped._accepted_at is None


def test_who_was_let_in_and_interrupted_on_the_way_is_not_let_in_twice(clock):
    """M3."""
    mailbox = box()
    first, waiting = work(clock, 0), work(clock, 1)
    admit(mailbox, first, 100 * NS)
    admit(mailbox, waiting, 100 * NS)
    waiting._accepted_at = 100 * NS
    mailbox.take(101 * NS)
    assert mailbox.accepted == 1


@pytest.mark.parametrize("stale", [False, True])
def test_what_is_dropped_while_its_wall_clock_is_read_has_ended_once(clock, stale):
    """M2: by a finaliser, or by whatever that clock does."""
    mailbox = box(1, Overflow.DROP_OLDEST)
    newer = work(clock, "newer")
    reads = []

    class Wall(Clock):
        def now(self):
            if reads:
                admit(mailbox, newer, 101 * NS)
            reads.append(None)
            return datetime(2026, 1, 1 + len(reads) * stale, tzinfo=UTC)

    piece = Work("older", clock.deadline(60), None, Expiry.after(3600, clock=Wall()))
    admit(mailbox, piece, 100 * NS)
    assert mailbox.take(102 * NS) is piece
    assert piece.record.outcome is WorkOutcome.DROPPED
    assert [*mailbox.ownerless] == [piece]
    assert mailbox.take(103 * NS) is newer
    report = mailbox.report()
    assert (report.accepted, report.dropped, report.running, report.stale) == (2, 1, 1, 0)


def test_what_was_never_accepted_is_not_looked_for_among_what_waits(clock):
    """M1: a refusal costs the same, however much waits."""

    class Line(deque):
        def __contains__(self, item):
            raise AssertionError("looked through")

    mailbox = box(1, Overflow.REJECT)
    mailbox.queue = Line()
    admit(mailbox, work(clock, 0), 100 * NS)
    refused = work(clock, 1)
    assert "which is all that may" in said(admit, mailbox, refused, 100 * NS)
    mailbox.withdraw(refused, 100 * NS)
    assert mailbox.accepted == 1


def test_keys_are_kept_for_the_window_and_not_longer(clock):
    """A71: a worker without a window keeps none."""
    mailbox = box(10, window=5)
    for n in range(5):
        admit(mailbox, work(clock, n, key=n), (100 + n) * NS)
    assert admit(mailbox, work(clock, 5, key=4), 108 * NS) is Admission.DUPLICATE
    assert [*mailbox._keys] == [4]
    assert admit(mailbox, work(clock, 6, key=4), 109 * NS) is Admission.ACCEPTED
    assert mailbox._keys == {4: 109 * NS}
    plain = box()
    admit(plain, work(clock, 0, key="b"), 100 * NS)
    admit(plain, work(clock, 1, key="b"), 100 * NS)
    plain.take(101 * NS)
    assert plain.accepted == 2
    assert plain._keys == {}
    assert not plain._recent


# The worker.


def test_a_wrong_argument_of_a_worker_is_told_word_for_word(clock):
    def make(handle=print, capacity=1, **options):
        return Worker(handle, capacity=capacity, overflow=Overflow.REJECT, **options)

    for name in ("handle", "check", "dead_letter"):
        assert said(make, **{name: 5}) == f"{name} must be a function, not 5"
    assert said(make, limit=-1) == "limit must not be negative, not -1"
    assert said(make, capacity=0) == "capacity must be at least 1, not 0"
    assert said(make, history=-1) == "history must be at least 0, not -1"
    assert said(make, duplicate_window=-1) == "duplicate_window must not be negative, not -1"
    assert said(make().submit, 1, Deadline.after(1), expires=5) == (
        "expires must be an Expiry such as Expiry.after(60), not 5"
    )
    assert said(make().submit, 1, Deadline.after(1), key=["a"]) == (
        "key must be hashable, such as a text or a tuple, not ['a']"
    )
    theirs = said(make().submit, 1, clock.deadline(1))
    assert theirs == (f"the worker is on MonotonicClock(), the deadline on {clock!r}: use one")


def test_the_last_hundred_records_are_kept_unless_said(clock):
    worker = Worker(lambda _: None, capacity=200, overflow=Overflow.REJECT, clock=clock)
    for n in range(150):
        worker.submit(n, clock.deadline(5), key=n)
    worker.close(clock.deadline(5))
    assert [each.key for each in worker.history] == [*range(50, 150)]


def test_a_sink_that_closes_the_worker_is_told_of_each_piece_once(clock):
    """M2: of what it was about to be told, too."""
    letters = []

    def sink(piece):
        letters.append(piece.payload)
        worker.close(clock.deadline(0))

    begun, gate = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        gate.wait(20)
        raise ZeroDivisionError

    worker = Worker(
        handle,
        capacity=3,
        overflow=Overflow.REJECT,
        failures=FailurePolicy.CLOSE,
        dead_letter=sink,
        clock=clock,
    )
    for n in range(3):
        worker.submit(n, clock.deadline(5))
    assert begun.wait(20)
    gate.set()
    worker.close(clock.deadline(5))
    assert sorted(letters) == [0, 1, 2]


def held(clock, kind=Worker, **options):
    """Return a worker with one piece under way, and the gate at which that waits."""
    begun, gate = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        gate.wait(20)
        raise ZeroDivisionError

    options.setdefault("capacity", 1)
    worker = kind(handle, overflow=Overflow.WAIT, clock=clock, **options)
    worker.submit(0, clock.deadline(1000))
    assert begun.wait(20)
    return worker, gate


def test_a_worker_says_what_it_is(clock):
    worker, gate = held(clock)
    counts = "completed=0, failed={}, interrupted=0, unstarted=0, stale=0, dropped=0, waiting=0"
    report = f"WorkerReport(accepted=1, {counts}, running={{}})"
    assert repr(worker) == f"<Worker open, {report.format(0, 1)}>"
    gate.set()
    worker.close(clock.deadline(1000))
    assert repr(worker) == f"<Worker closed, {report.format(1, 0)}>"


def test_what_a_submit_says(clock):
    worker, gate = held(clock)
    worker.submit(1, clock.deadline(1000))
    now = clock.deadline(1000)
    assert said(worker.submit, 2, now, wait=-1) == "wait must not be negative, not -1"
    assert said(worker.submit, 2, now, wait=0) == (
        "submit: the deadline of 0 s was reached, there was no room"
    )
    assert said(worker.submit, 2, clock.deadline(0)) == "submit: the deadline of 0 s was reached"
    stop = StopSignal()
    stop.request("drain")
    assert said(worker.submit, 2, now.stopping(stop)) == (
        "submit: stopped (drain) 0 s into the deadline of 1000 s"
    )
    gate.set()
    worker.close(now)
    assert said(worker.submit, 2, now) == "the worker is closed and takes no more work"


def test_a_stop_comes_before_an_expiry_of_who_waited_for_room(clock):
    """D9."""
    worker, gate = held(clock)
    stop = StopSignal()
    room = clock.deadline(5).stopping(stop)
    waiting = work(clock, 2)
    clock.advance(5)
    late = "submit: the deadline of 5 s was reached, there was no room"
    assert said(worker._waited, waiting, room) == late
    stop.request("drain")
    stopped = "submit: stopped (drain) 5 s into the deadline of 5 s"
    assert said(worker._waited, waiting, room) == stopped
    gate.set()
    worker.close(clock.deadline(1000))


def test_what_one_is_told_who_waited_for_room(clock):
    """M3: the worker was closed."""
    worker, gate = held(clock)
    worker.submit(1, clock.deadline(1000))
    outcomes = []

    def wait():
        try:
            worker.submit(2, clock.deadline(1000))
        except QueueClosed as error:
            outcomes.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    clock.wait_until_waiting(1)
    closing = threading.Thread(target=worker.close, args=(clock.deadline(1000),))
    closing.start()
    thread.join(20)
    gate.set()
    closing.join(20)
    assert outcomes == ["the worker was closed while this waited for room"]


def test_a_failure_that_closes_ends_what_waits_at_that_instant(clock):
    """M3."""
    worker, gate = held(clock, failures=FailurePolicy.CLOSE)
    worker.submit(1, clock.deadline(1000), key="waiting")
    clock.advance(3)
    gate.set()
    worker.close(clock.deadline(1000))
    failed, waiting = worker.history
    assert (failed.outcome, failed.ran) == (WorkOutcome.FAILED, 3.0)
    assert waiting == WorkRecord("waiting", WorkOutcome.UNSTARTED, 3.0, 0.0, 0.0, None)


def test_a_handler_is_told_why_it_is_to_stop():
    async def main():
        reasons = []
        begun = asyncio.Event()

        async def handle(piece):
            begun.set()
            await wait_requested(piece.deadline.stop, Deadline.after(20))
            reasons.append(piece.deadline.stop.reason)

        worker = AsyncWorker(handle, capacity=1, overflow=Overflow.REJECT)
        await worker.submit(0, Deadline.after(60))
        await begun.wait()
        await worker.close(Deadline.after(20), reserve=20)
        assert reasons == ["the worker is closing"]

    asyncio.run(main())


# The cache.


def test_a_cache_says_what_it_is(clock):
    cache = ExpiringCache(lambda key, _: key, fresh_for=1, max_size=3, clock=clock)
    cache.get("a", clock.deadline(5))
    assert repr(cache) == f"<ExpiringCache of 1 values, {CacheReport(0, 0, 1, 0, 0)}>"


def test_who_waited_in_vain_for_another_ones_load_is_told_that_it_goes_on(clock):
    begun, gate = threading.Event(), threading.Event()

    def load(key, _):
        begun.set()
        gate.wait(20)
        return key

    cache = ExpiringCache(load, fresh_for=1, max_size=3, clock=clock)
    first = threading.Thread(target=cache.get, args=("a", clock.deadline(1000)))
    first.start()
    assert begun.wait(20)
    outcomes = []

    def wait():
        try:
            cache.get("a", clock.deadline(5))
        except DeadlineExceeded as error:
            outcomes.append(str(error))

    second = threading.Thread(target=wait)
    second.start()
    clock.wait_until_waiting(1)
    clock.advance(5)
    second.join(20)
    gate.set()
    first.join(20)
    assert outcomes == ["cache: the deadline of 5 s was reached, the load goes on"]


def failing(clock, after, error):
    """Return a cache whose second load takes `after` seconds and fails."""
    answers = iter([lambda: "old", lambda: fail(error)])

    def fail(error):
        clock.advance(after)
        raise error

    return ExpiringCache(
        lambda _key, _deadline: next(answers)(),
        fresh_for=10,
        stale_for=5,
        max_size=3,
        clock=clock,
    )


def test_a_stale_value_is_served_instead_of_an_error_until_just_before_its_end(clock):
    """X1, A78."""
    for after, served in ((2.999, True), (3, False)):
        cache = failing(clock, after, ConnectionError("down"))
        cache.get("a", clock.deadline(1000))
        clock.advance(12)
        if served:
            assert cache.get("a", clock.deadline(1000)) == "old"
        else:
            assert said(cache.get, "a", clock.deadline(1000)) == "down"


def test_what_is_no_exception_of_a_load_is_not_hidden_by_a_stale_value(clock):
    """X1: Ctrl-C is nothing to serve an old value for."""
    cache = failing(clock, 1, KeyboardInterrupt())
    cache.get("a", clock.deadline(1000))
    clock.advance(12)
    with pytest.raises(KeyboardInterrupt):
        cache.get("a", clock.deadline(1000))
    assert cache.look("a") == (Freshness.STALE, "old")


def test_a_load_that_fails_at_its_callers_deadline_is_its_own_failure(clock):
    """X1: those who waited load themselves."""
    begun, gate = threading.Event(), threading.Event()
    loads = []

    def load(_key, _deadline):
        loads.append(clock.now())
        if len(loads) > 1:
            return "value"
        begun.set()
        gate.wait(20)
        raise TimeoutError

    cache = ExpiringCache(load, fresh_for=10, max_size=3, clock=clock)
    got = []
    first = threading.Thread(
        target=lambda: got.append(said(cache.get, "a", clock.deadline(5))),
    )
    first.start()
    assert begun.wait(20)
    second = threading.Thread(target=lambda: got.append(cache.get("a", clock.deadline(1000))))
    second.start()
    clock.wait_until_waiting(1)
    clock.advance(5)
    gate.set()
    first.join(20)
    second.join(20)
    assert sorted(got) == ["", "value"]


def test_a_wrong_argument_of_a_cache_is_told_word_for_word(clock):
    def make(load=print, **options):
        return ExpiringCache(load, **{"fresh_for": 1, "max_size": 1} | options)

    assert said(make, 5) == "load must be a function of key and deadline, not 5"
    assert said(make, max_size=0) == "max_size must be at least 1, not 0"
    for name in ("fresh_for", "stale_for", "refresh_ahead", "errors_for", "limit"):
        assert said(make, **{name: -1}) == f"{name} must not be negative, not -1"
    cache = make(lambda key, _: key, fresh_for=lambda _: -1, clock=clock)
    assert said(cache.get, "a", clock.deadline(5)) == "fresh_for must not be negative, not -1"
    assert said(cache.get, "a", clock.deadline(0)) == "cache: the deadline of 0 s was reached"
    cache = make(lambda *asked: cache.get(*asked), clock=clock)  # noqa: PLW0108  (not made yet)
    assert said(cache.get, "a", clock.deadline(5)) == (
        "the load of this key asks for the same key: it would wait for itself"
    )


def test_a_value_that_comes_at_the_deadline_is_late_and_is_stored(clock):
    """X1, D3."""
    cache = ExpiringCache(lambda *_: clock.advance(5), fresh_for=9, max_size=3, clock=clock)
    assert said(cache.get, "a", clock.deadline(5)) == "cache: the deadline of 5 s was reached"
    assert cache.look("a")[0] is Freshness.FRESH
    assert cache.get("a", clock.deadline(5)) is None


def test_hits_are_counted_and_a_value_that_is_stored_anew_takes_nobodys_place(clock):
    cache = ExpiringCache(lambda key, _: key, fresh_for=9, max_size=2, clock=clock)
    for key in ("a", "b", "a", "b"):
        cache.get(key, clock.deadline(5))
    cache.put("a", "new")
    assert cache.report == CacheReport(2, 0, 2, 0, 0)
    assert (cache.get("a", clock.deadline(5)), cache.get("b", clock.deadline(5))) == ("new", "b")
    cache.put("c", "c")
    assert cache.look("a") == (Freshness.MISS, None)
    assert cache.report == CacheReport(4, 0, 2, 0, 1)


def test_a_kept_error_shows_where_its_load_failed(clock):
    """X1: to each who is given it."""

    def load(_key, _deadline):
        raise ConnectionError

    cache = ExpiringCache(load, fresh_for=9, errors_for=9, max_size=2, clock=clock)
    for _ in range(3):
        with pytest.raises(ConnectionError) as caught:
            cache.get("a", clock.deadline(5))
        assert [each.name for each in caught.traceback][-1] == "load"
    assert cache.report.loads == 1


def test_a_value_that_is_put_says_itself_how_long_it_is_fresh(clock):
    cache = ExpiringCache(print, fresh_for=lambda value: value, max_size=2, clock=clock)
    cache.put("a", 3)
    clock.advance(2.999)
    assert cache.look("a") == (Freshness.FRESH, 3)
    clock.advance(0.001)
    assert cache.look("a") == (Freshness.MISS, None)


# The scheduler.


def test_a_job_says_when_it_is_due_or_that_it_is_cancelled(clock):
    scheduler = Scheduler(clock=clock)
    job = scheduler.add(Every(60), print, name="poll")
    table = repr(Every(60))
    assert repr(job) == f"<ScheduledJob poll {table}, next at 160.0>"
    job.cancel()
    assert repr(job) == f"<ScheduledJob poll {table}, cancelled>"


def test_a_wrong_timetable_is_told_word_for_word():
    assert said(Missed) == "write Missed.coalesce(), Missed.skip() or Missed.catch_up(10)"
    assert said(Missed.skip, -1) == "grace must not be negative, not -1"
    assert said(Missed.catch_up, 0) == "maximum must be at least 1, not 0"
    assert said(Every, -1) == "seconds must not be negative, not -1"
    assert said(Every, 1, first=-1) == "first must not be negative, not -1"
    assert said(After, 0) == (
        "seconds must be more than 0: zero could never work, and no limit is None where allowed"
    )
    assert said(After, 1, first=-1) == "first must not be negative, not -1"
    assert said(Once, -1) == "seconds must not be negative, not -1"
    meant = {"repeated": Repeated.FIRST, "missing": Missing.SKIP}
    assert said(Daily, zone=UTC, **meant) == (
        "times must hold at least one time of day: write Daily(time(9), zone=...)"
    )
    assert said(Daily, 5, zone=UTC, **meant) == (
        "times must be datetime.time objects such as time(9, 30), not 5"
    )
    wrong = said(Daily, time(9), zone=UTC, **meant | {"missing": 5})
    assert wrong == "missing must be one of Missing.SKIP, Missing.SHIFT, not 5"
    assert Daily(time(9, fold=1), zone=UTC, **meant).times[0].fold == 0
    assert said(Daily, time(9), zone=5, **meant) == (
        "zone must be a name such as 'Europe/Berlin' or a tzinfo, not 5"
    )
    assert said(Daily, time(9), zone="Mars/Olympus", **meant) == (
        "zone must be a name such as 'Europe/Berlin' or a tzinfo, not 'Mars/Olympus': "
        "this system's time zone database does not have it (Debian: tzdata)"
    )


def test_the_least_that_may_be_made_up_for_is_one_run_and_the_usual_grace_a_second():
    assert Missed.skip() == Missed.skip(1)
    assert repr(Missed.catch_up(1)) == repr(Missed.coalesce())


def test_a_tick_holds_the_figures_of_its_run_on_a_clock_that_does_not_begin_at_0():
    """G1, G3."""
    clock = FakeClock(100, auto_advance=True)
    ticks = []
    scheduler = Scheduler(clock=clock)
    scheduler.add(Every(60), ticks.append, name="poll", limit=10)
    clock.jump(185)
    scheduler.run(clock.deadline(0.5))
    [tick] = ticks
    assert tick[:-1] == Tick("poll", "poll#2", 280.0, 285.0, 5.0, 2, tick.deadline)[:-1]
    assert tick.deadline == Deadline.at(285.5, clock=clock)


def test_a_daily_run_that_is_late_by_the_one_before_is_none_that_was_missed():
    """G2: what is late by its own doing is judged on the timeline of the wall clock."""
    clock = FakeClock(100, auto_advance=True, wall_start=datetime(2026, 1, 1, 8, 57, tzinfo=UTC))
    started = []

    def run(tick):
        started.append(tick.late)
        clock.sleep(90)

    scheduler = Scheduler(clock=clock, wall=clock.wall)
    meant = {"repeated": Repeated.FIRST, "missing": Missing.SKIP}
    table = Daily(time(9), time(9, 1), zone=UTC, missed=Missed.skip(1), **meant)
    scheduler.add(table, run)
    scheduler.run(clock.deadline(600))
    assert started == [0.0, 30.0]


def test_a_failed_run_is_logged_by_the_librarys_logger(caplog):
    clock = FakeClock(100, auto_advance=True)
    scheduler = Scheduler(clock=clock)
    scheduler.add(Once(1), lambda _: 1 / 0, name="divide")
    scheduler.run(clock.deadline(5))
    [record] = caplog.records
    assert (record.name, record.getMessage()) == ("timebounds", "run divide#0 failed")
    assert record.exc_info[0] is ZeroDivisionError


def test_a_wall_clock_that_tells_no_instant_is_named():
    class Wall(Clock):
        def now(self):
            return 5

        def __repr__(self):
            return "Wall()"

    meant = {"repeated": Repeated.FIRST, "missing": Missing.SKIP}
    scheduler = Scheduler(wall=Wall())
    assert said(scheduler.add, Daily(time(9), zone=UTC, **meant), print) == (
        "Wall().now() returned 5, not an aware datetime"
    )


# Ownership, sending.


def in_thread(fn, *args):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(said(fn, *args)), name="other")
    thread.start()
    thread.join(20)
    return outcome[0]


def test_an_ownership_says_whose_it_is_word_for_word():
    """U1."""
    assert said(Ownership) == "write Ownership.thread(), Ownership.loop() or Ownership.lock(lock)"
    assert said(Ownership.lock, 5) == "lock must be a lock of threading or asyncio, not 5"
    assert said(Ownership.loop) == (
        "Ownership.loop() needs a running event loop: make the object inside of it"
    )
    me = repr(threading.current_thread().name)
    owner = Ownership.thread()
    theirs = f"belongs to thread {me}, and thread 'other' uses it"
    assert in_thread(owner.hand_over) == f"it {theirs}"
    assert in_thread(owner.hand_over, "Basket") == f"Basket {theirs}"
    assert in_thread(owner.check) == f"it {theirs}"


def test_a_loop_is_the_owner_before_anybody_has_checked():
    """U1."""
    me = repr(threading.current_thread().name)

    async def main():
        owner = Ownership.loop()
        loop = f"the event loop in thread {me}, {id(asyncio.get_running_loop()):#x}"
        assert await asyncio.to_thread(in_thread, owner.check) == (
            f"it belongs to {loop}, and thread 'other', which runs no loop uses it"
        )

    asyncio.run(main())


def test_a_send_report_names_only_what_there_was():
    plain = SendReport(SendOutcome.COMPLETE, 6, 6, 0, 1, NS // 2, 0, 0)
    assert repr(plain) == "<SendReport complete: 6 of 6 bytes accepted, 1 sends in 0.5 s>"
