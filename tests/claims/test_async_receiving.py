"""The asyncio side of R4, R9-R14, R18: cancels, sources, and who may read."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import warnings

import pytest
from offloads import turns, until

from timebounds import (
    AsyncBudgetedReceiver,
    Backoff,
    Busy,
    Deadline,
    DeadlineExceeded,
    IdleTimeout,
    PeerClosed,
    RetryAllowance,
    StopRequested,
    StopSignal,
    Unfinished,
)
from timebounds.testing import Data, Failure, FakeClock, ScriptedStream


def far():
    return Deadline.after(60)


class Pair:
    """A receiver for tasks over one end of a socket pair, in either way."""

    def __init__(self, kind, **options):
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.kind, self.options = kind, options
        self.writer = None

    async def __aenter__(self):
        source = self.ours
        if self.kind == "a stream reader":
            source, self.writer = await asyncio.open_connection(sock=self.ours)
        self.receiver = AsyncBudgetedReceiver(source, **self.options)
        return self

    async def __aexit__(self, *exc_info):
        self.theirs.close()
        if self.writer is None:
            self.ours.close()
        else:
            self.writer.close()
            await turns(3)


@pytest.fixture(params=["a stream reader", "a raw socket"])
def kind(request):
    return request.param


# ------------------------------------------------------------------ cancels


@pytest.mark.parametrize("at", range(1, 6))
def test_a_cancel_loses_no_byte_and_leaves_the_receiver_unfinished(kind, at):
    """R4, R10, case A04: wherever it lands; the resumed call hands out the whole."""

    async def main():
        async with Pair(kind) as pair:
            pair.theirs.sendall(b"AB")
            task = asyncio.create_task(pair.receiver.receive_exactly(4, far()))
            await turns(at)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelling() == 1
            pair.theirs.sendall(b"CD")
            if pair.receiver.pending or pair.receiver._inbox.state[2] is not None:
                with pytest.raises(Unfinished):
                    await pair.receiver.receive_some(1, far())
                assert await pair.receiver.resume(far()) == b"ABCD"
            else:
                assert await pair.receiver.receive_exactly(4, far()) == b"ABCD"

    asyncio.run(main())


def test_a_cancel_beside_the_answer_loses_nothing(kind):
    """R4, case A47's rule: bytes arrive and the cancel comes in the same turn."""

    async def main():
        for order in (True, False):
            async with Pair(kind) as pair:
                task = asyncio.create_task(pair.receiver.receive_exactly(4, far()))
                await turns(3)
                if order:
                    pair.theirs.sendall(b"ABCD")
                    task.cancel()
                else:
                    task.cancel()
                    pair.theirs.sendall(b"ABCD")
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await pair.receiver.resume(far()) == b"ABCD"

    asyncio.run(main())


class Taking:
    """A reader whose bytes are in its future before they are handed out."""

    def __init__(self):
        self.future = None

    async def read(self, n):
        self.future = asyncio.get_running_loop().create_future()
        return await self.future


def test_bytes_that_a_read_had_taken_already_are_stored_when_a_cancel_comes():
    """R4: what the reader let go of is not lost on the way."""

    async def main():
        reader = Taking()
        receiver = AsyncBudgetedReceiver(reader)
        task = asyncio.create_task(receiver.receive_exactly(4, far()))
        await turns(2)
        reader.future.set_result(b"AB")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert receiver.pending == b"AB"

    asyncio.run(main())


def test_an_error_that_a_read_had_ready_does_not_replace_the_cancel():
    """R4: a cancel is never lost."""

    async def main():
        reader = Taking()
        receiver = AsyncBudgetedReceiver(reader)
        task = asyncio.create_task(receiver.receive_exactly(4, far()))
        await turns(2)
        reader.future.set_exception(ConnectionResetError())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_read_that_only_seemed_ready_is_waited_for_again():
    """R1: a wake-up for nothing ends nothing."""

    class Nervous:
        def __init__(self):
            self.woken = 0

        async def read(self, n):
            loop = asyncio.get_running_loop()
            for _ in range(3):
                future = loop.create_future()
                loop.call_soon(future.set_result, None)
                await future
                self.woken += 1
            return b"ABCD"

    async def main():
        reader = Nervous()
        assert await AsyncBudgetedReceiver(reader).receive_exactly(4, far()) == b"ABCD"
        assert reader.woken == 3

    asyncio.run(main())


# ------------------------------------------------------------------ bounds


