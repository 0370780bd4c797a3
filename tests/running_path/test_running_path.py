"""The running path end to end: what a reminder service must keep to, number by number.

The example in examples/reminders is what is tested: a rule decides, a coordinator says when, a
worker owns what waits, an offloaded exchange sends, a journal remembers.
"""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offloads import until

from children import environment
from timebounds import (
    AsyncScheduler,
    AsyncWorker,
    Deadline,
    DeadlineExceeded,
    Effect,
    MemoryJournal,
    Missed,
    Overflow,
    Progress,
    QueueFull,
    Retry,
    RetryAllowance,
    StopRequested,
    Tick,
    WorkerReport,
    offload_job,
    offload_report,
    publish_once,
)
from timebounds.testing import Data, FakeClock, ForbiddenClock, ScriptedSocket, Silence

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "reminders"
sys.path.insert(0, str(EXAMPLE))

from alerts import Alert, Reading, Rule  # noqa: E402
from coordinator import Command, Coordinator, check  # noqa: E402
from pager import Pager  # noqa: E402
from sending import ACKNOWLEDGED, Exchange, Made, PagerClient  # noqa: E402

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULE = Rule("disk", 90.0)
ALERT = RULE.judge(Reading("disk", 97.0, NOON))
COMMAND = Command("disk@noon/reminder#1", "disk is full")


# The domain.


@contextmanager
def forbidden_time():
    """Inside it, whoever calls a clock, by whatever name, meets ForbiddenClock."""
    clock = ForbiddenClock()

    def watch(_frame, event, called):
        if event == "c_call" and (
            called.__module__ == "time" or called.__name__ in {"now", "utcnow", "today"}
        ):
            clock.now_ns()

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


def test_1_a_breach_evaluated_twice_is_the_same_whatever_any_clock_does():
    """Running path 1, F5: the domain runs under ForbiddenClock, and imports no clock."""
    tree = ast.parse((EXAMPLE / "alerts.py").read_text())
    imported = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    assert imported == {"__future__", "dataclasses", "datetime"}
    assert not any(isinstance(each, ast.Import) for each in ast.walk(tree))
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    with forbidden_time():
        first = RULE.judge(Reading("disk", 97.0, NOON))
        again = RULE.judge(Reading("disk", 97.0, elsewhere))
        at_the_limit = RULE.judge(Reading("disk", 90.0, NOON))
        another = RULE.judge(Reading("cpu", 97.0, NOON))
    assert first == again == ALERT
    assert first.key == "disk@2026-03-01T12:00:00+00:00"
    assert at_the_limit is another is None


@pytest.mark.parametrize(
    "read", [time.time, time.monotonic_ns, lambda: datetime.now(UTC), datetime.now, date.today]
)
def test_1_a_domain_that_reads_a_clock_would_be_found(read):
    """A canary: the check of above can fail."""
    with forbidden_time(), pytest.raises(AssertionError, match="must not touch time"):
        read()


def test_2_a_naive_timestamp_is_refused_at_the_boundary():
    """Running path 2."""
    with pytest.raises(ValueError, match=r"has no time zone: write datetime\.now\(UTC\)"):
        Reading("disk", 97.0, NOON.replace(tzinfo=None))


# When.


class Taking:
    """Takes commands; may refuse them."""

    def __init__(self, clock, *, full=0):
        self.clock = clock
        self.taken = []
        self.full = full

    async def __call__(self, command, deadline, *, key):
        if self.full:
            self.full -= 1
            raise QueueFull
        self.taken.append((command, self.clock.now(), deadline))


