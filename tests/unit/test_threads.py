"""The pool of daemon threads: bounded, reused, never left waiting with work in line."""

from __future__ import annotations

import os
import threading
import time

import pytest
from moments import until

from timebounds.bounds._threads import Pool
from timebounds.testing import Gate


@pytest.fixture
def pool():
    made = Pool(limit=2, linger=0.02)
    yield made
    # Its threads end by themselves.
    limit = time.monotonic() + 20
    while made.threads:
        assert time.monotonic() < limit, "a thread did not end"
        threading.Event().wait(0.001)


def test_work_runs_in_a_daemon_thread_that_is_used_again(pool):
    """O6, O9: a hanging one does not hold up the process; an idle one takes the next work."""
    pool._linger = 5.0
    threads = []
    for n in range(5):
        pool.submit(lambda: threads.append(threading.current_thread()))
        until(lambda: len(threads) == n + 1 and pool.resting)  # noqa: B023  (at once)
    assert len(set(threads)) == 1
    assert threads[0].daemon
    assert threads[0].name == "timebounds worker"
    assert pool.resting == {threads[0]}
    pool._linger = 0.0
    pool.submit(int)


def test_no_more_threads_than_the_limit_and_nothing_is_left_in_line(pool):
    """O9: beyond the limit work waits in order, and each runs exactly once."""
    gates = [Gate(f"gate {n}") for n in range(2)]
    ran = []
    for gate in gates:
        pool.submit(gate.enter)
    for gate in gates:
        gate.wait_arrived()
    for n in range(10):
        pool.submit(lambda n=n: ran.append(n))
    assert len(pool.threads) == 2
    assert ran == []
    gates[0].open()
    until(lambda: len(ran) == 10)
    assert ran == list(range(10))
    gates[1].open()


def test_what_work_raises_goes_to_the_hook_and_the_next_work_runs(pool, monkeypatch):
    """O7: whatever it was."""
    told, ran = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))

    def fail():
        raise SystemExit(3)

    pool.submit(fail)
    until(lambda: told)
    pool.submit(lambda: ran.append(1))
    until(lambda: ran)
    assert [type(each) for each in told] == [SystemExit]


def test_work_counts_until_what_it_owned_has_closed(pool):
    """A look for what is left behind waits for the count, and no longer than that."""
    seen, gate = [], Gate("under way")

    class Owned:
        def __del__(self):
            seen.append(pool.working())

        def work(self):
            seen.append(pool.working())
            gate.enter()

    pool.submit(Owned().work)
    gate.wait_arrived()
    gate.open()
    until(lambda: len(seen) == 2 and not pool.working())
    assert seen == [1, 1]


def test_work_handed_in_while_a_thread_ends_is_not_stranded(pool):
    """Who stores looks afterwards: one of the two sees the other, in many rounds."""
    pool._linger = 0.0
    ran = []
    for n in range(3_000):
        pool.submit(lambda: ran.append(1))
        if n % 3 == 0:
            until(lambda: len(ran) == n + 1)  # noqa: B023  (at once)
    until(lambda: len(ran) == 3_000)


def test_a_thread_that_can_not_start_takes_nothing_with_it(pool, monkeypatch):
    """O6: the caller is told, unless another thread will come to it."""

    def refuse(self):
        raise RuntimeError("can't start new thread")

    ran = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            pool.submit(lambda: ran.append("never"))
    gate = Gate("busy")
    pool.submit(gate.enter)
    gate.wait_arrived()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        pool.submit(lambda: ran.append("later"))
    gate.open()
    until(lambda: ran == ["later"])


def test_an_interrupt_at_the_start_of_a_thread_costs_nothing_for_long(pool, monkeypatch):
    """O8: the work is in line, the next who hands in finds that a thread is wanted."""

    def interrupt(self):
        raise KeyboardInterrupt

    ran = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupt)
        for n in range(5):
            with pytest.raises(KeyboardInterrupt):
                pool.submit(lambda n=n: ran.append(n))
    assert pool.threads == {}
    pool.submit(lambda: ran.append("last"))
    until(lambda: len(ran) == 6)
    assert set(ran) == {0, 1, 2, 3, 4, "last"}


def test_a_thread_that_never_started_holds_no_place(pool):
    """O8: an interrupt came between its entry and its start."""
    for _ in range(2):
        pool.threads[threading.Thread()] = None
    ran = []
    pool.submit(lambda: ran.append(1))
    until(lambda: ran)


def test_a_thread_that_can_not_call_for_another_does_the_work_itself(pool, monkeypatch):
    """O6."""
    ran, start = [], threading.Thread.start

    def refuse(thread):
        if threading.current_thread() in pool.threads:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for n in range(3):
        pool._line.put((None, lambda n=n: ran.append(n)))
    pool._staff()
    until(lambda: len(ran) == 3)
    assert ran == [0, 1, 2]


def test_a_pool_begins_anew_in_every_forked_child(pool, monkeypatch):
    """O6: it asks for that once, when it is first used."""
    asked = []
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: asked.append(hooks))
    for _ in range(2):
        pool.submit(int)
    assert asked == [{"after_in_child": pool._forget}]


def test_a_busy_thread_that_was_counted_on_calls_for_another(pool):
    """Who has taken work looks once more: what came meanwhile does not wait behind it."""
    gate, ran = Gate("first"), []
    pool.resting.add(None)  # as if one were still seen waiting that has just taken work
    pool._line.put((None, gate.enter))
    pool._line.put((None, lambda: ran.append(1)))
    pool.resting.clear()
    pool._staff()
    until(lambda: ran)
    gate.wait_arrived()
    gate.open()
