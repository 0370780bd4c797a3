"""K4: an exception at any bytecode of a connect, a cancel in any turn of one, leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import ssl
import threading
import time
import warnings

import anywhere
import pytest
from lines import contexts
from offloads import turns, until
from peers import resolving

import timebounds.blocking.connection
import timebounds.blocking.dial_port
import timebounds.bounds.lookup
import timebounds.policies.dialing
import timebounds.policies.plan
from timebounds import Deadline, aconnect, connect

pytestmark = [pytest.mark.slow, pytest.mark.real]

CODES = anywhere.codes(
    timebounds.blocking.connection,
    timebounds.blocking.dial_port,
    timebounds.policies.dialing,
    timebounds.policies.plan,
)


def descriptors():
    # Without the one by which they are listed.
    folder = "/proc/self/fd/"
    return {each for each in os.listdir(folder) if os.path.lexists(folder + each)}


@pytest.mark.parametrize("case", ["one address", "a refused one before"])
def test_nothing_is_left_by_an_exception_at_any_bytecode(case):
    """K4. Only what strikes the clean-up of an `except` itself is left to the collector."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        healthy = server.getsockname()
        with socket.create_server(("127.0.0.1", 0)) as gone:
            refused = gone.getsockname()
        options = {}
        address = healthy
        if case != "one address":
            address = ("db", 1)
            options["resolver"] = resolving(refused, healthy)

        def scenario():
            with connect(address, Deadline.after(20), **options) as made:
                return made.usable

        assert scenario()
        n, done, pause = 0, None, threading.Event()
        with warnings.catch_warnings():
            # Of a socket that was made and had not reached its variable.
            warnings.simplefilter("ignore", ResourceWarning)
            while not done:
                n += 1
                before = descriptors()
                done, _ = anywhere.run(scenario, CODES, n)
                give_up = time.monotonic() + 5
                # A lookup's thread may hold what woke us a moment longer.
                while (left := descriptors() - before) and time.monotonic() < give_up:
                    pause.wait(0.0005)
                    gc.collect()
                assert not left, (n, left)
        assert n > 200


@pytest.mark.parametrize("tasks", [False, True])
@pytest.mark.parametrize("fails", ["lookup", "connect", "expired"])
def test_a_failure_holds_nothing_until_the_collector_comes(tasks, fails):
    """K4: neither the error nor its frames hold what the lookup was waited for with."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        refused = gone.getsockname()

    def resolver(host, port):
        if fails == "lookup":
            raise socket.gaierror(-2, "unknown")
        return resolving(refused)(host, port)

    def fail():
        deadline = Deadline.after(0 if fails == "expired" else 20)
        with pytest.raises(OSError, match=r".") as caught:
            if tasks:
                asyncio.run(aconnect(("db", 80), deadline, resolver=resolver))
            else:
                connect(("db", 80), deadline, resolver=resolver)
        del caught

    fail()
    gc.collect()
    before = descriptors()
    gc.disable()
    try:
        for _ in range(10):
            fail()
        give_up = time.monotonic() + 5
        while len(descriptors()) > len(before) + 2 and time.monotonic() < give_up:
            threading.Event().wait(0.001)
        # One lookup's thread may not have let go yet.
        assert len(descriptors()) <= len(before) + 2
    finally:
        gc.enable()


@pytest.mark.parametrize("secure", [False, True])
def test_nothing_is_left_by_a_cancel_in_any_turn_of_the_loop(secure):
    """K4, B2."""
    client, server_side = contexts()
    options = {"tls": client, "server_hostname": "localhost"} if secure else {}

    async def attempt(address, n):
        """Cancel after so many turns; say whether that was too late."""
        before = descriptors()
        task = asyncio.ensure_future(aconnect(address, Deadline.after(20), **options))
        await turns(n)
        done = task.done()
        task.cancel()
        try:
            async with await task:
                pass
        except asyncio.CancelledError:
            assert not done
        await turns(3)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        # The server's own one goes when it has seen ours go.
        await until(lambda: descriptors() <= before)
        return done

    async def main(address):
        n = 0
        while not await attempt(address, n):
            n += 1
        return n

    def serve(server):
        while True:
            try:
                accepted, _ = server.accept()
            except OSError:
                return
            with accepted:
                accepted.settimeout(10)
                try:
                    if secure:
                        accepted = server_side.wrap_socket(accepted, server_side=True)
                    with accepted:
                        accepted.recv(1)
                except (OSError, ssl.SSLError):
                    pass

    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        thread = threading.Thread(target=serve, args=[server])
        thread.start()
        try:
            assert asyncio.run(main(server.getsockname())) > 3
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
