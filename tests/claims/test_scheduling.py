"""G1-G3, in both colours: when what is due runs, and what becomes of what was missed."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from datetime import UTC, datetime, time, timedelta
from functools import partial
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from timebounds import (
    After,
    AsyncScheduler,
    Busy,
    ClockError,
    Daily,
    Deadline,
    DeadlineExceeded,
    Every,
    JobReport,
    Missed,
    Missing,
    Once,
    Repeated,
    Scheduler,
    SchedulerOutcome,
    SchedulerReport,
    StopSignal,
)
from timebounds.policies.timetable import instant_of, ns_of
from timebounds.testing import FakeClock

FIRST = {"repeated": Repeated.FIRST, "missing": Missing.SHIFT}
HELSINKI = "Europe/Helsinki"


class World:
    """A scheduler of one colour on fake time; `started` are the instants of runs."""

    def __init__(self, tasks, **options):
        self.tasks = tasks
        self.clock = FakeClock(auto_advance=not tasks)
        self.missed = []
        self.started = []
        self.ticks = []
        options.setdefault("on_missed", lambda job, count: self.missed.append((job.name, count)))
        kind = AsyncScheduler if tasks else Scheduler
        self.scheduler = kind(clock=self.clock, wall=self.clock.wall, **options)

    def job(self, timetable, *, takes=0.0, **options):
        """Add a job whose runs take so many seconds."""

        def blocking(tick):
            self.started.append(self.clock.now())
            self.ticks.append(tick)
            self.clock.sleep(takes)

        async def task(tick):
            self.started.append(self.clock.now())
            self.ticks.append(tick)
            await self.clock.asleep(takes)

        return self.scheduler.add(timetable, task if self.tasks else blocking, **options)

    def run(self, seconds, **options):
        deadline = Deadline.after(seconds, clock=self.clock, **options)
        if self.tasks:
            return self.clock.run(self.scheduler.run(deadline))
        return self.scheduler.run(deadline)

    def jump(self, seconds):
        self.clock.jump(seconds)


@pytest.fixture(params=["blocking", "tasks"])
def tasks(request):
    return request.param == "tasks"


@pytest.fixture
def world(tasks):
    return World(tasks)


# G1: fixed rate, fixed delay.


def test_a_fixed_rate_is_anchored_to_its_plan(world):
    """G1, A63: a run of 28 s moves nothing, and a day has 96."""
    job = world.job(Every(900, first=0), takes=28)
    report = world.run(86_400)
    assert world.started == [900.0 * n for n in range(96)]
    assert report == SchedulerReport(SchedulerOutcome.DEADLINE_EXPIRED, 96, 0, 0)
    assert job.report == JobReport(96, 0, 0, None)
    assert job.next_due == 86_400.0


def test_a_fixed_delay_counts_from_the_end_and_has_a_name_of_its_own(world):
    """G1, A63."""
    world.job(After(900, first=0), takes=28)
    world.run(3000)
    assert world.started == [0.0, 928.0, 1856.0, 2784.0]


def test_the_first_run_comes_an_interval_from_adding_unless_said(world):
    world.clock.advance(7)
    world.job(Every(60))
    world.job(After(50))
    world.job(Once(20))
    world.run(100)
    assert world.started == [27.0, 57.0, 67.0]
    assert [tick.key.rpartition("#")[2] for tick in world.ticks] == ["0", "0", "0"]


def test_a_job_of_one_shot_runs_once_and_late_rather_than_never(world):
    job = world.job(Once(5))
    world.jump(100)
    world.run(1000)
    assert world.started == [100.0]
    assert world.ticks[0].late == 95.0
    assert job.next_due is None
    assert job.cancel() is False


@pytest.mark.parametrize(
    ("policy", "runs", "missed"),
    [
        (Missed.coalesce(), 1, 179),
        (Missed.skip(), 0, 180),
        (Missed.catch_up(10), 10, 170),
        (Missed.catch_up(1000), 180, 0),
    ],
)
def test_what_was_missed_is_run_once_not_at_all_or_up_to_a_maximum(world, policy, runs, missed):
    """G1, A65: 180 instants pass at once; the next is at 10,860 whatever the policy."""
    job = world.job(Every(60, missed=policy))
    world.jump(10_830)
    report = world.run(29)
    assert world.started == [10_830.0] * runs
    assert (report.runs, report.missed) == (runs, missed)
    assert job.report[:2] == (runs, missed)
    assert sum(count for _, count in world.missed) == missed
    assert job.next_due == 10_860.0
    world.run(30)
    assert world.started[-1] == 10_860.0


def test_a_cadence_of_a_minute_that_was_frozen_for_three(tasks):
    """Running path 3: coalesced one with two missed, caught up three, skipped none."""
    for policy, expected in (
        (Missed.coalesce(), [(180.0, 2)]),
        (Missed.catch_up(5), [(60.0, 0), (120.0, 0), (180.0, 0)]),
        (Missed.skip(), []),
    ):
        world = World(tasks)
        job = world.job(Every(60, missed=policy))
        world.jump(185)
        world.run(10)
        assert [(tick.due, tick.missed) for tick in world.ticks] == expected
        assert job.next_due == 240.0
        world.clock.step_wall(3600)
        world.run(46)
        assert world.started[-1] == 240.0


def test_a_run_longer_than_its_interval_does_not_starve(world):
    """G1, A64: nine hours, interval 300, runs of 900: no overlap, and each miss is counted."""
    job = world.job(Every(300, first=0, missed=Missed.skip(150)), takes=900)
    report = world.run(9 * 3600)
    assert len(world.started) >= 35
    gaps = {b - a for a, b in pairwise(world.started)}
    assert gaps == {900.0}
    assert job.report.missed == report.missed == 2 * (report.runs - 1)


def test_lateness_by_its_own_run_is_no_reason_to_skip(world):
    """A64: the slot at 900 came while the first run was under way."""
    world.job(Every(300, first=0, missed=Missed.skip(5)), takes=1000)
    world.run(1500)
    assert world.started == [0.0, 1000.0]
    assert world.ticks[1].due == 900.0
    assert world.ticks[1].late == 100.0
    assert world.missed == [(world.ticks[0].name, 2)]


def test_a_default_run_is_late_and_not_lost(world):
    """A66: the loop is free at 103 for what was due at 100."""
    world.job(Once(99), takes=4, name="long")
    world.job(Once(100), name="backup")
    world.run(200)
    assert [(tick.name, tick.due, tick.late) for tick in world.ticks] == [
        ("long", 99.0, 0.0),
        ("backup", 100.0, 3.0),
    ]


def test_a_skipped_run_is_told(world):
    """A66: never in silence."""
    world.job(Once(99), takes=4, name="long")
    world.job(Every(100, missed=Missed.skip(1)), name="backup")
    world.run(150)
    assert [tick.name for tick in world.ticks] == ["long"]
    assert world.missed == [("backup", 1)]


# G2: ticks.


def test_a_tick_carries_when_it_was_due_and_a_key_of_its_place(world):
    """G2."""
    world.job(Every(60, missed=Missed.coalesce()), name="poll", limit=5)
    world.jump(130)
    world.run(100)
    first, second = world.ticks
    assert first[:6] == ("poll", "poll#1", 120.0, 130.0, 10.0, 1)
    assert second[:6] == ("poll", "poll#2", 180.0, 180.0, 0.0, 0)
    assert first.deadline == Deadline.at(135, clock=world.clock)
    assert second.deadline == Deadline.at(185, clock=world.clock)


def test_a_runs_deadline_never_lies_beyond_the_schedulers(world):
    world.job(Every(60), limit=50)
    world.job(Once(70))
    world.run(90)
    assert [tick.deadline for tick in world.ticks] == [Deadline.at(90, clock=world.clock)] * 2


def test_a_run_that_was_interrupted_is_due_again_with_the_same_key(world):
    """G2: a tick may be fired twice."""
    attempts = []

    def broken(tick):
        attempts.append((tick.key, tick.due))
        if len(attempts) == 1:
            raise KeyboardInterrupt

    job = world.scheduler.add(Every(60), broken, name="poll")
    with pytest.raises(KeyboardInterrupt):
        world.run(70)
    world.run(70)
    assert attempts == [("poll#0", 60.0), ("poll#0", 60.0), ("poll#1", 120.0)]
    assert job.report.runs == 2


# What runs.


def test_the_last_error_stays_whatever_runs_well_after_it(world):
    def once(tick):
        if tick.key.endswith("#0"):
            raise ValueError("no such table")

    job = world.scheduler.add(Every(60), once)
    world.run(130)
    assert job.report[:3] == (2, 0, 1)
    assert str(job.report.last_error) == "no such table"


def test_a_run_that_fails_is_told_and_the_others_go_on(tasks):
    failures = []
    world = World(tasks, on_error=lambda tick, error: failures.append((tick.key, str(error))))

    def broken(tick):
        raise ValueError("no such table")

    job = world.scheduler.add(Every(60), broken, name="broken")
    world.job(Every(60), name="fine")
    report = world.run(130)
    assert failures == [("broken#0", "no such table"), ("broken#1", "no such table")]
    assert report == SchedulerReport(SchedulerOutcome.DEADLINE_EXPIRED, 4, 0, 2)
    assert job.report[:3] == (2, 0, 2)
    assert str(job.report.last_error) == "no such table"
    assert [tick.name for tick in world.ticks] == ["fine", "fine"]


def test_without_a_hook_a_failure_is_logged(world, caplog):
    def broken(tick):
        raise ValueError("no such table")

    world.scheduler.add(Once(1), broken, name="broken")
    with caplog.at_level(logging.ERROR, "timebounds"):
        world.run(2)
    [record] = caplog.records
    assert record.getMessage() == "run broken#0 failed"
    assert record.exc_info[0] is ValueError


def test_a_run_that_is_too_late_for_its_limit_is_a_failure_of_its_own(tasks):
    world = World(tasks, on_error=lambda tick, error: None)

    def blocking(tick):
        world.clock.sleep(10)
        tick.deadline.check("slow")

    async def task(tick):
        await world.clock.asleep(10)
        tick.deadline.check("slow")

    job = world.scheduler.add(Once(1), task if tasks else blocking, limit=5)
    assert world.run(100).failed == 1
    assert isinstance(job.report.last_error, DeadlineExceeded)


def test_jobs_are_taken_in_the_order_of_their_instants(world):
    for name, seconds in (("c", 30), ("a", 10), ("b", 10)):
        world.job(Once(seconds), name=name)
    world.run(100)
    assert [tick.name for tick in world.ticks] == ["a", "b", "c"]


def test_a_job_may_add_and_cancel_others_and_itself(world):
    """A69, from a callback."""
    seen = []

    def once(tick):
        seen.append((tick.name, world.clock.now()))
        world.scheduler.add(Once(2), other, name="other")
        assert far.cancel()
        assert itself.cancel()
        assert not itself.cancel()

    def other(tick):
        seen.append((tick.name, world.clock.now()))

    far = world.scheduler.add(Once(50), other, name="far")
    itself = world.scheduler.add(Every(10), once, name="once")
    world.run(100)
    assert seen == [("once", 10.0), ("other", 12.0)]
    assert "cancelled" in repr(far)
    assert far.next_due is None


# The end.


def test_it_ends_at_its_deadline_by_its_stop_or_when_it_is_closed(world):
    def then(end):
        world.scheduler.add(Once(5), lambda tick: end())

    assert world.run(3).outcome is SchedulerOutcome.DEADLINE_EXPIRED
    assert world.run(0).outcome is SchedulerOutcome.DEADLINE_EXPIRED
    stop = StopSignal()
    then(stop.request)
    assert world.run(100, stop=stop).outcome is SchedulerOutcome.STOPPED
    assert world.clock.now() == 8.0
    assert world.run(100, stop=stop).outcome is SchedulerOutcome.STOPPED
    then(world.scheduler.close)
    assert world.run(100).outcome is SchedulerOutcome.CLOSED
    assert world.clock.now() == 13.0
    assert world.run(100) == SchedulerReport(SchedulerOutcome.CLOSED, 0, 0, 0)
    with pytest.raises(RuntimeError, match="the scheduler is closed"):
        world.job(Once(1))


def test_a_report_can_be_pickled(world):
    world.job(Every(1))
    report = world.run(3)
    assert pickle.loads(pickle.dumps(report)) == report


def test_one_runner_at_a_time(world):
    def again(tick):
        with pytest.raises(Busy, match="one runner at a time"):
            if world.tasks:
                world.scheduler.run(world.clock.deadline(1)).send(None)
            else:
                world.scheduler.run(world.clock.deadline(1))
        seen.append(tick.key)

    seen = []
    world.scheduler.add(Once(1), again, name="again")
    world.run(5)
    assert seen == ["again#0"]


def test_a_deadline_of_another_clock_is_refused(world):
    with pytest.raises(ClockError, match="make both with one clock"):
        if world.tasks:
            world.scheduler.run(Deadline.after(1)).send(None)
        else:
            world.scheduler.run(Deadline.after(1))


def test_a_thread_with_a_loop_is_refused():
    async def main():
        with pytest.raises(RuntimeError, match=r"AsyncScheduler\.run"):
            Scheduler().run(Deadline.after(1))

    asyncio.run(main())


# A69: earlier jobs, from other threads.


def test_an_earlier_job_from_another_thread_wakes_a_sleeping_scheduler():
    """A69."""
    clock = FakeClock()
    scheduler = Scheduler(clock=clock)
    seen = []
    scheduler.add(Once(100), lambda tick: seen.append(clock.now()))
    thread = threading.Thread(target=scheduler.run, args=[clock.deadline(1000)])
    thread.start()
    clock.wait_until_waiting(1)
    job = scheduler.add(Once(5), lambda tick: (seen.append(clock.now()), scheduler.close()))
    give_up = threading.Event()
    while "until 5 s" not in str(clock.waiting):
        give_up.wait(0.001)
    clock.advance(5)
    thread.join(10)
    assert seen == [5.0]
    assert job.report.runs == 1


def test_an_earlier_job_from_another_thread_wakes_a_sleeping_task():
    """A69."""
    clock = FakeClock()
    scheduler = AsyncScheduler(clock=clock)
    seen = []

    async def main():
        scheduler.add(Once(100), lambda tick: seen.append(clock.now()))
        running = asyncio.ensure_future(scheduler.run(clock.deadline(1000)))
        await asyncio.sleep(0)

        def other():
            scheduler.add(Once(5), lambda tick: (seen.append(clock.now()), scheduler.close()))

        await asyncio.to_thread(other)
        return await running

    assert clock.run(main()).outcome is SchedulerOutcome.CLOSED
    assert seen == [5.0]


def test_a_cancel_reaches_the_run_that_is_under_way_and_its_job_stays():
    clock = FakeClock()
    scheduler = AsyncScheduler(clock=clock)
    seen = []

    async def long(tick):
        try:
            await asyncio.sleep(1000)  # fake time
        except asyncio.CancelledError:
            seen.append(clock.now())
            raise

    job = scheduler.add(Every(10), long)

    async def main():
        running = asyncio.ensure_future(scheduler.run(clock.deadline(500)))
        await asyncio.sleep(15)  # fake time
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    clock.run(main())
    assert seen == [15.0]
    assert (job.report.runs, job.next_due) == (0, 10.0)


# A26, A27: clocks.


def test_a_wall_that_is_set_back_moves_no_interval(world):
    """A26, A68."""
    world.job(Every(10))
    world.clock.step_wall(-365 * 86_400)
    world.run(35)
    assert world.started == [10.0, 20.0, 30.0]


def test_an_hourly_job_on_a_clock_that_counts_suspend_runs_right_after_resume():
    """A27."""
    clock = FakeClock()
    scheduler = Scheduler(clock=clock.boot)
    seen = []
    scheduler.add(Every(3600), lambda tick: (seen.append(tick[2:6]), scheduler.close()))
    thread = threading.Thread(
        target=scheduler.run, args=[Deadline.after(100_000, clock=clock.boot)]
    )
    thread.start()
    clock.wait_until_waiting(1)
    clock.advance(1800)
    clock.suspend(7200)
    thread.join(10)
    # A fake suspend passes through its instants: the thread may look before its end or after.
    assert seen in ([(7200.0, 9000.0, 1800.0, 1)], [(3600.0, 3600.0, 0.0, 0)])
    assert clock.now() == 1800.0


def test_the_grace_counts_from_the_instant_after_an_earlier_run_too(world):
    """G2."""
    world.job(Every(100, first=0, missed=Missed.skip(40)), name="backup")
    world.run(10)
    world.jump(131)
    world.run(100)
    assert world.started == [0, 200]
    assert world.missed == [("backup", 1)]
    # What comes just within it still runs.
    world.jump(99)
    world.run(1)
    assert world.started == [0, 200, 340]


# G3: times of day.


def test_instants_are_whole_microseconds_however_far():
    for ns, instant in (
        (1_999, utc(1970, 1, 1, 0, 0, 0, 1)),
        (253_402_300_799_999_999_999, utc(9999, 12, 31, 23, 59, 59, 999_999)),
    ):
        assert instant_of(ns) == instant
        assert ns_of(instant) == ns // 1000 * 1000


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def following(daily, instant, count):
    found = []
    for _ in range(count):
        instant = daily.next_after(instant)
        found.append(instant)
    return found


def test_the_plan_moves_forward_over_the_repeated_hour():
    """G3, A67: after the second 03:45 of Helsinki's longest day comes 04:30, and so on."""
    half_hours = [time(hour, 30) for hour in range(24)]
    daily = Daily(*half_hours, zone=HELSINKI, repeated=Repeated.BOTH, missing=Missing.SKIP)
    second_pass = datetime(2017, 10, 29, 3, 45, fold=1, tzinfo=ZoneInfo(HELSINKI))
    found = following(daily, second_pass.astimezone(UTC), 100)
    assert found[0] == utc(2017, 10, 29, 2, 30)
    assert found[0].tzinfo is UTC
    assert all(b - a == timedelta(hours=1) for a, b in pairwise(found))
    first_pass = datetime(2017, 10, 29, 3, 15, fold=0, tzinfo=ZoneInfo(HELSINKI))
    assert following(daily, first_pass.astimezone(UTC), 3) == [
        utc(2017, 10, 29, 0, 30),
        utc(2017, 10, 29, 1, 30),
        utc(2017, 10, 29, 2, 30),
    ]


