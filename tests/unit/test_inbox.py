"""What is held of a stream: split without a copy, unless as much lies behind."""

from __future__ import annotations

import pytest

from timebounds import RetryAllowance
from timebounds.policies.inbox import CHUNK, Exactly, Inbox


def holding(data, start=0):
    inbox = Inbox()
    inbox.state = ([data], start, None, None)
    return inbox


@pytest.mark.parametrize(
    ("size", "data", "chunks", "start"),
    [(0, b"", [b"abcd"], 1), (2, b"bc", [b"abcd"], 3), (3, b"bcd", [], 0)],
)
def test_what_is_handed_out_is_no_longer_held(size, data, chunks, start):
    assert holding(b"abcd", 1).split(size) == (data, chunks, start)


def test_all_of_one_chunk_is_handed_out_as_it_is():
    whole = bytes(b"ab" * 4)
    assert holding(whole).split(8)[0] is whole
    assert type(holding(bytearray(whole)).split(8)[0]) is bytes
    assert holding(whole).split(8)[1:] == ([], 0)


@pytest.mark.parametrize(
    ("start", "held", "copied"),
    [
        (CHUNK, 2 * CHUNK, True),
        (CHUNK, 2 * CHUNK + 1, False),
        (CHUNK - 1, 2 * CHUNK - 2, False),
        (3 * CHUNK, 4 * CHUNK, True),
    ],
)
def test_the_rest_is_copied_only_when_as_much_lies_before_it(start, held, copied):
    """R16: linear over a stream's life."""
    whole = bytes(held - 2) + b"XY"
    data, chunks, begins = holding(whole, start).split(held - start - 1)
    assert data == whole[start:-1]
    assert (chunks, begins) == (([b"Y"], 0) if copied else ([whole], held - 1))


def test_what_is_pending_serves_the_next_operation():
    """R8."""
    inbox = holding(b"abcd", 1)
    target = Exactly(5, RetryAllowance(0))
    inbox.begin(target)
    assert target.ask == 2
    assert target.look() == 0
    target.chunks.append(b"e")
    assert target.look() == 1
    assert inbox.state[2] is target


def test_what_is_pending_is_the_beginning_of_a_buffer():
    """R6."""
    inbox = holding(b"abcd", 1)
    view = bytearray(5)
    target = inbox.begin_into(memoryview(view), RetryAllowance(0))
    assert bytes(view) == b"bcd\0\0"
    assert target.ask == 2
    assert target.look() == 0
    assert inbox.state == ([], 0, target, None)
