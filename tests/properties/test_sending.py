"""A18, S1: whatever the peer takes, whenever a bound strikes, each byte goes out once."""

from __future__ import annotations

from colours import sender
from hypothesis import given, settings
from hypothesis import strategies as st

from timebounds import BoundReached, Deadline, StopSignal, Unfinished
from timebounds.testing import Accept, Failure, FakeClock, ScriptedSocket, Silence

after = st.sampled_from([0, 0, 0.25, 0.5, 1.0, 1.25])
steps = st.one_of(
    st.builds(Accept, st.integers(1, 9), after=after),
    st.builds(Accept, st.integers(1, 9), after=after),
    st.just(Silence()),
    st.builds(Failure, st.builds(ConnectionResetError, st.just("reset")), after=after),
)
calls = st.tuples(
    st.sampled_from(["send", "send", "resume", "resume", "discard"]),
    st.binary(min_size=0, max_size=20),
    st.sampled_from([100.0, 5.0, 1.0, 0.5, 0.25, 0.0]),
    st.sampled_from([False, False, False, True]),
)


def call(made, clock, verb, data, budget, stopped):
    """Make one call; return all that can be seen of it."""
    stop = StopSignal(clock=clock)
    if stopped:
        stop.request("now")
    deadline = Deadline.after(budget, clock=clock, stop=stop)
    try:
        value = {
            "send": lambda: made.send_all(data, deadline),
            "resume": lambda: made.resume(deadline),
            "discard": made.discard,
        }[verb]()
        outcome = ("returned", value)
    except Exception as error:
        outcome = (type(error), str(error), tuple(getattr(error, "__notes__", ())))
    return outcome, made.report, made.unsent, clock.now_ns()


def play(colour, script, made_calls, idle):
    clock = FakeClock()
    sock = ScriptedSocket(clock)
    sock.accepting(
        *(
            type(each)(ConnectionResetError("reset"), each.after)
            if isinstance(each, Failure)
            else each
            for each in script
        )
    )
    made = sender(colour, sock, idle_timeout=idle)
    seen, meant, rest = [], bytearray(), b""
    for verb, data, budget, stopped in made_calls:
        outcome, report, unsent, now = call(made, clock, verb, data, budget, stopped)
        seen.append((outcome, report, unsent, now))
        if verb == "discard":
            rest = b""
        elif not issubclass(outcome[0] if isinstance(outcome[0], type) else type, Unfinished):
            # A new message takes the place of one of which nothing went.
            whole = data if verb == "send" else rest
            meant += whole[: len(whole) - len(unsent)]
            rest = unsent
            assert whole.endswith(unsent)
        assert bytes(sock.sent) == bytes(meant)
        if report is not None:
            assert report.satisfied == (report.left == 0)
            assert (outcome[0] == "returned" or verb != "send") or issubclass(
                outcome[0], (BoundReached, Unfinished)
            )
    return seen


@settings(max_examples=400)
@given(
    script=st.lists(steps, max_size=12),
    made=st.lists(calls, min_size=1, max_size=7),
    idle=st.sampled_from([None, 0.5, 1.0]),
)
def test_each_byte_goes_out_once_and_both_colours_agree(script, made, idle):
    """A18, S1-S3: outcomes, reports, what is left, and clocks."""
    assert play("blocking", script, made, idle) == play("tasks", script, made, idle)
