"""K1-K4 on real sockets, in both colours: silent addresses, stuck resolvers, handshakes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import inspect
import os
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from textwrap import dedent

import pytest
from lines import contexts, plain, tls
from offloads import until
from peers import black_hole, resolving, serving

from children import environment, python
from timebounds import (
    AsyncConnection,
    Busy,
    ClockError,
    Connection,
    Deadline,
    DeadlineExceeded,
    DialOutcome,
    PeerClosed,
    StopRequested,
    StopSignal,
    Unfinished,
    aconnect,
    connect,
    dial_report,
)
from timebounds.aio.connection import TaskDialPort
from timebounds.blocking.dial_port import DialPort
from timebounds.bounds.lookup import SLOTS
from timebounds.policies.dialing import Dial
from timebounds.testing import FakeClock

pytestmark = pytest.mark.real
LATE = 0.75


def after(seconds):
    return Deadline.after(seconds)


class Colour:
    """Connect and use a connection in one colour: `dial` gives what the deadline's clock said."""

    def __init__(self, tasks):
        self.tasks = tasks

    def run(self, scenario, *args, **options):
        """Run `scenario(connection)`, whose connection is closed at its end; return its value."""

        async def in_task():
            async with await aconnect(*args, **options) as made:
                value = scenario(made)
                return await value if inspect.isawaitable(value) else value

        if self.tasks:
            return asyncio.run(in_task())
        with connect(*args, **options) as made:
            return scenario(made)

    def fails(self, error, *args, match=None, **options):
        with pytest.raises(error, match=match) as caught:
            self.run(lambda made: None, *args, **options)
        return caught.value


@pytest.fixture(params=["blocking", "tasks"])
def colour(request):
    return Colour(request.param == "tasks")


def client_side():
    return {"tls": contexts()[0], "server_hostname": "localhost"}


@pytest.mark.parametrize("secure", [False, True])
def test_a_connection_holds_receiver_and_sender_together(colour, secure):
    """K1, K4."""
    options = client_side() if secure else {}
    with serving(tls=secure) as address:
        seen = []

        def scenario(made):
            seen.append((made.usable, made.report))
            return made.receive_exactly(5, after(5))

        assert colour.run(scenario, address, after(5), **options) == b"hello"
    usable, report = seen[0]
    assert usable
    assert report.outcome is DialOutcome.CONNECTED
    assert report.phase == ("handshake" if secure else "connect")
    assert report.lookup == 0.0
    assert (report.handshake > 0) is secure
    assert [(each.address, each.ended) for each in report.attempts] == [(address, "connected")]


def test_a_name_is_looked_up(colour):
    """K1."""
    with serving(clients=2) as (_, port):
        report = colour.run(lambda made: made.report, ("localhost", port), after(5))
        assert report.lookup > 0
        assert report.attempts[-1].address == ("127.0.0.1", port)


def test_three_black_holes_before_a_healthy_address_within_three_seconds(colour):
    """K2, A14."""
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(black_hole()) for _ in range(3)]
        healthy = stack.enter_context(serving())
        began = time.monotonic()
        report = colour.run(
            lambda made: made.report, ("db", 1), after(3), resolver=resolving(*silent, healthy)
        )
        assert time.monotonic() - began < 3
    assert [each.ended for each in report.attempts] == ["timed out"] * 3 + ["connected"]


def test_silent_addresses_alone_end_on_time_and_nothing_is_left(colour):
    """K2, K4, A13."""
    with black_hole() as one, black_hole() as two:
        began = time.monotonic()
        error = colour.fails(
            DeadlineExceeded, ("db", 1), after(0.6), resolver=resolving(one, two, one)
        )
        assert 0.6 <= time.monotonic() - began < 0.6 + LATE
    assert [each.ended for each in error.report.attempts] == ["timed out", "timed out", "expired"]
    assert len(error.__notes__) == 3


def test_a_refused_connection_is_the_systems_error_with_its_history(colour):
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = server.getsockname()
    error = colour.fails(ConnectionRefusedError, refused, after(5))
    assert dial_report(error).outcome is DialOutcome.CONNECT_FAILED
    assert error.__notes__[0].startswith(f"{refused}: failed after")


def test_after_refusals_the_next_address_is_tried(colour):
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused = server.getsockname()
    with serving() as healthy:
        report = colour.run(
            lambda made: made.report, ("db", 1), after(5), resolver=resolving(refused, healthy)
        )
    assert [each.ended for each in report.attempts] == ["failed", "connected"]


