"""A2, A3: the same scripts through other retry libraries, on one fake clock, and through ours.

Where the policies say the same, the attempts begin at the same instants. Where the others go on
after the end of the budget, ours never does.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from timebounds import Backoff, Effect, Overrun, Retry, RetryAllowance
from timebounds.testing import FakeClock

CAP = 2.0
# Multiples of a sixteenth are exact in every library's arithmetic, and collide often.
durations = st.lists(st.integers(0, 32).map(lambda n: n / 16), min_size=1, max_size=8)
initials = st.sampled_from([0.0625, 0.125, 0.25, 0.5, 1.0])
budgets = st.integers(1, 128).map(lambda n: n / 16)
EACH = settings(
    max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


class Broken(Exception):
    pass


class World:
    """A target that fails again and again, and a clock that everybody reads."""

    def __init__(self, lasts):
        self.clock = FakeClock(auto_advance=True)
        self.lasts = list(lasts)
        self.starts = []
        self.ends = []

    def work(self, *_):
        self.starts.append(self.clock.now())
        self.clock.advance(self.lasts.pop(0) if self.lasts else 0)
        self.ends.append(self.clock.now())
        raise Broken

    def run(self, call):
        with pytest.raises(Exception) as caught:
            call()
        # One of the others wraps it.
        assert isinstance(caught.value.__cause__ or caught.value, Broken)
        return self


def ours(lasts, initial, retries, budget=10**6, overrun=Overrun.REFUSE):
    world = World(lasts)
    retry = Retry(
        on=Broken,
        effect=Effect.READ_ONLY,
        allowance=RetryAllowance(retries, Backoff.exponential(initial, cap=CAP)),
        overrun=overrun,
    )
    deadline = world.clock.deadline(budget)
    return world.run(lambda: retry.call(world.work, deadline=deadline))


# ------------------------------------------------------------------ the others, on a fake clock


def fake_time(monkeypatch, clock, *modules):
    """Let these modules, and no others, have the fake clock for their `time`."""
    fake = SimpleNamespace(monotonic=clock.now, time=clock.now, sleep=clock.sleep)
    for name in modules:
        monkeypatch.setattr(importlib.import_module(name), "time", fake)


def with_tenacity(monkeypatch, world, initial, retries, budget, stop="stop_after_delay"):
    tenacity = importlib.import_module("tenacity")
    fake_time(monkeypatch, world.clock, "tenacity", "tenacity.nap")
    rule = tenacity.stop_after_attempt(retries + 1)
    if budget is not None:
        rule |= getattr(tenacity, stop)(budget)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Broken),
        stop=rule,
        wait=tenacity.wait_exponential(initial, max=CAP),
        reraise=True,
    )
    return world.run(lambda: retrying(world.work))


def with_tenacity_before(monkeypatch, world, initial, retries, budget):
    return with_tenacity(monkeypatch, world, initial, retries, budget, "stop_before_delay")


def with_stamina(monkeypatch, world, initial, retries, budget):
    stamina = importlib.import_module("stamina")
    fake_time(monkeypatch, world.clock, "tenacity", "tenacity.nap")
    stamina.instrumentation.set_on_retry_hooks([])
    caller = stamina.RetryingCaller(
        attempts=retries + 1, timeout=budget, wait_initial=initial, wait_max=CAP, wait_jitter=0
    )
    try:
        return world.run(lambda: caller(Broken, world.work))
    finally:
        stamina.instrumentation.set_on_retry_hooks(None)


def with_backoff(monkeypatch, world, initial, retries, budget):
    backoff = importlib.import_module("backoff")
    fake_time(monkeypatch, world.clock, "backoff._sync")
    datetime = SimpleNamespace(datetime=SimpleNamespace(now=world.clock.wall.now))
    monkeypatch.setattr(importlib.import_module("backoff._sync"), "datetime", datetime)
    how = backoff.on_exception(
        backoff.expo,
        Broken,
        factor=initial,
        max_value=CAP,
        max_tries=retries + 1,
        max_time=budget,
        jitter=None,
        logger=None,
    )
    return world.run(how(world.work))


def with_google(monkeypatch, world, initial, retries, budget):
    """It has no count of attempts: whoever counts makes the last failure a fatal one."""
    retry = importlib.import_module("google.api_core.retry")
    base, unary = "google.api_core.retry.retry_base", "google.api_core.retry.retry_unary"
    fake_time(monkeypatch, world.clock, base, unary)
    random = SimpleNamespace(uniform=max)
    monkeypatch.setattr(importlib.import_module(base), "random", random)

    def wanted(error):
        return isinstance(error, Broken) and len(world.starts) <= retries

    policy = retry.Retry(predicate=wanted, initial=initial, maximum=CAP, timeout=budget)
    return world.run(policy(world.work))


OTHERS = {
    "tenacity": with_tenacity,
    "tenacity, stop_before_delay": with_tenacity_before,
    "stamina": with_stamina,
    "backoff": with_backoff,
    "google-api-core": with_google,
}


@pytest.fixture
def way(request, monkeypatch):
    """One of the others; skip where it is not installed."""
    module = {"google-api-core": "google.api_core.retry"}.get(request.param)
    module = module or request.param.split(",")[0]
    pytest.importorskip(module, reason=f"no {request.param} here: `run.py interop` has it")
    return lambda *args: OTHERS[request.param](monkeypatch, *args)


def through(*names):
    return pytest.mark.parametrize("way", names, indirect=True)


@through(*OTHERS)
@given(durations, initials, st.integers(0, 7))
@EACH
def test_without_a_budget_all_begin_their_attempts_at_the_same_instants(
    way, lasts, initial, retries
):
    world = way(World(lasts), initial, retries, None)
    assert ours(lasts, initial, retries).starts == world.starts
    assert len(world.starts) == retries + 1


@through("tenacity, stop_before_delay", "google-api-core")
@given(durations, initials, st.integers(0, 7), budgets)
@EACH
def test_the_careful_ones_begin_the_same_attempts_inside_the_budget(
    way, lasts, initial, retries, budget
):
    """A3. At the very instant of the deadline one of them begins another attempt; we do not."""
    theirs = way(World(lasts), initial, retries, budget)
    assert ours(lasts, initial, retries, budget).starts == [
        at for at in theirs.starts if at < budget
    ]


@through(*OTHERS)
@given(durations, initials, st.integers(0, 7), budgets, st.sampled_from(Overrun))
@example([0.375] * 3, 0.125, 7, 1.0, Overrun.REFUSE)
@EACH
def test_ours_begins_what_the_others_begin_in_time_and_nothing_after(
    way, lasts, initial, retries, budget, overrun
):
    """A3, case A30: 1, 2, 4 under 5 and all its kin."""
    mine = ours(lasts, initial, retries, budget, overrun)
    theirs = way(World(lasts), initial, retries, budget)
    assert all(at < budget for at in mine.starts)
    in_time = [at for at in theirs.starts if at < budget]
    assert mine.starts == in_time
    # A sleep ends at the deadline at the latest; only an attempt that heeds nothing ends later.
    last = mine.ends[-1]
    slept = mine.clock.now() - last
    assert slept == 0.0 or mine.clock.now() <= budget
    assert mine.clock.now() <= max(budget, last)


@through("tenacity", "stamina", "backoff")
def test_a_public_failure_is_seen_in_the_others_and_not_in_ours(way):
    """Case A30, and the canary of this file: they begin an attempt after the end."""
    theirs = way(World([0.375] * 9), 0.125, 8, 1.0)
    assert [at for at in theirs.starts if at >= 1.0]
    assert ours([0.375] * 9, 0.125, 8, 1.0).starts == [at for at in theirs.starts if at < 1.0]
