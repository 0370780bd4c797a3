"""T1-T6, D9, R3, R10, R14, A6, A8, cases A39, A53, A56-A58: the stop signal and who obeys."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import itertools
import os
import pickle
import signal
import sys
import threading
import weakref

import anywhere
import pytest

import timebounds.bounds.stop
import timebounds.bounds.waking
from timebounds import (
    MONOTONIC,
    Backoff,
    BudgetedReceiver,
    Deadline,
    DeadlineExceeded,
    Effect,
    Expiry,
    LimitExceeded,
    MinRate,
    ReceiveOutcome,
    Retry,
    RetryAllowance,
    RetryOutcome,
    SteadyClock,
    Stop,
    StopRequested,
    StopSignal,
    Unfinished,
    WallClock,
    blocking_allowed,
    retry_report,
    wait_requested,
)
from timebounds.bounds.stop import below, joined
from timebounds.bounds.waking import tell
from timebounds.testing import Data, End, FakeClock, Gate, ScriptedSocket, Silence


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


@pytest.fixture
def hooked(monkeypatch):
    """What went to threading.excepthook."""
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    return seen


@contextlib.contextmanager
def in_thread(fn):
    """Run `fn` in a thread that ends by itself; what it raises fails the test."""
    errors = []

    def run():
        try:
            fn()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(30)
    assert errors == []


# ------------------------------------------------------------------ three facts


def test_requested_observed_and_committed_are_facts_of_their_own_with_their_times():
    """T1: asking observes nothing, only the worker's own look does."""
    clock = FakeClock()
    stop = StopSignal(clock=clock)
    assert (stop.reason, stop.requested_at, stop.observed_at, stop.committed_at) == (None,) * 4
    assert not stop.requested()
    clock.advance(1)
    stop.request("shutdown")
    clock.advance(1)
    assert (stop.reason, stop.requested_at, stop.observed_at) == ("shutdown", 1.0, None)
    assert stop.requested()
    clock.advance(1)
    assert stop.requested()
    assert (stop.requested_at, stop.observed_at, stop.committed_at) == (1.0, 2.0, None)


def test_an_early_look_is_no_observation():
    """T1: a False observes nothing."""
    stop = StopSignal(clock=FakeClock(5))
    assert not stop.requested()
    stop.check()
    assert stop.observed_at is None


def test_a_commit_has_its_time_and_no_reason():
    """T1, T3."""
    clock = FakeClock(3)
    stop = StopSignal(clock=clock)
    stop.commit()
    clock.advance(1)
    stop.commit()
    stop.request("late")
    assert stop.committed_at == 3.0
    assert (stop.reason, stop.requested_at, stop.observed_at) == (None, None, None)


def test_the_first_reason_wins_and_later_requests_are_counted():
    """T2: one-way and idempotent."""
    stop = StopSignal()
    assert stop.later == 0
    assert stop.request("first") is Stop.ACCEPTED
    assert [stop.request("second"), stop.request()] == [Stop.ALREADY] * 2
    assert (stop.reason, stop.later) == ("first", 2)


def test_a_request_without_a_reason_is_one():
    """T2: the reason is an empty text then, and no None."""
    stop = StopSignal()
    stop.request()
    assert stop.reason == ""


def test_a_check_names_the_work_and_the_reason():
    """T1, A53."""
    stop = StopSignal()
    stop.request("shutdown")
    with pytest.raises(StopRequested, match=r"^operation: stopped \(shutdown\)$"):
        stop.check()
    with pytest.raises(StopRequested, match=r"^copy: stopped \(shutdown\)$") as caught:
        stop.check("copy")
    assert not isinstance(caught.value, TimeoutError)
    assert caught.value.report is None


def test_a_finaliser_may_ask():
    """T2."""
    stop = StopSignal()

    class Owner:
        def __del__(self):
            stop.request("collected")

    Owner()
    gc.collect()
    assert stop.reason == "collected"


# ------------------------------------------------------------------ commit


def test_a_commit_after_the_stop_raises_and_the_effect_is_skipped():
    """T3."""
    stop = StopSignal()
    stop.request("shutdown")
    with pytest.raises(StopRequested, match=r"^commit: stopped \(shutdown\)$"):
        stop.commit()
    assert stop.committed_at is None


def test_a_stop_after_the_commit_is_too_late_and_calls_nobody():
    """T3: nobody releases."""
    stop, ran = StopSignal(), []
    before = stop.on_request(lambda: ran.append("before"))
    stop.commit()
    after = stop.on_request(lambda: ran.append("after"))
    assert stop.request() is Stop.TOO_LATE
    assert not stop.requested()
    stop.check()
    assert ran == []
    assert stop.later == 0
    assert before.remove()
    assert after.remove()
    assert not stop._callbacks


def test_a_stop_of_the_parent_is_one_for_the_childs_commit():
    """T3, T6: through any number of generations."""
    top = StopSignal()
    child = top.child().child().child()
    top.request("shutdown")
    with pytest.raises(StopRequested, match="shutdown"):
        child.commit()


def test_a_childs_commit_holds_against_its_parent_and_leaves_it_alone():
    """T3, T6."""
    parent, ran = StopSignal(), []
    child, sibling = parent.child(), parent.child()
    child.on_request(lambda: ran.append("child"))
    sibling.on_request(lambda: ran.append("sibling"))
    child.commit()
    assert parent.request("shutdown") is Stop.ACCEPTED
    assert (parent.requested(), sibling.requested(), child.requested()) == (True, True, False)
    assert child.request() is Stop.TOO_LATE
    assert ran == ["sibling"]
    assert not parent._callbacks


def test_who_stands_below_a_commit_is_not_stopped_from_above_it():
    """T3, T6: a child follows its parent, and the parent has passed the point of no return."""
    top, ran = StopSignal(), []
    middle = top.child()
    bottom = middle.child()
    bottom.on_request(lambda: ran.append("bottom"))
    middle.commit()
    top.request("shutdown")
    assert (top.requested(), middle.requested(), bottom.requested()) == (True, False, False)
    assert ran == []
    assert bottom.reason is None
    bottom.commit()


def test_a_join_ends_a_committed_side_only_through_the_other():
    """T3, D9: requested when either is."""
    top, other = StopSignal(), StopSignal()
    job = top.child()
    both = joined(job, other)
    assert both is not None
    job.commit()
    ran = []
    both.on_request(lambda: ran.append("both"))
    top.request("shutdown")
    assert not both.requested()
    assert ran == []
    other.request("enough")
    assert both.reason == "enough"
    assert ran == ["both"]
    assert [each._callbacks for each in (top, job, other, both)] == [{}] * 4


def test_a_stop_that_reached_the_bottom_holds_in_the_middle():
    """T3: who was released below has been stopped above, whatever comes next."""
    top = StopSignal()
    middle = top.child()
    bottom = middle.child()
    top.request("shutdown")
    assert bottom.requested()
    with pytest.raises(StopRequested):
        middle.commit()