@pytest.mark.parametrize(
    ("repeated", "expected"),
    [
        (Repeated.FIRST, [utc(2017, 10, 29, 0, 30)]),
        (Repeated.SECOND, [utc(2017, 10, 29, 1, 30)]),
        (Repeated.BOTH, [utc(2017, 10, 29, 0, 30), utc(2017, 10, 29, 1, 30)]),
    ],
)
def test_of_a_time_that_comes_twice_the_timetable_says_which_is_meant(repeated, expected):
    """G3."""
    daily = Daily(time(3, 30), zone=HELSINKI, repeated=repeated, missing=Missing.SKIP)
    found = following(daily, utc(2017, 10, 28, 12), len(expected) + 1)
    assert found == [*expected, utc(2017, 10, 30, 1, 30)]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (Missing.SKIP, [utc(2017, 3, 25, 1, 30), utc(2017, 3, 27, 0, 30)]),
        (
            Missing.SHIFT,
            [utc(2017, 3, 25, 1, 30), utc(2017, 3, 26, 1, 30), utc(2017, 3, 27, 0, 30)],
        ),
    ],
)
def test_of_a_time_that_never_comes_the_timetable_says_what_becomes(missing, expected):
    """G3: 03:30 of 26 March does not exist in Helsinki; shifted it is 04:30."""
    daily = Daily(time(3, 30), zone=HELSINKI, repeated=Repeated.FIRST, missing=missing)
    assert following(daily, utc(2017, 3, 24, 12), len(expected)) == expected


