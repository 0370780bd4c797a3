"""J1: progress that outlives a crash, and effects that are visible once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from children import environment
from timebounds import (
    Deadline,
    DeadlineExceeded,
    IllegalStep,
    MemoryJournal,
    Progress,
    SQLiteJournal,
    SteadyClock,
    StopRequested,
    StopSignal,
    publish_once,
)
from timebounds.testing import check_journal


def soon():
    return Deadline.after(30)


@pytest.fixture(params=["memory", "sqlite"])
def make(request, tmp_path):
    """Return a function that makes new journals."""
    made = []

    def one():
        made.append(None)
        if request.param == "memory":
            return MemoryJournal()
        return SQLiteJournal(tmp_path / f"{len(made)}.sqlite")

    return one


def test_every_journal_keeps_to_the_contract(make):
    """J1, F6."""
    check_journal(make)


class Forgetful(MemoryJournal.__mro__[-1]):
    """Known-bad journals are made of this: it does as it is told, by an inner one."""

    def __init__(self, **wrong):
        self._inner = MemoryJournal()
        self.__dict__.update(wrong)

    def progress(self, key, deadline):
        return self._inner.progress(key, deadline)

    def mark(self, key, progress, deadline):
        return self._inner.mark(key, progress, deadline)

    def unfinished(self, deadline):
        return self._inner.unfinished(deadline)


def jumping(self):
    def mark(key, progress, deadline):
        try:
            return self._inner.mark(key, progress, deadline)
        except IllegalStep:
            return True

    return mark


def marking_what_it_refuses(self):
    def mark(key, progress, deadline):
        try:
            return self._inner.mark(key, progress, deadline)
        except IllegalStep:
            self._inner._marks[key] = progress
            raise

    return mark


@pytest.mark.parametrize(
    "break_it",
    [
        lambda self: {"progress": lambda key, deadline: Progress.PENDING},
        lambda self: {"mark": lambda *args: self._inner.mark(*args) or True},
        lambda self: {"mark": jumping(self)},
        lambda self: {"mark": marking_what_it_refuses(self)},
        lambda self: {"unfinished": lambda deadline: self._inner.unfinished(deadline)[::-1]},
        lambda self: {"unfinished": lambda deadline: self._inner.unfinished(soon())},
        lambda self: {"mark": lambda key, *rest: self._inner.mark(str(key) or "x", *rest)},
    ],
)
def test_the_suite_rejects_known_bad_journals(break_it):
    """F6."""

    def one():
        made = Forgetful()
        made.__dict__.update(break_it(made))
        return made

    with pytest.raises(AssertionError, match="a journal must keep to this"):
        check_journal(one)


def test_an_effect_is_made_once_and_marked(make):
    """J1."""
    journal, made = make(), []
    assert publish_once(journal, "a", made.append, soon())
    assert not publish_once(journal, "a", made.append, soon())
    assert made == ["a"]
    assert journal.progress("a", soon()) is Progress.PUBLISHED
    assert journal.unfinished(soon()) == []


def test_an_effect_that_failed_stays_in_progress_and_is_made_again(make):
    """J1: whether it was made, who knows."""
    journal, made = make(), []

    def publish(key):
        made.append(key)
        if len(made) == 1:
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        publish_once(journal, "a", publish, soon())
    assert journal.unfinished(soon()) == [("a", Progress.IN_PROGRESS)]
    assert publish_once(journal, "a", publish, soon())
    assert made == ["a", "a"]


def test_no_effect_is_made_behind_the_deadline_or_a_stop(make):
    journal, made = make(), []
    stop = StopSignal()

    class Stopping:
        def progress(self, key, deadline):
            return journal.progress(key, deadline)

        def mark(self, key, progress, deadline):
            done = journal.mark(key, progress, deadline)
            if progress is Progress.IN_PROGRESS:
                stop.request()
            return done

        def unfinished(self, deadline):
            return journal.unfinished(deadline)

    with pytest.raises(StopRequested):
        publish_once(Stopping(), "a", made.append, soon().stopping(stop))
    assert made == []


def test_what_one_thread_marks_every_thread_sees_and_each_step_once(make):
    journal = make()
    changed = []

    def mark():
        for progress in Progress:
            for n in range(5):
                try:
                    if journal.mark(f"key {n}", progress, soon()):
                        changed.append((n, progress))
                except IllegalStep:
                    pass  # another thread is a step ahead

    threads = [threading.Thread(target=mark) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(changed) == sorted((n, progress) for n in range(5) for progress in Progress)


CRASHING = """
import os, sys
from timebounds import Deadline, SQLiteJournal, publish_once
journal, sink = SQLiteJournal(sys.argv[1]), sys.argv[2]

