"""Floor 4: what tests of your own code need. `import timebounds` does not load it.

`FakeClock` moves by hand, by itself, or in one jump; `ForbiddenClock` proves that code is free of
time; `ScriptedSocket` and, for tasks, `ScriptedStream` are peers that follow a script on a fake
clock; `Gate` and `Trace` put threads in order without sleeping; `check_clock` and `check_receiver`
are the suites that the library's own clocks and receivers pass, for yours to pass too.
`VirtualLoop` is an event loop on a fake clock, `DripServer` a real peer that misbehaves, and
`ImpairedProxy` a bad line to a real one.
"""

from timebounds.testing.contracts import ReceiverLine, check_clock, check_receiver
from timebounds.testing.drip_server import DripServer, Misbehaviour
from timebounds.testing.fake_clock import FakeClock, Timer
from timebounds.testing.forbidden_clock import ForbiddenClock
from timebounds.testing.impaired_proxy import ImpairedProxy
from timebounds.testing.journal_contract import check_journal
from timebounds.testing.loop import VirtualLoop
from timebounds.testing.order import Gate, Trace
from timebounds.testing.scripted_socket import Accept, Data, End, Failure, ScriptedSocket, Silence
from timebounds.testing.scripted_stream import ScriptedStream

__all__ = [
    "Accept",
    "Data",
    "DripServer",
    "End",
    "Failure",
    "FakeClock",
    "ForbiddenClock",
    "Gate",
    "ImpairedProxy",
    "Misbehaviour",
    "ReceiverLine",
    "ScriptedSocket",
    "ScriptedStream",
    "Silence",
    "Timer",
    "Trace",
    "VirtualLoop",
    "check_clock",
    "check_journal",
    "check_receiver",
]
