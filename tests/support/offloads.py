"""What the tests of offloading share: a resource that notices misuse, and turns of the loop."""

from __future__ import annotations

import asyncio
import threading

from timebounds.testing import Gate, Trace


class Resource:
    """Something with a close; it keeps a trace, and notices being closed while it is in use."""

    def __init__(self, *, obeys=True):
        self.trace = Trace()
        self.gate = Gate("work")
        self.obeys = obeys
        self.inside = 0
        self.closed = 0
        self.releases = 0
        self.wrong = []

    def work(self, outcome=None):
        """Block until released; then return or raise the outcome."""
        self.inside += 1
        self.thread = threading.get_ident()
        self.trace.add("entered")
        try:
            self.gate.enter()
            if self.closed:
                self.wrong.append("used after close")
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome
        finally:
            self.inside -= 1
            self.trace.add("returned")

    def release(self):
        self.releases += 1
        if not self.inside:
            self.wrong.append("released while nobody is inside")
        self.trace.add("released")
        if self.obeys:
            self.gate.open()

    def close(self):
        self.closed += 1
        if self.inside:
            self.wrong.append("closed while the function is inside")
        self.trace.add("closed")


async def turns(count=1):
    """Let the loop make some turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition, seconds=20.0):
    """Let the loop turn until the condition holds: for what another thread does."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    pause = threading.Event()
    while not condition():
        await asyncio.sleep(0)
        pause.wait(0.0002)
        assert loop.time() < give_up, f"{condition} did not become true"