def test_the_address_to_connect_from_can_be_given(colour):
    with serving(answer=b"x") as address:

        def scenario(made):
            if colour.tasks:
                return made._writer.get_extra_info("sockname")
            return made.socket.getsockname()

        source = ("127.0.0.2", 0)
        assert colour.run(scenario, address, after(5), source_address=source)[0] == "127.0.0.2"


# Lookup.


def test_a_resolver_that_never_answers_is_left_behind_on_time(colour):
    """A15, K3."""
    stuck = threading.Event()
    calls = []

    def resolver(host, port):
        calls.append((host, port))
        stuck.wait(30)
        return resolving(("127.0.0.1", 1))(host, port)

    try:
        for outstanding in (1, 2):
            began = time.monotonic()
            error = colour.fails(DeadlineExceeded, ("db", 80), after(0.3), resolver=resolver)
            assert 0.3 <= time.monotonic() - began < 0.3 + LATE
            assert error.report.phase == "lookup"
            assert str(error).endswith(f", in the lookup; lookups outstanding: {outstanding}")
        # A numeric host waits for none of them, and asks nobody.
        with serving() as address:
            assert colour.run(lambda made: made.usable, address, after(5), resolver=resolver)
        assert calls == [("db", 80)] * 2
    finally:
        stuck.set()


def test_lookups_are_bounded_and_a_full_line_is_told_apart_from_a_slow_answer(colour):
    """A15, A16: never more threads than slots; who was never asked for is told so."""
    stuck = threading.Event()
    calls = []

    def resolver(host, port):
        calls.append(host)
        stuck.wait(30)
        return resolving(("127.0.0.1", 1))(host, port)

    slots = SLOTS._limit
    try:
        for _ in range(slots):
            colour.fails(DeadlineExceeded, ("db", 80), after(0.02), resolver=resolver)
        error = colour.fails(
            DeadlineExceeded, ("db", 80), after(0.1), resolver=resolver, match="no slot was free"
        )
        assert "which never started" in str(error)
        assert len(calls) == slots
        assert len(SLOTS.threads) == slots
    finally:
        stuck.set()


def test_a_stop_ends_a_lookup(colour):
    stuck = threading.Event()
    stop = StopSignal()

    def resolver(host, port):
        stop.request("drain")
        stuck.wait(30)

    try:
        error = colour.fails(
            StopRequested, ("db", 80), after(30).stopping(stop), resolver=resolver, match="drain"
        )
        assert error.report.outcome is DialOutcome.STOPPED
    finally:
        stuck.set()


def test_a_resolver_that_finds_nothing_or_fails(colour):
    error = colour.fails(
        socket.gaierror, ("db", 80), after(5), resolver=lambda host, port: [], match="'db'"
    )
    assert dial_report(error).outcome is DialOutcome.LOOKUP_FAILED

    def resolver(host, port):
        raise LookupError("unknown zone")

    error = colour.fails(LookupError, ("db", 80), after(5), resolver=resolver, match="zone")
    assert dial_report(error).phase == "lookup"
    # A name that can not be one.
    colour.fails(UnicodeError, ("x" * 64 + ".org", 80), after(5))


def test_other_work_in_the_loops_executor_keeps_no_lookup_waiting():
    """A16."""
    gate = threading.Event()

    async def main():
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            loop.set_default_executor(executor)
            loop.run_in_executor(None, gate.wait, 30)
            try:
                async with await aconnect(("localhost", port), after(5)) as made:
                    return await made.receive_exactly(5, after(5))
            finally:
                gate.set()

    with serving() as (_, port):
        assert asyncio.run(main()) == b"hello"


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [False, True])
def test_a_process_whose_resolver_is_stuck_exits_at_once(tasks):
    """K3: its thread is not waited for."""
    call = "asyncio.run(aconnect(%s))" if tasks else "connect(%s)"
    call %= "('db', 80), Deadline.after(0.2), resolver=stuck"
    began = time.monotonic()
    ended = python(
        "-c",
        dedent(
            """
            import asyncio, threading
            from timebounds import Deadline, DeadlineExceeded, aconnect, connect
            def stuck(host, port):
                threading.Event().wait()
            try:
                CALL
            except DeadlineExceeded as error:
                print(error.report.phase)
            """
        ).replace("CALL", call),
    )
    assert ended.stdout == "lookup\n", ended
    assert ended.returncode == 0
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("tasks", [False, True])
def test_fake_time_stands_still_for_a_lookup_and_passes_by_its_own_sleep(tasks):
    """F4: what a resolver does in its thread takes no fake time, unless it sleeps on the clock."""

    def dial(clock, address, resolver):
        deadline = clock.deadline(1)

        async def in_task():
            async with await aconnect(address, deadline, resolver=resolver) as made:
                return made.report

        if tasks:
            return clock.run(in_task())
        with connect(address, deadline, resolver=resolver) as made:
            return made.report

    for sleeps in (0, 0.4, 1):
        clock = FakeClock(auto_advance=not tasks)
        with serving() as address:

            def resolver(host, port):
                pause = threading.Event()
                pause.wait(0.03)
                if sleeps:  # noqa: B023
                    clock.sleep(sleeps)  # noqa: B023
                return resolving(address)(host, port)

            with pytest.raises(DeadlineExceeded) if sleeps == 1 else contextlib.nullcontext():
                assert dial(clock, ("db", 80), resolver).lookup == sleeps
            assert clock.now() == sleeps

    stuck = threading.Event()
    clock = FakeClock(auto_advance=not tasks, patience=0.05)
    try:
        with pytest.raises(ClockError, match="has not returned"):
            dial(clock, ("db", 80), lambda *address: stuck.wait(30))
    finally:
        stuck.set()


