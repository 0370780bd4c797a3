"""K1-K4 on fake time: the plan of dialing in both colours, and what becomes of its report."""

from __future__ import annotations

import asyncio
import math
import pickle
import re
import socket

import pytest

from timebounds import (
    Connection,
    Deadline,
    DeadlineExceeded,
    DialAttempt,
    DialOutcome,
    StopRequested,
    StopSignal,
    connect,
    dial_report,
)
from timebounds._checks import FAR_NS
from timebounds._settled import Raised, Returned
from timebounds.policies.dialing import (
    FLOOR_NS,
    Dial,
    Lookup,
    Shake,
    _seconds,
    conclude,
    dialing,
    share,
)
from timebounds.policies.dialing import shaking as shaking_plan
from timebounds.policies.plan import Reply, adrive, drive
from timebounds.testing import FakeClock

SECOND = 1_000_000_000
A, B, C = ((f"10.0.0.{n}", 80) for n in (1, 2, 3))
BLACK_HOLE = "black hole"


def endpoints(*addresses):
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]


class World:
    """Answers the steps of dialing as it is told, on fake time; notes the limit of each.

    A step's part is a pair of seconds and an answer: None for success, an error, or BLACK_HOLE,
    which uses up whatever the step is given.
    """

    def __init__(self, clock, *, lookup=None, addresses=None, shake=None):
        self.clock = clock
        self.lookup = lookup
        self.addresses = addresses or {}
        self.shake = shake
        self.granted = []

    def perform(self, step, deadline):
        limit = math.inf if step.limit is None else step.limit / SECOND
        # As a port takes it: whole nanoseconds, from the instant of the look before.
        assert step.limit is None or type(step.limit) is int
        assert (step.since, step.ask) == (self.clock.now_ns(), 0)
        self.granted.append((type(step).__name__, limit))
        if isinstance(step, Lookup):
            seconds, answer = self.lookup
        elif isinstance(step, Dial):
            seconds, answer = self.addresses[step.endpoint[4]]
        else:
            assert isinstance(step, Shake)
            seconds, answer = self.shake
        if answer == BLACK_HOLE or seconds > limit:
            self.clock.advance(limit)
            return Reply.SILENCE
        self.clock.advance(seconds)
        return Raised(answer) if isinstance(answer, Exception) else Returned(answer)


class InTask:
    def __init__(self, world):
        self._world = world

    async def perform(self, step, deadline):
        await asyncio.sleep(0)
        return self._world.perform(step, deadline)


@pytest.fixture(params=["blocking", "tasks"])
def run(request):
    """Return a function that dials in one colour."""

    def dial(world, deadline, plan=None, **options):
        now = deadline._now()
        plan = plan or dialing(deadline._at, now, deadline._stop, **options)
        if request.param == "blocking":
            return drive(plan, world, deadline, now)
        return asyncio.run(adrive(plan, InTask(world), deadline, now))

    return dial


def ended(report):
    return [(each.address, each.ended) for each in report.attempts]


def test_three_black_holes_share_one_budget(run):
    """A13, K1, K2: the end is at exactly 6.0, and the sum of what was granted is no more."""
    clock = FakeClock()
    world = World(clock, addresses=dict.fromkeys((A, B, C), (0, BLACK_HOLE)))
    report, _ = run(world, clock.deadline(6), endpoints=endpoints(A, B, C))
    assert clock.now() == 6.0
    assert [limit for _, limit in world.granted] == [2.0, 2.0, 2.0]
    assert report.outcome is DialOutcome.DEADLINE_EXPIRED
    assert ended(report) == [(A, "timed out"), (B, "timed out"), (C, "expired")]
    assert (report.phase, report.elapsed, report.overshoot) == ("connect", 6.0, 0.0)


