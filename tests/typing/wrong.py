# pyright: strict, reportUnnecessaryTypeIgnoreComment=error
"""What both type checkers must refuse: an ignore that is not needed is an error here.

Nothing runs this file. `run.py types` checks it with mypy (warn_unused_ignores) and pyright.
"""

from __future__ import annotations

import socket

from timebounds import (
    MONOTONIC,
    WALL,
    AsyncExpiringCache,
    AsyncWorker,
    Attempt,
    BudgetedReceiver,
    Deadline,
    Effect,
    ExpiringCache,
    Expiry,
    Overflow,
    Retry,
    RetryAllowance,
    SteadyClock,
    Stop,
    StopSignal,
    WallClock,
    Work,
    Worker,
    wait_requested,
)


class Minimal(SteadyClock):
    """The one method that a clock of one's own needs."""

    def now_ns(self) -> int:
        """Read the clock."""
        return 0


def right(sock: socket.socket, deadline: Deadline) -> bytes:
    """What must pass."""
    receiver = BudgetedReceiver(sock, idle_timeout=1.0, allowance=RetryAllowance(2).shared())
    child = Deadline.after(2, clock=Minimal()).within(1.5).earliest(deadline)
    buffer = bytearray(4)
    receiver.receive_into(buffer, child)
    report = receiver.report
    waited: float = report.waited if report is not None else 0.0
    expiry: Expiry = Expiry.after(waited, clock=WALL)
    assert expiry.fresh()
    return receiver.receive_until(b"\n", 100, child) + receiver.resume(child)


PUT = Retry(on=OSError, effect=Effect.IDEMPOTENT, allowance=RetryAllowance(3))


def put(attempt: Attempt, name: str, size: int) -> bytes:
    """A target of the call form."""
    return name.encode() * size if attempt.number else b""


async def aput(attempt: Attempt, name: str) -> bytes:
    """A target of the call form, for tasks."""
    return name.encode() if attempt.number else b""


@PUT
def decorated(name: str, *, deadline: Deadline) -> bytes:
    """A decorated target keeps its signature."""
    return name.encode() if deadline.expired() else b""


async def right_retries(deadline: Deadline) -> bytes:
    """What must pass: the types of arguments and values come through."""
    value: bytes = PUT.call(put, "a", 2, deadline=deadline)
    value += await PUT.acall(aput, "a", deadline=deadline)
    for attempt in PUT.attempts(deadline):
        with attempt:
            value += put(attempt, "a", 1)
    async for attempt in PUT.attempts(deadline):
        with attempt:
            value += await aput(attempt, "a")
    return value + decorated("a", deadline=deadline)


async def wrong_retries(deadline: Deadline) -> None:
    """What must not."""
    PUT.call(put, "a", "b", deadline=deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    PUT.call(put, "a", deadline=deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    PUT.call(put, "a", 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await PUT.acall(aput, 1, deadline=deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    decorated(1, deadline=deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    decorated("a", deadline=2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Retry(on=OSError, allowance=RetryAllowance(3))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def right_stops(stop: StopSignal, deadline: Deadline) -> bool:
    """What must pass."""
    answer: Stop = stop.child().request("shutdown")
    removed: bool = stop.on_request(deadline.clock.now).remove()
    carried: StopSignal | None = Deadline.after(1, stop=stop).stopping(stop).stop
    with StopSignal.on_signals(15) as asked:
        waited: bool = asked.wait(deadline) or await wait_requested(asked, deadline)
    return waited and removed and answer is Stop.ACCEPTED and carried is not None


async def wrong_stops(stop: StopSignal, deadline: Deadline) -> None:
    """What must not."""
    Deadline.after(1, stop="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Deadline.never(stop=2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    deadline.stopping(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    deadline.stop = stop  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    stop.request(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stop.on_request(stop)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stop.wait(2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await wait_requested(deadline, deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    StopSignal(clock=WALL)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    StopSignal.on_signals("SIGTERM")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def handle(work: Work[str]) -> None:
    """What a worker is given."""
    assert work.payload.upper()


async def ahandle(work: Work[str]) -> None:
    """What a worker for tasks is given."""
    assert work.payload.upper()


def load(key: str, deadline: Deadline) -> int:
    """What a cache is given."""
    return len(key) + deadline.expired()


@ExpiringCache.memoizing(fresh_for=60, max_size=100)
def priced(name: str, *, deadline: Deadline) -> int:
    """A memoized function keeps its signature."""
    return load(name, deadline)


@AsyncExpiringCache.memoizing(fresh_for=lambda price: price, max_size=100)
async def apriced(name: str, *, deadline: Deadline) -> int:
    """A memoized function keeps its signature."""
    return load(name, deadline)


async def right_residents(deadline: Deadline) -> int:
    """What must pass: the types of payloads and values come through."""
    worker = Worker(handle, capacity=2, overflow=Overflow.WAIT, limit=1.0, check=str.upper)
    worker.submit("a", deadline, key="k", wait=0.5)
    tasks = AsyncWorker(ahandle, capacity=2, overflow=Overflow.REJECT, tasks=2, history=3)
    await tasks.submit("a", deadline)
    cache = ExpiringCache(load, fresh_for=lambda value: value / 2, max_size=10, clock=MONOTONIC)
    value: int = cache.get("a", deadline) + priced("a", deadline=deadline)
    kept: ExpiringCache[int] = priced.cache
    return value + len(kept) + await apriced("a", deadline=deadline)


async def wrong_residents(deadline: Deadline) -> None:
    """What must not."""
    worker = Worker(handle, capacity=2, overflow=Overflow.WAIT)
    worker.submit(1, deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    worker.submit("a", 2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Worker(handle, capacity=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Worker(handle, capacity=2, overflow=Overflow.WAIT, tasks=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    AsyncWorker(handle, capacity=2, overflow=Overflow.WAIT)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ExpiringCache(load, max_size=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ExpiringCache(load, fresh_for=1, max_size=10, clock=WALL)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ExpiringCache.memoizing(fresh_fr=1, max_size=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    priced(1, deadline=deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    priced("a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await apriced("a", deadline=2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrong(receiver: BudgetedReceiver, deadline: Deadline) -> None:
    """What must not."""
    # C2: a wall clock for a deadline, a steady one for an expiry.
    Deadline.after(2, clock=WallClock())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Expiry.after(2, clock=MONOTONIC)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # A bare number in a deadline's place.
    receiver.receive_exactly(4, 2.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    receiver.receive_exactly(4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    # Numbers and strings.
    Deadline.after("2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    receiver.receive_until("\n", 4, deadline)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    # A deadline never changes.
    deadline.clock = MONOTONIC  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
