"""O8: KeyboardInterrupt before any line of the coordinator leaves every resource owned.

A trace function raises it before the n-th line that the loop's thread runs in the package, for
every n. Then the resource is closed exactly once, after the function has returned, and nothing else
is left.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from contextlib import suppress

import pytest
from offloads import Resource

import timebounds.aio.completion
import timebounds.aio.handle
import timebounds.aio.offload
import timebounds.bounds._threads
import timebounds.bounds.clock
import timebounds.bounds.custody
import timebounds.bounds.errand
import timebounds.bounds.stop
import timebounds.bounds.waking
from timebounds import Deadline, ShieldedOffload, offload, stuck

pytestmark = [
    pytest.mark.slow,
    # An interrupt between the making of a coroutine and its await, or inside a finaliser.
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FILES = {
    module.__file__
    for module in (
        timebounds.aio.completion,
        timebounds.aio.handle,
        timebounds.aio.offload,
        timebounds.bounds._threads,
        timebounds.bounds.clock,
        timebounds.bounds.custody,
        timebounds.bounds.errand,
        timebounds.bounds.stop,
        timebounds.bounds.waking,
    )
}


class Interrupter:
    """Raises KeyboardInterrupt before the n-th line of the package, once, in this thread."""

    def __init__(self, n):
        self.left = n
        self.where = None

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def interrupted(n, coroutine):
    """Run the coroutine with an interrupt before line n; say where it struck, if it did.

    In a thread of its own: an exception where the interpreter expects none, inside the clean-up of
    an except block, leaves that thread's record of handled exceptions askew.
    """
    interrupter = Interrupter(n)

    async def main():
        sys.settrace(interrupter)
        try:
            await coroutine()
        finally:
            sys.settrace(None)

    def inside():
        with suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(main())
        sys.settrace(None)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return interrupter.where


def settled(condition, seconds=5):
    """Wait, in real time, for what threads still have to do."""
    pause = threading.Event()
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        gc.collect()
        pause.wait(0.001)
    return True


async def cancelled_run(resource):
    """A scope whose run is cancelled while the function is inside."""
    async with ShieldedOffload(release=resource.release, close=[resource.close]) as scope:
        resource.owned = True
        handle = scope.start(resource.work, deadline=Deadline.after(30))
        asyncio.get_running_loop().call_later(0.001, asyncio.current_task().cancel)
        await handle


async def plain_run(resource):
    """A scope whose run ends by itself."""
    resource.gate.open()
    async with ShieldedOffload(release=resource.release, close=[resource.close]) as scope:
        resource.owned = True
        await scope.run(resource.work, deadline=Deadline.after(30))


async def expired_run(resource):
    """A scope whose run is ended by its deadline."""
    with suppress(TimeoutError):
        async with ShieldedOffload(release=resource.release, close=[resource.close]) as scope:
            resource.owned = True
            await scope.run(resource.work, deadline=Deadline.after(0.001))


@pytest.mark.parametrize("scenario", [plain_run, cancelled_run, expired_run])
def test_an_interrupt_before_any_line_leaves_every_resource_owned(scenario, caplog):
    """O8: closed exactly once, after the return; or the block was never entered."""
    n, struck = 0, 1
    while struck:
        n += 1
        resource = Resource()
        resource.owned = False
        struck = interrupted(n, lambda: scenario(resource))  # noqa: B023  (run at once)
        # The function may be inside still, when nobody was left to release it.
        resource.gate.open()
        closed = settled(lambda: resource.closed or not resource.owned)  # noqa: B023
        assert closed, f"{struck}: not closed, {resource.trace.events}"
        assert resource.closed <= 1, f"{struck}: closed {resource.closed} times"
        assert resource.releases <= 1, f"{struck}: released {resource.releases} times"
        assert resource.wrong == [], f"{struck}: {resource.wrong}"
        assert resource.inside == 0, struck
        assert settled(lambda: not stuck()), f"{struck}: {stuck()}"
    assert n > 50
    caplog.clear()


def test_an_interrupt_before_any_line_of_one_offload_leaves_nothing_behind(caplog):
    """O8, O13: what the job owned is closed in its thread."""
    n, struck = 0, 1
    while struck:
        n += 1
        resource = Resource()
        resource.gate.open()

        async def one():
            await offload(resource.work, deadline=Deadline.after(30))  # noqa: B023

        struck = interrupted(n, one)
        assert settled(lambda: resource.inside == 0 and not stuck()), struck  # noqa: B023
        assert resource.wrong == [], struck
    assert n > 50
    caplog.clear()
