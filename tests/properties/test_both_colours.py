"""One scenario, both colours: equal values, errors, reports, pending bytes and clocks, always."""

from __future__ import annotations

from colours import scripted
from hypothesis import given, settings
from hypothesis import strategies as st

from timebounds import (
    Backoff,
    BudgetedReceiver,
    Deadline,
    MinRate,
    Overrun,
    RetryAllowance,
    StopSignal,
)
from timebounds.testing import Data, End, Failure, FakeClock, ScriptedSocket, Silence

after = st.sampled_from([0, 0, 0.25, 0.5, 1.0, 1.25])
payload = st.text("ab\n", min_size=1, max_size=6).map(str.encode)
steps = st.one_of(
    st.builds(Data, payload, after=after),
    st.builds(Data, payload, after=after),
    st.just(Silence()),
    st.builds(End, after=after),
    st.builds(Failure, st.builds(ConnectionResetError, st.just("reset")), after=after),
)
verbs = st.one_of(
    st.tuples(st.just("exactly"), st.integers(0, 12)),
    st.tuples(st.just("into"), st.integers(0, 8)),
    st.tuples(st.just("until"), st.integers(1, 12)),
    st.tuples(st.just("some"), st.integers(1, 12)),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("discard"), st.just(0)),
)
calls = st.tuples(
    verbs,
    st.sampled_from([100.0, 5.0, 1.0, 0.5, 0.25, 0.0]),
    # Requested before or not at all: a stop wakes a stream, and a socket-like object never.
    st.sampled_from([False, False, False, True]),
)


def call(receiver, clock, verb, size, budget, stopped):
    """Make one call; return all that can be seen of it."""
    stop = StopSignal(clock=clock)
    if stopped:
        stop.request("now")
    deadline = Deadline.after(budget, clock=clock, stop=stop)
    buffer = bytearray(size)
    try:
        value = {
            "exactly": lambda: receiver.receive_exactly(size, deadline),
            "into": lambda: receiver.receive_into(buffer, deadline),
            "until": lambda: receiver.receive_until(b"\n", size, deadline),
            "some": lambda: receiver.receive_some(size, deadline),
            "resume": lambda: receiver.resume(deadline),
            "discard": receiver.discard,
        }[verb]()
        outcome = ("returned", value)
    except Exception as error:
        outcome = (type(error), str(error), getattr(error, "__notes__", None))
    report = None if receiver.report is None else tuple(receiver.report)
    return outcome, report, bytes(buffer), receiver.pending, clock.now_ns()


@settings(max_examples=400)
@given(
    script=st.lists(steps, max_size=10),
    made=st.lists(calls, min_size=1, max_size=6),
    idle=st.sampled_from([None, 0.5, 1.0]),
    allowance=st.sampled_from(
        [RetryAllowance.none(), RetryAllowance(2), RetryAllowance(3, Backoff.fixed(0.25))]
    ),
    rate=st.sampled_from([None, None, MinRate(4.0, 0.5)]),
    overrun=st.sampled_from(Overrun),
)
def test_both_colours_agree_on_everything(script, made, idle, allowance, rate, overrun):
    """R1-R12, R16, D9: the plans are one, and so are the endings."""
    options = {
        "idle_timeout": idle,
        "allowance": allowance,
        "min_rate": rate,
        "overrun": overrun,
    }
    clock = FakeClock(auto_advance=True)
    blocking = BudgetedReceiver(ScriptedSocket(clock, *script), **options)
    task_clock, _, task = scripted(*script, **options)
    for (verb, size), budget, stopped in made:
        one = call(blocking, clock, verb, size, budget, stopped)
        other = call(task, task_clock, verb, size, budget, stopped)
        assert one == other, (verb, size, budget, stopped)
