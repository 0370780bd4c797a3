"""A1-A3, A6, A8, A9 as a model: any policy, any script of attempts, any sleeper, in every form.

The model knows the script and the policy. Whatever they are, no attempt begins too late or is given
too much, no wait is asked for beyond the budget, and each form tells the same story.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from timebounds import (
    Backoff,
    Deadline,
    DeadlineExceeded,
    Effect,
    Overrun,
    Retry,
    RetryAllowance,
    RetryReport,
    retry_report,
)
from timebounds.policies import retrying
from timebounds.testing import FakeClock

# Multiples of a sixteenth are exact, and collide often: that is where the ties are.
seconds = st.integers(0, 64).map(lambda n: n / 16)
positive = st.integers(1, 64).map(lambda n: n / 16)
NS = 10**9


class Broken(Exception):
    """A failure that is retried; it carries what the server said."""

    def __init__(self, hint):
        self.hint = hint


class Fatal(Exception):
    """A failure that is not."""


class SleeperBroken(Exception):
    """What the clock raises out of a backoff."""


@dataclass(frozen=True)
class Policy:
    retries: int
    backoff: Backoff
    overrun: Overrun
    per_attempt: float | None
    min_attempt: float
    strict: bool
    budget: float | None
    shared: bool


@dataclass(frozen=True)
class Step:
    """One attempt: how long it lasts, whether it heeds its limit, how it ends."""

    lasts: float
    heeds: bool
    ends: str
    hint: object = None


policies = st.builds(
    Policy,
    retries=st.integers(0, 5),
    backoff=st.sampled_from([0.0, 0.0, 0.25, 1.0]).map(Backoff.fixed)
    | st.builds(lambda a, b: Backoff.exponential(a, cap=b), positive, positive)
    | st.builds(lambda a, b: Backoff.linear(a, cap=b), positive, positive),
    overrun=st.sampled_from(Overrun),
    per_attempt=st.none() | positive,
    min_attempt=st.sampled_from([0.0, 0.0, 0.25, 1.0]),
    strict=st.booleans(),
    budget=st.sampled_from([None, 0.0, 1.0, 2.0, 2.0, 4.0, 4.0, 16.0]),
    shared=st.booleans(),
)
steps = st.builds(
    Step,
    lasts=st.sampled_from([0.0, 0.0, 0.25, 0.5]) | seconds,
    heeds=st.booleans(),
    ends=st.sampled_from(["broken"] * 8 + ["fatal", "value"]),
    hint=st.sampled_from([None] * 4 + [0.25, 1, "1", "3600", "soon", -1]),
)
scripts = st.lists(steps, min_size=1, max_size=7)
# What each sleep does: lasts so much longer, or fails.
sleepers = st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.25, 5.0, None]), max_size=3)
FORMS = ("call", "attempts", "decorator", "acall", "aattempts", "adecorator")


class World:
    """One run of a script in one form."""

    def __init__(self, policy: Policy, script: list[Step], sleeper: list[float | None]):
        self.policy = policy
        self.clock = clock = FakeClock(auto_advance=True)
        self.script = list(script)
        self.starts: list[int] = []
        self.granted: list[float] = []
        self.ends: list[int] = []
        for each in sleeper:
            if each is None:
                clock.script_sleep_failure(SleeperBroken())
            else:
                clock.script_oversleep(each)
        self.deadline = (
            Deadline.never(clock=clock) if policy.budget is None else clock.deadline(policy.budget)
        )
        self.error: Exception | None = None
        self.report: RetryReport | None = None

    def retry(self) -> Retry:
        allowance = RetryAllowance(self.policy.retries, self.policy.backoff)
        return Retry(
            on=Broken,
            effect=Effect.IDEMPOTENT,
            allowance=allowance.shared() if self.policy.shared else allowance,
            per_attempt=self.policy.per_attempt,
            min_attempt=self.policy.min_attempt,
            overrun=self.policy.overrun,
            hint=lambda error: error.hint,
            strict_hints=self.policy.strict,
        )

    def under(self, deadline: Deadline) -> str:
        step = self.script.pop(0) if self.script else Step(0.0, True, "value")
        self.starts.append(self.clock.now_ns())
        self.granted.append(deadline.remaining())
        self.clock.advance(min(step.lasts, deadline.remaining()) if step.heeds else step.lasts)
        self.ends.append(self.clock.now_ns())
        if step.ends == "broken":
            raise Broken(step.hint)
        if step.ends == "fatal":
            raise Fatal
        return "value"

    def run(self, form: str) -> World:
        try:
            value = getattr(self, form)()
            assert value == "value"
        except (Broken, Fatal, DeadlineExceeded) as error:
            self.error = error
            self.report = retry_report(error)
        except SleeperBroken as error:
            self.error = error
        return self

    def call(self):
        return self.retry().call(
            lambda attempt: self.under(attempt.deadline), deadline=self.deadline
        )

    def attempts(self):
        for attempt in self.retry().attempts(self.deadline):
            with attempt:
                return self.under(attempt.deadline)
        return None

    def decorator(self):
        @self.retry()
        def decorated(deadline):
            return self.under(deadline)

        return decorated(self.deadline)

    def acall(self):
        async def once(attempt):
            await asyncio.sleep(0)
            return self.under(attempt.deadline)

        return asyncio.run(self.retry().acall(once, deadline=self.deadline))

    def aattempts(self):
        async def loop():
            async for attempt in self.retry().attempts(self.deadline):
                with attempt:
                    return self.under(attempt.deadline)
            return None

        return asyncio.run(loop())

    def adecorator(self):
        @self.retry()
        async def decorated(deadline):
            return self.under(deadline)

        return asyncio.run(decorated(self.deadline))

    def story(self):
        kind = type(self.error)
        return kind, self.report, self.starts, self.granted, self.clock.now_ns(), self.clock.sleeps


def judge(world: World) -> None:
    """Hold one run against the law."""
    policy, starts = world.policy, world.starts
    end = None if policy.budget is None else round(policy.budget * NS)
    floor = round(policy.min_attempt * NS)
    assert len(starts) <= policy.retries + 1, "more attempts than were allowed"
    for start, granted in zip(starts, world.granted, strict=True):
        if end is not None:
            assert end - start > floor, "an attempt began too late"
            assert 0 < round(granted * NS) <= end - start, "an attempt was given too much"
        assert policy.per_attempt is None or granted <= policy.per_attempt
    # Each wait was asked for at the end of an attempt, and left or used up what remained there.
    asked = [round(sleep * NS) for sleep in world.clock.sleeps]
    for sleep in asked:
        assert sleep > 0
        room = 0 if end is None else max(end - ended for ended in world.ends)
        assert end is None or sleep <= room, "a wait was asked for that did not fit"
        assert end is None or policy.overrun is Overrun.CAP or sleep < room
    if not starts:
        assert type(world.error) is DeadlineExceeded
        assert end is not None
        assert end <= floor
        return
    judge_time(world, end, asked)


def judge_time(world: World, end: int | None, asked: list[int]) -> None:
    now, report = world.clock.now_ns(), world.report
    lasted = [ended - start for start, ended in zip(world.starts, world.ends, strict=True)]
    given = [round(granted * NS) for granted in world.granted if granted != float("inf")]
    well_behaved = all(took <= had for took, had in zip(lasted, given, strict=False))
    slept = now - sum(lasted)
    if end is not None and well_behaved and slept <= sum(asked):
        assert now <= end, "late, although nobody overshot"
    if end is not None and type(world.error) is not SleeperBroken:
        # A backoff was asked for only where it fitted: attempts and the waits asked for do.
        assert not well_behaved or slept > sum(asked) or sum(lasted) + sum(asked) <= end
    if report is None:
        assert world.error is None or type(world.error) is SleeperBroken
        return
    assert report.overshoot == (0.0 if end is None else max(0, now - end) / NS)
    assert report.elapsed == now / NS
    assert report.slept == slept / NS
    assert [round(record.began * NS) for record in report.attempts] == world.starts
    assert [record.granted for record in report.attempts] == world.granted
    assert [round(record.lasted * NS) for record in report.attempts] == lasted
    judge_reason(world, end, report)


def judge_reason(world: World, end: int | None, report: RetryReport) -> None:
    outcome, policy = report.outcome, world.policy
    left = float("inf") if end is None else end - world.clock.now_ns()
    if type(world.error) is Fatal and outcome != "deadline":
        assert outcome == "fatal"
    if outcome == "deadline":
        assert left <= round(policy.min_attempt * NS)
    elif outcome == "attempts":
        assert len(world.starts) == policy.retries + 1
    elif outcome == "overrun":
        assert policy.overrun is Overrun.REFUSE
        assert left > 0
    elif outcome == "hint":
        assert report.hint is not None
    else:
        assert outcome == "fatal"


@given(policies, scripts, sleepers)
@settings(max_examples=300)
def test_every_form_keeps_the_budget_and_tells_the_same_story(policy, script, sleeper):
    """A1, A2, A3, A8, A9."""
    stories = []
    for form in FORMS:
        world = World(policy, script, sleeper).run(form)
        judge(world)
        stories.append(world.story())
    assert all(story == stories[0] for story in stories)
    event(f"outcome: {world.report.outcome if world.report else type(world.error).__name__}")


# ------------------------------------------------------------------ is the model any good?

GENERATE = settings(max_examples=800, database=None, derandomize=True, phases=[Phase.generate])


def test_the_model_reaches_what_it_speaks_of():
    """Q4: each ending comes up, many times in a run."""
    seen = Counter()

    @given(policies, scripts, sleepers)
    @GENERATE
    def count(policy, script, sleeper):
        world = World(policy, script, sleeper).run("call")
        outcome = world.report.outcome if world.report else type(world.error).__name__
        seen[str(outcome)] += 1
        seen["retried"] += len(world.starts) > 1
        seen["overshot"] += bool(world.report and world.report.overshoot)

    count()
    wanted = ["attempts", "deadline", "overrun", "fatal", "hint"]
    wanted += ["NoneType", "DeadlineExceeded", "SleeperBroken", "retried", "overshot"]
    assert {state: seen[state] for state in wanted if seen[state] < 5} == {}


def late_starter(run):
    """Canary: does not look at the clock after a backoff."""
    run._rules = run._rules._replace(min_attempt_ns=-(1 << 62))


def generous(run):
    """Canary: hands out another deadline than the one that is shared."""
    run._deadline = Deadline.after(1000, clock=run._deadline.clock)


def miscounting(run):
    """Canary: has one retry more than it should."""
    run._allowance = RetryAllowance(run._allowance.retries + 1)


@pytest.mark.parametrize("defect", [late_starter, generous, miscounting])
def test_the_model_rejects_a_retry_that_breaks_its_law(defect, monkeypatch):
    """C: a model that cannot fail proves nothing."""
    begin = retrying.Retrying.__init__

    def broken(self, *args):
        begin(self, *args)
        defect(self)

    monkeypatch.setattr(retrying.Retrying, "__init__", broken)

    @given(policies, scripts, sleepers)
    @GENERATE
    def hold(policy, script, sleeper):
        judge(World(replace(policy, shared=False), script, sleeper).run("attempts"))

    with pytest.raises(AssertionError):
        hold()