# ------------------------------------------------------------------ callbacks


def test_a_callback_runs_once_in_the_thread_that_asks():
    """T5."""
    stop, ran = StopSignal(), []
    registration = stop.on_request(lambda: ran.append(threading.current_thread()))
    with in_thread(stop.request):
        pass
    stop.request()
    assert len(ran) == 1
    assert ran[0] is not threading.current_thread()
    assert registration.remove(), "it is over"


def test_registering_on_a_requested_signal_runs_at_once():
    """T5, case A57."""
    stop, ran = StopSignal(), []
    stop.request()
    registration = stop.on_request(lambda: ran.append("ran"))
    assert ran == ["ran"]
    stop.request()
    assert ran == ["ran"]
    assert registration.remove()
    assert not stop._callbacks


def test_a_removed_callback_never_runs():
    """T5, case A57: and removing it again says the same."""
    stop, ran = StopSignal(), []
    registration = stop.on_request(lambda: ran.append("ran"))
    assert [registration.remove(), registration.remove()] == [True, True]
    stop.request()
    assert ran == []
    assert registration.remove()


def test_removing_says_whether_a_callback_is_running():
    """T5, case A57: A is gated and running, B is removed meanwhile and never runs."""
    stop, gate, ran = StopSignal(), Gate(), []
    a = stop.on_request(gate.enter)
    b = stop.on_request(lambda: ran.append("b"))
    with in_thread(stop.request):
        gate.wait_arrived()
        assert not a.remove()
        assert not a.remove()
        assert b.remove()
        gate.open()
    assert a.remove(), "it has ended"
    assert ran == []


def test_a_callback_that_removes_itself_is_told_that_it_runs():
    """T5."""
    stop, told = StopSignal(), []
    registration = stop.on_request(lambda: told.append(registration.remove()))
    stop.request()
    assert told == [False]
    assert registration.remove()


def test_a_second_request_does_not_pass_off_a_running_callback_as_over():
    """T5, case A57: two who ask walk over the same callbacks, one of them runs each."""
    stop, first, second = StopSignal(), Gate("first"), Gate("second")
    stop.on_request(first.enter)
    running = stop.on_request(second.enter)
    with in_thread(stop.request) as one:
        first.wait_arrived()
        with in_thread(stop.request):
            second.wait_arrived()
            first.open()
            # It comes to the callback that the second one is running, and ends.
            one.join(30)
            assert not running.remove()
            second.open()
    assert running.remove()
    assert stop.later == 1


def test_registering_does_not_pass_off_a_running_callback_as_over():
    """T5: the one who registers looks afterwards, and finds that somebody runs it already."""
    stop, gate = StopSignal(), Gate()
    registration = stop.on_request(gate.enter)
    with in_thread(stop.request):
        gate.wait_arrived()
        registration._run()
        assert not registration.remove()
        gate.open()
    assert registration.remove()


def test_a_callback_that_raises_goes_to_the_hook_and_the_others_run(hooked):
    """T5, case A57."""
    stop, ran, error = StopSignal(), [], ValueError("broken")

    def broken():
        raise error

    registration = stop.on_request(broken)
    stop.on_request(lambda: ran.append("next"))
    assert stop.request() is Stop.ACCEPTED
    assert ran == ["next"]
    (report,) = hooked
    assert (report.exc_type, report.exc_value) == (ValueError, error)
    assert report.exc_traceback is error.__traceback__
    assert report.thread is threading.current_thread()
    assert registration.remove()


def test_a_hook_that_raises_does_not_stop_the_others_either(monkeypatch):
    """T5."""
    stop, ran = StopSignal(), []

    def broken(*_):
        raise OSError("reentrant call")

    monkeypatch.setattr(threading, "excepthook", broken)
    stop.on_request(broken)
    stop.on_request(lambda: ran.append("next"))
    assert stop.request() is Stop.ACCEPTED
    assert ran == ["next"]


def test_what_is_no_failure_passes_through_and_the_next_request_calls_the_rest():
    """T5: Ctrl-C in a callback."""
    stop, ran = StopSignal(), []

    def interrupted():
        raise KeyboardInterrupt

    registration = stop.on_request(interrupted)
    stop.on_request(lambda: ran.append("next"))
    with pytest.raises(KeyboardInterrupt):
        stop.request()
    assert registration.remove()
    assert stop.requested()
    assert stop.request() is Stop.ALREADY
    assert ran == ["next"]


def test_callbacks_may_ask_register_and_remove():
    """T5: they run outside all locks."""
    stop, ran = StopSignal(), []
    last = None

    def first():
        assert stop.request("again") is Stop.ALREADY
        stop.on_request(lambda: ran.append("inside"))
        assert last is not None
        assert last.remove()

    stop.on_request(first)
    last = stop.on_request(lambda: ran.append("last"))
    stop.request()
    # The request from inside has called the last one, before its removal.
    assert ran == ["last", "inside"]


# ------------------------------------------------------------------ children


def test_children_follow_the_parent_and_not_the_reverse():
    """T6: by looking up, and by callbacks."""
    parent, ran = StopSignal(), []
    quiet, child = parent.child(), parent.child()
    child.on_request(lambda: ran.append("child"))
    assert not child.requested()
    assert child.request("mine") is Stop.ACCEPTED
    assert (ran, parent.requested(), quiet.requested()) == (["child"], False, False)
    parent.request("all")
    assert (child.reason, quiet.reason, quiet.requested()) == ("mine", "all", True)
    assert child.later == 0


def test_a_request_to_a_child_of_a_stopped_parent_is_a_later_one():
    """T2, T6."""
    parent = StopSignal()
    child = parent.child()
    parent.request("all")
    assert child.request("mine") is Stop.ALREADY
    assert (child.reason, child.later, parent.later) == ("all", 1, 0)


def test_a_request_of_the_parent_runs_callbacks_of_every_generation_once():
    """T5, T6."""
    top, ran = StopSignal(), []
    middle = top.child()
    bottom = middle.child()
    for name, each in {"bottom": bottom, "middle": middle, "top": top}.items():
        each.on_request(lambda name=name: ran.append(name))
    top.request()
    middle.request()
    bottom.request()
    assert sorted(ran) == ["bottom", "middle", "top"]
    assert [each._callbacks for each in (top, middle, bottom)] == [{}] * 3


def test_a_child_has_its_parents_clock_and_times():
    """T1, T6."""
    clock = FakeClock(1)
    parent = StopSignal(clock=clock)
    child = parent.child()
    parent.request()
    clock.advance(1)
    assert child.requested()
    assert (child.requested_at, child.observed_at, parent.observed_at) == (1.0, 2.0, None)


