"""F6: the shipped suites hold for the real clock and socket and for the fakes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

import pytest
from colours import InLoop
from lines import contexts

from timebounds import (
    MONOTONIC,
    AsyncBudgetedReceiver,
    BootClock,
    BudgetedReceiver,
    Deadline,
    MonotonicClock,
    SteadyClock,
)
from timebounds.testing import (
    Data,
    End,
    FakeClock,
    ScriptedSocket,
    ScriptedStream,
    check_clock,
    check_receiver,
)


class MinimalClock(SteadyClock):
    """What a user has to write: one method."""

    def now_ns(self):
        return MONOTONIC.now_ns() + 5_000_000_000


def advance(clock, seconds):
    clock.wait_until_waiting(1)
    clock.advance(seconds)


@pytest.mark.real
@pytest.mark.parametrize("make", [MonotonicClock, BootClock, MinimalClock])
def test_real_clocks_conform(make):
    """F6, C1."""
    check_clock(make)


def test_a_fake_clock_moved_by_hand_conforms():
    """F6, F1."""
    check_clock(FakeClock, advance=advance)


def test_the_boot_face_of_a_fake_clock_conforms():
    """F6, F2."""
    clock = FakeClock()
    check_clock(lambda: clock.boot, advance=lambda _, seconds: advance(clock, seconds))


def test_a_fake_clock_that_moves_itself_conforms():
    """F6, F1."""
    check_clock(lambda: FakeClock(auto_advance=True))


class SocketLine:
    """A pair of real sockets on the real clock."""

    def __init__(self, ours, theirs):
        self.ours, self.theirs = ours, theirs

    def receiver(self, *, idle_timeout=None):
        return BudgetedReceiver(self.ours, idle_timeout=idle_timeout)

    def deadline(self, seconds):
        return Deadline.after(seconds)

    def send(self, data):
        self.theirs.sendall(data)

    def close(self):
        self.theirs.close()

    def timeout(self):
        return self.ours.gettimeout()


@contextlib.contextmanager
def socket_line(timeout):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(timeout)
        yield SocketLine(ours, theirs)


class PythonSocket(socket.socket):
    """A socket whose recv is Python code, and so may have been anything."""

    def recv(self, *args):
        return super().recv(*args)


@contextlib.contextmanager
def python_line():
    ours, theirs = socket.socketpair()
    with PythonSocket(fileno=ours.detach()) as wrapped, theirs:
        yield SocketLine(wrapped, theirs)


class ScriptedLine(SocketLine):
    """A scripted socket on a fake clock."""

    def __init__(self):
        self.clock = FakeClock(auto_advance=True)
        self.ours = ScriptedSocket(self.clock)

    def deadline(self, seconds):
        return self.clock.deadline(seconds)

    def send(self, data):
        self.ours.extend(Data(data))

    def close(self):
        self.ours.extend(End())


@contextlib.contextmanager
def scripted_line():
    yield ScriptedLine()


@pytest.mark.real
@pytest.mark.parametrize("timeout", [None, 0.0, 5.0, 1e-9])
def test_the_receiver_conforms_on_real_sockets_of_every_mode(timeout):
    """F6, R9."""
    check_receiver(lambda: socket_line(timeout))


@pytest.mark.real
def test_the_receiver_conforms_on_a_socket_whose_recv_is_python():
    """F6, R13."""
    check_receiver(python_line)


def test_the_receiver_conforms_on_a_scripted_socket():
    """F6, F4."""
    check_receiver(scripted_line)


class TaskLine(SocketLine):
    """A receiver for tasks in a loop of its own, over a real stream or a raw socket."""

    def __init__(self, runner, ours, theirs, source):
        super().__init__(ours, theirs)
        self.runner, self.source = runner, source

    def receiver(self, *, idle_timeout=None):
        runner, inner = self.runner, AsyncBudgetedReceiver(self.source, idle_timeout=idle_timeout)

        class InRunner:
            def __getattr__(self, name):
                value = getattr(inner, name)
                if not name.startswith(("receive", "resume")):
                    return value

                async def call(*args):
                    return await value(*args)

                return lambda *args: runner.run(call(*args))

        return InRunner()


@contextlib.contextmanager
def task_line(kind):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with asyncio.Runner() as runner, ours, theirs:
        if kind == "a raw socket":
            yield TaskLine(runner, ours, theirs, ours)
            return

        options, peers = {}, [theirs]
        if kind == "a TLS stream reader":
            client, server = contexts()
            options = {"ssl": client, "server_hostname": "localhost"}
            thread = threading.Thread(
                target=lambda: peers.append(server.wrap_socket(theirs, server_side=True))
            )
            thread.start()

        async def opened():
            return await asyncio.open_connection(sock=ours, **options)

        reader, writer = runner.run(opened())
        try:
            if options:
                thread.join()
            yield TaskLine(runner, ours, peers[-1], reader)
        finally:
            peers[-1].close()

            async def closed():
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

            runner.run(closed())


@pytest.mark.real
@pytest.mark.parametrize("kind", ["a stream reader", "a TLS stream reader", "a raw socket"])
def test_the_receiver_for_tasks_conforms(kind):
    """F6, R13."""
    check_receiver(lambda: task_line(kind))


class ScriptedTaskLine(ScriptedLine):
    """A scripted stream in a loop on fake time."""

    def __init__(self):
        self.clock = FakeClock()
        self.ours = ScriptedStream(self.clock)

    def receiver(self, *, idle_timeout=None):
        return InLoop(self.clock, AsyncBudgetedReceiver(self.ours, idle_timeout=idle_timeout))

    def timeout(self):
        return None


@contextlib.contextmanager
def scripted_task_line():
    yield ScriptedTaskLine()


def test_the_receiver_for_tasks_conforms_on_a_scripted_stream():
    """F6, F4."""
    check_receiver(scripted_task_line)


class EagerClock(MinimalClock):
    """Canary: ends every wait early."""

    def sleep(self, seconds):
        super().sleep(seconds / 2)


class DeafClock(MinimalClock):
    """Canary: says that nothing was ready."""

    def poll(self, poller, seconds):
        super().poll(poller, min(seconds, 0.02))
        return []


@pytest.mark.real
@pytest.mark.parametrize("make", [EagerClock, DeafClock])
def test_the_clock_suite_rejects_what_is_no_clock(make):
    """F6: a suite that cannot fail is a defect."""
    with pytest.raises(AssertionError, match="does not hold"):
        check_clock(make)


class Forgetful:
    """Canary: drops what was pending when a receive fails."""

    def __init__(self, receiver):
        self._receiver = receiver

    def __getattr__(self, name):
        return getattr(self._receiver, name)

    def receive_exactly(self, size, deadline):
        try:
            return self._receiver.receive_exactly(size, deadline)
        except Exception:
            self._receiver.discard()
            raise


class Patient:
    """Canary: waits on when its deadline has passed."""

    def __init__(self, receiver, line):
        self._receiver, self._line = receiver, line

    def __getattr__(self, name):
        return getattr(self._receiver, name)

    def receive_exactly(self, size, deadline):
        return b"\0" * size


def test_the_receiver_suite_rejects_one_that_has_no_bounds():
    """F6: a suite that cannot fail is a defect."""

    class Line(ScriptedLine):
        sends = 0

        def send(self, data):
            super().send(data)
            self.sends += 1

        def receiver(self, *, idle_timeout=None):
            plain = super().receiver(idle_timeout=idle_timeout)
            return Patient(plain, self) if idle_timeout else plain

    @contextlib.contextmanager
    def line():
        yield Line()

    with pytest.raises(AssertionError, match="IdleTimeout was expected"):
        check_receiver(line)


def test_the_receiver_suite_rejects_one_that_loses_bytes():
    """F6: a suite that cannot fail is a defect."""

    class Line(ScriptedLine):
        def receiver(self, *, idle_timeout=None):
            return Forgetful(super().receiver(idle_timeout=idle_timeout))

    @contextlib.contextmanager
    def line():
        yield Line()

    with pytest.raises(AssertionError):
        check_receiver(line)