def test_intervals_know_no_time_zone(world):
    """A68: three hours across the end of summer time in Paris, and across its beginning."""
    for start in (utc(2020, 10, 25, 0), utc(2020, 3, 29, 0)):
        world = World(world.tasks)
        world.clock.step_wall((start - world.clock.wall.now()).total_seconds())
        world.job(Every(60))
        world.run(3 * 3600 + 1)
        assert len(world.started) == 180


def test_a_daily_job_runs_by_the_wall_clock_and_its_key_is_the_local_time(world):
    """G2, G3."""
    world.clock.step_wall((utc(2026, 6, 1, 6) - world.clock.wall.now()).total_seconds())
    job = world.job(Daily(time(9), zone="Europe/Berlin", **FIRST), name="report")
    assert job.next_due == utc(2026, 6, 1, 7)
    world.run(3601)
    world.jump(82_000)
    world.run(4400)
    assert [(tick.key, tick.due, tick.fired) for tick in world.ticks] == [
        ("report@2026-06-01T09:00:00+02:00", utc(2026, 6, 1, 7), utc(2026, 6, 1, 7)),
        ("report@2026-06-02T09:00:00+02:00", utc(2026, 6, 2, 7), utc(2026, 6, 2, 7)),
    ]


def test_a_wall_that_is_set_is_noticed_within_ten_seconds_and_nothing_runs_twice(world):
    """G3."""
    world.clock.step_wall((utc(2026, 6, 1, 6) - world.clock.wall.now()).total_seconds())
    job = world.job(Daily(time(9), zone="Europe/Berlin", **FIRST))

    def set_forward(tick):
        world.clock.step_wall(3600)

    world.scheduler.add(Once(101), set_forward)
    world.run(150)
    assert len(world.started) == 1
    assert 101 <= world.started[0] <= 111
    # Set back, the same hour comes again: the plan has moved on.
    world.clock.step_wall(-3000)
    world.run(3600)
    assert len(world.started) == 1
    assert job.next_due == utc(2026, 6, 2, 7)


