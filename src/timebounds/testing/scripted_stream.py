"""`ScriptedStream`: what `ScriptedSocket` is, as a stream reader for tasks.

The same rules: a scripted delay counts from the start of the read that meets it, the rest of an
unfinished one is carried to the next read, and `Silence` uses up one read. Time is moved by the
loop on fake time in which it is read (`clock.run`), or by whoever advances the clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

from timebounds._checks import nanoseconds, running_loop
from timebounds.testing.scripted_socket import Data, End, Failure, Silence, checked

if TYPE_CHECKING:
    import asyncio

    from timebounds.testing.fake_clock import FakeClock
    from timebounds.testing.scripted_socket import Step

__all__ = ["ScriptedStream"]


@final
class ScriptedStream:
    """A stream reader by its `read`, a script by its nature; `sent` records what was written.

    Args:
        clock: the fake clock on which the script's delays lie.
        script: the steps, in order; `extend` adds more.
    """

    def __init__(self, clock: FakeClock, *script: Step) -> None:
        self.clock: FakeClock = clock
        self._script: deque[Step] = deque(checked(script))
        self._waited = 0
        self.reads: int = 0
        self.sent: bytearray = bytearray()

    def extend(self, *steps: Step) -> None:
        """Add steps to the end of the script."""
        self._script.extend(checked(steps))

    @property
    def unread(self) -> bytes:
        """The scripted bytes that nobody has read yet."""
        return b"".join(step.data for step in self._script if isinstance(step, Data))

    def write(self, data: bytes) -> None:
        """Accept all of `data` at once, as a stream writer does."""
        self.sent += data

    async def drain(self) -> None:
        """Return at once: nothing waits to be sent."""

    @property
    def transport(self) -> ScriptedStream:
        """What a sender asks how much waits to be sent: this."""
        return self

    def is_closing(self) -> bool:
        """Say whether it takes nothing more: it does."""
        return False

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent: none."""
        return 0

    async def read(self, n: int = -1, /) -> bytes:
        """Follow the script for one read."""
        self.reads += 1
        step = self._script[0] if self._script else Silence()
        if isinstance(step, Silence):
            return await self._silence()
        await self._until(nanoseconds(step.after, "after"))
        if isinstance(step, End):
            self._script[0] = End()
            return b""
        self._script.popleft()
        if isinstance(step, Failure):
            raise step.error
        size = len(step.data) if n < 0 else n
        if len(step.data) > size:
            self._script.appendleft(Data(step.data[size:]))
        return step.data[:size]

    async def _silence(self) -> bytes:
        """Wait until the read is given up, which uses the silence up."""
        try:
            never: asyncio.Future[bytes] = running_loop().create_future()
            return await never
        finally:
            if self._script:
                self._script.popleft()

    async def _until(self, delay: int) -> None:
        """Wait out what is left of a step's delay; keep count of what was waited in vain."""
        began = self.clock.now_ns()
        left = delay - self._waited
        if left > 0:
            due = running_loop().create_future()
            alarm = self.clock.alarm(left / 1e9, lambda: due.done() or due.set_result(None))
            try:
                await due
            except BaseException:
                self._waited += self.clock.now_ns() - began
                raise
            finally:
                alarm.cancel()
        self._waited = 0
