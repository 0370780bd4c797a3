"""What an offload is given, checked before anything is touched (N1 of the contracts)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from timebounds._checks import NS, nanoseconds, shown
from timebounds.bounds._threads import POOL
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.bounds.errand import Errand, name_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from timebounds._checks import Seconds

__all__: list[str] = []

T = TypeVar("T")

_CO_COROUTINE = 0x80 | 0x100


def errand(
    fn: Callable[..., T],
    args: tuple[Any, ...],
    deadline: Deadline,
    must_run: bool,  # noqa: FBT001
    release: Callable[[], object] | None,
    on_late: Callable[[T], object] | None,
    *,
    with_job: bool = False,
) -> Errand[T]:
    """Check what a call was given, and return its work."""
    if type(deadline) is not Deadline:
        deadline = as_deadline(deadline)
    if not callable(fn):
        msg = f"fn must be a function, not {shown(fn)}: write offload(fn, *args, deadline=...)"
        raise TypeError(msg)
    if _is_async(fn):
        msg = f"{name_of(fn)} is async, so a thread would not run it: await it here"
        raise TypeError(msg)
    if on_late is not None and not callable(on_late):
        msg = f"on_late_result must be a function of the value, not {shown(on_late)}"
        raise TypeError(msg)
    return Errand(
        fn, args, deadline, with_job=with_job, must_run=must_run, release=release, on_late=on_late
    )


def _is_async(fn: Any) -> bool:
    """Say whether calling it gives a coroutine."""
    while isinstance(fn, partial):
        fn = fn.func
    call = fn if hasattr(fn, "__code__") else type(fn).__call__
    code = getattr(call, "__code__", None)
    return code is not None and bool(code.co_flags & _CO_COROUTINE)


def as_release(release: Callable[[], object] | None) -> Callable[[], object] | None:
    """Return the release, if it is a function."""
    if release is not None and not callable(release):
        msg = f"release must be a function without arguments, not {shown(release)}"
        raise TypeError(msg)
    return release


def as_grace(grace: Seconds | None) -> float | None:
    """Return the grace in seconds."""
    return None if grace is None else nanoseconds(grace, "grace") / NS


def submitter(executor: Executor | None) -> Callable[[Errand[Any]], object]:
    """Return what hands work in."""
    if executor is None:
        return POOL.submit
    if not callable(getattr(executor, "submit", None)):
        msg = f"executor must be a concurrent.futures.Executor, not {shown(executor)}"
        raise TypeError(msg)

    def submit(work: Errand[Any]) -> None:
        future = executor.submit(work)
        # It may drop what it has in line, or fail to carry it out at all; one of the caller's own
        # may give no future.
        if future is not None:
            future.add_done_callback(partial(_dropped, work))

    return submit


def _dropped(work: Errand[Any], future: Future[Any]) -> None:
    error = None if future.cancelled() else future.exception()
    text = f"offload of {work.name}: the executor dropped it before it began"
    dropped = RuntimeError(text)
    dropped.__cause__ = error
    work.drop(dropped)