def test_days_that_were_missed_are_counted_too(world):
    world.clock.step_wall((utc(2026, 6, 1, 6) - world.clock.wall.now()).total_seconds())
    job = world.job(Daily(time(9), zone="UTC", **FIRST, missed=Missed.catch_up(2)))
    world.clock.step_wall(10 * 86_400)
    world.run(15)
    assert [tick.due for tick in world.ticks] == [utc(2026, 6, 9, 9), utc(2026, 6, 10, 9)]
    assert job.report.missed == 8


def test_what_is_due_this_very_instant_runs(world):
    world.clock.step_wall((utc(2026, 6, 1, 9) - world.clock.wall.now()).total_seconds())
    world.job(Daily(time(9), zone="UTC", **FIRST))
    world.run(1)
    assert world.started == [0.0]


def test_a_time_of_day_within_the_next_look_is_kept_exactly(world):
    """G3."""
    world.clock.step_wall((utc(2026, 6, 1, 8, 59, 57) - world.clock.wall.now()).total_seconds())
    world.job(Daily(time(9), zone="UTC", **FIRST))
    world.run(5)
    assert world.started == [3.0]


def test_the_calendar_ends(world):
    daily = Daily(time(9), zone="UTC", **FIRST)
    last = datetime(9999, 12, 31, 12, tzinfo=UTC)
    assert daily.next_after(last) is None
    assert daily.forward(ns_of(last), 1) is None
    assert daily.passed(ns_of(last - timedelta(hours=3)), ns_of(last)) == 1


