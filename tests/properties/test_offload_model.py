"""O1-O6, T3 as a model: any order of what the caller, the clock, other threads and the function do.

The loop is driven by hand and the function does one step when it is told to, so that the model
knows after each step what must have happened: in which order, how often, and how the call ends.
"""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections import Counter

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from timebounds import OffloadOutcome, ShieldedOffload, StopRequested, StopSignal
from timebounds.bounds import custody
from timebounds.testing import FakeClock

BUDGET, GRACE = 1, 2
# More turns than any step takes.
TURNS = 8
FORMS = ("run", "run_job", "start", "start_job")
PATIENCE = 20

GENERATE = settings(
    max_examples=600,
    stateful_step_count=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
)


class Failed(Exception):
    """What nobody expected of the function."""


class ReleaseFailed(Exception):
    pass


class CloseFailed(Exception):
    pass


class Puppet:
    """An executor with one thread: it begins when it is told, and so does each step in it."""

    def __init__(self, trace):
        self.trace = trace
        self.work = self.thread = self.job = None
        self.orders, self.answers = queue.SimpleQueue(), queue.SimpleQueue()

    def submit(self, work):
        self.work = work

    def begin(self):
        """Let a thread take the work; say whether the function is inside."""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self.answers.get(timeout=PATIENCE) == "inside"

    def _run(self):
        self.work()
        self.answers.put("over")

    def fn(self, job=None):
        self.job = job
        self.trace.append("entered")
        self.answers.put("inside")
        while True:
            order = self.orders.get(timeout=PATIENCE)
            if order == "value":
                self.trace.append("returned")
                return 5
            if isinstance(order, Exception):
                self.trace.append("returned")
                raise order
            self.answers.put(order())

    def does(self, step):
        """Let the function do a step and give its answer."""
        self.orders.put(step)
        return self.answers.get(timeout=PATIENCE)

    def ends(self, ending):
        self.orders.put(ending)
        assert self.answers.get(timeout=PATIENCE) == "over"
        self.thread.join(PATIENCE)


class AtOnce:
    """The library's pool, for whom a thread is always free and quick."""

    def submit(self, work):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(PATIENCE)


