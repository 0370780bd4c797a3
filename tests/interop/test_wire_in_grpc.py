"""P1, D8: a budget through a real gRPC client and server, which have deadlines of their own.

What grpcio sends itself is rounded up, by up to one in a hundred, and is subtracted from a wall
clock on arrival. What `timebounds.wire` sends beside it, in metadata, never grows.
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from timebounds import Deadline, DeadlineExceeded, StopSignal
from timebounds.testing import FakeClock
from timebounds.wire import from_grpc_timeout, from_milliseconds, to_grpc_timeout, to_milliseconds

grpc = pytest.importorskip("grpc", reason="no grpcio here: `run.py interop` has it")

METHOD = "/budget.Chain/Go"
KEY = "timebounds-ms"
# HTTP/2: its first words, and frames of no settings, of headers, and of an empty message.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, HEADERS, DATA = 4, 1, 0
END_STREAM, END_HEADERS = 1, 4


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """Let grpcio make what it keeps for the whole process, which is no test's leak."""
    with serving(lambda context: None) as call:
        call(b"", timeout=10)


@pytest.fixture(autouse=True)
def settled():
    """Wait until grpcio's own threads have closed what the test has given back."""
    before, patience = len(os.listdir("/proc/self/fd")), Deadline.after(5)
    yield
    while len(os.listdir("/proc/self/fd")) > before and not patience.expired():
        threading.Event().wait(0.002)


class serving(ExitStack):
    """A server whose one method is `handle(context)`; entering gives a client's call of it."""

    def __init__(self, handle, workers=1):
        super().__init__()
        self.handle, self.workers = handle, workers

    def __enter__(self):
        super().__enter__()
        pool = self.enter_context(ThreadPoolExecutor(self.workers))
        server = grpc.server(pool)
        method = grpc.unary_unary_rpc_method_handler(self._answer)
        handlers = grpc.method_handlers_generic_handler("budget.Chain", {"Go": method})
        server.add_generic_rpc_handlers((handlers,))
        self.port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.callback(lambda: server.stop(0).wait())
        channel = self.enter_context(grpc.insecure_channel(f"127.0.0.1:{self.port}"))
        return channel.unary_unary(METHOD)

    def _answer(self, request, context):
        return self.handle(context) or b""


def received(context, **more):
    """Make the server's deadline: the earlier of grpcio's and of what came in the metadata."""
    said = dict(context.invocation_metadata()).get(KEY)
    own = Deadline.after(context.time_remaining(), **more)
    return own.earliest(from_milliseconds(said, **more))


def sent(deadline):
    """What a client passes to a call, whatever its deadline: nothing of it is ever longer."""
    text = to_milliseconds(deadline)
    return {"timeout": deadline.timeout(), "metadata": () if text is None else ((KEY, text),)}


# ---------------------------------------------------------------- what grpcio sends


