"""What a retried call costs, beside other libraries, and how each of them spends one second."""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import logging
import random
import time
import tracemalloc
from typing import NamedTuple

from harness import Claims, Rounds, begin, table

from timebounds import (
    Backoff,
    Deadline,
    Effect,
    Overrun,
    Retry,
    RetryAllowance,
    RetryOutcome,
    retry_report,
)

LIBRARIES = {
    "tenacity": "tenacity",
    "stamina": "stamina",
    "backoff": "backoff",
    "google-api-core": "google.api_core.retry",
}
HAND = "by hand"
CALL = "Retry.call"
LOOP = "attempts form"
POLICY = Retry(
    on=OSError,
    effect=Effect.IDEMPOTENT,
    allowance=RetryAllowance(3, Backoff.exponential(0.1, cap=2.0)),
)


class Failed(Exception):
    pass


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    here = [name for name, path in LIBRARIES.items() if installed(path)]
    for name in LIBRARIES:
        print(f"  {name}: {importlib.metadata.version(name) if name in here else 'not installed'}")
    bench_success(here, quick, claims)
    bench_failures(quick, claims)
    compare_one_second(here, quick, claims)
    claims.end()


def installed(path: str) -> bool:
    try:
        return importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:
        return False


# ---------------------------------------------------------------- success at the first attempt


def bench_success(here: list[str], quick: bool, claims: Claims) -> None:
    number = 500 if quick else 5_000

    def timed(call):
        def run():
            began = time.perf_counter()
            for _ in range(number):
                call()
            return (time.perf_counter() - began) / number

        return run

    contestants = {HAND: by_hand, **ours()}
    for name in here:
        contestants |= THEIRS[name]()
    gc.collect()
    rounds = Rounds({name: timed(call) for name, call in contestants.items()}, 3 if quick else 31)
    rounds.table("A call that succeeds at its first attempt", "us", HAND, scale=1e6)
    claims.at_most(f"{CALL} beside a loop by hand", rounds.ratio(CALL, HAND), 5)
    for one, other, least in (
        (CALL, "tenacity", 8),
        (CALL, "stamina", 8),
        (LOOP, "stamina, attempts", 5),
    ):
        text = f"{other} beside {one}"
        if other in contestants:
            claims.at_least(text, rounds.ratio(other, one), least)
        else:
            claims.leave_open(f"{text}: not installed")


def target():
    return 1


def by_hand():
    """Try up to four times, and wait only where the budget allows it."""
    end = time.monotonic() + 60.0
    delay = 0.1
    for _ in range(3):
        try:
            return target()
        except OSError:
            if time.monotonic() + delay >= end:
                raise
            time.sleep(delay)
            delay *= 2
    return target()


def ours():
    deadline = Deadline.after(3600)

    def once(_):
        return 1

    @POLICY
    def decorated(deadline):  # noqa: ARG001  (it is what the decorator replaces)
        return 1

    def attempts():
        for attempt in POLICY.attempts(deadline):
            with attempt:
                return 1
        return None

    return {
        CALL: lambda: POLICY.call(once, deadline=deadline),
        LOOP: attempts,
        "decorator": lambda: decorated(deadline),
    }


def tenacity_calls():
    import tenacity  # noqa: PLC0415

    options = {
        "retry": tenacity.retry_if_exception_type(OSError),
        "stop": tenacity.stop_after_attempt(4) | tenacity.stop_after_delay(60),
        "wait": tenacity.wait_exponential(0.1, max=2.0),
        "reraise": True,
    }
    policy = tenacity.Retrying(**options)

    def attempts():
        for attempt in tenacity.Retrying(**options):
            with attempt:
                return 1
        return None

    return {"tenacity": lambda: policy(target), "tenacity, attempts": attempts}


def stamina_calls():
    import stamina  # noqa: PLC0415

    options = {"attempts": 4, "timeout": 60.0, "wait_initial": 0.1, "wait_max": 2.0}
    caller = stamina.RetryingCaller(**options)

    def attempts():
        for attempt in stamina.retry_context(on=OSError, **options):
            with attempt:
                return 1
        return None

    return {"stamina": lambda: caller(OSError, target), "stamina, attempts": attempts}


def backoff_calls():
    import backoff  # noqa: PLC0415

    how = backoff.on_exception(backoff.expo, OSError, max_tries=4, max_time=60.0, max_value=2.0)
    return {"backoff": how(target)}


def google_calls():
    from google.api_core import retry  # noqa: PLC0415

    policy = retry.Retry(
        predicate=retry.if_exception_type(OSError), initial=0.1, maximum=2.0, timeout=60.0
    )
    return {"google-api-core": policy(target)}


THEIRS = {
    "tenacity": tenacity_calls,
    "stamina": stamina_calls,
    "backoff": backoff_calls,
    "google-api-core": google_calls,
}


# ---------------------------------------------------------------- very many failures


