"""O2, O11: the completion that refuses cancels, with and without a library of cancel scopes."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest
from offloads import turns, until

from timebounds.aio.completion import Hold


class Waiting:
    """A task that waits at a hold until `over`."""

    def __init__(self):
        self.hold = Hold()
        self.over = False
        self.cancels = 0
        self.looks = 0
        self.task = asyncio.create_task(self.wait())

    def is_over(self):
        self.looks += 1
        return self.over

    def refuse(self):
        self.cancels += 1

    async def wait(self):
        return await self.hold.wait(self.is_over, self.refuse)

    def end(self):
        self.over = True
        self.hold.wake()


@pytest.fixture
def scopes(monkeypatch):
    """What stands in for anyio: a module with a CancelScope; the list of what was done to them."""
    done = []

    class CancelScope:
        leaving = None

        def __init__(self, *, shield):
            done.append(f"made, shield={shield}")

        def __enter__(self):
            done.append("entered")

        def __exit__(self, *exc_info):
            done.append("left")
            if CancelScope.leaving is not None:
                raise CancelScope.leaving

    monkeypatch.setitem(sys.modules, "anyio", SimpleNamespace(CancelScope=CancelScope))
    return SimpleNamespace(done=done, scope=CancelScope)


def test_a_cancel_is_refused_and_told_and_comes_out_as_soon_as_it_is_over(monkeypatch):
    """O2: without anyio the task is woken once, at the end."""
    monkeypatch.setitem(sys.modules, "anyio", None)

    async def main():
        waiting = Waiting()
        await turns()
        for _ in range(5):
            waiting.task.cancel()
            await turns()
        assert (waiting.cancels, waiting.looks) == (5, 1)
        waiting.end()
        assert isinstance(await waiting.task, asyncio.CancelledError)
        assert waiting.looks == 2

    asyncio.run(main())


def test_a_wake_that_is_for_nothing_goes_on_waiting():
    """O2: who wakes need not know whether it is over."""

    async def main():
        waiting = Waiting()
        waiting.hold.wake()  # nobody waits yet
        await turns()
        waiting.hold.wake()
        waiting.hold.wake()
        await turns(2)
        assert not waiting.task.done()
        waiting.end()
        assert await waiting.task is None

    asyncio.run(main())


def test_where_scopes_are_loaded_the_first_cancel_is_let_through_and_shields(scopes):
    """O11: later ones are refused; the shield ends with the wait."""

    async def main():
        waiting = Waiting()
        await turns()
        for _ in range(5):
            waiting.task.cancel()
            await turns(2)
        assert (waiting.cancels, waiting.looks) == (5, 2)
        assert scopes.done == ["made, shield=True", "entered"]
        waiting.end()
        assert isinstance(await waiting.task, asyncio.CancelledError)
        assert scopes.done == ["made, shield=True", "entered", "left"]

    asyncio.run(main())


def test_a_wait_that_no_cancel_meets_makes_no_scope(scopes):
    """O11."""

    async def main():
        waiting = Waiting()
        await turns()
        waiting.end()
        assert await waiting.task is None
        assert scopes.done == []

    asyncio.run(main())


def test_a_foreign_threads_cancel_is_refused_even_where_scopes_are_loaded(scopes):
    """O2, O11: to let it through would touch the loop from a thread that must not."""

    async def main():
        waiting = Waiting()
        await turns()
        errors = []

        def cancel():
            try:
                waiting.task.cancel()
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=cancel)
        thread.start()
        await until(lambda: not thread.is_alive())
        await turns(2)
        assert errors == []
        assert (waiting.cancels, waiting.looks, scopes.done) == (1, 1, [])
        waiting.end()
        assert isinstance(await waiting.task, asyncio.CancelledError)

    asyncio.run(main(), debug=True)


def test_a_shield_that_can_not_be_left_does_not_keep_the_coroutine_from_closing(scopes):
    """O8, O11: it was of a task that does not run the coroutine any more."""
    scopes.scope.leaving = RuntimeError("another task")

    async def main():
        coroutine = Hold().wait(lambda: False, lambda: None)
        coroutine.send(None).cancel()
        coroutine.throw(asyncio.CancelledError())
        coroutine.close()
        assert scopes.done == ["made, shield=True", "entered", "left"]

    asyncio.run(main())