class Offload(RuleBasedStateMachine):
    """`state`, `cause`, `verdict` and the rest are the model; `trace` and `task` are the real."""

    def __init__(self):
        super().__init__()
        self.pool, custody.CARE = custody.CARE, AtOnce()
        self.loop = asyncio.SelectorEventLoop()
        self.stray = []
        self.loop.set_exception_handler(lambda _, context: self.stray.append(context["message"]))
        self.state = "none"

    @initialize(
        form=st.sampled_from(FORMS),
        grace=st.sampled_from([None, GRACE, GRACE]),
        release_fails=st.sampled_from([False, False, True]),
        close_fails=st.sampled_from([False, False, True]),
        begins=st.sampled_from([True, True, False]),
    )
    def dispatch(self, form, grace, release_fails, close_fails, begins):
        self.form, self.grace = form, grace
        self.release_fails, self.close_fails = release_fails, close_fails
        self.clock = FakeClock()
        self.stop = StopSignal(clock=self.clock)
        self.trace = []
        self.puppet = Puppet(self.trace)
        self.cause = self.verdict = self.ending = self.ended = None
        self.released = self.observed = self.given_up = False
        self.cancels = 0
        self.handle = None
        self.task = self.loop.create_task(self.use())
        self.state = "queued"
        self.settle()
        if begins:
            self.thread_begins()

    async def use(self):
        deadline = self.clock.deadline(BUDGET).stopping(self.stop)
        async with ShieldedOffload(
            release=self.release, close=[self.close], grace=self.grace, executor=self.puppet
        ) as scope:
            begin = scope.start_job if self.form.endswith("job") else scope.start
            if self.form.startswith("run"):
                run = scope.run_job if self.form == "run_job" else scope.run
                return await run(self.puppet.fn, deadline=deadline)
            self.handle = begin(self.puppet.fn, deadline=deadline)
            return await self.handle

    def release(self):
        self.trace.append("released")
        if self.release_fails:
            raise ReleaseFailed

    def close(self):
        self.trace.append("closed")
        if self.close_fails:
            raise CloseFailed

    def settle(self):
        """Let the loop turn until it has nothing to do."""
        for _ in range(0 if self.loop.is_closed() else TURNS):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    # -------------------------------------------------------------- the caller, and the bounds

    def end_early(self, cause):
        """What a cancel, the deadline or a stop does to the model."""
        if self.cause is None:
            self.cause = cause
            if self.state == "queued":
                self.state = "withdrawn"
                # The caller's own stop is a fact; the others had nobody to be told.
                self.verdict = "asked" if cause == "stopped" else None
            elif self.verdict is None:
                self.verdict, self.released = "asked", True
        self.settle()
        if self.state == "withdrawn":
            self.over()

    def over(self):
        """The call is over: the model says how."""
        if self.ended is None:
            self.ended = self.expected()

    @precondition(lambda self: self.ended is None and self.state != "none")
    @rule(foreign=st.booleans(), times=st.sampled_from([1, 1, 2, 5]))
    def cancel(self, foreign, times):
        for _ in range(times):
            if foreign:
                thread = threading.Thread(target=self.task.cancel)
                thread.start()
                thread.join(PATIENCE)
            else:
                assert self.task.cancel()
        self.cancels += times
        self.end_early("cancelled")

    @precondition(lambda self: self.ended is None and self.clock.now() < BUDGET)
    @rule()
    def deadline_passes(self):
        self.clock.advance(BUDGET)
        self.end_early("deadline_expired")

    @precondition(lambda self: self.ended is None)
    @rule()
    def stop_is_requested(self):
        self.stop.request("enough")
        if self.verdict == "committed":
            self.settle()  # whoever has committed is not to be stopped
        else:
            self.end_early("stopped")

    @precondition(lambda self: self.ended is None and self.cause and self.state == "inside")
    @rule()
    def grace_is_over(self):
        self.clock.advance(GRACE)
        self.settle()
        if self.grace is not None:
            self.given_up = True
            self.over()

    # -------------------------------------------------------------- the function

    @precondition(lambda self: self.state in ("queued", "withdrawn") and not self.puppet.thread)
    @rule()
    def thread_begins(self):
        inside = self.puppet.begin()
        assert inside == (self.state == "queued")
        if inside:
            self.state = "inside"

    def is_job(self):
        return self.state == "inside" and self.form.endswith("job")

    @precondition(is_job)
    @rule()
    def stop_is_observed(self):
        seen = self.puppet.does(self.puppet.job.deadline.stop.requested)
        assert seen == (self.verdict == "asked")
        self.observed = self.observed or seen

    @precondition(is_job)
    @rule()
    def commits(self):
        def commit():
            try:
                self.puppet.job.commit()
            except StopRequested:
                return False
            return True

        won = self.puppet.does(commit)
        assert won == (self.verdict != "asked"), "exactly one of commit and request wins"
        self.observed = self.observed or not won
        if won:
            self.verdict = "committed"

    @precondition(lambda self: self.state == "inside")
    @rule(ending=st.sampled_from(["value", Failed, OSError]))
    def returns(self, ending):
        self.ending = ending
        self.puppet.ends(ending if ending == "value" else ending())
        self.state = "returned"
        self.settle()
        self.over()

    # -------------------------------------------------------------- the loop

    @precondition(lambda self: self.ended is not None and not self.loop.is_closed())
    @rule()
    def loop_is_closed(self):
        self.settle()
        self.loop.close()

    @rule()
    def nothing_happens(self):
        self.settle()

    # -------------------------------------------------------------- what must be true

    def expected(self):
        """How the call has to end."""
        late = self.clock.now() >= BUDGET
        stop_caused = (self.verdict == "asked" or late) and self.ending is OSError
        if self.ending in (Failed, OSError) and not stop_caused and not self.given_up:
            return self.ending.__name__
        if self.cancels:
            return "CancelledError"
        if self.cause == "deadline_expired":
            return "DeadlineExceeded"
        if self.given_up:
            return "WorkerStuck"
        if self.cause == "stopped":
            return "StopRequested"
        # Nothing else ended the call, so a failed clean-up is its error.
        return "ExceptionGroup" if self.close_fails else "value"

    def seen(self):
        if not self.task.done():
            return None
        if self.task.cancelled():
            return "CancelledError"
        error = self.task.exception()
        return type(error).__name__ if error else {5: "value"}[self.task.result()]

    @invariant()
    def the_call_ends_when_and_as_the_model_says(self):
        if self.state != "none":
            assert self.seen() == self.ended
            assert self.task.cancelling() == self.cancels
            assert self.stray == []

    @invariant()
    def everything_happens_in_order_and_once(self):
        if self.state == "none":
            return
        # Between entry and return the release; after the return, or instead of it all, the close.
        steps = ["entered"] * (self.state in ("inside", "returned"))
        steps += ["released"] * self.released
        steps += ["returned"] * (self.state == "returned")
        steps += ["closed"] * (self.state in ("returned", "withdrawn"))
        assert self.trace == steps

    @invariant()
    def the_report_says_what_happened(self):
        report = self.handle.report if self.state != "none" and self.handle else None
        if report is None:
            assert self.state == "none" or not self.handle or self.ended is None
            return
        if self.given_up and self.state == "inside":
            outcome = OffloadOutcome.STUCK
        elif self.state == "withdrawn":
            outcome = OffloadOutcome.NEVER_STARTED
        elif self.cause is not None:
            outcome = OffloadOutcome(self.cause)
        else:
            outcome = OffloadOutcome.RETURNED if self.ending == "value" else OffloadOutcome.RAISED
        assert report.outcome is outcome
        assert report.cancels == self.cancels
        assert (report.stop_requested is not None) == (self.verdict == "asked")
        assert (report.committed is not None) == (self.verdict == "committed")
        assert (report.stop_observed is not None) == self.observed
        assert (report.released is not None) == self.released
        if self.state == "returned":
            assert report.value == (5 if self.ending == "value" else None)

    def teardown(self):
        try:
            if self.state != "none":
                self.finish()
        finally:
            if self.state == "inside":
                self.puppet.orders.put("value")  # after a failure
            custody.CARE = self.pool
            self.loop.close()

    def finish(self):
        """Bring it to its end, whatever has happened, and look a last time."""
        if self.state == "queued":
            self.thread_begins()
        if self.state == "inside":
            if self.ended is None:
                self.returns("value")
            else:
                self.puppet.ends("value")
                self.state, self.ending = "returned", "value"
                self.settle()
        self.the_call_ends_when_and_as_the_model_says()
        self.everything_happens_in_order_and_once()
        self.reach()

    def reach(self):
        """For the count of what was reached."""


