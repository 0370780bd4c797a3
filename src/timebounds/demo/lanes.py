"""Lanes in plain text: a task and a thread below one another, on one axis of time.

Pure, as the waterfall beside it: from measured instants to lines of text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, final

from timebounds.demo.waterfall import LABEL, MARGIN, PLOT, WIDTH, axis, column_of, painted

if TYPE_CHECKING:
    from timebounds.demo.waterfall import Cell, Look

__all__ = ["Bar", "Lane", "Lanes", "Mark", "Span", "draw_lanes", "lanes_legend"]


@final
class Mark(Enum):
    """A moment in a lane: its letter, and its words in the legend."""

    REQUESTED = ("R", "stop requested")
    WOKEN = ("W", "read released")
    OBSERVED = ("O", "stop observed")
    FINISHED = ("F", "function returned")
    CLOSED = ("X", "socket closed")
    CANCELLED = ("C", "CancelledError out")
    EFFECT = ("E", "side effect")

    @property
    def letter(self) -> str:
        """The one character that is drawn."""
        return self.value[0]

    @property
    def words(self) -> str:
        """What the legend says."""
        return self.value[1]


@final
class Bar(Enum):
    """What a lane does for a while; the value is its words in the legend."""

    BUSY = "before the stop"
    HELD = "after the stop"
    ALONE = "inside, caller gone"


@final
@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of a lane, in seconds since the beginning."""

    start: float
    end: float
    bar: Bar


@final
@dataclass(frozen=True, slots=True)
class Lane:
    """What one task or thread did; marks are drawn over the stretches, in their order."""

    label: str
    spans: tuple[Span, ...]
    marks: tuple[tuple[Mark, float], ...]
    note: str = ""


@final
@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes on an axis from 0 to `span` seconds; `verdict` lines stand below."""

    title: str
    lanes: tuple[Lane, ...]
    span: float
    verdict: tuple[str, ...] = ()


_COLUMN = 25
_PARTS = {
    Bar.BUSY: "wait",
    Bar.HELD: "backoff",
    Bar.ALONE: "late",
    Mark.REQUESTED: "line",
    Mark.CANCELLED: "empty",
    Mark.EFFECT: "late",
}


def lanes_legend(look: Look) -> list[str]:
    """Return the lines that explain the drawings."""
    strokes = {Bar.BUSY: look.wait, Bar.HELD: look.backoff, Bar.ALONE: look.late}
    items = [(strokes[bar] * 4, _part(bar), bar.value) for bar in Bar]
    items += [(f"{mark.letter:<4}", _part(mark), mark.words) for mark in Mark]
    shown = [
        look.paint(part, symbol) + f"  {words}".ljust(_COLUMN - len(symbol))
        for symbol, part, words in items
    ]
    rows = [shown[at : at + 3] for at in range(0, len(shown), 3)]
    return [(" " * MARGIN + "".join(row)).rstrip() for row in rows]


def draw_lanes(chart: Lanes, look: Look) -> list[str]:
    """Return the lines of a chart, none longer than `WIDTH` columns as they are seen."""
    indent = " " * MARGIN
    lines = [indent + look.paint("title", chart.title), *axis(chart.span, look)]
    lines += [_lane(lane, chart.span, look) for lane in chart.lanes]
    lines += [f"{indent}{line}" for line in chart.verdict]
    return lines


def _part(what: Bar | Mark) -> str:
    return _PARTS.get(what, "came")


def _lane(lane: Lane, span: float, look: Look) -> str:
    strokes = {Bar.BUSY: look.wait, Bar.HELD: look.backoff, Bar.ALONE: look.late}
    cells: list[Cell] = [(" ", "")] * (PLOT + 1)
    for each in lane.spans:
        for column in range(column_of(each.start, span), column_of(each.end, span) + 1):
            cells[column] = (strokes[each.bar], _part(each.bar))
    free = 0
    for mark, at in lane.marks:
        # Two moments of one column stand side by side, in their order.
        column = min(PLOT, max(free, column_of(at, span)))
        cells[column] = (mark.letter, _part(mark))
        free = column + 1
    note = lane.note[: WIDTH - 2 * MARGIN - LABEL - PLOT - 1]
    bar = painted(cells, look)
    return f"{' ' * MARGIN}{lane.label:<{LABEL}}{bar}{' ' * MARGIN}{note}".rstrip()
