"""T1, B1, B3, B4, S1, R1-R3 as a model: any script, any order of verbs, any bounds, any stop.

The model knows what was sent; the receiver may hand it out in any pieces, but never lose, repeat or
reorder a byte, never wait beyond a bound, never begin a read after a stop, and never leave the
socket as it did not find it.
"""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import contextmanager

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from timebounds import (
    Backoff,
    BoundReached,
    BudgetedReceiver,
    LimitExceeded,
    MinRate,
    Overrun,
    PeerClosed,
    ReceiveOutcome,
    RetryAllowance,
    StopSignal,
    Unfinished,
)
from timebounds.policies.inbox import Into
from timebounds.testing import Data, End, Failure, FakeClock, ScriptedSocket, Silence

# Multiples of a sixteenth are exact, and collide often: that is where the ties are.
seconds = st.integers(0, 64).map(lambda n: n / 16)
# Mostly at once, mostly enough: or nothing would ever complete.
after = st.sampled_from([0.0, 0.0, 0.25, 0.5])
budgets = st.sampled_from([100.0, 100.0, 1.0, 0.5, 0.25, 0.0])
positive = st.integers(1, 64).map(lambda n: n / 16)
# Seconds from the beginning of an operation to the request that it stop; None for none.
stops = st.sampled_from([None] * 8 + [0.0, 0.25, 0.5, 1.0])
payload = st.text("ab\n", min_size=1, max_size=6).map(str.encode)


ERRORS = st.sampled_from([ConnectionResetError, lambda: OSError(errno.ETIMEDOUT, "dead")])


class Granted(list):
    """The limits of reads, and when each was asked for."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.instants = clock, []

    def append(self, limit):
        super().append(limit)
        self.instants.append(self.clock.now_ns())


GENERATE = settings(
    max_examples=600,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
)


class Model(RuleBasedStateMachine):
    @initialize(
        idle=st.none() | positive,
        retries=st.integers(0, 3),
        backoff=st.sampled_from([0.0, 0.25, 1.0]),
        overrun=st.sampled_from(Overrun),
        rate=st.sampled_from([None, None, None, (0.5, 1.0), (4.0, 0.25), (1024.0, 0.5)]),
        timeout=st.sampled_from([None, 0.0, 0.5, 7.0]),
        shared=st.booleans(),
        sent=st.lists(st.tuples(payload, after), max_size=12),
    )
    def begin(self, idle, retries, backoff, overrun, rate, timeout, shared, sent):
        self.clock = FakeClock(auto_advance=True)
        self.timeout = timeout
        self.sock = ScriptedSocket(self.clock, timeout=timeout)
        self.sock.granted = Granted(self.clock)
        self.idle = idle
        allowance = RetryAllowance(retries, Backoff.fixed(backoff))
        self.retries = retries
        self.receiver = BudgetedReceiver(
            self.sock,
            idle_timeout=idle,
            allowance=allowance.shared() if shared else allowance,
            overrun=overrun,
            min_rate=MinRate(*rate) if rate else None,
        )
        self.sent = b""
        self.got = b""
        self.ended = False
        for data, delay in sent:
            self.send(data, delay)

    # -------------------------------------------------------------- the peer

    @rule(data=payload, after=after)
    def sends(self, data, after):
        self.send(data, after)

    def send(self, data, after):
        if not self.ended:
            self.sock.extend(Data(data, after=after))
            self.sent += data

    @rule()
    def be_silent(self):
        if not self.ended:
            self.sock.extend(Silence())

    @rule(error=ERRORS, after=after)
    def fail(self, error, after):
        if not self.ended:
            self.sock.extend(Failure(error(), after=after))

    @rule(after=after)
    def end(self, after):
        if not self.ended:
            self.sock.extend(End(after=after))
            self.ended = True

    # -------------------------------------------------------------- the receiver

    @rule(size=st.integers(0, 12), budget=budgets, stop=stops)
    def exactly(self, size, budget, stop):
        value = self.call(lambda d: self.receiver.receive_exactly(size, d), budget, stop)
        if value is not None:
            assert len(value) == size
            self.got += value

    @rule(limit=st.integers(1, 12), budget=budgets, stop=stops)
    def until(self, limit, budget, stop):
        value = self.call(lambda d: self.receiver.receive_until(b"\n", limit, d), budget, stop)
        if value is not None:
            assert value.index(b"\n") == len(value) - 1 < limit
            self.got += value

    @rule(size=st.integers(0, 12), budget=budgets, stop=stops)
    def fill(self, size, budget, stop):
        into = self.open_into()
        self.buffer = buffer = bytearray(size) if into is None else self.buffer
        if into is not None:
            buffer = bytearray(size)  # refused, since another one is unfinished
        value = self.call(lambda d: self.receiver.receive_into(buffer, d) or b"", budget, stop)
        if value is not None:
            self.got += buffer

    @rule(limit=st.integers(1, 12), budget=budgets, stop=stops)
    def some(self, limit, budget, stop):
        value = self.call(lambda d: self.receiver.receive_some(limit, d), budget, stop)
        if value is not None:
            assert len(value) <= limit
            assert value or self.receiver.report.eof
            self.got += value

    @rule(budget=budgets, stop=stops)
    def resume(self, budget, stop):
        into = self.open_into()
        value = self.call(self.receiver.resume, budget, stop)
        if value is not None:
            self.got += value if into is None else self.buffer

    @rule()
    def discard(self):
        into = self.filled()
        self.got += into + self.receiver.discard()

    def open_into(self):
        target = self.receiver._inbox.state[2]
        return target if type(target) is Into else None

    def filled(self):
        """What an open receive_into has put into the caller's buffer, and so handed out."""
        into = self.open_into()
        return b"" if into is None else bytes(into.view[: sum(into.counts)])

    def call(self, verb, budget, stop):
        began, reads = self.clock.now_ns(), len(self.sock.granted)
        bounds = began, budget, None if stop is None else round(stop * 1e9), reads
        with self.bounded(budget, stop) as deadline:
            try:
                value = verb(deadline)
            except Unfinished:
                assert len(self.sock.granted) == reads
                return None
            except (BoundReached, PeerClosed, LimitExceeded) as error:
                self.judge(error.report, *bounds)
                if error.report.satisfied or error.report.outcome == "eof":
                    self.got += error.report.data
                return None
            except OSError:
                assert self.receiver.report is None
                return None
        self.judge(self.receiver.report, *bounds)
        return value

    @contextmanager
    def bounded(self, budget, stop):
        """A deadline that is stopped at its instant, if there is one."""
        deadline = self.clock.deadline(budget)
        if stop is None:
            yield deadline
            return
        signal = StopSignal(clock=self.clock)
        if stop == 0.0:
            signal.request("at once")
        timer = self.clock.call_later(stop, signal.request)
        try:
            yield deadline.stopping(signal)
        finally:
            timer.cancel()

    def judge(self, report, began, budget, stop, reads):
        """No read was granted more than its bounds, and none began too late."""
        took, budget = self.clock.now_ns() - began, round(budget * 1e9)
        assert took <= budget, "waited beyond the deadline"
        assert report.elapsed_ns == took == report.waited_ns + report.slept_ns
        assert report.overshoot_ns == 0
        assert report.reads == len(self.sock.granted) - reads
        assert report.idle_retries <= self.retries
        for granted in self.sock.granted[reads:]:
            assert 0 < round(granted * 1e9) <= budget
            assert self.idle is None or granted <= self.idle
        for instant in self.sock.granted.instants[reads:]:
            assert stop is None or instant - began < stop, "a read began after the stop"
        # R3: a stop goes before the deadline, and before all else, but not before success.
        stopped = stop is not None and stop <= took and not report.satisfied
        assert (report.outcome == "stopped") == stopped
        expired = took == budget and report.requested > 0 and not stopped
        assert (report.outcome == "deadline_expired") == expired

    # -------------------------------------------------------------- always

    @invariant()
    def no_byte_is_lost_repeated_or_out_of_order(self):
        if hasattr(self, "sock"):
            held = self.filled() + self.receiver.pending
            assert self.got + held + self.sock.unread == self.sent

    @invariant()
    def the_socket_is_as_it_was_lent(self):
        if hasattr(self, "sock"):
            assert self.sock.gettimeout() == self.timeout