TestOffload = Offload.TestCase
TestOffload.settings = settings(max_examples=300, stateful_step_count=12, deadline=None)


@pytest.mark.slow
def test_the_model_reaches_what_it_speaks_of(monkeypatch):
    """Q4: each ending comes up, many times in a run."""
    seen = Counter()

    def count(self):
        seen[self.ended] += 1
        seen[self.verdict] += 1
        seen["never started"] += self.state == "withdrawn"
        seen["late value"] += self.cause is not None and self.ending == "value"
        seen["several cancels"] += self.cancels > 1
        seen["closed loop"] += self.loop.is_closed()
        seen["failed release"] += self.released and self.release_fails

    monkeypatch.setattr(Offload, "reach", count)
    run_state_machine_as_test(Offload, settings=GENERATE)
    wanted = ["value", "CancelledError", "DeadlineExceeded", "StopRequested", "WorkerStuck"]
    wanted += ["Failed", "OSError", "ExceptionGroup", "asked", "committed", "never started"]
    wanted += ["late value", "several cancels", "closed loop", "failed release"]
    assert {state: seen[state] for state in wanted if seen[state] < 5} == {}


def releases_twice(scope):
    release = scope._release

    def twice():
        release()
        release()

    scope._release = twice


def closes_twice(scope):
    scope._custody.closers *= 2


def never_releases(scope):
    scope._release = lambda: None


@pytest.mark.parametrize("defect", [releases_twice, never_releases, closes_twice])
def test_the_model_rejects_a_scope_that_breaks_its_law(defect, monkeypatch):
    """C: a model that cannot fail proves nothing."""
    begin = ShieldedOffload.__init__

    def broken(self, **options):
        begin(self, **options)
        defect(self)

    monkeypatch.setattr(ShieldedOffload, "__init__", broken)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Offload, settings=GENERATE)
    gc.collect()


@pytest.mark.soak
def test_the_model_agrees_for_a_long_time():
    """O1-O6."""
    run_state_machine_as_test(
        Offload, settings=settings(max_examples=10_000, stateful_step_count=20, deadline=None)
    )
