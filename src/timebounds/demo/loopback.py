"""Part two: real time, a real server on the loopback interface, measured figures."""

from __future__ import annotations

import contextlib
import http.client
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from timebounds import MONOTONIC, BudgetedReceiver, Deadline, DeadlineExceeded
from timebounds.demo.drip import SETUP, DripServer, client_tls, server_tls
from timebounds.demo.watching import ReadLog, WatchedSocket, WatchedStream, WatchingClock, as_row
from timebounds.demo.waterfall import Chart

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from timebounds.demo.story import Story
    from timebounds.demo.waterfall import Row

__all__ = [
    "Measured",
    "best",
    "one_deadline",
    "per_read_timeout",
    "popular_client",
    "tell",
    "tried",
]

_T = TypeVar("_T")

TEXT = (b"One deadline for the whole operation. " * 3)[:100]
EVERY = 0.1
LIMIT = 0.5
# What a noisy machine may add, in the best of so many tries.
SLACK = 0.15
TRIES = 3
PER_READ = 1.0
# So many bytes take about 1.5 s; all 100 would keep the reader of this demo waiting for 10.
SHORT = 15
BODY = b"8 bytes!"
BODY_EVERY = 0.2
SPAN = 1.75


class Measured(NamedTuple):
    """What was seen of one receive: how long it took, what was kept, what came of it in the end."""

    rows: tuple[Row, ...]
    ns: int
    outcome: str
    kept: bytes
    whole: bytes

    @property
    def seconds(self) -> float:
        """How long it took, in seconds."""
        return self.ns / 1e9


def best(attempt: Callable[[], _T], good: Callable[[_T], bool]) -> tuple[_T, int]:
    """Return the first good result of a few attempts, else the last, and its number."""
    number = 1
    found = attempt()
    while number < TRIES and not good(found):
        number += 1
        found = attempt()
    return found, number


def per_read_timeout() -> Measured:
    """Receive with a timeout for each read, which a drip never meets."""
    log = ReadLog(MONOTONIC)
    data, outcome = b"", "complete"
    with DripServer(TEXT, EVERY) as server, server.connect() as sock:
        stream = WatchedStream(sock, log)
        stream.settimeout(PER_READ)
        began = MONOTONIC.now_ns()
        try:
            while len(data) < SHORT:
                data += stream.recv(SHORT - len(data))
        except TimeoutError:
            outcome = "timed out"
        ns = MONOTONIC.now_ns() - began
    return Measured(_rows(log, began, data), ns, outcome, data, data)


def one_deadline(*, tls: bool) -> Measured:
    """Receive under one deadline; then let the peer pour, and resume."""
    with (
        DripServer(TEXT, EVERY, tls=server_tls() if tls else None) as server,
        _connected(server, tls=tls) as sock,
    ):
        receiver = BudgetedReceiver(sock, idle_timeout=PER_READ)
        clock = WatchingClock(lambda: len(receiver.pending))
        outcome, whole = "complete", b""
        began = MONOTONIC.now_ns()
        try:
            receiver.receive_exactly(len(TEXT), Deadline.after(LIMIT, clock=clock))
        except DeadlineExceeded as error:
            outcome = str(error.report.outcome)
        ns = MONOTONIC.now_ns() - began
        kept, reads = receiver.pending, clock.reads()
        if outcome != "complete":
            server.pour()
            whole = receiver.resume(Deadline.after(SETUP))
    rows = tuple(
        as_row(seen, f"wait {number}", began / 1e9, f"{seen.size} byte" if seen.size else "no data")
        for number, seen in enumerate(reads, 1)
    )
    return Measured(rows, ns, outcome, kept, whole)


def _connected(server: DripServer, *, tls: bool) -> socket.socket:
    context = client_tls() if tls else None
    sock = server.connect()
    if context is None:
        return sock
    sock.settimeout(SETUP)
    # From here on ssl owns the descriptor, and closes it when the handshake fails.
    secured = context.wrap_socket(sock, server_hostname="localhost")
    secured.settimeout(None)
    return secured


