"""W1: TLS sockets whose calls obey a deadline."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import ssl
import struct
import threading
from contextlib import contextmanager, suppress

import pytest
from drop_in import (
    MUCH,
    TLS_READING,
    TLS_WRITING,
    listening,
    tls_pair,
    unborn,
)
from lines import contexts, plain, running, tls

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
    Unfinished,
    bounded_tls,
    bounding,
)
from timebounds.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


@pytest.mark.parametrize("call", TLS_READING)
def test_a_tls_read_ends_at_the_deadline_exactly(clock, call):
    """W1."""
    with tls_pair(clock.deadline(1)) as (sock, _):
        with pytest.raises(DeadlineExceeded, match=r"^recv: the deadline of 1 s was reached$"):
            TLS_READING[call](sock)
        assert clock.now() == 1.0


PLAIN = {
    "recv": lambda sock: sock.recv(9),
    "recv_into": lambda sock: sock.recv_into(bytearray(9)),
    "recv at once": lambda sock: sock.recv(9, socket.MSG_DONTWAIT),
    "recvfrom": lambda sock: sock.recvfrom(9),
    "recvfrom_into": lambda sock: sock.recvfrom_into(bytearray(9)),
    "send": lambda sock: sock.send(b"secret"),
    "sendall": lambda sock: sock.sendall(b"secret"),
    "sendto": lambda sock: sock.sendto(b"secret", ("127.0.0.1", 1)),
}


@pytest.mark.parametrize("call", PLAIN)
def test_nothing_goes_past_tls_while_another_thread_closes(call, monkeypatch):
    """W1: the session is let go of a moment before the descriptor."""
    close, ended = socket.socket._real_close, []

    def between(sock):
        monkeypatch.undo()
        assert sock._sslobj is None
        assert sock.fileno() >= 0
        with pytest.raises(OSError, match="Bad file descriptor"):
            PLAIN[call](sock)
        ended.append(sock)
        close(sock)

    with tls_pair(None) as (sock, peer):
        if "recv" in call:
            peer.sendall(b"what is encrypted")
            assert select.select([sock], [], [], 20)[0]
        monkeypatch.setattr(socket.socket, "_real_close", between)
        sock.close()
        assert ended == [sock]
        # What came in plain text would be no record. Tickets that nobody has read reset the line.
        if "recv" not in call:
            with suppress(ConnectionResetError):
                assert peer.recv(9) == b""


@pytest.mark.parametrize("call", ["recv", "recv_into"])
def test_what_another_thread_has_closed_meanwhile_is_no_end_of_the_stream(call, monkeypatch):
    """W1, R7: to CPython 3.11 it is."""

    def closed_meanwhile(sock, *_):
        sock.close()
        return b""

    with tls_pair() as (sock, _):
        with monkeypatch.context() as patch:
            patch.setattr(ssl.SSLSocket, "read", lambda *_: b"")
            assert not PLAIN[call](sock)
        monkeypatch.setattr(ssl.SSLSocket, "read", closed_meanwhile)
        with pytest.raises(OSError, match="Bad file descriptor"):
            PLAIN[call](sock)


@pytest.mark.parametrize("call", PLAIN)
def test_before_tls_its_calls_are_the_connections(call):
    """W1: it is the system that says what is missing."""
    client, _ = contexts()
    bounded_tls(client)
    with unborn(client) as sock, pytest.raises(OSError) as told:
        PLAIN[call](sock)
    assert told.value.errno in {errno.ENOTCONN, errno.EPIPE}


def test_a_file_outlives_a_socket_that_was_unwrapped():
    """W2: as it does without TLS."""
    with tls_pair(Deadline.after(60)) as (sock, theirs):
        left = []
        with running(lambda stop: left.append(theirs.unwrap())):
            plain_again = sock.unwrap()
        file = plain_again.makefile("rwb", buffering=0)
        plain_again.close()
        file.write(b"ping")
        assert left[0].recv(4) == b"ping"
        left[0].sendall(b"pong")
        left[0].close()
        room = bytearray(4)
        assert file.readinto(room) == 4
        assert room == b"pong"
        file.close()
        assert sock.fileno() == -1


@pytest.mark.parametrize("call", TLS_WRITING)
def test_a_tls_write_ends_at_the_deadline_exactly(clock, call):
    """W1."""
    with tls_pair(clock.deadline(1)) as (sock, _):
        with pytest.raises(DeadlineExceeded):
            sock.sendall(MUCH)
        assert clock.now() == 1.0
    with tls_pair(clock.deadline(0)) as (sock, _), pytest.raises(DeadlineExceeded):
        TLS_WRITING[call](sock)
    assert clock.now() == 1.0


def test_a_handshake_ends_at_the_deadline(clock):
    """W1; the connection is closed then."""
    client, _ = contexts()
    with plain() as (ours, theirs):
        sock = DeadlineSocket(ours, clock.deadline(1))
        with pytest.raises(DeadlineExceeded, match=r"^TLS handshake: the deadline of 1 s"):
            sock.wrap_tls(client, server_hostname="localhost")
        assert clock.now() == 1
        assert sock.fileno() == -1
        assert len(theirs.recv(10_000)) > 100
        assert theirs.recv(1) == b""


@pytest.mark.parametrize("own", [None, 0, 30])
def test_tls_over_one_has_the_deadline_and_the_timeout_of_it(own):
    client, server = contexts()
    deadline = Deadline.after(60)
    with plain() as (ours, theirs):
        made = []
        sock = DeadlineSocket(theirs, deadline)
        thread = threading.Thread(
            target=lambda: made.append(sock.wrap_tls(server, server_side=True))
        )
        thread.start()
        own_sock = DeadlineSocket(ours, deadline)
        own_sock.settimeout(own)
        tls_sock = own_sock.wrap_tls(client, server_hostname="localhost")
        thread.join()
        with tls_sock, made[0]:
            assert isinstance(tls_sock, DeadlineSocket)
            assert isinstance(tls_sock, ssl.SSLSocket)
            assert (tls_sock.deadline, tls_sock.gettimeout()) == (deadline, own)
            assert made[0].write(b"hello") == 5
            tls_sock.settimeout(30)
            assert tls_sock.read(10) == b"hello"


def test_a_certificate_that_does_not_hold_is_told_and_the_connection_closed():
    client = ssl.create_default_context()
    _, server = contexts()
    with plain() as (ours, theirs):

        def serve(stop):
            with pytest.raises(ssl.SSLError):
                server.wrap_socket(theirs, server_side=True)

        with running(serve):
            sock = DeadlineSocket(ours, Deadline.after(60))
            with pytest.raises(ssl.SSLCertVerificationError):
                sock.wrap_tls(client, server_hostname="localhost")
        assert sock.fileno() == -1


def test_a_tls_socket_stays_the_object_that_it_is(clock):
    """Its session can not move."""
    with tls() as (ours, theirs):
        ours.settimeout(7)
        sock = DeadlineSocket(ours, Deadline.after(60))
        assert sock is ours
        assert isinstance(sock, DeadlineSocket)
        assert sock.gettimeout() == 7
        theirs.sendall(b"hello")
        assert sock.recv(100) == b"hello"
        assert DeadlineSocket(sock, clock.deadline(2)) is sock
        with pytest.raises(DeadlineExceeded):
            sock.recv(1)
        assert clock.now() == 2


def test_a_tls_socket_with_calls_of_its_own_is_refused():
    class Own(ssl.SSLSocket):
        pass

    with tls() as (ours, _):
        ours.__class__ = Own
        with pytest.raises(TypeError, match="Own has calls of its own"):
            DeadlineSocket(ours)


def test_the_clients_timeout_over_tls(clock):
    with tls_pair(clock.deadline(1)) as (sock, theirs):
        sock.settimeout(0.4)
        with pytest.raises(TimeoutError, match=r"^timed out$"):
            sock.recv(1)
        assert clock.now() == 0.4
        sock.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):
            sock.recv(1)
        theirs.sendall(b"x")
        assert clock.now() == 0.4


def test_a_record_that_went_out_in_part_is_followed_by_nothing_else(clock):
    """W1, S2: whatever came instead would break the session."""
    with tls_pair(clock.deadline(1)) as (sock, _):
        with pytest.raises(DeadlineExceeded):
            sock.sendall(MUCH)
        sock.deadline = clock.deadline(1)
        for call in (lambda: sock.send(b"x"), lambda: sock.sendall(b"x"), lambda: sock.write(b"x")):
            with pytest.raises(Unfinished, match="close the socket"):
                call()


def test_an_interrupt_in_the_middle_of_a_record_is_no_permission_to_send_another():
    """S2: by an interrupt, too, a record may be half out."""
    with tls_pair(Deadline.after(60)) as (sock, _):

        class Interrupted(Exception):
            pass

        def interrupt(number, frame):
            raise Interrupted

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                sock.sendall(MUCH)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(Unfinished):
            sock.sendall(b"x")


def test_a_connection_that_is_lost_says_so_each_time():
    """And not that it has sent a part of a record."""
    with tls_pair(Deadline.after(60)) as (sock, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        for _ in range(3):
            with pytest.raises(OSError, match=r"Broken pipe|reset|EOF") as caught:
                sock.sendall(MUCH)
            assert not isinstance(caught.value, DeadlineExceeded)


def test_who_does_not_wait_sends_the_same_again_by_himself():
    with tls_pair(Deadline.after(60)) as (sock, theirs):
        sock.settimeout(0)
        sent = 0
        with pytest.raises(ssl.SSLWantWriteError):
            while True:
                sent += sock.send(bytes(10_000))
        with pytest.raises(ssl.SSLWantWriteError):
            sock.send(bytes(10_000))
        got = 0
        while True:
            got += len(theirs.recv(100_000))
            try:
                sent += sock.send(bytes(10_000))
            except ssl.SSLWantWriteError:
                continue
            break
        sock.settimeout(30)
        sock.sendall(b"end")
        while got < sent + 3:
            got += len(theirs.recv(100_000))


def test_wrong_arguments_of_a_tls_send_harm_nothing():
    with tls_pair(Deadline.after(60)) as (sock, theirs):
        for data, flags in (("text", 0), (b"x", 1)):
            with pytest.raises((TypeError, ValueError)):
                sock.send(data, flags)
        assert sock.send(data=b"") == 0
        sock.sendall(data=b"ok")
        assert theirs.recv(10) == b"ok"
        theirs.sendall(b"back")
        assert sock.recv(buflen=2) == b"ba"
        assert sock.recv_into(bytearray(2)) == 2


def test_what_means_nothing_over_tls_is_refused_as_the_standard_library_does():
    with tls_pair(Deadline.after(60)) as (sock, _):
        for call in (
            sock.dup,
            lambda: sock.sendmsg([b"x"]),
            lambda: sock.recvmsg(1),
            lambda: sock.recvmsg_into([bytearray(1)]),
        ):
            with pytest.raises(NotImplementedError):
                call()
        for call in (
            lambda: sock.sendto(b"x", ("127.0.0.1", 1)),
            lambda: sock.sendto(b"x", 0, ("127.0.0.1", 1)),
            lambda: sock.recvfrom(1),
            lambda: sock.recvfrom_into(bytearray(1)),
        ):
            with pytest.raises(ValueError, match="not allowed"):
                call()


def test_ending_tls_is_bounded_and_the_connection_goes_on_in_plain(clock):
    """W1."""
    with tls_pair(clock.deadline(1)) as (sock, theirs):
        with pytest.raises(DeadlineExceeded, match=r"^TLS shutdown: "):
            sock.unwrap()
        assert clock.now() == 1
    with tls_pair(Deadline.after(60)) as (sock, theirs):
        left = []

        def leave(stop):
            left.append(theirs.unwrap())

        with running(leave):
            assert sock.unwrap() is sock
        sock.sendall(b"plain")
        assert left[0].recv(5) == b"plain"
        left[0].sendall(b"text")
        assert sock.recv(10) == b"text"
        sock.deadline = clock.deadline(1)
        with pytest.raises(DeadlineExceeded):
            sock.recv(1)
        with pytest.raises(DeadlineExceeded):
            sock.sendall(MUCH)
        # It was no record: what follows is the user's business.
        sock.deadline = clock.deadline(1)
        with pytest.raises(DeadlineExceeded):
            sock.sendall(MUCH)
        with pytest.raises(ValueError, match="unwrapped"):
            sock.write(b"secret")
        left[0].close()


@pytest.mark.parametrize("own", [None, 5])
def test_a_descriptor_that_is_given_away_has_the_mode_that_was_set(own):
    with tls_pair() as (sock, _):
        sock.settimeout(own)
        fd = sock.detach()
        try:
            assert os.get_blocking(fd) is (own is None)
        finally:
            os.close(fd)
        assert sock.detach() == -1


@contextmanager
def tls_server(**options):
    """A TLS server that shakes hands with one client, and sends it what it sends."""
    _, server = contexts()
    with listening() as listener:

        def serve(stop):
            sock, _ = listener.accept()
            with sock, server.wrap_socket(sock, server_side=True) as made:
                while data := made.recv(100):
                    made.sendall(data)

        with running(serve):
            yield listener.getsockname()


@pytest.mark.parametrize("connect", ["connect", "connect_ex"])
def test_one_that_is_wrapped_before_it_connects_speaks_tls(connect):
    """Found by the interpreter's own tests: it went on in plain text."""
    client, _ = contexts()
    bounded_tls(client)
    with tls_server() as address, bounding(Deadline.after(60)), unborn(client) as sock:
        assert not getattr(sock, connect)(address)
        assert sock.version()
        sock.sendall(b"hello")
        assert sock.recv(10) == b"hello"
        with pytest.raises(ValueError, match="already"):
            getattr(sock, connect)(address)


