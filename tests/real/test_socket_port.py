"""R9, R11, R13, R15, R17, R19 on real sockets; the real parts of A01, A07, A10-A12."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import resource
import select
import signal
import socket
import ssl
import struct
import sys
import threading
import time

import pytest
from lines import contexts, dripping, plain, running, tls

from timebounds import (
    MONOTONIC,
    BudgetedReceiver,
    Busy,
    ClockError,
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    PeerClosed,
    Unfinished,
    blocking_allowed,
)
from timebounds.testing import FakeClock, Gate

pytestmark = pytest.mark.real


def after(seconds):
    return Deadline.after(seconds)


@contextlib.contextmanager
def expires(seconds, slack=0.25):
    """The block ends by a deadline of so many seconds: never early, and in time."""
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded) as caught:
        yield caught
    took = time.monotonic() - began
    assert seconds <= took < seconds + slack


KINDS = {"plain": plain, "tls": tls}


@pytest.fixture(params=KINDS)
def line(request):
    with KINDS[request.param]() as pair:
        yield pair


# ------------------------------------------------------------------ the main job


def test_a_drip_ends_at_the_deadline_with_its_bytes_kept(line):
    """R1, case A01: never early, in time, over plain TCP and over TLS."""
    ours, theirs = line
    receiver = BudgetedReceiver(ours, idle_timeout=1.0)
    with dripping(theirs, b"abcdefghij" * 10, 0.1), expires(0.5) as caught:
        receiver.receive_exactly(100, after(0.5))
    kept = caught.value.report.data
    assert 1 <= len(kept) <= 5
    assert kept == (b"abcdefghij" * 10)[: len(kept)]
    assert receiver.pending == kept


def test_an_idle_peer_is_waited_for_exactly_so_long(line):
    """R12: never early."""
    receiver = BudgetedReceiver(line[0], idle_timeout=0.1)
    began = time.monotonic()
    with pytest.raises(IdleTimeout):
        receiver.receive_exactly(1, after(60))
    assert 0.1 <= time.monotonic() - began < 0.35


def test_the_report_of_a_receive_that_was_whole_at_once():
    """Every fact of it, by ==."""
    clock = FakeClock()
    with plain() as (ours, theirs):
        theirs.sendall(b"ABCD")
        receiver = BudgetedReceiver(ours)
        assert receiver.receive_exactly(4, clock.deadline(1)) == b"ABCD"
        assert receiver.report == ("complete", b"ABCD", 4, 4, True, False, 1, 0, 0, 0, 0, 0)
        assert receiver.report == receiver.report


def test_data_that_comes_while_waiting_wakes_at_once(line):
    ours, theirs = line
    gate = Gate()

    def send(stop):
        gate.enter()
        stop.wait(0.05)
        theirs.sendall(b"now")

    with running(send):
        gate.open()
        assert BudgetedReceiver(ours).receive_exactly(3, after(30)) == b"now"


def test_a_large_message_arrives_whole(line):
    """R4, R5: through every verb."""
    ours, theirs = line
    data = os.urandom(1 << 20)
    receiver = BudgetedReceiver(ours)
    with running(lambda stop: theirs.sendall(data * 3 + b"\n")):
        assert receiver.receive_exactly(len(data), after(30)) == data
        buffer = bytearray(len(data))
        receiver.receive_into(buffer, after(30))
        assert buffer == data
        received = bytearray()
        while len(received) < len(data):
            received += receiver.receive_some(len(data) - len(received), after(30))
        assert received == data
        assert receiver.receive_until(b"\n", 9, after(30)) == b"\n"


def test_the_end_of_the_stream(line):
    """R7."""
    ours, theirs = line
    theirs.sendall(b"AB")
    if isinstance(theirs, ssl.SSLSocket):
        with running(lambda stop: theirs.unwrap()):
            receiver = BudgetedReceiver(ours)
            with pytest.raises(PeerClosed) as caught:
                receiver.receive_exactly(4, after(30))
            ours.unwrap()
    else:
        theirs.close()
        receiver = BudgetedReceiver(ours)
        with pytest.raises(PeerClosed) as caught:
            receiver.receive_exactly(4, after(30))
    assert caught.value.report.data == b"AB"
    assert receiver.receive_some(4, after(30)) == b""


def test_a_reset_propagates_after_the_bytes_that_came_before_it():
    """R4: bytes already queued are delivered first."""
    with plain() as (ours, theirs):
        theirs.sendall(b"hello")
        poller = select.poll()
        poller.register(ours, select.POLLIN)
        assert poller.poll(30_000)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        receiver = BudgetedReceiver(ours)
        with pytest.raises(ConnectionResetError) as caught:
            receiver.receive_exactly(9, after(30))
        assert receiver.pending + b"" in (b"hello", b"")
        assert "bytes kept for resume()" in caught.value.__notes__[0]


def test_a_half_close_ends_reading_only():
    """R19."""
    with plain() as (ours, theirs):
        theirs.shutdown(socket.SHUT_WR)
        assert BudgetedReceiver(ours).receive_some(9, after(30)) == b""
        ours.sendall(b"still there")
        assert theirs.recv(99) == b"still there"


# ------------------------------------------------------------------ the socket as it was lent


ENDINGS = ["complete", "expired", "idle", "eof", "reset"]


def end(receiver, ours, theirs, how):
    if how == "complete":
        theirs.sendall(b"ABCD")
        return receiver.receive_exactly(4, after(30))
    theirs.sendall(b"AB")
    if how == "eof":
        theirs.shutdown(socket.SHUT_RDWR)
    if how == "reset":
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
    with pytest.raises((OSError, EOFError)):
        receiver.receive_exactly(4, after(0.02 if how == "expired" else 30))
    return None


@pytest.mark.parametrize("timeout", [None, 0.0, 0.5, 1e-9])
@pytest.mark.parametrize("how", ENDINGS)
def test_every_ending_leaves_the_timeout_as_it_was(line, how, timeout):
    """R9, case A07: None is a value, not "nothing to restore"."""
    ours, theirs = line
    ours.settimeout(timeout)
    blocking = os.get_blocking(ours.fileno())
    idle = 0.01 if how == "idle" else None
    end(BudgetedReceiver(ours, idle_timeout=idle), ours, theirs, how)
    assert ours.gettimeout() == timeout
    assert os.get_blocking(ours.fileno()) == blocking
    if isinstance(ours, ssl.SSLSocket):
        assert ours.suppress_ragged_eofs is True


@pytest.mark.parametrize("timeout", [None, 0.0, 5.0])
def test_a_plain_socket_is_switched_at_no_moment(timeout):
    """R9: not even while a read waits."""
    with plain() as (ours, theirs):
        ours.settimeout(timeout)
        blocking = os.get_blocking(ours.fileno())
        seen = set()

        def watch(stop):
            while not stop.is_set():
                seen.add((ours.gettimeout(), os.get_blocking(ours.fileno())))
            theirs.sendall(b"x")

        with running(watch), contextlib.suppress(DeadlineExceeded):
            BudgetedReceiver(ours).receive_exactly(1, after(0.1))
        assert seen == {(timeout, blocking)}


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_another_thread_sends_undisturbed_on_the_same_socket(timeout):
    """R9: a large sendall beside a receive."""
    data = b"x" * (4 << 20)
    with plain() as (ours, theirs):
        ours.settimeout(timeout)
        got = bytearray()

        def peer(stop):
            while len(got) < len(data):
                got.extend(theirs.recv(1 << 16))
            theirs.sendall(b"thanks")

        with running(peer), running(lambda stop: ours.sendall(data)):
            assert BudgetedReceiver(ours).receive_exactly(6, after(30)) == b"thanks"
        assert got == data


def test_with_a_default_timeout_set_nothing_is_switched_either():
    """R9."""
    with plain() as (ours, theirs):
        ours.settimeout(5.0)
        socket.setdefaulttimeout(3.0)
        try:
            theirs.sendall(b"AB")
            assert BudgetedReceiver(ours).receive_exactly(2, after(30)) == b"AB"
            with expires(0.05):
                BudgetedReceiver(ours).receive_exactly(2, after(0.05))
        finally:
            socket.setdefaulttimeout(None)
        assert ours.gettimeout() == 5.0


def test_a_descriptor_that_somebody_made_blocking_hangs_nothing():
    """R9: a child, or a duplicate, can do that under the socket's own timeout."""
    with plain() as (ours, theirs):
        ours.settimeout(5.0)
        os.set_blocking(ours.fileno(), True)
        receiver = BudgetedReceiver(ours)
        with expires(0.05):
            receiver.receive_exactly(4, after(0.05))
        theirs.sendall(b"ABCDEF")
        assert receiver.resume(after(30)) == b"ABCD"
        buffer = bytearray(2)
        receiver.receive_into(buffer, after(30))
        assert buffer == b"EF"
        assert os.get_blocking(ours.fileno()) is True


