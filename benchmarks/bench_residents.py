"""What residents cost: a scheduler's jobs, a worker's pieces, a cache's hits."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import math
import queue
import sched
import threading
import time
from datetime import UTC, datetime, timedelta

from harness import Claims, Rounds, begin, table

from timebounds import AsyncWorker, Deadline, ExpiringCache, Once, Overflow, Worker
from timebounds.policies.agenda import Agenda


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    bench_agenda(quick, claims)
    bench_workers(quick, claims)
    bench_hits(quick, claims)
    bench_stampede(claims)
    claims.end()


class Ours:
    """An agenda, without the waiting."""

    def __init__(self, count):
        self.agenda = Agenda()
        self.tables = [Once(1 + n * 7919 % count) for n in range(count)]

    def add(self):
        agenda, wall = self.agenda, no_wall
        self.jobs = [agenda.add(each, print, "job", None, 0, wall) for each in self.tables]
        agenda.take(0, wall)

    def cancel(self):
        for job in self.jobs[::2]:
            job.cancel()

    def fire(self):
        agenda, wall, now = self.agenda, no_wall, 1 << 60
        fired = 0
        while (due := agenda.take(now, wall)) is not None:
            agenda.ended(due, None, now, wall)
            fired += 1
        return fired


class Sched:
    """The standard library's."""

    def __init__(self, count):
        self.now = 0.0
        self.scheduler = sched.scheduler(lambda: self.now, lambda _: None)
        self.instants = [1 + n * 7919 % count for n in range(count)]

    def add(self):
        self.jobs = [self.scheduler.enterabs(each, 0, nothing) for each in self.instants]

    def cancel(self):
        # Each takes a walk over all of them: a hundred say enough.
        for job in self.jobs[:200:2]:
            self.scheduler.cancel(job)

    def fire(self):
        self.now = math.inf
        self.scheduler.run(blocking=False)
        return len(self.jobs) - len(self.jobs[:200:2])


def apscheduler(count):
    """Return APScheduler's, driven by hand: its jobs in memory, run where it looks for them."""
    # Only the interop environment has it.
    from apscheduler.executors.debug import DebugExecutor  # noqa: PLC0415
    from apscheduler.schedulers.base import BaseScheduler  # noqa: PLC0415

    class ByHand(BaseScheduler):
        def wakeup(self):
            pass

        def shutdown(self, wait=True):
            pass

    class APScheduler:
        def __init__(self):
            # All are due, and none too late.
            first = datetime.now(UTC) - timedelta(days=1)
            step = timedelta(microseconds=1)
            self.instants = [first + (n * 7919 % count) * step for n in range(count)]
            self.scheduler = ByHand(
                executors={"default": DebugExecutor()},
                job_defaults={"misfire_grace_time": None},
                timezone=UTC,
            )
            self.scheduler.start(paused=True)

        def add(self):
            add = self.scheduler.add_job
            self.jobs = [add(nothing, "date", run_date=each) for each in self.instants]

        def cancel(self):
            for job in self.jobs[:200:2]:
                job.remove()

        def fire(self):
            self.scheduler.resume()
            self.scheduler._process_jobs()  # noqa: SLF001  (what each of its schedulers calls)
            return len(self.jobs) - len(self.jobs[:200:2])

    return APScheduler()


def nothing():
    pass


def no_wall():
    return 0


def measure(kind, count, rounds):
    """Return the best seconds for one add, one cancel and one run."""
    best = [math.inf] * 3
    for _ in range(rounds):
        made = kind(count)
        began = time.perf_counter()
        made.add()
        added = time.perf_counter()
        made.cancel()
        cancelled = time.perf_counter()
        fired = made.fire()
        ended = time.perf_counter()
        gone = count - fired
        for n, cost in enumerate(
            ((added - began) / count, (cancelled - added) / gone, (ended - cancelled) / fired)
        ):
            best[n] = min(best[n], cost)
    return best


def bench_agenda(quick, claims) -> None:
    few, many = 1_000, 10_000 if quick else 100_000
    rows = []
    contestants = {"Scheduler": Ours, "sched": Sched}
    if importlib.util.find_spec("apscheduler"):
        contestants["APScheduler"] = apscheduler
    else:
        claims.leave_open("a job beside APScheduler: not installed")
    for name, kind in contestants.items():
        slow = kind is apscheduler
        small = measure(kind, few, 3 if quick or slow else 20)
        large = measure(kind, many, 1 if quick or slow else 5)
        for verb, one, other in zip(("add", "cancel", "fire"), small, large, strict=True):
            rows.append((f"{name}: {verb}", f"{one * 1e9:,.0f}", f"{other * 1e9:,.0f}"))
            if kind is Ours:
                growth = other / one
                limit = 1.5 * math.log(many) / math.log(few)
                claims.at_most(f"{verb} of one job among {many:,} beside {few:,}", growth, limit)
    table("One job, among so many", ("", f"ns, {few:,}", f"ns, {many:,}"), rows)


