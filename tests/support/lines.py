"""Real connections for tests: plain and TLS pairs, and a peer that drips."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path

import timebounds.demo

CERTIFICATE = Path(timebounds.demo.__file__).with_name("localhost.pem")


@contextlib.contextmanager
def plain():
    """Two connected TCP sockets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


def contexts():
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATE)
    client = ssl.create_default_context(cafile=str(CERTIFICATE))
    return client, server


@contextlib.contextmanager
def tls(version=None):
    """Two connected TLS sockets after their handshake, over a real TCP connection."""
    client, server = contexts()
    if version is not None:
        client.maximum_version = version
    with plain() as (ours, theirs):
        peers = []
        thread = threading.Thread(
            target=lambda: peers.append(server.wrap_socket(theirs, server_side=True))
        )
        thread.start()
        wrapped = client.wrap_socket(ours, server_hostname="localhost")
        thread.join()
        with wrapped, peers[0]:
            yield wrapped, peers[0]


@contextlib.contextmanager
def running(fn):
    """Run `fn(stop)` in a thread for the length of the block."""
    stop = threading.Event()
    errors = []

    def run():
        try:
            fn(stop)
        except OSError:
            pass  # the other side has gone, as it may
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    assert not errors, errors


@contextlib.contextmanager
def dripping(sock, data, gap):
    """Send `data` byte by byte, one each `gap` seconds, for the length of the block."""

    def drip(stop):
        for byte in data:
            if stop.wait(gap):
                return
            sock.sendall(bytes([byte]))

    with running(drip):
        yield
