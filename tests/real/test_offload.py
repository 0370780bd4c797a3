"""O2, O6, O8 in real processes and on real sockets: Ctrl-C, a closed loop, a thread that hangs."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from offloads import until

from children import ROOT, environment
from timebounds import (
    BudgetedReceiver,
    Deadline,
    ShieldedOffload,
    offload,
    offload_job,
    offload_report,
    shut_peer,
    shut_reading,
)

pytestmark = pytest.mark.real


def far():
    return Deadline.after(60)


# ------------------------------------------------------------------ on a real socket


@pytest.mark.parametrize("how", ["stop", "shut_reading", "shut_peer"])
def test_a_blocked_read_returns_within_moments_of_a_hundred_cancels(how):
    """O1, O2, case A43: without the peer's help; closed once, after the return."""

    async def main():
        ours, theirs = socket.socketpair()
        closed = []
        releases = {
            "stop": None,
            "shut_reading": shut_reading(ours),
            "shut_peer": shut_peer(theirs),
        }
        entered = threading.Event()

        def read(job):
            entered.set()
            if how == "stop":
                return BudgetedReceiver(ours).receive_exactly(5, job.deadline)
            try:
                return ours.recv(5)
            finally:
                assert os.fstat(ours.fileno())

        def close():
            closed.append(ours.fileno())
            ours.close()

        async def use():
            async with ShieldedOffload(release=releases.get(how), close=[close]) as scope:
                return await scope.run_job(read, deadline=far())

        with theirs:
            task = asyncio.create_task(use())
            await until(entered.is_set)
            await asyncio.sleep(0.02)  # until it blocks; earlier is no harm
            began = time.monotonic()
            for _ in range(100):
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began < 0.5
            assert task.cancelling() == 100
        assert len(closed) == 1
        assert closed[0] >= 0
        assert ours.fileno() == -1

    asyncio.run(main())


def test_a_release_of_what_is_closed_already_is_no_error():
    """O5: there is nothing left to wake."""
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    shut_reading(ours)()
    lonely = socket.socket()
    with lonely:
        shut_reading(lonely)()


def test_a_release_that_the_system_refuses_is_an_error():
    """O5: it is not swallowed."""

    class Refusing(socket.socket):
        pass

    async def main():
        with Refusing(socket.AF_INET, socket.SOCK_STREAM) as sock:
            number = os.open(os.devnull, os.O_RDONLY)
            before = os.dup(sock.fileno())
            os.dup2(number, sock.fileno())
            try:
                with pytest.raises(OSError, match="non-socket"):
                    shut_reading(sock)()
            finally:
                os.dup2(before, sock.fileno())
                os.close(before)
                os.close(number)

    asyncio.run(main())


def test_a_busy_loop_does_not_keep_the_stop_from_the_thread():
    """O2: a foreign thread cancels while the loop is blocked."""

    async def main():
        ours, theirs = socket.socketpair()
        seen = []
        with ours, theirs:

            def read(job):
                try:
                    return BudgetedReceiver(ours).receive_exactly(5, job.deadline)
                finally:
                    seen.append(time.monotonic())

            task = asyncio.create_task(offload_job(read, deadline=far()))
            await asyncio.sleep(0.02)
            asked = []

            def cancel():
                asked.append(time.monotonic())
                task.cancel()

            timer = threading.Timer(0.02, cancel)
            timer.start()
            threading.Event().wait(0.3)  # the loop is blocked
            assert seen[0] - asked[0] < 0.25
            timer.join()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


# ------------------------------------------------------------------ after the loop


@pytest.mark.parametrize("held", [True, False])
def test_a_completion_after_the_loop_is_closed_is_recorded_and_silent(held, capfd):
    """O8, case A61: a late report without a listener is no error."""
    gate, done = threading.Event(), []

    def work():
        gate.wait(20)
        done.append("returned")
        return 5

    loop = asyncio.new_event_loop()

    async def begin():
        scope = ShieldedOffload(close=[lambda: done.append("closed")])
        await scope.__aenter__()
        return scope.start(work, deadline=far())

    handle = loop.run_until_complete(begin())
    if not held:
        handle = None
    loop.close()
    gate.set()
    wanted = ["returned"] if held else ["returned", "closed"]
    limit = time.monotonic() + 20
    while done != wanted and time.monotonic() < limit:
        gc.collect()  # the scope was left without its end
        threading.Event().wait(0.001)
    assert done == wanted
    if held:
        while handle.report is None and time.monotonic() < limit:
            threading.Event().wait(0.001)
        assert handle.report.value == 5
    assert capfd.readouterr().err == ""


# ------------------------------------------------------------------ Ctrl-C

STUCK = """
    import asyncio, sys, threading, time
    from timebounds import Deadline, ShieldedOffload

    def hang():
        print("inside", flush=True)
        time.sleep(60)

    async def main():
        async with ShieldedOffload(close=[lambda: print("closed", flush=True)]) as scope:
            try:
                await scope.run(hang, deadline=Deadline.after(50))
            finally:
                print("left", flush=True)

    asyncio.run(main())
"""