def test_a_dead_first_address_leaves_time_for_a_healthy_second(run):
    """A14, K2."""
    clock = FakeClock()
    world = World(clock, addresses={A: (0, BLACK_HOLE), B: (0.01, None)})
    report, error = run(world, clock.deadline(10), endpoints=endpoints(A, B))
    assert (report.outcome, error) == (DialOutcome.CONNECTED, None)
    assert clock.now() == 5.01
    assert report.attempts == (
        DialAttempt(A, "timed out", 5.0, 5.0, None),
        DialAttempt(B, "connected", 4.99 + 0.01, 0.01, None),
    )


def test_what_a_quick_failure_leaves_goes_to_the_others(run):
    """K2."""
    clock = FakeClock()
    refused = ConnectionRefusedError(111, "refused")
    world = World(clock, addresses={A: (0.5, refused), B: (0, BLACK_HOLE), C: (0.1, None)})
    report, _ = run(world, clock.deadline(6.5), endpoints=endpoints(A, B, C))
    assert [limit for _, limit in world.granted] == [pytest.approx(6.5 / 3), 3.0, 3.0]
    assert ended(report) == [(A, "failed"), (B, "timed out"), (C, "connected")]
    assert report.attempts[0].error == "ConnectionRefusedError: [Errno 111] refused"


