"""What an offload is given, checked before anything is touched (N1 of the contracts)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from timebounds._checks import NS, nanoseconds, shown
from timebounds.bounds._threads import POOL
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.bounds.errand import Errand

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

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
    code = getattr(fn, "__code__", None)
    if code is not None and code.co_flags & _CO_COROUTINE:
        msg = f"{fn.__qualname__} is async, so a thread would not run it: await it here"
        raise TypeError(msg)
    if on_late is not None and not callable(on_late):
        msg = f"on_late_result must be a function of the value, not {shown(on_late)}"
        raise TypeError(msg)
    return Errand(
        fn, args, deadline, with_job=with_job, must_run=must_run, release=release, on_late=on_late
    )


def as_release(release: Callable[[], object] | None) -> Callable[[], object] | None:
    """Return the release, if it is a function."""
    if release is not None and not callable(release):
        msg = f"release must be a function without arguments, not {shown(release)}"
        raise TypeError(msg)
    return release


def as_grace(grace: Seconds | None) -> float | None:
    """Return the grace in seconds."""
    return None if grace is None else nanoseconds(grace, "grace") / NS


def submitter(executor: Executor | None) -> Callable[[Callable[[], object]], object]:
    """Return what hands work in."""
    if executor is None:
        return POOL.submit
    if not callable(getattr(executor, "submit", None)):
        msg = f"executor must be a concurrent.futures.Executor, not {shown(executor)}"
        raise TypeError(msg)
    return executor.submit
