"""What an offload says where nobody could catch it: lines in the log of "timebounds".

Rules (O5, O6 of the contracts): a long wait is never silent, and shows where the thread is; what a
clean-up raised beside a cancel is not lost.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timebounds.bounds.errand import Errand

__all__: list[str] = []

_logger = logging.getLogger("timebounds")


def complain(work: Errand[Any]) -> None:
    """Say that work was asked to stop and has not returned, and where its thread is."""
    # A handler of the caller's own may fail, and nobody could do anything about it here.
    with suppress(Exception):
        _complain(work)


def _complain(work: Errand[Any]) -> None:
    frame = sys._current_frames().get(work.thread or 0)
    where = "".join(traceback.format_stack(frame)) if frame else "no thread has taken it\n"
    state = "was left inside its thread" if work.given_up else "is still waited for"
    text = "offload of %s was asked to stop and has not returned: it %s\n%s"
    _logger.warning(text, work.name, state, where.rstrip())


def faults(work: Errand[Any]) -> str:
    """Return the words for what its clean-up raised."""
    return f"offload of {work.name}: its clean-up failed"


def log_faults(what: str, errors: list[BaseException]) -> None:
    """Log what a clean-up raised, where a cancel goes out and nobody could catch it."""
    for each in errors:
        with suppress(Exception):
            _logger.error(what, exc_info=each)