def test_into_on_a_socket_with_a_timeout_of_its_own():
    with plain() as (ours, theirs):
        ours.settimeout(5.0)
        theirs.sendall(b"ABCD")
        buffer = bytearray(4)
        BudgetedReceiver(ours).receive_into(buffer, after(30))
        assert buffer == b"ABCD"


def test_restoring_a_socket_that_was_closed_meanwhile_masks_no_error(line):
    """R9."""
    ours, theirs = line
    receiver = BudgetedReceiver(ours)
    theirs.sendall(b"AB")
    assert receiver.receive_exactly(1, after(30)) == b"A"
    ours.close()
    with pytest.raises(OSError) as caught:
        receiver.receive_exactly(9, after(30))
    assert caught.value.errno == errno.EBADF


def test_a_socket_closed_under_a_waiting_read_is_an_error_and_no_hang():
    """R9: at the latest when the wait is over."""
    clock = FakeClock()
    with plain() as (ours, _):
        receiver = BudgetedReceiver(ours)
        errors = []

        def receive():
            try:
                receiver.receive_exactly(1, clock.deadline(5))
            except OSError as error:
                errors.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        clock.wait_until_waiting(1)
        ours.close()
        clock.advance(5)
        thread.join(30)
    assert isinstance(errors[0], DeadlineExceeded) or errors[0].errno == errno.EBADF


