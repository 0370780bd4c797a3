"""A1 and A4: how often, and how long in between, as values."""

from __future__ import annotations

import math
import random
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timebounds import Backoff, Granted, Jitter, Refused, RetryAllowance


class Says:
    """A random source that says one thing."""

    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


def delays(allowance):
    """Spend all of an allowance; return the delays."""
    out = []
    while isinstance(step := allowance.spend(), Granted):
        out.append(step.delay)
        allowance = step.rest
    return out


def test_spending_changes_nothing():
    """A1."""
    allowance = RetryAllowance(2, Backoff.fixed(0.5))
    first, again = allowance.spend(), allowance.spend()
    assert first == again
    assert allowance.retries == 2
    assert first.rest.retries == 1
    assert first.rest.spend().rest.spend() == Refused()
    assert RetryAllowance.none().spend() == Refused()


def test_a_shared_allowance_is_one_count():
    """A1, case A38: nested calls together get what one may have."""
    shared = RetryAllowance(3, Backoff.exponential(1, cap=10)).shared()
    steps = [shared.spend() for _ in range(5)]
    assert [type(step) for step in steps] == [Granted] * 3 + [Refused] * 2
    assert [step.delay for step in steps[:3]] == [1.0, 2.0, 4.0]
    assert steps[0].rest is shared
    assert repr(shared) == "<SharedAllowance, 0 retries left>"
    assert shared.retries == 0


def test_a_shared_allowance_is_never_overspent_by_threads():
    """A1."""
    shared = RetryAllowance(1000).shared()
    granted = []
    start = threading.Barrier(8)

    def spend():
        start.wait()
        while isinstance(shared.spend(), Granted):
            granted.append(None)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 1000


def test_a_backoff_has_a_shape():
    assert Backoff.none() == Backoff.fixed(0)
    assert repr(Backoff.none()).startswith("Backoff(initial=0.0, step=0.0, factor=1.0, cap=0.0, ")
    assert delays(RetryAllowance(3)) == [0.0, 0.0, 0.0]
    assert delays(RetryAllowance(3, Backoff.fixed(0.5))) == [0.5, 0.5, 0.5]
    assert delays(RetryAllowance(4, Backoff.linear(1, cap=3))) == [1.0, 2.0, 3.0, 3.0]
    assert delays(RetryAllowance(4, Backoff.linear(1, step=0.5, cap=2))) == [1.0, 1.5, 2.0, 2.0]
    assert delays(RetryAllowance(4, Backoff.linear(1, step=0, cap=2))) == [1.0] * 4
    assert delays(RetryAllowance(5, Backoff.exponential(1, cap=5))) == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert delays(RetryAllowance(5, Backoff.exponential(0.5, cap=5))) == [0.5, 1.0, 2.0, 4.0, 5.0]
    assert delays(RetryAllowance(3, Backoff.exponential(2, factor=3, cap=9))) == [2.0, 6.0, 9.0]
    assert delays(RetryAllowance(3, Backoff.exponential(1, factor=1, cap=5))) == [1.0] * 3
    assert delays(RetryAllowance(2, Backoff.exponential(9, cap=5))) == [5.0] * 2
    assert delays(RetryAllowance(2, Backoff.exponential(0, cap=5))) == [0.0] * 2


@pytest.mark.parametrize("factor", [2, 2.0, 1.0000001, 1e300])
@pytest.mark.parametrize("make", [Backoff.exponential])
def test_no_attempt_overflows(make, factor):
    """A4, case A34: saturated before it is computed."""
    backoff = make(0.1, factor=factor, cap=5)
    found = [backoff.delay(n) for n in (1, 2, 3, 1024, 1025, 5000, 10**6, 10**18, 10**400)]
    assert all(0.0 <= delay <= 5.0 for delay in found)
    assert all(a <= b for a, b in pairwise(found))


def test_every_attempt_up_to_five_thousand_is_finite_and_does_not_decrease():
    """A4, case A34."""
    for backoff in (
        Backoff.exponential(0.1, cap=5),
        Backoff.linear(0.001, cap=5),
        Backoff.linear(0, step=1e-300, cap=5),
        Backoff.exponential(1e-300, cap=1e300),
    ):
        found = [backoff.delay(n) for n in range(1, 5001)]
        assert all(0.0 <= delay <= backoff.cap for delay in found)
        assert all(a <= b for a, b in pairwise(found))


