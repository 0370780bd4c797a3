"""W1: connecting and accepting under a deadline."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import contextmanager

import pytest
from drop_in import (
    listening,
    unconnected,
)

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
)
from timebounds.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


@contextmanager
def full():
    """A server whose queue is full: it answers nobody."""
    with listening(backlog=0) as server:
        address = server.getsockname()
        waiting = []
        try:
            for _ in range(3):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(address)
            yield address
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize("own", [None, 5.0])
def test_connecting_works_and_leaves_the_mode_alone(own):
    with listening() as server, unconnected(Deadline.after(30)) as sock:
        sock.settimeout(own)
        sock.connect(server.getsockname())
        assert sock.getpeername() == server.getsockname()
        assert sock.gettimeout() == own
        assert os.get_blocking(sock.fileno()) is (own is None)


def test_a_name_is_not_looked_up_again_once_there_is_a_connection():
    with listening() as server, unconnected(Deadline.after(30)) as sock:
        host, port = server.getsockname()
        sock.connect(("localhost", port))
        asked = []
        sock._dial(asked.append, [("localhost", port), ("localhost", port)])
        assert asked == [(host, port)]


def test_connecting_ends_at_the_deadline(clock):
    """W1."""
    with full() as address:
        for connect in ("connect", "connect_ex"):
            with unconnected(clock.deadline(1)) as sock:
                with pytest.raises(DeadlineExceeded, match=r"^connect: "):
                    getattr(sock, connect)(address)
                with pytest.raises(DeadlineExceeded):
                    getattr(sock, connect)(address)
        assert clock.now() == 2


def test_connecting_ends_at_the_clients_timeout(clock):
    with full() as address, unconnected(clock.deadline(9)) as sock:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError, match=r"^timed out$"):
            sock.connect(address)
        assert sock.connect_ex(address) == errno.EAGAIN
        assert clock.now() == 1


def test_an_address_where_nobody_listens_is_told():
    with listening() as server:
        address = server.getsockname()
    with unconnected(Deadline.after(30)) as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(address)
    with unconnected(Deadline.after(30)) as sock:
        assert sock.connect_ex(address) == errno.ECONNREFUSED


def test_connect_ex_raises_what_is_no_errno():
    with listening() as server, unconnected(Deadline.after(30)) as sock:
        assert sock.connect_ex(server.getsockname()) == 0
        assert sock.connect_ex(server.getsockname()) == errno.EISCONN
        with pytest.raises(TypeError):
            sock.connect_ex("nowhere")
        with pytest.raises(socket.gaierror):
            sock.connect_ex(("256.256.256.256.invalid.", 1))
    with unconnected(None, socket.AF_UNIX) as sock, pytest.raises(OSError, match="too long"):
        sock.connect_ex("x" * 200)


def test_connecting_without_waiting(clock):
    with full() as address:
        with unconnected(clock.deadline(0)) as sock:
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.connect(address)
        with unconnected(clock.deadline(0)) as sock:
            sock.setblocking(False)
            assert sock.connect_ex(address) == errno.EINPROGRESS
    assert clock.now() == 0


def test_a_local_server_whose_queue_is_full_is_told(tmp_path, clock):
    """Nothing tells when it no longer is, so nothing is waited for; and it is not connected."""
    path = str(tmp_path / "socket")
    with listening(socket.AF_UNIX, path, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(path)
        with unconnected(clock.deadline(1), socket.AF_UNIX) as sock:
            with pytest.raises(BlockingIOError):
                sock.connect(path)
            assert sock.connect_ex(path) == errno.EAGAIN


def test_a_socket_closed_while_it_connects_masks_no_error(clock):
    """R9."""
    with full() as address, unconnected(clock.deadline(9)) as sock:
        clock.call_later(0.5, sock.close)
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            sock.connect(address)
        assert caught.value.__context__ is None


def test_accepting_ends_at_the_deadline_and_gives_an_ordinary_socket(clock):
    with listening() as server, DeadlineSocket(server, clock.deadline(1)) as sock:
        with pytest.raises(DeadlineExceeded, match=r"^accept: "):
            sock.accept()
        assert clock.now() == 1
        sock.deadline = clock.deadline(1)
        with socket.create_connection(sock.getsockname()) as client:
            made, address = sock.accept()
            with made:
                assert type(made) is socket.socket
                assert made.gettimeout() is None
                assert address == client.getsockname()
