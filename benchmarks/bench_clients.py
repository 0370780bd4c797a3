"""HTTP clients before and after: how long a budget of 0.5 s lasts, and what the drop-in costs.

Run in the interop environment it shows urllib3, requests and httpx too.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request

from harness import Claims, Rounds, begin, table

from timebounds import Deadline, DeadlineExceeded, bounding
from timebounds.interop.http_client import DeadlineHTTPConnection, DeadlineHTTPHandler
from timebounds.testing import DripServer, Misbehaviour

BUDGET, ALLOWED = 0.5, 0.65
BODY = b"one byte every 0.1 s"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
MODES = (Misbehaviour.DRIP_BODY, Misbehaviour.DRIP_HEADER, Misbehaviour.STALL)
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n" + bytes(100)
FAR = 600.0


# ---------------------------------------------------------------- the clients


@contextlib.contextmanager
def by_http_client(port, *, drop_in, timeout):
    kind = DeadlineHTTPConnection if drop_in else http.client.HTTPConnection
    with contextlib.closing(kind("127.0.0.1", port, timeout=timeout)) as conn:

        def get():
            conn.request("GET", "/")
            return conn.getresponse().read()

        yield get


@contextlib.contextmanager
def by_urllib(port, *, drop_in, timeout):
    own = [DeadlineHTTPHandler()] if drop_in else []
    opener = urllib.request.build_opener(*own, urllib.request.ProxyHandler({}))

    def get():
        with opener.open(f"http://127.0.0.1:{port}/", timeout=timeout) as response:
            return response.read()

    yield get


@contextlib.contextmanager
def by_urllib3(port, *, drop_in, timeout):
    import urllib3  # noqa: PLC0415

    from timebounds.interop.urllib3 import DeadlinePoolManager  # noqa: PLC0415

    with (DeadlinePoolManager if drop_in else urllib3.PoolManager)(timeout=timeout) as manager:
        yield lambda: manager.request("GET", f"http://127.0.0.1:{port}/").data


@contextlib.contextmanager
def by_requests(port, *, drop_in, timeout):
    import requests  # noqa: PLC0415

    from timebounds.interop.requests import DeadlineAdapter  # noqa: PLC0415

    with requests.Session() as session:
        session.trust_env = False
        if drop_in:
            session.mount("http://", DeadlineAdapter())
        yield lambda: session.get(f"http://127.0.0.1:{port}/", timeout=timeout).content


@contextlib.contextmanager
def by_httpx(port, *, drop_in, timeout):
    import httpx  # noqa: PLC0415

    from timebounds.interop.httpx import DeadlineTransport  # noqa: PLC0415

    transport = DeadlineTransport() if drop_in else None
    with httpx.Client(transport=transport, timeout=timeout, trust_env=False) as client:
        yield lambda: client.get(f"http://127.0.0.1:{port}/").content


OTHERS = {"urllib3": by_urllib3, "requests": by_requests, "httpx": by_httpx}
HERE = {name: by for name, by in OTHERS.items() if importlib.util.find_spec(name) is not None}
CLIENTS = {"http.client": by_http_client, "urllib.request": by_urllib, **HERE}


# ---------------------------------------------------------------- how long a budget lasts


def lasted(by, mode, *, drop_in):
    """Return the seconds until the client came back, and with what."""
    with (
        DripServer(mode, head=HEAD, body=BODY, interval=0.1) as peer,
        by(peer.address[1], drop_in=drop_in, timeout=BUDGET) as get,
    ):
        began = time.monotonic()
        try:
            if drop_in:
                with bounding(Deadline.after(BUDGET)):
                    get()
            else:
                get()
            ended = "success"
        except DeadlineExceeded:
            ended = "DeadlineExceeded"
        except Exception as error:  # noqa: BLE001  (its name is what is looked at)
            ended = type(error).__name__
        return time.monotonic() - began, ended


def compare_budgets(claims, runs):
    rows = []
    worst = {}
    for name, by in CLIENTS.items():
        for mode in MODES:
            before, said = lasted(by, mode, drop_in=False)
            tries = [lasted(by, mode, drop_in=True) for _ in range(runs)]
            after, ended = min(tries)
            ours = all(each == "DeadlineExceeded" for _, each in tries)
            early = min(each for each, _ in tries) < BUDGET
            worst[name] = max(worst.get(name, 0.0), after if ours and not early else FAR)
            rows.append((name, str(mode), f"{before:.2f} {said}", f"{after:.3f} {ended}"))
    head = ("", "the server", "plain: s, and what it said", f"drop-in: s, best of {runs}")
    table(f"A budget of {BUDGET} s", head, rows)
    for name, seconds in worst.items():
        claims.at_most(f"{name} ends with its budget, s", seconds, ALLOWED)


# ---------------------------------------------------------------- what it costs


def serve():
    """Answer each client at once, for ever: run in a process of its own."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=answer, args=(sock,), daemon=True).start()


def answer(sock):
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sock:
        held = b""
        while data := sock.recv(65_536):
            held += data
            if held.endswith(b"\r\n\r\n"):
                sock.sendall(REPLY)
                held = b""


@contextlib.contextmanager
def serving():
    """Each side has a processor of its own: where the system puts them weighs more than code."""
    command = [sys.executable, __file__, "--serve"]
    mine = os.sched_getaffinity(0)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        os.sched_setaffinity(0, {min(mine)})
        try:
            yield int(process.stdout.readline())
        finally:
            os.sched_setaffinity(0, mine)
            process.kill()


def compare_rates(claims, requests, rounds):
    """Compare requests a second over one kept connection, plain and drop-in in turn."""
    with serving() as port, contextlib.ExitStack() as stack:
        for name in ("http.client", "urllib3", "requests", "httpx"):
            if name not in CLIENTS:
                claims.leave_open(f"{name} is not here: `run.py interop` has it")
                continue
            gets = {
                drop_in: stack.enter_context(CLIENTS[name](port, drop_in=drop_in, timeout=5.0))
                for drop_in in (False, True)
            }
            rates = Rounds(
                {
                    "plain": lambda get=gets[False]: rate(get, requests),
                    "drop-in": lambda get=gets[True]: bounded_rate(get, requests),
                    "drop-in, unbounded": lambda get=gets[True]: rate(get, requests),
                },
                rounds,
            )
            rates.table(f"{name}, one kept connection", "requests/s", "plain")
            if name in ("http.client", "urllib3"):
                claims.at_least(
                    f"{name}: its rate with the drop-in", rates.ratio("drop-in", "plain"), 0.95
                )


def rate(get, requests):
    began = time.perf_counter()
    for _ in range(requests):
        get()
    return requests / (time.perf_counter() - began)


def bounded_rate(get, requests):
    began = time.perf_counter()
    for _ in range(requests):
        with bounding(Deadline.after(5.0)):
            get()
    return requests / (time.perf_counter() - began)


def main():
    quick = begin("HTTP clients under one deadline")
    for name in HERE:
        print(f"  {name} {importlib.metadata.version(name)}")
    claims = Claims()
    compare_rates(claims, 50 if quick else 500, 2 if quick else 25)
    compare_budgets(claims, 1 if quick else 3)
    claims.end()


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
