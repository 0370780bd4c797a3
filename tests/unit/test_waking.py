"""The descriptor that a stop makes readable: one byte, once, and never in another process."""

from __future__ import annotations

import asyncio
import os
import select

import pytest

from timebounds import Deadline, StopSignal
from timebounds.bounds import waking
from timebounds.bounds.waking import Waker, Waking, wait_in_thread


def waiting(fd):
    """Return what lies in the pipe."""
    return os.read(fd, 9) if select.select([fd], [], [], 0)[0] else b""


def test_a_waker_stays_awake_by_one_byte():
    """T2: as many as there are waiters could fill the pipe."""
    waker = Waker(os.getpid())
    assert waiting(waker.fd) == b""
    waker.wake()
    waker.wake()
    assert waiting(waker.fd) == b"!"
    waker.wake()
    assert waiting(waker.fd) == b""


def test_after_a_fork_the_pipe_is_the_other_processes():
    waker = Waker(os.getpid() + 1)
    waker.wake()
    assert waiting(waker.fd) == b""


def test_all_who_wait_share_one_descriptor_in_each_process(monkeypatch):
    """T2."""
    stop, made = StopSignal(), []

    def counted(pid):
        made.append(pid)
        return Waker(pid)

    monkeypatch.setattr(waking, "Waker", counted)
    for _ in range(2):
        with Waking(stop):
            pass
    assert made == [*stop._waker] == [os.getpid()]


def test_a_waker_half_made_has_nothing_to_close():
    Waker.__new__(Waker).__del__()


def test_a_loops_thread_is_shown_the_way():
    """R11's rule."""

    async def main():
        with pytest.raises(RuntimeError, match=r"StopSignal\.wait\b.* wait_requested\b"):
            wait_in_thread(StopSignal(), Deadline.after(5))

    asyncio.run(main())


def test_who_waits_for_a_deadlines_own_stop_is_told_and_not_interrupted():
    """T4: it is what was waited for."""
    stop = StopSignal()
    stop.request()
    assert wait_in_thread(stop, Deadline.after(5).stopping(stop)) is True
    assert wait_in_thread(StopSignal(), Deadline.after(0)) is False
