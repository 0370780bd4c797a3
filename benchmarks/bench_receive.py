"""What a bounded receive costs: system calls, throughput, small messages, large ones."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import readers
from harness import Claims, Rounds, begin, table

from timebounds import BudgetedReceiver, Deadline

MIB = 1 << 20
CHUNK = 65_536
OURS = "BudgetedReceiver"


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    ready, missing = readers.available()
    bench_calls(ready, claims)
    with remote_sender() as ask:
        bench_throughput(ask, quick, claims)
        bench_growth(ask, quick, claims)
    bench_messages(ready, missing, quick, claims)
    claims.end()


# ---------------------------------------------------------------- (a) system calls


def bench_calls(ready, claims) -> None:
    """Count the system calls of each reader, with data ready, in a child under strace."""
    strace = shutil.which("strace")
    counts = {}
    if strace is not None:
        with contextlib.suppress(subprocess.CalledProcessError):
            counts = {name: count_calls(strace, name) for name in ready}
    if not counts:
        why = "strace is not installed" if strace is None else "strace may not trace here"
        print(f"\nSystem calls: {why}")
        claims.leave_open(f"one system call for a read with data ready: {why}")
        return
    reading = ("recvfrom", "read", "readv", "recvmsg")
    waiting = ("poll", "ppoll", "select", "pselect6", "epoll_wait")
    modes = ("fcntl", "ioctl", "setsockopt")
    groups = {"read": reading, "wait": waiting, "mode": modes}
    rows = []
    for name, count in counts.items():
        known = [sum(count[call] for call in calls) for calls in groups.values()]
        numbers = [*known, count.total() - sum(known), count.total()]
        rows.append((name, *(f"{number / readers.READS:.3f}" for number in numbers)))
    table(
        f"System calls a read, {readers.SIZE}-byte messages, data ready, {readers.READS:,} reads",
        ("", *groups, "other", "all"),
        rows,
    )
    ours = counts[OURS]
    claims.state(
        f"one system call for a read with data ready: {sum(ours[call] for call in reading)} reads, "
        f"{sum(ours[call] for call in waiting)} waits in {readers.READS:,} messages",
        held=sum(ours[call] for call in reading + waiting) == readers.READS,
    )
    looked = sum(ours[call] for call in modes)
    claims.state(f"no fcntl, ioctl or setsockopt: {looked}", held=looked == 0)


def count_calls(strace: str, name: str) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        subprocess.run(
            [strace, "-f", "-o", trace, sys.executable, readers.__file__, name],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        text = trace.read_text(errors="replace")
    between = text.split(readers.BEGIN, 1)[1].split(readers.END, 1)[0]
    # The first line is the rest of the first mark, the last one the beginning of the second.
    lines = between.splitlines()[1:-1]
    return Counter(re.sub(r"^\d+ +", "", line).split("(", 1)[0] for line in lines)


# ---------------------------------------------------------------- (b) throughput


@contextlib.contextmanager
def remote_sender():
    """Connect to a sender in another process; give the socket and a way to ask for bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        other = listener.accept()[0]
    descriptor = other.fileno()
    command = [sys.executable, readers.__file__, "--send", str(descriptor)]
    with sock, subprocess.Popen(command, pass_fds=[descriptor]) as child:
        other.close()

        def ask(size):
            sock.sendall(struct.pack("!Q", size))
            return sock

        try:
            yield ask
        finally:
            # The child leaves when it sees the end of its requests.
            sock.close()
            child.wait(10)


def receive_bare(sock, view) -> None:
    while view:
        got = sock.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]


def bench_throughput(ask, quick, claims) -> None:
    size = 16 * MIB
    buffer = bytearray(size)

    def bare() -> float:
        view = memoryview(buffer)
        began = time.perf_counter()
        receive_bare(ask(size), view)
        return (time.perf_counter() - began) / (size / MIB)

    def ours() -> float:
        began = time.perf_counter()
        receiver = BudgetedReceiver(ask(size), idle_timeout=readers.IDLE)
        receiver.receive_into(buffer, Deadline.after(readers.TOTAL))
        return (time.perf_counter() - began) / (size / MIB)

    name = "recv_into loop, no limit"
    rounds = Rounds({name: bare, "receive_into": ours}, 3 if quick else 41)
    rounds.table("16 MiB in one call, the sender in another process", "us/MiB", name, 1e6)
    # More is better here: the ratio of the speeds is the inverse of that of the times.
    speed = rounds.ratio(name, "receive_into")
    claims.at_least("throughput of receive_into beside a bare loop", speed, 0.95)


