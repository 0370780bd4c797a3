"""`ImpairedProxy`: a bad line changes when bytes come, never which; and our doors over it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from random import Random

import pytest
from lines import contexts

from timebounds import (
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    PeerClosed,
    aconnect,
    connect,
)
from timebounds.testing import ImpairedProxy

pytestmark = pytest.mark.real
MUCH = bytes(range(256)) * 400


def after(seconds):
    return Deadline.after(seconds)


@contextmanager
def echoing(*, tls=False):
    """A server that sends back what it gets, to one client after another; its address."""
    context = contexts()[1] if tls else None

    def serve():
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                try:
                    if context is not None:
                        client = context.wrap_socket(client, server_side=True)
                    with client:
                        while data := client.recv(65_536):
                            client.sendall(data)
                        if context is None:
                            client.shutdown(socket.SHUT_WR)
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)
            assert not thread.is_alive()


def exchange(connection, data, deadline):
    """Send and receive at the same time, so that neither window fills."""
    sending = threading.Thread(target=connection.send_all, args=(data, deadline))
    sending.start()
    got = connection.receive_exactly(len(data), deadline)
    sending.join()
    return got


@pytest.mark.parametrize("seed", range(3))
def test_every_byte_arrives_in_order_whatever_the_line(seed):
    line = {"delay": 0.002, "jitter": 0.004, "loss": 0.1, "retransmission": 0.02}
    with (
        echoing() as address,
        ImpairedProxy(address, **line, rng=Random(seed)) as proxy,
        connect(proxy.address, after(10)) as connection,
    ):
        assert exchange(connection, MUCH, after(30)) == MUCH
        assert "1 clients" in repr(proxy)


def test_a_delay_is_met_in_each_direction_and_never_undercut():
    with (
        echoing() as address,
        ImpairedProxy(address, delay=0.03) as proxy,
        connect(proxy.address, after(10)) as connection,
    ):
        began = time.monotonic()
        connection.send_all(b"x", after(5))
        connection.receive_exactly(1, after(5))
        assert time.monotonic() - began >= 0.06


def test_a_rate_bounds_each_direction():
    with (
        echoing() as address,
        ImpairedProxy(address, rate=100_000) as proxy,
        connect(proxy.address, after(10)) as connection,
    ):
        began = time.monotonic()
        assert exchange(connection, MUCH[:20_000], after(30)) == MUCH[:20_000]
        assert time.monotonic() - began >= 0.19


def test_a_silent_line_is_told_by_nobody_and_goes_on_where_it_was():
    with (
        echoing() as address,
        ImpairedProxy(address) as proxy,
        connect(proxy.address, after(10), idle_timeout=0.1) as connection,
    ):
        assert exchange(connection, b"one", after(5)) == b"one"
        proxy.hold()
        connection.send_all(b"two", after(5))
        with pytest.raises(IdleTimeout):
            connection.receive_exactly(3, after(5))
        proxy.let_go()
        assert connection.receiver.resume(after(5)) == b"two"
        assert connection.usable


def test_a_slow_line_is_ended_by_the_deadline_and_not_one_byte_is_lost():
    """The main job, over a line that is bad by itself."""
    with (
        echoing() as address,
        ImpairedProxy(address, rate=20_000) as proxy,
        connect(proxy.address, after(10)) as connection,
    ):
        connection.send_all(MUCH[:8000], after(5))
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            connection.receive_exactly(8000, after(0.2))
        assert 0.2 <= time.monotonic() - began < 0.95
        held = caught.value.report.data
        assert MUCH[:8000].startswith(held)
        assert connection.receiver.resume(after(10)) == MUCH[:8000]


@pytest.mark.parametrize("secure", [False, True])
def test_a_reset_in_the_middle_is_the_systems_error_with_what_had_come(secure):
    options = {"tls": contexts()[0], "server_hostname": "localhost"} if secure else {}
    with (
        echoing(tls=secure) as address,
        ImpairedProxy(address) as proxy,
        connect(proxy.address, after(10), **options) as connection,
    ):
        connection.send_all(b"half", after(5))
        assert connection.receive_some(2, after(5)) == b"ha"
        # OpenSSL may make an end of it, which is no ordinary one.
        ends = (ConnectionResetError, ssl.SSLEOFError) if secure else ConnectionResetError
        with pytest.raises(ends) as caught:
            resetting = threading.Timer(0.05, proxy.reset)
            resetting.start()
            connection.receive_exactly(8, after(20))
        resetting.join()
        assert any("2 bytes kept" in note for note in caught.value.__notes__)
        assert connection.receiver.pending == b"lf"


def test_a_half_close_ends_one_direction_alone():
    with (
        echoing() as address,
        ImpairedProxy(address, delay=0.01) as proxy,
        connect(proxy.address, after(10)) as connection,
    ):
        connection.send_all(b"last words", after(5))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.receive_exactly(10, after(5)) == b"last words"
        with pytest.raises(PeerClosed):
            connection.receive_exactly(1, after(5))


def test_a_handshake_over_a_slow_line_is_bounded_as_a_whole():
    """K1: each of its parts arrives in time; all of them together do not."""
    options = {"tls": contexts()[0], "server_hostname": "localhost"}
    with echoing(tls=True) as address, ImpairedProxy(address, delay=0.15) as proxy:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded, match="handshake"):
            connect(proxy.address, after(0.25), **options)
        assert 0.25 <= time.monotonic() - began < 1.0
        with connect(proxy.address, after(10), **options) as connection:
            assert connection.report.handshake >= 0.3


def test_tasks_meet_the_same_line():
    async def main(address):
        async with await aconnect(address, after(10)) as connection:
            deadline = after(30)
            async with asyncio.TaskGroup() as group:
                group.create_task(connection.send_all(MUCH, deadline))
                got = group.create_task(connection.receive_exactly(len(MUCH), deadline))
            assert got.result() == MUCH

    line = {"jitter": 0.005, "loss": 0.05, "retransmission": 0.02, "rng": Random(7)}
    with echoing() as address, ImpairedProxy(address, **line) as proxy:
        asyncio.run(main(proxy.address))


def test_a_reader_that_does_not_read_holds_the_sender_up():
    """What is under way is bounded, as by a window."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ImpairedProxy(server.getsockname()) as proxy,
        connect(proxy.address, after(10)) as connection,
        server.accept()[0] as peer,
    ):
        much = bytes(30_000_000)
        with pytest.raises(DeadlineExceeded) as caught:
            connection.send_all(much, after(0.3))
        accepted = caught.value.report.accepted
        assert 0 < accepted < len(much)
        got = peer.recv(accepted, socket.MSG_WAITALL)
        assert len(got) == accepted


def test_a_target_that_is_not_there_is_a_reset():
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = server.getsockname()
    with ImpairedProxy(gone) as proxy, socket.create_connection(proxy.address) as sock:
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        proxy.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            proxy.reset()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"delay": -1}, ValueError, "delay"),
        ({"jitter": 0.1}, TypeError, r"rng must be given .* rng=random.Random\(1\)"),
        ({"loss": 1.0}, ValueError, "loss must be a chance such as 0.1"),
        ({"loss": True}, ValueError, "loss must be a chance"),
        ({"loss": 0.1}, TypeError, "rng must be given"),
        ({"rate": 0}, ValueError, "rate must be bytes per second"),
        ({"rate": "fast"}, ValueError, "rate must be bytes per second"),
    ],
)
def test_wrong_arguments_are_named(wrong, error, text):
    with pytest.raises(error, match=text):
        ImpairedProxy(("127.0.0.1", 1), **wrong)
