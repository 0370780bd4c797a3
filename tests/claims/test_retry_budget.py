"""A budget of retries across calls: it never blocks, is paid before, and says when it refuses."""

from __future__ import annotations

import asyncio
import threading

import pytest

from timebounds import (
    Backoff,
    Effect,
    Retry,
    RetryAllowance,
    RetryBudget,
    RetryOutcome,
    retry_report,
)
from timebounds.testing import FakeClock


class Broken(Exception):
    pass


class Throttled(Broken):
    pass


def policy(budget, **options):
    options.setdefault("allowance", RetryAllowance(100))
    return Retry(on=Broken, effect=Effect.IDEMPOTENT, budget=budget, **options)


def failing(times, error=Broken):
    left = [times]

    def once(attempt):
        if left[0]:
            left[0] -= 1
            raise error
        return attempt.number

    return once


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


def test_five_hundred_fourteen_five(clock):
    """35 retries empty it, throttled ones 100; a success gives back what its retry had cost."""
    budget = RetryBudget.per_failure(is_throttling=lambda error: isinstance(error, Throttled))
    retry = policy(budget)
    with pytest.raises(Broken) as caught:
        retry.call(failing(1000), deadline=clock.deadline(1e6))
    report = retry_report(caught.value)
    assert (report.outcome, len(report.attempts)) == (RetryOutcome.BUDGET, 36)
    assert "the retry budget is spent" in caught.value.__notes__[0]
    assert (budget.tokens, budget.refused) == (10.0, 1)
    assert retry.call(failing(1, Throttled), deadline=clock.deadline(1)) == 2
    assert budget.tokens == 10.0
    assert budget.spend(Throttled()) == 5.0
    budget.give_back(5.0)
    assert retry.call(failing(0), deadline=clock.deadline(1)) == 1
    assert budget.tokens == 11.0
    assert repr(budget) == "<RetryBudget, 11 of 500 tokens, 1 refused>"


def test_ten_tokens_and_a_tenth_for_a_success(clock):
    """No retry at or below half."""
    budget = RetryBudget.throttle()
    retry = policy(budget)
    with pytest.raises(Broken) as caught:
        retry.call(failing(100), deadline=clock.deadline(1))
    assert len(retry_report(caught.value).attempts) == 5
    assert budget.tokens == 6.0
    for _ in range(10):
        retry.call(failing(0), deadline=clock.deadline(1))
    assert budget.tokens == pytest.approx(7.0)
    assert retry.call(failing(1), deadline=clock.deadline(1)) == 2


def test_a_share_of_the_successes_with_a_floor(clock):
    budget = RetryBudget.ratio(0.2, floor=2, burst=4, clock=clock)
    retry = policy(budget)
    with pytest.raises(Broken):
        retry.call(failing(100), deadline=clock.deadline(1))
    assert budget.tokens == 0.0
    clock.advance(0.5)
    assert budget.tokens == 1.0
    for _ in range(5):
        retry.call(failing(0), deadline=clock.deadline(1))
    assert budget.tokens == pytest.approx(2.0)
    clock.advance(1000)
    assert budget.tokens == 4.0


@pytest.mark.parametrize("how", ["late", "sleeper", "hook"])
def test_what_was_paid_for_a_retry_that_never_began_comes_back(clock, how):
    """Charged before the backoff, given back if the retry never starts."""
    budget = RetryBudget(10, cost=3)
    options = {"allowance": RetryAllowance(9, Backoff.fixed(1))}
    seen = []
    if how == "late":
        clock.script_oversleep(100)
    elif how == "sleeper":
        clock.script_sleep_failure(KeyboardInterrupt())
    else:

        def refuse(event):
            seen.append(budget.tokens)
            raise ZeroDivisionError

        options["on_backoff"] = refuse
    with pytest.raises((Broken, KeyboardInterrupt, ZeroDivisionError)):
        policy(budget, **options).call(failing(9), deadline=clock.deadline(10))
    assert budget.tokens == 10.0
    assert seen in ([], [7.0])


