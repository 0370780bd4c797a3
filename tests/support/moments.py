"""Waiting, in a thread, for what another one is about to do."""

from __future__ import annotations

import threading
import time


def until(condition):
    """Return when the condition holds; it is asked again and again."""
    pause = threading.Event()
    give_up = time.monotonic() + 20
    while not condition():
        pause.wait(0.0005)
        assert time.monotonic() < give_up