def header_sent_by_grpcio(**more):
    """Let a client call a socket that only listens; return its `grpc-timeout`, or None."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        channel = grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}")
        stack.enter_context(channel)
        pending = channel.unary_unary(METHOD).future(b"", **more)
        stack.callback(pending.cancel)
        listener.settimeout(10)
        peer = stack.enter_context(closing(listener.accept()[0]))
        peer.settimeout(10)
        peer.sendall(frame(SETTINGS))
        head = b""
        # The user agent comes after all that is of interest.
        while b"user-agent" not in head:
            head += peer.recv(65_536)
        # The name and the value, each behind its length, as they are.
        _, there, rest = head.partition(b"grpc-timeout")
        return rest[1 : 1 + rest[0]] if there else None


@pytest.mark.parametrize("seconds", [0.5, 1.2345, 12.3456789, 100.001, 3700.5, 1e6])
def test_what_grpcio_sends_is_read(seconds):
    """P1: as bytes from the wire. grpcio rounds up, so it is kept below what was sent beside it."""
    clock = FakeClock()
    text = header_sent_by_grpcio(timeout=clock.deadline(seconds).timeout())
    arrived = from_grpc_timeout(text, clock=clock).remaining()
    assert seconds * 0.98 < arrived < seconds * 1.02 + 0.01
    exact = from_milliseconds(to_milliseconds(clock.deadline(seconds)), clock=clock)
    assert from_grpc_timeout(text, clock=clock).earliest(exact).remaining() <= seconds
    assert from_grpc_timeout(text, maximum=seconds, clock=clock).remaining() <= seconds


def test_grpcio_sends_nothing_for_a_deadline_that_never_comes():
    """P1: and so does `timebounds.wire`."""
    never = Deadline.never()
    assert sent(never) == {"timeout": None, "metadata": ()}
    text = header_sent_by_grpcio(**sent(never))
    assert text is None
    assert from_grpc_timeout(text, maximum=3, clock=FakeClock()).remaining() == 3.0


# ---------------------------------------------------------------- what grpcio reads


def frame(kind, payload=b"", flags=0, stream=0):
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def call_with_header(port, text):
    """Call a gRPC server by hand, with this `grpc-timeout`, and wait for some of its answer."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-timeout": text,
    }
    # Each literal, neither indexed nor compressed.
    head = b"".join(
        b"\0" + b"".join(bytes([len(part)]) + part.encode() for part in field)
        for field in fields.items()
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(
            HELLO
            + frame(SETTINGS)
            + frame(HEADERS, head, END_HEADERS, 1)
            + frame(DATA, bytes(5), END_STREAM, 1)
        )
        answer = b""
        while b"grpc-status" not in answer and (more := client.recv(65_536)):
            answer += more


@pytest.mark.parametrize("seconds", [20.5, 99.9, 100.25, 150_000, 150_000_000, 1e11])
def test_grpcio_reads_what_is_sent(seconds):
    """P1: every unit that is chosen for a size is understood by the protocol's own reader."""
    seen = []
    server = serving(lambda context: seen.append(context.time_remaining()))
    with server:
        call_with_header(server.port, to_grpc_timeout(FakeClock().deadline(seconds)))
    # It saturates at about three years, and its instant lies on the wall clock.
    assert min(seconds, 9e7) - 15 < seen[0] <= seconds + 0.1


# ---------------------------------------------------------------- down a chain


def test_what_remains_never_grows_down_a_chain_of_servers():
    """P1, D8: client, server, server; each hands on what it has, and has less than it was sent."""
    seen = []

    def handle(context):
        deadline = received(context)
        seen.append((int(dict(context.invocation_metadata())[KEY]) / 1000, deadline.remaining()))
        return b"" if len(seen) == 3 else call(b"", **sent(deadline))

    first = Deadline.after(9.8765)
    with serving(handle, workers=3) as call:
        call(b"", **sent(first))
    had = 9.8765
    for text, remaining in seen:
        assert 0 < remaining <= text <= had
        had = remaining
    assert len(seen) == 3


def test_alone_grpcio_would_let_it_grow():
    """P1: why metadata of one's own is worth its line; when this fails, grpcio rounds down."""
    seen = []
    with serving(
        lambda context: seen.append((context.time_remaining(), received(context)))
    ) as call:
        call(b"", **sent(Deadline.after(3700.5)))
    own, deadline = seen[0]
    assert own > 3700.5
    assert deadline.remaining() <= 3700.5


def test_a_server_without_a_deadline_has_its_own_maximum():
    """P1: grpcio then says 290 thousand million years."""
    seen = []

    def handle(context):
        seen.append(received(context).within(5).remaining())

    with serving(handle) as call:
        call(b"", **sent(Deadline.never()))
    assert 0 < seen[0] <= 5


def test_a_server_stops_when_the_budget_of_its_caller_is_spent():
    """P1, D9: also when its caller hangs up, which is a stop and no expiry."""
    ended, entered, left = [], threading.Event(), threading.Event()

    def handle(context):
        stop = StopSignal()
        if not context.add_callback(lambda: stop.request("the caller has hung up")):
            stop.request("the caller had hung up")
        deadline = received(context, stop=stop)
        entered.set()
        stop.wait(Deadline.after(30))
        try:
            deadline.check("answering")
        except Exception as error:
            ended.append(type(error).__name__)
        left.set()

    with serving(handle) as call:
        pending = call.future(b"", **sent(Deadline.after(20)))
        assert entered.wait(10)
        pending.cancel()
        assert left.wait(10)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", **sent(Deadline.after(0.2)))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # A stop wins over an expiry that is due as well.
    assert set(ended) == {"StopRequested"}


def test_nothing_is_sent_when_nothing_is_left():
    """P1: no call begins."""
    clock = FakeClock()
    with pytest.raises(DeadlineExceeded):
        sent(clock.deadline(0.0005))