def test_attempt_a_million_costs_what_the_first_costs():
    """A4: no loop over attempts."""
    backoff = Backoff.exponential(0.1, factor=1.0001, cap=5)
    began = time.perf_counter()
    for _ in range(1000):
        backoff.delay(10**6)
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize("jitter", [Jitter.FULL, Jitter.EQUAL, Jitter.DECORRELATED])
@pytest.mark.parametrize("said", [-1e300, -1, 0, 0.5, 1, 2, 1e300])
def test_jitter_stays_between_nothing_and_the_cap(jitter, said):
    """A4, case A35: whatever the random source says."""
    backoff = Backoff.exponential(1, cap=5, jitter=jitter, rng=Says(said))
    previous = 0.0
    for attempt in (1, 2, 3, 10, 10**6):
        previous = backoff.delay(attempt, previous)
        assert 0.0 <= previous <= 5.0


def test_jitter_is_applied_after_the_cap():
    """A4."""
    assert Backoff.fixed(4, jitter=Jitter.FULL, rng=Says(0.25)).delay(1) == 1.0
    assert Backoff.fixed(4, jitter=Jitter.EQUAL, rng=Says(0.25)).delay(1) == 2.5
    assert Backoff.exponential(8, cap=4, jitter=Jitter.FULL, rng=Says(0.5)).delay(9) == 2.0
    assert Backoff.linear(1, cap=4, jitter=Jitter.FULL, rng=Says(0.5)).delay(9) == 2.0
    assert Backoff.fixed(0, jitter=Jitter.FULL, rng=Says(math.nan)).delay(1) == 0.0
    decorrelated = Backoff.exponential(1, cap=20, jitter=Jitter.DECORRELATED, rng=Says(1.0))
    assert delays(RetryAllowance(4, decorrelated)) == [3.0, 9.0, 20.0, 20.0]
    small = Backoff.exponential(0.1, cap=20, jitter=Jitter.DECORRELATED, rng=Says(1.0))
    for allowance in (RetryAllowance(3, small), RetryAllowance(3, small).shared()):
        assert delays(allowance) == pytest.approx([0.3, 0.9, 2.7])
    assert small.delay(1) == pytest.approx(0.3)
    low = Backoff.exponential(1, cap=20, jitter=Jitter.DECORRELATED, rng=Says(0.0))
    assert delays(RetryAllowance(3, low)) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("said", [math.nan, math.inf, -math.inf, None, "0.5"])
def test_a_random_source_that_returns_no_number_is_an_error(said):
    """A4."""
    with pytest.raises(ValueError, match=r"rng\.random\(\) returned"):
        Backoff.fixed(1, jitter=Jitter.FULL, rng=Says(said)).delay(1)


@given(seed=st.integers(), jitter=st.sampled_from(Jitter))
def test_seeded_runs_repeat(seed, jitter):
    """A4."""

    def run():
        rng = random.Random(seed)
        return delays(RetryAllowance(20, Backoff.exponential(0.1, cap=5, jitter=jitter, rng=rng)))

    assert run() == run()


def test_without_a_random_source_of_your_own_the_systems_is_used():
    backoff = Backoff.fixed(1, jitter=Jitter.FULL)
    found = {backoff.delay(1) for _ in range(20)}
    assert len(found) > 1
    assert all(0 <= delay <= 1 for delay in found)


def test_wrong_parts_are_named():
    with pytest.raises(TypeError, match="rng"):
        Backoff.fixed(1, rng=4)
    with pytest.raises(TypeError, match="jitter"):
        Backoff.fixed(1, jitter="full")
    with pytest.raises(TypeError, match=r"Backoff\.fixed\(0\.5\)"):
        RetryAllowance(1, 0.5)
    with pytest.raises(TypeError, match=r"Backoff\.none\(\)"):
        Backoff(-5.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        RetryAllowance(1, _spent=1)
    with pytest.raises(ValueError, match="attempt"):
        Backoff.none().delay(0)
