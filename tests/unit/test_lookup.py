"""A name lookup: asked in a slot, left on time, and told what became of it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from timebounds import Deadline, StopSignal
from timebounds._settled import Raised, Returned
from timebounds.bounds import lookup
from timebounds.bounds._threads import Pool
from timebounds.bounds.lookup import AWAITED, Question, nothing_found, numeric, resolve, unanswered
from timebounds.testing import Gate


def _blocking(question, deadline):
    return question.wait(deadline)


def _in_a_task(question, deadline):
    return asyncio.run(question.await_answer(deadline))


@pytest.fixture(params=[_blocking, _in_a_task], ids=["blocking", "tasks"])
def ask(request):
    return request.param


def test_an_answer_is_returned_or_raised(ask):
    """K3: with what the function was given."""
    question = Question(divmod, 7, 2)
    assert question.asked is False
    assert ask(question, Deadline.after(30)).value == (3, 1)
    assert question.asked is True
    answer = ask(Question(divmod, 7, 0), Deadline.after(30))
    assert type(answer) is Raised
    assert type(answer.take()) is ZeroDivisionError
    # An answer of nothing is one.
    answer = ask(Question(lambda: None), Deadline.after(30))
    assert type(answer) is Returned
    assert answer.value is None


def test_a_question_is_awaited_from_before_it_is_asked_until_its_asker_leaves(ask):
    """Fake time stands still for it meanwhile."""
    seen = []
    question = Question(lambda: seen.append(question in AWAITED))
    ask(question, Deadline.after(30))
    assert seen == [True]
    assert question not in AWAITED


def test_whoever_waits_leaves_on_time_or_by_the_stop_and_no_longer_waits(ask):
    """K3, A15."""
    gate, stop = Gate("asked"), StopSignal()
    late = Question(gate.enter)
    assert ask(late, Deadline.after(0.01)) is None
    assert late not in AWAITED

    def stopped():
        stop.request("drain")
        gate.enter()

    question = Question(stopped)
    assert ask(question, Deadline.after(30).stopping(stop)) is None
    assert question not in AWAITED
    gate.wait_arrived(2)
    gate.open()


def test_a_line_that_is_full_is_told_apart_from_a_slow_answer(ask, monkeypatch):
    """A16: and how many are outstanding."""
    slots = Pool(limit=1, linger=0.01)
    monkeypatch.setattr(lookup, "SLOTS", slots)
    gate = Gate("asked")
    slow, unasked = Question(gate.enter), Question(gate.enter)
    assert ask(slow, Deadline.after(0.01)) is None
    gate.wait_arrived()
    assert unanswered(slow) == "; lookups outstanding: 1"
    assert ask(unasked, Deadline.after(0.01)) is None
    assert unanswered(unasked) == (
        ", which never started: no slot was free; lookups outstanding: 2"
    )
    assert unanswered(None) == ""
    gate.open()


def test_there_is_a_slot_for_sixteen():
    assert lookup.SLOTS._limit == 16


def test_a_host_that_is_a_number_needs_no_question():
    assert numeric("127.0.0.1", 80) == [
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 80))
    ]
    assert numeric("localhost", 80) is None
    assert numeric("x" * 64 + ".org", 80) is None


def test_the_system_is_asked_for_streams():
    assert resolve("localhost", 80) == socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    assert {entry[1] for entry in resolve("127.0.0.1", 80)} == {socket.SOCK_STREAM}


def test_a_resolver_that_finds_nothing_is_told_as_the_system_would():
    error = nothing_found("db")
    assert type(error) is socket.gaierror
    assert error.args == (socket.EAI_NONAME, "no address found for 'db'")
