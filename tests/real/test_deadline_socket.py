"""W1: the drop-in socket on real connections, in the manner of Go's nettest."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import smtplib
import socket
import ssl
import threading
import time
import urllib.request
from contextlib import contextmanager, suppress

import pytest
from lines import contexts, plain, running, tls

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
    StopRequested,
    StopSignal,
    Unfinished,
    bounding,
)
from timebounds.testing import DripServer, Gate, Misbehaviour

pytestmark = pytest.mark.real

# Of waiting for what must come.
FAR = 30
# How late a call may end, on a machine that does other things too.
LATE = 0.5
ENDED = (OSError, ValueError, Unfinished, StopRequested)


@contextmanager
def local():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(params=[local, plain, tls], ids=["socketpair", "tcp", "tls"])
def ends(request):
    """Both ends of a connection, each a DeadlineSocket with a far deadline."""
    with request.param() as (ours, theirs):
        far = Deadline.after(FAR)
        with DeadlineSocket(ours, far) as one, DeadlineSocket(theirs, far) as other:
            yield one, other


class Threads:
    """Runs functions in threads; an error of one is an error of the test."""

    def __init__(self):
        self._threads = []
        self._errors = []

    def go(self, fn, *args):
        def run():
            try:
                fn(*args)
            except BaseException as error:
                self._errors.append(error)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        for thread in self._threads:
            thread.join(FAR + 10)
            assert not thread.is_alive()
        assert not self._errors, self._errors


def exactly(sock, size):
    got = bytearray()
    while len(got) < size:
        data = sock.recv(min(size - len(got), 65_536))
        assert data, f"the stream ended after {len(got)} of {size} bytes"
        got += data
    return bytes(got)


def misses(call, limit):
    """See that a call ends by its deadline: never early, and in time."""
    began, seconds = limit
    with pytest.raises(DeadlineExceeded):
        call()
    took = time.monotonic() - began
    assert seconds <= took < seconds + LATE


def soon(sock, seconds=0.05):
    """Set a deadline; return an instant that was before that, and how far it is."""
    began = time.monotonic()
    sock.deadline = Deadline.after(seconds)
    return began, seconds


def test_basic_io(ends):
    """Eight MiB through to the other end and back, whole."""
    one, other = ends
    data = random.Random(8).randbytes(8 * 2**20)

    def echo():
        while received := other.recv(65_536):
            other.sendall(received)

    def send():
        one.sendall(data)

    with Threads() as threads:
        threads.go(echo)
        threads.go(send)
        got = exactly(one, len(data))
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
        one.shutdown(socket.SHUT_RDWR)


def test_ping_pong(ends):
    """A number goes to and fro, and grows."""
    one, other = ends
    rounds = 500

    def play(sock):
        for _ in range(rounds):
            number = int.from_bytes(exactly(sock, 8), "big")
            sock.sendall((number + 1).to_bytes(8, "big"))

    with Threads() as threads:
        threads.go(play, other)
        one.sendall(bytes(8))
        for n in range(1, rounds):
            number = int.from_bytes(exactly(one, 8), "big")
            assert number == 2 * n - 1
            one.sendall((number + 1).to_bytes(8, "big"))
        assert int.from_bytes(exactly(one, 8), "big") == 2 * rounds - 1


def test_racy_read(ends):
    """Deadlines strike reads while bytes pour in: not a byte is lost or doubled."""
    one, other = ends
    data = random.Random(1).randbytes(2**20)

    def pour():
        for start in range(0, len(data), 1_000):
            other.sendall(data[start : start + 1_000])

    chance = random.Random(2)
    got = bytearray()
    struck = 0
    # Before a byte comes one strikes for sure.
    misses(lambda: one.recv(1), soon(one, 0.01))
    with Threads() as threads:
        threads.go(pour)
        while len(got) < len(data):
            one.deadline = Deadline.after(chance.choice([0, 0, 0.0001, 0.001, FAR]))
            try:
                got += one.recv(1_024)
            except DeadlineExceeded:
                struck += 1
    assert got == data
    assert struck > 0


def test_racy_write(ends):
    """Deadlines strike writes: what is counted as sent arrives, in order, and nothing else."""
    one, other = ends
    is_tls = isinstance(one, ssl.SSLSocket)
    data = random.Random(3).randbytes(4 * 2**20)
    chance = random.Random(4)
    got = bytearray()

    def drain():
        try:
            while received := other.recv(chance.choice([100, 65_536])):
                got.extend(received)
        except OSError:
            assert is_tls  # its end was cut off

    sent = struck = 0
    with Threads() as threads:
        threads.go(drain)
        while sent < len(data):
            one.deadline = Deadline.after(chance.choice([0, 0.0001, FAR]))
            try:
                sent += one.send(data[sent : sent + 100_000])
            except DeadlineExceeded:
                struck += 1
            except Unfinished:
                # A record is half out: over TLS nothing else may follow.
                assert is_tls
                break
        one.shutdown(socket.SHUT_WR)
    assert struck > 0
    assert data.startswith(got)
    assert len(got) >= sent
    if not is_tls:
        assert len(got) == sent == len(data)


def test_a_reads_deadline_leaves_writes_alone(ends):
    """It struck a read; a write with time left goes through, and a later read too."""
    one, other = ends
    misses(lambda: one.recv(1), soon(one))
    one.deadline = Deadline.after(FAR)
    one.sendall(b"request")
    assert exactly(other, 7) == b"request"
    other.sendall(b"answer")
    assert exactly(one, 6) == b"answer"


def test_a_writes_deadline_leaves_reads_alone(ends):
    """It struck a write; what the peer has sent is read."""
    one, other = ends
    other.sendall(b"answer")
    misses(lambda: one.sendall(bytes(32 * 2**20)), soon(one))
    one.deadline = Deadline.after(FAR)
    assert exactly(one, 6) == b"answer"


def test_a_past_deadline_begins_nothing(ends):
    """Neither reading, writing nor a file; afterwards all is as before."""
    one, other = ends
    other.sendall(b"there")
    file = one.makefile("rb")
    for seconds in (0, 1e-9):
        one.deadline = Deadline.after(seconds)
        for call in (lambda: one.recv(1), lambda: one.send(b"x"), lambda: file.read(1)):
            misses(call, (time.monotonic(), 0))
    one.deadline = Deadline.after(FAR)
    assert file.read(5) == b"there"
    file.close()
    one.sendall(b"y")
    assert exactly(other, 1) == b"y"


def test_a_present_deadline_strikes_both_directions_at_once(ends):
    """One instant for a read and a write that are under way in two threads."""
    one, _ = ends
    bound = Deadline.after(0.2)
    one.deadline = bound
    ended = []

    def call(fn):
        with pytest.raises(DeadlineExceeded):
            fn()
        assert bound.expired()
        ended.append(time.monotonic())

    began = time.monotonic()
    with Threads() as threads:
        threads.go(call, lambda: one.sendall(bytes(32 * 2**20)))
        threads.go(call, lambda: one.recv(1))
    assert max(ended) - began < 0.2 + LATE


def test_a_future_deadline_strikes_when_it_is_there_and_not_before(ends):
    one, other = ends
    for seconds in (0.01, 0.1):
        misses(lambda: one.recv(1), soon(one, seconds))
    with one.makefile("rb") as file:
        other.sendall(b"half")
        misses(file.readline, soon(one, 0.1))
        one.deadline = Deadline.after(FAR)
        other.sendall(b" a line\n")
        assert file.readline() == b"half a line\n"


def test_a_stop_wakes_what_waits(ends):
    """R14: from another thread."""
    one, _ = ends
    stop = StopSignal()
    one.deadline = Deadline.after(FAR, stop=stop)
    gate = Gate()
    took = []

    def receive():
        gate.enter()
        with pytest.raises(StopRequested):
            one.recv(1)
        took.append(time.monotonic())

    with Threads() as threads:
        threads.go(receive)
        gate.wait_arrived()
        gate.open()
        while not stop._callbacks:
            threading.Event().wait(0.001)
        began = time.monotonic()
        stop.request()
    assert took[0] - began < LATE
    # The fixture outlives the test, and with it the signal's descriptors.
    one.deadline = None


def test_closing_while_a_read_waits_ends_it_by_its_deadline(ends):
    """`shutdown` wakes it at once; `close` alone never does so on Linux, but the deadline does."""
    one, other = ends
    one.deadline = Deadline.after(0.3)
    gate = Gate()
    began = time.monotonic()

    def receive():
        gate.enter()
        # TLS says ValueError where the session was let go of a moment ago.
        with pytest.raises((OSError, ValueError)):
            one.recv(1)

    with Threads() as threads:
        threads.go(receive)
        gate.wait_arrived()
        gate.open()
        one.close()
    assert time.monotonic() - began < 0.3 + LATE
    other.deadline = Deadline.after(FAR)
    gate = Gate()

    def see_the_end():
        gate.enter()
        try:
            assert other.recv(1) == b""
        except ssl.SSLError:
            assert isinstance(other, ssl.SSLSocket)
        except (OSError, ValueError):
            pass  # it was shut down before the read began

    with Threads() as threads:
        threads.go(see_the_end)
        gate.wait_arrived()
        gate.open()
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
    assert time.monotonic() - began < FAR / 2


def test_methods_from_many_threads(ends):
    """None hangs and none fails but by a limit, or because the connection is over."""
    one, other = ends
    calls = (
        lambda: one.recv(100),
        lambda: one.send(b"x" * 100),
        lambda: one.settimeout(0.001),
        lambda: one.settimeout(None),
        lambda: setattr(one, "deadline", Deadline.after(0.001)),
        lambda: one.deadline,
        one.gettimeout,
        one.fileno,
        one.getpeername,
        lambda: one.setblocking(True),
    )

    def hammer(call):
        for _ in range(100):
            with suppress(*ENDED):
                call()

    def answer(stop):
        with suppress(*ENDED):
            while data := other.recv(1_000):
                other.sendall(data)

    one.deadline = Deadline.after(0.001)
    with running(answer):
        with Threads() as threads:
            for call in calls:
                threads.go(hammer, call)
                threads.go(hammer, call)
        other.shutdown(socket.SHUT_RDWR)


# ---------------------------------------------------------------- clients of the standard library

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


class Connection(http.client.HTTPConnection):
    def connect(self):
        super().connect()
        self.sock = DeadlineSocket(self.sock)


class Handler(urllib.request.HTTPHandler):
    def http_open(self, request):
        return self.do_open(Connection, request)


def get_by_http(address):
    connection = Connection(*address)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def get_by_urllib(address):
    opener = urllib.request.build_opener(Handler)
    with opener.open("http://{}:{}/".format(*address)) as response:
        return response.read()


@pytest.mark.parametrize("get", [get_by_http, get_by_urllib])
@pytest.mark.parametrize("mode", [Misbehaviour.DRIP_BODY, Misbehaviour.STALL])
def test_a_client_of_a_peer_that_drips_ends_in_time(get, mode):
    """W1, W3: every byte comes well within any timeout of one read."""
    with DripServer(mode, head=HEAD, body=bytes(100), interval=0.02) as peer:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded), bounding(Deadline.after(0.3)):
            get(peer.address)
        assert 0.3 <= time.monotonic() - began < 0.3 + LATE


def test_a_body_that_is_read_after_the_block_keeps_its_deadline():
    """W1."""
    with DripServer(head=HEAD, body=bytes(100), interval=0.02) as peer:
        connection = Connection(*peer.address)
        began = time.monotonic()
        with bounding(Deadline.after(0.3)):
            connection.request("GET", "/")
            response = connection.getresponse()
        with response, pytest.raises(DeadlineExceeded):
            response.read()
        assert 0.3 <= time.monotonic() - began < 0.3 + LATE
        connection.close()


def test_a_body_goes_on_after_its_deadline_was_moved():
    """W2: http.client reads on where it was."""
    with DripServer(head=HEAD, body=bytes(range(100)), interval=0.002) as peer:
        connection = Connection(*peer.address)
        connection.request("GET", "/")
        response = connection.getresponse()
        got = bytearray()
        connection.sock.deadline = Deadline.after(0.05)
        with pytest.raises(DeadlineExceeded):
            while data := response.read(7):
                got += data
        connection.sock.deadline = Deadline.after(FAR)
        got += response.read()
        assert got == bytes(range(100))
        connection.close()


class Mail(smtplib.SMTP):
    def _get_socket(self, host, port, timeout):
        return DeadlineSocket(super()._get_socket(host, port, timeout))


def test_a_mail_client_takes_the_deadline_for_a_timeout_and_leaves_nothing_open():
    """W1: it maps the errors of sockets to its own; leaving the block gives ours."""
    with DripServer(head=b"220 hello\r\n", body=b"250" * 100, interval=0.02) as peer:
        before = os.listdir("/proc/self/fd")
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded), bounding(Deadline.after(0.3)):
            mail = Mail(*peer.address, local_hostname="localhost")
            try:
                mail.helo()
            finally:
                mail.close()
        assert 0.3 <= time.monotonic() - began < 0.3 + LATE
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1


def test_a_handshake_that_drips_ends_in_time():
    """W1."""
    client, _ = contexts()
    # The first bytes of a record, and then one by one.
    with DripServer(head=b"\x16\x03\x03\x40\x00", body=bytes(100), interval=0.02) as peer:
        began = time.monotonic()
        sock = DeadlineSocket(peer.connect(), Deadline.after(0.2))
        with pytest.raises(DeadlineExceeded, match="TLS handshake"):
            sock.wrap_tls(client, server_hostname="localhost")
        assert 0.2 <= time.monotonic() - began < 0.2 + LATE


def test_a_client_that_catches_timeouts_catches_ours():
    with DripServer(Misbehaviour.STALL) as peer:
        connection = Connection(*peer.address)
        connection.timeout = 0.05
        with pytest.raises(TimeoutError, match="timed out"), bounding(Deadline.after(FAR)):
            connection.request("GET", "/")
            connection.getresponse()
        connection.close()
        opener = urllib.request.build_opener(Handler)
        with pytest.raises(TimeoutError, match="timed out"), bounding(Deadline.after(FAR)):
            opener.open("http://{}:{}/".format(*peer.address), timeout=0.05)
