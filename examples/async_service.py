"""A small service for tasks: each line is a question, and the peer that knows may fail or hang.

Its tests are in `test_async_service.py`: twelve minutes of it take them a few milliseconds.
"""

import asyncio

from timebounds import (
    MONOTONIC,
    AsyncBudgetedReceiver,
    Backoff,
    Deadline,
    DeadlineExceeded,
    Effect,
    LimitExceeded,
    PeerClosed,
    Retry,
    RetryAllowance,
    StopRequested,
    StopSignal,
    enforcing,
)

LOOK_UP = Retry(
    on=ConnectionError,
    effect=Effect.READ_ONLY,
    allowance=RetryAllowance(3, Backoff.exponential(0.5, cap=4.0)),
)


class Service:
    """Answers each line of its clients with what `look_up(line, deadline)` returns.

    It makes the deadlines, so it is given the clock.
    """

    def __init__(self, look_up, stop, *, clock=MONOTONIC):
        self.look_up = look_up
        self.stop = stop
        self.clock = clock

    async def serve(self, reader, writer):
        """Serve a client until it leaves, or takes a minute over a line, or all is to stop."""
        receiver = AsyncBudgetedReceiver(reader)
        try:
            while True:
                patience = Deadline.after(60, clock=self.clock, stop=self.stop)
                line = await receiver.receive_until(b"\n", 80, patience)
                # The request's budget begins here. What was asked is answered, stop or no stop.
                budget = Deadline.after(10, clock=self.clock)
                writer.write(await self.answer(line, budget.reserving(1)))
                async with enforcing(budget):
                    await writer.drain()
        except (PeerClosed, ConnectionError):
            return
        except (DeadlineExceeded, LimitExceeded, StopRequested) as error:
            writer.write(b"goodbye: %s\n" % type(error).__name__.encode())

    async def answer(self, line, deadline):
        """Ask up to four times within one budget; the client hears in time, whatever happens."""
        try:
            async with enforcing(deadline):  # also over a `look_up` that forgets its own
                return await LOOK_UP.acall(self._attempt, line, deadline=deadline)
        except DeadlineExceeded:
            return b"sorry: it took too long\n"
        except ConnectionError:
            return b"sorry: nobody knows\n"

    async def _attempt(self, attempt, line):
        return await self.look_up(line, attempt.deadline)


async def main():
    async def shout(line, _):
        return line.upper()

    stop = StopSignal()
    service = Service(shout, stop)

    async def connected(reader, writer):
        try:
            await service.serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        client = AsyncBudgetedReceiver(reader)
        soon = Deadline.after(10)
        writer.write(b"hello\n")
        assert await client.receive_until(b"\n", 80, soon) == b"HELLO\n"
        stop.request("shutdown")
        assert await client.receive_until(b"\n", 80, soon) == b"goodbye: StopRequested\n"
        writer.close()
        await writer.wait_closed()
    print("served on a real socket, and stopped")


if __name__ == "__main__":
    asyncio.run(main())