def test_a_signal_below_another_clock_notes_when_it_saw_the_stop():
    """T1: instants of two clocks never mix."""
    parent, clock = StopSignal(clock=FakeClock(100)), FakeClock(7)
    signal_ = below(clock, parent)
    parent.request("all")
    assert (signal_.requested_at, signal_.reason) == (7.0, "all")


def test_a_deep_line_of_descent_is_followed():
    """T6: some hundred generations."""
    top = StopSignal()
    bottom = top
    for _ in range(300):
        bottom = bottom.child()
    assert not bottom.requested()
    top.request("all")
    assert bottom.reason == "all"


def test_a_hundred_thousand_finished_children_leave_nothing_behind():
    """T6, case A58: with deadlines of an hour, callbacks, commits and joins."""
    clock = FakeClock(auto_advance=True)
    parent, other = StopSignal(clock=clock), StopSignal(clock=clock)
    kept = Deadline.after(3600, clock=clock, stop=other)
    refs = []
    for n in range(100_000):
        child = parent.child()
        deadline = kept.stopping(child)
        registration = deadline.stop.on_request(int)
        if n % 3 == 0:
            child.commit()
        registration.remove()
        if n % 100 == 0:
            child.on_request(int)
            child.commit()
            child.on_request(int)
            refs += [weakref.ref(child), weakref.ref(deadline.stop)]
    assert not parent._callbacks
    assert not other._callbacks
    del child, deadline, registration
    gc.collect()
    assert [ref for ref in refs if ref() is not None] == []
    assert clock._timeline.until_next() is None


def test_waits_leave_nothing_with_the_parent(clock):
    """T6, case A58: blocking and in tasks."""
    parent = StopSignal(clock=clock)

    async def waits():
        return await wait_requested(parent.child(), clock.deadline(1))

    assert not parent.child().wait(clock.deadline(1))
    assert not asyncio.run(waits())
    assert not parent._callbacks
    assert clock._timeline.until_next() is None


# ------------------------------------------------------------------ waiting


def waits_in_thread(stop, deadline):
    return stop.wait(deadline)


def waits_in_task(stop, deadline):
    async def main():
        return await wait_requested(stop, deadline)

    return asyncio.run(main())


@pytest.fixture(params=[waits_in_thread, waits_in_task])
def wait(request):
    return request.param


def test_a_wait_ends_with_the_request(wait, clock):
    """T4: at its instant, and observes it."""
    stop = StopSignal(clock=clock)
    clock.call_later(1, stop.request)
    assert wait(stop, clock.deadline(60)) is True
    assert (clock.now(), stop.observed_at) == (1.0, 1.0)


def test_a_wait_ends_with_the_deadline(wait, clock):
    """T4."""
    stop = StopSignal(clock=clock)
    assert wait(stop, clock.deadline(2)) is False
    assert clock.now() == 2.0
    assert stop.observed_at is None


def test_a_wait_on_a_requested_signal_is_over_at_once(wait, clock):
    """T4: also when the deadline has passed."""
    stop = StopSignal()
    stop.request()
    assert wait(stop, clock.deadline(60)) is True
    assert wait(stop, clock.deadline(0)) is True
    assert clock.now() == 0


def test_a_wait_under_an_expired_deadline_is_over_at_once(wait, clock):
    """N4, T4."""
    assert wait(StopSignal(), clock.deadline(0)) is False


def test_a_wait_hears_the_parent(wait, clock):
    """T4, T6."""
    parent = StopSignal(clock=clock)
    clock.call_later(1, parent.request)
    assert wait(parent.child(), clock.deadline(60)) is True
    assert clock.now() == 1.0


def test_a_wait_without_an_end_ends_with_the_request(wait):
    """T4: under a never-deadline, another thread asks."""
    clock, stop = FakeClock(), StopSignal()

    def ask():
        clock.wait_until_waiting(1)
        stop.request()

    with in_thread(ask):
        assert wait(stop, Deadline.never(clock=clock)) is True


def test_a_wait_is_ended_by_the_deadlines_own_signal_with_an_error(wait, clock):
    """T4, D9: for that is another answer."""
    own = StopSignal(clock=clock)
    clock.call_later(1, lambda: own.request("shutdown"))
    with pytest.raises(StopRequested, match=r"^wait: stopped \(shutdown\) 1 s into .* of 60 s$"):
        wait(StopSignal(), Deadline.after(60, clock=clock, stop=own))
    assert clock.now() == 1.0


def test_a_wait_for_the_deadlines_own_signal_answers(wait, clock):
    """T4, D9."""
    stop = StopSignal()
    clock.call_later(1, stop.request)
    assert wait(stop, Deadline.after(60, clock=clock, stop=stop)) is True


def test_a_committed_signal_is_waited_for_to_the_end(wait, clock):
    """T3, T4."""
    stop = StopSignal()
    stop.commit()
    clock.call_later(1, stop.request)
    assert wait(stop, clock.deadline(2)) is False
    assert clock.now() == 2.0


def test_many_wait_for_one_signal_and_all_hear_it():
    """T4: in threads."""
    clock, stop, answers = FakeClock(), StopSignal(), []
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(
                in_thread(lambda: answers.append(stop.wait(clock.deadline(60)))),
            )
        clock.wait_until_waiting(5)
        stop.request()
    assert answers == [True] * 5
    assert not stop._callbacks


def test_many_tasks_wait_for_one_signal_and_all_hear_it(clock):
    """T4."""
    clock, stop = FakeClock(), StopSignal()

    async def main():
        tasks = [
            asyncio.create_task(wait_requested(stop, Deadline.never(clock=clock))) for _ in range(5)
        ]
        await asyncio.sleep(0)
        stop.request()
        return await asyncio.gather(*tasks)

    assert asyncio.run(main()) == [True] * 5
    assert not stop._callbacks


def test_a_cancel_ends_a_tasks_wait_and_leaves_nothing():
    """T4: and a request comes to nobody afterwards."""
    clock, stop = FakeClock(), StopSignal()

    async def main():
        task = asyncio.create_task(wait_requested(stop, Deadline.never(clock=clock)))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert not stop._callbacks
    stop.request()


def test_two_requests_before_the_loop_turns_wake_once():
    """T4: one by the signal, one by the deadline's own."""
    clock, stop, own = FakeClock(), StopSignal(), StopSignal()

    async def main():
        deadline = Deadline.after(60, clock=clock, stop=own)
        task = asyncio.create_task(wait_requested(stop, deadline))
        await asyncio.sleep(0)
        own.request()
        stop.request()
        return await task

    assert asyncio.run(main()) is True


def test_a_request_after_the_loop_has_closed_is_no_error():
    """T4, case A52."""
    stop = StopSignal()
    loop = asyncio.new_event_loop()
    registration = stop.on_request(lambda: tell(loop, int))
    loop.close()
    assert stop.request() is Stop.ACCEPTED
    assert registration.remove()
    assert not tell(loop, int)


