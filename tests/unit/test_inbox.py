"""What is held of a stream: split without a copy, unless as much lies behind."""

from __future__ import annotations

import pytest

from timebounds import RetryAllowance
from timebounds.policies.inbox import CHUNK, Exactly, Inbox, Some, Until


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


def test_some_never_stays_unfinished():
    """R8: whatever interrupts it, the position in the stream is known."""
    inbox = holding(b"abcd", 1)
    inbox.begin(Some(2, RetryAllowance(0)))
    assert inbox.state == ([b"abcd"], 1, None, None)


def test_what_is_pending_is_the_beginning_of_a_buffer():
    """R6."""
    inbox = holding(b"abcd", 1)
    view = bytearray(5)
    target = inbox.begin_into(memoryview(view), RetryAllowance(0))
    assert bytes(view) == b"bcd\0\0"
    assert target.ask == 2
    assert target.look() == 0
    assert inbox.state == ([], 0, target, None)


def test_a_chunk_is_what_one_read_asks_for_at_most():
    """R16: memory follows what arrives."""
    for size, ask in ((CHUNK + 1, CHUNK), (CHUNK, CHUNK), (CHUNK - 1, CHUNK - 1), (1, 1)):
        for target in (Exactly(size, RetryAllowance(0)), Some(size, RetryAllowance(0))):
            Inbox().begin(target)
            assert target.ask == ask


def test_what_some_asks_for_counts_from_what_was_handed_out():
    """R8."""
    for size, data in ((2, b"bc"), (9, b"bcd")):
        inbox = holding(b"abcd", 1)
        target = Some(size, RetryAllowance(0))
        inbox.begin(target)
        assert target.ask == 0
        assert inbox.split(target.value())[0] == data
    inbox = holding(b"abcd", 4)
    target = Some(2, RetryAllowance(0))
    inbox.begin(target)
    assert target.ask == 2
    target.chunks.append(b"e")
    assert (target.look(), target.ask, target.value()) == (1, 0, 1)
    target.chunks.append(b"f")
    assert (target.look(), target.value()) == (1, 2)


def test_a_delimiter_is_looked_for_from_what_was_handed_out_to_the_limit():
    """R8, case A07: also one that came in two parts."""
    inbox = holding(b"\r\nab\r", 2)
    target = Until(b"\r\n", 9, RetryAllowance(0))
    inbox.begin(target)
    assert (target.ask, target.value()) == (CHUNK, 0)
    assert target.look() == 0
    target.chunks.append(b"\nc")
    assert (target.look(), target.ask, target.value()) == (2, 0, 4)
    assert inbox.split(target.value()) == (b"ab\r\n", target.chunks, 6)
    for limit, ask in ((3, 0), (2, -1), (1, -1)):
        target = Until(b"\n", limit, RetryAllowance(0))
        holding(b"ab\nc").begin(target)
        assert target.ask == ask
    # One byte less than the limit may still be followed by it.
    target = Until(b"\n", 3, RetryAllowance(0))
    holding(b"ab").begin(target)
    assert target.ask == CHUNK
    target.chunks.append(b"\n")
    assert (target.look(), target.value()) == (1, 3)


def test_what_was_searched_is_not_searched_again():
    """R16: but for what may be the beginning of the delimiter."""
    begins = []

    class Searched(bytearray):
        def find(self, mark, begin, end):
            begins.append(begin)
            return super().find(mark, begin, end)

    target = Until(b"\r\n", 99, RetryAllowance(0))
    inbox = holding(Searched(b"abcd"))
    inbox.begin(target)
    target.chunks[0].extend(b"ef")
    target.look()
    assert begins == [0, 3]