def test_connect_ex_raises_what_a_handshake_raises(clock):
    """A certificate that does not hold has an errno of another world."""
    client = bounded_tls(ssl.create_default_context())
    with (
        tls_server() as address,
        bounding(Deadline.after(60)),
        unborn(client) as sock,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        sock.connect_ex(address)
    with listening() as silent, bounding(clock.deadline(1)), unborn(client) as sock:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError, match="timed out"):
            sock.connect_ex(silent.getsockname())
        assert clock.now() == 0.5


def test_a_context_makes_sockets_that_obey_the_blocks_around(clock):
    """W1: for clients that wrap by themselves; the handshake is bounded too."""
    client, _ = contexts()
    assert bounded_tls(client) is client
    with plain() as (ours, _), bounding(clock.deadline(1)):
        with pytest.raises(DeadlineExceeded, match="TLS handshake"):
            client.wrap_socket(ours, server_hostname="localhost")
        assert clock.now() == 1
    with (
        tls_server() as address,
        socket.create_connection(address) as ours,
        client.wrap_socket(ours, server_hostname="localhost") as sock,
    ):
        with bounding(clock.deadline(1)), pytest.raises(DeadlineExceeded):
            sock.recv(1)
        sock.sendall(b"hello")
        assert sock.recv(10) == b"hello"
    with pytest.raises(TypeError, match=r"must be an ssl\.SSLContext, not 'context'"):
        bounded_tls("context")


def test_the_class_makes_no_tls_socket_of_a_plain_one_by_itself():
    """As in the standard library: contexts make them."""
    kind = ssl.create_default_context().sslsocket_class
    assert kind is ssl.SSLSocket
    made = bounded_tls(ssl.create_default_context()).sslsocket_class
    with pytest.raises(TypeError, match="public constructor"):
        made(socket.AF_INET)