@pytest.mark.parametrize("form", ["acall", "attempts", "aattempts"])
def test_a_cancelled_or_abandoned_backoff_costs_nothing(form):
    budget = RetryBudget(10)
    clock = FakeClock()
    retry = policy(budget, allowance=RetryAllowance(9, Backoff.fixed(60)))
    deadline = clock.deadline(1000)
    if form == "attempts":
        attempts = retry.attempts(deadline)
        with next(attempts):
            raise Broken
        assert budget.tokens == 9.0
        del attempts
        assert budget.tokens == 10.0
        return

    async def once(attempt):
        raise Broken

    async def caller():
        if form == "acall":
            await retry.acall(once, deadline=deadline)
        else:
            async for attempt in retry.attempts(deadline):
                with attempt:
                    raise Broken

    async def main():
        task = asyncio.create_task(caller())
        while not clock.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert budget.tokens == 9.0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert budget.tokens == 10.0


def test_a_retry_that_began_is_paid_for(clock):
    budget = RetryBudget(10, cost=2)
    with pytest.raises(Broken):
        policy(budget, allowance=RetryAllowance(2)).call(failing(9), deadline=clock.deadline(1))
    assert budget.tokens == 6.0


def test_threads_share_it():
    budget = RetryBudget(1000)
    got = []
    start = threading.Barrier(8)

    def spend():
        start.wait()
        while budget.spend(Broken()) is not None:
            got.append(None)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), budget.tokens, budget.refused) == (1000, 0.0, 8)


def test_time_that_goes_back_brings_nothing(clock):
    budget = RetryBudget(10, per_second=1, clock=clock)
    assert budget.spend(Broken()) == 1.0
    assert budget.tokens == 9.0


@pytest.mark.parametrize("name", ["capacity", "cost", "earned", "threshold", "per_second"])
@pytest.mark.parametrize("value", [float("nan"), -1, "1", True])
def test_its_numbers_are_checked(name, value):
    options = {"capacity": 1} | {name: value}
    with pytest.raises((TypeError, ValueError), match=name):
        RetryBudget(**options)


def test_a_price_is_a_number_too():
    with pytest.raises(ValueError, match="cost"):
        RetryBudget(1, cost=lambda error: -1).spend(Broken())
    with pytest.raises(TypeError, match="clock"):
        RetryBudget(1, clock=None)


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        (RetryBudget.per_failure, "capacity"),
        (RetryBudget.per_failure, "cost"),
        (RetryBudget.per_failure, "throttled"),
        (RetryBudget.throttle, "tokens"),
    ],
)
def test_the_numbers_of_a_preset_are_checked_under_its_own_names(preset, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        preset(**{name: -1})
    if name != "tokens":
        assert preset(**{name: 0.5}).tokens >= 0


def test_the_presets_are_those_that_were_published():
    clock = FakeClock()
    budget = RetryBudget.ratio(clock=clock)
    assert budget.tokens == 100.0
    while budget.spend(Broken()) is not None:
        pass
    budget.succeeded(None)
    assert budget.tokens == 0.2
    clock.advance(1)
    assert budget.tokens == pytest.approx(10.2)
    assert RetryBudget.per_failure().tokens == 500.0
    assert RetryBudget.throttle().tokens == 10.0


def test_time_brings_exactly_what_it_should():
    clock = FakeClock(1000)
    budget = RetryBudget(10, cost=10, per_second=2, clock=clock)
    assert budget.spend(Broken()) == 10
    for tokens in (2.0, 4.0, 6.0):
        clock.advance(1)
        assert budget.tokens == tokens


def test_without_more_words_a_success_earns_nothing():
    budget = RetryBudget(10, cost=3)
    budget.succeeded(budget.spend(Broken()))
    assert budget.tokens == 7.0


@pytest.mark.parametrize("name", ["capacity", "cost", "earned", "threshold", "per_second"])
def test_a_wrong_number_is_named_first_of_all(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        RetryBudget(**({"capacity": 1} | {name: -1}))
    with pytest.raises(ValueError, match=r"^cost must be"):
        RetryBudget(1, cost=lambda _: -1).spend(Broken())


def test_numbers_below_one_are_numbers():
    budget = RetryBudget(1, cost=0.25)
    assert [budget.spend(Broken()) for _ in range(5)] == [0.25] * 4 + [None]
    assert RetryBudget(1, cost=lambda _: 0.5).spend(Broken()) == 0.5
    with pytest.raises(ValueError, match="must allow one retry at least"):
        RetryBudget(6, threshold=5)
    with pytest.raises(ValueError, match="must allow one retry at least"):
        RetryBudget.throttle(tokens=0.5)