@pytest.mark.parametrize(
    ("missed", "commands", "counted"),
    [(Missed.coalesce(), 1, 2), (Missed.catch_up(10), 3, 0), (Missed.skip(), 0, 3)],
)
def test_3_three_minutes_frozen_are_one_reminder_three_or_none_and_the_plan_stays(
    missed, commands, counted
):
    """Running path 3."""
    clock = FakeClock()
    scheduler, taking = AsyncScheduler(clock=clock, wall=clock.wall), Taking(clock)
    coordinator = Coordinator(scheduler, taking, missed=missed)
    coordinator.open(ALERT)
    clock.jump(185)
    clock.run(scheduler.run(clock.deadline(1)))
    assert len(taking.taken) == commands
    assert coordinator.job.report.missed == counted
    assert coordinator.job.next_due == 240.0
    clock.step_wall(3600)
    clock.run(scheduler.run(clock.deadline(60)))
    assert [at for _, at, _ in taking.taken][commands:] == [240.0]


def test_4_a_timer_that_fires_twice_sends_once():
    """Running path 4, G2: the key is the tick's, and the worker knows it."""
    clock = FakeClock()
    handled = []

    async def handle(work):
        handled.append(work.payload.key)

    async def main():
        scheduler = AsyncScheduler(clock=clock)
        worker = AsyncWorker(
            handle, capacity=9, overflow=Overflow.REJECT, duplicate_window=99, clock=clock
        )
        coordinator = Coordinator(scheduler, worker.submit)
        coordinator.open(ALERT)
        tick = Tick("reminder", "reminder#0", 60.0, 60.0, 0.0, 0, clock.deadline(10))
        await coordinator.remind(tick)
        await coordinator.remind(tick)
        return await worker.close(clock.deadline(10))

    assert clock.run(main()).accepted == 1
    assert handled == [f"{ALERT.key}/reminder#0"]


def test_5_what_finds_no_room_is_refused_or_waits_to_exactly_its_deadline():
    """Running path 5."""
    clock = FakeClock()
    gate = asyncio.Event()

    async def handle(work):
        await gate.wait()

    async def fill(overflow):
        worker = AsyncWorker(handle, capacity=2, overflow=overflow, check=check, clock=clock)
        for n in range(3):
            await worker.submit(Command(str(n), ""), clock.deadline(1000))
            await asyncio.sleep(0)
        return worker

    async def main():
        worker = await fill(Overflow.REJECT)
        before = worker.report
        with pytest.raises(QueueFull):
            await worker.submit(COMMAND, clock.deadline(1000))
        assert worker.report == before == WorkerReport(3, 0, 0, 0, 0, 0, 0, 2, 1)
        waiting = await fill(Overflow.WAIT)
        began = clock.now()
        with pytest.raises(DeadlineExceeded):
            await waiting.submit(COMMAND, clock.deadline(1.0))
        assert clock.now() - began == 1.0
        for each in (worker, waiting):
            await each.close(clock.deadline(0))

    clock.run(main())


def test_5_a_coordinator_whose_worker_is_full_goes_on():
    clock = FakeClock()
    scheduler, taking = AsyncScheduler(clock=clock), Taking(clock, full=1)
    coordinator = Coordinator(scheduler, taking)
    coordinator.open(ALERT)
    clock.run(scheduler.run(clock.deadline(130)))
    assert coordinator.refused == [f"{ALERT.key}/reminder#0"]
    assert [command.key for command, _, _ in taking.taken] == [f"{ALERT.key}/reminder#1"]
    coordinator.settle(ALERT.key)
    clock.run(scheduler.run(clock.deadline(130)))
    assert len(taking.taken) == 1


def test_6_a_live_object_of_the_domain_is_refused():
    """Running path 6."""
    clock = FakeClock()

    async def main():
        worker = AsyncWorker(print, capacity=2, overflow=Overflow.REJECT, check=check, clock=clock)
        with pytest.raises(TypeError, match="not a Reading that others may change"):
            await worker.submit(Reading("disk", 97.0, NOON), clock.deadline(1))
        assert worker.report.accepted == 0
        await worker.close(clock.deadline(0))

    clock.run(main())
    with pytest.raises(FrozenInstanceError):
        COMMAND.text = "other"


