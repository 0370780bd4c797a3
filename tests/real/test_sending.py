"""Sending on real connections: plain, TLS, with modes of their own, and through stream writers."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import threading
import time

import pytest
from lines import contexts, plain, tls
from offloads import turns, until

from timebounds import (
    AsyncBudgetedSender,
    BudgetedReceiver,
    BudgetedSender,
    Busy,
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    SendOutcome,
    StopRequested,
    StopSignal,
    Unfinished,
)

KINDS = {"plain": plain, "tls": tls}
# More than the buffers of a connection hold.
MUCH = bytes(range(256)) * 65_536


def after(seconds):
    return Deadline.after(seconds)


class Peer:
    """Reads everything from a socket once it is let go, in a thread."""

    def __init__(self, sock, size=None):
        self._sock = sock
        self._size = size
        self.got = bytearray()
        self._thread = threading.Thread(target=self._read)

    def _read(self):
        while self._size is None or len(self.got) < self._size:
            data = self._sock.recv(262_144)
            if not data:
                return
            self.got += data

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._thread.join(60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_peer_that_takes_nothing_ends_a_send_on_time_and_the_rest_follows(kind):
    """S1, S2, A18: never early, in time; the peer sees each byte once."""
    with KINDS[kind]() as (ours, theirs):
        sender = BudgetedSender(ours)
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded) as caught:
            sender.send_all(MUCH, after(0.2))
        assert 0.2 <= time.monotonic() - began < 0.2 + 0.75
        report = caught.value.report
        assert 0 < report.accepted < len(MUCH)
        assert ours.gettimeout() is None
        with Peer(theirs, len(MUCH)) as peer:
            sender.resume(after(60))
        assert peer.got == MUCH
        assert sender.report.satisfied


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_in_force_is_always_this_calls(kind):
    """A08: a short limit of before does not end a later call, and nothing is left on the socket."""
    with KINDS[kind]() as (ours, theirs):
        ours.settimeout(7)
        sender = BudgetedSender(ours)
        with pytest.raises(DeadlineExceeded):
            sender.send_all(MUCH, after(0.1))
        assert ours.gettimeout() == 7
        with Peer(theirs, len(MUCH)):
            sender.resume(after(60))
        assert ours.gettimeout() == 7
        receiver = BudgetedReceiver(ours)
        with pytest.raises(DeadlineExceeded):
            receiver.receive_exactly(1, after(0.05))
        later = threading.Timer(0.2, theirs.sendall, (b"A",))
        later.start()
        assert receiver.resume(after(60)) == b"A"
        later.join()


@pytest.mark.parametrize("timeout", [None, 0.0, 30.0])
def test_a_plain_socket_keeps_its_mode_whatever_it_is(timeout):
    """R9: a receive in another thread goes on meanwhile."""
    with plain() as (ours, theirs):
        ours.settimeout(timeout)
        sender = BudgetedSender(ours, idle_timeout=0.05)
        with pytest.raises(IdleTimeout, match=r"took nothing for 0\.05 s"):
            sender.send_all(MUCH, after(60))
        assert ours.gettimeout() == timeout
        assert os.get_blocking(ours.fileno()) == (timeout is None)
        with Peer(theirs, len(MUCH)) as peer:
            sender.resume(after(60))
        assert peer.got == MUCH


def test_a_shared_descriptor_that_was_made_blocking_does_not_block():
    """R9: under the socket's own timeout, by somebody who shares it."""
    with plain() as (ours, theirs):
        ours.settimeout(30)
        os.set_blocking(ours.fileno(), True)
        sender = BudgetedSender(ours)
        with pytest.raises(DeadlineExceeded):
            sender.send_all(MUCH, after(0.05))
        with Peer(theirs, len(MUCH)) as peer:
            sender.resume(after(60))
        assert peer.got == MUCH


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_wakes_a_send_that_waits(kind):
    """R14: from another thread, without closing anything."""
    with KINDS[kind]() as (ours, theirs):
        stop = StopSignal()
        sender = BudgetedSender(ours)
        timer = threading.Timer(0.05, stop.request, ("enough",))
        timer.start()
        with pytest.raises(StopRequested, match="enough") as caught:
            sender.send_all(MUCH, Deadline.after(60, stop=stop))
        timer.join()
        assert caught.value.report.outcome is SendOutcome.STOPPED
        with Peer(theirs, len(MUCH)) as peer:
            sender.resume(after(60))
        assert peer.got == MUCH


