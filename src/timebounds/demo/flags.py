"""The end of part three: a flag, an effect, and a request that comes before, between or after."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from timebounds import StopRequested, StopSignal
from timebounds.testing import Gate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from timebounds.demo.story import Story

__all__ = ["ORDERS", "in_order", "tell"]

# What was done in which order, and then: was there an effect, what was the one told who asked?
ORDERS = (
    (("request", "check"), False, "accepted"),
    (("check", "request", "effect"), True, "accepted"),
    (("check", "request", "commit"), False, "accepted"),
    (("check", "commit", "request", "effect"), True, "too_late"),
)


def in_order(order: Sequence[str]) -> tuple[bool, str]:
    """Let a thread check and act while another one requests a stop, in exactly this order.

    Returns whether there was an effect, and what the one was told who requested.
    """
    stop = StopSignal()
    gates = {step: Gate(step) for step in ("check", "commit", "effect")}
    effects: list[str] = []

    def work() -> None:
        gates["check"].enter()
        if stop.requested():
            return
        if "commit" in order:
            gates["commit"].enter()
            try:
                stop.commit()
            except StopRequested:
                return
        gates["effect"].enter()
        effects.append("done")

    thread = threading.Thread(target=work, name="flag")
    thread.start()
    told = ""
    for number, step in enumerate(order):
        if step == "request":
            gates[order[number + 1]].wait_arrived()
            told = str(stop.request().value)
        else:
            gates[step].open()
    thread.join()
    return bool(effects), told


def tell(story: Story) -> None:
    """Go through the orders."""
    story.say(
        "",
        "A thread looks at a flag, and then does what cannot be undone. Somebody requests",
        "a stop. A commit is the last step before the effect: of it and the request",
        "exactly one wins.",
    )
    for order, effect, told in ORDERS:
        text = f"{', '.join(order)}: {'an' if effect else 'no'} effect; the answer was {told}"
        story.claim(text, held=in_order(order) == (effect, told))
