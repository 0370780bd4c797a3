"""U1: who may change an object; another one's use names both sides."""

from __future__ import annotations

import asyncio
import threading

import pytest

from timebounds import NotOwner, Ownership


def in_thread(fn, name="other"):
    outcome = []

    def run():
        try:
            outcome.append(fn())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    return outcome[0]


def test_a_thread_owns_what_it_has_made():
    """U1."""
    owner = Ownership.thread()
    owner.check("Basket.add")
    error = in_thread(lambda: owner.check("Basket.add"))
    assert type(error) is NotOwner
    me = threading.current_thread().name
    assert str(error) == f"Basket.add belongs to thread {me!r}, and thread 'other' uses it"
    assert repr(owner) == f"<Ownership of thread {me!r}>"


def test_its_owner_may_hand_it_over_to_who_takes_it_next():
    """U1."""
    owner = Ownership.thread()
    assert type(in_thread(owner.hand_over)) is NotOwner
    owner.hand_over()
    assert repr(owner) == "<Ownership of nobody yet>"
    assert in_thread(owner.check, "next") is None
    with pytest.raises(NotOwner, match="it belongs to thread 'next'"):
        owner.check()


def test_a_loop_owns_it_for_all_of_its_tasks():
    """U1."""

    async def main():
        owner = Ownership.loop()
        owner.check()
        await asyncio.create_task(touch(owner))
        error = await asyncio.to_thread(in_thread, owner.check)
        assert "belongs to the event loop in thread" in str(error)
        assert "thread 'other', which runs no loop uses it" in str(error)
        return owner

    async def touch(owner):
        owner.check()

    owner = asyncio.run(main())
    with pytest.raises(NotOwner):
        asyncio.run(touch(owner))
    with pytest.raises(RuntimeError, match="needs a running event loop"):
        Ownership.loop()


def test_whoever_holds_the_lock_owns_it():
    """U1."""
    lock = threading.RLock()
    owner = Ownership.lock(lock)
    with lock:
        owner.check()
        assert type(in_thread(owner.check)) is NotOwner
        owner.hand_over()
        owner.check()
    with pytest.raises(NotOwner, match=r"belongs to whoever holds .*, without the lock uses it"):
        owner.check("Basket.add")
    condition = threading.Condition()
    with condition:
        Ownership.lock(condition).check()
    plain = threading.Lock()
    with pytest.raises(NotOwner):
        Ownership.lock(plain).check()
    with plain:
        Ownership.lock(plain).check()


def test_an_asyncio_lock_is_a_lock_too():
    async def main():
        lock = asyncio.Lock()
        owner = Ownership.lock(lock)
        async with lock:
            owner.check()
        with pytest.raises(NotOwner):
            owner.check()

    asyncio.run(main())


def test_what_is_no_ownership_is_told():
    with pytest.raises(TypeError, match=r"write Ownership\.thread\(\)"):
        Ownership()
    with pytest.raises(TypeError, match="lock must be a lock of threading or asyncio"):
        Ownership.lock(1)
