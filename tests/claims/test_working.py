"""M1-M3, in both colours: what is accepted, what is begun, and what has become of all of it."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import queue
import threading
import time

import pytest
from moments import until

from timebounds import (
    Admission,
    AsyncWorker,
    ClockError,
    Deadline,
    DeadlineExceeded,
    Expiry,
    FailurePolicy,
    Overflow,
    QueueClosed,
    QueueFull,
    StopRequested,
    StopSignal,
    Work,
    Worker,
    WorkerReport,
    WorkOutcome,
)
from timebounds.policies.mailbox import Mailbox
from timebounds.testing import FakeClock, Gate


class World:
    """A worker of one colour whose handler waits at a gate, and what has come of its work.

    Fake time moves by hand. Verbs are called as blocking ones; in tasks each is a task of one loop,
    which turns until nothing is left to do.
    """

    def __init__(self, tasks, *, held=True, many=1, **options):
        self.tasks = tasks
        self.clock = FakeClock()
        self.handled = []
        self.letters = []
        self.answers = {}
        self.gate = threading.Event()
        self.loop = asyncio.new_event_loop() if tasks else None
        self.going = []
        if not held:
            self.gate.set()
        options.setdefault("capacity", 2)
        options.setdefault("overflow", Overflow.REJECT)
        options.setdefault("dead_letter", self.letters.append)
        if tasks:
            self.worker = AsyncWorker(self._task, tasks=many, clock=self.clock, **options)
        else:
            self.worker = Worker(self._blocking, threads=many, clock=self.clock, **options)

    def _answer(self, work):
        answer = self.answers.get(work.payload)
        if isinstance(answer, BaseException):
            raise answer

    def _blocking(self, work):
        self.handled.append(work.payload)
        stop = work.deadline.stop
        while not self.gate.wait(0.001):
            if stop.requested() and self.answers.get("obeys"):
                stop.check("handler")
        self._answer(work)

    async def _task(self, work):
        self.handled.append(work.payload)
        stop = work.deadline.stop
        while not self.gate.is_set():
            await asyncio.sleep(0)
            if stop.requested() and self.answers.get("obeys"):
                stop.check("handler")
        self._answer(work)

    def run(self, value):
        """Have a verb done, to its end."""
        if not inspect.isawaitable(value):
            return value
        return self.loop.run_until_complete(value)

    def submit(self, payload, seconds=1000.0, **options):
        given = {each: options.pop(each) for each in ("stop",) if each in options}
        deadline = Deadline.after(seconds, clock=self.clock, **given)
        return self.run(self.worker.submit(payload, deadline, **options))

    def later(self, fn, *args, ready=None, **options):
        """Begin a verb that waits; return what gives its outcome."""
        if self.tasks:
            task = self.loop.create_task(fn(*args, **options))
            self.going.append(task)
            self.turn(ready or (lambda: len(self.clock.waiting) > 0 or task.done()))
            return lambda: self.loop.run_until_complete(task)
        outcome = []

        def run():
            try:
                outcome.append(fn(*args, **options))
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        before = len(self.clock.waiting)
        thread.start()
        self.going.append(thread)
        until(ready or (lambda: len(self.clock.waiting) > before or not thread.is_alive()))

        def end():
            thread.join(20)
            [result] = outcome
            if isinstance(result, BaseException):
                raise result
            return result

        return end

    def turn(self, condition):
        """Wait until the worker has come so far."""
        if not self.tasks:
            until(condition)
            return
        give_up = time.monotonic() + 20
        while not condition():
            self.loop.run_until_complete(asyncio.sleep(0))
            assert time.monotonic() < give_up

    def close(self, seconds=1000.0, **options):
        return self.run(self.worker.close(Deadline.after(seconds, clock=self.clock), **options))

    def end(self):
        self.gate.set()
        self.close()
        if self.tasks:
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()


@pytest.fixture(params=["blocking", "tasks"])
def tasks(request):
    return request.param == "tasks"


@pytest.fixture
def make(tasks):
    """Return a function that makes worlds, which are ended."""
    made = []

    def one(**options):
        made.append(World(tasks, **options))
        return made[-1]

    yield one
    for each in made:
        each.end()


def sums(report):
    return report.accepted == sum(report[1:])


def outcomes(world):
    return [(each.key, each.outcome.value) for each in world.worker.history]


# M1: order and admission.


def test_work_is_done_in_the_order_of_its_coming(make):
    """M1, M2."""
    world = make(capacity=100, held=False)
    for n in range(20):
        assert world.submit(n) is Admission.ACCEPTED
    report = world.close()
    assert world.handled == list(range(20))
    assert report == WorkerReport(20, 20, 0, 0, 0, 0, 0, 0, 0)
    assert world.letters == []


def test_what_comes_when_all_room_is_taken_is_refused_without_a_trace(make):
    """Running path 5, M1: two wait and one is under way."""
    world = make()
    for n in range(3):
        world.submit(n)
        world.turn(lambda: world.handled == [0])
    before = world.worker.report
    assert before == WorkerReport(3, 0, 0, 0, 0, 0, 0, 2, 1)
    with pytest.raises(QueueFull, match="2 pieces of work wait already") as caught:
        world.submit(3)
    assert isinstance(caught.value, queue.Full)
    assert world.worker.report == before
    assert sums(before)
    world.gate.set()
    assert world.close().completed == 3


def test_who_waits_for_room_is_bounded_by_his_deadline(make):
    """Running path 5, A71: at exactly 1.0, and the work is not in it."""
    world = make(overflow=Overflow.WAIT, capacity=1)
    world.submit(0)
    world.turn(lambda: world.handled == [0])
    world.submit(1)
    waits = world.later(world.worker.submit, 2, world.clock.deadline(1.0))
    world.clock.advance(1.0)
    with pytest.raises(DeadlineExceeded, match="the deadline of 1 s was reached, there was no"):
        waits()
    assert world.clock.now() == 1.0
    world.gate.set()
    assert world.close().accepted == 2
    assert world.handled == [0, 1]


def test_waiting_may_be_bounded_more_closely_than_the_work(make):
    world = make(overflow=Overflow.WAIT, capacity=1)
    world.submit(0)
    world.turn(lambda: world.handled == [0])
    world.submit(1)
    waits = world.later(world.worker.submit, 2, world.clock.deadline(1000), wait=0.5)
    world.clock.advance(0.5)
    with pytest.raises(DeadlineExceeded, match=r"0\.5 s"):
        waits()


def test_room_goes_to_whoever_has_waited_longest(make):
    """M1, A74: a newcomer does not overtake."""
    world = make(overflow=Overflow.WAIT, capacity=1)
    world.submit(0)
    world.turn(lambda: world.handled == [0])
    world.submit(1)
    waits = [world.later(world.worker.submit, n, world.clock.deadline(1000)) for n in (2, 3, 4)]
    world.gate.set()
    assert [each() for each in waits] == [Admission.ACCEPTED] * 3
    world.close()
    assert world.handled == [0, 1, 2, 3, 4]


def test_a_stop_ends_the_waiting_for_room(make):
    world = make(overflow=Overflow.WAIT, capacity=1)
    world.submit(0)
    world.turn(lambda: world.handled == [0])
    world.submit(1)
    stop = StopSignal()
    waits = world.later(world.worker.submit, 2, Deadline.after(9, clock=world.clock, stop=stop))
    stop.request("drain")
    with pytest.raises(StopRequested, match=r"^submit: stopped \(drain\)"):
        waits()
    world.gate.set()
    assert world.close().accepted == 2


def test_the_oldest_makes_room_by_declaration(make):
    """M1."""
    world = make(overflow=Overflow.DROP_OLDEST)
    for n in range(5):
        world.submit(n, key=n)
        world.turn(lambda: world.handled == [0])
    assert [work.payload for work in world.letters] == [1, 2]
    assert {work.record.outcome for work in world.letters} == {WorkOutcome.DROPPED}
    world.gate.set()
    report = world.close()
    assert (report.completed, report.dropped, report.accepted) == (3, 2, 5)
    assert world.handled == [0, 3, 4]


def test_work_of_the_same_key_is_accepted_once_in_the_window(make):
    """M1: of a key that was done, too."""
    world = make(duplicate_window=10, held=False, capacity=100)
    assert world.submit("a", key="k") is Admission.ACCEPTED
    assert world.submit("b", key="k") is Admission.DUPLICATE
    assert world.submit("c", key="other") is Admission.ACCEPTED
    assert world.submit("d") is Admission.ACCEPTED
    assert world.submit("e") is Admission.ACCEPTED
    world.turn(lambda: len(world.handled) == 4)
    world.clock.advance(9.999)
    assert world.submit("f", key="k") is Admission.DUPLICATE
    world.clock.advance(0.001)
    assert world.submit("g", key="k") is Admission.ACCEPTED
    assert world.close().accepted == 5
    assert len(world.worker._box._keys) <= 2


def test_the_order_of_admission_is_closed_invalid_duplicate_full_accepted(make):
    """M1, running path 6."""

    def check(payload):
        if not isinstance(payload, str):
            raise TypeError("payload must be a text")

    world = make(check=check, duplicate_window=10, capacity=1)
    world.submit("a", key="k")
    world.turn(lambda: world.handled == ["a"])
    world.submit("b", key="l")
    with pytest.raises(TypeError, match="must be a text"):
        world.submit(object(), key="k")
    assert world.submit("c", key="k") is Admission.DUPLICATE
    with pytest.raises(QueueFull):
        world.submit("d", key="m")
    world.gate.set()
    world.close()
    with pytest.raises(QueueClosed, match="takes no more work"):
        world.submit(object(), key="k")
    # What was refused was not remembered as if it had come.
    assert "m" not in world.worker._box._keys


def test_a_duplicate_of_what_was_let_in_meanwhile_is_told_to_who_waited(make):
    world = make(overflow=Overflow.WAIT, capacity=1, duplicate_window=100)
    world.submit(0)
    world.turn(lambda: world.handled == [0])
    world.submit(1)
    first = world.later(world.worker.submit, 2, world.clock.deadline(1000), key="k")
    second = world.later(world.worker.submit, 3, world.clock.deadline(1000), key="k")
    world.gate.set()
    assert (first(), second()) == (Admission.ACCEPTED, Admission.DUPLICATE)
    assert world.close().accepted == 3


# M2: what has become of it.


def test_stale_work_is_not_begun(make):
    """M2, A73: accepted at 0 for 4 s, the worker is free at 7.03."""
    world = make()
    world.submit("long", key="long")
    world.turn(lambda: world.handled == ["long"])
    world.submit("stale", 4.0, key="stale")
    world.clock.advance(7.03)
    world.gate.set()
    report = world.close()
    assert world.handled == ["long"]
    assert report == WorkerReport(2, 1, 0, 0, 0, 1, 0, 0, 0)
    [letter] = world.letters
    assert letter.payload == "stale"
    assert letter.record[:5] == ("stale", WorkOutcome.STALE, 7.03, 0.0, 3.03)


@pytest.mark.parametrize(("at", "stale"), [(60, True), (59.999999999, False)])
def test_work_that_begins_exactly_at_its_bound_is_stale_and_a_tick_before_is_not(make, at, stale):
    """Running path 7, A78."""
    world = make()
    world.submit("long")
    world.turn(lambda: world.handled == ["long"])
    world.submit("bounded", 60)
    world.clock.advance(at)
    world.gate.set()
    assert world.close().stale == stale


def test_an_expiry_makes_work_stale_by_the_wall_clock(make):
    world = make()
    world.submit("long")
    world.turn(lambda: world.handled == ["long"])
    world.submit("letter", expires=Expiry.after(60, clock=world.clock.wall))
    world.clock.step_wall(61)
    world.gate.set()
    assert world.close().stale == 1
    assert world.letters[0].record.late == 0.0


def test_time_in_line_and_time_being_handled_are_told_apart(make):
    """A45."""
    world = make()
    world.submit("first", key="first")
    world.turn(lambda: world.handled == ["first"])
    world.submit("second", key="second")
    world.clock.advance(5)
    world.gate.set()
    world.close()
    first, second = world.worker.history
    assert (first.queued, first.ran) == (0.0, 5.0)
    assert (second.queued, second.ran) == (5.0, 0.0)


def test_a_handler_is_given_what_is_left_and_at_most_its_limit(make):
    seen = []
    world = make(limit=10, held=False)

    def note(work):
        seen.append((work.payload, work.deadline.remaining(), work.key))

    async def note_task(work):
        note(work)

    world.worker._handle = note_task if world.tasks else note
    world.submit("a", 1000, key="k")
    world.turn(lambda: len(seen) == 1)
    world.submit("b", 3)
    world.close()
    assert seen == [("a", 10.0, "k"), ("b", 3.0, None)]


def test_a_failure_is_told_and_the_next_one_goes_on(make):
    world = make(held=False, capacity=10)
    world.answers["b"] = ValueError("no such address")
    for payload in "abc":
        world.submit(payload, key=payload)
    report = world.close()
    assert report == WorkerReport(3, 2, 1, 0, 0, 0, 0, 0, 0)
    assert [(each.payload, each.record.outcome.value) for each in world.letters] == [
        ("b", "failed")
    ]
    assert str(world.letters[0].record.error) == "no such address"
    assert "failed" in repr(world.letters[0])


def test_a_failure_may_end_it_all_by_declaration(make):
    world = make(capacity=10, failures=FailurePolicy.CLOSE)
    world.answers["a"] = ValueError("broken")
    for payload in "abc":
        world.submit(payload)
    world.gate.set()
    world.turn(lambda: len(world.letters) == 3)
    assert world.handled == ["a"]
    with pytest.raises(QueueClosed):
        world.submit("d")
    assert world.close() == WorkerReport(3, 0, 1, 0, 2, 0, 0, 0, 0)


def test_who_waits_for_room_when_a_failure_ends_it_all_is_told(make):
    world = make(capacity=1, overflow=Overflow.WAIT, failures=FailurePolicy.CLOSE)
    world.answers["a"] = ValueError("broken")
    world.submit("a")
    world.turn(lambda: world.handled == ["a"])
    world.submit("b")
    waits = world.later(world.worker.submit, "c", world.clock.deadline(100))
    world.gate.set()
    with pytest.raises(QueueClosed, match="while this waited for room"):
        waits()


def test_the_history_has_a_limit_and_the_counts_have_none(make):
    world = make(held=False, capacity=100, history=3)
    for n in range(10):
        world.submit(n, key=n)
    report = world.close()
    assert [each.key for each in world.worker.history] == [7, 8, 9]
    assert report.completed == 10
    assert "closed" in repr(world.worker)
    assert pickle.loads(pickle.dumps(report)) == report


def test_a_sink_that_fails_takes_no_other_work_with_it(make, monkeypatch):
    told = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(str(args.exc_value)))

    def broken(work):
        raise OSError("disk full")

    world = make(held=False, dead_letter=broken)
    world.answers["a"] = ValueError("broken")
    world.submit("a")
    world.turn(lambda: world.worker.report.failed == 1)
    world.submit("b")
    assert world.close().completed == 1
    assert told == ["disk full"]


def test_several_are_handled_at_the_same_time(make):
    world = make(many=3, capacity=10)
    for n in range(5):
        world.submit(n)
    world.turn(lambda: len(world.handled) == 3)
    assert world.worker.report.running == 3
    world.gate.set()
    assert world.close().completed == 5


def test_an_expired_deadline_hands_in_nothing(make):
    world = make()
    with pytest.raises(DeadlineExceeded, match="submit"):
        world.submit("a", 0)
    assert world.worker.report.accepted == 0


# M3: the end.


def test_the_end_accounts_for_every_piece_and_does_not_change(make):
    """M2, M3, running path 15: grace 0, one under way, two waiting, one failed."""
    world = make(held=False)
    world.answers["broken"] = ValueError("broken")
    world.submit("broken")
    world.turn(lambda: world.worker.report.failed == 1)
    world.gate.clear()
    for payload in ("under way", "waiting", "waiting too"):
        world.submit(payload)
        world.turn(lambda: world.handled[-1] == "under way")
    report = world.close(0)
    assert report == WorkerReport(4, 0, 1, 1, 2, 0, 0, 0, 0)
    assert sums(report)
    world.gate.set()
    assert world.close(10) == report
    assert sorted(work.record.outcome.value for work in world.letters) == [
        "failed",
        "interrupted",
        "unstarted",
        "unstarted",
    ]


def test_what_waits_is_done_within_the_grace(make):
    """M3."""
    world = make(held=False, capacity=100)
    for n in range(10):
        world.submit(n)
    assert world.close(5).completed == 10
    assert world.clock.now() == 0.0


def test_draining_ends_a_reserve_earlier_and_what_is_under_way_is_asked_to_stop(make):
    """M3: back at the deadline."""
    world = make()
    world.answers["obeys"] = True
    for payload in "abc":
        world.submit(payload)
        world.turn(lambda: world.handled == ["a"])
    ends = world.later(world.worker.close, world.clock.deadline(10), reserve=2)
    world.clock.advance(7.999)
    assert not world.worker.stop.requested()
    world.clock.advance(0.001)
    assert ends() == WorkerReport(3, 0, 0, 1, 2, 0, 0, 0, 0)
    assert world.clock.now() == 8.0
    assert world.handled == ["a"]


def test_what_does_not_obey_is_interrupted_at_the_deadline(make):
    """M3."""
    world = make()
    world.submit("a")
    world.turn(lambda: world.handled == ["a"])
    ends = world.later(world.worker.close, world.clock.deadline(10), reserve=2)
    world.clock.advance(8)
    world.turn(lambda: world.worker.stop.requested() and world.clock.waiting)
    world.clock.advance(2)
    assert ends() == WorkerReport(1, 0, 0, 1, 0, 0, 0, 0, 0)


def test_closing_wakes_who_waits_for_room_and_his_work_stays_his(make):
    """A72."""
    world = make(overflow=Overflow.WAIT, capacity=1)
    world.submit(0)
    world.turn(lambda: world.handled == [0])
    world.submit(1)
    waits = world.later(world.worker.submit, 2, world.clock.deadline(1000))
    # Those who wait become fewer.
    ends = world.later(
        world.worker.close, world.clock.deadline(1000), ready=lambda: world.worker._box.closed
    )
    with pytest.raises(QueueClosed, match="while this waited for room"):
        waits()
    world.gate.set()
    assert ends() == WorkerReport(2, 2, 0, 0, 0, 0, 0, 0, 0)
    assert world.handled == [0, 1]


def test_a_stop_of_the_closing_deadline_ends_the_waiting_at_once(make):
    world = make()
    world.submit("a")
    world.turn(lambda: world.handled == ["a"])
    world.submit("b")
    stop = StopSignal()
    stop.request()
    report = world.run(world.worker.close(Deadline.after(100, clock=world.clock, stop=stop)))
    assert (report.interrupted, report.unstarted) == (1, 1)


def test_stages_share_the_hard_limit(make):
    """A62: the first takes 7 of 10, the second 3, the third nothing, and is run all the same."""
    worlds = [make() for _ in range(3)]
    for world in worlds:
        world.submit("a")
        world.turn(lambda: world.handled == ["a"])  # noqa: B023
    first, second, third = worlds
    ends = first.later(first.worker.close, first.clock.deadline(10))
    first.clock.advance(7)
    first.gate.set()
    assert ends().completed == 1
    left = 10 - first.clock.now()
    ends = second.later(second.worker.close, second.clock.deadline(left))
    second.clock.advance(3)
    assert ends().interrupted == 1
    assert third.close(left - second.clock.now()).interrupted == 1


def test_two_may_close_at_the_same_time(make):
    """M3."""
    world = make()
    world.submit("a")
    world.turn(lambda: world.handled == ["a"])
    ends = [world.later(world.worker.close, world.clock.deadline(1000)) for _ in range(2)]
    world.gate.set()
    assert [each() for each in ends] == [WorkerReport(1, 1, 0, 0, 0, 0, 0, 0, 0)] * 2


# Interrupts and cancels.


def test_what_is_no_exception_ends_its_work_and_goes_on():
    told = []

    class Leaving(BaseException):
        pass

    def handle(work):
        raise Leaving(work.payload)

    worker = Worker(handle, capacity=2, overflow=Overflow.REJECT)
    hook = threading.excepthook
    threading.excepthook = lambda args: told.append(str(args.exc_value))
    try:
        worker.submit("a", Deadline.after(5))
        report = worker.close(Deadline.after(5))
        until(lambda: told)
    finally:
        threading.excepthook = hook
    assert report.failed == 1
    assert told == ["a"]


def test_a_cancel_that_a_handler_raises_by_itself_is_a_failure():
    clock = FakeClock()
    handled = []

    async def handle(work):
        handled.append(work.payload)
        if work.payload == 0:
            raise asyncio.CancelledError

    async def main():
        worker = AsyncWorker(handle, capacity=5, overflow=Overflow.REJECT, clock=clock)
        for n in range(3):
            await worker.submit(n, clock.deadline(100))
        return await worker.close(clock.deadline(100))

    report = clock.run(main())
    assert handled == [0, 1, 2]
    assert (report.failed, report.completed) == (1, 2)


def test_a_task_that_was_cancelled_before_its_first_turn_is_no_hand_either():
    """A74."""
    clock = FakeClock()
    handled = []

    async def handle(work):
        handled.append(work.payload)

    async def main():
        worker = AsyncWorker(handle, capacity=5, overflow=Overflow.REJECT, clock=clock)
        await worker.submit(0, clock.deadline(100))
        [task] = worker._tasks
        task.cancel()
        await asyncio.wait({task})
        assert handled == []
        return await worker.close(clock.deadline(100))

    assert clock.run(main()).completed == 1
    assert handled == [0]


def test_a_task_that_has_just_ended_is_no_hand_any_more():
    """A74: what is submitted in the same turn finds one."""
    clock = FakeClock()
    handled = []

    async def handle(work):
        handled.append(work.payload)

    async def main():
        worker = AsyncWorker(handle, capacity=5, overflow=Overflow.REJECT, clock=clock)
        for n in range(5):
            await worker.submit(n, clock.deadline(100))
            # One turn for the work, none for what asyncio does afterwards.
            await asyncio.sleep(0)
        assert handled == [0, 1, 2, 3, 4]
        return await worker.close(clock.deadline(100))

    assert clock.run(main()).completed == 5


def test_a_cancelled_producer_takes_his_work_back_and_the_next_is_let_in():
    """A74, A71."""
    clock = FakeClock()
    handled = []

    async def handle(work):
        handled.append(work.payload)
        await asyncio.sleep(1)  # fake time

    async def main():
        worker = AsyncWorker(handle, capacity=1, overflow=Overflow.WAIT, clock=clock)
        await worker.submit(0, clock.deadline(100))
        await asyncio.sleep(0)
        await worker.submit(1, clock.deadline(100))
        tasks = [asyncio.ensure_future(worker.submit(n, clock.deadline(100))) for n in (2, 3, 4)]
        await asyncio.sleep(0.5)  # fake time
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        await asyncio.sleep(0.5)  # fake time
        # Granted and cancelled in the same turn: it is taken back, or it is done; never half.
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return await worker.close(clock.deadline(100))

    report = clock.run(main())
    assert sums(report)
    assert handled in ([0, 1, 4], [0, 1, 3, 4])
    assert report.completed == len(handled)


def test_a_cancel_of_the_close_is_not_swallowed_and_the_next_one_ends_it():
    """M3."""
    clock = FakeClock()
    seen = []

    async def handle(work):
        try:
            await asyncio.sleep(1000)  # fake time
        finally:
            seen.append(clock.now())

    async def main():
        worker = AsyncWorker(handle, capacity=1, overflow=Overflow.WAIT, clock=clock)
        await worker.submit(0, clock.deadline(5000))
        await asyncio.sleep(1)  # fake time
        closing = asyncio.ensure_future(worker.close(clock.deadline(100), reserve=50))
        await asyncio.sleep(60)  # fake time
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        report = await worker.close(clock.deadline(10))
        assert await worker.close(clock.deadline(10)) == report
        return report

    assert clock.run(main()) == WorkerReport(1, 0, 0, 1, 0, 0, 0, 0, 0)
    assert seen == [71.0]


def test_a_storm_of_producers_and_stops_loses_nothing():
    """A71, A74: items out are items in, and each ends once."""
    done = []
    worker = Worker(
        lambda work: done.append(work.payload),
        capacity=4,
        overflow=Overflow.WAIT,
        threads=3,
        dead_letter=lambda work: done.append(work.payload),
    )
    accepted = []
    lock = threading.Lock()

    def produce(number):
        for n in range(150):
            deadline = Deadline.after(0.0005 if n % 7 == 0 else 30)
            try:
                worker.submit((number, n), deadline)
            except DeadlineExceeded:
                continue
            with lock:
                accepted.append((number, n))

    threads = [threading.Thread(target=produce, args=[n]) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    report = worker.close(Deadline.after(30))
    assert sums(report)
    assert report.accepted == len(accepted)
    assert sorted(done) == sorted(accepted)


def test_a_thread_that_can_not_be_started_leaves_no_work_behind(monkeypatch):
    worker = Worker(print, capacity=2, overflow=Overflow.REJECT)

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        worker.submit("a", Deadline.after(5))
    assert worker.report.accepted == 0


def test_a_worker_that_has_nothing_to_do_holds_no_thread():
    gate = Gate("work")
    gate.open()
    worker = Worker(lambda work: gate.enter(), capacity=2, overflow=Overflow.REJECT)
    assert worker._pool.threads == {}
    worker.submit("a", Deadline.after(5))
    assert worker.close(Deadline.after(5)).completed == 1


# What is refused.


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"handle": 1}, TypeError, "handle must be a function"),
        ({"handle": None}, TypeError, "handle must be a function"),
        ({"check": 1}, TypeError, "check must be a function"),
        ({"dead_letter": 1}, TypeError, "dead_letter must be a function"),
        ({"capacity": 0}, ValueError, "capacity"),
        ({"overflow": "reject"}, TypeError, "overflow must be one of Overflow.REJECT"),
        ({"threads": 0}, ValueError, "threads"),
        ({"limit": 0}, ValueError, "limit"),
        ({"duplicate_window": 0}, ValueError, "duplicate_window"),
        ({"failures": True}, TypeError, "failures must be one of"),
        ({"history": -1}, ValueError, "history"),
        ({"clock": 1}, TypeError, "clock"),
    ],
)
def test_wrong_arguments_are_named(wrong, error, text):
    given = {"handle": print, "capacity": 1, "overflow": Overflow.REJECT} | wrong
    with pytest.raises(error, match=text):
        Worker(given.pop("handle"), **given)


def test_wrong_arguments_of_a_submit_are_named(make):
    world = make()
    with pytest.raises(TypeError, match=r"Deadline\.after\(5\)"):
        world.run(world.worker.submit("a", 5))
    with pytest.raises(ClockError, match="use one"):
        world.run(world.worker.submit("a", Deadline.after(5)))
    with pytest.raises(TypeError, match=r"expires must be an Expiry such as Expiry\.after\(60\)"):
        world.submit("a", expires=60)
    with pytest.raises(ValueError, match="wait"):
        world.submit("a", wait=-1)
    with pytest.raises(ValueError, match="reserve"):
        world.run(world.worker.close(world.clock.deadline(1), reserve=-1))


def test_a_thread_with_a_loop_is_refused_where_it_would_wait():
    gate = threading.Event()
    worker = Worker(lambda work: gate.wait(20), capacity=1, overflow=Overflow.WAIT)

    async def main():
        worker.submit(0, Deadline.after(5))
        until(lambda: worker.report.running)
        worker.submit(1, Deadline.after(5))
        with pytest.raises(RuntimeError, match=r"AsyncWorker\.submit"):
            worker.submit(2, Deadline.after(5))
        with pytest.raises(RuntimeError, match=r"AsyncWorker\.close"):
            worker.close(Deadline.after(5))

    try:
        asyncio.run(main())
    finally:
        gate.set()
    assert worker.close(Deadline.after(5)).completed == 2


def test_a_worker_that_is_closed_while_a_payload_is_checked_refuses_it(make):
    world = make(check=lambda payload: world.worker._close())
    with pytest.raises(QueueClosed):
        world.submit("a")
    assert world.worker.report.accepted == 0


def test_a_key_that_was_taken_back_is_forgotten_and_may_come_again():
    """A71."""
    clock = FakeClock()
    box = Mailbox(5, Overflow.REJECT, 10, 5)

    def work():
        return Work("a", clock.deadline(100), "k", None)

    first = work()
    box.admit(first, clock.now_ns(), clock.deadline(100))
    assert box.admit(work(), clock.now_ns(), clock.deadline(100)) is Admission.DUPLICATE
    for _ in range(2):
        box.withdraw(first, clock.now_ns())
        assert box.accepted == len(box.queue) == 0
    clock.advance(5)
    assert box.admit(work(), clock.now_ns(), clock.deadline(100)) is Admission.ACCEPTED
    clock.advance(6)
    assert box.admit(work(), clock.now_ns(), clock.deadline(100)) is Admission.DUPLICATE
    clock.advance(4)
    assert box.admit(work(), clock.now_ns(), clock.deadline(100)) is Admission.ACCEPTED
