"""`ShieldedOffload`: blocking work in threads that is stopped, released and awaited, then closed.

Rules (O1-O13 of the contracts):
- Order, always: stop requested, released, returned, closed; and only then the cancellation goes on.
- What several runs share is closed once, when the block is over and the last of them has returned,
  in a thread: closing may block.
- The first run that fails stops the others that are under way.
- The end of the block waits as its runs do: through any number of cancels, or for their grace.
- An interrupt waits for nothing. Whoever is inside closes when it returns.

The thread's side is in `bounds/errand.py`, one run's in `handle.py`, waiting in `completion.py`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, final

from timebounds._checks import shown
from timebounds.aio.arguments import as_grace, as_release, errand, submitter
from timebounds.aio.completion import Hold, interrupted
from timebounds.aio.handle import OffloadHandle
from timebounds.aio.telling import log_faults
from timebounds.aio.verdict import judge_scope
from timebounds.bounds.custody import Custody
from timebounds.bounds.waking import tell
from timebounds.policies.offload_evidence import OffloadOutcome, OffloadReport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from concurrent.futures import Executor

    from timebounds._checks import Seconds
    from timebounds.bounds.deadline import Deadline
    from timebounds.bounds.errand import Errand, Job

__all__ = ["ShieldedOffload", "offload", "offload_job"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# How many reports a scope keeps: a long-lived one must not grow.
_REPORTS = 100
_CO_COROUTINE = 0x80 | 0x100


@final
class ShieldedOffload:
    """Runs blocking functions in threads over resources that outlive no function that uses them.

    async with ShieldedOffload(release=..., close=[sock.close]) as scope:
        value = await scope.run(fetch, sock, deadline=deadline)

    When the awaiting task is cancelled, or the deadline passes, the function is asked to stop,
    `release` makes it return, and the call waits for that. Then the resources are closed, and the
    cancellation goes on. Any number of cancels changes nothing. For one task at a time to enter;
    its runs may be awaited by several.

    Args:
        release: called at most once for each run, while its function is inside and has not
            committed, in the thread that asks for the stop: it must not block.
        close: functions that are called when the block is over and the last function has returned,
            in a thread, last in, first out.
        grace: seconds to wait for a function that was asked to stop; None waits for its return.
            After it the call ends, and the thread closes the resources when it returns.
        executor: where to run; None for the library's own bounded pool of daemon threads.
    """

    def __init__(
        self,
        *,
        release: Callable[[], object] | None = None,
        close: Iterable[Callable[[], object]] = (),
        grace: Seconds | None = None,
        executor: Executor | None = None,
    ) -> None:
        closers: list[Callable[[], object]] = [close] if callable(close) else list(close)
        for each in closers:
            if not callable(each):
                msg = f"close must hold functions such as sock.close, not {shown(each)}"
                raise TypeError(msg)
        self._release = as_release(release)
        self._grace = as_grace(grace)
        self._submit = submitter(executor)
        self._custody = Custody(closers)
        self._hold = Hold()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[OffloadHandle[Any], None] = {}
        self._done: deque[OffloadHandle[Any]] = deque(maxlen=_REPORTS)
        self._unawaited: list[OffloadHandle[Any]] = []
        self._left = False
        self._judged = False

    @property
    def reports(self) -> tuple[OffloadReport, ...]:
        """The reports of the runs that have ended, oldest first; of the last hundred."""
        found = [handle.report for handle in self._done]
        return tuple(report for report in found if report is not None)

    async def run(
        self,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        deadline: Deadline,
        must_run: bool = False,
        on_late_result: Callable[[T], object] | None = None,
    ) -> T:
        """Return `fn(*args)`, run in a thread within `deadline`, the wait for a thread included.

        `must_run`: once submitted it runs, whatever comes meanwhile. `on_late_result`: is given a
        value that came too late for the caller, in a thread; exactly one of the two gets it.

        Raises:
            DeadlineExceeded, StopRequested, WorkerStuck, Exception: as `OffloadHandle.result`.
            CancelledError: when the function has returned and what it owned is closed. If a cancel
                was pending already, nothing was started.
        """
        return await self.start(
            fn, *args, deadline=deadline, must_run=must_run, on_late_result=on_late_result
        ).result()

    async def run_job(
        self,
        fn: Callable[[Job, *Ts], T],
        *args: *Ts,
        deadline: Deadline,
        must_run: bool = False,
        on_late_result: Callable[[T], object] | None = None,
    ) -> T:
        """Return `fn(job, *args)`: as `run`, with the job by which the function sees its bounds."""
        return await self.start_job(
            fn, *args, deadline=deadline, must_run=must_run, on_late_result=on_late_result
        ).result()

    def start(
        self,
        fn: Callable[[*Ts], T],
        *args: *Ts,
        deadline: Deadline,
        must_run: bool = False,
        on_late_result: Callable[[T], object] | None = None,
    ) -> OffloadHandle[T]:
        """Start `fn(*args)` and return its handle; the scope owns the run from here on.

        The end of the block waits for it. What it raises, if nobody awaits the handle, comes out
        of the block.
        """
        work = errand(fn, args, deadline, must_run, self._release, on_late_result)
        return self._launch(work)

    def start_job(
        self,
        fn: Callable[[Job, *Ts], T],
        *args: *Ts,
        deadline: Deadline,
        must_run: bool = False,
        on_late_result: Callable[[T], object] | None = None,
    ) -> OffloadHandle[T]:
        """Start `fn(job, *args)` and return its handle: as `start`, with the job."""
        work = errand(fn, args, deadline, must_run, self._release, on_late_result, with_job=True)
        return self._launch(work)

    def _launch(self, work: Errand[T]) -> OffloadHandle[T]:
        if self._loop is None or self._custody.closing:
            state = "has ended" if self._custody.closing else "was not entered"
            msg = f"the scope {state}: run inside `async with ShieldedOffload() as scope:`"
            raise RuntimeError(msg)
        if asyncio.get_running_loop() is not self._loop:
            msg = "the scope was entered in another loop: run its functions there"
            raise RuntimeError(msg)
        work.custody = self._custody
        handle = OffloadHandle(work, grace=self._grace, on_end=self._ended)
        self._running[handle] = None
        handle._launch(self._submit)
        return handle

    async def __aenter__(self) -> ShieldedOffload:
        """Begin: from here on the resources are the scope's."""
        if self._loop is not None:
            msg = "a ShieldedOffload is entered once: make another one"
            raise RuntimeError(msg)
        loop = asyncio.get_running_loop()
        self._custody.on_closed = partial(_closed, loop, self._hold, weakref.ref(self))
        self._loop = loop
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Wait for the runs, close the resources, and let the error through.

        After an error the runs that are under way are stopped first.
        """
        interrupt = error is not None and not isinstance(error, (Exception, asyncio.CancelledError))
        try:
            if kind is not None:
                self._stop_all(f"the block ended by {kind.__name__}")
        finally:
            # After an interrupt the process may end before a thread had its turn.
            self._custody.end(here=interrupt)
        if interrupt:
            return  # nobody wants to wait any more
        cancelled = await self._hold.wait(self._is_over, self._cancel)
        alone = [handle for handle in self._unawaited if not handle._awaited]
        self._judged = True
        try:
            judge_scope(alone, self._custody.errors, error, cancelled)
        finally:
            del self, error, cancelled, alone

    def __del__(self) -> None:
        # The block was left without its end, or in the middle of it, by an interrupt.
        if getattr(self, "_loop", None) is not None:
            self._custody.end()

    def _ended(self, handle: OffloadHandle[Any]) -> None:
        """Take note of a run that is over, or was left inside its thread."""
        if handle in self._running:
            del self._running[handle]
            self._done.append(handle)
            told = handle._failed or handle._work.given_up or handle._work.errors
            if told and not handle._awaited:
                self._unawaited = [each for each in self._unawaited if not each._awaited]
                self._unawaited.append(handle)
            if handle._failed:
                self._stop_all("another run has failed")
        self._hold.wake()

    def _stop_all(self, reason: str) -> None:
        for handle in list(self._running):
            handle._end(OffloadOutcome.STOPPED, reason)

    def _cancel(self) -> None:
        """Stop what is under way, as a cancel arrives at the end of the block."""
        for handle in list(self._running):
            handle._cancel()
        assert self._loop is not None
        if interrupted(self._loop):
            self._left = True
        tell(self._loop, self._hold.wake)

    def _is_over(self) -> bool:
        # Who is inside although nothing runs was left there: closing is up to that thread.
        inside = list(self._custody.inside)
        closed = self._custody.done or (inside and all(each.given_up for each in inside))
        return (not self._running and bool(closed)) or self._left


def _closed(
    loop: asyncio.AbstractEventLoop, hold: Hold, scope: weakref.ref[ShieldedOffload]
) -> None:
    """Take word, in the thread that has closed; what went wrong is told where nobody waits."""
    owner = scope()
    if not tell(loop, hold.wake) or owner is None or owner._judged:
        errors = [] if owner is None else owner._custody.errors
        log_faults("the end of a ShieldedOffload", errors)


async def offload(
    fn: Callable[[*Ts], T],
    *args: *Ts,
    deadline: Deadline,
    release: Callable[[], object] | None = None,
    grace: Seconds | None = None,
    must_run: bool = False,
    on_late_result: Callable[[T], object] | None = None,
    executor: Executor | None = None,
) -> T:
    """Return `fn(*args)`, run in a thread within `deadline`: one run, without a scope.

    The function is the caller's to stop: hand it a deadline that carries a stop, name a `release`,
    or use `offload_job`, whose job has both. Raises and waits as `ShieldedOffload.run`.
    """
    work = errand(fn, args, deadline, must_run, as_release(release), on_late_result)
    return await _alone(work, grace, executor)


async def offload_job(
    fn: Callable[[Job, *Ts], T],
    *args: *Ts,
    deadline: Deadline,
    release: Callable[[], object] | None = None,
    grace: Seconds | None = None,
    must_run: bool = False,
    on_late_result: Callable[[T], object] | None = None,
    executor: Executor | None = None,
) -> T:
    """Return `fn(job, *args)`: as `offload`, with the job by which the function sees its bounds."""
    work = errand(fn, args, deadline, must_run, as_release(release), on_late_result, with_job=True)
    return await _alone(work, grace, executor)


def _alone(
    work: Errand[T], grace: Seconds | None, executor: Executor | None
) -> Coroutine[Any, Any, T]:
    """Launch work without a scope. What is awaited holds the handle; no frame does."""
    handle = OffloadHandle(work, grace=as_grace(grace))
    handle._launch(submitter(executor))
    return handle.result()
