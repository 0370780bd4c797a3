"""Floor 4: what tests of your own code need. `import timebounds` does not load it.

`FakeClock` moves by hand, by itself, or in one jump; `ForbiddenClock` proves that code is free of
time; `ScriptedSocket` and, for tasks, `ScriptedStream` are peers that follow a script on a fake
clock; `Gate` and `Trace` put threads in order without sleeping; `check_clock` and `check_receiver`
are the suites that the library's own clocks and receivers pass, for yours to pass too.
"""

from timebounds.testing.contracts import ReceiverLine, check_clock, check_receiver
from timebounds.testing.fake_clock import FakeClock, Timer
from timebounds.testing.forbidden_clock import ForbiddenClock
from timebounds.testing.order import Gate, Trace
from timebounds.testing.scripted_socket import Data, End, Failure, ScriptedSocket, Silence
from timebounds.testing.scripted_stream import ScriptedStream

__all__ = [
    "Data",
    "End",
    "Failure",
    "FakeClock",
    "ForbiddenClock",
    "Gate",
    "ReceiverLine",
    "ScriptedSocket",
    "ScriptedStream",
    "Silence",
    "Timer",
    "Trace",
    "check_clock",
    "check_receiver",
]