@pytest.mark.parametrize(("at", "sent"), [(45.0, False), (44.999999999, True)])
def test_7_a_command_at_its_very_end_is_stale_and_a_tick_earlier_it_is_sent(at, sent):
    """Running path 7."""
    clock = FakeClock()
    handled = []

    async def handle(work):
        handled.append(work.payload)
        if work.payload == "long":
            await asyncio.sleep(at)  # fake time

    async def main():
        worker = AsyncWorker(handle, capacity=2, overflow=Overflow.REJECT, clock=clock)
        await worker.submit("long", clock.deadline(1000))
        await worker.submit(COMMAND, clock.deadline(45.0))
        return await worker.close(clock.deadline(1000))

    report = clock.run(main())
    assert (COMMAND in handled) is sent
    assert report.stale == (not sent)


# How.


@pytest.mark.parametrize(
    ("budget", "made", "had"), [(2.0, Made.MAYBE, b"ACKE"), (2.5, Made.CONFIRMED, ACKNOWLEDGED)]
)
def test_8_an_acknowledgement_in_three_parts_is_judged_by_the_whole(budget, made, had):
    """Running path 8."""
    clock = FakeClock(auto_advance=True)
    parts = [Data(ACKNOWLEDGED[n : n + 2], after=0.75) for n in (0, 2, 4)]
    exchange = Exchange(ScriptedSocket(clock, *parts))
    deadline = clock.deadline(budget)
    if made is Made.CONFIRMED:
        exchange.ask(COMMAND, deadline)
    else:
        with pytest.raises(DeadlineExceeded) as caught:
            exchange.ask(COMMAND, deadline)
        assert caught.value.report.data == had
        assert clock.now() == 2.0
    assert exchange.made is made


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 30), max_size=12),
    budget=st.integers(1, 40),
    retries=st.integers(0, 4),
)
def test_9_reads_and_sleeps_stay_within_the_budget(gaps, budget, retries):
    """Running path 9, in tenths of a second: exactly, on fake time."""
    clock = FakeClock(auto_advance=True)
    script = [Data(b"A", after=gap / 10) if gap < 25 else Silence() for gap in gaps]
    retry = Retry(
        on=(OSError, EOFError), effect=Effect.DEDUPLICATED, allowance=RetryAllowance(retries)
    )
    deadline = clock.deadline(budget / 10)

    def attempt(attempt):
        sock = ScriptedSocket(clock, *script)
        Exchange(sock).ask(COMMAND, attempt.deadline)

    with pytest.raises((OSError, EOFError)):
        retry.call(attempt, deadline=deadline, key=COMMAND.key)
    assert clock.now() <= budget / 10
    assert sum(clock.sleeps) <= budget / 10


def page(pager, journal, command=COMMAND, seconds=10.0, **options):
    """Page by the real exchange, in a thread that an offload owns; return the client."""
    client = PagerClient(pager.address, journal, **options)

    async def main():
        await offload_job(client.page, command, deadline=Deadline.after(seconds))

    asyncio.run(main())
    return client


@pytest.mark.real
def test_10_a_retry_after_maybe_shows_one_alert():
    """Running path 10: taken and not answered, refused, then answered."""
    journal = MemoryJournal()
    with Pager("drop", "refuse") as pager:
        client = page(pager, journal)
        assert pager.asked == [COMMAND.key] * 2
        assert pager.alerts == {COMMAND.key: COMMAND.text}
    assert client.made == {COMMAND.key: Made.CONFIRMED}
    assert journal.progress(COMMAND.key, Deadline.after(1)) is Progress.PUBLISHED


def test_10_a_retry_over_an_unsafe_effect_is_refused_where_it_is_written():
    """Running path 10, A7."""
    with pytest.raises(ValueError, match="UNSAFE can not be retried"):
        Retry(on=OSError, effect=Effect.UNSAFE, allowance=RetryAllowance(1))


# Cancels.


STAGES = ["line", "thread", "asked"]


