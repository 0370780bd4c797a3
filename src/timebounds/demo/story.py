"""The teller of the demo: it prints text and charts, and keeps count of what was claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO, final

from timebounds.demo.lanes import draw_lanes, lanes_legend
from timebounds.demo.waterfall import draw, legend

if TYPE_CHECKING:
    from timebounds.demo.lanes import Lanes
    from timebounds.demo.waterfall import Chart, Look

__all__ = ["Story"]


@final
class Story:
    """Prints to `out` as it goes; `failed` holds each claim that did not hold."""

    def __init__(self, out: TextIO, look: Look) -> None:
        self._out = out
        self._look = look
        self._held = 0
        self.failed: list[str] = []

    def say(self, *lines: str) -> None:
        """Print lines as they are."""
        # Somebody watches: a chart must not wait for the next experiment.
        print(*lines, sep="\n", file=self._out, flush=True)

    def head(self, title: str, *lines: str) -> None:
        """Begin a part."""
        rule = self._look.rule * len(title)
        self.say("", self._look.paint("title", title), self._look.paint("faint", rule), *lines)

    def explain(self) -> None:
        """Print the legend of the charts."""
        self.say("", *legend(self._look))

    def show(self, chart: Chart) -> None:
        """Draw a chart."""
        self.say("", *draw(chart, self._look))

    def explain_lanes(self) -> None:
        """Print the legend of the lanes."""
        self.say("", *lanes_legend(self._look))

    def show_lanes(self, chart: Lanes) -> None:
        """Draw lanes."""
        self.say("", *draw_lanes(chart, self._look))

    def claim(self, text: str, *, held: bool) -> None:
        """State what was to be seen, and whether it was."""
        if held:
            self._held += 1
        else:
            self.failed.append(text)
        part = "held" if held else "failed"
        word = self._look.held if held else self._look.failed
        self.say(f"  {self._look.paint(part, f'[{word}]')} {text}")

    def end(self) -> int:
        """Print the count; return the exit status: 0 when every claim held."""
        self.say("")
        if not self.failed:
            self.say(self._look.paint("held", f"All {self._held} claims held."))
            return 0
        count = f"{len(self.failed)} of {self._held + len(self.failed)} claims failed:"
        self.say(self._look.paint("failed", count), *(f"  {text}" for text in self.failed))
        return 1