def test_another_error_of_the_loop_is_not_hidden():
    """T4: only that it has closed is no error."""

    class Broken:
        def call_soon_threadsafe(self, fn):
            raise RuntimeError("broken")

        def is_closed(self):
            return False

    with pytest.raises(RuntimeError, match="broken"):
        tell(Broken(), int)


def test_a_blocking_wait_on_a_loops_thread_is_refused():
    """R11."""
    stop = StopSignal()
    stop.request()

    async def main():
        with pytest.raises(RuntimeError, match=r"^StopSignal.wait blocks"):
            stop.wait(Deadline.after(1))
        with blocking_allowed():
            return stop.wait(Deadline.after(1))

    assert asyncio.run(main()) is True


def test_a_wait_that_gets_no_descriptor_says_so_and_leaves_nothing(monkeypatch):
    """T4: nothing is held, nothing is printed by a finaliser."""

    def none_left():
        raise OSError(24, "Too many open files")

    stop, unraisable = StopSignal(), []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", none_left)
        with pytest.raises(OSError, match="Too many"):
            stop.wait(Deadline.after(1))
    gc.collect()
    assert unraisable == []
    assert not stop._callbacks
    stop.request()
    assert stop.wait(Deadline.after(1))


# ------------------------------------------------------------------ re-entrance


CODES = anywhere.codes(timebounds.bounds.stop, timebounds.bounds.waking)


def asking_at(n, stop, fn):
    """Run `fn`; call `stop.request()` before the n-th bytecode of the signal's code; count them."""
    count = 0
    asking = False

    def before(*_):
        nonlocal count, asking
        if asking:
            return
        count += 1
        if count == n:
            asking = True
            stop.request("inside")
            asking = False

    with _called_before_each_bytecode(before):
        try:
            return fn(), count
        except StopRequested:
            return StopRequested, count


@contextlib.contextmanager
def _called_before_each_bytecode(before):
    if sys.version_info < (3, 12):

        def trace(frame, event, arg):
            if frame.f_code not in CODES:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                before()
            return trace

        tracing = sys.gettrace()
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(tracing)
        return
    monitoring = sys.monitoring
    monitoring.use_tool_id(3, "asking")
    monitoring.register_callback(3, monitoring.events.INSTRUCTION, before)
    for code in CODES:
        monitoring.set_local_events(3, code, monitoring.events.INSTRUCTION)
    try:
        yield
    finally:
        for code in CODES:
            monitoring.set_local_events(3, code, 0)
        monitoring.register_callback(3, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(3)


def everywhere(scenario):
    """Run a scenario with a request before each bytecode in turn."""
    bytecodes = scenario(-1)
    assert bytecodes > 5
    for n in range(1, bytecodes + 1):
        scenario(n)


FAMILY = {"itself": lambda: (stop := StopSignal(), stop)}
FAMILY["its parent"] = lambda: ((stop := StopSignal()), stop.child())
FAMILY["one that it joins"] = lambda: ((stop := StopSignal()), below(MONOTONIC, StopSignal(), stop))


@pytest.fixture(params=FAMILY)
def family(request):
    """Make the signal that a handler asks and the one that is busy, which may be the same."""
    return FAMILY[request.param]


@pytest.mark.parametrize(
    "look",
    [
        lambda stop: stop.requested(),
        lambda stop: stop.check(),
        lambda stop: stop.reason,
        lambda stop: (stop.requested_at, stop.observed_at, stop.committed_at),
        repr,
        lambda stop: stop.child().requested(),
        lambda stop: stop.request("outside"),
    ],
    ids=["requested", "check", "reason", "times", "repr", "child", "request"],
)
def test_a_handler_may_ask_while_a_look_is_under_way(look, family):
    """T2, case A56: at each bytecode, without a deadlock."""

    def scenario(n):
        asked, busy = family()
        _, count = asking_at(n, asked, lambda: look(busy))
        assert asked.request() is Stop.ALREADY or n == -1 or asked is not busy
        assert asked.requested()
        assert busy.requested()
        return count

    everywhere(scenario)


def test_a_handler_may_ask_while_a_commit_is_under_way(family):
    """T2, T3, case A56: exactly one wins, at each bytecode."""

    def scenario(n):
        asked, busy = family()
        ran = []
        registration = busy.on_request(lambda: ran.append("ran"))
        outcome, count = asking_at(n, asked, busy.commit)
        stopped = outcome is StopRequested
        assert busy.requested() == stopped
        assert (busy.committed_at is None) == stopped
        assert ran == ["ran"] * stopped
        assert registration.remove()
        assert not busy._callbacks
        return count

    everywhere(scenario)


def test_a_handler_may_ask_while_a_callback_is_registered(family):
    """T2, T5, case A56: it runs once, at each bytecode."""

    def scenario(n):
        asked, busy = family()
        ran = []
        _, count = asking_at(n, asked, lambda: busy.on_request(lambda: ran.append("ran")))
        asked.request()
        assert ran == ["ran"]
        assert not busy._callbacks
        assert not asked._callbacks
        return count

    everywhere(scenario)


def test_a_handler_may_ask_while_a_callback_is_removed(family):
    """T2, T5, case A56: in both cases it is not running afterwards."""

    def scenario(n):
        asked, busy = family()
        ran = []
        registration = busy.on_request(lambda: ran.append("ran"))
        removed, count = asking_at(n, asked, registration.remove)
        assert removed
        before = list(ran)
        asked.request()
        assert ran == before
        assert not busy._callbacks
        assert not asked._callbacks
        return count

    everywhere(scenario)


def test_a_handler_may_ask_while_a_thread_waits(family):
    """T2, T4, case A56: before the wait, inside, and after it."""

    def scenario(n):
        asked, busy = family()
        clock = FakeClock(auto_advance=True)
        answer, count = asking_at(n, asked, lambda: busy.wait(clock.deadline(1)))
        assert answer or n == -1 or clock.now() == 1.0
        assert not busy._callbacks
        return count

    everywhere(scenario)


def test_an_interrupt_at_any_bytecode_of_a_request_leaves_no_registration_running():
    """T5: a removal that were answered "running" for ever would never free what it uses."""

    def scenario(n):
        stop, ran = StopSignal(), []
        registration = stop.on_request(lambda: ran.append("ran"))
        _, count = anywhere.run(stop.request, CODES, n)
        assert registration.remove()
        assert not stop._callbacks
        stop.request()
        assert len(ran) <= 1
        return count

    everywhere(scenario)


# ------------------------------------------------------------------ the system's signals


@pytest.fixture
def delivered():
    """A handler of before, for SIGUSR1 and SIGUSR2."""
    seen = []
    numbers = (signal.SIGUSR1, signal.SIGUSR2)
    before = {n: signal.signal(n, lambda *got: seen.append(got[0])) for n in numbers}
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_delivery_asks_and_the_second_does_what_was_before(delivered):
    """T2: an impatient operator is obeyed."""
    with StopSignal.on_signals(signal.SIGUSR1, signal.SIGUSR2) as stop:
        assert not stop.requested()
        signal.raise_signal(signal.SIGUSR1)
        assert stop.requested()
        assert stop.reason == "SIGUSR1"
        assert delivered == []
        signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR1)
    assert delivered == [signal.SIGUSR2, signal.SIGUSR1]
    assert stop.later == 2


