"""W1: other people's clients over sockets whose calls obey a deadline."""

from __future__ import annotations

import array
import asyncio
import io
import os
import pickle
import signal
import socket
import threading

import pytest
from drop_in import (
    MUCH,
    RECEIVING,
    SENDING,
    fill,
)
from lines import plain

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
    StopRequested,
    StopSignal,
    bounding,
)
from timebounds.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


@pytest.fixture
def pair(clock):
    """One end with a deadline of 1 s on a fake clock, and the other end, plain."""
    ours, theirs = socket.socketpair()
    with DeadlineSocket(ours, clock.deadline(1)) as sock, theirs:
        yield sock, theirs


# ---------------------------------------------------------------- each call, one deadline


@pytest.mark.parametrize("call", RECEIVING)
def test_a_receiving_call_ends_at_the_deadline_exactly(pair, clock, call):
    """W1."""
    sock, _ = pair
    with pytest.raises(DeadlineExceeded, match=r"^recv: the deadline of 1 s was reached$"):
        RECEIVING[call](sock)
    assert clock.now() == 1.0


@pytest.mark.parametrize("call", SENDING)
def test_a_sending_call_ends_at_the_deadline_exactly(pair, clock, call):
    """W1."""
    sock, _ = pair
    fill(sock)
    with pytest.raises(DeadlineExceeded, match=r"^send: the deadline of 1 s was reached$"):
        SENDING[call](sock)
    assert clock.now() == 1.0


@pytest.mark.parametrize("call", [*RECEIVING, *SENDING])
def test_an_expired_deadline_begins_nothing(pair, clock, call):
    """W1, D1: neither are bytes taken nor sent."""
    sock, theirs = pair
    theirs.sendall(b"there")
    sock.deadline = clock.deadline(0)
    with pytest.raises(DeadlineExceeded):
        (RECEIVING | SENDING)[call](sock)
    sock.deadline = None
    assert sock.recv(10) == b"there"
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(10)


def test_what_is_there_is_handed_out_at_once(pair, clock):
    """W1."""
    sock, theirs = pair
    room = bytearray(2)
    for _ in range(6):
        theirs.sendall(b"ab")
    assert sock.recv(2) == b"ab"
    assert (sock.recv_into(room), bytes(room)) == (2, b"ab")
    assert sock.recvfrom(2)[0] == b"ab"
    assert sock.recvfrom_into(room)[0] == 2
    assert sock.recvmsg(2)[0] == b"ab"
    assert sock.recvmsg_into([room])[0] == 2
    assert clock.now() == 0


def test_what_is_sent_arrives_whole(pair):
    sock, theirs = pair
    assert sock.send(b"ab") == 2
    assert sock.sendall(b"cd") is None
    assert sock.sendmsg([b"e", b"f"]) == 2
    assert sock.sendmsg([b"g"], [], 0, None) == 1
    assert sock.sendfile(io.BytesIO(b"...hi..."), 3, 2) == 2
    assert sock.send(b"") == 0
    sock.sendall(b"")
    assert theirs.recv(100) == b"abcdefghi"


def test_a_connected_datagram_is_sent_to_where_it_is_told():
    """`sendto` takes its flags in the middle."""
    with plain() as (ours, theirs), DeadlineSocket(ours) as sock:
        address = theirs.getsockname()
        assert sock.sendto(b"a", address) == 1
        assert sock.sendto(b"b", 0, address) == 1
        assert sock.sendmsg([b"c"], [], 0) == 1
        assert theirs.recv(1) == b"a"
        for wrong in ((), (0, address, 1)):
            with pytest.raises(TypeError):
                sock.sendto(b"c", *wrong)
        fill(sock)
        clock = FakeClock(auto_advance=True)
        sock.deadline = clock.deadline(1)
        with pytest.raises(DeadlineExceeded, match=r"^send: "):
            sock.sendto(b"d", address)


