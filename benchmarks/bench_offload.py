"""What an offload costs, how soon its function sees a stop, and how often its task is woken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import socket
import statistics
import threading
import time

from harness import Claims, Rounds, begin, table

from timebounds import (
    BudgetedReceiver,
    Deadline,
    StopRequested,
    StopSignal,
    offload,
    offload_job,
)

OURS = "offload"
PLAIN = "asyncio.to_thread"
OTHER = "anyio.to_thread.run_sync"
SIGNAL = "StopSignal.requested"
FLAG = "Event.is_set"


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    here = importlib.util.find_spec("anyio") is not None
    print(f"  anyio: {'installed' if here else 'not installed'}")
    # First all that is to be seen without anyio: loading it changes how an offload waits.
    bench_calls(quick, claims)
    bench_stop(quick, claims)
    bench_busy_loop(quick, claims)
    bench_wakes("100 cancels wake the awaiting task", claims)
    bench_flag(quick, claims)
    if here:
        import anyio.to_thread  # noqa: PLC0415

        bench_beside_anyio(anyio.to_thread.run_sync, quick, claims)
        bench_wakes("100 cancels wake it where anyio is loaded", claims)
    else:
        claims.leave_open(f"{OTHER} beside {OURS}: not installed")
    claims.end()


# ---------------------------------------------------------------- one call


def timed(call, number: int):
    """Return a contestant: so many calls, one after the other, in a loop of their own."""

    async def calls():
        for _ in range(20):  # whoever makes threads makes them now
            await call()
        began = time.perf_counter()
        for _ in range(number):
            await call()
        return (time.perf_counter() - began) / number

    def run():
        gc.collect()
        return asyncio.run(calls())

    return run


def ours():
    deadline, never = Deadline.after(3600), Deadline.never()
    return {
        OURS: lambda: offload(int, deadline=deadline),
        "offload, Deadline.never()": lambda: offload(int, deadline=never),
        "offload_job": lambda: offload_job(lambda _: 0, deadline=deadline),
    }


def bench_calls(quick: bool, claims: Claims) -> None:
    number = 100 if quick else 1_000
    contestants = {PLAIN: lambda: asyncio.to_thread(int), **ours()}
    rounds = Rounds(
        {name: timed(call, number) for name, call in contestants.items()}, 3 if quick else 41
    )
    rounds.table("A call of int() in a thread", "us", PLAIN, scale=1e6)
    claims.at_most(f"{OURS} beside {PLAIN}", rounds.ratio(OURS, PLAIN), 1.3)


def bench_beside_anyio(run_sync, quick: bool, claims: Claims) -> None:
    number = 100 if quick else 1_000
    contestants = {
        PLAIN: lambda: asyncio.to_thread(int),
        OTHER: lambda: run_sync(int),
        OURS: ours()[OURS],
    }
    rounds = Rounds(
        {name: timed(call, number) for name, call in contestants.items()}, 3 if quick else 41
    )
    rounds.table("The same where anyio is loaded", "us", PLAIN, scale=1e6)
    claims.at_least(f"{OTHER} beside {OURS}", rounds.ratio(OTHER, OURS), 1)


# ---------------------------------------------------------------- from the cancel to the function


class Reader:
    """A task over a function that blocks in a read, and when that function saw the stop."""

    def __init__(self, ours: socket.socket):
        self.receiver = BudgetedReceiver(ours)
        self.entered = threading.Event()
        self.seen = 0.0
        self.task = asyncio.create_task(offload_job(self.read, deadline=Deadline.after(3600)))

    def read(self, job):
        self.entered.set()
        try:
            self.receiver.receive_exactly(1, job.deadline)
        except StopRequested:
            self.seen = time.perf_counter()
            raise

    async def blocks(self):
        """Return when the function is inside its read, as well as one can know that."""
        while not self.entered.is_set():  # noqa: ASYNC110  (a thread sets it)
            await asyncio.sleep(0.0002)
        await asyncio.sleep(0.001)

    async def ends(self):
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


def bench_stop(quick: bool, claims: Claims) -> None:
    async def samples(count):
        taken = []
        with pair() as ours:
            for _ in range(count):
                reader = Reader(ours)
                await reader.blocks()
                began = time.perf_counter()
                reader.task.cancel()
                await reader.ends()
                taken.append(reader.seen - began)
        return taken

    taken = asyncio.run(samples(100 if quick else 3_000))
    middle, late = spread(taken)
    table(
        f"From task.cancel() to the function that blocks in a read, {len(taken):,} times",
        ("", "median us", "99th percentile us"),
        [("the loop is idle", f"{middle * 1e6:.1f}", f"{late * 1e6:.1f}")],
    )
    claims.at_most("median ms from the cancel to the function", middle * 1e3, 0.1)
    claims.at_most("99th percentile of that in ms", late * 1e3, 2)


def bench_busy_loop(quick: bool, claims: Claims) -> None:
    """Cancel from another thread, 20 ms after the loop's own has begun to do something else."""

    async def samples(count, block):
        taken = []
        with pair() as ours:
            for _ in range(count):
                reader = Reader(ours)
                await reader.blocks()
                asked = []

                def cancel(reader=reader, asked=asked):
                    asked.append(time.perf_counter())
                    reader.task.cancel()

                timer = threading.Timer(0.02, cancel)
                timer.start()
                block(0.1)
                timer.join()
                await reader.ends()
                taken.append(reader.seen - asked[0])
        return taken

    count = 5 if quick else 60
    rows = []
    for name, block in (("sleeps", time.sleep), ("computes", compute)):
        middle, late = spread(asyncio.run(samples(count, block)))
        rows.append((f"the loop {name}", f"{middle * 1e6:.1f}", f"{late * 1e6:.1f}"))
        if block is time.sleep:
            text = "median ms from a foreign thread's cancel, the loop blocked for 100 ms"
            claims.at_most(text, middle * 1e3, 0.5)
    head = ("", "median us", "99th percentile us")
    table(f"The same by a foreign thread while the loop is blocked for 100 ms, {count}", head, rows)