def test_a_descriptor_that_is_gone_is_told_by_poll():
    """R9: POLLNVAL is no readiness."""
    with plain() as (ours, _):
        stray = socket.socket(fileno=os.dup(ours.fileno()))
        os.close(stray.fileno())
        sock = stray

        class Gone(socket.socket):
            pass

        receiver = BudgetedReceiver(ours)
        receiver._port._sock = _Lying(ours, stray.fileno())
        with pytest.raises(OSError) as caught:
            receiver.receive_exactly(1, after(5))
        assert caught.value.errno == errno.EBADF
        sock.detach()


class _Lying:
    """A socket that would block, on a descriptor that is closed."""

    def __init__(self, sock, fd):
        self._sock, self._fd = sock, fd

    def gettimeout(self):
        return None

    def recv(self, size, flags):
        raise BlockingIOError

    def fileno(self):
        return self._fd


# ------------------------------------------------------------------ what is refused


def test_datagrams_are_refused():
    """R13."""
    refused = pytest.raises(TypeError, match=r"must be a stream socket, not .*SOCK_DGRAM")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, refused:
        BudgetedReceiver(sock)


def test_a_closed_socket_is_refused():
    with socket.socket() as sock:
        pass
    with pytest.raises(ValueError, match="sock is closed"):
        BudgetedReceiver(sock)


def test_a_second_thread_is_refused_at_once_and_no_data_is_mixed():
    """R11."""
    clock = FakeClock()
    with plain() as (ours, theirs):
        receiver = BudgetedReceiver(ours)
        results = []
        thread = threading.Thread(
            target=lambda: results.append(receiver.receive_exactly(4, clock.deadline(60)))
        )
        thread.start()
        clock.wait_until_waiting(1)
        for verb in (
            lambda: receiver.receive_exactly(1, after(5)),
            lambda: receiver.receive_some(1, after(5)),
            lambda: receiver.resume(after(5)),
            receiver.discard,
        ):
            with pytest.raises(Busy, match="one user at a time"):
                verb()
        theirs.sendall(b"ABCD")
        thread.join(30)
    assert results == [b"ABCD"]