def test_a_delivery_after_a_request_by_the_program_is_the_first_all_the_same(delivered):
    """T2: it was not the operator who asked before."""
    with StopSignal.on_signals(signal.SIGUSR1) as stop:
        stop.request("a worker failed")
        signal.raise_signal(signal.SIGUSR1)
        assert delivered == []
        signal.raise_signal(signal.SIGUSR1)
        assert delivered == [signal.SIGUSR1]
    assert stop.reason == "a worker failed"


def test_the_handlers_of_before_are_restored(delivered):
    """T2: when the block is left by an error, and for a signal that was named twice."""
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyError), StopSignal.on_signals(signal.SIGUSR1, signal.SIGUSR1):
        assert signal.getsignal(signal.SIGUSR1) is not before
        raise KeyError
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_signal_that_can_not_be_handled_leaves_the_others_as_they_were(delivered):
    """T2."""
    before = signal.getsignal(signal.SIGUSR1)
    with (
        pytest.raises(OSError, match="Invalid argument"),
        StopSignal.on_signals(signal.SIGUSR1, signal.SIGKILL),
    ):
        pytest.fail("entered")
    assert signal.getsignal(signal.SIGUSR1) is before


def test_the_second_ctrl_c_is_a_keyboard_interrupt():
    """T2."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), StopSignal.on_signals(signal.SIGINT) as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.reason == "SIGINT"
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_was_ignored_is_ignored_the_second_time():
    """T2."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with StopSignal.on_signals(signal.SIGUSR1) as stop:
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
            assert stop.later == 1
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("default", [signal.SIG_DFL, None])
def test_the_second_time_the_system_does_what_it_does_by_default(default, monkeypatch):
    """T2: also after a handler that was not installed from Python."""
    # SIGURG is ignored by default, so that this process survives.
    before = signal.signal(signal.SIGURG, signal.SIG_DFL)
    try:
        if default is None:
            monkeypatch.setattr(signal, "getsignal", lambda _: None)
        with StopSignal.on_signals(signal.SIGURG) as stop:
            signal.raise_signal(signal.SIGURG)
            signal.raise_signal(signal.SIGURG)
            monkeypatch.undo()
            assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
            assert stop.later == 1
        assert signal.getsignal(signal.SIGURG) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGURG, before)


def test_a_handler_that_was_not_installed_from_python_gives_way_to_the_default(monkeypatch):
    """T2: only C could bring it back."""
    before = signal.signal(signal.SIGURG, signal.SIG_DFL)
    real = signal.getsignal
    try:
        stopping = StopSignal.on_signals(signal.SIGURG)
        with monkeypatch.context() as unknown:
            unknown.setattr(signal, "getsignal", lambda _: None)
            stopping.__enter__()
        assert real(signal.SIGURG) == stopping._handle
        stopping.__exit__()
        assert real(signal.SIGURG) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGURG, before)


def test_who_came_after_us_keeps_that_signal_and_the_others_are_restored(delivered):
    """T2, T6."""
    mine = signal.getsignal(signal.SIGUSR2)
    with StopSignal.on_signals(signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR2) is mine


def test_a_handler_of_before_is_told_the_frame():
    """T2: as it would have been without us."""
    frames = []
    before = signal.signal(signal.SIGUSR1, lambda _, frame: frames.append(frame))
    try:
        with StopSignal.on_signals(signal.SIGUSR1):
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert frames == [sys._getframe()]


def test_a_signal_without_a_name_of_its_own_asks_too():
    """T2: most of the real-time signals."""
    number = signal.SIGRTMIN + 1
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with StopSignal.on_signals(number) as stop:
            signal.raise_signal(number)
            assert stop.reason == f"signal {number}"
    finally:
        signal.signal(number, before)


def test_signals_are_for_the_main_thread_and_not_empty():
    """T2: the standard library's own error says so; nothing was installed."""
    with pytest.raises(ValueError, match=r"signals must not be empty: .*on_signals\(signal.SIG"):
        StopSignal.on_signals()

    def elsewhere():
        with pytest.raises(ValueError, match="main thread"):
            StopSignal.on_signals(signal.SIGUSR1).__enter__()

    before = signal.getsignal(signal.SIGUSR1)
    with in_thread(elsewhere):
        pass
    assert signal.getsignal(signal.SIGUSR1) is before


# ------------------------------------------------------------------ deadlines that carry it


def test_a_stop_comes_before_an_expiry_and_says_what_elapsed_and_what_the_limit_was(clock):
    """D9, case A53: stopped, not timed out."""
    stop = StopSignal(clock=clock)
    deadline = Deadline.after(600, clock=clock, stop=stop)
    deadline.check()
    clock.advance(0.5)
    stop.request("caller left")
    with pytest.raises(StopRequested) as caught:
        deadline.check("fetch")
    assert str(caught.value) == "fetch: stopped (caller left) 0.5 s into the deadline of 600 s"
    clock.advance(600)
    with pytest.raises(StopRequested, match=r"600\.5 s into the deadline of 600 s"):
        deadline.check("fetch")


def test_the_nearer_bound_of_a_parent_is_the_one_that_is_named(clock):
    """D6, case A53: own 600, parent 0.05."""
    parent = Deadline.after(0.05, clock=clock, stop=StopSignal())
    own = parent.within(600)
    clock.advance(1)
    with pytest.raises(DeadlineExceeded, match=r"^fetch: the deadline of 0\.05 s was missed"):
        own.check("fetch")


def test_without_a_duration_the_message_says_stopped_alone(clock):
    """D9: there is no limit to name."""
    stop = StopSignal()
    stop.request()
    for deadline in (Deadline.never(stop=stop), Deadline.at(5, clock=clock, stop=stop)):
        with pytest.raises(StopRequested, match=r"^operation: stopped$"):
            deadline.check()


def test_expired_and_remaining_speak_of_time_only(clock):
    """D9."""
    stop = StopSignal()
    stop.request()
    deadline = Deadline.after(2, clock=clock, stop=stop)
    assert (deadline.expired(), deadline.remaining()) == (False, 2.0)
    with pytest.raises(StopRequested, match=r"^timeout: stopped"):
        deadline.timeout(1)


def test_what_shortens_a_deadline_keeps_its_stop(clock):
    """D9: in each way of making one."""
    stop = StopSignal()
    for deadline in (
        Deadline.after(9, clock=clock, stop=stop),
        Deadline.at(9, clock=clock, stop=stop),
        Deadline.never(clock=clock, stop=stop),
    ):
        assert deadline.stop is stop
        shorter = (deadline.within(1), deadline.within(99), deadline.reserving(1))
        assert [each.stop for each in shorter] == [stop] * 3
    assert Deadline.after(9, clock=clock).stop is None
    assert Deadline.after(9).stopping(stop).stop is stop