def compute(seconds: float) -> None:
    """Hold the interpreter, which hands over at its switch interval only."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@contextlib.contextmanager
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


def spread(taken: list[float]) -> tuple[float, float]:
    taken = sorted(taken)
    return statistics.median(taken), taken[min(len(taken) - 1, len(taken) * 99 // 100)]


# ---------------------------------------------------------------- wake-ups


class Counted:
    """Awaits something and counts how often the loop comes back to it."""

    def __init__(self, coroutine):
        self._coroutine = coroutine
        self.steps = 0

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        self.steps += 1
        return self._coroutine.send(value)

    def throw(self, error):
        self.steps += 1
        return self._coroutine.throw(error)


def bench_wakes(text: str, claims: Claims) -> None:
    async def count():
        entered, leave = threading.Event(), threading.Event()

        def work():
            entered.set()
            leave.wait(20)

        counted = Counted(offload(work, deadline=Deadline.after(3600)))

        async def wait():
            await counted

        task = asyncio.create_task(wait())
        while not entered.is_set():  # noqa: ASYNC110  (a thread sets it)
            await asyncio.sleep(0.001)
        for _ in range(100):
            task.cancel()
            await asyncio.sleep(0)
        leave.set()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return counted.steps - 1  # the first step is its start

    claims.at_most(text, asyncio.run(count()), 2)


# ---------------------------------------------------------------- the look for a stop


def bench_flag(quick: bool, claims: Claims) -> None:
    number = 10_000 if quick else 200_000
    event, stop = threading.Event(), StopSignal()

    def looks(call):
        def run():
            began = time.perf_counter()
            for _ in range(number):
                call()
            return (time.perf_counter() - began) / number

        return run

    contestants = {
        FLAG: event.is_set,
        SIGNAL: stop.requested,
        "the same, below another": stop.child().requested,
    }
    rounds = Rounds({name: looks(call) for name, call in contestants.items()}, 3 if quick else 31)
    rounds.table("A look whether to stop", "ns", FLAG, scale=1e9)
    claims.at_most(f"{SIGNAL} beside {FLAG}", rounds.ratio(SIGNAL, FLAG), 2)


if __name__ == "__main__":
    main()
