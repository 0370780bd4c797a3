"""What a bounded send costs beside sendall, and a bounded connect beside create_connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import time

from harness import Claims, Rounds, begin

from timebounds import BudgetedSender, Deadline, connect

MIB = 1 << 20
# The other process: takes so many bytes, answers with one, and again.
TAKER = """
import socket, struct, sys
sock = socket.socket(fileno=int(sys.argv[1]))
room = bytearray(1 << 20)
while head := sock.recv(8, socket.MSG_WAITALL):
    left = struct.unpack("!Q", head)[0]
    while left:
        left -= sock.recv_into(room, min(left, len(room)))
    sock.sendall(b"!")
"""


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    bench_sending(quick, claims)
    bench_messages(quick, claims)
    bench_connecting(quick, claims)
    claims.end()


@contextlib.contextmanager
def taker():
    """Connect to another process that reads what it is told of."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        other = listener.accept()[0]
    command = [sys.executable, "-c", TAKER, str(other.fileno())]
    with sock, subprocess.Popen(command, pass_fds=[other.fileno()]) as child:
        other.close()
        try:
            yield sock
        finally:
            sock.close()
            child.wait(10)


def bench_sending(quick, claims) -> None:
    size = (16 if quick else 256) * MIB
    data = bytes(size)
    with taker() as sock:
        sender = BudgetedSender(sock, idle_timeout=30)

        def timed(send) -> float:
            sock.sendall(struct.pack("!Q", size))
            began = time.perf_counter()
            send()
            sock.recv(1)
            return (time.perf_counter() - began) / (size / MIB)

        def bare() -> float:
            return timed(lambda: sock.sendall(data))

        def ours() -> float:
            return timed(lambda: sender.send_all(data, Deadline.after(300)))

        rounds = Rounds({"sendall": bare, "send_all": ours}, 3 if quick else 15)
    rounds.table(f"{size // MIB} MiB in one call to another process", "us/MiB", "sendall", 1e6)
    speed = rounds.ratio("sendall", "send_all")
    claims.at_least("throughput of send_all beside a bare sendall", speed, 0.95)


def bench_messages(quick, claims) -> None:
    # With a timeout, a socket waits for a quarter of the buffer to be free.
    count, data = 50, bytes(16)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = BudgetedSender(ours, idle_timeout=30)

        def timed(send) -> float:
            began = time.perf_counter()
            for _ in range(count):
                send()
            took = time.perf_counter() - began
            theirs.recv(count * 16, socket.MSG_WAITALL)
            return took / count

        def by_hand() -> float:
            def send():
                until = time.monotonic() + 30
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                ours.settimeout(left)
                ours.sendall(data)

            took = timed(send)
            ours.settimeout(None)
            return took

        rounds = Rounds(
            {
                "sendall": lambda: timed(lambda: ours.sendall(data)),
                "by hand": by_hand,
                "send_all": lambda: timed(lambda: sender.send_all(data, Deadline.after(30))),
            },
            5 if quick else 101,
        )
    rounds.table("A 16-byte message, room for it", "ns", "by hand", 1e9)
    claims.leave_open(
        f"a 16-byte message beside a loop by hand: {rounds.ratio('send_all', 'by hand'):.2f}"
    )


def bench_connecting(quick, claims) -> None:
    count = 50
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as server:
        address = server.getsockname()

        def timed(dial) -> float:
            took = 0.0
            for _ in range(count):
                began = time.perf_counter()
                made = dial()
                took += time.perf_counter() - began
                made.close()
                server.accept()[0].close()
            return took / count

        rounds = Rounds(
            {
                "create_connection": lambda: timed(lambda: socket.create_connection(address, 5)),
                "connect": lambda: timed(lambda: connect(address, Deadline.after(5))),
            },
            5 if quick else 101,
        )
        rounds.table("Connecting to one healthy address", "us", "create_connection", 1e6)
        claims.at_most(
            "connecting to one healthy address beside create_connection",
            rounds.ratio("connect", "create_connection"),
            1.2,
        )


if __name__ == "__main__":
    main()