def test_the_nearer_of_two_timelines_goes_first(world):
    world.clock.step_wall((utc(2026, 6, 1, 8, 59) - world.clock.wall.now()).total_seconds())
    world.job(Daily(time(9), zone="UTC", **FIRST), name="nine")
    world.job(Every(59), name="before")
    world.job(Every(61), name="after")
    world.run(62)
    assert [tick.name for tick in world.ticks] == ["before", "nine", "after"]


@pytest.mark.parametrize(("seconds", "first"), [(65, "nine"), (55, "steady")])
def test_of_two_that_are_late_the_later_one_goes_first(world, seconds, first):
    world.clock.step_wall((utc(2026, 6, 1, 8, 59) - world.clock.wall.now()).total_seconds())
    world.job(Every(seconds), name="steady")
    world.job(Daily(time(9), zone="UTC", **FIRST), name="nine")
    world.jump(70)
    world.run(1)
    assert {tick.name for tick in world.ticks} == {"nine", "steady"}
    assert world.ticks[0].name == first


# A70, and what is refused.


@pytest.mark.parametrize("wrong", [0, -1, timedelta(0), float("nan"), float("inf")])
def test_an_interval_of_nothing_is_refused_where_it_is_written(wrong):
    """A70."""
    for kind in (Every, After):
        with pytest.raises(ValueError, match="seconds"):
            kind(wrong)