def test_descriptors_are_passed_along_and_nothing_is_lost_to_a_second_try(pair):
    """The lists are read once, however often the call is tried."""
    sock, theirs = pair
    with open(os.devnull, "rb") as file:
        passed = array.array("i", [file.fileno()])
        sock.sendmsg(iter([b"x"]), iter([(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)]))
    data, beside, _, _ = theirs.recvmsg(10, socket.CMSG_SPACE(4))
    assert data == b"x"
    os.close(array.array("i", beside[0][2])[0])
    clock = FakeClock()
    sock.deadline = clock.deadline(1)
    clock.call_later(0.5, lambda: theirs.sendall(b"later"))
    room = bytearray(5)
    thread = threading.Thread(target=lambda: sock.recvmsg_into(iter([room])))
    thread.start()
    clock.wait_until_waiting(1)
    clock.advance(0.5)
    thread.join()
    assert room == b"later"


def test_progress_moves_nothing(pair, clock):
    """W1: a byte every 0.3 s; the deadline of 1 s holds."""
    sock, theirs = pair
    for n in range(1, 10):
        clock.call_later(n * 0.3, lambda: theirs.sendall(b"x"))
    got = bytearray()
    with pytest.raises(DeadlineExceeded):
        while True:
            got += sock.recv(100)
    assert (bytes(got), clock.now()) == (b"xxx", 1.0)


def test_who_asks_for_all_gets_all_as_far_as_the_limits_allow(pair, clock):
    """The system would give what is there, since it is asked not to wait."""
    sock, theirs = pair
    clock.call_later(0.25, lambda: theirs.sendall(b"cd"))
    clock.call_later(0.5, lambda: theirs.sendall(b"efgh"))
    theirs.sendall(b"ab")
    assert sock.recv(4, socket.MSG_WAITALL) == b"abcd"
    room = bytearray(6)
    assert sock.recv_into(room, 3, socket.MSG_WAITALL) == 3
    assert room == b"efg\0\0\0"
    # As the system: a part is returned when a limit strikes, and the limit with nothing.
    assert sock.recv(4, socket.MSG_WAITALL) == b"h"
    assert clock.now() == 1
    with pytest.raises(DeadlineExceeded):
        sock.recv(4, socket.MSG_WAITALL)
    theirs.sendall(b"ij")
    theirs.shutdown(socket.SHUT_WR)
    sock.deadline = clock.deadline(1)
    assert sock.recv(4, socket.MSG_WAITALL | socket.MSG_PEEK) == b"ij"
    assert sock.recv(4, socket.MSG_WAITALL) == b"ij"
    assert sock.recv(0, socket.MSG_WAITALL) == b""


def test_a_flag_that_says_not_to_wait_is_obeyed(pair, clock):
    sock, theirs = pair
    for call in (
        lambda: sock.recv(1, socket.MSG_DONTWAIT),
        lambda: sock.recv_into(bytearray(1), 1, socket.MSG_DONTWAIT),
        lambda: sock.recvfrom(1, socket.MSG_DONTWAIT),
    ):
        with pytest.raises(BlockingIOError):
            call()
    theirs.sendall(b"ab")
    assert sock.recv(1, socket.MSG_PEEK) == b"a"
    assert sock.recv_into(bytearray(1), None, socket.MSG_PEEK) == 1
    assert clock.now() == 0


# ---------------------------------------------------------------- whose deadline


def test_a_deadline_is_set_anew_for_each_request(pair, clock):
    """W1: pools use one socket for many."""
    sock, theirs = pair
    for seconds in (1, 2):
        sock.deadline = clock.deadline(seconds)
        assert sock.deadline == clock.deadline(seconds)
        before = clock.now()
        with pytest.raises(DeadlineExceeded):
            sock.recv(1)
        assert clock.now() - before == seconds
    sock.deadline = None
    assert sock.deadline is None
    theirs.sendall(b"x")
    assert sock.recv(1) == b"x"


def test_a_function_is_asked_at_each_call(clock):
    """W1."""
    ours, theirs = socket.socketpair()
    given = [clock.deadline(1), None, clock.deadline(3), 2]
    with DeadlineSocket(ours, lambda: given.pop(0)) as sock, theirs:
        with pytest.raises(DeadlineExceeded):
            sock.recv(1)
        theirs.sendall(b"x")
        assert sock.recv(1) == b"x"
        with pytest.raises(DeadlineExceeded):
            sock.recv(1)
        assert clock.now() == 3
        with pytest.raises(TypeError, match=r"Deadline\.after\(2\)"):
            sock.recv(1)
        sock.deadline = lambda: None
        assert sock.deadline is None