TestReceiver = Model.TestCase
TestReceiver.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)


@pytest.mark.slow
def test_the_model_reaches_what_it_speaks_of(monkeypatch):
    """Q4: each interesting state comes up, many times in a run."""
    seen = Counter()
    judge = Model.judge

    def counting(self, report, *rest):
        seen[str(report.outcome)] += 1
        seen["stopped at the deadline"] += (
            report.outcome == "stopped" and self.clock.now_ns() - rest[0] == round(rest[1] * 1e9)
        )
        seen["stopped too late"] += report.satisfied and rest[2] is not None
        seen["late but satisfied"] += report.satisfied and report.outcome == "deadline_expired"
        seen["retried"] += report.idle_retries > 0
        seen["kept"] += bool(self.receiver.pending)
        seen["resumed"] += report.reads == 0
        judge(self, report, *rest)

    monkeypatch.setattr(Model, "judge", counting)
    run_state_machine_as_test(Model, settings=GENERATE)
    states = [*map(str, ReceiveOutcome), "late but satisfied", "retried", "kept", "resumed"]
    states += ["stopped at the deadline", "stopped too late"]
    assert {state: seen[state] for state in states if seen[state] < 5} == {}


class Forgetful(Model):
    """Canary: drops a byte of what it keeps."""

    @rule()
    def forget(self):
        chunks, start, target, report = self.receiver._inbox.state
        if len(self.receiver.pending):
            self.receiver._inbox.state = (chunks, start + 1, target, report)


class Lender(Model):
    """Canary: leaves the last limit on the socket."""

    @rule()
    def keep(self):
        self.sock.settimeout(3.0)


class Deaf(Model):
    """Canary: hears no stop."""

    @contextmanager
    def bounded(self, budget, stop):
        yield self.clock.deadline(budget)


@pytest.mark.parametrize("canary", [Forgetful, Lender, Deaf])
def test_the_model_rejects_a_receiver_that_breaks_its_law(canary):
    """C: a model that cannot fail proves nothing."""
    with pytest.raises(AssertionError):
        run_state_machine_as_test(canary, settings=GENERATE)


@pytest.mark.soak
def test_the_model_agrees_for_a_long_time():
    """T1, B1."""
    run_state_machine_as_test(
        Model, settings=settings(max_examples=10_000, stateful_step_count=50, deadline=None)
    )