# ---------------------------------------------------------------- the worker


class Handler:
    """What is done with each piece, by all contestants; says when it was the last one."""

    def __init__(self, count, event):
        self.left = count
        self.done = event

    def handle(self, _):
        self.left -= 1
        if not self.left:
            self.done.set()

    async def ahandle(self, work):
        self.handle(work)


def through_worker(count) -> float:
    handler = Handler(count, threading.Event())
    worker = Worker(handler.handle, capacity=count, overflow=Overflow.REJECT)
    deadline = Deadline.after(600)
    began = time.perf_counter()
    for n in range(count):
        worker.submit(n, deadline)
    handler.done.wait()
    took = time.perf_counter() - began
    worker.close(Deadline.after(5))
    return took / count


def through_queue(count) -> float:
    line: queue.Queue[int] = queue.Queue(count)
    handler = Handler(count, threading.Event())

    def consume():
        for _ in range(count):
            handler.handle(line.get())
            line.task_done()

    thread = threading.Thread(target=consume)
    thread.start()
    began = time.perf_counter()
    for n in range(count):
        line.put(n, timeout=600)
    handler.done.wait()
    took = time.perf_counter() - began
    thread.join()
    return took / count


async def through_async_worker(count) -> float:
    handler = Handler(count, asyncio.Event())
    worker = AsyncWorker(handler.ahandle, capacity=count, overflow=Overflow.REJECT)
    deadline = Deadline.after(600)
    began = time.perf_counter()
    for n in range(count):
        await worker.submit(n, deadline)
    await handler.done.wait()
    took = time.perf_counter() - began
    await worker.close(Deadline.after(5))
    return took / count


async def through_async_queue(count) -> float:
    line: asyncio.Queue[int] = asyncio.Queue(count)
    handler = Handler(count, asyncio.Event())

    async def consume():
        for _ in range(count):
            await handler.ahandle(await line.get())
            line.task_done()

    task = asyncio.ensure_future(consume())
    began = time.perf_counter()
    for n in range(count):
        await line.put(n)
    await task
    return (time.perf_counter() - began) / count


def bench_workers(quick, claims) -> None:
    count = 2_000
    rounds = Rounds(
        {
            "queue.Queue": lambda: through_queue(count),
            "Worker": lambda: through_worker(count),
            "asyncio.Queue": lambda: asyncio.run(through_async_queue(count)),
            "AsyncWorker": lambda: asyncio.run(through_async_worker(count)),
        },
        5 if quick else 31,
    )
    rounds.table("A piece of work, handed in and done", "ns", "queue.Queue", 1e9)
    for ours, theirs in (("Worker", "queue.Queue"), ("AsyncWorker", "asyncio.Queue")):
        claims.at_most(f"{ours} beside {theirs}", rounds.ratio(ours, theirs), 2)


# ---------------------------------------------------------------- the cache


def bench_hits(quick, claims) -> None:
    count = 1_000
    keys = [f"key {n}" for n in range(100)]
    lock = threading.Lock()
    plain = dict.fromkeys(keys, 1)
    cache = ExpiringCache(lambda _key, _deadline: 1, fresh_for=3600, max_size=1000)
    deadline = Deadline.after(3600)
    for key in keys:
        cache.put(key, 1)

    def timed(get) -> float:
        began = time.perf_counter()
        for key in keys:
            for _ in range(count // len(keys)):
                get(key)
        return (time.perf_counter() - began) / count

    def locked(key):
        with lock:
            return plain[key]

    def ours(key):
        return cache.get(key, deadline)

    contestants = {"dict, locked": lambda: timed(locked), "ExpiringCache": lambda: timed(ours)}
    with contextlib.suppress(ImportError):
        import cachetools  # noqa: PLC0415  (only the interop environment has it)

        other = cachetools.TTLCache(1000, 3600)
        other.update(plain)

        def theirs(key):
            with lock:
                return other[key]

        contestants["TTLCache, locked"] = lambda: timed(theirs)
    rounds = Rounds(contestants, 5 if quick else 101)
    rounds.table("A hit", "ns", "dict, locked", 1e9)
    claims.at_most(
        "a hit beside a dict under a lock", rounds.ratio("ExpiringCache", "dict, locked"), 3
    )
    if "TTLCache, locked" in contestants:
        claims.at_most(
            "a hit beside cachetools.TTLCache under a lock",
            rounds.ratio("ExpiringCache", "TTLCache, locked"),
            1,
        )
    else:
        claims.leave_open("a hit beside cachetools.TTLCache: not installed")


def bench_stampede(claims) -> None:
    loads = []

    def load(key, deadline):
        loads.append(key)
        deadline.clock.sleep(0.2)
        return key

    cache = ExpiringCache(load, fresh_for=60, max_size=10)
    threads = [
        threading.Thread(target=cache.get, args=("key", Deadline.after(60))) for _ in range(1000)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    claims.state(f"1,000 callers of one key: {len(loads)} load", held=len(loads) == 1)


if __name__ == "__main__":
    main()
