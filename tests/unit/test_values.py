"""Values: equal by their parts, never changed, and as good after a journey."""

from __future__ import annotations

import copy
import pickle
import random

import pytest

from timebounds import Backoff, Granted, Jitter, MinRate, Refused, RetryAllowance

VALUES = [
    RetryAllowance(2, Backoff.exponential(0.1, cap=5, jitter=Jitter.FULL)),
    RetryAllowance(2, Backoff.fixed(1)).spend().rest,
    Backoff.linear(1, cap=3),
    Granted(0.5, RetryAllowance(1)),
    Refused(),
    MinRate(100, grace=2),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_survives_copy_and_pickle(value):
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert twin == value
        assert hash(twin) == hash(value)
        assert repr(twin) == repr(value)


def test_values_differ_by_any_part_and_by_class():
    assert MinRate(1, 1) != MinRate(2, 1)
    assert MinRate(1, 1) != MinRate(1, 2)
    assert RetryAllowance(1) != RetryAllowance(2).spend().rest
    assert Refused() != ()
    assert Backoff.none() != 0
    assert len({MinRate(1, 1), MinRate(1, 1), MinRate(2, 1)}) == 2


def test_private_parts_are_not_shown():
    assert repr(MinRate(1, grace=2)) == "MinRate(bytes_per_second=1, grace=2)"
    assert repr(RetryAllowance(1)).startswith("RetryAllowance(retries=1, backoff=Backoff(")


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_never_changes(value):
    with pytest.raises(AttributeError, match="never changes: make another one instead"):
        value.retries = 5
    with pytest.raises(AttributeError, match="never changes"):
        del value.retries
    assert not hasattr(value, "__dict__")


def test_a_seeded_backoff_goes_on_after_a_copy_where_it_stood():
    backoff = Backoff.fixed(1, jitter=Jitter.FULL, rng=random.Random(7))
    twin = copy.deepcopy(backoff)
    assert [backoff.delay(n) for n in (1, 2, 3)] == [twin.delay(n) for n in (1, 2, 3)]
