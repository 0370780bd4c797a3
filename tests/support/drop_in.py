"""What the tests of the drop-in socket share: ends, servers, and each call that may wait."""

from __future__ import annotations

import io
import socket
import ssl
from contextlib import contextmanager

import pytest
from lines import tls

from timebounds import (
    DeadlineSocket,
)

# More than the buffers of a connection hold.
MUCH = bytes(16_777_216)


@contextmanager
def tls_pair(deadline=None):
    with tls() as (ours, theirs), DeadlineSocket(ours, deadline) as sock:
        yield sock, theirs


@contextmanager
def listening(family=socket.AF_INET, address=("127.0.0.1", 0), **options):
    with socket.socket(family) as server:
        server.bind(address)
        server.listen(*options.values())
        yield server


def fill(sock):
    """Send until no more is taken."""
    own = sock.gettimeout()
    sock.settimeout(0)
    with pytest.raises((BlockingIOError, ssl.SSLWantWriteError)):
        while True:
            sock.send(bytes(65_536))
    sock.settimeout(own)


@contextmanager
def unconnected(deadline, family=socket.AF_INET):
    with DeadlineSocket(socket.socket(family), deadline) as sock:
        yield sock


def unborn(context):
    """Return a TLS socket that is not connected yet."""
    return context.wrap_socket(socket.socket(), server_hostname="localhost")


RECEIVING = {
    "recv": lambda sock: sock.recv(10),
    "recv_into": lambda sock: sock.recv_into(bytearray(10)),
    "recvfrom": lambda sock: sock.recvfrom(10),
    "recvfrom_into": lambda sock: sock.recvfrom_into(bytearray(10)),
    "recvmsg": lambda sock: sock.recvmsg(10),
    "recvmsg_into": lambda sock: sock.recvmsg_into(iter([bytearray(10)])),
    "read of a file": lambda sock: sock.makefile("rb").read(1),
    "line of a file": lambda sock: sock.makefile("r").readline(),
    "unbuffered": lambda sock: sock.makefile("rb", 0).read(1),
}
SENDING = {
    "send": lambda sock: sock.send(b"x"),
    "sendall": lambda sock: sock.sendall(b"x"),
    "sendmsg": lambda sock: sock.sendmsg(iter([b"x"]), iter([])),
    "sendfile": lambda sock: sock.sendfile(io.BytesIO(b"x")),
    "write of a file": lambda sock: sock.makefile("wb", 0).write(b"x"),
}
TLS_READING = {
    name: RECEIVING[name]
    for name in ("recv", "recv_into", "read of a file", "line of a file", "unbuffered")
} | {"read": lambda sock: sock.read(10), "read into": lambda sock: sock.read(10, bytearray(10))}
TLS_WRITING = {
    name: SENDING[name] for name in ("send", "sendall", "sendfile", "write of a file")
} | {"write": lambda sock: sock.write(b"x")}
