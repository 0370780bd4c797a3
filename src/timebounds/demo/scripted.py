"""Part one: scripted time. Every figure is exact, and is compared with the published table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from timebounds import Backoff, BudgetedReceiver, DeadlineExceeded, RetryAllowance
from timebounds.demo.watching import ReadLog, WatchedStream, as_row
from timebounds.demo.waterfall import Chart, Kind, Row
from timebounds.testing import Data, FakeClock, ScriptedSocket, Silence

if TYPE_CHECKING:
    from timebounds.demo.story import Story
    from timebounds.testing.scripted_socket import Step

__all__ = ["Figures", "fresh_timeouts", "one_deadline", "tell"]

IDLE = 1.0
MEANT = 2.0
SPAN = 2.5
CHUNKS = (Data(b"AB", after=0.75), Data(b"CD", after=0.75), Data(b"EF", after=0.75))
STALL = (Data(b"AB", after=0.25), Silence(), Data(b"CD", after=0.25))


class Figures(NamedTuple):
    """What the table tells of one receive."""

    outcome: str
    satisfied: bool
    data: bytes
    granted: tuple[float | None, ...]
    sleeps: tuple[float, ...]
    time: float


# The published figures: of the loop with a fresh timeout, and of one deadline of so many seconds.
FRESH = Figures("complete", True, b"ABCDEF", (1, 1, 1), (), 2.25)  # noqa: FBT003
SHARED = {
    2.0: Figures("deadline_expired", False, b"ABCD", (1, 1, 0.5), (), 2.0),  # noqa: FBT003
    2.25: Figures("deadline_expired", True, b"ABCDEF", (1, 1, 0.75), (), 2.25),  # noqa: FBT003
    2.5: Figures("complete", True, b"ABCDEF", (1, 1, 1), (), 2.25),  # noqa: FBT003
}
BACKED_OFF = Figures("deadline_expired", True, b"ABCD", (1, 1, 0.25), (0.5,), 2.0)  # noqa: FBT003


class _Stage:
    """A fake clock that moves itself, a scripted peer on it, and a log of the reads."""

    def __init__(self, *script: Step) -> None:
        self.clock = FakeClock(auto_advance=True)
        self._sock = ScriptedSocket(self.clock, *script)
        self._log = ReadLog(self.clock)
        self.stream = WatchedStream(self._sock, self._log)

    def figures(self, outcome: str, data: bytes, *, satisfied: bool) -> Figures:
        granted = tuple(self._sock.granted)
        return Figures(outcome, satisfied, data, granted, self.clock.sleeps, self.clock.now())

    def rows(self, data: bytes) -> tuple[Row, ...]:
        """Return a row for each read, and one for each pause between two reads."""
        rows: list[Row] = []
        ended, taken = 0.0, 0
        steps = zip(self._log.reads, self._sock.granted, strict=True)
        for number, (seen, limit) in enumerate(steps, 1):
            if seen.start > ended:
                pause = f"slept {seen.start - ended:g} s"
                rows.append(Row("backoff", ended, seen.start, Kind.BACKOFF, pause))
            came = data[taken : taken + seen.size].decode() or "--"
            taken += seen.size
            ended = seen.end
            rows.append(as_row(seen, f"read {number}", 0.0, f"{came} limit {limit:g} s"))
        return tuple(rows)


def fresh_timeouts() -> tuple[Figures, tuple[Row, ...]]:
    """Receive six bytes as most clients do: each read has the whole timeout again."""
    stage = _Stage(*CHUNKS)
    data = b""
    stage.stream.settimeout(IDLE)
    while len(data) < 6:
        data += stage.stream.recv(6 - len(data))
    return stage.figures("complete", data, satisfied=True), stage.rows(data)


def one_deadline(
    seconds: float, size: int, allowance: RetryAllowance, *script: Step
) -> tuple[Figures, tuple[Row, ...]]:
    """Receive `size` bytes under one deadline for the whole operation."""
    stage = _Stage(*script)
    receiver = BudgetedReceiver(stage.stream, idle_timeout=IDLE, allowance=allowance)
    deadline = stage.clock.deadline(seconds)
    outcome, satisfied = "complete", True
    try:
        data = receiver.receive_exactly(size, deadline)
    except DeadlineExceeded as error:
        report = error.report
        outcome, satisfied, data = str(report.outcome), report.satisfied, report.data
    return stage.figures(outcome, data, satisfied=satisfied), stage.rows(data)


def tell(story: Story) -> None:
    """Draw each receive and hold its figures against the table."""
    story.head(
        "Part one: scripted time, exact to the nanosecond",
        "A peer sends AB, CD and EF, each after 0.75 s. Six bytes are wanted, and 2 s",
        "are meant to be the limit. No read waits longer than 1 s.",
    )
    story.explain()
    found, rows = fresh_timeouts()
    late = found.time - MEANT
    verdict = f"complete at {found.time:g} s, {late:g} s beyond what was meant, and nobody notices"
    title = "What others do: a fresh timeout of 1 s for every read"
    story.show(Chart(title, rows, SPAN, MEANT, "meant:", (verdict,)))
    _claim(story, "a fresh timeout a read", found, FRESH)
    for seconds, expected in SHARED.items():
        found, rows = one_deadline(seconds, 6, RetryAllowance.none(), *CHUNKS)
        title = f"One deadline of {seconds:g} s, shared by all reads"
        story.show(Chart(title, rows, SPAN, seconds, "deadline", (_verdict(found, 6),)))
        _claim(story, f"one deadline of {seconds:g} s", found, expected)
    allowance = RetryAllowance(1, Backoff.fixed(0.5))
    found, rows = one_deadline(MEANT, 4, allowance, *STALL)
    story.say("", "The backoff before a retry is spent from the same two seconds. Four bytes are")
    story.say("wanted; the peer sends AB, is silent for a second, and then sends CD.")
    title = "One deadline of 2 s, one retry after a backoff of 0.5 s"
    story.show(Chart(title, rows, SPAN, MEANT, "deadline", (_verdict(found, 4),)))
    _claim(story, "a retry under 2 s", found, BACKED_OFF)


def _verdict(found: Figures, wanted: int) -> str:
    kept = f"{len(found.data)} of {wanted} bytes kept: {found.data.decode()}"
    late = ", whole but late" if found.satisfied and found.outcome != "complete" else ""
    return f"{found.outcome} at {found.time:g} s{late}; {kept}"


def _claim(story: Story, what: str, found: Figures, expected: Figures) -> None:
    limits = ", ".join(f"{limit:g}" for limit in expected.granted if limit is not None)
    text = f"{what}: limits {limits}; {expected.data.decode()} at {expected.time:g} s exactly"
    story.claim(text, held=found == expected)