def test_a_drip_ends_at_the_deadline_with_its_bytes_kept():
    """R1, R2, case A01: on fake time, to the nanosecond."""
    clock = FakeClock()
    stream = ScriptedStream(clock, *[Data(b"x", after=0.9)] * 100)
    receiver = AsyncBudgetedReceiver(stream, idle_timeout=1.0)

    async def main():
        with pytest.raises(DeadlineExceeded) as caught:
            await receiver.receive_exactly(100, clock.deadline(5))
        assert caught.value.report.data == b"xxxxx"

    clock.run(main())
    assert clock.now() == 5.0
    assert stream.unread == b"x" * 95


@pytest.mark.parametrize("foreign", [True, False])
def test_a_stop_wakes_a_blocked_receive(kind, foreign):
    """R14: from any thread, with the bytes kept and the stream usable."""

    async def main():
        stop = StopSignal()
        async with Pair(kind) as pair:
            pair.theirs.sendall(b"AB")
            deadline = Deadline.after(60, stop=stop)
            task = asyncio.create_task(pair.receiver.receive_exactly(4, deadline))
            await until(lambda: pair.receiver.pending == b"AB")
            await turns(3)
            if foreign:
                await asyncio.to_thread(stop.request, "enough")
            else:
                stop.request("enough")
            with pytest.raises(StopRequested, match=r"stopped \(enough\)"):
                await task
            pair.theirs.sendall(b"CD")
            assert await pair.receiver.resume(far()) == b"ABCD"
        assert stop._callbacks == {}

    asyncio.run(main())


def test_a_stop_under_a_never_deadline_and_data_under_a_stop(kind):
    """R14, N2: no limit, and still stoppable."""

    async def main():
        stop = StopSignal()
        never = Deadline.never(stop=stop)
        async with Pair(kind) as pair:
            task = asyncio.create_task(pair.receiver.receive_exactly(2, never))
            await turns(3)
            pair.theirs.sendall(b"AB")
            assert await task == b"AB"
            task = asyncio.create_task(pair.receiver.receive_exactly(2, Deadline.never()))
            await turns(3)
            pair.theirs.sendall(b"CD")
            assert await task == b"CD"
            task = asyncio.create_task(pair.receiver.receive_exactly(2, never))
            await turns(3)
            stop.request()
            with pytest.raises(StopRequested):
                await task

    asyncio.run(main())


def test_an_idle_wait_is_tried_again_with_backoff_on_fake_time():
    """R12: the backoff is the clock's; a stop wakes it, case A39."""
    clock = FakeClock()
    stop = StopSignal()
    stream = ScriptedStream(clock)
    receiver = AsyncBudgetedReceiver(
        stream, idle_timeout=1, allowance=RetryAllowance(5, Backoff.fixed(60))
    )
    clock.call_later(3, stop.request)

    async def main():
        with pytest.raises(StopRequested):
            await receiver.receive_exactly(1, Deadline.after(1000, clock=clock, stop=stop))
        with pytest.raises(IdleTimeout):
            receiver.discard()
            await AsyncBudgetedReceiver(stream, idle_timeout=1).receive_some(1, clock.deadline(9))

    clock.run(main())
    assert receiver._inbox.report.outcome == "complete"
    assert clock.now() == 4.0


def test_a_receive_under_a_fake_clock_in_a_real_loop_expires_when_it_is_advanced(kind):
    """R15."""
    clock = FakeClock()

    async def main():
        async with Pair(kind) as pair:
            task = asyncio.create_task(pair.receiver.receive_exactly(1, clock.deadline(600)))
            await until(lambda: clock.waiting)
            clock.advance(599)
            await turns(5)
            assert not task.done()
            clock.advance(1)
            with pytest.raises(DeadlineExceeded):
                await task

    asyncio.run(main())


# ------------------------------------------------------------------ sources


def test_one_task_at_a_time(kind):
    """R11: a second one gets Busy at once."""

    async def main():
        async with Pair(kind) as pair:
            task = asyncio.create_task(pair.receiver.receive_exactly(1, far()))
            await turns(2)
            with pytest.raises(Busy, match="another task"):
                await pair.receiver.receive_some(1, far())
            with pytest.raises(Busy):
                pair.receiver.discard()
            pair.theirs.sendall(b"A")
            assert await task == b"A"

    asyncio.run(main())