def test_the_earliest_of_some_deadlines_is_ended_by_each_of_their_stops(clock):
    """D9: joined, at the earliest instant."""
    for asked in range(3):
        stops = [StopSignal() for _ in range(3)]
        first, *others = (
            Deadline.after(3 - n, clock=clock, stop=stop) for n, stop in enumerate(stops)
        )
        earliest = first.earliest(*others)
        assert earliest.remaining() == 1.0
        assert earliest.stop is not None
        assert not earliest.stop.requested()
        stops[asked].request(f"stop {asked}")
        assert earliest.stop.reason == f"stop {asked}"
        earliest.stop.request()
        assert [each.requested() for each in stops].count(True) == 1


def test_stops_are_joined_without_a_new_one_where_none_is_needed(clock):
    """D9: none, one, the same twice, a parent and its child in either order."""
    parent = StopSignal()
    child = parent.child()
    plain = Deadline.after(2, clock=clock)
    assert plain.earliest(plain).stop is None
    assert plain.earliest(plain.stopping(parent)).stop is parent
    assert plain.stopping(parent).earliest(plain).stop is parent
    assert plain.stopping(parent).stopping(parent).stop is parent
    assert plain.stopping(parent).stopping(child).stop is child
    assert plain.stopping(child).stopping(parent).stop is child
    same = plain.stopping(parent)
    assert same.stopping(parent) is same


def test_the_order_goes_by_the_instant_and_equality_by_the_stop_too(clock):
    """D9."""
    stop = StopSignal()
    one, other = Deadline.at(2, clock=clock), Deadline.at(2, clock=clock, stop=stop)
    assert one != other
    assert one <= other <= one
    assert not one < other
    same = Deadline.at(2, clock=clock, stop=stop)
    assert other == same
    assert hash(other) == hash(same)
    assert len({one, other, same}) == 2


# ------------------------------------------------------------------ receiving


def receiver_of(clock, *script, **options):
    sock = ScriptedSocket(clock, *script, timeout=7.0)
    return BudgetedReceiver(sock, **options), sock


def stopped(verb, *arguments):
    with pytest.raises(StopRequested) as caught:
        verb(*arguments)
    report = caught.value.report
    assert report.outcome is ReceiveOutcome.STOPPED
    return caught.value, report


def test_a_stop_between_two_reads_ends_the_receive_with_its_bytes_kept(clock):
    """R14: on an object that only looks like a socket."""
    stop = StopSignal(clock=clock)
    receiver, sock = receiver_of(clock, Data(b"AB", 1), Data(b"CD", 1))
    clock.call_later(0.5, lambda: stop.request("shutdown"))
    deadline = Deadline.after(60, clock=clock, stop=stop)
    error, report = stopped(receiver.receive_exactly, 4, deadline)
    assert (report.data, report.received, report.satisfied, report.reads) == (b"AB", 2, False, 1)
    assert (report.elapsed, clock.now(), receiver.pending) == (1.0, 1.0, b"AB")
    assert "stopped (shutdown) 1 s into the deadline of 60 s" in str(error)
    assert not isinstance(error, TimeoutError)
    assert sock.gettimeout() == 7.0
    assert receiver.report is report


def test_after_a_stop_the_position_is_unknown_until_resume_or_discard(clock):
    """R10: as after an expiry."""
    stop = StopSignal()
    script = [Data(b"AB", 1), Data(b"CDEF", 1)]
    for way in ("resume", "discard"):
        receiver, _ = receiver_of(clock, *script)
        stop = StopSignal()
        clock.call_later(0.5, stop.request)
        deadline = Deadline.after(60, clock=clock, stop=stop)
        stopped(receiver.receive_exactly, 4, deadline)
        with pytest.raises(Unfinished, match="resume"):
            receiver.receive_some(1, clock.deadline(60))
        # Under the same stop it goes no further, and loses nothing.
        _, report = stopped(receiver.resume, deadline)
        assert (report.data, report.reads) == (b"AB", 0)
        if way == "resume":
            assert receiver.resume(clock.deadline(60)) == b"ABCD"
        else:
            assert receiver.discard() == b"AB"
            assert receiver.receive_exactly(2, clock.deadline(60)) == b"CD"


def test_a_stop_before_the_first_read_starts_none(clock):
    """R3, R14: and `receive_some` has no position to lose."""
    stop = StopSignal()
    stop.request()
    deadline = Deadline.after(60, clock=clock, stop=stop)
    receiver, sock = receiver_of(clock, Data(b"AB"))
    _, report = stopped(receiver.receive_some, 9, deadline)
    assert (report.reads, sock.granted) == (0, [])
    assert receiver.receive_some(9, clock.deadline(1)) == b"AB"
    assert receiver.receive_exactly(0, deadline) == b""


@pytest.mark.parametrize("verb", ["exactly", "into", "until", "some"])
def test_a_stop_is_none_for_what_is_satisfied(verb, clock):
    """R3: the value is handed out."""
    stop = StopSignal()
    receiver, _ = receiver_of(clock, Data(b"ABC\n", 1))
    clock.call_later(0.5, stop.request)
    deadline = Deadline.after(60, clock=clock, stop=stop)
    buffer = bytearray(4)
    if verb == "into":
        receiver.receive_into(buffer, deadline)
    elif verb == "exactly":
        buffer = receiver.receive_exactly(4, deadline)
    elif verb == "until":
        buffer = receiver.receive_until(b"\n", 9, deadline)
    else:
        buffer = receiver.receive_some(9, deadline)
    assert buffer == b"ABC\n"
    assert receiver.report.outcome is ReceiveOutcome.COMPLETE


def test_pending_bytes_that_satisfy_come_before_a_stop(clock):
    """R3: and those that do not, stay."""
    stop = StopSignal()
    receiver, _ = receiver_of(clock, Data(b"a\nb\nc"))
    assert receiver.receive_until(b"\n", 9, clock.deadline(1)) == b"a\n"
    stop.request()
    deadline = Deadline.after(1, clock=clock, stop=stop)
    assert receiver.receive_until(b"\n", 9, deadline) == b"b\n"
    _, report = stopped(receiver.receive_until, b"\n", 9, deadline)
    assert (report.data, receiver.pending) == (b"c", b"c")


def test_a_late_and_satisfied_receive_is_late_and_not_stopped(clock):
    """R3: stopped only when not satisfied."""
    stop = StopSignal()
    receiver, _ = receiver_of(clock, Data(b"AB", 1))
    clock.call_later(0.5, stop.request)
    with pytest.raises(DeadlineExceeded) as caught:
        receiver.receive_exactly(2, Deadline.after(1, clock=clock, stop=stop))
    assert caught.value.report.satisfied


