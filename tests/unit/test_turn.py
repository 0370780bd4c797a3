"""Whose turn it is, where two meet over a turn that was left behind."""

from __future__ import annotations

import timebounds.blocking.turn as module
from timebounds.blocking.turn import Turn


def test_who_comes_second_to_a_forgotten_turn_does_not_take_it_from_the_first(monkeypatch):
    """R11: both found it forgotten; the first has taken it meanwhile."""
    forgotten, first = [], []
    turn = Turn(holder=forgotten)
    answers = iter([False, False])

    def on_some_stack(holder):
        if holder is forgotten:
            turn["holder"] = first  # the other one was faster
        return next(answers)

    monkeypatch.setattr(module, "_on_some_stack", on_some_stack)
    mine = []
    turn.contend(mine, "a receiver")
    # It looked again at the new holder, and took over only when that one was gone too.
    assert next(answers, None) is None
    assert turn["holder"] is mine