# TLS.


def test_a_server_that_never_shakes_hands_is_left_on_time(colour):
    """K1, K4."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        error = colour.fails(
            DeadlineExceeded, silent.getsockname(), after(0.3), **client_side(), match="handshake"
        )
        assert 0.3 <= time.monotonic() - began < 0.3 + LATE
    assert error.report.phase == "handshake"
    assert [each.ended for each in error.report.attempts] == ["connected"]


@pytest.mark.parametrize("wrong", ["untrusted", "another name"])
def test_a_certificate_that_fails_is_the_systems_error(colour, wrong):
    """K1, K4."""
    options = client_side()
    if wrong == "untrusted":
        options["tls"] = ssl.create_default_context()
    else:
        options["server_hostname"] = "example.org"
    with serving(tls=True) as address:
        error = colour.fails(ssl.SSLCertVerificationError, address, after(5), **options)
    assert dial_report(error).outcome is DialOutcome.HANDSHAKE_FAILED
    assert dial_report(error).attempts[0].ended == "connected"


def test_the_name_of_the_certificate_is_the_host_unless_another_is_given(colour):
    with serving(tls=True) as (_, port):
        address = ("localhost", port)
        options = {"resolver": resolving(("127.0.0.1", port)), "tls": contexts()[0]}
        assert colour.run(lambda made: made.usable, address, after(5), **options)


def test_a_peer_that_talks_no_tls_is_an_error(colour):
    with serving(answer=b"220 welcome\r\n") as address:
        error = colour.fails(ssl.SSLError, address, after(5), **client_side())
    assert dial_report(error).outcome is DialOutcome.HANDSHAKE_FAILED


def test_a_context_that_can_not_wrap_is_told_and_nothing_is_left(colour):
    """K4: a server's context has no place on a client's side."""
    with serving() as address:
        colour.fails(ssl.SSLError, address, after(5), tls=contexts()[1])


def test_after_success_the_mode_is_a_new_sockets():
    """K4, A17."""
    for secure in (False, True):
        with serving(tls=secure, clients=2) as address:
            options = client_side() if secure else {}
            with connect(address, after(5), **options) as made:
                assert made.socket.gettimeout() is None
            before = socket.getdefaulttimeout()
            socket.setdefaulttimeout(7)
            try:
                with connect(address, after(5), **options) as made:
                    assert made.socket.gettimeout() == 7
            finally:
                socket.setdefaulttimeout(before)


# The accepting side.


def test_a_client_that_never_says_hello_holds_up_nobody():
    """A17: the server's handshake is bounded, and its limit ends with it."""
    context = contexts()[1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()):
            accepted, _ = server.accept()
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded, match="TLS handshake") as caught:
                Connection.over(accepted, after(0.3), tls=context, server_side=True)
            assert 0.3 <= time.monotonic() - began < 0.3 + LATE
            assert accepted.fileno() == -1
        assert caught.value.report.phase == "handshake"

        def client():
            with connect(server.getsockname(), after(5), **client_side()) as made:
                made.send_all(b"hi", after(5))
                made.receive_exactly(2, after(5))

        thread = threading.Thread(target=client)
        thread.start()
        accepted, _ = server.accept()
        accepted.settimeout(9)
        with Connection.over(accepted, after(5), tls=context, server_side=True) as made:
            assert made.socket.gettimeout() == 9
            assert made.report.outcome is DialOutcome.CONNECTED
            assert made.receive_exactly(2, after(5)) == b"hi"
            made.send_all(b"ho", after(5))
        thread.join()


