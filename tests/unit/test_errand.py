"""An errand by hand: what it is before, while and after a thread carries it out."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from timebounds import Deadline, OffloadOutcome, SteadyClock
from timebounds._checks import NS
from timebounds.bounds.custody import Custody
from timebounds.bounds.errand import Errand, name_of
from timebounds.policies.offload_evidence import attach, offload_report, report_of
from timebounds.testing import FakeClock


def errand(fn, deadline, *, must_run=False):
    return Errand(
        fn, (), deadline, with_job=False, must_run=must_run, release=None, on_late=None
    )  # fmt: skip


def report(work, over_at=None):
    return report_of(work, OffloadOutcome.RETURNED, 0, over_at, work.value, work.error)


def test_a_report_is_exact_on_a_clock_that_does_not_begin_at_0():
    """O11."""
    clock = FakeClock(100)
    work = errand(lambda: clock.advance(3), clock.deadline(50))
    clock.advance(2)
    work()
    clock.advance(1)
    got = report(work)
    assert (got.steps, got.queued, got.ran) == (
        (("submitted", 0.0), ("entered", 2.0), ("returned", 5.0)), 2.0, 3.0,
    )  # fmt: skip


def test_what_never_started_or_is_still_inside_lasts_until_it_is_told():
    """O11."""
    clock = FakeClock(100)
    waiting = errand(int, clock.deadline(50))
    clock.advance(2)
    assert (report(waiting).queued, report(waiting).ran) == (2.0, 0.0)
    assert (report(waiting, 101 * NS).queued, report(waiting, 101 * NS).ran) == (1.0, 0.0)
    seen = []

    def look():
        clock.advance(4)
        seen.append((report(inside).queued, report(inside).ran, report(inside, 103 * NS).ran))

    inside = errand(look, clock.deadline(50))
    inside()
    assert seen == [(0.0, 4.0, 1.0)]


def test_it_has_not_ended_before_it_began():
    work = errand(int, Deadline.after(5))
    assert (work.over, work.overdue, work.handed_on) == (False, False, False)
    assert not work.stop_caused(OSError())
    assert work.withdraw() is True
    assert work.over
    assert work.withdraw() is True
    work()
    assert work.entered is None


def test_what_must_run_is_taken_back_only_if_nobody_was_handed_it():
    """O3."""
    work = errand(int, Deadline.after(5), must_run=True)
    assert work.withdraw() is False
    assert work.withdraw(not_handed_in=True) is True


def test_a_clock_that_fails_leaves_the_last_reading_and_its_error():
    """O5: what is under way has to come to its end."""
    broken = OSError("no clock")

    class Failing(SteadyClock):
        fails = False

        def now_ns(self):
            if self.fails:
                raise broken
            return 7 * NS

    clock = Failing()
    deadline = Deadline.after(5, clock=clock)
    clock.fails = True
    work = errand(int, deadline)
    assert (work.submitted, work.errors) == (0, [broken])
    clock.fails = False
    assert work.now() == 7 * NS
    clock.fails = True
    assert work.now() == 7 * NS
    assert work.errors == [broken, broken]


def test_the_name_of_a_function_is_a_text():
    assert name_of(print) == "print"
    odd = SimpleNamespace(__qualname__=7)
    assert name_of(odd) == "namespace(__qualname__=7)"


def custody(closers, ended):
    held = Custody(closers)
    held.on_closed = lambda: ended.append(threading.current_thread())
    return held


def test_what_is_shared_is_closed_once_and_where_closing_may_block():
    """O1: by whoever leaves last, if that is a thread of work."""
    main, ended, closed = threading.current_thread(), [], threading.Event()
    held = custody([], ended)
    assert (held.closing, held.done) == (False, False)
    # Nothing blocks where there is nothing to close.
    held.end()
    held.close()
    assert ended == [main]
    held = custody([closed.set], ended)
    held.end(here=True)
    assert ended == [main, main]
    threads = []
    held = custody([lambda: threads.append(threading.current_thread())], ended)
    held.on_closed = closed.set
    closed.clear()
    held.end()
    assert closed.wait(20)
    assert threads[0] is not main


def test_what_comes_too_late_to_a_thread_closes_there():
    """O1, O3."""
    threads, clock = [], FakeClock(100)
    held = custody([lambda: threads.append(threading.current_thread())], [])
    work = errand(int, clock.deadline(1))
    work.custody = held
    held.enter(work)
    held.end()
    clock.advance(1)
    work()
    assert work.never_started
    assert threads == [threading.current_thread()]


def test_the_traceback_of_an_error_begins_in_the_function():
    """O7: a frame of ours would hold it, and so itself."""

    def fails():
        raise OSError("refused")

    work = errand(fails, Deadline.after(5))
    work()
    assert work.error.__traceback__.tb_frame.f_code is fails.__code__
    assert work.error.__traceback__.tb_next is None


@pytest.mark.parametrize("must_run", [True, False])
def test_a_stop_releases_what_is_under_way(must_run):
    """O1: also what must run, once it does."""
    released = []

    def fn():
        work.stop.request()
        return len(released)

    work = Errand(
        fn, (), Deadline.after(5), with_job=False, must_run=must_run,
        release=lambda: released.append(1), on_late=None,
    )  # fmt: skip
    work()
    assert work.value == (1,)


@pytest.mark.parametrize("here", [True, False])
def test_who_leaves_last_closes_in_its_own_thread(here):
    """O1."""
    threads, closed = [], threading.Event()
    held = custody([lambda: threads.append(threading.current_thread())], [])
    held.on_closed = closed.set
    work = errand(int, Deadline.after(5))
    work.custody = held
    held.enter(work)
    held.end()
    assert not closed.is_set()
    if here:
        work()
    else:
        work.withdraw()
    assert closed.wait(20)
    assert (threads == [threading.current_thread()]) is here
    held.leave(work, here=True)


def test_what_is_withdrawn_in_a_thread_closes_there():
    """O1."""
    threads = []
    held = custody([lambda: threads.append(threading.current_thread())], [])
    work = errand(int, Deadline.after(5))
    work.custody = held
    held.enter(work)
    held.end()
    assert work.withdraw(here=True) is True
    assert threads == [threading.current_thread()]


class Sealed(Exception):
    def add_note(self, note):
        raise OSError

    def __setattr__(self, name, value):
        raise OSError


def test_an_error_that_takes_no_evidence_stays_as_it_is():
    """O5."""
    error = Sealed()
    attach(error, report(errand(int, Deadline.after(5))), "note")
    assert offload_report(error) is None
