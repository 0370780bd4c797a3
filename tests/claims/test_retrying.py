"""A1-A9 and the cases A30-A38: retrying under one budget, in every form and both colours."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import sys
import weakref
from datetime import UTC, datetime, timedelta

import pytest

from timebounds import (
    Attempt,
    Backoff,
    ClockError,
    Deadline,
    DeadlineExceeded,
    Effect,
    IdleTimeout,
    Overrun,
    Retry,
    RetryAllowance,
    RetryEvent,
    RetryOutcome,
    SteadyClock,
    log_retries,
    retry_report,
)
from timebounds.testing import FakeClock

FORMS = ["call", "attempts", "decorator", "acall", "aattempts", "adecorator"]


class Broken(Exception):
    """What the scripted target raises."""


class Target:
    """A target that takes so long and then fails, or not, as its script says."""

    def __init__(self, clock, *script, value="value"):
        self.clock = clock
        self.script = list(script)
        self.value = value
        self.starts = []
        self.limits = []
        self.seen = []

    def once(self, attempt):
        self.seen.append(attempt)
        return self.under(attempt.deadline)

    def under(self, deadline):
        self.starts.append(self.clock.now())
        self.limits.append(deadline.remaining())
        lasts, error = self.script.pop(0) if self.script else (0, None)
        self.clock.advance(lasts)
        if error is not None:
            raise error if isinstance(error, BaseException) else error("broken")
        return self.value


def fails(*lengths, error=Broken):
    return [(length, error) for length in lengths]


def policy(**options):
    options.setdefault("on", Broken)
    options.setdefault("effect", Effect.IDEMPOTENT)
    options.setdefault("allowance", RetryAllowance(10))
    return Retry(**options)


def run(form, retry, target, deadline, **options):
    """Run one retried call in one form."""
    if form == "call":
        return retry.call(target.once, deadline=deadline, **options)
    if form == "attempts":
        for attempt in retry.attempts(deadline, **options):
            with attempt:
                return target.once(attempt)
    if form == "decorator":

        @retry
        def decorated(deadline):
            return target.under(deadline)

        return decorated(deadline)

    async def once(attempt):
        await asyncio.sleep(0)
        return target.once(attempt)

    async def aattempts():
        async for attempt in retry.attempts(deadline, **options):
            with attempt:
                return await once(attempt)
        return None

    async def main():
        if form == "acall":
            return await retry.acall(once, deadline=deadline, **options)
        if form == "aattempts":
            return await aattempts()

        @retry
        async def decorated(x, *, deadline):
            await asyncio.sleep(0)
            return target.under(deadline)

        return await decorated(1, deadline=deadline)

    return asyncio.run(main())


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


def gives_up(form, retry, target, deadline, error=Broken, **options):
    with pytest.raises(error) as caught:
        run(form, retry, target, deadline, **options)
    report = retry_report(caught.value)
    return caught.value, report


# ------------------------------------------------------------------ one budget


def test_a_success_is_just_the_value(form, clock):
    target = Target(clock)
    assert run(form, policy(), target, clock.deadline(1)) == "value"
    assert target.starts == [0.0]


def test_every_attempt_gets_what_remains(form, clock):
    """A2, case A31: 50, 50, 110 s under 120."""
    target = Target(clock, *fails(50, 50, 70))
    error, report = gives_up(form, policy(), target, clock.deadline(120), Broken)
    assert target.limits == [120.0, 70.0, 20.0]
    assert report.outcome == "deadline"
    assert [record.granted for record in report.attempts] == [120.0, 70.0, 20.0]
    assert report.overshoot == 50.0
    assert error.args == ("broken",)


def test_no_attempt_starts_at_or_after_the_deadline(form, clock):
    """A3, case A30: 1, 2, 4 under 5 are tries at 0, 1 and 3."""
    retry = policy(allowance=RetryAllowance(10, Backoff.exponential(1, cap=60)))
    target = Target(clock, *fails(0, 0, 0, 0, 0))
    _, report = gives_up(form, retry, target, clock.deadline(5))
    assert target.starts == [0.0, 1.0, 3.0]
    assert (report.outcome, clock.now()) == ("overrun", 3.0)


def test_waiting_to_the_end_can_be_chosen(form, clock):
    """A3: then no attempt follows either."""
    retry = policy(
        allowance=RetryAllowance(10, Backoff.exponential(1, cap=60)), overrun=Overrun.CAP
    )
    target = Target(clock, *fails(0, 0, 0, 0, 0))
    _, report = gives_up(form, retry, target, clock.deadline(5))
    assert target.starts == [0.0, 1.0, 3.0]
    assert (report.outcome, clock.now(), report.slept) == ("deadline", 5.0, 5.0)


def test_an_expired_deadline_starts_nothing(form, clock):
    """A3, N4."""
    target = Target(clock)
    with pytest.raises(DeadlineExceeded, match="no attempt was started"):
        run(form, policy(), target, clock.deadline(0))
    assert target.starts == []


def test_an_attempt_can_have_a_limit_of_its_own(form, clock):
    """A2, case A32: total 10, 4 each, two attempts that hang."""
    retry = policy(per_attempt=4, allowance=RetryAllowance(1), on=TimeoutError)
    target = Target(clock, *fails(4, 4, error=TimeoutError))
    _, report = gives_up(form, retry, target, clock.deadline(10), TimeoutError)
    assert (target.starts, target.limits) == ([0.0, 4.0], [4.0, 4.0])
    assert report.outcome == "attempts"
    target = Target(clock, *fails(4, 3, error=TimeoutError))
    gives_up(form, retry, target, clock.deadline(7), TimeoutError)
    assert target.limits == [4.0, 3.0]


def test_what_can_not_finish_is_not_started(form, clock):
    """A minimum attempt time, at the start and before a retry."""
    retry = policy(min_attempt=2, allowance=RetryAllowance(10, Backoff.fixed(1)))
    target = Target(clock, *fails(1, 1, 1, 1))
    _, report = gives_up(form, retry, target, clock.deadline(6))
    assert (target.starts, report.outcome) == ([0.0, 2.0], "overrun")
    with pytest.raises(DeadlineExceeded):
        run(form, retry, target, clock.deadline(2))
    target = Target(clock, *fails(4))
    _, report = gives_up(form, retry, target, clock.deadline(6))
    assert report.outcome == "deadline"


def test_an_overslept_backoff_is_told(form, clock):
    """A3: the clock is read again after it."""
    retry = policy(allowance=RetryAllowance(10, Backoff.fixed(1)))
    clock.script_oversleep(10)
    target = Target(clock, *fails(0, 0))
    error, report = gives_up(form, retry, target, clock.deadline(5))
    assert target.starts == [0.0]
    assert (report.outcome, report.slept, report.overshoot) == ("deadline", 11.0, 6.0)
    assert error.args == ("broken",)


def test_under_a_never_deadline_the_allowance_is_the_bound(form, clock):
    target = Target(clock, *fails(1, 1, 1, 1))
    retry = policy(allowance=RetryAllowance(2))
    _, report = gives_up(form, retry, target, Deadline.never(clock=clock))
    assert len(target.starts) == 3
    assert [record.granted for record in report.attempts] == [float("inf")] * 3


# ------------------------------------------------------------------ what is retried


def test_a_failure_of_another_kind_is_fatal(form, clock):
    """A8."""
    target = Target(clock, *fails(1, error=KeyError))
    _, report = gives_up(form, policy(), target, clock.deadline(5), KeyError)
    assert (len(target.starts), report.outcome) == (1, "fatal")


@pytest.mark.parametrize("on", [(Broken, KeyError), Exception, lambda error: True])
def test_kinds_are_types_or_a_function(form, clock, on):
    target = Target(clock, *fails(0, 0))
    assert run(form, policy(on=on), target, clock.deadline(5)) == "value"
    assert len(target.starts) == 3


def test_a_function_may_answer_not_before(form, clock):
    """A floor for the backoff, seconds or timedelta."""
    answers = iter([2, timedelta(seconds=3), 0.25, False])
    retry = policy(on=lambda _: next(answers), allowance=RetryAllowance(9, Backoff.fixed(1)))
    target = Target(clock, *fails(0, 0, 0, 0))
    _, report = gives_up(form, retry, target, clock.deadline(100))
    assert target.starts == [0.0, 2.0, 5.0, 6.0]
    assert report.outcome == "fatal"


class Boom(BaseException):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, Boom])
@pytest.mark.parametrize("form", ["call", "attempts", "decorator"])
def test_only_an_exception_is_a_failure(form, clock, kind):
    """A6, case A36: "everything but ValueError" takes no interrupt for a failure."""
    retry = policy(on=lambda error: not isinstance(error, ValueError))
    target = Target(clock, *fails(0, error=kind))
    with pytest.raises(kind):
        run(form, retry, target, clock.deadline(5))
    assert len(target.starts) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Boom, TimeoutError])
@pytest.mark.parametrize("form", ["call", "attempts", "decorator"])
def test_what_the_sleeper_raises_passes(form, clock, kind):
    """A6: a TimeoutError of the clock is no failure of the target."""
    retry = policy(on=Exception, allowance=RetryAllowance(9, Backoff.fixed(1)))
    clock.script_sleep_failure(kind("sleeper"))
    target = Target(clock, *fails(0))
    with pytest.raises(kind, match="sleeper"):
        run(form, retry, target, clock.deadline(5))
    assert len(target.starts) == 1


@pytest.mark.parametrize("when", ["attempt", "backoff"])
@pytest.mark.parametrize("form", ["acall", "aattempts"])
def test_a_cancel_leaves_within_one_pass_of_the_loop(form, when):
    """A6, case A36: during the attempt and during the backoff."""
    clock = FakeClock()
    retry = policy(
        on=lambda error: not isinstance(error, ValueError),
        allowance=RetryAllowance(9, Backoff.fixed(60)),
    )
    starts = []

    async def once(attempt):
        starts.append(attempt.number)
        if when == "attempt":
            await asyncio.get_running_loop().create_future()
        raise Broken

    async def caller():
        if form == "acall":
            await retry.acall(once, deadline=clock.deadline(1000))
        else:
            async for attempt in retry.attempts(clock.deadline(1000)):
                with attempt:
                    await once(attempt)

    async def main():
        task = asyncio.create_task(caller())
        while not (starts and (when == "attempt" or clock.waiting)):  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert task.cancelled()
        assert task.cancelling() == 1

    asyncio.run(main())
    assert starts == [1]


def test_an_own_bound_is_not_retried_and_an_attempts_is(form, clock):
    """A6: the deadline is asked, not the class of the error."""
    retry = policy(on=TimeoutError, per_attempt=1, allowance=RetryAllowance(5))
    target = Target(clock, (1, DeadlineExceeded), (1, IdleTimeout), (0, None))
    assert run(form, retry, target, clock.deadline(10)) == "value"
    target = Target(clock, (2, DeadlineExceeded))
    _, report = gives_up(form, retry, target, clock.deadline(2), DeadlineExceeded)
    assert report.outcome == "deadline"


def test_a_clock_that_goes_back_is_an_error(clock):
    """C4."""
    readings = iter([10, 10, 5, 4, 3, 2, 1])

    class Back(SteadyClock):
        def now_ns(self):
            return next(readings)

    def once(attempt):
        raise Broken

    with pytest.raises(ClockError):
        policy().call(once, deadline=Deadline.after(9, clock=Back()))


# ------------------------------------------------------------------ effects


def test_unsafe_with_retries_is_refused_at_once():
    """A7."""
    with pytest.raises(ValueError, match=r"UNSAFE can not be retried.*effect_marked=True"):
        policy(effect=Effect.UNSAFE)
    with pytest.raises(TypeError, match=r"effect must be one of Effect\.READ_ONLY"):
        policy(effect="read_only")
    with pytest.raises(TypeError, match="effect"):
        Retry(on=Broken, allowance=RetryAllowance(1))
    policy(effect=Effect.UNSAFE, allowance=RetryAllowance.none())


@pytest.mark.parametrize("form", ["call", "attempts", "acall", "aattempts"])
def test_an_unsafe_call_is_retried_until_its_effect_may_have_begun(form, clock):
    """A7, case A37: after that its effect is unknown."""
    retry = policy(effect=Effect.UNSAFE, effect_marked=True)

    class Sending(Target):
        def once(self, attempt):
            if len(self.starts) == 2:
                attempt.effect_may_begin()
            return super().once(attempt)

    target = Sending(clock, *fails(1, 1, 1, 1))
    error, report = gives_up(form, retry, target, clock.deadline(100))
    assert (len(target.starts), report.outcome) == (3, "unsafe")
    assert "an effect may have happened and is unknown" in error.__notes__[0]


@pytest.mark.parametrize("effect", [Effect.READ_ONLY, Effect.IDEMPOTENT])
@pytest.mark.parametrize("form", ["call", "acall"])
def test_a_repeatable_call_may_mark_its_effect_and_is_retried(form, clock, effect):
    """A7."""

    class Sending(Target):
        def once(self, attempt):
            attempt.effect_may_begin()
            return super().once(attempt)

    target = Sending(clock, *fails(1))
    assert run(form, policy(effect=effect), target, clock.deadline(5)) == "value"


@pytest.mark.parametrize("form", ["call", "attempts", "acall", "aattempts"])
def test_a_deduplicated_call_needs_its_key(form, clock):
    """A7: the key is a fact of the call."""
    retry = policy(effect=Effect.DEDUPLICATED)
    target = Target(clock, *fails(0))
    with pytest.raises(TypeError, match="pass key="):
        run(form, retry, target, clock.deadline(5))
    assert run(form, retry, target, clock.deadline(5), key="k1") == "value"
    assert [attempt.key for attempt in target.seen] == ["k1", "k1"]
    with pytest.raises(TypeError, match="IDEMPOTENT: leave it out"):
        run(form, policy(), target, clock.deadline(5), key="k1")


def test_a_decorated_deduplicated_function_takes_its_key(clock):
    retry = policy(effect=Effect.DEDUPLICATED)
    keys = []

    @retry
    def put(name, key, *, deadline):
        keys.append((name, key))
        if len(keys) < 2:
            raise Broken
        return deadline.remaining()

    assert put("a", "k", deadline=clock.deadline(5)) == 5.0
    assert keys == [("a", "k")] * 2
    with pytest.raises(
        TypeError, match=r"must take key: write def no_key\(\.\.\., deadline, key\)"
    ):

        @retry
        def no_key(deadline):
            pass


@pytest.mark.parametrize("form", ["call", "attempts", "acall", "aattempts"])
def test_a_marker_is_handed_to_the_next_attempt(form, clock):
    """A7: durable progress."""
    found = []

    class Resuming(Target):
        def once(self, attempt):
            found.append(attempt.marker)
            attempt.marker = attempt.number * 10
            return super().once(attempt)

    target = Resuming(clock, *fails(0, 0))
    run(form, policy(), target, clock.deadline(5))
    assert found == [None, 10, 20]
    target = Resuming(clock, *fails(0, 0))
    retry = policy(allowance=RetryAllowance(1))
    _, report = gives_up(form, retry, target, clock.deadline(5))
    assert report.marker == 20


# ------------------------------------------------------------------ allowances


def test_each_call_starts_from_the_value_that_the_policy_was_given(form, clock):
    """A1."""
    retry = policy(allowance=RetryAllowance(2))
    for _ in range(2):
        target = Target(clock, *fails(0, 0, 0, 0))
        _, report = gives_up(form, retry, target, clock.deadline(5))
        assert (len(target.starts), report.outcome) == (3, "attempts")


def test_layers_that_share_an_allowance_make_no_more_starts_than_one(clock):
    """A1, case A38: 4 attempts in all, not 4 times 3."""
    shared = RetryAllowance(3).shared()
    target = Target(clock, *fails(*[1] * 20))
    inner = policy(allowance=shared)
    outer = policy(allowance=shared)

    def middle(attempt):
        return inner.call(target.once, deadline=attempt.deadline)

    with pytest.raises(Broken):
        outer.call(middle, deadline=clock.deadline(100))
    assert len(target.starts) == 4


# ------------------------------------------------------------------ hints


@pytest.mark.parametrize(
    ("said", "starts"),
    [
        (2, [0.0, 2.0]),
        ("2", [0.0, 2.0]),
        (0.25, [0.0, 0.5]),
        (timedelta(seconds=3), [0.0, 3.0]),
        ("Sat, 01 Jan 2000 00:00:04 GMT", [0.0, 4.0]),
        (datetime(2000, 1, 1, 0, 0, 5, tzinfo=UTC), [0.0, 5.0]),
        ("Fri, 31 Dec 1999 00:00:00 GMT", [0.0, 0.5]),
        (None, [0.0, 0.5]),
    ],
)
def test_a_hint_is_a_floor_for_the_backoff(form, clock, said, starts):
    """A5, case A33: larger than our backoff it wins, smaller it does not shorten it."""
    allowance = RetryAllowance(5, Backoff.fixed(0.5))
    retry = policy(hint=lambda _: said, allowance=allowance, wall=clock.wall)
    target = Target(clock, *fails(0))
    assert run(form, retry, target, clock.deadline(10)) == "value"
    assert target.starts == starts


@pytest.mark.parametrize("said", ["3600", 3600, 10, "9" * 400])
def test_a_hint_beyond_the_budget_stops_at_once(form, clock, said):
    """A5, case A33: nobody sleeps an hour, or ten seconds only to fail."""
    retry = policy(hint=lambda _: said)
    target = Target(clock, *fails(0, 0))
    error, report = gives_up(form, retry, target, clock.deadline(10))
    assert (clock.now(), report.outcome, report.hint) == (0.0, "hint", said)
    assert "hint" in error.__notes__[0]


MALFORMED = ["soon", "-1", "1.5", "1_000", "\u0661", "", "Sat, 99 Foo", float("nan"), True, b"2"]


@pytest.mark.parametrize("said", [*MALFORMED, datetime(2026, 1, 1)])  # noqa: DTZ001
@pytest.mark.parametrize("form", ["call", "acall"])
def test_a_malformed_hint_is_ignored_or_stops_by_declaration(form, clock, said):
    """A5."""
    target = Target(clock, *fails(0))
    assert run(form, policy(hint=lambda _: said), target, clock.deadline(10)) == "value"
    assert clock.sleeps == ()
    target = Target(clock, *fails(0))
    retry = policy(hint=lambda _: said, strict_hints=True)
    _, report = gives_up(form, retry, target, clock.deadline(10))
    assert report.outcome == "hint"


# ------------------------------------------------------------------ hooks and evidence


def test_hooks_see_snapshots_without_payload(form, clock):
    seen = []
    retry = policy(
        allowance=RetryAllowance(1, Backoff.fixed(0.5)),
        on_attempt=lambda event: seen.append(("attempt", event)),
        on_backoff=lambda event: seen.append(("backoff", event)),
        on_give_up=lambda event: seen.append(("give up", event)),
    )
    clock.advance(100)
    _, report = gives_up(form, retry, Target(clock, *fails(1, 1)), clock.deadline(10))
    assert [(name, event[:5]) for name, event in seen] == [
        ("attempt", (1, 0.0, 10.0, None, None)),
        ("backoff", (1, 1.0, 9.0, Broken, 0.5)),
        ("attempt", (2, 1.5, 8.5, Broken, None)),
        ("give up", (2, 2.5, 7.5, Broken, None)),
    ]
    assert seen[-1][1].report == report
    assert "broken" not in repr(seen)
    seen.clear()
    gives_up(form, retry, Target(clock, *fails(3)), clock.deadline(2))
    assert [event.remaining for _, event in seen] == [2.0, 0.0]
    seen.clear()
    gives_up(form, retry, Target(clock, *fails(1, 1)), Deadline.never(clock=clock))
    assert {event.remaining for _, event in seen} == {float("inf")}


def test_retries_are_logged_without_payload(form, clock, caplog):
    logger = logging.getLogger("orders")
    with caplog.at_level(logging.INFO, "orders"):
        retry = policy(allowance=RetryAllowance(1, Backoff.fixed(0.5)), **log_retries(logger))
        gives_up(form, retry, Target(clock, *fails(1, 1)), clock.deadline(10))
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "attempt 1 failed with Broken after 1.000 s: next one in 0.500 s, 9.000 s remain"),
        ("WARNING", "gave up after 2 attempts in 2.500 s: attempts (Broken)"),
    ]


def test_hooks_log_what_there_is():
    lines = []

    class Lines:
        def log(self, level, text, *args):
            lines.append(text % args)

    hooks = log_retries(Lines())
    hooks["on_backoff"](RetryEvent(1, 0.0, 1.0, None, 0.5))
    hooks["on_give_up"](RetryEvent(0, 0.0, 1.0))
    assert "failed with ? after" in lines[0]
    assert lines[1] == "gave up after 0 attempts in 0.000 s: ? (no error)"


@pytest.mark.parametrize("hook", ["on_attempt", "on_backoff", "on_give_up"])
def test_what_a_hook_raises_propagates(form, clock, hook):
    def refuse(event):
        raise ZeroDivisionError

    options = {hook: refuse}
    retry = policy(allowance=RetryAllowance(1, Backoff.fixed(0.5)), **options)
    with pytest.raises(ZeroDivisionError):
        run(form, retry, Target(clock, *fails(0, 0, 0)), clock.deadline(10))


def test_giving_up_raises_the_callers_own_error_with_a_note(form, clock):
    """A8: and the history is in reach."""
    own = Broken("mine", 1)
    retry = policy(allowance=RetryAllowance(1, Backoff.fixed(0.5)))
    target = Target(clock, (1, Broken), (2, own))
    error, report = gives_up(form, retry, target, clock.deadline(10))
    assert error is own
    assert error.__notes__ == ["gave up after 2 attempts in 3.5 s: no retry is left"]
    assert error.__cause__ is None
    assert report.outcome is RetryOutcome.ATTEMPTS
    assert report.attempts == (
        (1, 0.0, 1.0, 10.0, Broken),
        (2, 1.5, 2.0, 8.5, Broken),
    )
    assert (report.elapsed, report.slept, report.overshoot) == (3.5, 0.5, 0.0)
    assert pickle.loads(pickle.dumps(report)) == report == copy.deepcopy(report)


def test_an_error_whose_class_has_no_room_still_has_the_note(clock):
    class Full(Exception):
        def __setattr__(self, name, value):
            if not name.startswith("__notes"):
                raise AttributeError(name)
            super().__setattr__(name, value)

    error, report = gives_up(
        "call", policy(on=KeyError), Target(clock, (0, Full)), clock.deadline(1), Full
    )
    assert report is None
    assert "gave up after 1 attempt" in error.__notes__[0]
    assert retry_report(ValueError()) is None
    foreign = ValueError()
    foreign.__timebounds_retry_report__ = "something else"
    assert retry_report(foreign) is None


@pytest.mark.parametrize("form", ["call", "attempts", "decorator"])
def test_no_cycle_keeps_what_failed_alive(form, clock):
    """H3."""

    class Resource:
        pass

    def trial():
        errors = [Broken(), Broken()]
        errors[0].resource = errors[1].resource = Resource()
        gone = weakref.ref(errors[0].resource)

        class Failing(Target):
            def under(self, deadline):
                raise errors.pop()  # in no local: that would be a cycle of its own

        with pytest.raises(Broken):
            run(form, policy(allowance=RetryAllowance(1)), Failing(clock), clock.deadline(1))
        return gone

    gc.collect()
    gc.disable()
    try:
        gone = trial()
        assert gone() is None
    finally:
        gc.enable()


# ------------------------------------------------------------------ the forms


def test_the_loop_form_reports(clock):
    attempts = policy().attempts(clock.deadline(5))
    assert attempts.report is None
    target = Target(clock, *fails(1))
    for attempt in attempts:
        with attempt:
            target.once(attempt)
    assert attempts.report.outcome == "succeeded"
    assert [record.error for record in attempts.report.attempts] == [Broken, None]
    assert attempts.report.hint is None


def test_a_loop_that_is_left_early_is_over(clock):
    attempts = policy().attempts(clock.deadline(5))
    for attempt in attempts:
        with attempt:
            break
    assert attempts.report.outcome == "succeeded"
    assert list(attempts) == []


def test_a_loop_whose_attempt_is_not_entered_is_told(clock):
    with pytest.raises(RuntimeError, match="write `with attempt:` around the body"):
        for _ in policy().attempts(clock.deadline(5)):
            pass
    attempts = policy().attempts(clock.deadline(5))
    attempt = next(attempts)
    with attempt:
        pass
    with pytest.raises(RuntimeError, match="belongs, once, into"), attempt:
        pass


def test_an_attempt_of_another_form_is_no_context_manager(clock):
    def once(attempt):
        with attempt:
            pass

    with pytest.raises(RuntimeError, match=r"for attempt in policy\.attempts"):
        policy().call(once, deadline=clock.deadline(5))


def test_arguments_reach_the_function(clock):
    def once(attempt, a, b):
        assert isinstance(attempt, Attempt)
        assert repr(attempt) == f"<Attempt {attempt.number}>"
        return a + b

    assert policy().call(once, 1, 2, deadline=clock.deadline(5)) == 3

    async def aonce(attempt, a, b):
        return a * b

    async def main():
        return await policy().acall(aonce, 3, 4, deadline=clock.deadline(5))

    assert asyncio.run(main()) == 12


def test_a_decorated_function_receives_the_attempts_own_deadline(clock):
    """A9: wherever its deadline is given."""
    retry = policy(per_attempt=2)
    left = []

    @retry
    def fetch(name, deadline, extra="x"):
        """Doc."""
        left.append((name, deadline.remaining(), extra))
        return name

    assert fetch("a", clock.deadline(5)) == "a"
    assert fetch("b", deadline=clock.deadline(1), extra="y") == "b"
    assert fetch("c", clock.deadline(5), "z") == "c"
    assert left == [("a", 2.0, "x"), ("b", 1.0, "y"), ("c", 2.0, "z")]
    assert fetch.__doc__ == "Doc."
    with pytest.raises(TypeError, match=r"deadline must be a Deadline.*Deadline\.after"):
        fetch("a")
    with pytest.raises(TypeError, match="Deadline"):
        fetch("a", 2.0)
    with pytest.raises(TypeError, match=r"must take deadline: write def wrong\(\.\.\., deadline\)"):

        @retry
        def wrong(x):
            pass


@pytest.mark.parametrize("form", ["call", "attempts", "decorator"])
def test_the_blocking_forms_refuse_a_loops_thread(form, clock):
    """R11, A54."""

    async def main():
        with pytest.raises(RuntimeError, match="event loop"):
            run(form, policy(), Target(clock), clock.deadline(5))

    asyncio.run(main())


def test_what_on_and_hint_are_asked_about_is_the_failure_itself(form, clock):
    own, asked = Broken("own"), []

    def on(error):
        asked.append(error)
        return len(asked) < 3

    retry = policy(on=on, hint=asked.append)
    gives_up(form, retry, Target(clock, (0, own), (0, own)), clock.deadline(5))
    assert asked == [own, own, own]


@pytest.mark.parametrize("answer", [None, "yes", -1, float("nan")])
def test_an_answer_that_is_none_is_told(form, clock, answer):
    with pytest.raises((TypeError, ValueError), match=r"^the answer of `on` must"):
        run(form, policy(on=lambda _: answer), Target(clock, *fails(0)), clock.deadline(5))


def test_an_attempts_deadline_is_on_the_same_clock_and_the_shared_one_in_a_tie(clock):
    shared = clock.deadline(2)
    retry = policy(per_attempt=2)
    assert retry.call(lambda attempt: attempt.deadline, deadline=shared) is shared
    own = policy(per_attempt=1).call(lambda attempt: attempt.deadline, deadline=shared)
    assert own.clock is clock
    assert own.remaining() == 1.0


def test_a_wrong_policy_is_refused_where_it_is_written():
    for options, error, match in (
        ({"on": KeyboardInterrupt}, TypeError, "KeyboardInterrupt is none"),
        ({"on": (Broken, int)}, TypeError, "int is none"),
        ({"on": ()}, TypeError, "on must be"),
        ({"on": "Broken"}, TypeError, "on must be"),
        ({"allowance": 3}, TypeError, r"RetryAllowance\(2\)"),
        ({"per_attempt": 0}, ValueError, "per_attempt"),
        ({"per_attempt": "1"}, TypeError, "per_attempt"),
        ({"min_attempt": -1}, ValueError, "min_attempt"),
        ({"overrun": "cap"}, TypeError, "Overrun"),
        ({"hint": 3}, TypeError, "hint must be a function"),
        ({"on_attempt": 3}, TypeError, "on_attempt must be a function"),
    ):
        with pytest.raises(error, match=match):
            policy(**options)


def test_a_policy_is_a_value():
    """A9: frozen, shown by what it is."""
    retry = policy(allowance=RetryAllowance(2))
    assert repr(retry).startswith("Retry(on=<class ")
    with pytest.raises(AttributeError, match="a Retry never changes"):
        retry.on = KeyError
    for call in (retry.call, retry.acall):
        with pytest.raises(TypeError):
            asyncio.run(call(lambda attempt: None, deadline=2.0))


def test_a_loop_in_a_task_ends_when_its_call_has_succeeded(clock):
    async def main():
        attempts = policy().attempts(clock.deadline(5))
        numbers = []
        async for attempt in attempts:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    raise Broken
        return numbers, attempts.report.outcome

    assert asyncio.run(main()) == ([1, 2, 3], "succeeded")


def test_where_asyncio_is_not_loaded_nothing_asks_for_a_loop(clock, monkeypatch):
    """R11."""
    monkeypatch.delitem(sys.modules, "asyncio.events")
    assert policy().call(lambda attempt: attempt.number, deadline=clock.deadline(1)) == 1
    assert "asyncio.events" not in sys.modules


def test_a_later_attempt_that_is_not_entered_is_told_too(clock):
    attempts = policy().attempts(clock.deadline(5))
    with next(attempts):
        raise Broken
    assert attempts.report is None
    next(attempts)
    assert attempts.report is None
    with pytest.raises(RuntimeError, match="<Attempt 2> was not entered"):
        next(attempts)
    assert list(attempts) == []
