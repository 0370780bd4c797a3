"""A budget goes on in another process: what crosses is the time left, in whole milliseconds."""

import subprocess
import sys

from timebounds import DeadlineExceeded
from timebounds.testing import FakeClock
from timebounds.wire import from_milliseconds, to_milliseconds

HEADER = "x-time-left-ms"


def caller():
    # Fake clocks print the same each time; a service leaves them out, here and below.
    clock = FakeClock()
    deadline = clock.deadline(60)
    clock.advance(12.3456789)  # what was done until now
    print("the caller has", deadline.remaining(), "s left", flush=True)

    # A quarter of a second is kept back for the way there and back.
    call([f"{HEADER}: {to_milliseconds(deadline, transit=0.25)}"], deadline)
    call([], deadline)  # as a caller without a deadline does
    call([f"{HEADER}: 0"], deadline)
    call([f"{HEADER}: 1e9"], deadline)

    # What is less than a millisecond is not sent: the callee could only come too late.
    clock.advance(47.654)
    try:
        to_milliseconds(deadline)
    except DeadlineExceeded as error:
        print(error)


def call(headers, deadline):
    command = [sys.executable, __file__, "callee", *headers]
    subprocess.run(command, timeout=deadline.timeout(), check=True)  # noqa: S603  (our own words)


def callee(headers):
    clock = FakeClock(98_765)  # another process, another zero
    text = dict(line.split(": ") for line in headers).get(HEADER)
    try:
        # Nobody gets more than half an hour here, with a header or without.
        deadline = from_milliseconds(text, maximum=1800, clock=clock)
        deadline.check("the callee's work")
    except (ValueError, DeadlineExceeded) as error:
        print(f"{text!r} is refused: {error}")
    else:
        print(f"{text!r} gives the callee {deadline.remaining()} s")


if sys.argv[1:2] == ["callee"]:
    callee(sys.argv[2:])
else:
    caller()
