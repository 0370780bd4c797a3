"""W2: files over sockets lose nothing when a limit strikes, and go on afterwards."""

from __future__ import annotations

import io
import socket

import pytest
from drop_in import (
    fill,
)
from lines import running

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
)
from timebounds.testing import FakeClock


@pytest.fixture
def clock():
    return FakeClock(auto_advance=True)


@pytest.fixture
def pair(clock):
    """One end with a deadline of 1 s on a fake clock, and the other end, plain."""
    ours, theirs = socket.socketpair()
    with DeadlineSocket(ours, clock.deadline(1)) as sock, theirs:
        yield sock, theirs


def test_a_file_goes_on_where_a_limit_struck(pair, clock):
    """W2."""
    sock, theirs = pair
    with sock.makefile("rb") as file:
        theirs.sendall(b"half a li")
        for read in (file.readline, file.readlines, file.read, lambda: file.read(10)):
            with pytest.raises(DeadlineExceeded):
                read()
        sock.deadline = clock.deadline(1)
        theirs.sendall(b"ne\nmore")
        assert file.readline() == b"half a line\n"
        theirs.shutdown(socket.SHUT_WR)
        assert file.read() == b"more"


def test_lines_that_were_read_are_not_lost_with_the_last(pair, clock):
    """W2: the standard library's reader has them in a list that nobody sees."""
    sock, theirs = pair
    for mode, lines in (("rb", [b"one\n", b"two\n", b"thr"]), ("r", ["one\n", "two\n", "thr"])):
        theirs.sendall(b"one\ntwo\nthr")
        with sock.makefile(mode) as file:
            sock.deadline = clock.deadline(1)
            with pytest.raises(DeadlineExceeded):
                file.readlines()
            assert file.readlines(3) == lines[:1]
            assert file.readline() == lines[1]
            assert file.read(3) == lines[2]


def test_a_text_file_loses_neither_half_a_line_nor_half_a_character(pair, clock):
    """W2."""
    sock, theirs = pair
    with sock.makefile("r", encoding="utf-8") as file:
        theirs.sendall("eins\nzwö".encode()[:-1])
        assert file.readline() == "eins\n"
        for read in (file.readline, file.readlines, file.read, lambda: file.read(10)):
            sock.deadline = clock.deadline(1)
            with pytest.raises(DeadlineExceeded):
                read()
        sock.deadline = clock.deadline(1)
        theirs.sendall("ö".encode()[-1:] + b"lf\r\nend")
        assert file.read(1) == "z"
        assert file.readline(2) == "wö"
        assert file.readline(0) == ""
        assert next(file) == "lf\n"
        assert file.newlines == ("\n", "\r\n")
        theirs.shutdown(socket.SHUT_WR)
        assert list(file) == ["end"]
        assert file.read() == ""


@pytest.mark.parametrize("newline", [None, "", "\n", "\r", "\r\n"])
def test_lines_end_where_those_of_the_standard_library_end(newline):
    data = b"a\nb\r\nc\rd\r\n\ne"
    results = []
    for kind in (DeadlineSocket, lambda sock: sock):
        ours, theirs = socket.socketpair()
        with kind(ours) as sock, theirs:
            theirs.sendall(data)
            theirs.close()
            with sock.makefile("r", newline=newline, encoding="ascii") as file:
                results.append(file.readlines())
    assert results[0] == results[1]


def test_bytes_that_are_no_text_stay_where_they_are(pair):
    """W2: whatever the error."""
    sock, theirs = pair
    theirs.sendall(b"\xff\n")
    with sock.makefile("r", encoding="utf-8") as file:
        for _ in range(2):
            with pytest.raises(UnicodeDecodeError):
                file.readline()
        assert file.buffer.readline() == b"\xff\n"


def test_a_file_in_both_directions_writes_what_was_flushed(pair):
    sock, theirs = pair
    binary, text = (b"there\n", b"back\n", b"half"), ("there\n", "back\n", "half")
    for mode, (there, back, half) in (("rwb", binary), ("rw", text)):
        with sock.makefile(mode, newline="\n") if "b" not in mode else sock.makefile(mode) as file:
            assert (file.readable(), file.writable(), file.seekable()) == (True, True, False)
            theirs.sendall(b"back\nhalf")
            assert file.readline() == back
            file.write(there)
            file.flush()
            assert theirs.recv(100) == b"there\n"
            assert file.read(4) == half
            file.write(there)
        assert theirs.recv(100) == b"there\n"


def test_a_file_says_what_it_is(pair):
    sock, _ = pair
    with sock.makefile("rb") as file:
        assert file.fileno() == file.name == sock.fileno()
        assert repr(file) == f"<DeadlineFile name={sock.fileno()}>"
        assert (file.mode, file.readable(), file.writable()) == ("rb", True, False)
        assert file.raw.mode == "rb"
        with pytest.raises(io.UnsupportedOperation, match="not writable"):
            file.write(b"x")
        with pytest.raises(io.UnsupportedOperation, match="detached"):
            file.detach()
        file.flush()
    with sock.makefile("r") as text:
        assert text.mode == "r"
        with pytest.raises(io.UnsupportedOperation, match="detached"):
            text.detach()
    for closed, reads in (
        (file, ("read", "read1", "peek", "readline")),
        (text, ("read", "readline")),
    ):
        assert closed.closed
        for read in (*reads, "flush"):
            with pytest.raises(ValueError, match="closed file"):
                getattr(closed, read)()
    file.close()


