"""Readers of 16-byte messages: this library's, one written by hand, and those of other libraries.

Run as a script, it reads `READS` messages with one of them between two marks in a system call
trace; run with --send, it is the other end of a connection and sends what it is asked for.
"""

from __future__ import annotations

import importlib
import os
import socket
import struct
import sys
import time
from types import SimpleNamespace

from timebounds import BudgetedReceiver, Deadline

SIZE = 16
READS = 1_000
IDLE = 5.0
TOTAL = 600.0
BEGIN, END = "/mark-begin", "/mark-end"
_BLOCK = bytes(1 << 20)


def preload(sender):
    """Put READS messages into the buffer of a socket pair, in one piece."""
    sender.sendall(bytes(SIZE * READS))


def budgeted(sock):
    receiver = BudgetedReceiver(sock, idle_timeout=IDLE)
    deadline = Deadline.after(TOTAL)
    return lambda: receiver.receive_exactly(SIZE, deadline)


def budgeted_with_timeout(sock):
    sock.settimeout(IDLE)
    return budgeted(sock)


def by_hand(sock):
    end = time.monotonic() + TOTAL
    return lambda: _by_hand(sock, SIZE, IDLE, end)


def _by_hand(sock, size, idle, end):
    data = b""
    while len(data) < size:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(min(idle, left))
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def bare(sock):
    return lambda: sock.recv(SIZE)


def buffered_file(sock):
    sock.settimeout(IDLE)
    reader = sock.makefile("rb")
    return lambda: reader.read(SIZE)


def pymongo(sock):
    """Its `receive_data`, with a connection that offers what this function asks of one."""
    layer = importlib.import_module("pymongo.network_layer")
    interface = layer.NetworkingInterface(sock)
    interface.settimeout(IDLE)
    connection = SimpleNamespace(
        conn=interface,
        set_conn_timeout=interface.settimeout,
        cancel_context=SimpleNamespace(cancelled=False),
        is_sdam=False,
    )
    end = time.monotonic() + TOTAL
    return lambda: layer.receive_data(connection, SIZE, end)


def dnspython(sock):
    """Its `_net_read`, on a non-blocking socket, as it uses it.

    It looks at the clock only when it has to wait: while data is ready no limit is seen to.
    """
    query = importlib.import_module("dns.query")
    sock.setblocking(False)
    # It counts on the wall clock.
    end = time.time() + TOTAL
    return lambda: query._net_read(sock, SIZE, end)  # noqa: SLF001


READERS = {
    "BudgetedReceiver": budgeted,
    "the same, timeout set": budgeted_with_timeout,
    "by hand": by_hand,
    "bare recv, no limit": bare,
    "makefile, buffered": buffered_file,
    "pymongo receive_data": pymongo,
    "dnspython _net_read": dnspython,
}


def available():
    """Return the readers that can be built here, and the names of those that can not."""
    ready, missing = {}, []
    for name, build in READERS.items():
        one, other = socket.socketpair()
        with one, other:
            try:
                build(one)
            except (ImportError, AttributeError):
                missing.append(name)
            else:
                ready[name] = build
    return ready, missing


def read_between_marks(name):
    receiving, sending = socket.socketpair()
    with receiving, sending:
        read = READERS[name](receiving)
        # What the first read alone does is not what a read does.
        sending.sendall(bytes(SIZE))
        read()
        preload(sending)
        os.access(BEGIN, os.F_OK)
        for _ in range(READS):
            read()
        os.access(END, os.F_OK)


def send_on_request(descriptor):
    """Answer each request, a number of bytes, with so many bytes."""
    with socket.socket(fileno=descriptor) as sock:
        while request := sock.recv(8, socket.MSG_WAITALL):
            (left,) = struct.unpack("!Q", request)
            while left:
                left -= sock.send(_BLOCK[: min(left, len(_BLOCK))])


if __name__ == "__main__":
    if sys.argv[1] == "--send":
        send_on_request(int(sys.argv[2]))
    else:
        read_between_marks(sys.argv[1])