@pytest.mark.parametrize(
    ("script", "eof"),
    [
        ([Silence()], False),  # deadline_expired
        ([Data(b"A", 2)], False),  # deadline_expired, with bytes
        ([End(1)], True),  # eof
        ([End(2)], True),  # both
    ],
)
def test_a_stop_comes_before_every_other_end_of_an_unsatisfied_receive(script, eof, clock):
    """R3."""
    stop = StopSignal()
    receiver, _ = receiver_of(clock, *script)
    clock.call_later(0.5, stop.request)
    _, report = stopped(receiver.receive_exactly, 4, Deadline.after(2, clock=clock, stop=stop))
    assert report.eof == eof


def test_a_stop_comes_before_the_limit_which_stays_exceeded(clock):
    """R3, R10."""
    stop = StopSignal()
    receiver, _ = receiver_of(clock, Data(b"ABCDEF", 1))
    clock.call_later(0.5, stop.request)
    deadline = Deadline.after(2, clock=clock, stop=stop)
    stopped(receiver.receive_until, b"\n", 4, deadline)
    with pytest.raises(LimitExceeded):
        receiver.resume(clock.deadline(1))
    assert receiver.discard()[:4] == b"ABCD"


@pytest.mark.parametrize(
    "options",
    [{"idle_timeout": 1}, {"min_rate": MinRate(1, grace=1)}, {"idle_timeout": 1, "overrun": None}],
)
def test_a_stop_comes_before_idle_timeout_and_too_slow(options, clock):
    """R3: on an empty wait."""
    options = {name: value for name, value in options.items() if value is not None}
    stop = StopSignal()
    receiver, _ = receiver_of(clock, Silence(), **options)
    clock.call_later(0.5, stop.request)
    stopped(receiver.receive_exactly, 4, Deadline.after(9, clock=clock, stop=stop))


def test_a_stop_wakes_the_backoff_of_a_receive(clock):
    """R12, R14, case A39: at its instant; the retry does not count."""
    stop = StopSignal(clock=clock)
    allowance = RetryAllowance(3, Backoff.fixed(60))
    receiver, _ = receiver_of(clock, Silence(), Data(b"AB"), idle_timeout=1, allowance=allowance)
    clock.call_later(5, stop.request)
    _, report = stopped(receiver.receive_exactly, 2, Deadline.after(600, clock=clock, stop=stop))
    assert (clock.now(), report.slept, report.idle_retries, report.reads) == (5.0, 4.0, 0, 1)
    assert receiver.resume(clock.deadline(1)) == b"AB"


def test_a_stop_that_never_comes_changes_no_report(clock):
    """R1: the same receive with and without one."""
    reports = []
    for stop in (None, StopSignal()):
        clock = FakeClock(auto_advance=True)
        allowance = RetryAllowance(1, Backoff.fixed(0.25))
        script = [Data(b"AB", 0.25), Silence(), Data(b"CD", 0.25)]
        receiver, _ = receiver_of(clock, *script, idle_timeout=1, allowance=allowance)
        receiver.receive_exactly(4, Deadline.after(2, clock=clock, stop=stop))
        reports.append(receiver.report)
    assert reports[0] == reports[1]
    assert reports[0].slept == 0.25


# ------------------------------------------------------------------ retrying


FORMS = ["call", "attempts", "decorator", "acall", "aattempts", "adecorator"]


class Broken(Exception):
    """What the target raises."""


def retrying(form, retry, body, deadline):
    """Run one retried call of `body()` in one form."""
    if form == "call":
        return retry.call(lambda _: body(), deadline=deadline)
    if form == "attempts":
        for attempt in retry.attempts(deadline):
            with attempt:
                return body()
    if form == "decorator":

        @retry
        def decorated(deadline):
            return body()

        return decorated(deadline)

    async def once(_):
        return body()

    @retry
    async def adecorated(deadline):
        return body()

    async def main():
        if form == "acall":
            return await retry.acall(once, deadline=deadline)
        if form == "adecorator":
            return await adecorated(deadline)
        async for attempt in retry.attempts(deadline):
            with attempt:
                return body()
        return None

    return asyncio.run(main())


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture(params=[{}, {"per_attempt": 500}], ids=["plain", "planned"])
def policy(request):
    """Make a policy whose first attempt is made without a plan, and one with it."""

    def make(**options):
        options = {"allowance": RetryAllowance(9, Backoff.fixed(60)), **request.param, **options}
        return Retry(on=Exception, effect=Effect.IDEMPOTENT, **options)

    return make


def gives_up(form, retry, body, deadline, kind=Broken):
    with pytest.raises(kind) as caught:
        retrying(form, retry, body, deadline)
    return caught.value, retry_report(caught.value)


def test_a_stop_wakes_the_backoff_and_the_callers_own_error_comes_out(form, policy, clock):
    """A6, A8, case A39: backoff 60, asked at 1, no further attempt."""
    stop, error, began = StopSignal(clock=clock), Broken("broken"), []

    def body():
        began.append(clock.now())
        raise error

    clock.call_later(1, lambda: stop.request("shutdown"))
    deadline = Deadline.after(600, clock=clock, stop=stop)
    raised, report = gives_up(form, policy(), body, deadline)
    assert raised is error
    assert (began, clock.now()) == ([0.0], 1.0)
    assert (report.outcome, len(report.attempts)) == (RetryOutcome.STOPPED, 1)
    assert (report.elapsed, report.slept) == (1.0, 1.0)
    assert raised.__notes__[-1] == "gave up after 1 attempt in 1 s: a stop was requested"
    assert not stop._callbacks


def test_a_stop_during_an_attempt_that_fails_is_the_reason(form, policy, clock):
    """A8: its own error comes out, with its history; what is not retried is not asked."""
    stop, error = StopSignal(), Broken("broken")

    def body():
        clock.advance(2)
        stop.request("shutdown")
        raise error

    retry = policy(on_give_up=lambda event: told.append(event.report.outcome))
    told = []
    raised, report = gives_up(form, retry, body, Deadline.after(600, clock=clock, stop=stop))
    assert raised is error
    assert told == [RetryOutcome.STOPPED]
    assert [(each.number, each.lasted, each.error) for each in report.attempts] == [
        (1, 2.0, Broken)
    ]
    assert raised.__notes__[-1] == "gave up after 1 attempt in 2 s: a stop was requested"


def test_a_stop_during_an_attempt_that_succeeds_takes_nothing_away(form, policy, clock):
    """A6: the value comes out."""
    stop = StopSignal()

    def body():
        stop.request()
        return "value"

    deadline = Deadline.after(600, clock=clock, stop=stop)
    assert retrying(form, policy(), body, deadline) == "value"