def popular_client() -> Measured:
    """Read a response with http.client under the same number of seconds."""
    log = ReadLog(MONOTONIC)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    with (
        DripServer(BODY, BODY_EVERY, head=head) as server,
        contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT)
        ) as connection,
    ):
        connection.connect()
        connection.sock = WatchedSocket.adopt(connection.sock, log)
        began = MONOTONIC.now_ns()
        body = b""
        try:
            connection.request("GET", "/")
            response = connection.getresponse()
            body = response.read()
            outcome = f"{response.status} {response.reason}"
        except TimeoutError:
            outcome = "timed out"
        ns = MONOTONIC.now_ns() - began
    return Measured(_rows(log, began, body, head="head"), ns, outcome, body, body)


def _rows(log: ReadLog, began_ns: int, data: bytes, head: str = "") -> tuple[Row, ...]:
    """Return a row for each read; the first may have brought a head instead of data."""
    rows: list[Row] = []
    taken = 0
    for number, seen in enumerate(log.reads, 1):
        if head and number == 1:
            note = head
        else:
            note = repr(data[taken : taken + seen.size].decode())
            taken += seen.size
        rows.append(as_row(seen, f"read {number}", began_ns / 1e9, note))
    return tuple(rows)


def tell(story: Story) -> None:
    """Measure the same drip under a timeout for each read, under one deadline, and in a client."""
    story.head(
        "Part two: real time, over the loopback interface",
        f"A server drips one byte every {EVERY:g} s, and {LIMIT:g} s are meant to be the limit of",
        "the whole receive.",
    )
    _tell_per_read(story)
    for tls in (False, True):
        _tell_one_deadline(story, tls=tls)
    _tell_popular_client(story)


def _tell_per_read(story: Story) -> None:
    def good(found: Measured) -> bool:
        return found.outcome == "complete" and found.seconds > 2 * LIMIT

    found, tries = best(per_read_timeout, good)
    late = found.seconds - LIMIT
    verdict = f"{found.outcome} after {found.seconds:.3f} s, {late:.3f} s beyond what was meant"
    title = f"A timeout of {PER_READ:g} s for each read; {SHORT} bytes wanted"
    story.show(Chart(title, found.rows, SPAN, LIMIT, "meant:", (verdict + tried(tries),)))
    story.claim("a limit on each read is no limit on the whole: no error came", held=good(found))


def _tell_one_deadline(story: Story, *, tls: bool) -> None:
    def good(found: Measured) -> bool:
        return found.outcome == "deadline_expired" and found.seconds <= LIMIT + SLACK

    name = "TLS" if tls else "TCP"
    found, tries = best(lambda: one_deadline(tls=tls), good)
    late = (found.seconds - LIMIT) * 1000
    kept = len(found.kept)
    verdict = (
        f"{found.outcome} after {found.seconds:.3f} s, {late:.1f} ms late{tried(tries)}",
        f"{kept} of {len(TEXT)} bytes kept: {found.kept.decode()!r}",
        f"resumed after the server hurried: {len(found.whole)} bytes, {kept} of them from before",
    )
    title = f"One deadline of {LIMIT:g} s, over {name}; {len(TEXT)} bytes wanted"
    story.show(Chart(title, found.rows, SPAN, LIMIT, "deadline", verdict))
    story.claim(
        f"{name}: ended within {LIMIT + SLACK:g} s and not one nanosecond early",
        held=good(found) and found.ns >= LIMIT * 1e9,
    )
    story.claim(
        f"{name}: bytes were kept, and resume gave the whole: none lost, none twice",
        held=bool(found.kept) and TEXT.startswith(found.kept) and found.whole == TEXT,
    )


def _tell_popular_client(story: Story) -> None:
    def good(found: Measured) -> bool:
        return found.outcome == "200 OK" and found.whole == BODY and found.seconds >= 3 * LIMIT

    found, tries = best(popular_client, good)
    verdict = (
        f"{found.outcome} after {found.seconds:.3f} s: "
        f"{found.seconds / LIMIT:.1f} times the number that was given{tried(tries)}"
    )
    title = (
        f"http.client, timeout={LIMIT:g}, from a server that drips a byte every {BODY_EVERY:g} s"
    )
    story.show(Chart(title, found.rows, SPAN, LIMIT, "meant:", (verdict,)))
    text = f"http.client took more than 3 times {LIMIT:g} s and called it a success"
    story.claim(text, held=good(found))


def tried(tries: int) -> str:
    """Return what a verdict says about the tries that it took."""
    return f" (try {tries} of {TRIES})" if tries > 1 else ""