def test_a_re_entrant_call_is_refused_at_once():
    """R11: from a signal handler, while the read waits."""
    refused = []
    with plain() as (ours, theirs):
        receiver = BudgetedReceiver(ours)

        def handler(*_):
            try:
                receiver.receive_some(1, after(5))
            except Busy as error:
                refused.append(error)
            theirs.sendall(b"x")

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            assert receiver.receive_exactly(1, after(30)) == b"x"
        finally:
            signal.signal(signal.SIGALRM, before)
    assert len(refused) == 1


def test_a_turn_that_was_left_behind_is_passed_on():
    """R11: an exception at an unlucky moment leaves nobody locked out."""
    with plain() as (ours, theirs):
        receiver = BudgetedReceiver(ours)
        receiver._turn["holder"] = []  # what an exception between two bytecodes leaves
        theirs.sendall(b"A")
        assert receiver.receive_exactly(1, after(30)) == b"A"
        receiver._turn["holder"] = []
        assert receiver.discard() == b""


def test_on_a_loop_thread_it_is_refused_and_the_way_out_named(line):
    """R11, case A54: unless that is allowed, on that thread, for that block."""
    ours, theirs = line
    receiver = BudgetedReceiver(ours)
    theirs.sendall(b"ABC")

    async def main():
        with pytest.raises(
            RuntimeError, match=r"use AsyncBudgetedReceiver, .*blocking_allowed\(\)"
        ):
            receiver.receive_exactly(1, after(5))
        with blocking_allowed():
            with blocking_allowed():
                assert receiver.receive_exactly(1, after(5)) == b"A"
            assert receiver.receive_exactly(1, after(5)) == b"B"
        with pytest.raises(RuntimeError):
            receiver.receive_exactly(1, after(5))
        # Another thread has no loop, and needs no permission.
        assert await asyncio.to_thread(receiver.receive_exactly, 1, after(5)) == b"C"

    asyncio.run(main())


def test_where_asyncio_is_not_loaded_nothing_asks_for_a_loop(monkeypatch):
    """R11: no loop can run then, and nothing imports it."""
    with plain() as (ours, theirs):
        theirs.sendall(b"A")
        monkeypatch.delitem(sys.modules, "asyncio.events")
        assert BudgetedReceiver(ours).receive_exactly(1, after(30)) == b"A"
        assert "asyncio.events" not in sys.modules


# ------------------------------------------------------------------ clocks and signals


def test_a_real_socket_expires_when_the_fake_clock_is_advanced(line):
    """R15: without real waiting."""
    ours, theirs = line
    clock = FakeClock()
    receiver = BudgetedReceiver(ours, idle_timeout=10)
    theirs.sendall(b"xAB")
    assert receiver.receive_exactly(1, after(30)) == b"x"
    errors = []

    def receive():
        try:
            receiver.receive_exactly(4, clock.deadline(30))
        except (DeadlineExceeded, IdleTimeout) as error:
            errors.append(error)

    for outcome, seconds in (("idle_timeout", 10), ("deadline_expired", 30)):
        thread = threading.Thread(target=receive)
        began = time.monotonic()
        thread.start()
        clock.wait_until_waiting(1)
        if outcome == "deadline_expired":
            clock.jump(seconds)
        else:
            clock.advance(seconds)
        thread.join(30)
        assert time.monotonic() - began < 2
        assert errors.pop().report.outcome == outcome
        assert receiver.discard() == (b"AB" if outcome == "idle_timeout" else b"")


