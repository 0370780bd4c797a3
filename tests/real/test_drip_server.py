"""`DripServer`: each kind of misbehaving peer, as a client meets it."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import contextmanager

import pytest

from timebounds import (
    MONOTONIC,
    BudgetedReceiver,
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    MinRate,
    TooSlow,
)
from timebounds.testing import DripServer, Misbehaviour

pytestmark = pytest.mark.real

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"
BODY = b"8 bytes!"
SOON = 0.002
# Longer than any test: what is waited for so long never comes.
NEVER = 3600


def plenty():
    return Deadline.after(30)


def a_moment():
    return Deadline.after(0.05)


@contextmanager
def receiving(*args, idle_timeout=None, min_rate=None, **options):
    """A receiver whose peer misbehaves."""
    with DripServer(*args, **options) as peer, peer.connect() as sock:
        yield BudgetedReceiver(sock, idle_timeout=idle_timeout, min_rate=min_rate)


def test_a_dripped_body_comes_byte_by_byte_after_its_head():
    with receiving(head=HEAD, body=BODY, interval=0.01) as receiver:
        assert receiver.receive_exactly(len(HEAD), plenty()) == HEAD
        began = MONOTONIC.now()
        assert receiver.receive_exactly(8, plenty()) == BODY
        assert MONOTONIC.now() - began >= 0.05
        assert receiver.report.reads >= 2
        assert receiver.receive_some(1, plenty()) == b""


def test_a_dripped_header_comes_byte_by_byte_from_its_first():
    mode = Misbehaviour.DRIP_HEADER
    with receiving(mode, head=b"head:", body=b"body", interval=SOON) as receiver:
        assert receiver.receive_some(100, plenty()) == b"h"
        assert receiver.receive_exactly(8, plenty()) == b"ead:body"
        assert receiver.receive_some(1, plenty()) == b""


def test_it_speaks_to_a_client_of_the_standard_library():
    with DripServer(head=HEAD, body=BODY, interval=SOON) as peer:
        connection = http.client.HTTPConnection(*peer.address, timeout=30)
        connection.request("POST", "/", body=b"x" * 100_000)
        assert connection.getresponse().read() == BODY
        connection.close()


def test_a_timeout_of_each_read_is_never_met_by_a_drip_and_one_deadline_is():
    """What it is for: the failure of the golden scenario, on real sockets."""
    with receiving(body=bytes(10_000), interval=0.01, idle_timeout=30) as receiver:
        with pytest.raises(DeadlineExceeded) as caught:
            receiver.receive_exactly(10_000, Deadline.after(0.1))
        assert 0 < len(caught.value.report.data) < 10_000


def test_a_drip_is_too_slow_for_a_minimum_rate():
    rate = MinRate(100_000, 0.05)
    dripping = receiving(body=bytes(10_000), interval=0.01, min_rate=rate)
    with dripping as receiver, pytest.raises(TooSlow):
        receiver.receive_exactly(10_000, plenty())


def test_a_stalling_peer_sends_half_and_then_nothing():
    stall = Misbehaviour.STALL
    with receiving(stall, head=HEAD, body=BODY, interval=0, idle_timeout=0.2) as receiver:
        assert receiver.receive_exactly(len(HEAD) + 4, plenty()) == HEAD + b"8 by"
        with pytest.raises(IdleTimeout):
            receiver.receive_some(1, plenty())


def test_a_resetting_peer_sends_half_and_then_resets():
    with receiving(Misbehaviour.RESET, head=HEAD, body=BODY, interval=0.01) as receiver:
        assert receiver.receive_exactly(len(HEAD) + 4, plenty()) == HEAD + b"8 by"
        with pytest.raises(ConnectionResetError):
            receiver.receive_some(1, plenty())


def test_a_resetting_peer_without_a_word_resets_alike():
    resetting = receiving(Misbehaviour.RESET, body=b"", interval=SOON)
    with resetting as receiver, pytest.raises(ConnectionResetError):
        receiver.receive_some(1, plenty())


def test_an_empty_body_is_ended_alike():
    with receiving(body=b"", interval=SOON) as receiver:
        assert receiver.receive_some(1, plenty()) == b""


@pytest.mark.parametrize("mode", [Misbehaviour.SILENT, Misbehaviour.NEVER_ACCEPT])
def test_a_silent_peer_takes_what_is_sent_and_says_nothing(mode):
    with DripServer(mode, interval=0) as peer, peer.connect() as sock:
        sock.sendall(b"anybody there?")
        with pytest.raises(DeadlineExceeded):
            BudgetedReceiver(sock).receive_some(1, a_moment())


def test_it_serves_several_clients_each_from_the_beginning():
    with DripServer(body=b"abc", interval=SOON) as peer:
        socks = [peer.connect() for _ in range(5)]
        got = [BudgetedReceiver(sock).receive_exactly(3, plenty()) for sock in socks]
        for sock in socks:
            sock.close()
    assert got == [b"abc"] * 5


def test_a_client_that_goes_does_not_disturb_the_others():
    with DripServer(body=b"abcdefgh", interval=0.005) as peer, peer.connect() as stays:
        for _ in range(3):
            gone = peer.connect()
            BudgetedReceiver(gone).receive_some(1, plenty())
            # With a byte that is not read: the peer is told by a reset.
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            gone.close()
        assert BudgetedReceiver(stays).receive_exactly(8, plenty()) == b"abcdefgh"


def test_a_client_that_does_not_read_holds_up_nobody():
    """A burst that is larger than all buffers waits, and the thread goes on."""
    size = 20_000_000
    buffer = bytearray(size)
    server = DripServer(head=bytes(size), body=b"end", interval=SOON)
    with server, server.connect() as idle, server.connect() as sock:
        receiver = BudgetedReceiver(sock)
        receiver.receive_into(buffer, plenty())
        assert receiver.receive_exactly(3, plenty()) == b"end"
        assert BudgetedReceiver(idle).receive_exactly(1, plenty()) == b"\0"


@pytest.mark.parametrize("mode", Misbehaviour)
def test_closing_ends_the_thread_and_the_connections_in_every_mode(mode):
    """At once, whatever the interval, and as often as one likes."""
    before = set(threading.enumerate())
    peer = DripServer(mode, head=b"h", body=b"body", interval=NEVER)
    [serving] = set(threading.enumerate()) - before
    assert serving.name.startswith("drip")
    assert repr(peer) == f"<DripServer {mode} at 127.0.0.1:{peer.address[1]}>"
    sock = peer.connect()
    began = MONOTONIC.now()
    peer.close()
    peer.close()
    assert MONOTONIC.now() - began < 30
    assert set(threading.enumerate()) <= before
    with sock, pytest.raises(OSError, match="refused"):
        socket.create_connection(peer.address, timeout=5)


def test_an_interval_of_years_is_waited_for():
    with receiving(body=b"ab", interval=10**9) as receiver, pytest.raises(DeadlineExceeded):
        receiver.receive_some(1, a_moment())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mode": "stall"}, TypeError, r"mode must be one of Misbehaviour\.DRIP_BODY, "),
        ({"interval": -1}, ValueError, "interval must not be negative"),
        ({"interval": float("nan")}, ValueError, "interval must be a number of seconds, not NaN"),
        ({"interval": True}, TypeError, "interval must be a number of seconds"),
        ({"head": "text"}, TypeError, "head must be bytes"),
        ({"body": 5}, TypeError, "body must be bytes"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_opened(options, error, words):
    with pytest.raises(error, match=words):
        DripServer(**options)
