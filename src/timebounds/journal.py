"""Journals: durable marks of how far work has come, so that a crash makes no effect twice.

Rules (J1 of the contracts):
- A key goes from pending to in progress to published, and by no other way. To mark what is marked
  changes nothing.
- Marks are durable when the call returns, before and after the effect. After a crash in between
  the same key is in progress: the effect is made again, under the same key, and a sink that knows
  its keys makes it visible once.
- Marking is bounded by a deadline, as any waiting.

What must not live here: effects, retries.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, final

from timebounds._checks import member, refuse_on_loop_thread, shown
from timebounds.bounds.deadline import as_deadline
from timebounds.errors import DeadlineExceeded, IllegalStep

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from timebounds.bounds.deadline import Deadline

__all__ = ["Journal", "MemoryJournal", "Progress", "SQLiteJournal", "publish_once"]

T = TypeVar("T")


@final
class Progress(StrEnum):
    """How far the work of a key has come."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    """Its effect may have been made, or not."""
    PUBLISHED = "published"
    """Its effect has been made."""


# What is said while another one writes.
_OTHERS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_BEFORE: dict[Progress, Progress | None] = dict(zip(Progress, [None, *Progress], strict=False))


class Journal(Protocol):
    """Where progress is marked. `check_journal` of `timebounds.testing` shows what is expected."""

    def progress(self, key: str, deadline: Deadline) -> Progress | None:
        """Return how far a key has come; None for one that was never marked."""
        ...

    def mark(self, key: str, progress: Progress, deadline: Deadline) -> bool:
        """Mark the next step of a key, durably; say whether that changed anything.

        Raises:
            IllegalStep: another step has to come before, or a later one is marked.
            DeadlineExceeded, StopRequested: a bound was reached first; nothing was marked.
        """
        ...

    def unfinished(self, deadline: Deadline) -> list[tuple[str, Progress]]:
        """Return what is not published, in the order in which it was first marked."""
        ...


def publish_once(
    journal: Journal, key: str, publish: Callable[[str], object], deadline: Deadline
) -> bool:
    """Make the effect of a key and mark it; say whether it was made now.

    `publish(key)` is called when the key is not published, after it was marked as in progress. A
    crash before the last mark has it called again, with the same key: its receiver must know keys
    that he has seen. So does a second caller at the same time. An error of `publish` leaves the key
    in progress, since who knows.

    Raises:
        DeadlineExceeded, StopRequested: a bound was reached; before the effect, or after it.
        What `publish` raised.
    """
    done = journal.progress(key, deadline)
    if done is Progress.PUBLISHED:
        return False
    if done is None:
        journal.mark(key, Progress.PENDING, deadline)
    journal.mark(key, Progress.IN_PROGRESS, deadline)
    deadline.check("publish")
    publish(key)
    journal.mark(key, Progress.PUBLISHED, deadline)
    return True


@final
class MemoryJournal:
    """A journal for tests and for what may be forgotten with the process. For any threads."""

    def __init__(self) -> None:
        self._marks: dict[str, Progress] = {}
        self._lock = threading.RLock()

    def progress(self, key: str, deadline: Deadline) -> Progress | None:
        """Return how far a key has come; None for one that was never marked."""
        as_deadline(deadline).check("journal")
        return self._marks.get(_key(key))

    def mark(self, key: str, progress: Progress, deadline: Deadline) -> bool:
        """Mark the next step of a key; say whether that changed anything."""
        as_deadline(deadline).check("journal")
        _key(key)
        with self._lock:
            if not _follows(key, self._marks.get(key), progress):
                return False
            self._marks[key] = progress
            return True

    def unfinished(self, deadline: Deadline) -> list[tuple[str, Progress]]:
        """Return what is not published, in the order in which it was first marked."""
        as_deadline(deadline).check("journal")
        with self._lock:
            return [each for each in self._marks.items() if each[1] is not Progress.PUBLISHED]


@final
class SQLiteJournal:
    """A journal in a file of SQLite, for any threads and processes.

    Each verb opens the file anew, so that nothing is shared and nothing has to be closed; a mark
    is on the disk when it returns. Waiting for another's write is bounded by the deadline; the
    disk itself is not.

    Args:
        path: of the file, which is made when it does not exist. Not ":memory:".
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if str(path) in {":memory:", ""}:
            msg = "path must be that of a file: write MemoryJournal() for one in memory"
            raise ValueError(msg)
        self._path = path

    def progress(self, key: str, deadline: Deadline) -> Progress | None:
        """Return how far a key has come; None for one that was never marked."""
        _key(key)
        return self._do(deadline, lambda connection: _progress_of(connection, key))

    def mark(self, key: str, progress: Progress, deadline: Deadline) -> bool:
        """Mark the next step of a key, durably; say whether that changed anything."""
        _key(key)

        def do(connection: sqlite3.Connection) -> bool:
            # One writer at a time from here on: what is read is still so when it is written.
            connection.execute("BEGIN IMMEDIATE")
            if not _follows(key, _progress_of(connection, key), progress):
                return False
            connection.execute(
                "INSERT INTO journal (key, progress) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET progress = excluded.progress",
                (key, progress.value),
            )
            connection.execute("COMMIT")
            return True

        return self._do(deadline, do)

    def unfinished(self, deadline: Deadline) -> list[tuple[str, Progress]]:
        """Return what is not published, in the order in which it was first marked."""

        def do(connection: sqlite3.Connection) -> list[tuple[str, Progress]]:
            rows = connection.execute(
                "SELECT key, progress FROM journal WHERE progress != ? ORDER BY number",
                (Progress.PUBLISHED.value,),
            )
            return [(key, Progress(progress)) for key, progress in rows]

        return self._do(deadline, do)

    def _do(self, deadline: Deadline, do: Callable[[sqlite3.Connection], T]) -> T:
        """Do something with the file, waiting for others' writes as long as there is time."""
        as_deadline(deadline).check("journal")
        refuse_on_loop_thread("SQLiteJournal", "offload(journal.mark, ...)")
        while True:
            try:
                with closing(self._open(deadline)) as connection:
                    return do(connection)
            except sqlite3.OperationalError as error:
                # Some are Python's own, and have no code: of a key that is no text.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _OTHERS:
                    raise
                # SQLite counts in whole milliseconds, and may come back a little early.
                try:
                    deadline.check("journal")
                except DeadlineExceeded as late:
                    raise DeadlineExceeded(f"{late}, another one writes") from error

    def _open(self, deadline: Deadline) -> sqlite3.Connection:
        # It looks again and again while another one writes, for so long; once without any left.
        seconds = min(deadline.remaining(), 86_400.0)
        connection = sqlite3.connect(self._path, timeout=seconds, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS journal"
                " (number INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, progress TEXT NOT NULL)"
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def __repr__(self) -> str:
        return f"SQLiteJournal({self._path!r})"


def _progress_of(connection: sqlite3.Connection, key: str) -> Progress | None:
    row = connection.execute("SELECT progress FROM journal WHERE key = ?", (key,)).fetchone()
    return None if row is None else Progress(row[0])


def _follows(key: str, done: Progress | None, progress: Progress) -> bool:
    """Say whether a step changes anything; raise where it does not follow."""
    member(progress, "progress", Progress)
    if done is progress:
        return False
    if done is not _BEFORE[progress]:
        msg = f"{key!r:.80} is {done or 'not marked'}, and can not become {progress}"
        raise IllegalStep(msg)
    return True


def _key(key: object) -> str:
    if not isinstance(key, str) or not key:
        msg = f"key must be a text that is not empty, not {shown(key)}"
        raise TypeError(msg)
    return key
