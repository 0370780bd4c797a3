"""Waterfalls in plain text: what waited when, on one axis of time, beside the bound it was under.

Pure: from rows of measured instants to lines of text. No clock, no socket, no printing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LABEL",
    "LOOKS",
    "MARGIN",
    "PLOT",
    "WIDTH",
    "Cell",
    "Chart",
    "Kind",
    "Look",
    "Row",
    "axis",
    "column_of",
    "draw",
    "legend",
    "painted",
]

WIDTH = 80
"""Columns that no line goes beyond."""
LABEL = 9
PLOT = 50  # cells; the plot has one column more, as a ruler has one line more than fields
MARGIN = 2
Cell: TypeAlias = tuple[str, str]
"""A character and the part of the drawing whose colour it has."""
_STEPS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@final
class Kind(Enum):
    """What a row's time was spent on; the value is its line in the legend."""

    READ = "a wait that bytes ended"
    EMPTY = "a wait that brought nothing"
    BACKOFF = "backoff"


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One step of an operation, in seconds since the operation began."""

    label: str
    start: float
    end: float
    kind: Kind
    note: str = ""


@final
@dataclass(frozen=True, slots=True)
class Chart:
    """A waterfall: rows below one another, all on an axis from 0 to `span` seconds.

    `limit` is where the line is drawn, and `limit_name` what is written at its foot: a deadline,
    or a limit that was only meant. `verdict` lines stand below.
    """

    title: str
    rows: tuple[Row, ...]
    span: float
    limit: float | None
    limit_name: str
    verdict: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Look:
    """The characters and colours of a drawing; `colours` maps a part's name to an SGR code."""

    wait: str
    late: str
    backoff: str
    came: str
    empty: str
    line: str
    axis: str
    tick: str
    held: str
    failed: str
    rule: str
    colours: dict[str, str]

    def paint(self, part: str, text: str) -> str:
        """Return `text` in the colour of that part, if this look has one."""
        code = self.colours.get(part)
        return f"\x1b[{code}m{text}\x1b[0m" if code and text.strip() else text

    @property
    def characters(self) -> str:
        """Every character beyond text that a drawing may hold."""
        bars = self.wait + self.late + self.backoff + self.came + self.empty
        return bars + self.line + self.axis + self.tick + self.held + self.failed + self.rule


_COLOURS = {
    "title": "1",
    "wait": "36",
    "late": "31",
    "backoff": "33",
    "came": "1;32",
    "empty": "1;33",
    "line": "35",
    "faint": "2",
    "held": "32",
    "failed": "1;31",
}

LOOKS = {
    "plain": Look("-", "#", "~", "o", "x", "|", "-", "+", "held", "FAILED", "=", {}),
    "rich": Look("━", "▒", "╌", "●", "○", "┃", "─", "┬", "✓", "✗", "═", _COLOURS),
}


def legend(look: Look) -> list[str]:
    """Return the lines that explain the drawings."""
    wait = look.paint("wait", look.wait * 3)
    read = wait + look.paint("came", look.came)
    empty = wait + look.paint("empty", look.empty)
    backoff = look.paint("backoff", look.backoff * 4)
    late = look.paint("late", look.late * 4)
    line = look.paint("line", look.line)
    first = f"{read}  {Kind.READ.value:<28}{empty}  {Kind.EMPTY.value}"
    second = f"{backoff}  {Kind.BACKOFF.value:<28}{late}  time spent beyond the limit"
    third = f"{line}     the limit: one for the whole operation, or what was meant by one"
    return [" " * MARGIN + text for text in (first, second, third)]


def draw(chart: Chart, look: Look) -> list[str]:
    """Return the lines of a chart, none longer than `WIDTH` columns as they are seen."""
    indent = " " * MARGIN
    lines = [indent + look.paint("title", chart.title), *axis(chart.span, look)]
    lines += [_row(row, chart, look) for row in chart.rows]
    if chart.limit is not None:
        column = column_of(chart.limit, chart.span)
        foot = f"{chart.limit_name} {chart.limit:g} s"
        # Beside the line where there is room to its right, else to its left.
        if LABEL + column + 2 + len(foot) <= WIDTH - MARGIN:
            before, after = " " * (LABEL + column), " " + foot
        else:
            before, after = foot.rjust(LABEL + column - 1) + " ", ""
        lines.append(f"{indent}{before}{look.paint('line', look.line + after)}".rstrip())
    lines += [f"{indent}{line}" for line in chart.verdict]
    return lines


def column_of(instant: float, span: float) -> int:
    """Return the column of an instant, within the plot."""
    return min(PLOT, max(0, round(instant / span * PLOT)))


def axis(span: float, look: Look) -> Iterable[str]:
    """Return the two lines of an axis from 0 to `span` seconds."""
    step = next((step for step in _STEPS if span / step <= 8), span)
    ruler, numbers = [look.axis] * (PLOT + 1), [" "] * (PLOT + 8)
    for tick in range(int(span / step + 1e-9) + 1):
        column = column_of(tick * step, span)
        ruler[column] = look.tick
        text = f"{tick * step:g}"
        numbers[column : column + len(text)] = text
    indent = " " * (MARGIN + LABEL)
    yield indent + look.paint("faint", ("".join(numbers).rstrip() + " s"))
    yield indent + look.paint("faint", "".join(ruler))


def _row(row: Row, chart: Chart, look: Look) -> str:
    cells: list[Cell] = [(" ", "")] * (PLOT + 1)
    first, last = column_of(row.start, chart.span), column_of(row.end, chart.span)
    limit = chart.limit
    line = None if limit is None else column_of(limit, chart.span)
    for column in range(first, last + 1):
        late = line is not None and column > line
        part = "late" if late else "backoff" if row.kind is Kind.BACKOFF else "wait"
        cells[column] = ({"late": look.late, "backoff": look.backoff}.get(part, look.wait), part)
    if line is not None:
        cells[line] = (look.line, "line")
    if row.kind is Kind.READ:
        cells[last] = (look.came, "late" if line is not None and last > line else "came")
    elif row.kind is Kind.EMPTY:
        cells[last] = (look.empty, "empty")
    room = WIDTH - 2 * MARGIN - LABEL - PLOT - 1
    note = row.note[:room]
    bar = painted(cells, look)
    return f"{' ' * MARGIN}{row.label:<{LABEL}}{bar}{' ' * MARGIN}{note}".rstrip()


def painted(cells: list[Cell], look: Look) -> str:
    """Join cells; neighbours of one part share their colour code."""
    runs: list[list[str]] = []
    for character, part in cells:
        if runs and runs[-1][1] == part:
            runs[-1][0] += character
        else:
            runs.append([character, part])
    return "".join(look.paint(part, text) for text, part in runs)