def test_signals_neither_shorten_nor_stretch_a_wait(line):
    """R17, case A12."""
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    condition = threading.Condition()
    waits = {
        "receive": lambda: BudgetedReceiver(line[0]).receive_some(1, after(0.3)),
        "sleep": lambda: MONOTONIC.sleep(0.3),
        "wait": lambda: MONOTONIC.wait(condition, 0.3),
    }
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        for wait in waits.values():
            began = time.monotonic()
            with condition, contextlib.suppress(DeadlineExceeded):
                wait()
            assert 0.3 <= time.monotonic() - began < 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_ends_the_receive_and_loses_nothing():
    """R18: what a handler raises is not taken for silence, a TimeoutError neither."""

    class Enough(TimeoutError):
        pass

    def handler(*_):
        raise Enough

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with plain() as (ours, theirs):
            theirs.sendall(b"AB")
            receiver = BudgetedReceiver(ours, idle_timeout=20)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Enough):
                receiver.receive_exactly(4, after(30))
            assert receiver.pending == b"AB"
            theirs.sendall(b"CD")
            assert receiver.resume(after(30)) == b"ABCD"
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_stop_iteration_is_no_end_of_the_stream():
    """R7: the C code that stores bytes would take it for its own end."""
    with plain() as (ours, _):
        receiver = BudgetedReceiver(ours)

        class Stopping(_Lying):
            def recv(self, size, flags):
                raise StopIteration

        receiver._port._sock = Stopping(ours, ours.fileno())
        with pytest.raises(RuntimeError, match="StopIteration"):
            receiver.receive_exactly(1, after(5))
        receiver._port._sock = ours
        assert not receiver._inbox.eof


def test_a_clock_that_goes_back_during_the_first_read_is_an_error():
    """C4."""
    from timebounds import SteadyClock

    class Backwards(SteadyClock):
        readings = iter([10, 20, 5])

        def now_ns(self):
            return next(self.readings)

    with plain() as (ours, theirs):
        theirs.sendall(b"AB")
        receiver = BudgetedReceiver(ours)
        with pytest.raises(ClockError, match="went backwards"):
            receiver.receive_exactly(2, Deadline.after(9, clock=Backwards()))
        assert receiver.pending == b"AB"


def test_a_ready_descriptor_without_data_is_waited_for_again():
    """S3: spurious readiness does not stretch the budget."""
    with plain() as (ours, theirs):
        receiver = BudgetedReceiver(ours)
        blocked = iter(range(3))

        class Spurious(_Lying):
            def recv(self, size, flags):
                if next(blocked, None) is not None:
                    raise BlockingIOError
                return ours.recv(size, flags)

        theirs.sendall(b"AB")
        receiver._port._sock = Spurious(ours, ours.fileno())
        assert receiver.receive_exactly(2, after(30)) == b"AB"


# ------------------------------------------------------------------ descriptors and TLS


