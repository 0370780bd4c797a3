"""`ForbiddenClock`: time that nobody may touch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

from timebounds.bounds.clock import SteadyClock

if TYPE_CHECKING:
    import threading
    from asyncio import Future
    from collections.abc import Callable

    from timebounds.bounds.clock import Poller

__all__ = ["ForbiddenClock"]


@final
class ForbiddenClock(SteadyClock):
    """A clock that fails at the line that touches it: what runs under it is free of time."""

    def now_ns(self) -> NoReturn:
        """Raise AssertionError."""
        msg = "this code must not touch time, and just read its clock"
        raise AssertionError(msg)

    def sleep(self, seconds: float) -> NoReturn:  # noqa: ARG002
        """Raise AssertionError."""
        self.now_ns()

    def wait(self, condition: threading.Condition, seconds: float | None) -> NoReturn:  # noqa: ARG002
        """Raise AssertionError."""
        self.now_ns()

    def poll(self, poller: Poller, seconds: float | None) -> NoReturn:  # noqa: ARG002
        """Raise AssertionError."""
        self.now_ns()

    async def asleep(self, seconds: float) -> NoReturn:  # noqa: ARG002
        """Raise AssertionError."""
        self.now_ns()

    async def await_done(self, future: Future[Any], seconds: float | None) -> NoReturn:  # noqa: ARG002
        """Raise AssertionError."""
        self.now_ns()

    def alarm(self, seconds: float, wake: Callable[[], object]) -> NoReturn:  # noqa: ARG002
        """Raise AssertionError."""
        self.now_ns()

    def __repr__(self) -> str:
        return "ForbiddenClock()"
