"""W1: the recipes for redis-py, websocket-client and psycopg, with real servers."""

from __future__ import annotations

import base64
import hashlib
import runpy
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from http_peers import Server, expiring
from lines import contexts
from peers import black_hole
from servers import postgres_server, program, redis_server

from children import ROOT
from timebounds import Deadline, StopRequested, StopSignal, bounding
from timebounds.testing import DripServer, Misbehaviour

pytest.importorskip("psycopg", reason="no clients here: `run.py interop` has them")

import psycopg
import redis
import websocket

pytestmark = pytest.mark.real

FOLDER = ROOT / "examples" / "clients"


def test_a_missing_server_skips_here_and_fails_in_ci(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception):
        program("no such server")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception):
        program("no such server")


def recipe(name):
    return SimpleNamespace(**runpy.run_path(str(FOLDER / f"{name}_under_a_deadline.py")))


def shown(name, *arguments):
    """What the example prints, run as a reader runs it."""
    command = [sys.executable, "-W", "error", str(FOLDER / f"{name}_under_a_deadline.py")]
    env = {"PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=50, env=env, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


# ---------------------------------------------------------------- redis-py


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as port:
        yield port


def test_the_redis_example_runs(redis_port):
    said = shown("redis", str(redis_port))
    assert said[0] == said[2] == "b'hello'"
    assert "the deadline of 0.2 s" in said[1]


def test_redis_commands_obey_the_deadline_and_the_pool_goes_on(redis_port):
    """A08: a command that blocks is ended on time; what it struck is not used again."""
    with recipe("redis").bounded_redis("127.0.0.1", redis_port) as client:
        for _ in range(2):
            with bounding(Deadline.after(30)):
                client.set("a", "b")
                assert client.get("a") == b"b"
            with expiring(0.3):
                client.blpop("an empty list")
        with expiring(0.3), client.pubsub() as listener:
            listener.subscribe("nothing")
            while listener.get_message(timeout=None):
                pass
        assert client.get("a") == b"b"


@pytest.mark.parametrize("body", [b"$20\r\nbyte by byte, for long\r\n", b"+" + bytes(64)])
def test_a_redis_server_that_drips_ends_with_the_budget(body):
    """W3."""
    with (
        DripServer(body=body, interval=0.1) as peer,
        recipe("redis").bounded_redis(*peer.address) as client,
        expiring(),
    ):
        client.get("a")


def test_connecting_to_redis_is_bounded():
    """K1."""
    with (
        black_hole() as address,
        recipe("redis").bounded_redis(*address) as client,
        expiring(0.3, match="in the connect"),
    ):
        client.get("a")
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        recipe("redis").bounded_redis(*peer.address) as client,
        expiring(0.3),
    ):
        client.get("a")


def test_redis_without_a_block_is_as_ever(redis_port):
    with recipe("redis").bounded_redis("127.0.0.1", redis_port) as client:
        assert client.ping()
        assert client.blpop("an empty list", timeout=0.1) is None


# ---------------------------------------------------------------- websocket-client

# The protocol's own constant.
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def echo(sock):
    """Upgrade, send each message back, and end when the client says so."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += sock.recv(4096)
    fields = dict(line.split(b": ") for line in head.strip().split(b"\r\n")[1:])
    accept = base64.b64encode(hashlib.sha1(fields[b"Sec-WebSocket-Key"] + MAGIC).digest())
    sock.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )
    while len(frame := sock.recv(4096)) > 6:
        size = frame[1] & 127
        mask, data = frame[2:6], frame[6 : 6 + size]
        plain = bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))
        if plain != b"say nothing":
            sock.sendall(frame[:1] + bytes([size]) + plain)


def test_the_websocket_example_runs():
    with Server(echo) as server:
        assert shown("websocket", f"ws://127.0.0.1:{server.port}/") == ["hello"]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_messages_obey_the_deadline(tls):
    """W1: several, and then one that is never answered."""
    open_it = recipe("websocket").bounded_websocket
    with Server(echo, tls=tls) as server:
        url = f"ws{'s' * tls}://localhost:{server.port}/"
        with bounding(Deadline.after(30)):
            ws = open_it(url, contexts()[0])
            for text in ("one", "two"):
                ws.send(text)
                assert ws.recv() == text
        with expiring(0.3) as caught:
            ws.send("say nothing")
            ws.recv()
        assert isinstance(caught.value.__cause__, websocket.WebSocketTimeoutException)
        ws.shutdown()


@pytest.mark.parametrize("mode", [Misbehaviour.DRIP_BODY, Misbehaviour.SILENT])
def test_an_upgrade_that_is_not_answered_is_bounded(mode):
    """W3."""
    body = b"HTTP/1.1 101 Switching Protocols\r\n" * 2
    with DripServer(mode, body=body, interval=0.1) as peer, expiring():
        recipe("websocket").bounded_websocket(f"ws://127.0.0.1:{peer.address[1]}/")


def test_connecting_a_websocket_is_bounded():
    """K1, A17."""
    open_it = recipe("websocket").bounded_websocket
    with black_hole() as (host, port), expiring(0.3, match="in the connect"):
        open_it(f"ws://{host}:{port}/")
    with DripServer(Misbehaviour.SILENT) as peer, expiring(0.3, match="in the handshake"):
        open_it(f"wss://localhost:{peer.address[1]}/", contexts()[0])


# ---------------------------------------------------------------- psycopg


@pytest.fixture(scope="module")
def database():
    with postgres_server() as conninfo:
        yield conninfo


@pytest.fixture
def connected(database):
    def connect():
        kind = recipe("psycopg").BoundedConnection
        return kind.connect(database, connect_timeout=5, autocommit=True)

    return connect


def test_the_psycopg_example_runs(database):
    said = shown("psycopg", database)
    assert said[0] == "(1,)"
    assert "statement" in said[1]


def test_statements_obey_the_deadline(connected):
    """A08: and one without a block has none of before."""
    with connected() as conn:
        with bounding(Deadline.after(30)):
            assert conn.execute("SELECT 1").fetchone() == (1,)
        with bounding(Deadline.never()):
            assert conn.execute("SELECT pg_sleep(0.01), 1").fetchone()[1] == 1
        assert conn.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_a_statement_that_takes_long_is_ended(connected):
    """W3: by the server, which stops working, or by the client, whichever sees it first."""
    with connected() as conn:
        began = time.monotonic()
        with (
            pytest.raises((psycopg.errors.QueryCanceled, TimeoutError)),
            bounding(Deadline.after(0.3)),
        ):
            conn.execute("SELECT pg_sleep(30)")
        assert 0.25 <= time.monotonic() - began < 0.7


def test_a_server_that_says_nothing_is_left_and_its_connection_closed(connected):
    """W3: a cursor's statement, of which the server was told no limit."""
    with connected() as conn:
        with expiring(0.3, match="statement"), conn.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")
        assert conn.closed


def test_a_stop_ends_a_statement(connected):
    """D9: when psycopg next looks."""
    stop = StopSignal()
    timer = threading.Timer(0.1, stop.request, ("enough",))
    with connected() as conn, conn.cursor() as cursor:
        timer.start()
        with (
            pytest.raises(StopRequested, match="enough"),
            bounding(Deadline.after(30, stop=stop)),
        ):
            cursor.execute("SELECT pg_sleep(30)")
        timer.join()
        assert conn.closed


def test_the_names_of_the_clients_errors_are_theirs():
    """W1: what is raised inside the block."""
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        recipe("redis").bounded_redis(*peer.address) as client,
        bounding(Deadline.after(0.1)),
        pytest.raises(redis.TimeoutError),
    ):
        client.get("a")
