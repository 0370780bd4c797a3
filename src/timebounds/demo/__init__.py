"""The demo: `python -m timebounds demo` shows what the library is for, and checks what it shows.

Each part is a function that tells its story: it draws what it saw and states its claims.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, TextIO

from timebounds.demo import loopback, offloading, scripted
from timebounds.demo.story import Story
from timebounds.demo.waterfall import LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from timebounds.demo.waterfall import Look

__all__ = ["PARTS", "run"]

PARTS: tuple[Callable[[Story], None], ...] = (
    scripted.tell,
    loopback.tell,
    offloading.tell,
)


def run(argv: Sequence[str], parts: Sequence[Callable[[Story], None]] = PARTS) -> int:
    """Run `python -m timebounds` with these arguments; return its exit status.

    It is 0 when every claim held, 1 when one failed or the reader went away.
    """
    parser = argparse.ArgumentParser(
        prog="python -m timebounds",
        description="timebounds: one deadline for a whole operation.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo", help="show the library at work; takes a few seconds", allow_abbrev=False
    )
    demo.add_argument("--plain", action="store_true", help="no colour, and ASCII alone")
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help()
        return 0
    story = Story(sys.stdout, _look(sys.stdout, plain=options.plain))
    try:
        for part in parts:
            _tell(part, story)
        return story.end()
    except BrokenPipeError:
        # Whoever read the output has gone, as `head` does; the interpreter's own last flush
        # would complain once more.
        _drop_output()
        return 1


def _tell(part: Callable[[Story], None], story: Story) -> None:
    """Tell one part; where sockets do not work at all, that is a claim that failed."""
    try:
        part(story)
    except BrokenPipeError:
        raise
    except (OSError, EOFError) as error:
        story.claim(f"this part runs to its end: {error!r:.60}", held=False)


def _look(out: TextIO, *, plain: bool) -> Look:
    """Choose the look: plain where it was asked for, and where a richer one could not be seen."""
    rich = LOOKS["rich"]
    if plain or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not out.isatty():
        return LOOKS["plain"]
    try:
        rich.characters.encode(out.encoding)
    except UnicodeEncodeError:
        return LOOKS["plain"]
    return rich


def _drop_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)