@pytest.fixture
def ambient():
    ours, theirs = socket.socketpair()
    with DeadlineSocket(ours) as sock, theirs:
        yield sock, theirs


def test_without_one_the_blocks_around_each_call_hold(ambient, clock):
    """W1, A87."""
    sock, theirs = ambient
    for seconds in (1, 0.5):
        before = clock.now()
        with bounding(clock.deadline(seconds)), pytest.raises(DeadlineExceeded):
            sock.recv(1)
        assert clock.now() - before == seconds
    theirs.sendall(b"x")
    assert sock.recv(1) == b"x"


def test_a_body_that_is_streamed_keeps_the_deadline_of_its_request(ambient, clock):
    """W1: it is read when the block is left."""
    sock, theirs = ambient
    with bounding(clock.deadline(1)) as request:
        sock.sendall(b"GET")
    assert sock.deadline is request
    with pytest.raises(DeadlineExceeded):
        sock.recv(1)
    assert clock.now() == 1.0
    # Another block can only shorten.
    with bounding(clock.deadline(5)), pytest.raises(DeadlineExceeded):
        sock.recv(1)
    # The next request has nothing to do with it.
    sock.send(b"GET")
    assert sock.deadline is None
    theirs.sendall(b"x")
    assert sock.recv(1) == b"x"


def test_of_two_clocks_the_one_around_the_call_holds(ambient):
    """C5: they are not compared."""
    sock, _ = ambient
    with bounding(FakeClock().deadline(1)) as request:
        sock.sendall(b"GET")
        assert sock.deadline is request
    with bounding(FakeClock().deadline(5)) as here:
        assert sock.deadline is here


def test_a_fixed_deadline_is_no_business_of_the_blocks(pair, clock):
    sock, _ = pair
    with bounding(clock.deadline(0.5)):
        sock.sendall(b"x")
        with pytest.raises(DeadlineExceeded):
            sock.recv(1)
    assert clock.now() == 1.0


def test_a_clients_error_becomes_ours_when_it_leaves_the_block(ambient, clock):
    """W1: the client has hidden it."""
    sock, _ = ambient

    def client():
        try:
            return sock.recv(1)
        except OSError as error:
            raise ConnectionError("no answer") from error

    with pytest.raises(DeadlineExceeded) as caught, bounding(clock.deadline(1)):
        client()
    assert isinstance(caught.value.__cause__, ConnectionError)


# ---------------------------------------------------------------- the client's own timeout


def test_the_earlier_of_the_two_limits_ends_a_call(pair, clock):
    """W1: each has its own error, and clients take both for a timeout."""
    sock, _ = pair
    sock.settimeout(0.4)
    with pytest.raises(TimeoutError, match=r"^timed out$") as caught:
        sock.recv(1)
    assert type(caught.value) is TimeoutError
    assert clock.now() == 0.4
    with pytest.raises(TimeoutError, match=r"^timed out$"):
        sock.recv(1)
    assert clock.now() == 0.8
    with pytest.raises(DeadlineExceeded):
        sock.recv(1)
    assert clock.now() == 1.0


def test_on_a_tie_it_is_the_deadline(pair):
    sock, _ = pair
    sock.settimeout(1)
    with pytest.raises(DeadlineExceeded):
        sock.recv(1)


def test_it_holds_for_the_whole_of_a_sendall_as_ever(pair, clock):
    sock, theirs = pair
    sock.settimeout(0.5)
    for n in range(1, 9):
        clock.call_later(n * 0.2, lambda: theirs.recv(1_000_000))
    with pytest.raises(TimeoutError, match="timed out"):
        sock.sendall(MUCH)
    assert clock.now() == 0.5


