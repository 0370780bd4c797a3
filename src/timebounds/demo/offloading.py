"""Part three: a cancelled task, a thread that still reads its socket, and who closes it when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, NamedTuple, final

from timebounds import MONOTONIC, Deadline, ShieldedOffload, shut_reading
from timebounds.demo import flags
from timebounds.demo.lanes import Bar, Lane, Lanes, Mark, Span
from timebounds.demo.loopback import best, tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timebounds import Job
    from timebounds.demo.story import Story

__all__ = ["Seen", "coordinated", "tell", "uncoordinated"]

# Seconds between two steps, so that they can be told apart in a drawing.
STEP = 0.1
CANCELS = 100
BATCH = 10
SPAN = 0.625
# No run comes near it; a demo that goes wrong ends there.
LIMIT = 10.0

ALONE = ("thread:started", "caller:cancelled-error", "caller:released", "thread:side-effect")
TOGETHER = (
    "thread:started",
    "stop:requested",
    "read:released",
    "thread:returned",
    "resource:closed",
    "caller:cancelled-error",
)
# What the library's own report adds to what was seen from outside.
REPORTED = {
    "stop requested": "stop:requested",
    "stop observed": "stop:observed",
    "returned": "thread:returned",
}


class Seen(NamedTuple):
    """What was seen of one cancelled call."""

    events: tuple[tuple[str, float], ...]
    """What happened, and when, in order."""
    descriptor: int
    """The socket's, at the last line of the function; -1 when it was closed by then."""
    effects: int
    closings: int
    errors: int
    """How many times CancelledError came out of the call."""
    cancelling: int
    """How many cancels the task counts in the end."""

    def order(self, among: Sequence[str]) -> tuple[str, ...]:
        """Return the order of these events, as far as they came."""
        return tuple(name for name, _ in self.events if name in among)

    def at(self, name: str) -> float:
        """Return when that was; if it never was, when all was over."""
        return dict(self.events).get(name, self.events[-1][1])

    def marks(self, **names: str) -> tuple[tuple[Mark, float], ...]:
        """Return the marks of those events that came; each is named by its mark."""
        times = dict(self.events)
        found = [(Mark[mark], times[name]) for mark, name in names.items() if name in times]
        return tuple(sorted(found, key=lambda mark: mark[1]))