def bench_failures(quick: bool, claims: Claims) -> None:
    total = 100_000 if quick else 1_000_000
    tenth = total // 10
    marks = []

    def once(attempt):
        if attempt.number % tenth == 1:
            marks.append(time.perf_counter())
        raise Failed

    policy = Retry(on=Failed, effect=Effect.READ_ONLY, allowance=RetryAllowance(total - 1))
    # How much memory is asked of a tenth as many, since tracing slows everything down.
    tracemalloc.start()
    few = Retry(on=Failed, effect=Effect.READ_ONLY, allowance=RetryAllowance(tenth - 1))
    run_out(few, fail)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    gc.collect()
    report = run_out(policy, once)
    marks.append(marks[0] + report.elapsed)
    made = len(report.attempts)
    first, last = ((marks[n + 1] - marks[n]) / tenth for n in (0, 9))
    table(
        f"{made:,} attempts that fail, without backoff",
        ("", "us an attempt"),
        [("first tenth", f"{first * 1e6:.2f}"), ("last tenth", f"{last * 1e6:.2f}")],
    )
    print(f"  memory: {peak / tenth:.0f} bytes an attempt, the report included")
    held = made == total and report.outcome is RetryOutcome.ATTEMPTS
    claims.state(f"{total:,} attempts are {made:,}", held=held)
    claims.at_most("the last tenth beside the first", last / first, 1.5)


def fail(_):
    raise Failed


def run_out(policy: Retry, once):
    try:
        policy.call(once, deadline=Deadline.after(3600))
    except Failed as error:
        return retry_report(error)
    raise AssertionError


# ---------------------------------------------------------------- one second


class Run(NamedTuple):
    name: str
    starts: list[float]
    end: float
    error: str


def compare_one_second(here: list[str], quick: bool, claims: Claims) -> None:
    """Each library with a budget of 1 s, attempts of 0.4 s, waits of 0.1 s, 0.2 s, 0.4 s ..."""
    # stamina says that it retries, to the library's last-resort handler.
    logging.getLogger("stamina").addHandler(logging.NullHandler())
    unit = 0.25 if quick else 1.0
    runs = [
        one_second("timebounds", unit, with_ours(unit, Overrun.REFUSE)),
        one_second("timebounds, Overrun.CAP", unit, with_ours(unit, Overrun.CAP)),
        one_second("timebounds, no waits", unit, with_ours(unit, Overrun.REFUSE, Backoff.none())),
    ]
    for name in here:
        for label, way in WITH_THEIRS[name](unit).items():
            runs.append(one_second(label, unit, way))
    table(
        f"A budget of {unit:g} s, attempts of {0.4 * unit:g} s, backoff from {0.1 * unit:g} s",
        ("", "attempts at", "end", "error"),
        [
            (run.name, ", ".join(f"{at:.2f}" for at in run.starts), f"{run.end:.2f}", run.error)
            for run in runs
        ],
    )
    latest = max(run.end for run in runs[:3])
    claims.at_most("timebounds ends within its budget and 0.05 s", latest, unit + 0.05)


def one_second(name: str, unit: float, way) -> Run:
    starts: list[float] = []
    began = time.monotonic()

    def work(limit=None):
        """Fail after 0.4 s, or at the limit by those who hand one down."""
        starts.append(time.monotonic() - began)
        time.sleep(0.4 * unit if limit is None else min(0.4 * unit, limit))
        raise Failed

    try:
        way(work)
    except Exception as error:  # noqa: BLE001  (which one it is differs)
        return Run(name, starts, time.monotonic() - began, type(error).__name__)
    raise AssertionError


def with_ours(unit: float, overrun: Overrun, backoff: Backoff | None = None):
    backoff = backoff or Backoff.exponential(0.1 * unit, cap=10)
    policy = Retry(
        on=Failed,
        effect=Effect.READ_ONLY,
        allowance=RetryAllowance(100, backoff),
        overrun=overrun,
    )

    def way(work):
        deadline = Deadline.after(unit)
        policy.call(lambda attempt: work(attempt.deadline.timeout()), deadline=deadline)

    return way


def with_tenacity(unit: float):
    import tenacity  # noqa: PLC0415

    def way(stop):
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Failed),
            stop=stop(unit),
            wait=tenacity.wait_exponential(0.1 * unit),
            reraise=True,
        )

    return {
        "tenacity, stop_after_delay": way(tenacity.stop_after_delay),
        "tenacity, stop_before_delay": way(tenacity.stop_before_delay),
    }


def with_stamina(unit: float):
    import stamina  # noqa: PLC0415

    caller = stamina.RetryingCaller(
        attempts=None, timeout=unit, wait_initial=0.1 * unit, wait_max=10, wait_jitter=0
    )
    return {"stamina": lambda work: caller(Failed, work)}


def with_backoff(unit: float):
    import backoff  # noqa: PLC0415

    how = backoff.on_exception(
        backoff.expo, Failed, factor=0.1 * unit, max_time=unit, jitter=None, logger=None
    )
    return {"backoff": lambda work: how(work)()}


def with_google(unit: float):
    from google.api_core import retry  # noqa: PLC0415

    def way(work):
        # Its jitter can not be turned off; the table shows the longest of its waits.
        whole, random.uniform = random.uniform, max
        try:
            policy = retry.Retry(
                predicate=retry.if_exception_type(Failed), initial=0.1 * unit, timeout=unit
            )
            policy(work)()
        finally:
            random.uniform = whole

    return {"google-api-core": way}


WITH_THEIRS = {
    "tenacity": with_tenacity,
    "stamina": with_stamina,
    "backoff": with_backoff,
    "google-api-core": with_google,
}


if __name__ == "__main__":
    main()