def test_a_connection_over_what_is_connected_needs_no_handshake():
    with plain() as (ours, theirs), Connection.over(ours, after(5)) as made:
        assert made.report is None
        assert made.socket is ours
        theirs.sendall(b"hello")
        assert made.receive_some(1, after(5)) == b"h"
        assert made.receive_until(b"o", 10, after(5)) == b"ello"
        buffer = bytearray(2)
        theirs.sendall(b"ab")
        made.receive_into(buffer, after(5))
        assert buffer == b"ab"
    with pytest.raises(TypeError, match="sock must be a connected stream socket"):
        Connection.over("localhost", after(5))


def test_what_can_not_be_made_into_a_connection_is_closed():
    """K4: it owns the socket from the call on."""
    with plain() as (ours, _), pytest.raises(ssl.SSLError):
        Connection.over(ours, after(5), tls=contexts()[1])
    assert ours.fileno() == -1
    stop = StopSignal()
    stop.request()
    with plain() as (ours, _), pytest.raises(StopRequested):
        Connection.over(ours, after(5).stopping(stop), tls=contexts()[0], server_hostname="x")
    assert ours.fileno() == -1


def test_streams_that_exist_make_a_connection():
    async def main():
        done = asyncio.Event()

        async def serve(reader, writer):
            async with AsyncConnection.over(reader, writer, idle_timeout=5) as made:
                assert made.report is None
                assert made.usable
                await made.send_all(await made.receive_until(b"\n", 100, after(5)), after(5))
            assert writer.is_closing()
            done.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server, await aconnect(server.sockets[0].getsockname(), after(5)) as made:
            await made.send_all(b"hello\n", after(5))
            buffer = bytearray(3)
            await made.receive_into(buffer, after(5))
            assert buffer + await made.receive_some(10, after(5)) == b"hello\n"
            await done.wait()
            with pytest.raises(PeerClosed):
                await made.receive_exactly(1, after(5))

    asyncio.run(main())


# R10.


def test_while_a_receive_is_unfinished_nothing_is_sent(colour):
    """R10: the answer would not be to this."""
    with serving(answer=b"hel") as address:

        def blocking(made):
            with pytest.raises(DeadlineExceeded):
                made.receive_exactly(5, after(0.1))
            assert not made.usable
            with pytest.raises(Unfinished, match="resume or discard it before the next message"):
                made.send_all(b"x", after(1))
            assert made.receiver.discard() == b"hel"
            assert made.usable
            made.send_all(b"x", after(1))
            assert "not usable" not in repr(made)

        async def task(made):
            with pytest.raises(DeadlineExceeded):
                await made.receive_exactly(5, after(0.1))
            assert not made.usable
            with pytest.raises(Unfinished, match="resume or discard it before the next message"):
                await made.send_all(b"x", after(1))
            assert made.receiver.discard() == b"hel"
            assert made.usable
            await made.send_all(b"x", after(1))
            assert "not usable" not in repr(made)

        colour.run(task if colour.tasks else blocking, address, after(5))


def test_usable_says_whether_another_exchange_may_begin(colour):
    """R10: whole in both directions, nothing unread, not ended, not closed."""
    with serving(answer=b"hello", clients=2) as address:
        much = bytes(20_000_000)

        def blocking(made):
            made.receive_exactly(2, after(5))
            made.receive_exactly(3, after(5))
            assert made.usable
            with pytest.raises(DeadlineExceeded):
                made.send_all(much, after(0.1))
            assert not made.usable
            assert "not usable" in repr(made)
            made.close()
            made.close()
            assert not made.usable
            assert "closed" in repr(made)

        async def task(made):
            assert await made.receive_exactly(2, after(5)) == b"he"
            await made.receive_exactly(3, after(5))
            assert made.usable
            with pytest.raises(DeadlineExceeded):
                await made.send_all(much, after(0.1))
            assert not made.usable
            assert "not usable" in repr(made)
            made.close()
            made.close()
            assert not made.usable

        colour.run(task if colour.tasks else blocking, address, after(5))