def test_the_least_interval_and_the_longest_jump_are_bounded_work(world):
    """A70."""
    job = world.job(Every(1e-12, missed=Missed.skip()))
    world.jump(1e6)
    assert job._table.interval_ns == 1
    world.scheduler.close()
    world.run(1)
    agenda = world.scheduler._agenda
    due = agenda.take(world.clock.now_ns(), lambda: 0)
    assert due.missed == 10**15 - 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (Missed, TypeError, r"write Missed\.coalesce\(\)"),
        (lambda: Missed.catch_up(0), ValueError, "maximum"),
        (lambda: Missed.skip(-1), ValueError, "grace"),
        (lambda: Every(1, missed="skip"), TypeError, r"missed must be Missed\.coalesce"),
        (lambda: Once(-1), ValueError, "seconds"),
        (lambda: Daily(zone="UTC", **FIRST), ValueError, "at least one time of day"),
        (lambda: Daily("09:00", zone="UTC", **FIRST), TypeError, r"datetime\.time objects"),
        (lambda: Daily(time(9, tzinfo=UTC), zone="UTC", **FIRST), ValueError, "must be naive"),
        (lambda: Daily(time(9), zone="Nowhere/Now", **FIRST), ValueError, "tzdata"),
        (lambda: Daily(time(9), zone="../etc/passwd", **FIRST), ValueError, "zone must be a name"),
        (lambda: Daily(time(9), zone=1, **FIRST), TypeError, "zone must be a name"),
        (
            lambda: Daily(time(9), zone="UTC", repeated="first", missing=Missing.SKIP),
            TypeError,
            "repeated must be one of",
        ),
        (lambda: Scheduler(on_error=1), TypeError, "on_error must be a function or None"),
        (lambda: Scheduler(wall=FakeClock()), TypeError, "wall clock"),
        (lambda: Scheduler().add(60, print), TypeError, r"timetable must be Every\(60\)"),
        (lambda: Scheduler().add(Every(1), 1), TypeError, "fn must be a function of a tick"),
        (lambda: Scheduler().add(Every(1), print, name=""), TypeError, "name must be a text"),
        (lambda: Scheduler().add(Every(1), print, limit=0), ValueError, "limit"),
    ],
)
def test_wrong_arguments_are_named(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_a_wall_clock_that_tells_no_instant_is_told(world):
    class Broken:
        def now(self):
            return 12.5

    scheduler = Scheduler(wall=Broken())
    with pytest.raises(ClockError, match="not an aware datetime"):
        scheduler.add(Daily(time(9), zone="UTC", **FIRST), print)
    # Nor is it asked for what does not depend on it.
    clock = FakeClock(auto_advance=True)
    scheduler = Scheduler(wall=Broken(), clock=clock)
    scheduler.add(Every(1), print)
    assert scheduler.run(clock.deadline(4)).runs == 3


class Wall:
    def __init__(self, *instant):
        self.instant = utc(*instant)

    def now(self):
        return self.instant


def test_the_first_time_of_day_is_now_or_later():
    daily = Daily(time(9), zone="UTC", **FIRST)
    for wall, due in (
        (Wall(2026, 6, 1, 9), utc(2026, 6, 1, 9)),
        (Wall(2026, 6, 1, 9, 0, 0, 1), utc(2026, 6, 2, 9)),
        (Wall(9999, 12, 31, 12), None),
    ):
        assert Scheduler(wall=wall).add(daily, print).next_due == due


def test_a_job_has_the_name_of_its_function():
    scheduler = Scheduler()
    assert scheduler.add(Every(1), World.run).name == "World.run"
    assert scheduler.add(Every(1), partial(print)).name == "partial"


def test_what_was_taken_and_has_not_ended_is_put_back_once(world):
    """G1: whatever interrupted it."""
    agenda = world.scheduler._agenda
    job = world.job(Every(5, first=0))
    for _ in range(3):
        due = agenda.take(0, lambda: 0)
        assert due.job is job
        assert agenda.take(0, lambda: 0) is None
        for _ in range(2):
            agenda.recover()
        assert agenda.left(0, lambda: 0) == 0
    agenda.ended(agenda.take(0, lambda: 0), None, 0, lambda: 0)
    agenda.recover()
    assert agenda.take(0, lambda: 0) is None


def test_timetables_are_values():
    daily = Daily(time(17), time(9), time(9), zone="Europe/Berlin", **FIRST)
    assert daily.times == (time(9), time(17))
    assert daily == Daily(time(9), time(17), zone=ZoneInfo("Europe/Berlin"), **FIRST)
    for value in (Every(60), After(60, first=0), Once(5), Missed.skip(2), daily):
        assert pickle.loads(pickle.dumps(value)) == value
    assert repr(Missed.skip(2)) == "Missed.skip(2)"
    assert repr(Missed.coalesce()) == "Missed.coalesce()"
    assert repr(Missed.catch_up(3)) == "Missed.catch_up(3)"


def test_what_was_cancelled_does_not_pile_up(world):
    agenda = world.scheduler._agenda
    for _ in range(10):
        jobs = [world.job(Once(1e6)) for _ in range(100)]
        assert agenda.take(0, lambda: 0) is None
        for job in jobs:
            job.cancel()
    agenda.take(0, lambda: 0)
    assert sum(map(len, agenda._entries.values())) <= 300
    assert world.run(1).runs == 0
