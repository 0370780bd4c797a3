"""Peers for tests of HTTP clients: a healthy server that is a proxy too, TLS in front of others."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

import pytest
from lines import contexts

from timebounds import Deadline, DeadlineExceeded, bounding
from timebounds.testing import DripServer, Misbehaviour

MODES = [Misbehaviour.DRIP_BODY, Misbehaviour.DRIP_HEADER, Misbehaviour.STALL]
BODY = b"forty bytes, one byte every 0.1 seconds."
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(BODY)
# What the contracts allow (W3), on a machine that does other things as well.
BUDGET, LATE = 0.5, 0.4


@contextlib.contextmanager
def on_time(budget=BUDGET, late=LATE):
    """The block ends at the end of its budget: never early, and within what is allowed."""
    began = time.monotonic()
    yield
    lasted = time.monotonic() - began
    assert budget <= lasted < budget + late, lasted


@contextlib.contextmanager
def expiring(budget=BUDGET, match=None):
    """The block is bounded, and ends by its deadline on time; whatever the client says to it."""
    with on_time(budget), pytest.raises(DeadlineExceeded, match=match) as caught:  # noqa: SIM117
        with bounding(Deadline.after(budget)):
            yield caught


class Server:
    """Serve each client in a thread of its own by `handle(sock)`, until the end of the block."""

    def __init__(self, handle, *, tls=False):
        self._handle = handle
        self._context = contexts()[1] if tls else None
        self.connections = 0
        self._open = []
        self._threads = [threading.Thread(target=self._accept)]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.port = self.address[1]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *exc_info):
        with self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._threads[0].join(30)
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            # A twin, to end with: TLS takes the descriptor over.
            self._open.append(sock.dup())
            thread = threading.Thread(target=self._serve, args=(sock, self._open[-1]))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock, twin):
        with twin, contextlib.suppress(OSError), sock:
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True)
            with sock:
                self._handle(sock)


class Web(Server):
    """A healthy server with HTTP/1.1 and keep-alive, and a proxy: for tunnels and for others.

    /            "fine"
    /slow        "a", and "b" when `gate` is opened
    /late        the answer when `gate` is opened
    /busy        503, to be tried again in 30 s
    /moved       302 to /
    /endless     chunks without end
    """

    def __init__(self, *, tls=False):
        super().__init__(self._talk, tls=tls)
        self.gate = threading.Event()
        self.requests = []

    def __exit__(self, *exc_info):
        self.gate.set()
        super().__exit__(*exc_info)

    def url(self, path="/", *, host="127.0.0.1"):
        return f"http{'s' * (self._context is not None)}://{host}:{self.port}{path}"

    def _talk(self, sock):
        held = b""
        while True:
            while b"\r\n\r\n" not in held:
                data = sock.recv(65_536)
                if not data:
                    return
                held += data
            head, _, held = held.partition(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            self.requests.append(f"{method} {target}")
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                sock.sendall(b"HTTP/1.1 200 tunnel\r\n\r\n")
                relay(sock, (host, int(port)))
                return
            length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            wanted = int(length[0].partition(b":")[2]) if length else 0
            while len(held) < wanted:
                held += sock.recv(65_536)
            held = held[wanted:]
            if "://" in target:
                target = "/" + target.partition("://")[2].partition("/")[2]
            self._answer(sock, target)

    def _answer(self, sock, path):
        if path == "/slow":
            sock.sendall(answer(b"ab")[:-1])
            self.gate.wait(30)
            sock.sendall(b"b")
        elif path == "/late":
            self.gate.wait(30)
            sock.sendall(answer(b"late"))
        elif path == "/busy":
            sock.sendall(answer(b"", "503 Busy", "Retry-After: 30"))
        elif path == "/moved":
            sock.sendall(answer(b"", "302 Moved", "Location: /"))
        elif path == "/endless":
            sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not self.gate.wait(0.05):
                sock.sendall(b"1\r\nx\r\n")
        else:
            sock.sendall(answer(b"fine"))


def answer(body, status="200 OK", *more):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


def relay(near, address):
    """Copy both ways until one of them ends."""
    with socket.create_connection(address, timeout=10) as far:
        far.settimeout(None)
        while True:
            pending = hasattr(near, "pending") and near.pending()
            ready = [near] if pending else select.select([near, far], [], [], 30)[0]
            for sock in ready:
                data = sock.recv(65_536)
                if not data:
                    return
                (far if sock is near else near).sendall(data)
            if not ready:
                return


@contextlib.contextmanager
def dripping(mode, *, tls=False, head=HEAD, body=BODY):
    """A DripServer that speaks HTTP, behind TLS where that is asked; give scheme and address."""
    with DripServer(mode, head=head, body=body, interval=0.1) as peer:
        if not tls:
            yield f"http://127.0.0.1:{peer.address[1]}/"
            return
        with Server(lambda sock: relay(sock, peer.address), tls=True) as front:
            yield f"https://localhost:{front.port}/"


@contextlib.contextmanager
def opening(gate, seconds):
    """Open the gate so many real seconds from now."""
    timer = threading.Timer(seconds, gate.set)
    timer.start()
    try:
        yield
    finally:
        gate.set()
        timer.cancel()
        timer.join()


def settled(condition, seconds=20.0):
    """Wait until the condition holds: for what the system does between two sockets."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, f"{condition} did not become true"
        threading.Event().wait(0.001)


@contextlib.contextmanager
def stuck_lookup(monkeypatch, name="stuck.test"):
    """Look `name` up for ever; give a URL of it."""
    real, gate = socket.getaddrinfo, threading.Event()

    def look_up(host, *args, **kwargs):
        if host != name:
            return real(host, *args, **kwargs)
        if kwargs.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no number")
        gate.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "too late")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        try:
            yield f"http://{name}/"
        finally:
            gate.set()