def test_an_ended_stream_is_not_usable(colour):
    with serving(answer=b"", ends=True) as address:

        def blocking(made):
            with pytest.raises(PeerClosed):
                made.receive_exactly(1, after(5))
            assert not made.usable

        async def task(made):
            with pytest.raises(PeerClosed):
                await made.receive_exactly(1, after(5))
            assert not made.usable

        colour.run(task if colour.tasks else blocking, address, after(5))


def test_one_may_send_while_another_receives(colour):
    """R10: a receive that is under way is not unfinished."""

    def blocking(made):
        thread = threading.Thread(target=receive_in_vain, args=(made,))
        thread.start()
        until_held(made.receiver._turn)
        made.send_all(b"x", after(5))
        made.socket.shutdown(socket.SHUT_RD)
        thread.join()
        assert not made.usable

    async def task(made):
        receiving = asyncio.ensure_future(made.receive_exactly(5, after(30)))
        await until(lambda: made.receiver._inside)
        await made.send_all(b"x", after(5))
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        with pytest.raises(Unfinished):
            await made.send_all(b"x", after(5))

    with serving(answer=b"") as address:
        colour.run(task if colour.tasks else blocking, address, after(5))


def test_a_tls_session_serves_one_thread_in_both_directions():
    """Its state is one: a plain socket serves one in each."""
    for pair, busy in ((plain, False), (tls, True)):
        with pair() as (ours, theirs), Connection.over(ours, after(5)) as made:
            turn = made.receiver._turn
            thread = threading.Thread(target=lambda: made.receive_exactly(5, after(10)))
            thread.start()
            until_held(turn)
            with pytest.raises(Busy) if busy else contextlib.nullcontext():
                made.send_all(b"x", after(5))
            theirs.sendall(b"hello")
            thread.join()
            made.send_all(b"y", after(5))


def receive_in_vain(made):
    with pytest.raises(PeerClosed):
        made.receive_exactly(5, after(30))


def until_held(turn):
    give_up = time.monotonic() + 20
    while not turn.get("holder"):
        assert time.monotonic() < give_up
        threading.Event().wait(0.001)


# Ends between the steps, and the number of descriptors.


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("step", ["_connect", "_make_streams", "_shake"])
def test_what_was_opened_is_closed_when_a_stop_comes_between(colour, step, secure, monkeypatch):
    """K4: connected, or shaken hands, just when nobody wants it any more."""
    port = TaskDialPort if colour.tasks else DialPort
    if not hasattr(port, step) or (step == "_shake" and not secure):
        pytest.skip("is no step of this one")
    stop = StopSignal()
    do = getattr(port, step)

    def blocking(self, *args):
        done = do(self, *args)
        stop.request()
        return done

    async def task(self, *args):
        done = await do(self, *args)
        stop.request()
        return done

    monkeypatch.setattr(port, step, task if colour.tasks else blocking)
    with serving(tls=secure) as address:
        options = client_side() if secure else {}
        error = colour.fails(StopRequested, address, after(5).stopping(stop), **options)
        early = step != "_shake"
        assert error.report.phase == ("connect" if early else "handshake")


@pytest.mark.parametrize("said", [(0,), (errno.EINPROGRESS, errno.EALREADY)])
@pytest.mark.parametrize("refused", [0, 111])
def test_a_connection_that_takes_its_time_is_waited_for(refused, said):
    """K2: no loopback address does, and none is there at once: so a socket on paper."""
    answers = list(said)
    ours, theirs = socket.socketpair()

    class Slow:
        def connect_ex(self, address):
            return answers.pop(0)

        def fileno(self):
            return ours.fileno()

        def getsockopt(self, level, option):
            return refused

    with ours, theirs:
        port = DialPort(("10.0.0.1", 80))
        step = Dial(None, 10**9, time.monotonic_ns())
        fails = refused and len(said) > 1
        with pytest.raises(ConnectionRefusedError) if fails else contextlib.nullcontext():
            assert port._connect(Slow(), ("10.0.0.1", 80), step, after(5))


def test_a_handshake_waits_in_the_direction_that_it_asks_for():
    """R18."""

    class Shy(socket.socket):
        wants = 1

        def do_handshake(self):
            if self.wants:
                self.wants -= 1
                raise ssl.SSLWantWriteError

    class Context:
        def wrap_socket(self, sock, **options):
            return Shy(sock.family, sock.type, sock.proto, fileno=sock.detach())

    with plain() as (ours, _), Connection.over(ours, after(5), tls=Context()) as made:
        assert made.socket.wants == 0
        assert made.report.outcome is DialOutcome.CONNECTED


