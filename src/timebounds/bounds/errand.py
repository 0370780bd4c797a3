"""An errand: one function on its way through a thread, and who owns what meanwhile.

Rules (O1, O3, O9, O12 of the contracts):
- It starts, or is withdrawn: one `dict.setdefault` decides, so what was withdrawn never starts.
- It is inside from its start until its function has returned or raised. A release may run only
  while it is inside: returning waits for a release under way, and none begins afterwards.
- What was born inside is closed by this thread after the return, last in, first out.
- Every ending of the function is an ending, whatever it raised.
- All that may block runs here, in the thread: closing, and taking a value that came too late.

What must not live here: asyncio, waiting for the return, the choice of the error to raise.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, final

from timebounds._checks import NS, shown
from timebounds.bounds.custody import Releasing, attempt, close_all
from timebounds.bounds.stop import below
from timebounds.errors import StopRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from timebounds.bounds.custody import Custody
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.stop import StopSignal

__all__ = ["Job", "Stuck", "stuck"]

T = TypeVar("T")


# Who won a question that is decided once.
ENTERED = "entered"
IN_TIME = "in time"
LATE = "late"
LEFT = "left"
GIVEN_UP = "given up"


@final
class Errand(Generic[T]):
    """One function on its way through a thread. Called by the thread that carries it out."""

    __slots__ = (
        "_args", "_context", "_fate", "_fn",
        "_last", "_now", "closed", "closers", "custody", "deadline",
        "entered", "error", "errors", "handed_on", "must_run", "name", "on_late", "over",
        "overdue", "release",
        "released", "returned", "stop", "submitted", "tell", "thread", "value",
    )  # fmt: skip

    deadline: Deadline
    must_run: bool
    on_late: Callable[[T], object] | None
    release: Callable[[], object] | None
    handed_on: bool
    over: bool
    overdue: bool
    submitted: int
    value: tuple[T] | None
    error: BaseException | None

    def __init__(
        self,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        deadline: Deadline,
        *,
        with_job: bool,
        must_run: bool,
        release: Callable[[], object] | None,
        on_late: Callable[[T], object] | None,
    ) -> None:
        own = deadline._stop
        self.stop: StopSignal = below(deadline._clock, *(() if own is None else (own,)))
        self.deadline = deadline._stopping(self.stop)
        self._now = deadline._now
        self._fn: Any = fn
        self._args = (Job(self), *args) if with_job else args
        self._context: Any = copy_context()
        self._fate: dict[str, object] = {}
        self.name: str = name_of(fn)
        self.must_run = must_run
        self.release = release
        self.on_late = on_late
        self.custody: Custody | None = None
        # Whoever waits for its end.
        self.tell: Callable[[], object] | None = None
        self.closers: list[Callable[[], object]] = []
        self.errors: list[BaseException] = []
        self.thread: int | None = None
        self.value = None
        self.error = None
        self.entered: int | None = None
        self.released: int | None = None
        self.returned: int | None = None
        self.closed: int | None = None
        self.over = False
        self.handed_on = False
        self.overdue = False
        self._last = 0
        self.submitted = self.now()

    def __call__(self) -> None:
        """Carry it out, in a thread."""
        now = self.now()
        late = now >= self.deadline._at or self.stop._asked()
        if late and self.end_early() and self.withdraw(here=True):
            return
        if self._fate.setdefault("start", ENTERED) is ENTERED:
            self.thread = threading.get_ident()
            self.entered = now
            try:
                self._context.run(self._inside)
            finally:
                self._leave(here=True)

    def now(self) -> int:
        """Read the clock of its deadline; where that fails, return the last reading.

        The failure is one of the clean-up: what is under way has to come to its end.
        """
        try:
            self._last = self._now()
        except Exception as error:  # noqa: BLE001  (a clock of the caller's)
            self.errors.append(error)
        return self._last

    def withdraw(self, *, not_handed_in: bool = False, here: bool = False) -> bool:
        """Take it back if it has not started; say whether it never will.

        What must run is taken back only if it could not be handed in. `here` is a thread in which
        closing may block.
        """
        if self.must_run and not not_handed_in:
            return False
        me = object()
        first = self._fate.setdefault("start", me)
        if first is ENTERED:
            return False
        if not self.over:
            # Also what an interrupt has kept the first from: each step may be done twice.
            self.stop._seal()
            self._leave(here=here)
        return True

    def drop(self, error: BaseException) -> None:
        """Take word that whoever was to carry it out never will."""
        if self._fate.get("start") is None:
            self.error = error
            self.withdraw(not_handed_in=True)

    @property
    def never_started(self) -> bool:
        """Whether it was withdrawn before it started."""
        return self._fate.get("start", ENTERED) is not ENTERED

    @property
    def since(self) -> int:
        """When it started or, where it has not, was submitted."""
        return self.submitted if self.entered is None else self.entered

    @property
    def late(self) -> bool:
        """Whether its end was decided before its function returned."""
        return self._fate.get("end") is LATE

    @property
    def given_up(self) -> bool:
        """Whether its caller left before it."""
        return self._fate.get("leave") is GIVEN_UP

    def end_early(self) -> bool:
        """Say that what it returns from now on is too late; False if it has returned in time."""
        return self._fate.setdefault("end", LATE) is LATE

    def give_up(self) -> bool:
        """Leave it to its thread; say whether it is still inside."""
        _left_inside[self] = None
        if self._fate.setdefault("leave", GIVEN_UP) is GIVEN_UP:
            return True
        del _left_inside[self]
        return False

    def _inside(self) -> None:
        try:
            # A stop that came before: only what must run begins, and has nothing to be released.
            if self.release is None or (self.must_run and self.stop._asked()):
                value = self._fn(*self._args)
            else:
                with Releasing(self, self.release):
                    value = self._fn(*self._args)
            if isinstance(value, CoroutineType):
                value.close()
                msg = f"{self.name} returned a coroutine, which no thread runs: await it instead"
                raise TypeError(msg)  # noqa: TRY301  (an ending like any other)
            self.value = (value,)
        except BaseException as error:  # noqa: BLE001  (every ending is an ending)
            # Without this frame, which would hold it: a cycle.
            self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        now = self.now()
        # From here on a stop changes nothing, and neither does anything else that is in the report.
        self.stop._seal()
        self.returned = now
        self.overdue = now >= self.deadline._at
        if self._fate.setdefault("end", LATE if self.overdue else IN_TIME) is LATE:
            self.value = self.hand_on(self.value)
        if self.closers:
            close_all(self.closers, self.errors)
            self.closed = self.now()

    def hand_on(self, value: tuple[T] | None) -> tuple[T] | None:
        """Give a value that came too late to whoever was named for it; return what is left.

        In a thread. Exactly one has the value: what was handed on is in no report.
        """
        if self.on_late is None or value is None:
            return value
        self.handed_on = True
        attempt(partial(self.on_late, *value), self.errors)
        return None

    def _leave(self, *, here: bool) -> None:
        # The function and what it was given live no longer than its call.
        self._args = ()
        self._fn = self._context = None
        tell = self.tell
        if self.custody is not None:
            self.custody.leave(self, here=here)
        if self._fate.setdefault("leave", LEFT) is GIVEN_UP:
            # A handler of the caller's own may fail; whoever waits has to be told all the same.
            with suppress(Exception):
                self.log()
            # Last: who sees that nothing is left inside has been told how it ended.
            _left_inside.pop(self, None)
        self.over = True
        if tell is not None:
            tell()

    def log(self) -> None:
        """Log how it ended, since its caller has left: an error must not be lost to silence."""
        import logging  # noqa: PLC0415  (takes as long to import as all the rest)

        logger = logging.getLogger("timebounds")
        told: list[tuple[str, BaseException]] = []
        if self.error is not None and not self.stop_caused(self.error):
            told.append(("raised after its caller had left", self.error))
        told += [("has a clean-up that failed after its caller had left", e) for e in self.errors]
        for what, error in told:
            logger.error("offload of %s %s", self.name, what, exc_info=error)
        if not told:
            logger.info("offload of %s returned after its caller had left", self.name)

    def stop_caused(self, error: BaseException) -> bool:
        """Say whether its error is one that the stop, or the deadline, itself may have caused."""
        ended = self.stop._asked() or self.overdue
        return ended and isinstance(error, (StopRequested, OSError, EOFError))


def name_of(fn: object) -> str:
    """Return the name of a function for messages, without what a partial binds."""
    while isinstance(fn, partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None)
    return name if type(name) is str else shown(fn)


@final
class Job:
    """What a function that runs as a job is given: its bounds, and a place for what it owns."""

    __slots__ = ("_errand",)

    def __init__(self, errand: Errand[Any]) -> None:
        self._errand = errand

    @property
    def deadline(self) -> Deadline:
        """The caller's deadline, with the stop of this job inside: hand it to every wait."""
        return self._errand.deadline

    def commit(self) -> None:
        """Pass the point of no return: from here on a stop comes too late, and nobody releases.

        Raises:
            StopRequested: the stop came first. Skip the effect.
        """
        if self._errand.returned is not None:
            msg = "the job has returned: there is nothing left to commit"
            raise RuntimeError(msg)
        self._errand.stop.commit()

    def releasing(self, wake: Callable[[], object]) -> Releasing:
        """Return a context manager inside which a stop calls `wake()`, at most once.

        `wake` makes what blocks return: it cancels a query or shuts a socket down. It runs in the
        thread that asks for the stop, so it must not block. Leaving the block and that call
        exclude each other: what is handed back afterwards is never woken for someone else.
        """
        return Releasing(self._errand, wake)

    def own(self, resource: T, close: Callable[[T], object] | None = None) -> T:
        """Take `resource` in custody and return it; it is closed in this thread after the return.

        Last in, first out; by `close(resource)`, or its own `close()`.
        """
        closer: Any = getattr(resource, "close", None) if close is None else close
        if not callable(closer):
            msg = f"resource must have a close(), which {shown(resource)} has not: give close=..."
            raise TypeError(msg)
        if self._errand.returned is not None:
            msg = "the job has returned, and nobody would close what it owns now"
            raise RuntimeError(msg)
        self._errand.closers.append(closer if close is None else lambda: closer(resource))
        return resource


class Stuck(NamedTuple):
    """Work that was asked to stop and was left inside its thread."""

    name: str
    """The function's."""
    age: float
    """Seconds since it started or, where it has not, was submitted, by its deadline's clock."""
    thread: int | None
    """The identifier of its thread; None where it must run and has none yet."""


_left_inside: dict[Errand[Any], None] = {}
# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=_left_inside.clear)


def stuck() -> tuple[Stuck, ...]:
    """Return the work whose callers have left after its grace, and that is still inside."""
    return tuple(
        Stuck(each.name, (each.now() - each.since) / NS, each.thread) for each in list(_left_inside)
    )