def test_no_attempt_is_given_less_than_the_floor_as_long_as_there_is_that_much(run):
    """K2: a tenth of a second for each of ten addresses would reach none of them."""
    assert share(SECOND, 10) == FLOOR_NS == SECOND // 4
    assert share(SECOND // 10, 10) == SECOND // 10
    assert share(10 * SECOND, 4) == 10 * SECOND // 4
    clock = FakeClock()
    five = [(f"10.0.0.{n}", 80) for n in range(5)]
    world = World(clock, addresses=dict.fromkeys(five, (0, BLACK_HOLE)))
    report, _ = run(world, clock.deadline(0.6), endpoints=endpoints(*five))
    assert clock.now() == 0.6
    assert [each for _, each in ended(report)] == [
        "timed out", "timed out", "expired", "not tried", "not tried",
    ]  # fmt: skip
    assert report.attempts[-1] == DialAttempt(five[4], "not tried", 0.0, 0.0, None)


def test_each_phase_is_timed_and_all_share_the_deadline(run):
    """K1."""
    clock = FakeClock()
    world = World(clock, lookup=(1, endpoints(A, B)), addresses={A: (2, None)}, shake=(3, None))
    report, _ = run(world, clock.deadline(10), shake=True)
    assert world.granted == [("Lookup", 10.0), ("Dial", 4.5), ("Shake", 7.0)]
    assert report.outcome is DialOutcome.CONNECTED
    assert (report.lookup, report.connect, report.handshake) == (1.0, 2.0, 3.0)
    assert (report.elapsed, report.phase) == (6.0, "handshake")
    assert ended(report) == [(A, "connected"), (B, "not tried")]


@pytest.mark.parametrize(
    ("parts", "phase"),
    [
        ({"lookup": (0, BLACK_HOLE)}, "lookup"),
        ({"lookup": (1, endpoints(A)), "addresses": {A: (0, BLACK_HOLE)}}, "connect"),
        (
            {
                "lookup": (1, endpoints(A)),
                "addresses": {A: (1, None)},
                "shake": (0, BLACK_HOLE),
            },
            "handshake",
        ),
    ],
)
def test_the_deadline_ends_every_phase_and_the_report_says_which(run, parts, phase):
    """K1."""
    clock = FakeClock()
    report, error = run(World(clock, **parts), clock.deadline(5), shake=True)
    assert (report.outcome, report.phase, error) == (DialOutcome.DEADLINE_EXPIRED, phase, None)
    assert clock.now() == report.elapsed == 5.0


@pytest.mark.parametrize("phase", ["lookup", "connect", "handshake"])
def test_what_succeeds_at_the_deadline_is_too_late(run, phase):
    """K1: nobody has time for it any more; who dials closes it."""
    clock = FakeClock()
    parts = {"lookup": 1, "connect": 1, "handshake": 1} | {phase: 0}
    left = 5 - sum(parts.values())
    parts[phase] = left
    world = World(
        clock,
        lookup=(parts["lookup"], endpoints(A)),
        addresses={A: (parts["connect"], None)},
        shake=(parts["handshake"], None),
    )
    spent = {"lookup": left, "connect": 1 + left, "handshake": 5}[phase]
    report, _ = run(world, clock.deadline(spent), shake=True)
    assert (report.outcome, report.phase) == (DialOutcome.DEADLINE_EXPIRED, phase)


@pytest.mark.parametrize("given", [None, endpoints(A)])
def test_an_expired_deadline_begins_nothing(run, given):
    """D3."""
    clock = FakeClock()
    world = World(clock)
    report, _ = run(world, clock.deadline(0), endpoints=given, shake=True)
    assert world.granted == []
    assert report.outcome is DialOutcome.DEADLINE_EXPIRED
    assert report.phase == ("lookup" if given is None else "connect")


def test_a_stop_goes_before_the_deadline_in_every_phase(run):
    """T3."""
    clock = FakeClock()
    for phase, reached in (("lookup", 0), ("connect", 1), ("handshake", 2)):
        stop = StopSignal()

        class Stopping(World):
            def perform(self, step, deadline):
                answer = super().perform(step, deadline)
                if len(self.granted) > reached:  # noqa: B023
                    stop.request("drain")  # noqa: B023
                return answer

        world = Stopping(clock, lookup=(1, endpoints(A)), addresses={A: (1, None)}, shake=(1, None))
        report, _ = run(world, clock.deadline(reached + 1).stopping(stop), shake=True)
        assert (report.outcome, report.phase) == (DialOutcome.STOPPED, phase)
    assert run(World(clock), clock.deadline(2).stopping(stop))[0].outcome is DialOutcome.STOPPED
    shaken = shaking_plan(clock.deadline(2)._at, clock.now_ns(), stop)
    report, _ = run(World(clock), clock.deadline(2).stopping(stop), plan=shaken)
    assert (report.outcome, report.phase) == (DialOutcome.STOPPED, "handshake")


def test_a_stopped_attempt_is_told_in_its_line(run):
    """K1."""
    clock = FakeClock()
    stop = StopSignal()

    class Stopping(World):
        def perform(self, step, deadline):
            stop.request()
            return Reply.SILENCE

    report, _ = run(Stopping(clock), clock.deadline(2).stopping(stop), endpoints=endpoints(A, B))
    assert ended(report) == [(A, "stopped"), (B, "not tried")]


def test_without_a_limit_each_attempt_has_none(run):
    """D4: what is granted is infinite then."""
    clock = FakeClock()
    world = World(clock, addresses={A: (3600, None)})
    report, _ = run(world, Deadline.never(clock=clock), endpoints=endpoints(A, B))
    assert world.granted == [("Dial", math.inf)]
    assert report.attempts[0].granted == math.inf
    assert report.overshoot == 0.0


def test_the_error_of_a_lookup_is_the_resolvers_own(run):
    """K1."""
    clock = FakeClock()
    said = socket.gaierror(-2, "Name or service not known")
    report, error = run(World(clock, lookup=(0.5, said)), clock.deadline(2))
    assert error is said
    assert (report.outcome, report.phase, report.lookup) == (
        DialOutcome.LOOKUP_FAILED, "lookup", 0.5,
    )  # fmt: skip


def test_when_all_fail_the_error_is_the_last_ones(run):
    """K1."""
    clock = FakeClock()
    first, last = ConnectionRefusedError(111, "refused"), OSError(101, "unreachable")
    world = World(clock, addresses={A: (0, first), B: (0, last)})
    report, error = run(world, clock.deadline(2), endpoints=endpoints(A, B))
    assert error is last
    assert report.outcome is DialOutcome.CONNECT_FAILED


def test_a_handshake_that_fails_is_told_by_its_own_error(run):
    """K1."""
    clock = FakeClock()
    said = OSError("certificate verify failed")
    world = World(clock, addresses={A: (0, None)}, shake=(0.5, said))
    report, error = run(world, clock.deadline(2), endpoints=endpoints(A), shake=True)
    assert error is said
    assert (report.outcome, report.handshake) == (DialOutcome.HANDSHAKE_FAILED, 0.5)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_connection_that_exists_shakes_hands_under_its_deadline(run, after):
    """A17."""
    clock = FakeClock()
    deadline = clock.deadline(0 if not after else 2)
    plan = shaking_plan(deadline._at, deadline._now())
    report, _ = run(World(clock, shake=(after, None)), deadline, plan=plan)
    expected = DialOutcome.CONNECTED if after == 1 else DialOutcome.DEADLINE_EXPIRED
    assert (report.outcome, report.phase, report.attempts) == (expected, "handshake", ())


def test_a_report_can_be_sent_to_another_process(run):
    """Reports hold durations, not deadlines."""
    clock = FakeClock()
    report, _ = run(
        World(clock, addresses={A: (1, None)}), clock.deadline(5), endpoints=endpoints(A)
    )
    assert pickle.loads(pickle.dumps(report)) == report


NONE = (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("parts", "seconds", "expected"),
    [
        (
            {"lookup": (1, endpoints(A)), "addresses": {A: (2, None)}, "shake": (3, None)},
            10,
            (DialOutcome.CONNECTED, "handshake", (1.0, 2.0, 3.0), 6.0, 0.0),
        ),
        (
            {"lookup": (1, socket.gaierror(-2, "unknown"))},
            10,
            (DialOutcome.LOOKUP_FAILED, "lookup", (1.0, 0.0, 0.0), 1.0, 0.0),
        ),
        (
            {"lookup": (1, endpoints(A)), "addresses": {A: (2, OSError())}},
            10,
            (DialOutcome.CONNECT_FAILED, "connect", (1.0, 2.0, 0.0), 3.0, 0.0),
        ),
        (
            {
                "lookup": (1, endpoints(A)),
                "addresses": {A: (2, None)},
                "shake": (3, OSError()),
            },
            10,
            (DialOutcome.HANDSHAKE_FAILED, "handshake", (1.0, 2.0, 3.0), 6.0, 0.0),
        ),
        (
            {"lookup": (1, endpoints(A)), "addresses": {A: (2, None)}, "shake": (3, None)},
            6,
            (DialOutcome.DEADLINE_EXPIRED, "handshake", (1.0, 2.0, 3.0), 6.0, 0.0),
        ),
        (
            {"lookup": (0, BLACK_HOLE)},
            0.75,
            (DialOutcome.DEADLINE_EXPIRED, "lookup", (0.75, 0.0, 0.0), 0.75, 0.0),
        ),
        ({}, 0, (DialOutcome.DEADLINE_EXPIRED, "lookup", NONE, 0.0, 0.0)),
    ],
)
def test_a_report_is_exact_on_a_clock_that_does_not_begin_at_0(run, parts, seconds, expected):
    """K1."""
    clock = FakeClock(100)
    report, _ = run(World(clock, **parts), clock.deadline(seconds), shake=True)
    spent = (report.lookup, report.connect, report.handshake)
    assert (report.outcome, report.phase, spent, report.elapsed, report.overshoot) == expected


def test_a_report_says_by_how_much_the_end_was_late(run):
    """K1: whoever waits may sleep over."""
    clock = FakeClock(100)

    class Oversleeping(World):
        def perform(self, step, deadline):
            self.clock.advance(5.5)
            return Returned(None)

    report, _ = run(Oversleeping(clock), clock.deadline(5), endpoints=endpoints(A))
    assert (report.outcome, report.overshoot) == (DialOutcome.DEADLINE_EXPIRED, 0.5)
    assert (report.elapsed, report.connect, report.attempts[0].lasted) == (5.5, 5.5, 5.5)
    plain, _ = run(
        World(clock, addresses={A: (1, None)}), clock.deadline(5), endpoints=endpoints(A)
    )
    assert (plain.outcome, plain.phase) == (DialOutcome.CONNECTED, "connect")
    assert (plain.lookup, plain.connect, plain.elapsed, plain.overshoot) == (0.0, 1.0, 1.0, 0.0)


# What is raised.


def test_the_message_of_an_end_is_exact():
    """K1: by how much it was missed, why it was stopped, in which phase."""
    clock = FakeClock(100)

    class Oversleeping(World):
        def perform(self, step, deadline):
            self.clock.advance(5.5)
            return Returned(None)

    def said(world, deadline, **options):
        now = deadline._now()
        dialed = drive(dialing(deadline._at, now, deadline._stop, **options), world, deadline, now)
        with pytest.raises(Exception) as caught:
            conclude(dialed, "connect to db:80", deadline)
        return str(caught.value)

    assert said(Oversleeping(clock), clock.deadline(5), endpoints=endpoints(A)) == (
        "connect to db:80: the deadline of 5 s was missed by 0.5 s, in the connect"
    )
    stop = StopSignal()
    stop.request("drain")
    assert said(World(clock), clock.deadline(1).stopping(stop)) == (
        "connect to db:80: stopped (drain) 0 s into the deadline of 1 s, in the lookup"
    )


def test_another_report_is_none_of_a_dialing():
    assert dial_report(DeadlineExceeded("late", report=object())) is None


def raised(world, deadline, **options):
    now = deadline._now()
    dialed = drive(dialing(deadline._at, now, deadline._stop, **options), world, deadline, now)
    with pytest.raises(Exception) as caught:
        conclude(dialed, "connect to db:80", deadline, "; lookups outstanding: 1")
    assert dial_report(caught.value) is dialed.report
    return caught.value


def test_expiry_is_told_with_its_phase_and_each_address():
    """A13: a line for every address, one that was not tried too."""
    clock = FakeClock()
    no_route, silence = (0, OSError(113, "no route")), (0, BLACK_HOLE)
    world = World(clock, addresses={A: no_route, B: silence, C: silence})
    error = raised(world, clock.deadline(0.3), endpoints=endpoints(A, B, C))
    assert type(error) is DeadlineExceeded
    assert re.fullmatch(
        r"connect to db:80: the deadline of 0.3 s was \w.*, in the connect; lookups outstanding: 1",
        str(error),
    )
    assert error.__notes__ == [
        "('10.0.0.1', 80): failed after 0 s: OSError: [Errno 113] no route",
        "('10.0.0.2', 80): timed out after 0.25 s",
        "('10.0.0.3', 80): expired after 0.05 s",
    ]
    assert error.report.attempts[1].granted == 0.25


def test_a_stop_is_told_with_its_phase():
    clock = FakeClock()
    stop = StopSignal()
    stop.request("drain")
    error = raised(World(clock), clock.deadline(1).stopping(stop))
    assert type(error) is StopRequested
    assert "drain" in str(error)
    assert "in the lookup" in str(error)


def test_what_was_not_tried_is_told():
    clock = FakeClock()
    stop = StopSignal()

    class Stopping(World):
        def perform(self, step, deadline):
            stop.request()
            return Returned(None)

    deadline = clock.deadline(1).stopping(stop)
    error = raised(Stopping(clock), deadline, endpoints=endpoints(A, B))
    assert error.__notes__ == [
        "('10.0.0.1', 80): stopped after 0 s",
        "('10.0.0.2', 80): not tried",
    ]


def test_silence_within_the_budget_is_a_plain_time_out():
    """K2: no deadline of the caller's has passed."""
    clock = FakeClock()

    class Early(World):
        def perform(self, step, deadline):
            self.clock.advance(0.1)
            return Reply.SILENCE

    error = raised(Early(clock), clock.deadline(5), endpoints=endpoints(A, B))
    assert type(error) is TimeoutError
    assert str(error) == "connect to db:80: no address answered in its share of the budget"
    assert error.__notes__ == [
        "('10.0.0.1', 80): timed out after 0.1 s",
        "('10.0.0.2', 80): timed out after 0.1 s",
    ]


def test_the_systems_error_is_raised_as_it_is_with_the_history_noted():
    clock = FakeClock()
    refused = ConnectionRefusedError(111, "refused")
    error = raised(
        World(clock, addresses={A: (0.5, refused)}), clock.deadline(5), endpoints=endpoints(A)
    )
    assert error is refused
    assert error.__notes__ == [
        "('10.0.0.1', 80): failed after 0.5 s: ConnectionRefusedError: [Errno 111] refused"
    ]


def test_an_error_that_takes_no_notes_is_raised_all_the_same():
    class Bare(Exception):
        __slots__ = ()

        def __setattr__(self, name, value):
            raise TypeError("frozen")

        def add_note(self, note):
            raise TypeError("frozen")

    clock = FakeClock()
    deadline = clock.deadline(5)
    world = World(clock, addresses={A: (0, Bare())})
    dialed = drive(
        dialing(deadline._at, 0, endpoints=endpoints(A)), world, deadline, deadline._now()
    )
    with pytest.raises(Bare) as caught:
        conclude(dialed, "connect", deadline)
    assert dial_report(caught.value) is None
    assert dial_report(ValueError()) is None


def test_the_farthest_instant_is_no_limit():
    """N3."""
    assert Lookup(FAR_NS, 0).limit is None
    assert Lookup(FAR_NS - 1, 0).limit == FAR_NS - 1
    assert _seconds(FAR_NS) == math.inf
    assert _seconds(FAR_NS - 1) < math.inf


# What connect is given.


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"address": "localhost:80"}, TypeError, r"address must be a host and a port such as"),
        ({"address": ("localhost", "80")}, TypeError, "address must be a host and a port"),
        ({"address": ("localhost", True)}, TypeError, "address must be a host and a port"),
        ({"address": ("", 80)}, TypeError, "address must be a host and a port"),
        ({"address": ("localhost", 80, 0)}, TypeError, "address must be a host and a port"),
        ({"address": ("localhost", 65_536)}, ValueError, "port from 0 to 65535, not 65536"),
        ({"address": ("localhost", -1)}, ValueError, "port from 0 to 65535, not -1"),
        ({"deadline": 5}, TypeError, "Deadline.after"),
        ({"tls": True}, TypeError, r"tls must be an ssl.SSLContext or None, not .*create_default"),
        ({"server_hostname": b"x"}, TypeError, "server_hostname must be a host name"),
        ({"server_hostname": ""}, TypeError, "server_hostname must be a host name"),
        ({"resolver": "dns"}, TypeError, "resolver must be a function of host and port, not"),
        ({"idle_timeout": 0}, ValueError, "idle_timeout"),
        ({"source_address": "10.0.0.1"}, TypeError, "source_address must be a host and a port"),
    ],
)
@pytest.mark.parametrize("colour", ["blocking", "tasks"])
def test_a_wrong_argument_is_named_before_anything_is_touched(colour, wrong, error, text):
    from timebounds import aconnect

    def never(host, port):
        raise AssertionError

    given = {"address": ("name", 1), "deadline": Deadline.after(5), "resolver": never} | wrong
    address, deadline = given.pop("address"), given.pop("deadline")

    async def main():
        await aconnect(address, deadline, **given)

    with pytest.raises(error, match=text):
        connect(address, deadline, **given) if colour == "blocking" else asyncio.run(main())


def test_a_thread_with_a_running_loop_is_refused():
    async def main():
        with pytest.raises(RuntimeError, match="aconnect"):
            connect(("name", 1), Deadline.after(5))
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(RuntimeError, match=r"AsyncConnection\.over"):
            Connection.over(ours, Deadline.after(5))

    asyncio.run(main())
