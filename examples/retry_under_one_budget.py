"""One second for all attempts and the waits between them: on a fake clock, and really."""

from timebounds import MONOTONIC, Backoff, Deadline, Effect, Overrun, Retry, RetryAllowance
from timebounds.testing import FakeClock


class Unavailable(ConnectionError):
    """What the server answers, each time after 0.4 s."""


def policy(overrun):
    return Retry(
        on=ConnectionError,
        effect=Effect.READ_ONLY,
        allowance=RetryAllowance(10, Backoff.exponential(0.1, cap=2.0)),
        overrun=overrun,
    )


def ask(attempt, clock):
    """A server that needs 0.4 s to say no, and a client that hands its limit down."""
    left = attempt.deadline.remaining()
    print(f"  attempt {attempt.number}: {left:.2f} s left")
    clock.sleep(min(0.4, left))
    raise Unavailable


def spend_a_second(clock, overrun):
    began = clock.now()
    try:
        policy(overrun).call(ask, clock, deadline=Deadline.after(1.0, clock=clock))
    except Unavailable as error:
        print(f"  {error.__notes__[0]}")
    took = clock.now() - began
    print(f"  over at {took:.2f} s")
    return took


for overrun in Overrun:
    print(f"on a fake clock, {overrun}:")
    assert spend_a_second(FakeClock(auto_advance=True), overrun) <= 1.0

print("really:")
took = spend_a_second(MONOTONIC, Overrun.REFUSE)
# A machine that has other things to do may be late; it is never the policy that is.
print("within 1.05 s" if took <= 1.05 else f"{took - 1.0:.2f} s late on this busy machine")
