"""The asyncio colour beside bare asyncio, and time that is not waited for."""

from __future__ import annotations

import asyncio
import time

import harness

from timebounds import AsyncBudgetedReceiver, Deadline, enforcing
from timebounds.testing import FakeClock


def fed(size, count):
    """A stream reader that holds all its data from the beginning."""
    reader = asyncio.StreamReader(limit=1 << 30)
    reader.feed_data(b"x" * (size * count))
    return reader


async def ours(size, count):
    receiver = AsyncBudgetedReceiver(fed(size, count))
    began = time.perf_counter()
    for _ in range(count):
        await receiver.receive_exactly(size, Deadline.after(5))
    return (time.perf_counter() - began) / count


async def bare(size, count):
    reader = fed(size, count)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(count):
        async with asyncio.timeout_at(loop.time() + 5):
            await reader.readexactly(size)
    return (time.perf_counter() - began) / count


async def enforced(count):
    deadline = Deadline.after(5)
    began = time.perf_counter()
    for _ in range(count):
        async with enforcing(deadline):
            pass
    return (time.perf_counter() - began) / count


async def timed(count):
    when = asyncio.get_running_loop().time() + 5
    began = time.perf_counter()
    for _ in range(count):
        async with asyncio.timeout_at(when):  # noqa: ASYNC100  (an empty block is what it costs)
            pass
    return (time.perf_counter() - began) / count


async def concurrent(tasks):
    """So many receives that all wait, each with a deadline; then the data comes."""
    readers = [asyncio.StreamReader() for _ in range(tasks)]

    async def one(reader):
        return await AsyncBudgetedReceiver(reader).receive_exactly(16, Deadline.after(60))

    began = time.perf_counter()
    waiting = [asyncio.create_task(one(reader)) for reader in readers]
    await asyncio.sleep(0)
    for reader in readers:
        reader.feed_data(b"x" * 16)
    await asyncio.gather(*waiting)
    return (time.perf_counter() - began) / tasks


def eleven_years(step):
    """Sleep for eleven years of fake time, so many seconds at once; return real seconds."""

    async def main():
        for _ in range(11 * 365 * 86_400 // step):
            await asyncio.sleep(step)

    began = time.perf_counter()
    FakeClock().run(main())
    return time.perf_counter() - began


def sleepers(count):
    async def main():
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(asyncio.sleep(1 + number * 0.37))

    began = time.perf_counter()
    FakeClock().run(main())
    return time.perf_counter() - began


def main():
    quick = harness.begin(__doc__.splitlines()[0])
    rounds = 5 if quick else 25
    claims = harness.Claims()
    for size, count in ((16, 2_000), (65_536, 100)):
        seen = harness.Rounds(
            {
                "timebounds": lambda: asyncio.run(ours(size, count)),  # noqa: B023
                "readexactly": lambda: asyncio.run(bare(size, count)),  # noqa: B023
            },
            rounds,
        )
        seen.table(f"a message of {size} bytes, data ready", "us", "readexactly", 1e6)
        claims.at_most(f"{size} bytes", seen.ratio("timebounds", "readexactly"), 1.5)
    seen = harness.Rounds(
        {
            "enforcing": lambda: asyncio.run(enforced(2_000)),
            "timeout_at": lambda: asyncio.run(timed(2_000)),
        },
        rounds,
    )
    seen.table("an empty block", "us", "timeout_at", 1e6)
    claims.at_most("enforcing", seen.ratio("enforcing", "timeout_at"), 1.5)
    seen = harness.Rounds(
        {
            "10,000": lambda: asyncio.run(concurrent(10_000)),
            "100": lambda: asyncio.run(concurrent(100)),
        },
        3 if quick else 9,
    )
    seen.table("a receive among so many that wait", "us", "100", 1e6)
    claims.at_most("10,000 concurrent receives", seen.ratio("10,000", "100"), 1.5)
    daily = min(eleven_years(86_400) for _ in range(3))
    once = min(eleven_years(11 * 365 * 86_400) for _ in range(3))
    few, many = (min(sleepers(count) for _ in range(3)) for count in (1_000, 10_000))
    print(f"\nEleven years of daily timers: {daily:.3f} s; in one sleep: {once * 1e3:.1f} ms")
    print(f"Sleepers with distinct instants: 1,000 in {few:.3f} s, 10,000 in {many:.3f} s")
    claims.at_most("eleven years of daily timers, s", daily, 2.0)
    claims.at_most("one sleep of eleven years, s", once, 0.5)
    claims.at_most("ten times the sleepers, times", many / few, 15)
    claims.end()


if __name__ == "__main__":
    main()