def test_the_report_of_a_loop_that_succeeded_is_not_changed_by_a_later_stop(policy, clock):
    """A8, A9: it is made when it is asked for."""
    stop = StopSignal()
    attempts = policy().attempts(Deadline.after(600, clock=clock, stop=stop))
    for attempt in attempts:
        with attempt:
            break
    stop.request()
    assert attempts.report.outcome is RetryOutcome.SUCCEEDED
    assert len(attempts.report.attempts) == 1


def test_a_stop_before_the_first_attempt_starts_none(form, policy, clock):
    """A3, A6."""
    stop = StopSignal()
    clock.advance(1)
    deadline = Deadline.after(600, clock=clock, stop=stop)
    clock.advance(1)
    stop.request("shutdown")
    raised, report = gives_up(form, policy(), pytest.fail, deadline, StopRequested)
    assert str(raised) == (
        "retry: stopped (shutdown) 1 s into the deadline of 600 s; no attempt was started"
    )
    assert report is None


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_a_stop_between_making_the_loop_and_its_first_turn_starts_no_attempt(colour, policy, clock):
    """A3, A6."""
    stop = StopSignal()
    attempts = policy().attempts(Deadline.after(600, clock=clock, stop=stop))
    stop.request()

    async def first():
        return await anext(attempts)

    with pytest.raises(StopRequested, match="no attempt was started"):
        next(attempts) if colour == "blocking" else asyncio.run(first())
    end = StopIteration if colour == "blocking" else StopAsyncIteration
    with pytest.raises((end, RuntimeError)):
        next(attempts) if colour == "blocking" else asyncio.run(first())


def test_a_stop_from_a_hook_before_an_attempt_starts_none(form, clock):
    """A3, A6: the hook had announced it."""
    stop = StopSignal()
    retry = Retry(
        on=Broken,
        effect=Effect.IDEMPOTENT,
        allowance=RetryAllowance(9),
        on_attempt=lambda _: stop.request("hook"),
    )
    deadline = Deadline.after(600, clock=clock, stop=stop)
    gives_up(form, retry, pytest.fail, deadline, StopRequested)


def test_an_attempt_that_is_stopped_itself_ends_the_call_with_its_own_error(form, policy, clock):
    """A6, A8: the attempt's deadline carries the stop."""
    stop = StopSignal()
    receiver, _ = receiver_of(clock, Data(b"A", 1), Data(b"B", 1))
    clock.call_later(0.5, stop.request)
    deadline = Deadline.after(600, clock=clock, stop=stop)

    def body():
        with blocking_allowed():
            receiver.receive_exactly(2, deadline.within(5))

    raised, report = gives_up(form, policy(), body, deadline, StopRequested)
    assert raised.report.data == b"A"
    assert report.outcome is RetryOutcome.STOPPED


def test_a_stop_that_never_comes_changes_no_retry(form, policy):
    """A3: the same call with and without one."""
    reports = []
    for stop in (None, StopSignal()):
        clock, script = FakeClock(auto_advance=True), [1, 2]

        def body(clock=clock, script=script):
            clock.advance(script.pop(0))
            raise Broken

        retry = policy(allowance=RetryAllowance(1, Backoff.fixed(10)))
        _, report = gives_up(form, retry, body, Deadline.after(600, clock=clock, stop=stop))
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0].slept == 10.0


# ------------------------------------------------------------------ values


def test_a_signal_stays_in_its_process():
    """T1, D5: pickling is refused; a copy is the same one."""
    stop = StopSignal()
    with pytest.raises(TypeError, match="means nothing in another process: send the request"):
        pickle.dumps(stop)
    with pytest.raises(TypeError, match="process"):
        pickle.dumps(Deadline.after(1, stop=stop))
    assert copy.copy(stop) is stop
    assert copy.deepcopy({"stop": stop})["stop"] is stop


def test_a_repr_says_what_became_of_it():
    """T1: and observes nothing."""
    stop, committed, quiet = StopSignal(), StopSignal(), StopSignal()
    assert repr(stop) == "<StopSignal>"
    stop.request("shutdown")
    quiet.request()
    committed.commit()
    assert repr(stop) == "<StopSignal stopped (shutdown)>"
    assert repr(quiet) == "<StopSignal stopped>"
    assert repr(committed) == "<StopSignal committed>"
    assert stop.observed_at is None


WRONG = {
    "reason": (lambda: StopSignal().request(5), r"^reason must be a str such as .*, not 5$"),
    "fn": (lambda: StopSignal().on_request(5), r"^fn must be a function .*, not 5$"),
    "clock": (lambda: StopSignal(clock=WallClock()), "^clock must be a steady clock"),
    "wait": (lambda: StopSignal().wait(2.0), r"^deadline must be .* write Deadline.after\(2.0\)$"),
    "expiry": (lambda: StopSignal().wait(Expiry.after(1)), "^deadline must be a Deadline"),
    "after": (lambda: Deadline.after(1, stop=2.0), r"^stop must .*: write StopSignal\(\)$"),
    "at": (lambda: Deadline.at(1, stop="x"), r"^stop must .* not str 'x': write StopSignal\(\)$"),
    "never": (lambda: Deadline.never(stop=StopSignal), "^stop must be a StopSignal, not type"),
    "stopping": (lambda: Deadline.after(1).stopping(None), "^stop must .* not NoneType None"),
    "task": (lambda: asyncio.run(wait_requested(5, Deadline.after(1))), "^stop must be a StopSi"),
    "tasks": (lambda: asyncio.run(wait_requested(StopSignal(), 5)), r"write Deadline.after\(5\)$"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_with_the_right_line(name):
    """N1: named, before any clock or thread is touched."""
    wrong, message = WRONG[name]
    with pytest.raises(TypeError, match=message):
        wrong()


def test_a_refused_request_asks_for_nothing():
    """N1."""
    stop = StopSignal()
    with pytest.raises(TypeError):
        stop.request(b"shutdown")
    assert not stop.requested()


def test_a_signal_whose_clock_fails_is_requested_all_the_same():
    """T2: who asks must be heard, with or without the time."""

    class Broken(SteadyClock):
        def now_ns(self):
            return 0.5

    stop = StopSignal(clock=Broken())
    assert stop.request("now") is Stop.ACCEPTED
    assert stop.requested()
    assert (stop.requested_at, stop.observed_at) == (0.0, 0.0)


def test_the_interleavings_of_a_request_and_a_commit_by_generations():
    """T3, T6: in each order, each of them is stopped or has committed, and never both."""
    for order in itertools.permutations(("top", "middle", "bottom", "ask")):
        top = StopSignal()
        middle = top.child()
        line = {"top": top, "middle": middle, "bottom": middle.child()}
        for step in order:
            if step == "ask":
                assert (top.request() is Stop.TOO_LATE) == (top.committed_at is not None)
            else:
                with contextlib.suppress(StopRequested):
                    line[step].commit()
        for each in line.values():
            assert each.requested() != (each.committed_at is not None)
