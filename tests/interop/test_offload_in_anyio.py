"""O11: in anyio's cancel scopes, which cancel again at every turn of the loop.

It neither spins nor leaks; the scopes end as anyio documents; what is owned is closed once, after
the return. And without any scope, anyio merely being loaded changes nothing that one could see.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import threading
import weakref

import pytest
from offloads import Resource, turns, until

from timebounds import Deadline, DeadlineExceeded, ShieldedOffload, offload, offload_report

anyio = pytest.importorskip("anyio", reason="no anyio here: `run.py interop` has it")

IN_ORDER = ["entered", "released", "returned", "closed"]
# A spinning loop makes tens of thousands of turns in this time, an idle one a few.
LONG = 0.3
A_HANDFUL = 30


class Turning(selectors.DefaultSelector):
    """Counts the turns of its loop."""

    turns = 0

    def select(self, timeout=None):
        self.turns += 1
        return super().select(timeout)


def run(main):
    """Run `main(selector)` to its end; what the loop complains about fails the test."""
    stray = []
    selector = Turning()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: stray.append(context))
        try:
            return runner.run(main(selector))
        finally:
            assert stray == []


def far():
    return Deadline.after(60)


async def use(resource, **options):
    """One run over a resource, closed by its scope."""
    async with ShieldedOffload(
        release=resource.release, close=[resource.close], **options
    ) as scope:
        return await scope.run(resource.work, deadline=far())


async def started(resource):
    await until(lambda: "entered" in resource.trace.events)


def judge(resource):
    """Everything happened once, and in order."""
    assert resource.trace.events == IN_ORDER
    assert (resource.closed, resource.releases, resource.wrong) == (1, 1, [])


async def after_it():
    """The task is as good as new: nothing cancels it any more."""
    await turns(3)
    assert asyncio.current_task().cancelling() == 0


class Counted:
    """Awaits a coroutine and counts how often the loop comes back to it."""

    def __init__(self, coroutine):
        self._coroutine = coroutine
        self.wakes = -1  # the first step is its start

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        self.wakes += 1
        return self._coroutine.send(value)

    def throw(self, error):
        self.wakes += 1
        return self._coroutine.throw(error)


# ------------------------------------------------------------------ how the scopes end


def test_move_on_after_moves_on_when_all_is_closed():
    """O11, O1."""

    async def main(_):
        resource = Resource()
        with anyio.move_on_after(0.02) as scope:
            await use(resource)
        assert scope.cancelled_caught
        judge(resource)
        await after_it()

    run(main)


def test_fail_after_fails_when_all_is_closed():
    """O11, O1."""

    async def main(_):
        resource = Resource()
        with pytest.raises(TimeoutError), anyio.fail_after(0.02):
            await use(resource)
        judge(resource)
        await after_it()

    run(main)


def test_a_scope_that_is_not_cancelled_sees_a_value():
    """O11: it is not in the way."""

    async def main(_):
        with anyio.fail_after(20) as scope:
            assert await offload(int, "5", deadline=far()) == 5
        assert not scope.cancel_called

    run(main)


@pytest.mark.parametrize("times", [1, 2, 100])
def test_a_scope_that_is_cancelled_again_and_again_is_cancelled(times):
    """O11, O2: one stop, one release, one close."""

    async def main(_):
        resource = Resource(obeys=False)
        scope = anyio.CancelScope()
        ended = []

        async def inside():
            with scope:
                await use(resource)
            ended.append(scope.cancelled_caught)
            await after_it()

        task = asyncio.create_task(inside())
        await started(resource)
        for _ in range(times):
            scope.cancel()
            await turns(2)
        assert resource.trace.events == IN_ORDER[:2]
        assert not task.done()
        resource.gate.open()
        await task
        assert ended == [True]
        judge(resource)

    run(main)


@pytest.mark.parametrize("which", ["inner", "outer", "both", "inner, then outer"])
def test_of_nested_scopes_the_cancelled_one_ends(which):
    """O11: the error goes to the scope that was cancelled, the outermost of them."""

    async def main(_):
        resource = Resource(obeys=False)
        outer, inner = anyio.CancelScope(), anyio.CancelScope()
        passed = []

        async def inside():
            with outer:
                with inner:
                    await use(resource)
                passed.append("inner")
                await turns()
                passed.append("between")
            passed.append("outer")
            await after_it()

        task = asyncio.create_task(inside())
        await started(resource)
        if which != "outer":
            inner.cancel()
        await turns(2 if "then" in which else 0)
        if which != "inner":
            outer.cancel()
        await turns(3)
        resource.gate.open()
        await task
        judge(resource)
        if which == "inner":
            assert passed == ["inner", "between", "outer"]
        else:
            assert "between" not in passed
            assert passed[-1] == "outer"
            assert outer.cancelled_caught
        assert inner.cancelled_caught == (which == "inner")

    run(main)


def test_a_shielded_scope_keeps_its_parents_cancel_away():
    """O11: what is shielded from a cancel is not asked to stop."""

    async def main(_):
        resource = Resource(obeys=False)
        outer = anyio.CancelScope()
        values = []

        async def inside():
            with outer:
                with anyio.CancelScope(shield=True):
                    values.append(await use(resource))
                await turns()
                values.append("not reached")

        task = asyncio.create_task(inside())
        await started(resource)
        outer.cancel()
        await turns(3)
        assert resource.trace.events == ["entered"]
        resource.gate.open()
        await task
        assert values == [None]
        assert resource.trace.events == ["entered", "returned", "closed"]

    run(main)


def test_a_task_group_waits_for_it_when_a_sibling_fails():
    """O11, O1."""

    class Failed(Exception):
        pass

    async def main(_):
        resources = [Resource(), Resource()]
        closed = []

        async def fail():
            for each in resources:
                await started(each)
            raise Failed

        with pytest.raises(ExceptionGroup) as caught:
            async with anyio.create_task_group() as group:
                for each in resources:
                    group.start_soon(use, each)
                group.start_soon(fail)
        closed += [each.closed for each in resources]
        assert [type(error) for error in caught.value.exceptions] == [Failed]
        assert closed == [1, 1]
        for each in resources:
            judge(each)
        await after_it()

    run(main)


def test_a_task_group_that_is_cancelled_from_inside_ends_quietly():
    """O11."""

    async def main(_):
        resource = Resource()
        async with anyio.create_task_group() as group:
            group.start_soon(use, resource)
            await started(resource)
            group.cancel_scope.cancel()
        judge(resource)
        await after_it()

    run(main)


def test_an_offloads_own_error_beats_the_scopes_cancel():
    """O5, O11: an unexpected error is not swallowed by a scope."""

    class Failed(Exception):
        pass

    async def main(_):
        resource = Resource()

        async def raises():
            async with ShieldedOffload(release=resource.release, close=[resource.close]) as scope:
                await scope.run(resource.work, Failed(), deadline=far())

        with pytest.raises(Failed), anyio.move_on_after(0.02):
            await raises()
        judge(resource)
        await after_it()

    run(main)


@pytest.mark.parametrize("order", ["scope first", "task first", "one turn"])
def test_a_native_cancel_in_a_cancelled_scope_is_no_scopes_to_swallow(order):
    """O2, O11: the task ends cancelled, whatever the scope does."""

    async def main(selector):
        resource = Resource(obeys=False)
        scope = anyio.CancelScope()

        async def inside():
            with scope:
                await use(resource)
            pytest.fail("the native cancel was lost")

        task = asyncio.create_task(inside())
        await started(resource)
        cancels = [scope.cancel, task.cancel]
        for cancel in reversed(cancels) if order == "task first" else cancels:
            cancel()
            await turns(0 if order == "one turn" else 3)
        before = selector.turns
        # A real wait, for it is its turns that are counted.
        await asyncio.wait([task], timeout=LONG)
        assert selector.turns - before < A_HANDFUL, "it spins"
        assert resource.trace.events == IN_ORDER[:2]
        resource.gate.open()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        judge(resource)

    run(main)


# ------------------------------------------------------------------ no spinning


async def shielded(resource):
    await use(resource)


async def alone(resource):
    await offload(resource.work, deadline=far(), release=resource.release)


async def in_the_end(resource):
    """The block is over, and its end waits for a run that nobody awaits."""
    async with ShieldedOffload(release=resource.release, close=[resource.close]) as scope:
        scope.start(resource.work, deadline=far())


async def in_close(resource):
    """The function is quick, and it is the close that takes its time."""
    async with ShieldedOffload(close=[resource.work]) as scope:
        await scope.run(int, deadline=far())


async def in_late_result(resource):
    """A late value is handed over to somebody slow."""
    value = threading.Event()

    def work():
        resource.begun.set()
        value.wait(20)
        return 5

    await offload(work, deadline=far(), release=value.set, on_late_result=lambda _: resource.work())


async def absorbs(resource):
    """Canary: what shields itself by absorbing cancels."""
    task = asyncio.ensure_future(asyncio.to_thread(resource.work))
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    raise asyncio.CancelledError


async def turns_under_a_cancelled_scope(selector, way, resource):
    """How often the loop turns while the way waits under a cancelled scope."""
    scope = anyio.CancelScope()
    resource.begun = threading.Event()

    async def inside():
        with scope:
            await way(resource)

    task = asyncio.create_task(inside())
    if way is in_late_result:
        await until(resource.begun.is_set)
        scope.cancel()
    await started(resource)
    scope.cancel()
    await turns(5)
    before = selector.turns
    await asyncio.wait([task], timeout=LONG)
    seen = selector.turns - before
    assert not task.done()
    resource.gate.open()
    await asyncio.wait([task])
    return seen


@pytest.mark.parametrize("way", [shielded, alone, in_the_end, in_close, in_late_result])
def test_a_long_wait_under_a_cancelled_scope_turns_the_loop_a_handful_of_times(way):
    """O11: it shields itself instead of being told at every turn."""

    async def main(selector):
        resource = Resource(obeys=False)
        assert await turns_under_a_cancelled_scope(selector, way, resource) < A_HANDFUL

    run(main)


def test_what_absorbs_cancels_spins():
    """C: a count that cannot be too high proves nothing."""

    async def main(selector):
        seen = await turns_under_a_cancelled_scope(selector, absorbs, Resource(obeys=False))
        assert seen > 10 * A_HANDFUL

    run(main)


def test_a_group_of_many_under_a_cancelled_scope_does_not_spin_either():
    """O11: none of them keeps the others turning."""

    async def main(selector):
        resources = [Resource(obeys=False) for _ in range(10)]

        async def inside():
            async with anyio.create_task_group() as group:
                for each in resources:
                    group.start_soon(use, each)
                for each in resources:
                    await started(each)
                group.cancel_scope.cancel()

        task = asyncio.create_task(inside())
        await until(lambda: all(each.releases for each in resources))
        await turns(5)
        before = selector.turns
        await asyncio.wait([task], timeout=LONG)
        assert selector.turns - before < A_HANDFUL
        for each in resources:
            each.gate.open()
        await task
        for each in resources:
            judge(each)

    run(main)


# ------------------------------------------------------------------ no leaks, no changes


def test_nothing_keeps_what_was_used_in_a_cancelled_scope():
    """H3, O11: it goes with its last reference, without the collector."""

    async def main(_):
        resource = Resource()
        gone = weakref.ref(resource)
        with anyio.move_on_after(0.02):
            await use(resource)
        judge(resource)
        del resource
        await until(lambda: gone() is None)

    gc.collect()
    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()


@pytest.mark.parametrize("way", [alone, shielded])
def test_where_anyio_is_merely_loaded_a_hundred_cancels_wake_the_task_at_most_twice(way):
    """O2: and one plain CancelledError comes out, with `cancelling()` untouched."""

    async def main(_):
        resource = Resource(obeys=False)
        counted = Counted(way(resource))

        async def wait():
            await counted

        task = asyncio.create_task(wait())
        await started(resource)
        for _ in range(100):
            task.cancel()
            await turns()
        resource.gate.open()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        # A scope's end is a wait of its own, for what it closes in a thread.
        assert counted.wakes <= (2 if way is alone else 3)
        assert task.cancelling() == 100
        assert type(caught.value) is asyncio.CancelledError
        assert offload_report(caught.value) is not None
        assert resource.trace.events[:3] == IN_ORDER[:3]

    run(main)


@pytest.mark.parametrize("around", ["anyio", "asyncio"])
def test_a_deadline_beats_no_scope_and_a_scope_beats_no_deadline(around):
    """O2, O11: whichever is due first ends it, and says so."""
    after = anyio.fail_after if around == "anyio" else asyncio.timeout

    async def main(_):
        resource = Resource()

        async def bounded(seconds):
            await offload(resource.work, deadline=Deadline.after(seconds), release=resource.release)

        if around == "anyio":
            with pytest.raises(DeadlineExceeded), after(20):
                await bounded(0.02)
        else:
            with pytest.raises(DeadlineExceeded):
                async with after(20):
                    await bounded(0.02)
        assert resource.trace.events == IN_ORDER[:3]
        await after_it()

    run(main)


def test_a_run_of_anyios_own_is_as_good():
    """O11: `anyio.run` on its asyncio backend."""

    async def main():
        resource = Resource()
        with anyio.move_on_after(0.02) as scope:
            await use(resource)
        judge(resource)
        return scope.cancelled_caught

    assert anyio.run(main, backend="asyncio")


@pytest.mark.parametrize("where", ["in its task", "elsewhere"])
def test_a_coroutine_that_is_closed_while_it_is_shielded_leaves_in_peace(where):
    """O8, O11: nobody runs it any more, and the shield was of a task that may be gone."""

    async def main(_):
        resource = Resource()
        coroutine = alone(resource)

        async def begin():
            waits = coroutine.send(None)
            await started(resource)
            waits.cancel()
            coroutine.throw(asyncio.CancelledError())
            if where == "in its task":
                coroutine.close()

        await asyncio.create_task(begin())
        coroutine.close()
        await until(lambda: "returned" in resource.trace.events)
        with anyio.move_on_after(0.01) as scope:
            await asyncio.Event().wait()
        assert scope.cancelled_caught

    run(main)