@pytest.mark.real
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_11_a_cancel_at_any_stage_keeps_the_order(stage, count):
    """Running path 11: one release at most, closed after the return, one outcome."""
    notes = []
    journal = MemoryJournal()

    async def main(pager):
        client = PagerClient(pager.address, journal, note=notes.append)
        letters = []
        worker = AsyncWorker(
            client.handle, capacity=2, overflow=Overflow.REJECT, dead_letter=letters.append
        )
        await worker.submit(COMMAND, Deadline.after(30))
        if stage == "thread":
            await until(lambda: notes)
        elif stage == "asked":
            await until(lambda: pager.asked)
        [task] = worker._tasks
        for _ in range(count):
            task.cancel()
        await asyncio.wait({task})
        # What was not begun is begun by the end, against a pager that hangs.
        grace = 0.5 if stage == "line" else 10
        report = await worker.close(Deadline.after(grace), reserve=grace / 2)
        return report, letters

    with Pager("hang") as pager:
        report, letters = asyncio.run(main(pager))
    assert sum(report[1:]) == report.accepted == 1
    assert notes.count("released") <= 1
    if stage == "line":
        # It was cancelled before it began: nothing was taken out of the line by that.
        assert report.completed + report.interrupted + report.unstarted + report.failed == 1
        return
    assert report.interrupted == 1
    assert [work.record.outcome.value for work in letters] == ["interrupted"]
    if "closed" in notes:
        assert notes[-1] == "closed"
        assert notes.index("closed") > max(
            [n for n, each in enumerate(notes) if each == "released"], default=-1
        )
    if stage == "asked":
        assert notes == ["attempt 1", "released", "effect maybe", "closed"]
        assert journal.unfinished(Deadline.after(1)) == [(COMMAND.key, Progress.IN_PROGRESS)]


@pytest.mark.real
def test_12_a_deadline_alone_is_told_as_one_and_with_a_cancel_it_is_the_cancel():
    """Running path 12."""

    async def late(pager):
        client = PagerClient(pager.address, MemoryJournal())
        await offload_job(client.page, COMMAND, deadline=Deadline.after(0.1))

    async def both(pager):
        client = PagerClient(pager.address, MemoryJournal())
        task = asyncio.ensure_future(
            offload_job(client.page, COMMAND, deadline=Deadline.after(0.1))
        )
        await until(lambda: pager.asked)
        task.cancel()
        # The loop is held up until the deadline has passed, too.
        threading.Event().wait(0.2)
        with pytest.raises(asyncio.CancelledError):
            await task

    with Pager("hang") as pager, pytest.raises(DeadlineExceeded):
        asyncio.run(late(pager))
    with Pager("hang") as pager:
        asyncio.run(both(pager))


def test_13_an_error_of_the_thread_after_the_cancel_is_in_the_report():
    """Running path 13."""
    entered, gate = threading.Event(), threading.Event()

    def work(job):
        entered.set()
        gate.wait(20)
        raise OSError("the disk is gone")

    async def main():
        task = asyncio.ensure_future(offload_job(work, deadline=Deadline.after(30)))
        await until(entered.is_set)
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return offload_report(caught.value)

    report = asyncio.run(main())
    assert str(report.error) == "the disk is gone"


# Crashes, ends.


@pytest.mark.real
def test_14_what_a_crash_left_in_progress_is_paged_again_and_shown_once():
    """Running path 14, J1; with a real crash in claims/test_journal.py."""
    journal = MemoryJournal()
    with Pager() as pager:
        first = page(pager, journal)
        # As it is after a crash between the effect and its mark.
        journal._marks[COMMAND.key] = Progress.IN_PROGRESS
        page(pager, journal)
        page(pager, journal)
        assert pager.asked == [COMMAND.key] * 2
        assert pager.alerts == {COMMAND.key: COMMAND.text}
    assert first.made[COMMAND.key] is Made.CONFIRMED