def test_it_needs_no_deadline():
    """Without one the real clock is asked."""
    ours, theirs = socket.socketpair()
    with DeadlineSocket(ours) as sock, theirs:
        sock.settimeout(0.01)
        with pytest.raises(TimeoutError, match="timed out"):
            sock.recv(1)


def test_timeouts_are_told_as_they_were_set(pair):
    sock, _ = pair
    for value, blocks in ((None, True), (5, True), (0.25, True), (0, False), (False, False)):
        sock.settimeout(value)
        assert (sock.gettimeout(), sock.timeout) == (value, value)
        assert sock.getblocking() is blocks
    sock.setblocking(True)
    assert sock.gettimeout() is None
    sock.setblocking(False)
    assert sock.gettimeout() == 0
    for wrong in (-1, float("nan"), "1"):
        with pytest.raises((TypeError, ValueError), match="value"):
            sock.settimeout(wrong)


def test_the_descriptor_looks_as_it_would_without_us(pair):
    """Children and copies share its mode."""
    sock, _ = pair
    assert os.get_blocking(sock.fileno())
    sock.settimeout(3)
    assert not os.get_blocking(sock.fileno())
    sock.settimeout(None)
    assert os.get_blocking(sock.fileno())


@pytest.mark.parametrize("own", [None, 0.0, 5.0])
def test_the_timeout_of_the_socket_is_taken_over(own):
    ours, theirs = socket.socketpair()
    ours.settimeout(own)
    with DeadlineSocket(ours) as sock, theirs:
        assert sock.gettimeout() == own
        assert ours.fileno() == -1


def test_the_default_timeout_changes_no_socket_that_is_there(clock):
    ours, theirs = socket.socketpair()
    socket.setdefaulttimeout(7)
    try:
        with DeadlineSocket(ours, clock.deadline(1)) as sock, theirs:
            assert sock.gettimeout() is None
            with pytest.raises(DeadlineExceeded):
                sock.recv(1)
    finally:
        socket.setdefaulttimeout(None)


def test_with_timeout_0_a_call_waits_for_nothing_and_is_not_bounded(pair, clock):
    """W1."""
    sock, theirs = pair
    sock.settimeout(0)
    sock.deadline = clock.deadline(0)
    with pytest.raises(BlockingIOError):
        sock.recv(1)
    theirs.sendall(b"x")
    assert sock.recv(1) == b"x"
    assert sock.send(b"y") == 1
    with pytest.raises(ValueError, match="non-blocking"):
        sock.sendfile(io.BytesIO(b"x"))


# ---------------------------------------------------------------- stops, loops, arguments


def test_a_stop_ends_a_call_that_waits():
    """W1, R14: from another thread, without the peer's help."""
    clock = FakeClock()
    stop = StopSignal(clock=clock)
    ours, theirs = socket.socketpair()
    with DeadlineSocket(ours, Deadline.after(9, clock=clock, stop=stop)) as sock, theirs:
        caught = []

        def receive():
            with pytest.raises(StopRequested) as error:
                sock.recv(1)
            caught.append(error.value)

        thread = threading.Thread(target=receive)
        thread.start()
        clock.wait_until_waiting(1)
        stop.request("shutdown")
        thread.join()
        assert "shutdown" in str(caught[0])
        with pytest.raises(StopRequested):
            sock.send(b"x")
        with pytest.raises(BlockingIOError):
            theirs.recv(1, socket.MSG_DONTWAIT)


def test_a_truth_is_a_number_as_in_the_standard_library(pair):
    sock, _ = pair
    sock.settimeout(True)
    assert sock.gettimeout() == 1.0
    sock.settimeout(False)
    assert sock.gettimeout() == 0.0


def test_on_a_loops_thread_it_is_not_refused(pair):
    """R11: its client would have blocked the loop anyway."""
    sock, theirs = pair
    theirs.sendall(b"xy")

    async def main():
        return sock.recv(1)

    assert asyncio.run(main()) == b"x"


def test_a_loop_may_use_one_that_does_not_wait(pair):
    sock, theirs = pair
    sock.setblocking(False)

    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(loop.sock_recv(sock, 5))
        await asyncio.sleep(0)
        theirs.sendall(b"hello")
        await loop.sock_sendall(sock, b"back")
        return await task

    assert asyncio.run(main()) == b"hello"
    assert theirs.recv(4) == b"back"