# ---------------------------------------------------------------- (c) small messages


def bench_messages(ready, missing, quick, claims) -> None:
    with contextlib.ExitStack() as pairs:

        def contestant(build):
            receiving, sending = socket.socketpair()
            pairs.enter_context(receiving)
            pairs.enter_context(sending)
            read = build(receiving)
            times = range(readers.READS)

            def run() -> float:
                readers.preload(sending)
                began = time.perf_counter()
                for _ in times:
                    read()
                return (time.perf_counter() - began) / readers.READS

            return run

        contestants = {name: contestant(build) for name, build in ready.items()}
        rounds = Rounds(contestants, 5 if quick else 101)
    rounds.table("A 16-byte message, data ready", "ns", "by hand", 1e9)
    for name in missing:
        print(f"  {name}: not installed")
    ratio = rounds.ratio(OURS, "by hand")
    claims.at_most("a 16-byte message beside a loop by hand", ratio, 1.5)


# ---------------------------------------------------------------- (d) growth


def receive_joined(sock, size, _receiver, _deadline) -> bytes:
    """Receive without any limit, as briefly as can be."""
    parts = []
    while size:
        part = sock.recv(min(size, CHUNK))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def bench_growth(ask, quick, claims) -> None:
    """Show that a byte costs the same whether few or many came before it in the same receive.

    A large result costs more a byte in any case, since it leaves the processor's caches and the
    system must first provide its memory: so the growth is held against that of bare loops.
    """
    sizes = [1024, MIB, 64 * MIB] + [256 * MIB] * (not quick)
    buffer = memoryview(bytearray(sizes[-1]))
    ways = {
        "receive_exactly": lambda _, size, receiver, end: receiver.receive_exactly(size, end),
        "recv and join": receive_joined,
        "receive_into": lambda _, size, receiver, end: receiver.receive_into(buffer[:size], end),
        "bare recv_into": lambda sock, size, *_: receive_bare(sock, buffer[:size]),
    }
    pairs = {"receive_exactly": "recv and join", "receive_into": "bare recv_into"}
    deadline = Deadline.after(readers.TOTAL)
    times = 3 if quick else 9

    def contestant(receive, size):
        # Small ones by the many, so that a request to the sender weighs as little as for large.
        total = max(size, 4 * MIB)

        def run() -> float:
            began = time.perf_counter()
            sock = ask(total)
            receiver = BudgetedReceiver(sock, idle_timeout=readers.IDLE)
            for _ in range(total // size):
                receive(sock, size, receiver, deadline)
            return (time.perf_counter() - began) / (total / 1024)

        return run

    # The system is slow to take back and provide much memory: each pair has rounds of its own.
    rounds = {
        (way, size): Rounds({name: contestant(ways[name], size) for name in (way, bare)}, times)
        for way, bare in pairs.items()
        for size in sizes
    }
    peaks = {size: peak_memory(ask, size, deadline) / size for size in sizes}
    rows = [
        (
            f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB",
            *(
                f"{rounds[way, size].median(name) * 1e9:,.0f}"
                for way, bare in pairs.items()
                for name in (way, bare)
            ),
            f"{peaks[size]:.2f}",
        )
        for size in sizes
    ]
    table("ns/KiB, the sender in another process", ("in one call", *ways, "peak / size"), rows)
    large = sizes[-1]
    name = f"{large // MIB} MiB"

    def beyond(way, size):
        return rounds[way, size].ratio(way, pairs[way])

    growth = beyond("receive_into", large) / beyond("receive_into", MIB)
    claims.at_most(f"receive_into beside bare, growth from 1 MiB to {name}", growth, 1.25)
    if not quick:
        # From a size on at which memory comes from the system each time.
        growth = beyond("receive_exactly", large) / beyond("receive_exactly", 64 * MIB)
        claims.at_most(f"receive_exactly beside bare, growth from 64 MiB to {name}", growth, 1.25)
    claims.at_most(f"peak memory of receive_exactly for {name}, in sizes", peaks[large], 2.1)


def peak_memory(ask, size, deadline) -> int:
    receiver = BudgetedReceiver(ask(size), idle_timeout=readers.IDLE)
    tracemalloc.start()
    try:
        receiver.receive_exactly(size, deadline)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    main()