def test_15_the_end_without_grace_accounts_for_all_and_does_not_change():
    """Running path 15."""
    clock = FakeClock()

    async def handle(work):
        if work.payload.key == "broken":
            raise ConnectionRefusedError
        await asyncio.sleep(1000)  # fake time

    async def main():
        worker = AsyncWorker(handle, capacity=2, overflow=Overflow.REJECT, clock=clock)
        await worker.submit(Command("broken", ""), clock.deadline(5000))
        await asyncio.sleep(0)
        for key in ("under way", "waiting", "waiting too"):
            await worker.submit(Command(key, ""), clock.deadline(5000))
            await asyncio.sleep(0)
        first = await worker.close(clock.deadline(0))
        assert await worker.close(clock.deadline(10)) == first
        return first

    assert clock.run(main()) == WorkerReport(4, 0, 1, 1, 2, 0, 0, 0, 0)


INTERRUPTED = """
import asyncio, sys, threading
sys.path.insert(0, sys.argv[1])
from coordinator import Command
from pager import Pager
from sending import PagerClient
from timebounds import Deadline, MemoryJournal, offload_job

def note(what):
    print(what, flush=True)

async def main(pager):
    client = PagerClient(pager.address, MemoryJournal(), note=note)
    await offload_job(client.page, Command("k", "t"), deadline=Deadline.after(30))

def tell(pager):
    while not pager.asked:
        threading.Event().wait(0.001)
    note("asked")

with Pager("hang") as pager:
    threading.Thread(target=tell, args=[pager], daemon=True).start()
    try:
        asyncio.run(main(pager))
    except KeyboardInterrupt:
        note("interrupted")
"""


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_16_ctrl_c_keeps_the_order_in_a_real_process(times):
    """Running path 16: the socket is closed after the return, once or twice pressed."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, EXAMPLE],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "attempt 1\n"
        assert child.stdout.readline() == "asked\n"
        for _ in range(times):
            os.kill(child.pid, signal.SIGINT)
            threading.Event().wait(0.02)
        out, err = child.communicate(timeout=30)
    lines = out.split()
    steps = [each for each in lines if each in {"released", "closed"}]
    assert steps == ["released", "closed"], (out, err)
    assert "interrupted" in lines


@settings(max_examples=25, deadline=None)
@given(
    faults=st.lists(st.sampled_from(["crash before", "crash after", "fail", "twice"]), max_size=6)
)
def test_17_whatever_was_lost_or_doubled_the_last_state_is_that_of_a_plain_run(faults):
    """Running path 17: for every schedule whose last run completes."""

    class Crash(BaseException):
        pass

    commands = [Command(f"key {n}", f"text {n}") for n in range(3)]
    plain = {each.key: each.text for each in commands}
    journal, shown, left = MemoryJournal(), {}, list(faults)

    def publish_command(command):
        def publish(key):
            fault = left.pop() if left else ""
            if fault == "crash before":
                raise Crash
            if fault == "fail":
                raise StopRequested
            shown.setdefault(key, command.text)
            if fault == "twice":
                shown.setdefault(key, "again")
            if fault == "crash after":
                raise Crash

        publish_once(journal, command.key, publish, Deadline.after(30))

    done = False
    while not done:
        done = True
        for each in commands:
            try:
                publish_command(each)
            except (Crash, StopRequested):
                done = False
    assert shown == plain
    assert journal.unfinished(Deadline.after(1)) == []


@pytest.mark.real
@pytest.mark.slow
def test_18_the_whole_of_it_runs_draws_its_timeline_and_leaves_nothing():
    """Running path 18: that nothing is left here is looked at after every test."""
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", EXAMPLE / "app.py"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert "effect confirmed" in ended.stdout
    assert "worker: " in ended.stdout
    assert "alerts are visible" in ended.stdout


def test_the_alert_is_a_value():
    assert Alert("disk@2026-03-01T12:00:00+00:00", "disk is at 97, more than 90") == ALERT