def test_a_descriptor_above_1023():
    """R13, case A10."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with plain() as (ours, theirs):
            assert ours.fileno() > 1023
            receiver = BudgetedReceiver(ours)
            with expires(0.05):
                receiver.receive_exactly(2, after(0.05))
            theirs.sendall(b"AB")
            assert receiver.resume(after(30)) == b"AB"
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_decrypted_bytes_are_served_without_waiting(version):
    """R13, case A11: poll() knows nothing of them."""
    with tls(version) as (ours, theirs):
        theirs.sendall(b"x" * 16_400)
        receiver = BudgetedReceiver(ours)
        assert receiver.receive_exactly(100, after(30)) == b"x" * 100
        assert ours.pending() > 0

        class NoWait(FakeClock):
            pass

        # A clock on which every wait would be a forgotten advance: nothing may wait.
        clock = FakeClock(patience=0.001)
        for _ in range(162):
            assert receiver.receive_exactly(100, clock.deadline(5)) == b"x" * 100


def test_a_tls_stream_that_is_cut_is_not_an_end():
    """R19: truncated, and said so."""
    with tls() as (ours, theirs):
        theirs.sendall(b"AB")
        receiver = BudgetedReceiver(ours)
        assert receiver.receive_exactly(1, after(30)) == b"A"
        os.close(theirs.detach())  # no closing message
        with pytest.raises(ssl.SSLEOFError) as caught:
            receiver.receive_exactly(9, after(30))
        assert any("truncated" in note for note in caught.value.__notes__)
        assert receiver.pending == b"B"
        assert ours.suppress_ragged_eofs is True
        with pytest.raises(Unfinished):
            receiver.receive_some(1, after(30))


def test_a_tls_record_that_comes_in_pieces_through_many_deadlines_arrives_intact():
    """R13, S5: nothing of it is lost on the way."""
    client, server = contexts()
    with plain() as (ours, near), plain() as (far, theirs):
        go_slowly = threading.Event()

        def relay_up(stop):
            while data := near.recv(65_536):
                far.sendall(data)

        def relay_down(stop):
            far.settimeout(0.02)
            while not go_slowly.is_set():
                with contextlib.suppress(TimeoutError):
                    near.sendall(far.recv(65_536))

        def peer(stop):
            with server.wrap_socket(theirs, server_side=True) as sock:
                sock.recv(1)
                sock.sendall(b"A" * 100)
                stop.wait(30)

        with running(relay_up), running(peer):
            with running(relay_down):
                sock = client.wrap_socket(ours, server_hostname="localhost")
                go_slowly.set()
            with sock:
                sock.sendall(b"x")
                receiver = BudgetedReceiver(sock)
                far.settimeout(30)
                expiries = 0
                verb = functools.partial(receiver.receive_exactly, 100)
                while receiver.report is None or not receiver.report.satisfied:
                    near.sendall(far.recv(16))
                    try:
                        verb(after(0.005))
                    except DeadlineExceeded:
                        expiries += 1
                    verb = receiver.resume
                assert receiver.report.data == b"A" * 100
                assert expiries >= 5
                for each in (near, far):
                    each.shutdown(socket.SHUT_RDWR)


def test_a_tls_read_that_wants_to_write_waits_for_that():
    """R13: the direction that TLS asks for."""

    class Renegotiating(ssl.SSLSocket):
        wants = iter([True])

        def recv(self, size, flags=0):
            if next(Renegotiating.wants, False):
                raise ssl.SSLWantWriteError
            return super().recv(size, flags)

    with tls() as (ours, theirs):
        ours.__class__ = Renegotiating
        theirs.sendall(b"AB")
        assert BudgetedReceiver(ours).receive_exactly(2, after(30)) == b"AB"


def test_a_reset_under_tls_propagates():
    """R8: and nothing is in doubt, since no byte was taken."""

    class Reset(ssl.SSLSocket):
        def recv(self, size, flags=0):
            raise ConnectionResetError

    with tls() as (ours, _):
        ours.__class__ = Reset
        receiver = BudgetedReceiver(ours)
        with pytest.raises(ConnectionResetError):
            receiver.receive_exactly(2, after(30))
        assert not receiver._port.in_doubt


def test_a_tls_read_into_a_buffer():
    with tls() as (ours, theirs):
        theirs.sendall(b"ABCD")
        buffer = bytearray(4)
        BudgetedReceiver(ours).receive_into(buffer, after(30))
        assert buffer == b"ABCD"


def test_what_interrupts_a_tls_read_leaves_it_in_doubt():
    """R18: the receiver says so instead of guessing."""

    class Interrupted(ssl.SSLSocket):
        def recv(self, size, flags=0):
            raise KeyboardInterrupt

    with tls() as (ours, theirs):
        plain_class = ours.__class__
        ours.__class__ = Interrupted
        receiver = BudgetedReceiver(ours)
        with pytest.raises(KeyboardInterrupt):
            receiver.receive_exactly(2, after(30))
        assert ours.gettimeout() is None
        ours.__class__ = plain_class
        with pytest.raises(Unfinished, match="may have lost bytes"):
            receiver.resume(after(30))
        receiver.discard()
        theirs.sendall(b"AB")
        assert receiver.receive_exactly(2, after(30)) == b"AB"


def test_a_python_level_socket_is_read_by_its_own_recv():
    """R13: whatever it does, it is what the caller gave."""

    class Upper(socket.socket):
        def recv(self, *args):
            return super().recv(*args).upper()

    ours, theirs = socket.socketpair()
    with Upper(fileno=ours.detach()) as wrapped, theirs:
        theirs.sendall(b"ab")
        assert BudgetedReceiver(wrapped).receive_exactly(2, after(30)) == b"AB"
        with expires(0.05):
            BudgetedReceiver(wrapped).receive_exactly(2, after(0.05))
