"""Errors teach: what was given, what was meant, the right line; here word for word."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime

import pytest

from timebounds import (
    Attempt,
    Backoff,
    BootClock,
    BudgetedReceiver,
    Clock,
    Deadline,
    Every,
    Expiry,
    Jitter,
    MinRate,
    RetryAllowance,
    Scheduler,
    SteadyClock,
    StopSignal,
)
from timebounds._checks import refuse_on_loop_thread
from timebounds.bounds.clock import not_backwards
from timebounds.policies.wants import as_address, as_hostname, as_resolver, as_tls
from timebounds.testing import Data, End, FakeClock, ScriptedSocket, Silence


class Hands(SteadyClock):
    reading = 0

    def now_ns(self):
        return self.reading

    def __repr__(self):
        return "Hands()"


class Calendar(Clock):
    def now(self):
        return 0

    def __repr__(self):
        return "Calendar()"


class Says:
    def random(self):
        return math.nan

    def __repr__(self):
        return "Says()"


def spoiled():
    clock = Hands()
    deadline = Deadline.after(1, clock=clock)
    clock.reading = 0.5
    return deadline.remaining()


def receive(verb, *script, seconds=2, oversleep=0, **options):
    clock = FakeClock(auto_advance=True)
    receiver = BudgetedReceiver(ScriptedSocket(clock, *script), **options)
    return verb(receiver, clock.deadline(seconds))


def twice(*script):
    def verb(receiver, deadline):
        with pytest.raises(Exception):  # noqa: B017
            receiver.receive_until(b"\n", 2, deadline)
        return receiver.resume(deadline)

    return receive(verb, *script)


def unfinished(receiver, deadline):
    with pytest.raises(Exception):  # noqa: B017
        receiver.receive_exactly(4, deadline)
    return receiver.receive_exactly(4, deadline)


def closed_scheduler():
    scheduler = Scheduler()
    scheduler.close()
    scheduler.add(Every(1), print)


def two_runs():
    scheduler = Scheduler()
    scheduler._runs[object()] = None
    scheduler.run(Deadline.after(1))


STOPPED = StopSignal()
STOPPED.request("drain")
FAKE = FakeClock(1)
DEADLINE = FAKE.deadline(2)
OTHER = Deadline.after(2, clock=Hands())
NAIVE = datetime(2026, 1, 2)  # noqa: DTZ001
AWARE = datetime(2026, 1, 2, tzinfo=UTC)

MESSAGES = [
    # numbers
    (
        lambda: Deadline.after("2"),
        "seconds must be a number of seconds (int, float or timedelta), not str '2'",
    ),
    (lambda: Deadline.after(math.nan), "seconds must be a number of seconds, not NaN"),
    (
        lambda: Deadline.after(math.inf),
        (
            "seconds must be finite: for no limit write Deadline.never() or None where that is "
            "documented, and other.within(seconds) to shorten another deadline"
        ),
    ),
    (lambda: Deadline.after(-2), "seconds must not be negative, not -2"),
    (
        lambda: Deadline.after(2).timeout(0),
        "seconds must be more than 0: zero could never work, and no limit is None where allowed",
    ),
    (lambda: RetryAllowance(2.0), "retries must be an int, not float 2.0"),
    (lambda: RetryAllowance(-1), "retries must be at least 0, not -1"),
    (
        lambda: Backoff.exponential(1, factor="2", cap=3),
        "factor must be a number, not str '2'",
    ),
    (
        lambda: Backoff.exponential(1, factor=0.5, cap=3),
        "factor must be finite and at least 1.0, not 0.5",
    ),
    (
        lambda: Backoff.fixed(1, jitter="full"),
        (
            "jitter must be one of Jitter.NONE, Jitter.FULL, Jitter.EQUAL, Jitter.DECORRELATED, "
            "not 'full'"
        ),
    ),
    # clocks
    (
        lambda: BootClock(_which=None),
        "this system has no clock that counts suspend: use MonotonicClock()",
    ),
    (
        lambda: Deadline.after(1, clock=7),
        "clock must be a steady clock such as MonotonicClock(), not 7",
    ),
    (
        lambda: Deadline.after(1, clock=Calendar()),
        (
            "clock must be a steady clock such as MonotonicClock(), not Calendar(): for an instant "
            "of the calendar use Expiry"
        ),
    ),
    (spoiled, "Hands().now_ns() returned 0.5, not a whole number of nanoseconds"),
    (lambda: not_backwards(2_500_000_000, 1_000_000_000), "the clock went backwards by 1.5 s"),
    # deadline
    (
        lambda: Deadline(2.0),
        "write Deadline.after(2.0), Deadline.at(instant) or Deadline.never()",
    ),
    (
        lambda: DEADLINE < OTHER,
        (
            "deadlines of two clocks can not be compared: <Deadline after 2 s, at 3 s on <FakeClock "
            "at 1 s>> and <Deadline after 2 s, at 2 s on Hands()>"
        ),
    ),
    (
        lambda: bool(DEADLINE),
        "a deadline is neither true nor false: write `is None` or `deadline.expired()`",
    ),
    (
        lambda: setattr(DEADLINE, "clock", None),
        "a Deadline never changes: make another one instead of setting clock",
    ),
    (
        lambda: delattr(DEADLINE, "clock"),
        "a Deadline never changes: make another one instead of setting clock",
    ),
    (
        lambda: pickle.dumps(DEADLINE),
        (
            "a deadline can not be pickled, since its instant means nothing in another process: send "
            "timebounds.wire.to_milliseconds(deadline), and read it there by from_milliseconds"
        ),
    ),
    (
        lambda: DEADLINE.earliest(1.5),
        "deadline must be a Deadline, not float 1.5: write Deadline.after(1.5)",
    ),
    (
        lambda: DEADLINE.earliest(None),
        "deadline must be a Deadline, not NoneType None: write Deadline.after(2.0)",
    ),
    (
        lambda: Deadline.at(0.5, clock=FAKE).check("loading"),
        "loading: the deadline at 0.5 s was missed by 0.5 s",
    ),
    (
        lambda: FAKE.deadline(0).check(),
        "operation: the deadline of 0 s was reached",
    ),
    (
        lambda: Deadline.from_scope(7),
        "scope must be an asyncio.Timeout or an anyio CancelScope, not 7",
    ),
    # stop
    (
        StopSignal.on_signals,
        "signals must not be empty: write StopSignal.on_signals(signal.SIGTERM)",
    ),
    (
        lambda: pickle.dumps(StopSignal()),
        "a StopSignal means nothing in another process: send the request there",
    ),
    # expiry
    (lambda: Expiry(60), "write Expiry.after(seconds) or Expiry.at(aware_datetime)"),
    (lambda: Expiry.at(5), "instant must be an aware datetime, not int 5"),
    (
        lambda: Expiry.at(NAIVE),
        (
            "instant must be aware, datetime.datetime(2026, 1, 2, 0, 0) has no time zone: write "
            "datetime.now(UTC) or instant.replace(tzinfo=...)"
        ),
    ),
    (
        lambda: bool(Expiry.at(AWARE)),
        "an expiry is neither true nor false: write `is None`, `fresh()` or `stale()`",
    ),
    (
        lambda: setattr(Expiry.at(AWARE), "at_utc", None),
        "an Expiry never changes: make another one instead of setting at_utc",
    ),
    (
        lambda: delattr(Expiry.at(AWARE), "at_utc"),
        "an Expiry never changes: make another one instead of setting at_utc",
    ),
    (
        lambda: Expiry.after(1, clock=Hands()),
        (
            "clock must be a wall clock such as WallClock(), not Hands(): for elapsed time use "
            "Deadline"
        ),
    ),
    (
        lambda: Expiry.after(1, clock=7),
        "clock must be a wall clock such as WallClock(), not 7",
    ),
    (
        lambda: Expiry.after(1, clock=Calendar()),
        "Calendar().now() returned 0, not an aware datetime",
    ),
    # backoff and allowance
    (
        lambda: Backoff(1.0),
        "write Backoff.none(), .fixed(0.5), .linear(0.5, cap=5) or .exponential(0.1, cap=5)",
    ),
    (
        lambda: Backoff.fixed(1, rng=7),
        "rng must have a random() method, as random.Random(7) has, not 7",
    ),
    (
        lambda: Backoff.fixed(1, jitter=Jitter.FULL, rng=Says()).delay(1),
        "rng.random() returned nan, not a number in [0, 1)",
    ),
    (
        lambda: RetryAllowance(1, 0.5),
        "backoff must be a Backoff such as Backoff.fixed(0.5), not 0.5",
    ),
    (
        lambda: Attempt(1, DEADLINE, None, None).__enter__(),
        "`with attempt:` belongs, once, into `for attempt in policy.attempts(deadline):`",
    ),
    (
        lambda: Backoff.fixed(1).delay(0),
        "attempt must be at least 1, not 0",
    ),
    (
        lambda: Backoff.fixed(1).delay("2"),
        "attempt must be an int, not str '2'",
    ),
    (
        lambda: Backoff.fixed(1).delay(1, -1),
        "previous must be finite and at least 0.0, not -1",
    ),
    (
        lambda: MinRate("1", 1),
        "bytes_per_second must be a number, not str '1'",
    ),
    (
        lambda: MinRate(0, 1),
        "bytes_per_second must be more than 0: leave min_rate out for no minimum",
    ),
    # connecting
    (
        lambda: as_address(7, "address"),
        "address must be a host and a port such as ('example.org', 443), not 7",
    ),
    (
        lambda: as_hostname(7, "server_hostname"),
        "server_hostname must be a host name such as 'example.org' or None, not 7",
    ),
    (
        lambda: as_resolver(7, "resolver"),
        "resolver must be a function of host and port, not 7",
    ),
    (
        lambda: as_tls(7, "tls"),
        ("tls must be an ssl.SSLContext or None, not 7: write tls=ssl.create_default_context()"),
    ),
    # schedulers
    (
        lambda: Scheduler(on_missed=1),
        "on_missed must be a function or None, not 1",
    ),
    (
        lambda: Scheduler(on_error=1),
        "on_error must be a function or None, not 1",
    ),
    (
        lambda: Every(1, missed="skip"),
        "missed must be Missed.coalesce(), .skip() or .catch_up(10), not 'skip'",
    ),
    (
        lambda: Scheduler().add(60, print),
        "timetable must be Every(60), After(60), Once(5) or Daily(...), not 60",
    ),
    (
        lambda: Scheduler().add(Every(1), 1),
        "fn must be a function of a tick, not 1",
    ),
    (
        lambda: Scheduler().add(Every(1), print, name=7),
        "name must be a text that is not empty, not 7",
    ),
    (
        lambda: Scheduler().add(Every(1), print, limit="1"),
        "limit must be a number of seconds (int, float or timedelta), not str '1'",
    ),
    (
        closed_scheduler,
        "the scheduler is closed: nothing would ever run there",
    ),
    (
        lambda: Scheduler(clock=FAKE).run(Deadline.after(1, clock=Hands())),
        (
            "the scheduler waits by <FakeClock at 1 s>, the deadline by Hands(): make both with "
            "one clock"
        ),
    ),
    (
        two_runs,
        "a scheduler has one runner at a time, and another run() is under way",
    ),
    # receiving
    (
        lambda: receive(lambda r, d: r.receive_exactly(4, d.stopping(STOPPED)), Data(b"AB")),
        (
            "receive_exactly(4): stopped (drain) 0 s into the deadline of 2 s; 0 bytes kept for "
            "resume() or discard()"
        ),
    ),
    (
        lambda: receive(lambda r, d: r.receive_exactly(4, d), Data(b"AB")),
        (
            "receive_exactly(4): the deadline of 2 s was reached; 2 bytes kept for resume() or "
            "discard()"
        ),
    ),
    (
        lambda: receive(lambda r, d: r.receive_exactly(2, d), Data(b"AB", after=2)),
        (
            "receive_exactly(2): the deadline of 2 s was reached; all 2 bytes came, too late: they "
            "are in error.report.data"
        ),
    ),
    (
        lambda: receive(lambda r, d: r.receive_into(bytearray(4), d), Data(b"AB")),
        (
            "receive_into(buffer of 4): the deadline of 2 s was reached; 2 of 4 bytes are in the "
            "buffer, resume() fills the rest"
        ),
    ),
    (
        lambda: receive(lambda r, d: r.receive_some(4, d), Silence(), idle_timeout=0.5),
        "receive_some(4): the peer was silent for 0.5 s; 0 bytes kept for resume() or discard()",
    ),
    (
        lambda: receive(
            lambda r, d: r.receive_until(b"\r\n", 9, d), Data(b"AB"), min_rate=MinRate(4, 1)
        ),
        (
            "receive_until(b'\\r\\n', 9): 2 bytes in 1.5 s of waiting is below "
            "MinRate(bytes_per_second=4, grace=1); 2 bytes kept for resume() or discard()"
        ),
    ),
    (
        lambda: receive(lambda r, d: r.receive_exactly(4, d), Data(b"AB"), End()),
        "receive_exactly(4): the peer closed after 2 bytes, which are in error.report.data",
    ),
    (
        lambda: receive(lambda r, d: r.receive_until(b"\n", 2, d), Data(b"ABC")),
        "receive_until(b'\\n', 2): no delimiter in the first 2 bytes; 3 bytes kept for discard()",
    ),
    (
        lambda: twice(Data(b"ABC")),
        "receive_until(b'\\n', 2) exceeded its limit, so resuming can not help: call discard()",
    ),
    (
        lambda: receive(lambda r, d: r.resume(d)),
        "nothing is unfinished, so there is nothing to resume: call a receive verb",
    ),
    (
        lambda: receive(unfinished, Data(b"AB")),
        (
            "receive_exactly(4) has not finished, 2 bytes are pending and the position in the stream "
            "is unknown: call resume(deadline) or discard() first"
        ),
    ),
]


# pytest escapes a backslash anew each time that it collects.
NAMES = [text[:60].replace("\\", "") for _, text in MESSAGES]


@pytest.mark.parametrize(("fails", "message"), MESSAGES, ids=NAMES)
def test_the_message_is_exactly_this(fails, message):
    with pytest.raises(Exception) as caught:
        fails()
    assert str(caught.value) == message


def test_a_read_that_may_have_lost_bytes_says_so():
    clock = FakeClock(auto_advance=True)
    receiver = BudgetedReceiver(ScriptedSocket(clock))
    receiver._port.in_doubt = True
    with pytest.raises(RuntimeError) as caught:
        receiver.receive_exactly(1, clock.deadline(1))
    assert str(caught.value) == (
        "a read was interrupted inside the socket's recv, which may have lost bytes: only "
        "discard() helps, or another connection"
    )


def test_without_a_loop_nothing_is_refused():
    refuse_on_loop_thread("this", "that")