def test_the_end_and_a_reset_are_what_they_are(kind):
    """R7, R8: the end is the end, an error of the stream passes through."""

    async def main():
        async with Pair(kind) as pair:
            pair.theirs.sendall(b"A")
            pair.theirs.close()
            with pytest.raises(PeerClosed):
                await pair.receiver.receive_exactly(2, far())
            assert await pair.receiver.receive_some(2, far()) == b""
        clock = FakeClock()
        stream = ScriptedStream(clock, Data(b"A"), Failure(ConnectionResetError("reset")))
        receiver = AsyncBudgetedReceiver(stream)
        with pytest.raises(ConnectionResetError, match="reset") as caught:
            await receiver.receive_exactly(2, clock.deadline(1))
        assert caught.value.__notes__ == [
            "receive_exactly(2): 1 bytes kept for resume() or discard()"
        ]

    asyncio.run(main())


class _Duck:
    def recv(self, size):
        raise AssertionError


def _made(kind):
    return socket.socket(socket.AF_INET, kind)


def _closed():
    made = _made(socket.SOCK_STREAM)
    made.close()
    return made


def _tls():
    return ssl.create_default_context().wrap_socket(
        _made(socket.SOCK_STREAM), server_hostname="localhost", do_handshake_on_connect=False
    )


@pytest.mark.parametrize(
    ("make", "kind_of_error", "message"),
    [
        (object, TypeError, r"source must be an asyncio\.StreamReader or a non-block"),
        (_closed, ValueError, "source is closed"),
        (lambda: _made(socket.SOCK_DGRAM), TypeError, "source must be a stream socket"),
        (lambda: _made(socket.SOCK_STREAM), ValueError, r"call source\.setblocking\(False\) first"),
        (_tls, TypeError, "source is a SSLSocket: for TLS use the reader"),
        (_Duck, TypeError, "not _Duck: a blocking one belongs to BudgetedReceiver"),
    ],
)
def test_what_a_task_can_not_read_is_refused(make, kind_of_error, message):
    """N1, R13, case A54: with the right line, before anything is touched."""
    source = make()
    with pytest.raises(kind_of_error, match=message):
        AsyncBudgetedReceiver(source)
    if hasattr(source, "close"):
        source.close()


@pytest.mark.parametrize("returned", [b"AB", None])
def test_a_blocking_reader_is_refused_and_what_it_gave_is_kept(returned):
    """R4: an async door called with a sync port."""

    class File:
        def read(self, n):
            return returned

    async def main():
        receiver = AsyncBudgetedReceiver(File())
        with pytest.raises(TypeError, match=r"File\.read is not async"):
            await receiver.receive_exactly(4, far())
        assert receiver.pending == (returned or b"")

    asyncio.run(main())


@pytest.mark.parametrize("into", [True, False])
def test_a_reader_that_returns_more_or_no_bytes_is_an_error_and_nothing_is_lost(into):
    """R13."""

    class Generous:
        async def read(self, n):
            return b"ABCDEF"

    class Wrong:
        async def read(self, n):
            return "text"

    async def main():
        receiver = AsyncBudgetedReceiver(Generous())
        buffer = bytearray(4)
        with pytest.raises(RuntimeError, match=r"read\(4\) returned 6 bytes: all are kept"):
            if into:
                await receiver.receive_into(buffer, far())
            else:
                await receiver.receive_exactly(4, far())
        assert (bytes(buffer) if into else b"") + receiver.pending == b"ABCDEF"
        with pytest.raises(TypeError, match=r"read\(4\) returned str, not bytes"):
            await AsyncBudgetedReceiver(Wrong()).receive_exactly(4, far())

    asyncio.run(main())


def test_bytes_into_a_buffer_count_as_they_come(kind):
    """R4: an unfinished one is resumed."""

    async def main():
        async with Pair(kind) as pair:
            buffer = bytearray(4)
            pair.theirs.sendall(b"AB")
            with pytest.raises(DeadlineExceeded):
                await pair.receiver.receive_into(buffer, Deadline.after(0.02))
            assert buffer == b"AB\0\0"
            pair.theirs.sendall(b"CD")
            assert await pair.receiver.resume(far()) == b""
            assert buffer == b"ABCD"

    asyncio.run(main())


def test_nothing_is_left_un_awaited(kind):
    """R9: neither a coroutine nor a watch of the loop."""

    async def main():
        async with Pair(kind) as pair:
            with pytest.raises(DeadlineExceeded):
                await pair.receiver.receive_exactly(1, Deadline.after(0.01))
            if kind == "a raw socket":
                assert not asyncio.get_running_loop().remove_reader(pair.ours)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()