def test_modes_and_buffers_are_those_of_the_standard_library(pair):
    sock, theirs = pair
    with pytest.raises(ValueError, match="invalid mode"):
        sock.makefile("a")
    with pytest.raises(ValueError, match="unbuffered streams must be binary"):
        sock.makefile("r", 0)
    with sock.makefile("w") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("text")
    with sock.makefile("wb") as file:
        assert isinstance(file, io.BufferedWriter)
        file.write(b"more")
    with sock.makefile("b") as file:
        assert file.readable()
    with sock.makefile(buffering=-1) as file:
        assert file.readable()
    assert theirs.recv(100) == b"textmore"


def test_a_connection_ends_with_its_last_user(pair):
    """As http.client closes: the socket first, the file when the body is read."""
    sock, theirs = pair
    theirs.sendall(b"body")
    theirs.shutdown(socket.SHUT_WR)
    file = sock.makefile("rb")
    sock.close()
    assert file.read() == b"body"
    file.close()
    assert theirs.recv(1) == b""


def test_a_file_that_can_not_send_its_rest_lets_the_connection_go(pair):
    sock, _ = pair
    fill(sock)
    file = sock.makefile("rwb")
    file.write(b"x")
    sock.close()
    with pytest.raises(DeadlineExceeded):
        file.close()
    assert sock.fileno() == -1


def test_without_waiting_a_file_says_that_there_is_nothing(pair):
    """As the standard library's."""
    sock, theirs = pair
    sock.settimeout(0)
    with sock.makefile("rb") as file:
        assert file.read() is None
        assert file.read(5) is None
        assert file.readinto(bytearray(5)) is None
        assert (file.read1(5), file.peek(), file.readline()) == (b"", b"", b"")
        theirs.sendall(b"abc")
        assert file.read(5) == b"abc"
    with sock.makefile("rb", 0) as file:
        assert file.read(5) is None


def test_one_receive_serves_several_reads(pair):
    sock, theirs = pair
    theirs.sendall(b"abcdefgh")
    with sock.makefile("rb") as file:
        assert file.peek() == b"abcdefgh"
        assert file.peek(1) == b"abcdefgh"
        assert file.read1(1) == b"a"
        assert file.read1(0) == b""
        room = bytearray(2)
        assert (file.readinto(room), bytes(room)) == (2, b"bc")
        assert (file.readinto1(room), bytes(room)) == (2, b"de")
        assert file.readline(2) == b"fg"
        assert file.read1() == b"h"
        theirs.sendall(b"i\nj")
        assert file.readline() == b"i\n"
        assert file.read(1) == b"j"


def test_nothing_is_taken_for_a_buffer_that_can_not_be_written(pair):
    sock, theirs = pair
    theirs.sendall(b"abc")
    with sock.makefile("rb") as file:
        for into in (file.readinto, file.readinto1):
            with pytest.raises(TypeError, match="writable"):
                into(b"...")
        assert file.read(3) == b"abc"


def test_what_was_handed_out_is_not_kept(pair, clock):
    sock, theirs = pair
    data = bytes(range(250)) * 400
    theirs.sendall(data)
    with sock.makefile("rb") as file:
        with pytest.raises(DeadlineExceeded):
            file.read(150_000)
        sock.deadline = clock.deadline(1)
        assert file.read(70_000) == data[:70_000]
        assert len(file._held) == 30_000
        assert file.read(30_000) == data[70_000:]
        assert len(file._held) == 0


def test_a_long_stream_is_not_kept(pair):
    """What was handed out goes, whoever reads slowly."""
    sock, theirs = pair
    data = bytes(range(256)) * 1_000

    def send(stop):
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)

    sock.deadline = Deadline.after(60)
    with running(send), sock.makefile("rb", 150_000) as file:
        got = bytearray()
        while part := file.read(1_001):
            got += part
            assert len(file._held) < 400_000
    assert got == data


def test_a_long_line_takes_no_more_than_its_length(pair):
    """It came in a thousand pieces: each is looked at once."""
    sock, theirs = pair
    line = "x" * 8_000_000 + "\n"

    def send(stop):
        theirs.sendall(line.encode())
        theirs.shutdown(socket.SHUT_WR)

    sock.deadline = Deadline.after(60)
    with running(send), sock.makefile("r", encoding="ascii") as file:
        assert file.readline() == line
        assert file.readline() == ""


def test_a_piece_of_a_line_is_handed_out_and_the_rest_follows(pair):
    """W2: as the standard library's, by size."""
    sock, theirs = pair
    theirs.sendall(b"abcdef\nghi\n")
    with sock.makefile("r", encoding="ascii") as file:
        assert [file.readline(2), file.readline(3), file.readline(9), file.readline()] == [
            "ab",
            "cde",
            "f\n",
            "ghi\n",
        ]
    theirs.sendall(b"a line without its end")
    with sock.makefile("r", encoding="ascii") as file:
        assert file.readline(4) == "a li"
        assert file.readline(4) == "ne w"
