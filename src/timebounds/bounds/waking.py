"""How a stop signal ends a wait: in a thread through a descriptor, in a task through its loop.

Rules (T2, T4 of the contracts):
- A wake-up may come from any thread, signal handler or finaliser, and after the loop has closed.
- A descriptor is made when somebody waits for the first time, and closed with its signal.
- Every wait is on the deadline's own clock, fake or real.

What must not live here: the signal's verdict (stop.py). A task's wait borrows the running loop.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from itertools import chain, starmap
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, final

from timebounds._checks import no_deadline, refuse_on_loop_thread, running_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.clock import SteadyClock

__all__: list[str] = []


class Removable(Protocol):
    """What registering a callback gives."""

    def remove(self) -> bool:
        """Take the callback away."""
        ...


class Wakeable(Protocol):
    """What a wait needs of a stop signal."""

    _waker: dict[int, Waker]

    def requested(self) -> bool:
        """Say whether to stop."""
        ...

    def on_request(self, fn: Callable[[], object], /) -> Removable:
        """Register a callback."""
        ...


class Bound(Protocol):
    """What a wait needs of a deadline."""

    @property
    def clock(self) -> SteadyClock:
        """The clock on which to wait."""
        ...

    @property
    def stop(self) -> Wakeable | None:
        """A signal that may end the wait sooner."""
        ...

    def remaining(self) -> float:
        """Return the seconds left."""
        ...

    def check(self, what: str = "", /) -> None:
        """Raise when a bound was reached."""


@final
class Waker:
    """A descriptor that becomes readable when somebody wakes it, and stays so."""

    __slots__ = ("_awake", "_pid", "_pipes")

    def __init__(self, pid: int) -> None:
        self._pipes: list[tuple[int, int]] = []
        self._awake = False
        self._pid = pid
        # A chain that is all C: an interrupt finds no descriptor that nobody would close.
        self._pipes.extend(starmap(os.pipe, ((),)))

    @property
    def fd(self) -> int:
        """The descriptor to wait for."""
        return self._pipes[0][0]

    def wake(self) -> None:
        """Make it readable. Safe in signal handlers."""
        # One byte is enough for all who wait; as many as there are waiters could fill the pipe.
        # After a fork the pipe is shared, and it is the other process that waits on it.
        if not self._awake and os.getpid() == self._pid:
            os.write(self._pipes[0][1], b"!")
            self._awake = True

    def __del__(self) -> None:
        # Without them when its making was interrupted.
        pipes: list[tuple[int, int]] = getattr(self, "_pipes", [])
        for each in chain.from_iterable(pipes):
            os.close(each)


@final
class Waking:
    """Inside it, a descriptor becomes readable when the signal is requested.

    The descriptor is made at the first use and lives with the signal, one for all who wait.
    """

    __slots__ = ("_registration", "_signal", "_waker")

    def __init__(self, signal: Wakeable) -> None:
        self._signal = signal

    def __enter__(self) -> int:
        """Return the descriptor."""
        # By process: after a fork, a byte in the parent's pipe would wake the wrong one.
        pid = os.getpid()
        wakers = self._signal._waker
        self._waker = wakers.get(pid) or wakers.setdefault(pid, Waker(pid))
        self._registration = self._signal.on_request(self._waker.wake)
        return self._waker.fd

    def __exit__(self, *exc_info: object) -> None:
        """Stop watching."""
        self._registration.remove()


def _others(signal: Wakeable, deadline: Bound) -> list[Wakeable]:
    """Check a deadline; return its own signal where that is another one."""
    if not hasattr(deadline, "remaining") or not hasattr(deadline, "clock"):
        raise no_deadline(deadline)
    own = deadline.stop
    return [] if own is None or own is signal else [own]


def _left(deadline: Bound, others: list[Wakeable]) -> float:
    """Return the seconds left of a wait; raise when the deadline's own signal was requested."""
    for each in others:
        if each.requested():
            deadline.check("wait")
    return deadline.remaining()


def wait_in_thread(signal: Wakeable, deadline: Bound) -> bool:
    """Block until the signal is requested (True) or the deadline passes (False)."""
    others = _others(signal, deadline)
    refuse_on_loop_thread("StopSignal.wait", "wait_requested")
    # One that is not needed twice may be entered twice.
    with Waking(signal) as fd, Waking(others[0] if others else signal) as other:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.register(other, select.POLLIN)
        while not signal.requested():
            left = _left(deadline, others)
            if left <= 0.0:
                return False
            deadline.clock.poll(poller, None if left == inf else left)
    return True


async def wait_in_task(signal: Wakeable, deadline: Bound) -> bool:
    """Wait until the signal is requested (True) or the deadline passes (False)."""
    others = _others(signal, deadline)
    loop = running_loop()
    future = loop.create_future()

    def done() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        tell(loop, done)

    registrations = [each.on_request(wake) for each in (signal, *others)]
    try:
        while not signal.requested():
            left = _left(deadline, others)
            if left <= 0.0:
                return False
            await deadline.clock.await_done(future, None if left == inf else left)
    finally:
        for each in registrations:
            each.remove()
    return True


def tell(loop: Any, fn: Callable[[], object]) -> bool:
    """Call `fn` in the loop's own thread, from any; say whether there is anybody left to tell."""
    try:
        loop.call_soon_threadsafe(fn)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


def may_be_a_signals(error: BaseException) -> bool:
    """Say whether a signal handler may have raised it: no Exception, and in the main thread."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and not isinstance(error, Exception)


def unhandled(error: BaseException) -> None:
    """Hand an error that nobody can catch to the hook that is there for such."""
    thread = threading.current_thread()
    hooked = threading.ExceptHookArgs((type(error), error, error.__traceback__, thread))
    # It may fail itself: in a signal handler, writing to stderr is not re-entrant.
    with suppress(Exception):
        threading.excepthook(hooked)
