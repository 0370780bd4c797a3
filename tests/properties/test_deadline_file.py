"""W2: whatever is read, however it arrives, wherever a limit strikes: the stream, whole."""

from __future__ import annotations

import io
import socket

from hypothesis import given
from hypothesis import strategies as st

from timebounds import DeadlineExceeded, DeadlineSocket

STRUCK = None


class Struck(DeadlineSocket):
    """Hands out what it is told to, in these pieces; strikes where the script says so."""

    def script(self, steps):
        self.steps = list(steps)
        return self

    def recv_into(self, buffer, nbytes=0, flags=0):
        while self.steps:
            step = self.steps.pop(0)
            if step is STRUCK:
                msg = "recv: the deadline was reached"
                raise DeadlineExceeded(msg)
            if step:
                with memoryview(buffer) as view:
                    size = min(len(step), len(view))
                    view[:size] = step[:size]
                if step[size:]:
                    self.steps.insert(0, step[size:])
                return size
        return 0


class Reading:
    """A file over such a socket; each call is repeated until no limit strikes it."""

    def __init__(self, steps, mode, buffering=None, **options):
        ours, self._theirs = socket.socketpair()
        self._sock = Struck(ours).script(steps)
        self.file = self._sock.makefile(mode, buffering, **options)
        self.strikes = 0

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.file.close()
        self._sock.close()
        self._theirs.close()

    def repeat(self, call):
        while True:
            try:
                return call(self.file)
            except DeadlineExceeded:
                self.strikes += 1


def into(verb):
    def call(file, size):
        room = bytearray(size)
        got = getattr(file, verb)(room)
        return bytes(room[:got])

    return call


BINARY = {
    "read": lambda file, size: file.read(size),
    "read1": lambda file, size: file.read1(size),
    "readline": lambda file, size: file.readline(size),
    "whole line": lambda file, size: file.readline(),
    "next": lambda file, size: next(file, b""),
    "readinto": into("readinto"),
    "readinto1": into("readinto1"),
    "peek": lambda file, size: file.peek(size),
    "readlines": lambda file, size: b"".join(file.readlines(size)),
}
TEXT = {
    "read": lambda file, size: file.read(size),
    "readline": lambda file, size: file.readline(size),
    "whole line": lambda file, size: file.readline(),
    "next": lambda file, size: next(file, ""),
    "readlines": lambda file, size: "".join(file.readlines(size)),
}

pieces = st.lists(st.one_of(st.binary(max_size=12), st.just(b"\n"), st.none()), max_size=12)
sizes = st.integers(1, 20)
buffers = st.sampled_from([None, 1, 2, 7, 8192])


def calls(verbs):
    return st.lists(st.tuples(st.sampled_from(sorted(verbs)), sizes), max_size=12)


def stream_of(steps):
    return b"".join(step for step in steps if step is not STRUCK)


@given(pieces, calls(BINARY), buffers)
def test_what_is_handed_out_joined_together_is_the_stream(steps, verbs, buffering):
    """W2."""
    with Reading(steps, "rb", buffering) as reading:
        got = bytearray()
        for verb, size in verbs:
            data = reading.repeat(lambda file, verb=verb, size=size: BINARY[verb](file, size))
            if verb != "peek":
                got += data
            else:
                assert stream_of(steps)[len(got) :].startswith(data)
        got += reading.repeat(lambda file: file.read())
        assert got == stream_of(steps)
        assert reading.strikes == steps.count(STRUCK)


characters = st.text(alphabet="aé€𝄞\n\r", max_size=12)


@given(characters, st.data())
def test_text_is_the_stream_decoded(text, data):
    """W2: limits strike in the middle of lines and of characters."""
    encoding = data.draw(st.sampled_from(["utf-8", "utf-16", "utf-16-le"]))
    newline = data.draw(st.sampled_from([None, "", "\n", "\r", "\r\n"]))
    stream = text.encode(encoding)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    steps = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        steps += [stream[start:end], *[STRUCK] * data.draw(st.integers(0, 2))]
    expected = io.TextIOWrapper(io.BytesIO(stream), encoding, newline=newline).read()
    with Reading(steps, "r", encoding=encoding, newline=newline) as reading:
        got = ""
        for verb, size in data.draw(calls(TEXT)):
            got += reading.repeat(lambda file, verb=verb, size=size: TEXT[verb](file, size))
        got += reading.repeat(lambda file: file.read())
        assert got == expected
        assert reading.strikes == steps.count(STRUCK)


def of_both(stream, use):
    """Do the same over a plain socket and over ours."""
    results = []
    for kind in (lambda sock: sock, DeadlineSocket):
        ours, theirs = socket.socketpair()
        with kind(ours) as sock, theirs:
            theirs.sendall(stream)
            theirs.shutdown(socket.SHUT_WR)
            results.append(use(sock))
    return results


@given(st.binary(max_size=60), calls(BINARY), buffers)
def test_without_limits_it_reads_as_the_standard_library_reads(stream, verbs, buffering):
    """W2; how much `peek` shows, and `read1` gives beyond one byte, nobody promises."""

    def use(sock):
        told = []
        with sock.makefile("rb", buffering) as file:
            for verb, size in verbs:
                if verb in ("peek", "read1", "readinto1"):
                    told.append(BINARY["read"](file, 1))
                else:
                    told.append(BINARY[verb](file, size))
            return [*told, file.read(), file.read(), file.readline(), file.read1(), file.peek()]

    plain, ours = of_both(stream, use)
    assert ours == plain


@given(characters, calls(TEXT), st.sampled_from([None, "", "\n", "\r", "\r\n"]))
def test_without_limits_text_reads_as_the_standard_librarys(text, verbs, newline):
    """W2."""

    def use(sock):
        with sock.makefile("r", encoding="utf-8", newline=newline) as file:
            told = [TEXT[verb](file, size) for verb, size in verbs]
            return [*told, file.read(), file.readline(), file.readlines()]

    plain, ours = of_both(text.encode(), use)
    assert ours == plain