class Duck:
    type = socket.SOCK_STREAM

    def recv(self, size):
        return b""

    def settimeout(self, value): ...

    def gettimeout(self): ...


def test_wrong_arguments_are_told_at_the_door():
    """N5: and the socket stays whose it was."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        pytest.raises(TypeError, match="stream socket"),
    ):
        DeadlineSocket(sock)
    sock = socket.socket()
    sock.close()
    with pytest.raises(ValueError, match="closed"):
        DeadlineSocket(sock)
    with pytest.raises(TypeError, match="must be a connected stream socket"):
        DeadlineSocket("socket")
    with pytest.raises(TypeError, match=r"must be a socket\.socket, not Duck"):
        DeadlineSocket(Duck())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(TypeError, match=r"Deadline\.after\(2\)"):
            DeadlineSocket(ours, 2)
        assert ours.fileno() > 0
        with DeadlineSocket(ours) as sock:
            with pytest.raises(TypeError, match=r"Deadline\.after\(2\)"):
                sock.deadline = 2
            with pytest.raises(TypeError, match="encode"):
                sock.sendall("text")
            with pytest.raises(TypeError):
                sock.send("text")
            with pytest.raises(ValueError, match="count"):
                sock.sendfile(io.BytesIO(), count=0)


def test_an_error_of_the_system_passes_as_it_is(pair):
    sock, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        sock.sendall(b"x")
    assert sock.recv(1) == b""
    sock.close()
    for call in (lambda: sock.recv(1), lambda: sock.sendall(b"x"), lambda: sock.settimeout(1)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()


def test_a_buffer_that_was_to_be_sent_is_free_while_its_error_is_handled(pair):
    """A client that cuts off what went out does so in its `except`."""
    sock, _ = pair
    data = bytearray(MUCH)
    try:
        sock.sendall(data)
    except DeadlineExceeded:
        data.clear()
    assert data == b""


def test_a_signal_handler_that_raises_ends_a_call_and_leaves_the_socket_usable(pair):
    sock, theirs = pair
    sock.deadline = Deadline.after(30)

    class Interrupted(Exception):
        pass

    def interrupt(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    data = bytearray(MUCH)
    try:
        for call in (lambda: sock.sendall(data), lambda: sock.recv(1)):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                call()
            except Interrupted:
                data.clear()
            assert data == b""
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    theirs.sendall(b"x")
    assert sock.recv(1) == b"x"


# ---------------------------------------------------------------- ends and copies


def test_it_is_a_socket_in_all_else(pair):
    sock, theirs = pair
    assert isinstance(sock, socket.socket)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(sock)
    sock.shutdown(socket.SHUT_WR)
    assert theirs.recv(1) == b""
    with socket.socket(fileno=sock.detach()) as again:
        assert again.getblocking()
        assert sock.fileno() == -1
        theirs.sendall(b"x")
        assert again.recv(1) == b"x"


def test_it_may_be_wrapped_again(pair, clock):
    sock, _ = pair
    sock.settimeout(4)
    with DeadlineSocket(sock, clock.deadline(2)) as again:
        assert (sock.fileno(), again.gettimeout()) == (-1, 4)
        with pytest.raises(DeadlineExceeded):
            again.recv(1)
        assert clock.now() == 2


@pytest.mark.parametrize("own", [None, 3])
def test_a_copy_has_the_same_deadline_and_timeout(pair, clock, own):
    sock, theirs = pair
    sock.settimeout(own)
    with sock.dup() as copy:
        assert isinstance(copy, DeadlineSocket)
        assert (copy.deadline, copy.gettimeout()) == (sock.deadline, own)
        sock.close()
        theirs.sendall(b"x")
        assert copy.recv(1) == b"x"


def test_one_that_is_forgotten_warns_as_any_socket():
    ours, theirs = socket.socketpair()
    with theirs, pytest.warns(ResourceWarning, match="unclosed"):
        DeadlineSocket(ours)