@pytest.mark.parametrize("phase", ["lookup", "connect", "handshake"])
def test_a_cancel_closes_what_was_opened_in_every_phase(phase):
    """K4."""
    gate, entered = threading.Event(), threading.Event()

    def resolver(host, port):
        entered.set()
        gate.wait(30)
        return []

    async def main(address, options):
        before = 0 if phase == "lookup" else dialled(address)
        task = asyncio.ensure_future(aconnect(address, after(30), **options))
        if phase == "lookup":
            await until(entered.is_set)
        else:
            await until(lambda: dialled(address) > before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with contextlib.ExitStack() as stack:
        if phase == "lookup":
            address, options = ("db", 80), {"resolver": resolver}
            stack.callback(gate.set)
        elif phase == "connect":
            address, options = stack.enter_context(black_hole()), {}
        else:
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address, options = server.getsockname(), client_side()
        asyncio.run(main(address, options))


def dialled(address):
    """Return how many sockets are on their way to this port, or there."""
    port = f":{address[1]:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[2].endswith(port) for line in lines)


def test_descriptors_above_a_thousand_are_fine(colour):
    """A10: nothing here is made of select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(1100):
                stack.enter_context(open(os.devnull))
            with serving(tls=True, clients=2) as (_, port):
                options = {"resolver": resolving(("127.0.0.1", port)), "tls": contexts()[0]}

                def number(made):
                    if colour.tasks:
                        return made._writer.get_extra_info("socket").fileno()
                    return made.socket.fileno()

                assert colour.run(number, ("localhost", port), after(5), **options) > 1023
            with black_hole() as address:
                colour.fails(DeadlineExceeded, address, after(0.1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Real networks, of the test's own.


def needs_namespaces():
    if not (shutil.which("unshare") and shutil.which("ip")):
        return False
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [False, True])
def test_unreachable_and_silent_addresses_of_a_real_network(tasks):
    """A14 where packets really go nowhere: no route, a route that refuses, and a silent net."""
    if not needs_namespaces():
        assert "CI" not in os.environ, "needs unshare and ip"
        pytest.skip("needs network namespaces")
    script = dedent(
        """
        import asyncio, socket, subprocess, sys, threading, time
        from timebounds import Deadline, DeadlineExceeded, aconnect, connect, dial_report

        def ip(words):
            subprocess.run(["ip", *words.split()], check=True)

        ip("link set lo up")
        ip("link add silent type veth peer name nobody")
        ip("address add 10.77.0.1/24 dev silent")
        ip("link set silent up")
        ip("link set nobody up")
        ip("neighbour add 10.77.0.9 lladdr 02:00:00:00:00:09 dev silent nud permanent")
        ip("route add unreachable 10.78.0.0/24")
        ip("route add prohibit 10.79.0.0/24")
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]

        def dial(seconds, *hosts):
            def resolver(host, port):
                return [(2, 1, 6, "", (each, port)) for each in hosts]
            args = ("db", port), Deadline.after(seconds)
            if TASKS:
                async def main():
                    async with await aconnect(*args, resolver=resolver) as made:
                        return made.report
                return asyncio.run(main())
            with connect(*args, resolver=resolver) as made:
                return made.report

        def show(report):
            for each in report.attempts:
                print(each.address[0], each.ended, each.error)

        show(dial(3, "192.0.2.1", "10.77.0.9", "10.78.0.9", "10.79.0.9", "127.0.0.1"))
        began = time.monotonic()
        try:
            dial(0.4, "10.77.0.9")
        except DeadlineExceeded as error:
            late = time.monotonic() - began - 0.4
            print("never early", late >= 0, "in time", late < LATE)
        try:
            dial(3, "192.0.2.1", "10.79.0.9")
        except OSError as error:
            print(type(error).__name__, dial_report(error).outcome)
        """
    )
    script = script.replace("TASKS", str(tasks)).replace("LATE", str(LATE))
    ended = subprocess.run(
        ["unshare", "--net", sys.executable, "-X", "dev", "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout.splitlines() == [
        "192.0.2.1 failed OSError: [Errno 101] Network is unreachable",
        "10.77.0.9 timed out None",
        "10.78.0.9 failed OSError: [Errno 113] No route to host",
        "10.79.0.9 failed PermissionError: [Errno 13] Permission denied",
        "127.0.0.1 connected None",
        "never early True in time True",
        "PermissionError connect_failed",
    ], ended.stderr
