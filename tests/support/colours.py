"""The same scenario in both colours: a receiver for tasks, with the looks of a blocking one."""

from __future__ import annotations

import asyncio

from timebounds import AsyncBudgetedReceiver, AsyncBudgetedSender, BudgetedSender
from timebounds.blocking.sending_port import TimeoutSendPort
from timebounds.testing import FakeClock, ScriptedStream

SECOND = 1_000_000_000


class Recording:
    """A port that notes what each read was given, as a scripted socket does; None when at once."""

    def __init__(self, port, granted):
        self._port = port
        self._granted = granted

    def at_once(self, target):
        at_once = self._port.at_once(target)
        if at_once:
            self._granted.append(None)
        return at_once

    def give_back(self):
        self._port.give_back()

    async def perform(self, target, deadline):
        self._granted.append(None if target.limit is None else target.limit / SECOND)
        return await self._port.perform(target, deadline)


class InLoop:
    """Each verb is run in a loop of its own, on the clock's time."""

    def __init__(self, clock, receiver):
        self._clock = clock
        self.task_side = receiver

    def __getattr__(self, name):
        value = getattr(self.task_side, name)
        if not name.startswith(("receive", "resume")):
            return value

        def verb(*args):
            async def main():
                return await value(*args)

            return self._clock.run(main())

        return verb


def scripted(*script, **options):
    """Return clock, scripted stream and receiver of the task colour."""
    clock = FakeClock()
    stream = ScriptedStream(clock, *script)
    stream.granted = []
    receiver = AsyncBudgetedReceiver(stream, **options)
    receiver._port = Recording(receiver._port, stream.granted)
    return clock, stream, InLoop(clock, receiver)


class Forwarding:
    """A port for tasks that forwards to a blocking one, after a turn of the loop."""

    def __init__(self, port):
        self._port = port

    def at_once(self, command):
        return self._port.at_once(command)

    def give_back(self):
        self._port.give_back()

    async def perform(self, command, deadline):
        await asyncio.sleep(0)
        return self._port.perform(command, deadline)


def sender(colour, sock, **options):
    """Return a sender of one colour to a scripted socket; its verbs are called as blocking ones."""
    if colour == "blocking":
        return BudgetedSender(sock, **options)
    made = AsyncBudgetedSender(ScriptedStream(sock.clock), **options)
    made._port = Forwarding(TimeoutSendPort(sock))
    return InTask(made)


class InTask:
    """Each verb is run in a loop of its own; the socket moves the clock."""

    def __init__(self, made):
        self.task_side = made

    def __getattr__(self, name):
        value = getattr(self.task_side, name)
        if name not in ("send_all", "resume"):
            return value
        return lambda *args: asyncio.run(value(*args))