OBEYS = """
    import asyncio, socket
    from timebounds import BudgetedReceiver, Deadline, ShieldedOffload

    ours, theirs = socket.socketpair()

    def read(job):
        print("inside", flush=True)
        try:
            BudgetedReceiver(ours).receive_exactly(5, job.deadline)
        finally:
            print("returned", ours.fileno() >= 0, flush=True)

    def close():
        ours.close()
        theirs.close()
        print("closed", flush=True)

    async def main():
        async with ShieldedOffload(close=[close]) as scope:
            await scope.run_job(read, deadline=Deadline.after(50))

    asyncio.run(main())
"""


class Child:
    """A process that can be sent signals, and whose output is waited for."""

    def __init__(self, code):
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-c", textwrap.dedent(code)],
            env=environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.process.kill()
        self.process.communicate()

    def says(self, line):
        assert self.process.stdout.readline().strip() == line

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def ends(self, within):
        """Wait for the end; return the rest of the output, and whether Ctrl-C ended it."""
        began = time.monotonic()
        out, err = self.process.communicate(timeout=30)
        assert time.monotonic() - began < within, err
        assert self.process.returncode in (-signal.SIGINT, 1), err
        return out.split("\n"), err


def test_one_ctrl_c_ends_what_obeys_in_order():
    """O8, cases A59, A60: stop, return, close, and then KeyboardInterrupt."""
    with Child(OBEYS) as child:
        child.says("inside")
        child.interrupt()
        out, err = child.ends(within=2.25)
    assert out == ["returned True", "closed", ""]
    assert err.strip().endswith("KeyboardInterrupt")


def test_a_second_ctrl_c_ends_the_wait_for_what_hangs():
    """O8, cases A59, A60: within a second; what is left is named on stderr."""
    with Child(STUCK) as child:
        child.says("inside")
        child.interrupt()
        threading.Event().wait(0.5)
        assert child.process.poll() is None, "the first one waits"
        child.interrupt()
        out, err = child.ends(within=1.25)
    assert out == ["left", ""]
    assert "offload of hang was asked to stop" in err
    assert "was left inside its thread" in err
    assert err.strip().endswith("KeyboardInterrupt")


def test_a_third_ctrl_c_changes_nothing():
    """O8: the exit stays bounded."""
    with Child(STUCK) as child:
        child.says("inside")
        for _ in range(3):
            child.interrupt()
            threading.Event().wait(0.1)
        _, err = child.ends(within=1.25)
    assert "KeyboardInterrupt" in err


def test_a_stuck_thread_does_not_hold_up_the_exit():
    """O6: threads are daemons."""
    code = """
        import asyncio, time
        from timebounds import Deadline, DeadlineExceeded, offload

        async def main():
            try:
                await offload(time.sleep, 60, deadline=Deadline.after(0.05), grace=0)
            except DeadlineExceeded as error:
                print(error.report.outcome, flush=True)

        asyncio.run(main())
    """
    with Child(code) as child:
        child.says("stuck")
        began = time.monotonic()
        assert child.process.wait(10) == 0
        assert time.monotonic() - began < 2


def test_a_stop_aware_wait_is_left_at_once_by_sigterm():
    """Case A59: what was parked in a thread can be released at the end of a service."""
    code = """
        import asyncio, queue, signal
        from timebounds import Deadline, StopSignal, StopRequested, offload_job

        def serve(job):
            print("inside", flush=True)
            waited = job.deadline.stop.wait(Deadline.after(60))
            print("woken", waited, flush=True)
            job.deadline.check("serving")

        async def main(stop):
            try:
                await offload_job(serve, deadline=Deadline.never(stop=stop))
            except StopRequested as error:
                print(error, flush=True)

        with StopSignal.on_signals(signal.SIGTERM) as stop:
            asyncio.run(main(stop))
    """
    with Child(code) as child:
        child.says("inside")
        child.process.send_signal(signal.SIGTERM)
        out, _ = child.process.communicate(timeout=10)
    assert out == "woken True\nserving: stopped (SIGTERM)\n"
    assert child.process.returncode == 0


def test_a_forked_child_has_a_pool_of_its_own():
    """The parent's idle threads do not exist there."""
    code = """
        import asyncio, os, warnings
        from timebounds import Deadline, offload

        warnings.simplefilter("ignore")  # that threads exist while it forks

        def run():
            return asyncio.run(offload(int, "5", deadline=Deadline.after(5)))

        assert run() == 5
        child = os.fork()
        if child == 0:
            assert run() == 5
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("both", flush=True)
    """
    with Child(
        "import warnings; warnings.simplefilter('ignore')\n" + textwrap.dedent(code)
    ) as child:
        child.says("both")
        assert child.process.wait(10) == 0


def test_a_report_of_a_real_run_has_its_times():
    """O4, T1: each step with its own."""

    async def main():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            task = asyncio.create_task(
                offload_job(
                    lambda job: BudgetedReceiver(ours).receive_exactly(5, job.deadline),
                    deadline=far(),
                )
            )
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
        report = offload_report(caught.value)
        assert [name for name, _ in report.steps] == [
            "submitted",
            "entered",
            "stop requested",
            "stop observed",
            "returned",
        ]
        assert report.ran >= 0.04

    asyncio.run(main())


def test_an_offload_without_a_running_loop_is_refused():
    """O13: where there is no loop there is no task to await it."""
    coroutine = offload(int, deadline=far())
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)
