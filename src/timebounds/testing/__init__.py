"""Floor 4: what tests of your own code need. `import timebounds` does not load it.

`FakeClock` moves by hand, by itself, or in one jump; `ForbiddenClock` proves that code is free of
time; `ScriptedSocket` is a peer that follows a script on a fake clock; `Gate` and `Trace` put
threads in order without sleeping; `check_clock` and `check_receiver` are the suites that the
library's own clocks and receivers pass, for yours to pass too.
"""

from timebounds.testing.contracts import ReceiverLine, check_clock, check_receiver
from timebounds.testing.fake_clock import FakeClock, Timer
from timebounds.testing.forbidden_clock import ForbiddenClock
from timebounds.testing.order import Gate, Trace
from timebounds.testing.scripted_socket import Data, End, Failure, ScriptedSocket, Silence

__all__ = [
    "Data",
    "End",
    "Failure",
    "FakeClock",
    "ForbiddenClock",
    "Gate",
    "ReceiverLine",
    "ScriptedSocket",
    "Silence",
    "Timer",
    "Trace",
    "check_clock",
    "check_receiver",
]