def publish(key):
    seen = open(sink).read().split() if os.path.exists(sink) else []
    if key not in seen:
        with open(sink, "a") as file:
            file.write(key + "\\n")
    with open(sink + ".calls", "a") as file:
        file.write(key + "\\n")
    if len(sys.argv) > 3:
        os._exit(9)

print(publish_once(journal, "alert-7", publish, Deadline.after(20)))
"""


@pytest.mark.real
@pytest.mark.slow
def test_a_crash_between_the_effect_and_its_mark_makes_one_visible_effect(tmp_path):
    """J1, running path 14."""
    sink = tmp_path / "sink"

    def run(*more):
        command = [sys.executable, "-c", CRASHING, tmp_path / "journal.sqlite", sink, *more]
        return subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=50, check=False
        )

    assert run("crash").returncode == 9
    left = SQLiteJournal(tmp_path / "journal.sqlite").unfinished(soon())
    assert left == [("alert-7", Progress.IN_PROGRESS)]
    again = run()
    assert again.stdout == "True\n", again.stderr
    assert run().stdout == "False\n"
    assert sink.read_text() == "alert-7\n"
    assert (tmp_path / "sink.calls").read_text() == "alert-7\nalert-7\n"


def test_another_ones_write_is_waited_for_by_the_deadline(tmp_path):
    """J1: and nothing is marked."""
    path = tmp_path / "journal.sqlite"
    journal = SQLiteJournal(path)
    journal.mark("a", Progress.PENDING, soon())
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DeadlineExceeded, match="another one writes"):
            journal.mark("a", Progress.IN_PROGRESS, Deadline.after(0.05))
        other.execute("ROLLBACK")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DeadlineExceeded, match="another one writes"):
            journal.mark("a", Progress.IN_PROGRESS, Deadline.after(0.05))
        assert journal.progress("a", soon()) is Progress.PENDING
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert journal.mark("a", Progress.IN_PROGRESS, Deadline.never())


class Ticking(SteadyClock):
    """A clock that goes on by a millisecond with each look."""

    ns = 0

    def now_ns(self):
        self.ns += 1_000_000
        return self.ns


@pytest.mark.parametrize("looks", range(2, 12))
def test_whoever_waited_for_another_one_is_told_so_wherever_the_deadline_comes(tmp_path, looks):
    """J1."""
    journal = SQLiteJournal(tmp_path / "journal.sqlite")
    journal.mark("a", Progress.PENDING, soon())
    other = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        deadline = Deadline.at(looks / 1000, clock=Ticking())
        with pytest.raises(DeadlineExceeded, match=r"^journal: .* another one writes"):
            journal.mark("a", Progress.IN_PROGRESS, deadline)
    finally:
        other.close()


def test_what_else_goes_wrong_with_the_file_is_told_as_it_is(tmp_path):
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        SQLiteJournal(tmp_path / "missing" / "journal.sqlite").unfinished(soon())
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database at all" * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        SQLiteJournal(broken).unfinished(soon())
    with pytest.raises(ValueError, match=r"write MemoryJournal\(\)"):
        SQLiteJournal(":memory:")
    assert repr(SQLiteJournal("j.sqlite")) == "SQLiteJournal('j.sqlite')"


def test_a_file_that_can_only_be_read_marks_nothing(tmp_path):
    path = tmp_path / "journal.sqlite"
    journal = SQLiteJournal(path)
    journal.mark("a", Progress.PENDING, soon())
    reading = SQLiteJournal(f"{path}")
    reading._open = lambda deadline: sqlite3.connect(
        f"file:{path}?mode=ro", uri=True, isolation_level=None
    )
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reading.mark("a", Progress.IN_PROGRESS, soon())


def test_wrong_arguments_are_named(make):
    journal = make()
    with pytest.raises(TypeError, match=r"progress must be one of Progress\.PENDING"):
        journal.mark("a", "pending", soon())
    with pytest.raises(TypeError, match=r"Deadline\.after\(5\)"):
        journal.mark("a", Progress.PENDING, 5)
    with pytest.raises(IllegalStep, match="'a' is not marked, and can not become published"):
        journal.mark("a", Progress.PUBLISHED, soon())


def test_what_is_no_text_in_the_file_is_the_databases_own_error(tmp_path):
    """J1: a file that somebody else has written."""
    path = tmp_path / "journal.sqlite"
    journal = SQLiteJournal(path)
    journal.mark("a", Progress.PENDING, soon())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("INSERT INTO journal (key, progress) VALUES (CAST(x'ff' AS TEXT), 'pending')")
    with pytest.raises(sqlite3.OperationalError, match="decode"):
        journal.unfinished(soon())
