"""What the benchmarks share: interleaved rounds, medians, tables, claims.

Contestants take turns within each round, and the order turns too, so that a slow moment of the
machine meets all of them. A ratio is the median over the rounds of two neighbours' quotient, which
such moments disturb less than a quotient of medians.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Rounds:
    """The figures of several contestants, one of each in every round."""

    def __init__(self, contestants: dict[str, Callable[[], float]], rounds: int):
        self.figures: dict[str, list[float]] = {name: [] for name in contestants}
        names = list(contestants)
        for contestant in contestants.values():
            contestant()  # the first run pays for caches and imports
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                self.figures[name].append(contestants[name]())

    def median(self, name: str) -> float:
        return statistics.median(self.figures[name])

    def ratio(self, name: str, beside: str) -> float:
        pairs = zip(self.figures[name], self.figures[beside], strict=True)
        return statistics.median(one / other for one, other in pairs)

    def table(self, title: str, unit: str, beside: str, scale: float = 1.0) -> None:
        """Print each contestant's median, and its ratio to `beside`."""
        rows = [
            (name, f"{self.median(name) * scale:,.1f}", f"{self.ratio(name, beside):.2f}")
            for name in self.figures
        ]
        table(title, ("", unit, f"x {beside}"), rows)


def table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows of text, the first column to the left, the others to the right."""
    print(f"\n{title}")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, *rows]:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        print(f"  {row[0]:<{widths[0]}}  {'  '.join(cells)}".rstrip())


class Claims:
    """What a benchmark is to show. A claim that does not hold on one noisy day is no crash."""

    def __init__(self):
        self._lines: list[str] = []

    def at_most(self, text: str, seen: float, limit: float) -> None:
        self.state(f"{text}: {seen:.2f}, at most {limit:g}", held=seen <= limit)

    def at_least(self, text: str, seen: float, limit: float) -> None:
        self.state(f"{text}: {seen:.2f}, at least {limit:g}", held=seen >= limit)

    def state(self, text: str, *, held: bool) -> None:
        self._lines.append(f"  {'held    ' if held else 'NOT HELD'}  {text}")

    def leave_open(self, text: str) -> None:
        self._lines.append(f"  not seen  {text}")

    def end(self) -> None:
        print("\nClaims")
        print("\n".join(self._lines))


def begin(about: str) -> bool:
    """Read the command line, print the head; return whether a quick run is wanted."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run at all?")
    quick = parser.parse_args().quick
    print(f"{about}\nPython {platform.python_version()} on {sys.platform}; medians")
    return quick