def test_a_descriptor_above_1023():
    """A10: sending waits on it like on any other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with plain() as (ours, _):
            assert ours.fileno() > 1023
            with pytest.raises(DeadlineExceeded):
                BudgetedSender(ours).send_all(MUCH, after(0.05))
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_record_that_is_half_sent_is_in_doubt_and_only_its_rest_may_follow(version):
    """S2: any other send would break the session."""
    with tls(version) as (ours, theirs):
        sender = BudgetedSender(ours)
        with pytest.raises(DeadlineExceeded, match="in doubt") as caught:
            sender.send_all(MUCH, after(0.1))
        report = caught.value.report
        assert 0 < report.in_doubt <= 16_384
        assert report.accepted % 16_384 == 0
        with pytest.raises(Unfinished, match="on their way"):
            sender.discard()
        with pytest.raises(Unfinished, match="resume"):
            sender.send_all(b"another", after(1))
        with Peer(theirs, len(MUCH) + 7) as peer:
            sender.resume(after(60))
            sender.send_all(b"another", after(60))
        assert peer.got == MUCH + b"another"


def test_what_interrupts_a_tls_send_ends_it_for_good():
    """S1, S2: whether the record was taken nobody knows, so nothing can follow."""

    class Interrupted(ssl.SSLSocket):
        def send(self, data, flags=0):
            super().send(data, flags)
            raise KeyboardInterrupt

    with tls() as (ours, _):
        ours.__class__ = Interrupted
        sender = BudgetedSender(ours)
        with pytest.raises(KeyboardInterrupt):
            sender.send_all(b"abc", after(1))
        for verb in (sender.resume, lambda bound: sender.send_all(b"x", bound)):
            with pytest.raises(Unfinished, match="close the connection"):
                verb(after(1))
        with pytest.raises(Unfinished, match="close the connection"):
            sender.discard()


def test_a_signal_handler_that_stops_an_iteration_is_no_end(monkeypatch):
    """R18."""

    class Stopping(socket.socket):
        pass

    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = BudgetedSender(ours)

        class Odd:
            def gettimeout(self):
                return None

            def send(self, *_):
                raise StopIteration

        sender._port._sock = Odd()
        with pytest.raises(RuntimeError, match="StopIteration"):
            sender.send_all(b"abc", after(1))


@pytest.mark.parametrize(
    ("make", "error", "hint"),
    [
        (lambda: socket.socket(type=socket.SOCK_DGRAM), TypeError, "datagram.*sender"),
        (object, TypeError, "has no send and no settimeout"),
    ],
)
def test_what_is_no_stream_is_refused(make, error, hint):
    """N4."""
    target = make()
    try:
        with pytest.raises(error, match=hint):
            BudgetedSender(target)
    finally:
        if isinstance(target, socket.socket):
            target.close()


def test_a_closed_socket_is_refused_at_once_and_one_closed_later_says_so():
    with plain() as (ours, _):
        sender = BudgetedSender(ours)
        ours.close()
        with pytest.raises(ValueError, match="closed: make the sender"):
            BudgetedSender(ours)
        with pytest.raises(OSError, match="Bad file descriptor"):
            sender.send_all(b"abc", after(1))


def test_a_python_level_socket_is_sent_to_by_its_own_send():
    """R13: whatever it does, it is what the caller gave."""

    class Slow(socket.socket):
        def send(self, data, flags=0):
            return super().send(data[:2], flags)

    ours, theirs = socket.socketpair()
    with Slow(fileno=ours.detach()) as wrapped, theirs:
        sender = BudgetedSender(wrapped)
        sender.send_all(b"abcde", after(5))
        assert sender.report.sends == 3
        assert theirs.recv(10) == b"abcde"


def test_a_reset_passes_through():
    with plain() as (ours, theirs):
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()
        sender = BudgetedSender(ours)
        with pytest.raises(OSError) as caught:
            sender.send_all(MUCH, after(5))
        assert "bytes were accepted" in caught.value.__notes__[0]


# ------------------------------------------------------------------ tasks


def raw():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


async def streams(server_tls=None, client_tls=None):
    """Return our writer, and the server with the reader of its side."""
    readers = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        readers.set_result((reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_tls)
    address = server.sockets[0].getsockname()
    name = {"server_hostname": "localhost"} if client_tls else {}
    _, writer = await asyncio.open_connection(*address, ssl=client_tls, **name)
    their_reader, their_writer = await readers
    return writer, server, their_reader, their_writer


async def close_all(server, *writers):
    for each in writers:
        each.transport.abort()
    server.close()
    await server.wait_closed()
    await turns(3)


def test_a_raw_socket_ends_a_send_on_time_and_the_rest_follows():
    """S1: in a task."""

    async def main():
        ours, theirs = raw()
        with ours, theirs:
            sender = AsyncBudgetedSender(ours)
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded) as caught:
                await sender.send_all(MUCH, after(0.1))
            assert 0.1 <= time.monotonic() - began < 0.1 + 0.75
            assert 0 < caught.value.report.accepted < len(MUCH)
            with Peer(theirs, len(MUCH)) as peer:
                await sender.resume(after(60))
            assert peer.got == MUCH

    asyncio.run(main())


def test_a_cancel_forgets_nothing_and_a_stop_wakes_a_task():
    """R4, R14."""

    async def main():
        ours, theirs = raw()
        with ours, theirs:
            sender = AsyncBudgetedSender(ours)
            task = asyncio.create_task(sender.send_all(MUCH, after(60)))
            await turns(3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sender.report is None
            stop = StopSignal()
            task = asyncio.create_task(sender.resume(Deadline.after(60, stop=stop)))
            await turns(3)
            with pytest.raises(Busy, match="another task"):
                await sender.resume(after(1))
            with pytest.raises(Busy, match="one user at a time"):
                await AsyncBudgetedSender(ours).send_all(b"x", after(1))
            stop.request("enough")
            with pytest.raises(StopRequested):
                await task
            with Peer(theirs, len(MUCH)) as peer:
                await sender.resume(after(60))
            assert peer.got == MUCH

    asyncio.run(main())


@pytest.mark.parametrize("secure", [False, True])
def test_what_a_transport_holds_is_in_doubt_and_is_handed_over_once(secure):
    """S1, S2: through a stream writer."""

    async def main():
        client, server = contexts() if secure else (None, None)
        writer, listener, reader, theirs = await streams(server, client)
        limits = writer.transport.get_write_buffer_limits()
        sender = AsyncBudgetedSender(writer)
        with pytest.raises(DeadlineExceeded, match="in doubt") as caught:
            await sender.send_all(MUCH, after(0.2))
        report = caught.value.report
        assert 0 < report.in_doubt <= 65_536
        assert 0 < report.accepted < len(MUCH)
        assert writer.transport.get_write_buffer_limits() == limits
        with pytest.raises(Unfinished, match="on their way"):
            sender.discard()
        rest = asyncio.create_task(sender.resume(after(60)))
        assert await reader.readexactly(len(MUCH)) == MUCH
        await rest
        assert sender.report.satisfied
        await sender.send_all(b"abc", after(5))
        assert await reader.readexactly(3) == b"abc"
        await close_all(listener, writer, theirs)

    asyncio.run(main())


def test_an_idle_timeout_through_a_writer():
    """S3: progress is seen from one idle timeout to the next."""

    async def main():
        writer, listener, reader, theirs = await streams()
        sender = AsyncBudgetedSender(writer, idle_timeout=0.05)
        with pytest.raises(IdleTimeout):
            await sender.send_all(MUCH, after(60))
        rest = asyncio.create_task(sender.resume(after(60)))
        assert await reader.readexactly(len(MUCH)) == MUCH
        await rest
        await close_all(listener, writer, theirs)

    asyncio.run(main())


def test_a_lost_connection_is_what_a_writer_says():
    """S1: as `drain` raises it."""

    async def main():
        writer, listener, _, theirs = await streams()
        sender = AsyncBudgetedSender(writer)
        task = asyncio.create_task(sender.send_all(MUCH, after(60)))
        await turns(5)
        theirs.transport.abort()
        with pytest.raises(ConnectionError):
            await task
        parcel = sender._outbox._state[0]
        assert parcel.in_doubt
        assert len(sender.unsent) == len(MUCH) - parcel.accepted
        await close_all(listener, writer)

    asyncio.run(main())


def test_a_transport_that_is_closing_takes_nothing_more():
    """S1: what it held is in doubt, not accepted."""

    async def main():
        writer, listener, _, theirs = await streams()
        sender = AsyncBudgetedSender(writer)
        with pytest.raises(DeadlineExceeded) as caught:
            await sender.send_all(MUCH, after(0.05))
        writer.transport.abort()
        with pytest.raises(ConnectionResetError, match="transport takes nothing") as lost:
            await sender.resume(after(0.05))
        accepted = caught.value.report.accepted
        assert f"{accepted} bytes were accepted" in lost.value.__notes__[0]
        await close_all(listener, writer, theirs)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("make", "error", "hint"),
    [
        (socket.socket, ValueError, r"target\.setblocking\(False\)"),
        (lambda: socket.socket(type=socket.SOCK_DGRAM), TypeError, "target must be a stream"),
        (object, TypeError, "StreamWriter or a non-blocking socket, not object"),
    ],
)
def test_what_no_task_can_send_to_is_refused(make, error, hint, recwarn):
    """N4."""
    target = make()
    with pytest.raises(error, match=hint):
        AsyncBudgetedSender(target)
    if isinstance(target, socket.socket):
        target.close()


def test_a_small_message_makes_no_turn_of_the_loop():
    """R9: what is taken at once is sent at once; after many of them the loop gets a turn."""

    async def main():
        ours, theirs = raw()
        with ours, theirs:
            sender = AsyncBudgetedSender(ours)
            coroutine = sender.send_all(b"abc", after(60))
            with pytest.raises(StopIteration):
                coroutine.send(None)
            await until(lambda: True)
            assert theirs.recv(10) == b"abc"

    asyncio.run(main())
