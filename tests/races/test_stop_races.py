"""T2, T3, T5, R14: who asks, who commits, who registers and who removes, at the same time."""

from __future__ import annotations

import contextlib
import sys
import threading

import pytest

from timebounds import Stop, StopRequested, StopSignal

pytestmark = pytest.mark.slow

ROUNDS = 3000


@pytest.fixture(autouse=True)
def _small_switch_interval():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Racers:
    """Threads that begin each round together, and end it before it is judged."""

    def __init__(self, count):
        self._start = threading.Barrier(count + 1)
        self._end = threading.Barrier(count + 1)
        self._steps = [None] * count
        self._errors = []
        self._threads = [
            threading.Thread(target=self._race, args=(index,)) for index in range(count)
        ]

    def _race(self, index):
        while True:
            self._start.wait(30)
            step = self._steps[index]
            if step is None:
                return
            try:
                step()
            except BaseException as error:
                self._errors.append(error)
            self._end.wait(30)

    def run(self, *steps):
        self._steps[:] = steps
        self._start.wait(30)
        self._end.wait(30)
        assert self._errors == []

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info):
        self._steps[:] = [None] * len(self._steps)
        self._start.wait(30)
        for thread in self._threads:
            thread.join(30)


@pytest.fixture
def two():
    with Racers(2) as racers:
        yield racers


LINES = {
    "itself": lambda: (stop := StopSignal(), stop),
    "its parent": lambda: ((stop := StopSignal()), stop.child()),
    "its grandparent": lambda: ((stop := StopSignal()), stop.child().child()),
}


@pytest.mark.parametrize("line", LINES)
def test_of_a_commit_and_a_request_exactly_one_wins(line, two):
    """T3: what was released was not committed, and the reverse."""
    wins = {"commit": 0, "request": 0}
    for _ in range(ROUNDS):
        asked, worker = LINES[line]()
        ran, effects = [], []
        worker.on_request(lambda ran=ran: ran.append(1))

        def commit(worker=worker, effects=effects):
            with contextlib.suppress(StopRequested):
                worker.commit()
                effects.append(1)

        answers = []
        two.run(commit, lambda answers=answers, asked=asked: answers.append(asked.request()))
        assert len(effects) + len(ran) == 1
        assert worker.requested() == bool(ran)
        assert (worker.committed_at is None) == bool(ran)
        if line == "itself":
            assert answers == [Stop.ACCEPTED if ran else Stop.TOO_LATE]
        else:
            assert answers == [Stop.ACCEPTED]
        assert not worker._callbacks
        assert not asked._callbacks
        wins["commit" if effects else "request"] += 1
    assert sum(wins.values()) == ROUNDS


def test_a_middle_that_commits_while_the_top_is_asked_speaks_for_the_bottom(two):
    """T3, T6: nobody below is released when the one between has passed the point of no return."""
    for _ in range(ROUNDS):
        top = StopSignal()
        middle = top.child()
        bottom = middle.child()
        ran, effects = [], []
        bottom.on_request(lambda ran=ran: ran.append(1))

        def commit(middle=middle, effects=effects):
            with contextlib.suppress(StopRequested):
                middle.commit()
                effects.append(1)

        two.run(commit, top.request)
        assert len(effects) + len(ran) == 1
        assert bottom.requested() == bool(ran)


@pytest.mark.parametrize("line", LINES)
def test_of_two_requests_one_is_the_first(line, two):
    """T2: and each callback runs once."""
    for _ in range(ROUNDS):
        above, below = LINES[line]()
        ran, answers = [], []
        below.on_request(lambda ran=ran: ran.append(1))
        two.run(
            lambda answers=answers, one=above: answers.append(one.request("above")),
            lambda answers=answers, one=below: answers.append(one.request("below")),
        )
        assert ran == [1]
        if above is below:
            assert sorted(each.value for each in answers) == ["accepted", "already"]
            assert above.later == 1
        assert below.reason in {"above", "below"}


@pytest.mark.parametrize("line", LINES)
def test_a_callback_that_is_registered_meanwhile_runs_once(line, two):
    """T5: one of the two sees the other."""
    for _ in range(ROUNDS):
        asked, worker = LINES[line]()
        ran = []
        two.run(
            asked.request,
            lambda worker=worker, ran=ran: worker.on_request(lambda: ran.append(1)),
        )
        assert ran == [1]
        assert not worker._callbacks
        assert not asked._callbacks


@pytest.mark.parametrize("line", LINES)
def test_what_was_removed_does_not_run_any_more(line, two):
    """T5, case A57: after a True the owner may free what the callback uses."""
    for _ in range(ROUNDS):
        asked, worker = LINES[line]()
        freed, late = [], []
        registration = worker.on_request(lambda f=freed, late=late: late.extend(f))

        def remove(registration=registration, freed=freed):
            if registration.remove():
                freed.append(1)

        two.run(asked.request, remove)
        assert late == []
        assert registration.remove()
        assert not worker._callbacks
