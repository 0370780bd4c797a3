"""Plans, ports and drivers: each rule is written once and runs in both colours.

- A *plan* is a generator that decides. It yields a small command, is sent `(now, answer)`, and
  returns a report. It never blocks and never reads a clock: `now` in nanoseconds comes with every
  answer, so a plan is tested by sending it numbers.
- A *port* does, and never decides: `perform(command)` carries out one command and answers. What
  goes wrong beyond the answers that a command knows is raised, and ends the plan.
- A *driver* connects the two. `drive` and `adrive` are the only fork between threads and tasks.

The one command of every conversation is `Pause`, which the deadline's own clock carries out. A stop
ends it early: the plan looks whether one was requested.

What must not live here: sockets, and what any conversation is about.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, final

from timebounds._checks import NS
from timebounds._values import Value
from timebounds.bounds.alarm import not_backwards
from timebounds.bounds.waking import wait_in_task, wait_in_thread

if TYPE_CHECKING:
    from timebounds.bounds.deadline import Deadline

CommandT = TypeVar("CommandT")
CommandT_contra = TypeVar("CommandT_contra", contravariant=True)
AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)
ReportT = TypeVar("ReportT")


@final
class Pause(Value):
    """Command: sleep `ns` nanoseconds on the deadline's clock. Its answer is None.

    With 0 it only looks at the clock, and lets other tasks run.
    """

    __slots__ = ("ns",)

    ns: int

    def __init__(self, ns: int) -> None:
        self._set(ns=ns)


# Any: a Pause is answered by None, every other command by the port's own kind of answer.
Plan = Generator[CommandT | Pause, tuple[int, Any], ReportT]


@final
class Reply(Enum):
    """How a port answers a command that waits."""

    ANSWER = "answer"
    """The stream answered: bytes have moved, or none came, which is its end."""
    SILENCE = "silence"
    """The limit passed without an answer."""


class Timed(Protocol):
    """A command to move at most `ask` bytes, waiting at most `limit` ns from the instant `since`.

    A `limit` of None is none.
    """

    ask: int
    limit: int | None
    since: int


class Port(Protocol[CommandT_contra, AnswerT_co]):
    """Carries out commands in a thread, waiting on the deadline's clock."""

    def perform(self, command: CommandT_contra, deadline: Deadline, /) -> AnswerT_co:
        """Carry out one command and answer it."""
        ...


class AsyncPort(Protocol[CommandT_contra, AnswerT_co]):
    """Carries out commands in a task, waiting on the deadline's clock."""

    async def perform(self, command: CommandT_contra, deadline: Deadline, /) -> AnswerT_co:
        """Carry out one command and answer it."""
        ...


class _OneTurn:
    """Lets the loop make one turn; needs none to be imported."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def nap(deadline: Deadline, command: Pause) -> None:
    """Carry out a pause in a thread."""
    if command.ns == 0:
        return
    stop = deadline._stop
    if stop is None:
        deadline.clock.sleep(command.ns / NS)
    else:
        wait_in_thread(stop, deadline.within(command.ns / NS))


async def one_turn() -> None:
    """Let the loop make one turn."""
    await _OneTurn()


async def pause(deadline: Deadline, command: Pause) -> None:
    """Carry out a pause in a task."""
    stop = deadline._stop
    if command.ns == 0:
        await one_turn()
    elif stop is None:
        await deadline.clock.asleep(command.ns / NS)
    else:
        await wait_in_task(stop, deadline.within(command.ns / NS))


def drive(
    plan: Plan[CommandT, ReportT], port: Port[CommandT, AnswerT], deadline: Deadline, now: int
) -> ReportT:
    """Run `plan`, which began at `now`, in this thread and return its report.

    An exception of the port, or of the clock's sleep, passes through as it is.
    """
    read = deadline._now
    message: Any = None
    while True:
        try:
            command = plan.send(message)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer: AnswerT | None = None
        try:
            if isinstance(command, Pause):
                nap(deadline, command)
            else:
                answer = port.perform(command, deadline)
            before, now = now, read()
            if now < before:
                not_backwards(before, now)
        except BaseException:
            # At once, not when the traceback lets go of it: what it holds it gives back now.
            plan.close()
            raise
        message = (now, answer)


async def adrive(
    plan: Plan[CommandT, ReportT], port: AsyncPort[CommandT, AnswerT], deadline: Deadline, now: int
) -> ReportT:
    """Run `plan`, which began at `now`, in this task and return its report.

    An exception of the port, or of the clock's sleep, passes through as it is; so does a cancel.
    """
    read = deadline._now
    message: Any = None
    while True:
        try:
            command = plan.send(message)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer: AnswerT | None = None
        try:
            if isinstance(command, Pause):
                await pause(deadline, command)
            else:
                answer = await port.perform(command, deadline)
            before, now = now, read()
            if now < before:
                not_backwards(before, now)
        except BaseException:
            # At once, not when the traceback lets go of it: what it holds it gives back now.
            plan.close()
            raise
        message = (now, answer)
