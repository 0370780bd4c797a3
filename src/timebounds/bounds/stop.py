"""The stop signal: a one-way, cooperative request to end work early.

Rules (T1-T6 of the contracts):
- Three facts that are never inferred from one another: requested (somebody asked), observed (the
  one who obeys has seen it), committed (the point of no return was passed first). Each has its
  time. Whether the work has returned, only its owner can say.
- One verdict: `request` and `commit` are a compare-and-set, and exactly one of them wins.
- No lock anywhere. The verdict is one `dict.setdefault`, a callback is taken by one `dict.pop`;
  both are one step for threads, signal handlers and finalisers alike, so whoever interrupts a
  method finds either all of it or nothing.
- Who registers stores first and looks afterwards; who requests sets the verdict first and looks
  afterwards. So one of the two sees the other, and the `pop` lets only one run the callback.
- A signal looks up to those directly above it, which do the same: one that has committed shields
  those below it. They are known above only while they have a callback.

What must not live here: asyncio (a task's wait borrows the running loop), sockets.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, final

from timebounds._checks import NS, shown
from timebounds.bounds.clock import MONOTONIC, SteadyClock, reader, unfailing
from timebounds.bounds.os_signals import SignalHandlers
from timebounds.bounds.stop_facts import Committed, Requested, Stop
from timebounds.bounds.waking import unhandled, wait_in_task, wait_in_thread
from timebounds.errors import StopRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.waking import Bound, Waker

__all__ = ["Registration", "Stop", "StopSignal", "wait_requested"]


@final
class StopSignal:
    """A one-way request to stop, safe in any thread, task, signal handler and finaliser.

    Hand it down inside a deadline, `Deadline.after(2.0, stop=signal)`: every wait that is bounded
    by it then ends at once when somebody calls `request`. It interrupts no code by itself.

    Args:
        clock: where the times of its facts are read. Waits follow the deadline's clock.
    """

    __slots__ = (
        "__weakref__", "_above", "_callbacks", "_clock", "_facts", "_later", "_now", "_parents",
        "_waker",
    )  # fmt: skip

    _facts: dict[str, Any]
    _callbacks: dict[Registration, Callable[[], object] | None]
    _parents: tuple[StopSignal, ...]
    _above: tuple[StopSignal, ...]

    def __init__(self, *, clock: SteadyClock = MONOTONIC) -> None:
        self._begin(clock, ())

    def _begin(self, clock: SteadyClock, parents: tuple[StopSignal, ...]) -> None:
        self._clock = clock
        self._now = unfailing(reader(clock))
        self._parents = parents
        # Each once, with all that stand above them in turn: these call our callbacks.
        self._above = tuple({each: None for one in parents for each in (one, *one._above)})
        self._facts = {}
        self._callbacks = {}
        # One byte for each: appending one is a single step, and adding 1 is not.
        self._later = bytearray()
        self._waker: dict[int, Waker] = {}

    def request(self, reason: str = "") -> Stop:
        """Ask to stop; say how that was received. Blocks on nothing but its callbacks.

        The first reason wins. What a callback raises goes to `threading.excepthook`, and the others
        run all the same.
        """
        if not isinstance(reason, str):
            msg = f"reason must be a str such as 'shutdown', not {shown(reason)}"
            raise TypeError(msg)
        return self._request(Requested(reason, self._now()))

    def requested(self) -> bool:
        """Say whether a stop was requested; the first True is noted as observed.

        False when the work had committed first.
        """
        facts = self._facts
        if not facts and not (self._parents and self._pull()):
            return False
        if type(facts["verdict"]) is Committed:
            return False
        if "observed" not in facts:
            facts.setdefault("observed", self._now())
        return True

    def check(self, what: str = "") -> None:
        """Raise StopRequested when a stop was requested; `what` names the work in the message."""
        if self.requested():
            raise StopRequested(f"{what or 'operation'}: {self._why()}")

    def commit(self) -> None:
        """Pass the point of no return: from here on a stop comes too late.

        Raises:
            StopRequested: the stop came first. Skip the effect.
        """
        self._asked()
        if type(self._facts.setdefault("verdict", Committed(self._now()))) is Requested:
            self.check("commit")
        # Nobody will be called any more.
        for each in list(self._callbacks):
            each.remove()

    def wait(self, deadline: Bound) -> bool:
        """Block until a stop is requested (True) or `deadline` passes (False), on its clock.

        Raises:
            StopRequested: the deadline's own signal, where that is another one, was requested.

        For threads without a running event loop; tasks await `wait_requested`.
        """
        return wait_in_thread(self, deadline)

    def on_request(self, fn: Callable[[], object]) -> Registration:
        """Call `fn()` once when a stop is requested, in the thread that asks; at once if it was.

        It runs at most once and outside all locks, should be short, and may run in a signal
        handler. What it raises goes to `threading.excepthook`.
        """
        if not callable(fn):
            msg = f"fn must be a function without arguments, not {shown(fn)}"
            raise TypeError(msg)
        registration = Registration(self)
        self._callbacks[registration] = fn
        for each in self._above:
            each._callbacks[registration] = None
        if self._asked():
            registration._run()
        elif self._facts:  # committed: nobody will call it
            registration.remove()
        return registration

    def child(self) -> StopSignal:
        """Return a signal that is requested whenever this one is, and by itself.

        It costs this one nothing unless it has callbacks or somebody waits on it.
        """
        return below(self._clock, self)

    @staticmethod
    def on_signals(*signals: int) -> SignalHandlers[StopSignal]:
        """Return a context manager that gives a signal requested by `signals`, such as SIGTERM.

        Its second delivery does what the system, or the handler of before, would have done at the
        first: on SIGINT it raises KeyboardInterrupt. The old handlers are restored at the end.
        For the main thread.
        """
        stop = StopSignal()
        return SignalHandlers(signals, stop, stop.request)

    @property
    def reason(self) -> str | None:
        """The reason of the first request; None without one. Observes nothing."""
        verdict = self._facts["verdict"] if self._asked() else None
        return verdict.reason if type(verdict) is Requested else None

    @property
    def requested_at(self) -> float | None:
        """The instant of the first request on its clock, or None. Observes nothing."""
        return self._instant(0)

    @property
    def observed_at(self) -> float | None:
        """The instant of the first look that saw the request, or None."""
        return self._instant(1)

    @property
    def committed_at(self) -> float | None:
        """The instant of the commit, or None."""
        return self._instant(2)

    def _instant(self, which: int) -> float | None:
        at = self._instants()[which]
        return None if at is None else at / NS

    @property
    def later(self) -> int:
        """How many requests came after the first."""
        return len(self._later)

    def _why(self) -> str:
        reason = self.reason
        return f"stopped ({reason})" if reason else "stopped"

    def _instants(self) -> tuple[int | None, int | None, int | None]:
        """Return when it was requested, observed and committed, in ns."""
        self._asked()
        verdict: Requested | Committed | None = self._facts.get("verdict")
        if isinstance(verdict, Requested):
            return verdict.at, self._facts.get("observed"), None
        return None, None, None if verdict is None or verdict.sealed else verdict.at

    def _seal(self) -> None:
        """Say that what it stops is over: from now on a stop comes too late."""
        self._asked()
        self._facts.setdefault("verdict", Committed(0, sealed=True))
        for each in list(self._callbacks):
            each.remove()

    def _asked(self) -> bool:
        """Say whether a stop is in force, without observing it."""
        if not self._facts and not (self._parents and self._pull()):
            return False
        return type(self._facts["verdict"]) is Requested

    def _pull(self) -> bool:
        """Look up: adopt the request of one above. Say whether there is a verdict now."""
        for each in self._parents:
            if each._asked():
                first, same = each._facts["verdict"], each._clock is self._clock
                mine = first if same else Requested(first.reason, self._now())
                self._facts.setdefault("verdict", mine)
                return True
        return bool(self._facts)

    def _request(self, mine: Requested) -> Stop:
        self._asked()
        first = self._facts.setdefault("verdict", mine)
        if type(first) is Committed:
            return Stop.TOO_LATE
        if first is not mine:
            self._later.append(0)
        # Also on a later request: the first may have been interrupted among its callbacks.
        for each in list(self._callbacks):
            each._run()
        return Stop.ACCEPTED if first is mine else Stop.ALREADY

    def __deepcopy__(self, memo: object = None) -> StopSignal:
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> NoReturn:
        msg = "a StopSignal means nothing in another process: send the request there"
        raise TypeError(msg)

    def __repr__(self) -> str:
        if self.committed_at is not None:
            return "<StopSignal committed>"
        return f"<StopSignal {self._why()}>" if self._asked() else "<StopSignal>"


def below(clock: SteadyClock, *parents: StopSignal) -> StopSignal:
    """Return a new signal that is requested whenever one of its parents is."""
    signal = object.__new__(StopSignal)
    signal._begin(clock, parents)
    return signal


def joined(one: StopSignal | None, other: StopSignal | None) -> StopSignal | None:
    """Return a signal that is requested when either is."""
    if one is None or other is None:
        return one or other
    if other is one or other in one._above:
        return one
    return other if one in other._above else below(one._clock, one, other)


def as_stop(value: object) -> StopSignal:
    """Return `value` when it is a stop signal, else raise TypeError that shows the right line."""
    if type(value) is not StopSignal:
        msg = f"stop must be a StopSignal, not {type(value).__name__} {shown(value)}"
        raise TypeError(f"{msg}: write StopSignal()")
    return value


@final
class Registration:
    """A callback that was registered with `on_request`."""

    __slots__ = ("_over", "_signal")

    def __init__(self, signal: StopSignal) -> None:
        self._signal = signal
        self._over = False

    def remove(self) -> bool:
        """Take the callback away. Never blocks.

        Returns False while it is running: what it uses must not be freed yet. True means that it
        is not running and never will.
        """
        self._end(run=False)
        return self._over

    def _run(self) -> None:
        """Run it, once, unless it was removed or its signal committed first."""
        if self._signal._asked():
            self._end(run=True)

    def _end(self, *, run: bool) -> None:
        """Take it away, and run it or not; of many at a time one has it, and ends it."""
        signal = self._signal
        taken: list[Any] = []
        try:
            try:
                # A chain that is all C: an interrupt finds it at one place or at the other.
                with suppress(KeyError):
                    taken.extend(map(signal._callbacks.pop, (self,)))
                for each in signal._above:
                    each._callbacks.pop(self, None)
                if run and taken:
                    taken[0]()
            except Exception as error:  # noqa: BLE001  (the others have to run)
                unhandled(error)
            finally:
                self._over = self._over or bool(taken)
        finally:
            # Said twice: an interrupt may come in the middle of the clean-up.
            self._over = self._over or bool(taken)


async def wait_requested(stop: StopSignal, deadline: Bound) -> bool:
    """Wait, in a task, until a stop is requested (True) or `deadline` passes (False).

    The loop is woken from whatever thread asks. A cancel ends the wait at once. It waits on the
    deadline's clock.

    Raises:
        StopRequested: the deadline's own signal, where that is another one, was requested.
    """
    return await wait_in_task(as_stop(stop), deadline)
