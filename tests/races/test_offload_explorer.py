"""O1-O8, exhaustively: every placement of cancels, release and return over the loop's turns.

The loop is the real one, and so are the coordinator and its refusing future. Only the thread is
played: an executor whose work is a generator that the explorer steps, at a chosen turn of the loop,
so that a schedule is a choice of numbers and is the same each time.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import selectors
import threading
from contextlib import suppress

import pytest

from timebounds import ShieldedOffload, StopRequested
from timebounds.testing import FakeClock

pytestmark = pytest.mark.slow

TURNS = 8
DEPTH = 3
# One Python explores all; the others the first of every so many schedules.
SHARE = int(os.environ.get("TIMEBOUNDS_EXPLORE", "7"))


class Stepping(selectors.DefaultSelector):
    """Calls a hook before each turn of the loop, which never blocks."""

    hook = None

    def select(self, timeout=None):
        if self.hook is not None:
            self.hook()
            timeout = 0
        return super().select(timeout)


class Machine:
    """The protocol as a state machine: what is allowed to follow what, for one run.

    States: new, inside, returned; beside them asked, committed, released and closed. `see` keeps
    what is no path of it: who sees a step may be any thread.
    """

    def __init__(self):
        self.state = "new"
        self.asked = self.released = self.closed = self.committed = False
        self.begun = False
        self.steps = []
        self.wrong = []

    def see(self, step):
        self.steps.append(step)
        allowed = {
            "entered": self.state == "new" and not self.closed,
            "asked": not self.asked,
            "committed": self.state == "inside" and not self.asked,
            "released": self.state == "inside"
            and self.asked
            and not self.released
            and not self.committed,
            "returned": self.state == "inside",
            "closed": self.state in ("new", "returned") and not self.closed,
        }[step]
        if not allowed:
            self.wrong.append(f"{step} after {self.steps[:-1]}")
            return
        if step in ("entered", "returned"):
            self.state = {"entered": "inside", "returned": "returned"}[step]
        else:
            setattr(self, step, True)


def explored_by(model):
    """All states of the machine, by enumeration: that the checks above can be met and failed."""
    steps = ("entered", "asked", "committed", "released", "returned", "closed")
    seen, todo = set(), [()]
    while todo:
        path = todo.pop()
        machine = model()
        for step in path:
            machine.see(step)
        if machine.wrong:
            continue
        key = (machine.state, machine.asked, machine.released, machine.closed, machine.committed)
        if key in seen and len(path) > 1:
            continue
        seen.add(key)
        todo.extend((*path, step) for step in steps)
    return seen


def test_the_protocol_has_few_states_and_never_closes_what_is_in_use():
    """O1: the machine by itself."""
    states = explored_by(Machine)
    assert 8 < len(states) < 40
    assert not [state for state in states if state[0] == "inside" and state[3]]
    assert not [state for state in states if state[2] and not state[1]]


class Thread:
    """An executor of one thread that is stepped: entered, works, returns when it is told."""

    def __init__(self, machine):
        self.machine = machine
        self.work = None
        self.let_go = threading.Event()
        self.entered = threading.Event()
        self.real = None

    def submit(self, work):
        self.work = work

    def enter(self):
        """Begin the work in a real thread and wait until it is inside, or was withdrawn."""
        if self.work is None or self.real is not None:
            return
        self.real = threading.Thread(target=self._run, daemon=True)
        self.real.start()
        self.entered.wait(5)

    def _run(self):
        try:
            self.work()
        finally:
            self.entered.set()

    def come_back(self):
        """Let the function return and wait until its thread is done with it."""
        self.let_go.set()
        if self.real is not None:
            self.real.join(5)
            assert not self.real.is_alive()


class Failed(Exception):
    pass


class Closers:
    """The pool that closes: what it is given is run in a thread at the next turn."""

    def __init__(self):
        self.work = []

    def submit(self, work):
        self.work.append(work)

    def run(self):
        while self.work:
            thread = threading.Thread(target=self.work.pop())
            thread.start()
            thread.join()


@pytest.fixture
def table(monkeypatch):
    """A loop whose turns are steps, and the threads that close; one for many schedules."""
    selector, closers = Stepping(), Closers()
    monkeypatch.setattr("timebounds.bounds.custody.CARE", closers)
    loop = asyncio.SelectorEventLoop(selector)
    yield loop, selector, closers
    selector.hook = None
    loop.close()


def play(table, coordinator, cancels, enter_at, return_at, outcome, bound=None):
    """Play one schedule: at turn `enter_at` the thread begins, at `return_at` it returns.

    Returns what was seen: the machine, the task, its ending, the cancels that came in time, and
    what asyncio complained about.
    """
    loop, selector, closers = table
    machine = Machine()
    thread = Thread(machine)
    clock = FakeClock()
    stray = []
    loop.set_exception_handler(lambda _, context: stray.append(context["message"]))

    def function(job=None):
        machine.see("entered")
        thread.entered.set()
        assert thread.let_go.wait(5)
        if outcome == "commit" and job is not None:
            with suppress(StopRequested):
                job.commit()
                machine.see("committed")
        machine.see("returned")
        if outcome == "error":
            raise Failed
        if outcome == "stopped" and job is not None:
            job.deadline.check()
        return "value"

    async def use():
        machine.begun = True
        return await coordinator(function, machine, thread, clock.deadline(1))

    task = loop.create_task(use())
    turn = arrived = 0

    def step():
        nonlocal turn, arrived
        turn += 1
        closers.run()
        if turn in cancels:
            arrived += task.cancel()
        if turn == bound:
            clock.advance(1)
        if turn >= enter_at:
            thread.enter()
        if turn >= return_at:
            thread.come_back()
        assert turn < 200, f"it hangs after {machine.steps}"

    selector.hook = step
    try:
        loop.run_until_complete(asyncio.wait([task]))
    finally:
        selector.hook = None
        thread.come_back()
        loop.run_until_complete(asyncio.sleep(0))
    return machine, task, _ending(task), arrived, stray


def _ending(task):
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    return task.result() if error is None else type(error).__name__


async def good(function, machine, thread, deadline):
    def release():
        machine.see("released")

    async with ShieldedOffload(
        release=release, close=[lambda: machine.see("closed")], executor=thread
    ) as scope:
        handle = scope.start_job(function, deadline=deadline)
        handle._work.stop.on_request(lambda: machine.see("asked"))
        return await handle


def check(machine, task, ending, arrived, stray):
    """What holds for every schedule."""
    assert stray == []
    assert machine.wrong == [], machine.wrong
    # Cancelled before its first step, a task owns nothing.
    assert machine.closed is machine.begun, machine.steps
    assert machine.state in ("new", "returned"), machine.steps
    assert task.cancelling() == arrived, "every cancel is counted, and none is taken back"
    if arrived:
        # Only an unexpected error beats a cancel.
        assert ending in ("cancelled", "Failed"), ending
    else:
        assert ending in ("value", "Failed", "StopRequested", "DeadlineExceeded"), ending


def schedules(depth, bound=None):
    for count in range(depth + 1):
        for cancels in itertools.combinations(range(1, TURNS + 1), count):
            for enter_at in range(1, TURNS + 1):
                for return_at in range(enter_at, TURNS + 2):
                    yield set(cancels), enter_at, return_at, bound


OUTCOMES = ("value", "error", "stopped", "commit")
BOUNDS = (None, 2, 4, 6)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_schedule_keeps_the_protocol(table, outcome, bound):
    """O1-O5, A47, A49: cancels to depth three, at every turn, beside the deadline's."""
    played = never = 0
    endings = {}
    for number, schedule in enumerate(schedules(DEPTH, bound)):
        if number % SHARE:
            continue
        cancels, enter_at, return_at, bound = schedule
        found = play(table, good, cancels, enter_at, return_at, outcome, bound)
        try:
            check(*found)
        except AssertionError as error:
            error.add_note(f"{cancels=} {enter_at=} {return_at=} {outcome=} {bound=}")
            raise
        played += 1
        endings[found[2]] = endings.get(found[2], 0) + 1
        never += found[0].state == "new"
    # What has to have been met often, or the exploration looked past it.
    wanted = {"cancelled"}
    if bound in (2, 4):
        wanted.add("DeadlineExceeded")
    elif bound is None and outcome == "error":
        wanted.add("Failed")
    assert wanted <= {name for name, times in endings.items() if times > played // 200}, endings
    assert never
    # All of them together are more than 65,000.
    assert played * SHARE >= 4_092 - SHARE


# ------------------------------------------------------------------ known-bad coordinators


def in_thread(function, thread):
    """Run the function in the played thread; return a future of the loop's."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle(value, error):
        if not future.done():
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

    def work():
        value = error = None
        try:
            value = function()
        except Exception as caught:
            error = caught
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, error)

    thread.submit(work)
    return future


async def closes_at_once(function, machine, thread, deadline):
    """What `asyncio.to_thread` in a try and finally does."""
    try:
        return await in_thread(function, thread)
    finally:
        machine.see("closed")


async def shields_once(function, machine, thread, deadline):
    """A second cancel escapes from the clean-up."""
    future = in_thread(function, thread)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        machine.see("asked")
        if machine.state == "inside":
            machine.see("released")
        await asyncio.shield(future)
        raise
    finally:
        machine.see("closed")


async def forgets_the_cancel(function, machine, thread, deadline):
    """It absorbs every cancel and returns normally."""
    future = in_thread(function, thread)
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    machine.see("closed")
    return future.result()


async def takes_cancels_back(function, machine, thread, deadline):
    """It uncancels what it did not cancel."""
    future = in_thread(function, thread)
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
            asyncio.current_task().uncancel()
    machine.see("closed")
    if cancelled:
        raise asyncio.CancelledError
    return future.result()


async def releases_for_every_cancel(function, machine, thread, deadline):
    """Each cancel releases again."""
    future = in_thread(function, thread)
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            if not machine.asked:
                machine.see("asked")
            if machine.state == "inside":
                machine.see("released")
    machine.see("closed")
    if cancelled is not None:
        raise cancelled
    return future.result()


async def forgets_to_close(function, machine, thread, deadline):
    """A cancel that comes before the wait begins skips the clean-up."""
    await asyncio.sleep(0)
    future = in_thread(function, thread)
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    machine.see("closed")
    if cancelled is not None:
        raise cancelled
    return future.result()


BAD = (
    closes_at_once,
    shields_once,
    forgets_the_cancel,
    takes_cancels_back,
    releases_for_every_cancel,
    forgets_to_close,
)


@pytest.mark.parametrize("coordinator", BAD)
def test_a_known_bad_coordinator_is_rejected(table, coordinator):
    """The canaries: each is found within the first few hundred schedules."""
    for cancels, enter_at, return_at, _ in itertools.islice(schedules(2), 1_500):
        found = play(table, coordinator, cancels, enter_at, return_at, "value")
        try:
            check(*found)
        except AssertionError:
            return
    pytest.fail(f"{coordinator.__name__} was not rejected")
