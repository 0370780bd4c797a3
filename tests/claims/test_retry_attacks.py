"""What an attacker found in retrying, one by one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, tzinfo

import pytest

from timebounds import (
    Backoff,
    ClockError,
    Deadline,
    DeadlineExceeded,
    Effect,
    Overrun,
    Retry,
    RetryAllowance,
    RetryBudget,
    SteadyClock,
    retry_report,
)
from timebounds.testing import FakeClock


class Broken(Exception):
    pass


def policy(**options):
    options.setdefault("on", Exception)
    options.setdefault("allowance", RetryAllowance(3))
    return Retry(effect=Effect.IDEMPOTENT, **options)


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


def always(attempt):
    raise Broken("the real failure")


# ------------------------------------------------------------------ loops that are over


def test_a_loop_that_an_interrupt_has_left_is_over(clock):
    """A1, A6: whoever catches it outside gets no further attempt from it."""
    attempts = policy().attempts(clock.deadline(5))
    made = 0
    for attempt in attempts:
        made += 1
        with suppress(KeyboardInterrupt), attempt:
            raise KeyboardInterrupt
    assert made == 1
    assert list(attempts) == []
    assert attempts.report is None


def test_a_loop_in_a_task_that_a_timeout_has_left_is_over():
    clock = FakeClock()

    async def main():
        made = 0
        async for attempt in policy().attempts(clock.deadline(5)):
            made += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    with attempt:
                        await asyncio.get_running_loop().create_future()
        return made

    assert asyncio.run(main()) == 1


def test_a_loop_that_gave_up_is_over(clock):
    retry = policy(overrun=Overrun.CAP, allowance=RetryAllowance(9, Backoff.fixed(9)))
    attempts = retry.attempts(clock.deadline(5))
    with pytest.raises(Broken):
        for attempt in attempts:
            with attempt:
                always(attempt)
    assert list(attempts) == []
    assert clock.now() == 5.0


def test_a_hook_that_raises_ends_the_loop(clock):
    def refuse(event):
        raise ZeroDivisionError

    attempts = policy(on_backoff=refuse, allowance=RetryAllowance(9, Backoff.fixed(1))).attempts(
        clock.deadline(5)
    )
    with pytest.raises(ZeroDivisionError) as caught:
        for attempt in attempts:
            with attempt:
                always(attempt)
    assert isinstance(caught.value.__context__, Broken)
    assert list(attempts) == []


def test_an_attempt_is_entered_once(clock):
    attempts = policy().attempts(clock.deadline(5))
    attempt = next(attempts)
    with attempt, pytest.raises(RuntimeError, match="enter each attempt once"):
        attempt.__enter__()
    assert attempts.report.outcome == "succeeded"


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
@pytest.mark.parametrize("overrun", Overrun)
def test_a_stop_iteration_of_the_body_is_no_good_end_of_the_loop(clock, colour, overrun):
    """A8: a failure does not look like success."""
    retry = policy(overrun=overrun, allowance=RetryAllowance(9, Backoff.fixed(3)))
    clock.script_oversleep(100)
    error = StopIteration if colour == "blocking" else StopAsyncIteration
    attempts = retry.attempts(clock.deadline(5))

    def loop():
        for attempt in attempts:
            with attempt:
                raise error

    async def aloop():
        async for attempt in attempts:
            with attempt:
                raise error

    with pytest.raises(RuntimeError, match="the last attempt raised Stop") as caught:
        loop() if colour == "blocking" else asyncio.run(aloop())
    assert isinstance(caught.value.__cause__, error)
    assert retry_report(caught.value.__cause__).outcome == "deadline"


# ------------------------------------------------------------------ nothing starts late


def test_a_loop_that_is_begun_late_begins_nothing(clock):
    """A3."""
    attempts = policy().attempts(clock.deadline(5))
    clock.advance(10)
    with pytest.raises(DeadlineExceeded, match="no attempt was started"):
        next(attempts)


def test_what_comes_after_the_body_is_inside_the_budget(clock):
    """A2, A3."""
    starts = []
    with pytest.raises(Broken):
        for attempt in policy(per_attempt=2).attempts(clock.deadline(5)):
            with attempt:
                starts.append((clock.now(), attempt.deadline.remaining()))
                raise Broken
            clock.advance(3)
    assert starts == [(0.0, 2.0), (3.0, 2.0)]


def test_a_backoff_has_begun_when_the_failure_was_seen(clock):
    """A3: what the loop did since is part of it."""
    retry = policy(allowance=RetryAllowance(9, Backoff.fixed(6)))
    starts = []
    with pytest.raises(Broken):
        for attempt in retry.attempts(clock.deadline(10)):
            with attempt:
                starts.append(clock.now())
                raise Broken
            clock.advance(4)
    assert (starts, clock.sleeps) == ([0.0, 6.0], (2.0,))


@pytest.mark.parametrize("slow", ["on_attempt", "on", "hint", "on_backoff"])
@pytest.mark.parametrize("colour", ["call", "acall"])
def test_slow_hooks_and_questions_are_inside_the_budget(clock, slow, colour):
    """A3."""

    def take(_):
        clock.advance(3)
        return slow == "on" or None

    starts = []

    def once(attempt):
        starts.append((clock.now(), attempt.deadline.remaining()))
        raise Broken

    async def aonce(attempt):
        once(attempt)

    retry = policy(**{slow: take}, allowance=RetryAllowance(9, Backoff.fixed(1)))
    deadline = clock.deadline(5)
    with pytest.raises((Broken, DeadlineExceeded)):
        if colour == "call":
            retry.call(once, deadline=deadline)
        else:
            asyncio.run(retry.acall(aonce, deadline=deadline))
    assert starts
    assert all(start + left == 5.0 and left > 0 for start, left in starts)


def test_a_slow_first_hook_leaves_no_time_at_all(clock):
    retry = policy(on_attempt=lambda _: clock.advance(9))
    with pytest.raises(DeadlineExceeded, match="no attempt was started"):
        retry.call(always, deadline=clock.deadline(5))


def test_the_message_of_a_minimum_says_what_is_missing(clock):
    """D6: the deadline has not passed."""
    with pytest.raises(DeadlineExceeded) as caught:
        policy(min_attempt=2).call(always, deadline=clock.deadline(1.5))
    assert str(caught.value) == "retry: 1.5 s are no more than min_attempt; no attempt was started"


# ------------------------------------------------------------------ nothing is lost


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Immutable(Exception):
    def __setattr__(self, name, value):
        raise TypeError("immutable")


class NoNotes(Exception):
    __notes__ = "text"


@pytest.mark.parametrize("make", [lambda: Frozen(3), Immutable, NoNotes])
@pytest.mark.parametrize("form", ["call", "acall", "attempts"])
def test_an_error_that_takes_no_note_comes_through_all_the_same(clock, make, form):
    """A8."""
    error = make()

    def once(attempt):
        raise error

    async def aonce(attempt):
        raise error

    def loop():
        for attempt in policy().attempts(clock.deadline(1)):
            with attempt:
                raise error

    with pytest.raises(type(error)) as caught:
        if form == "call":
            policy().call(once, deadline=clock.deadline(1))
        elif form == "acall":
            asyncio.run(policy().acall(aonce, deadline=clock.deadline(1)))
        else:
            loop()
    assert caught.value is error


def explode(*_):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "options",
    [
        {"on": explode},
        {"on": lambda _: None},
        {"hint": explode},
        {"on_backoff": explode},
        {"on_give_up": explode},
        {"budget": RetryBudget(5, cost=explode)},
    ],
    ids=["on", "answer", "hint", "on_backoff", "on_give_up", "cost"],
)
@pytest.mark.parametrize("form", ["call", "acall"])
def test_what_goes_wrong_in_the_policy_does_not_hide_the_failure(clock, options, form):
    """A8."""

    async def aonce(attempt):
        always(attempt)

    retry = policy(allowance=RetryAllowance(1, Backoff.fixed(1)), **options)
    with pytest.raises((ZeroDivisionError, TypeError)) as caught:
        if form == "call":
            retry.call(always, deadline=clock.deadline(5))
        else:
            asyncio.run(retry.acall(aonce, deadline=clock.deadline(5)))
    assert str(caught.value.__context__) == "the real failure"


@pytest.mark.parametrize("how", ["sleeper", "attempt", "on", "on_give_up"])
def test_no_cycle_is_left_when_a_call_ends_in_another_way(clock, how):
    """H3."""

    class Resource:
        pass

    def trial():
        errors = [Broken(), Broken()]
        errors[0].resource = errors[1].resource = Resource()
        gone = weakref.ref(errors[0].resource)
        options = {how: explode} if how.startswith("on") else {}
        if how == "sleeper":
            clock.script_sleep_failure(KeyboardInterrupt())

        def once(attempt):
            if how == "attempt" and attempt.number == 2:
                raise KeyboardInterrupt
            raise errors.pop()

        with suppress(ZeroDivisionError, KeyboardInterrupt, Broken):
            policy(allowance=RetryAllowance(1, Backoff.fixed(1)), **options).call(
                once, deadline=clock.deadline(5)
            )
        return gone

    gc.collect()
    gc.disable()
    try:
        gone = trial()
        clock._scripted.clear()
        assert gone() is None
    finally:
        gc.enable()


def test_a_clock_that_goes_back_during_the_first_attempt_is_noticed():
    """C4."""
    readings = iter([100, 100, 50, 50, 50])

    class Back(SteadyClock):
        def now_ns(self):
            return next(readings)

    with pytest.raises(ClockError, match="went backwards"):
        policy().call(always, deadline=Deadline.after(5, clock=Back()))


# ------------------------------------------------------------------ tasks


@pytest.mark.parametrize("form", ["acall", "attempts"])
def test_failing_at_once_starves_no_loop(form):
    """A6: a cancel gets through between attempts without a backoff."""
    clock = FakeClock()
    retry = policy(allowance=RetryAllowance(10**9))
    made = []

    async def once(attempt):
        made.append(attempt.number)
        raise Broken

    async def caller():
        if form == "acall":
            await retry.acall(once, deadline=Deadline.never(clock=clock))
        else:
            async for attempt in retry.attempts(Deadline.never(clock=clock)):
                with attempt:
                    await once(attempt)

    async def main():
        task = asyncio.create_task(caller())
        for _ in range(20):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert task.cancelled()

    asyncio.run(main())
    assert 1 < len(made) < 40


# ------------------------------------------------------------------ budgets


def test_a_hook_that_refuses_an_attempt_costs_nothing(clock):
    budget = RetryBudget(10)

    def refuse(event):
        if event.number == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        policy(budget=budget, on_attempt=refuse).call(always, deadline=clock.deadline(5))
    assert budget.tokens == 10.0


def test_a_loop_that_is_left_before_its_retry_costs_nothing(clock):
    budget = RetryBudget(10)
    for attempt in policy(budget=budget).attempts(clock.deadline(5)):
        with attempt:
            raise Broken
        break
    assert budget.tokens == 10.0


@pytest.mark.parametrize(
    "options",
    [{"capacity": 0}, {"capacity": 5, "cost": 14}, {"capacity": 5, "threshold": 5}],
)
def test_a_budget_that_never_grants_anything_is_refused(options):
    """N4."""
    with pytest.raises(ValueError, match="must allow one retry at least"):
        RetryBudget(**options)


def test_a_clock_that_swings_brings_no_tokens():
    """C4."""
    clock = FakeClock(100)
    budget = RetryBudget(10, per_second=1, clock=clock)
    for _ in range(10):
        budget.spend(Broken())
    for _ in range(3):
        clock._timeline.steady -= 50 * 10**9
        assert budget.tokens == 0.0
        clock._timeline.steady += 50 * 10**9
        assert budget.tokens == 0.0


def test_ten_tenths_are_a_token():
    """T6."""
    budget = RetryBudget(1, earned=0.1)
    budget.spend(Broken())
    for _ in range(10):
        budget.succeeded(None)
    assert budget.spend(Broken()) == 1


# ------------------------------------------------------------------ decorated


def test_a_decorated_functions_deadline_is_found_wherever_it_stands(clock):
    """A9: and nothing else is taken for it."""
    retry = policy(per_attempt=1)

    @retry
    def merge(*deadlines, deadline):
        return [each.remaining() for each in deadlines], deadline.remaining()

    far, near = clock.deadline(200), clock.deadline(5)
    assert merge(far, far, deadline=near) == ([200.0, 200.0], 1.0)

    @retry
    def only(deadline, /, *rest, **more):
        return deadline.remaining(), rest, more

    assert only(near, 1, 2, deadline=3) == (1.0, (1, 2), {"deadline": 3})

    class Service:
        @retry
        def fetch(self, name, deadline):
            return name, deadline.remaining()

    assert Service().fetch("a", near) == ("a", 1.0)
    assert Service().fetch("a", deadline=near) == ("a", 1.0)


def test_what_can_never_be_retried_is_refused_where_it_is_decorated():
    """A9, A32."""

    def generator(deadline):
        yield

    async def agenerator(deadline):
        yield

    def default(deadline=None):
        pass

    def variadic(**deadline):
        pass

    for fn, match in (
        (generator, "is a generator"),
        (agenerator, "is a generator"),
        (default, "no default for deadline"),
        (variadic, "must take deadline"),
    ):
        with pytest.raises(TypeError, match=match):
            policy()(fn)


def test_a_marked_effect_needs_a_form_that_can_mark():
    """A7: a decorated function would be repeated although its effect may have happened."""
    retry = Retry(
        on=Broken,
        effect=Effect.UNSAFE,
        effect_marked=True,
        allowance=RetryAllowance(3),
    )
    with pytest.raises(TypeError, match=r"attempt\.effect_may_begin\(\): use call, acall or"):

        @retry
        def pay(deadline):
            pass


def test_a_callable_object_is_decorated_by_its_colour(clock):
    class Target:
        async def __call__(self, deadline):
            await asyncio.sleep(0)
            return deadline.remaining()

    assert asyncio.run(policy(per_attempt=1)(Target())(clock.deadline(5))) == 1.0


def test_a_policy_checks_all_its_parts_where_it_is_written():
    for options, match in (({"budget": 5}, "budget"), ({"wall": None}, "wall clock")):
        with pytest.raises(TypeError, match=match):
            policy(**options)


def test_a_hint_in_a_broken_time_zone_is_malformed(clock):
    """A5."""

    class Zone(tzinfo):
        def utcoffset(self, when):
            raise ValueError

    said = datetime(2026, 1, 1, tzinfo=Zone())
    with pytest.raises(Broken) as caught:
        policy(hint=lambda _: said, strict_hints=True).call(always, deadline=clock.deadline(5))
    assert retry_report(caught.value).outcome == "hint"


def test_a_hooks_own_context_is_kept(clock):
    """A8: what it was handling when it failed is not replaced."""

    def hook(event):
        try:
            raise KeyError("its own")
        except KeyError:
            raise ZeroDivisionError  # noqa: B904  (the context is the point)

    retry = policy(allowance=RetryAllowance(0), on_give_up=hook)
    with pytest.raises(ZeroDivisionError) as caught:
        retry.call(always, deadline=clock.deadline(5))
    assert isinstance(caught.value.__context__, KeyError)


def test_a_hook_that_leaves_just_the_least_time_starts_no_attempt(clock):
    """A3: with no more than `min_attempt` left there is none."""
    made = []

    def hook(event):
        clock.jump(1)

    retry = policy(min_attempt=1, on_attempt=hook)
    with pytest.raises(DeadlineExceeded):
        retry.call(made.append, deadline=clock.deadline(2))
    assert made == []
