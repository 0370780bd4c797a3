"""Retries in the log: hooks for a logger of the standard library, or of anything like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.policies.retrying import RetryEvent

__all__ = ["RetryHooks", "log_retries"]

# logging.INFO and logging.WARNING, without the module: it is the caller's to load.
_INFO, _WARNING = 20, 30


class LoggerLike(Protocol):
    """What is needed of `logging.Logger`."""

    def log(self, level: int, msg: str, /, *args: object) -> object:
        """Log `msg % args`."""


class RetryHooks(TypedDict):
    """The hooks of a `Retry`, to be unpacked into it."""

    on_backoff: Callable[[RetryEvent], object]
    on_give_up: Callable[[RetryEvent], object]


def log_retries(logger: LoggerLike, *, level: int = _INFO, at_end: int = _WARNING) -> RetryHooks:
    """Return hooks that log each backoff (at `level`) and each giving up (at `at_end`).

    `Retry(..., **log_retries(logging.getLogger("orders")))`. What is logged are numbers and the
    class of the failure: no arguments, no payload, no text of the peer. What the logger raises
    propagates, as from every hook.
    """

    def on_backoff(event: RetryEvent) -> None:
        kind = event.error.__name__ if event.error else "?"
        text = "attempt %d failed with %s after %.3f s: next one in %.3f s, %.3f s remain"
        logger.log(level, text, event.number, kind, event.elapsed, event.delay, event.remaining)

    def on_give_up(event: RetryEvent) -> None:
        kind = event.error.__name__ if event.error else "no error"
        outcome = event.report.outcome if event.report else "?"
        text = "gave up after %d attempts in %.3f s: %s (%s)"
        logger.log(at_end, text, event.number, event.elapsed, outcome, kind)

    return {"on_backoff": on_backoff, "on_give_up": on_give_up}
