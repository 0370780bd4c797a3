"""The running path: a breach is found, reminded of at a cadence, sent, lost, tried again, stopped.

    python examples/reminders/app.py

A monitoring rule decides, a coordinator says when, a worker owns what waits, an offloaded exchange
with a real service sends, a journal remembers. It takes about two seconds and draws what happened.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from alerts import Reading, Rule
from coordinator import Coordinator, check
from pager import Pager
from sending import PagerClient

from timebounds import (
    MONOTONIC,
    AsyncScheduler,
    AsyncWorker,
    Deadline,
    Overflow,
    SQLiteJournal,
    StopSignal,
)

WIDTH = 60
LASTS = 2.0


class Timeline:
    """What happened when, drawn on one axis."""

    def __init__(self) -> None:
        self._began = MONOTONIC.now()
        self._lines: list[tuple[float, str]] = []

    def note(self, what: str) -> None:
        self._lines.append((MONOTONIC.now() - self._began, what))

    def draw(self) -> None:
        print(f"{'seconds':>9} 0{'':{WIDTH - 1}}{LASTS:g}")
        for at, what in self._lines:
            place = min(WIDTH, round(at / LASTS * WIDTH))
            print(f"{at:9.3f} {'.' * place}| {what}")


async def run(pager: Pager, journal: SQLiteJournal, timeline: Timeline) -> None:
    """Play the path."""
    client = PagerClient(pager.address, journal, note=timeline.note)
    worker = AsyncWorker(
        client.handle,
        capacity=2,
        overflow=Overflow.REJECT,
        check=check,
        duplicate_window=60,
        dead_letter=lambda work: timeline.note(f"not sent: {work.record.outcome}"),
    )
    scheduler = AsyncScheduler()
    coordinator = Coordinator(scheduler, worker.submit, cadence=0.5, good_for=0.45)

    reading = Reading("disk of db-7", 97.0, datetime(2026, 3, 1, 12, tzinfo=UTC))
    alert = Rule("disk of db-7", 90.0).judge(reading)
    assert alert is not None
    timeline.note(f"breach: {alert.text}")
    coordinator.open(alert)

    with StopSignal.on_signals(signal.SIGTERM) as stop:
        report = await scheduler.run(Deadline.after(LASTS, stop=stop))
    timeline.note(f"scheduler: {report.outcome}, {report.runs} runs")
    account = await worker.close(Deadline.after(2.0), reserve=0.5)
    timeline.note(f"worker: {account.completed} of {account.accepted} completed")


def main() -> None:
    """Play it against a pager that drops, refuses and hangs before it behaves."""
    timeline = Timeline()
    with tempfile.TemporaryDirectory() as folder, Pager("drop", "refuse", "", "hang") as pager:
        journal = SQLiteJournal(Path(folder) / "pages.sqlite")
        asyncio.run(run(pager, journal, timeline))
        left = journal.unfinished(Deadline.after(1.0))
    timeline.draw()
    print(f"asked {len(pager.asked)} times, {len(pager.alerts)} alerts are visible")
    print(f"in doubt: {[key.rpartition('/')[2] for key, _ in left] or 'none'}")


if __name__ == "__main__":
    main()
