"""One cancelled read, through asyncio, this library, and anyio and trio where they are installed.

A function reads one byte in a thread and then has a side effect. Its task is cancelled at 0.10 s,
and the caller's clean-up closes the socket. The peer sends the byte at 0.30 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import sys
import threading
import time

from timebounds import Deadline, ShieldedOffload, offload, shut_reading

CANCEL_AT, SEND_AT = 0.1, 0.3


class Stage:
    """A socket pair, a function that reads from it, and what was seen."""

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self.began = time.monotonic()
        self.returned = self.left = None
        self.socket = ""
        self.effect = "no"

    def now(self):
        return time.monotonic() - self.began

    def read(self, look=lambda: None):
        try:
            self.ours.recv(1)
            look()
            self.effect = "yes"
        finally:
            self.socket = "open" if self.ours.fileno() >= 0 else "closed"
            self.returned = self.now()

    def job(self, job):
        self.read(lambda: job.deadline.check("read"))

    def send(self):
        with contextlib.suppress(OSError):
            self.theirs.sendall(b"!")

    def close(self):
        self.ours.close()


async def leave(stage, call):
    """Do what callers do: close the socket on the way out."""
    try:
        await call()
    finally:
        stage.close()
        stage.left = stage.now()


def on_asyncio(stage, call):
    async def main():
        task = asyncio.create_task(leave(stage, call))
        await asyncio.sleep(CANCEL_AT)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def on(library, *, abandon, looks):
    def run(stage):
        look = library.from_thread.check_cancelled if looks else lambda: None

        async def call():
            run_sync = library.to_thread.run_sync
            await run_sync(stage.read, look, abandon_on_cancel=abandon)
            await library.lowlevel.checkpoint()

        async def main():
            group = getattr(library, "create_task_group", None) or library.open_nursery
            with library.CancelScope() as scope:
                async with group() as tasks:
                    tasks.start_soon(leave, stage, call)
                    await library.sleep(CANCEL_AT)
                    scope.cancel()

        library.run(main)

    return run


async def shielded(stage):
    async with ShieldedOffload(release=shut_reading(stage.ours), close=[stage.close]) as scope:
        await scope.run_job(stage.job, deadline=Deadline.never())


def in_thread(stage):
    return asyncio.to_thread(stage.read)


CALLS = {
    "asyncio.to_thread": lambda stage: on_asyncio(stage, lambda: in_thread(stage)),
    "asyncio.shield": lambda stage: on_asyncio(stage, lambda: asyncio.shield(in_thread(stage))),
    "offload": lambda stage: on_asyncio(
        stage, lambda: offload(stage.read, deadline=Deadline.never())
    ),
    "ShieldedOffload": lambda stage: on_asyncio(stage, lambda: shielded(stage)),
}


def measure(name, call):
    stage = Stage()
    peer = threading.Timer(SEND_AT, stage.send)
    peer.start()
    call(stage)
    peer.join()
    while stage.returned is None:
        time.sleep(0.01)
    stage.theirs.close()
    seen = f"{stage.returned:8.2f} {stage.left:8.2f}  {stage.socket:8} {stage.effect}"
    print(f"{name:36} {seen}")


def main():
    print(f"Python {sys.version.split()[0]}")
    print(f"{'call':36} returned     left  socket   effect")
    for name, call in CALLS.items():
        measure(name, call)
    for name in ("trio", "anyio"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            print(f"{name} is not installed: left out")
            continue
        for abandon in (False, True):
            for looks in (False, True):
                words = ", abandons" * abandon + ", looks" * looks
                measure(name + words, on(library, abandon=abandon, looks=looks))


if __name__ == "__main__":
    main()