@final
class _Stage:
    """A pair of sockets, a function that reads from one of them, and notes of what happened."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.began = MONOTONIC.now()
        self.events: list[tuple[str, float]] = []
        self.descriptor = -1
        self.closings = self.errors = self.effects = 0
        self.started = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def note(self, event: str) -> None:
        """Note an event, from any thread."""
        self.events.append((event, MONOTONIC.now() - self.began))

    def read(self) -> None:
        """Wait for one byte, in a thread and without any limit."""
        self.note("thread:started")
        self._loop.call_soon_threadsafe(self.started.set)
        self.ours.recv(1)

    def act(self) -> None:
        """Do what cannot be undone."""
        self.effects += 1
        self.note("thread:side-effect")

    def reading(self) -> None:
        """Read, and act; knows nothing of stops."""
        self.read()
        self.act()
        self.descriptor = self.ours.fileno()

    def reading_job(self, job: Job) -> None:
        """Read, and act unless a stop was requested; tidy up."""
        try:
            self.read()
            MONOTONIC.sleep(STEP)
            job.deadline.check("the read")
            self.act()
        finally:
            MONOTONIC.sleep(STEP)
            self.descriptor = self.ours.fileno()

    def release(self) -> None:
        """Let the read return."""
        self.note("read:released")
        shut_reading(self.ours)()

    def close(self) -> None:
        """Close the socket; as a database would, it takes its time."""
        MONOTONIC.sleep(STEP)
        self.closings += 1
        self.ours.close()
        self.note("resource:closed")

    def caught(self) -> None:
        """Note the one error that comes out."""
        self.errors += 1
        self.note("caller:cancelled-error")

    def seen(self, cancelling: int) -> Seen:
        """Return what there was."""
        events = tuple(sorted(self.events, key=lambda event: event[1]))
        return Seen(events, self.descriptor, self.effects, self.closings, self.errors, cancelling)


def uncoordinated() -> Seen:
    """Cancel `asyncio.to_thread` around a read; its caller closes the socket, as callers do."""

    async def call(stage: _Stage) -> None:
        try:
            await asyncio.to_thread(stage.reading)
        except asyncio.CancelledError:
            stage.caught()
            raise
        finally:
            stage.closings += 1
            stage.ours.close()
            stage.note("caller:released")

    async def main() -> Seen:
        stage = _Stage()
        with stage.theirs, contextlib.closing(stage.ours):
            task = asyncio.create_task(call(stage))
            await stage.started.wait()
            await asyncio.sleep(2 * STEP)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(2 * STEP)
            stage.theirs.sendall(b"!")
            # The thread is still inside.
            await asyncio.get_running_loop().shutdown_default_executor()
        return stage.seen(task.cancelling())

    return asyncio.run(main())


def coordinated() -> Seen:
    """Cancel the same read a hundred times in a `ShieldedOffload`, which closes the socket."""

    async def call(stage: _Stage, scope: ShieldedOffload) -> None:
        began = MONOTONIC.now() - stage.began
        try:
            async with scope:
                await scope.run_job(stage.reading_job, deadline=Deadline.after(LIMIT))
        except asyncio.CancelledError:
            stage.caught()
            raise
        finally:
            steps = [step for report in scope.reports for step in report.steps]
            stage.events += [(REPORTED[name], began + at) for name, at in steps if name in REPORTED]

    async def main() -> Seen:
        stage = _Stage()
        with stage.theirs, contextlib.closing(stage.ours):
            scope = ShieldedOffload(release=stage.release, close=[stage.close])
            task = asyncio.create_task(call(stage, scope))
            await stage.started.wait()
            await asyncio.sleep(2 * STEP)
            for _ in range(CANCELS // BATCH):
                for _ in range(BATCH):
                    task.cancel()
                await asyncio.sleep(STEP / 4)
            await asyncio.wait([task])
        return stage.seen(task.cancelling())

    return asyncio.run(main())


def tell(story: Story) -> None:
    """Cancel the same read without and with a coordinator; then see what a flag is good for."""
    story.head(
        "Part three: a cancelled task, and its thread",
        "A thread waits for a byte from a socket. The task that awaits it is cancelled",
        f"after {2 * STEP:g} s.",
    )
    story.explain_lanes()
    _tell_uncoordinated(story)
    _tell_coordinated(story)
    flags.tell(story)


def _tell_uncoordinated(story: Story) -> None:
    def good(found: Seen) -> bool:
        return found.order(ALONE) == ALONE and found.descriptor == -1

    found, tries = best(uncoordinated, good)
    left, over = found.at("caller:cancelled-error"), found.at("thread:side-effect")
    task = Lane(
        "task",
        (Span(0.0, left, Bar.BUSY),),
        found.marks(CANCELLED="caller:cancelled-error", CLOSED="caller:released"),
    )
    thread = Lane(
        "thread",
        (Span(0.0, left, Bar.BUSY), Span(left, over, Bar.ALONE)),
        found.marks(EFFECT="thread:side-effect"),
        f"fd {found.descriptor} at its end",
    )
    verdict = (
        f"the caller has left for {over - left:.3f} s when the thread acts{tried(tries)}",
        *_trace(found.order(ALONE)),
    )
    story.show_lanes(Lanes("asyncio.to_thread, cancelled", (task, thread), SPAN, verdict))
    story.claim(
        "to_thread: the caller released, and the side effect came afterwards",
        held=found.order(ALONE) == ALONE and found.effects == 1,
    )
    story.claim("to_thread: the socket was closed under the thread", held=found.descriptor == -1)


def _tell_coordinated(story: Story) -> None:
    def good(found: Seen) -> bool:
        return found.order(TOGETHER) == TOGETHER and found.cancelling == CANCELS

    found, tries = best(coordinated, good)
    asked, over = found.at("stop:requested"), found.at("caller:cancelled-error")
    task = Lane(
        "task",
        (Span(0.0, asked, Bar.BUSY), Span(asked, over, Bar.HELD)),
        found.marks(REQUESTED="stop:requested", CANCELLED="caller:cancelled-error"),
        f"{found.cancelling} cancels",
    )
    thread = Lane(
        "thread",
        (Span(0.0, asked, Bar.BUSY), Span(asked, found.at("resource:closed"), Bar.HELD)),
        found.marks(
            WOKEN="read:released",
            OBSERVED="stop:observed",
            FINISHED="thread:returned",
            CLOSED="resource:closed",
        ),
        f"fd {found.descriptor} at its end",
    )
    verdict = (
        f"the caller leaves {over - asked:.3f} s after the first cancel{tried(tries)}",
        *_trace(found.order(TOGETHER)),
    )
    title = "ShieldedOffload, cancelled; each step was given 0.1 s of work"
    story.show_lanes(Lanes(title, (task, thread), SPAN, verdict))
    story.claim(
        "ShieldedOffload: stop, release, return, close; then the cancellation",
        held=found.order(TOGETHER) == TOGETHER,
    )
    story.claim(
        "ShieldedOffload: the socket was open at the function's last line",
        held=found.descriptor >= 0,
    )
    story.claim("ShieldedOffload: it was closed once", held=found.closings == 1)
    story.claim(
        f"ShieldedOffload: {CANCELS} cancels, one CancelledError, no side effect",
        held=(found.cancelling, found.errors, found.effects) == (CANCELS, 1, 0),
    )


def _trace(order: Sequence[str]) -> tuple[str, ...]:
    """Return the events of a trace, a few on a line."""
    lines = [", ".join(order[at : at + 3]) for at in range(0, len(order), 3)]
    return tuple(f"{line}," for line in lines[:-1]) + tuple(lines[-1:])
