"""`check_journal`: what every journal must do. See contracts.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from timebounds import Deadline, DeadlineExceeded, IllegalStep, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds import Journal

__all__ = ["check_journal"]


def check_journal(make: Callable[[], Journal]) -> None:
    """Check that a journal keeps its steps in order, refuses what does not follow, and obeys.

    Args:
        make: returns a new, empty journal.
    """
    for check in (_goes_forward, _refuses_jumps, _lists_what_is_left, _obeys, _refuses_keys):
        check(make(), Deadline.after(30))


def _goes_forward(journal: Journal, deadline: Deadline) -> None:
    _expect(journal.progress("a", deadline) is None, "a key that was never marked has no progress")
    for progress in Progress:
        _expect(journal.mark("a", progress, deadline) is True, "a step that follows is marked")
        _expect(journal.progress("a", deadline) is progress, "what was marked is told")
        again = journal.mark("a", progress, deadline)
        _expect(again is False, "to mark what is marked changes nothing")


def _refuses_jumps(journal: Journal, deadline: Deadline) -> None:
    steps = list(Progress)
    for done in (None, *steps):
        key = f"key {done}"
        for each in steps[: steps.index(done) + 1] if done else []:
            journal.mark(key, each, deadline)
        following = steps[steps.index(done) + 1 :] if done else steps
        for progress in steps:
            if progress is done or progress in following[:1]:
                continue
            try:
                journal.mark(key, progress, deadline)
            except IllegalStep:
                _expect(
                    journal.progress(key, deadline) is done, "a step that is refused marks nothing"
                )
            else:
                _expect(False, f"from {done} to {progress} is refused")  # noqa: FBT003


def _lists_what_is_left(journal: Journal, deadline: Deadline) -> None:
    for key in "cab":
        journal.mark(key, Progress.PENDING, deadline)
    for key in "ca":
        journal.mark(key, Progress.IN_PROGRESS, deadline)
    journal.mark("a", Progress.PUBLISHED, deadline)
    left = journal.unfinished(deadline)
    expected = [("c", Progress.IN_PROGRESS), ("b", Progress.PENDING)]
    _expect(left == expected, "what is not published is listed, in the order of its first mark")


def _obeys(journal: Journal, _: Deadline) -> None:
    verbs: tuple[Callable[[Deadline], Any], ...] = (
        lambda deadline: journal.progress("a", deadline),
        lambda deadline: journal.mark("a", Progress.PENDING, deadline),
        journal.unfinished,
    )
    for verb in verbs:
        try:
            verb(Deadline.after(0))
        except DeadlineExceeded:
            continue
        _expect(False, "an expired deadline begins nothing")  # noqa: FBT003
    _expect(journal.unfinished(Deadline.after(30)) == [], "what was too late marked nothing")


def _refuses_keys(journal: Journal, deadline: Deadline) -> None:
    wrong: tuple[Any, ...] = ("", None, 1, b"a")
    for key in wrong:
        try:
            journal.mark(key, Progress.PENDING, deadline)
        except TypeError as error:
            _expect("key" in str(error), "a refusal names the parameter")
        else:
            _expect(False, f"the key {key!r} is refused")  # noqa: FBT003


def _expect(holds: object, sentence: str) -> None:
    if not holds:
        msg = f"a journal must keep to this: {sentence}"
        raise AssertionError(msg)
