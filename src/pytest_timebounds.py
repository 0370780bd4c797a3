"""Fixtures of `timebounds` for pytest; it loads the library when one of them is used, not before.

Nothing is autouse, and nothing is patched: a test and what it tests share a clock because both are
given it.

- `fake_clock`: a `FakeClock`.
- `virtual_loop`: makes event loops on that clock's time.
- `scripted_socket`: makes `ScriptedSocket`s on that clock.
- `drip_server`: makes misbehaving peers, which are closed at the end of the test.
- `no_leaks`: fails the test that leaves a thread, a task or a descriptor behind.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterator

    from timebounds.testing import DripServer, FakeClock, Misbehaviour, ScriptedSocket
    from timebounds.testing.scripted_socket import Step

__all__ = [
    "DripServers",
    "ScriptedSockets",
    "drip_server",
    "fake_clock",
    "no_leaks",
    "scripted_socket",
    "virtual_loop",
]

# Real seconds in which a thread that has done its work must have ended.
_THREADS_END_WITHIN = 1.0


class ScriptedSockets(Protocol):
    """What the fixture `scripted_socket` is."""

    def __call__(self, *script: Step, timeout: float | None = None) -> ScriptedSocket:
        """Return a socket on the test's fake clock that follows the script."""
        ...


class DripServers(Protocol):
    """What the fixture `drip_server` is."""

    def __call__(
        self,
        mode: Misbehaviour = ...,
        *,
        head: bytes = ...,
        body: bytes = ...,
        interval: float = ...,
    ) -> DripServer:
        """Return a misbehaving peer, which is closed at the end of the test."""
        ...


@pytest.fixture
def fake_clock() -> FakeClock:
    """Return a clock that the test moves: give the code under test `fake_clock.deadline(30)`."""
    from timebounds.testing import FakeClock

    return FakeClock()


@pytest.fixture
def virtual_loop(fake_clock: FakeClock) -> Callable[[], AbstractEventLoop]:
    """Return a function that makes event loops on the time of `fake_clock`.

    With plain asyncio `asyncio.Runner(loop_factory=virtual_loop)`, or `fake_clock.run(coroutine)`.
    With the plugin of anyio:

        @pytest.fixture
        def anyio_backend(virtual_loop):
            return "asyncio", {"loop_factory": virtual_loop}

    With pytest-asyncio 1.4 or later, which makes its loops without fixtures, in `conftest.py`:

        def pytest_asyncio_loop_factories(config, item):
            return {"virtual": lambda: VirtualLoop(FakeClock())}

        @pytest_asyncio.fixture
        async def fake_clock():
            return asyncio.get_running_loop().timebounds_clock
    """
    from timebounds.testing import VirtualLoop

    return partial(VirtualLoop, fake_clock)


@pytest.fixture
def scripted_socket(fake_clock: FakeClock) -> ScriptedSockets:
    """Return a function that makes scripted sockets on `fake_clock`."""
    from timebounds.testing import ScriptedSocket

    return partial(ScriptedSocket, fake_clock)


@pytest.fixture
def drip_server(request: pytest.FixtureRequest) -> Iterator[DripServers]:
    """Return a function that makes misbehaving peers; they are closed at the end of the test."""
    from timebounds.testing import DripServer

    if "no_leaks" in request.fixturenames:
        # First, so that it looks when these are closed.
        request.getfixturevalue("no_leaks")
    with ExitStack() as made:

        def make(*args: Any, **options: Any) -> DripServer:
            return made.enter_context(DripServer(*args, **options))

        yield make


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a thread, a pending asyncio task or a descriptor behind.

    It looks at what is there more than before, after the fixtures that come later in the test's
    arguments: list it first. A test that has failed already is not looked at, since its traceback
    keeps things alive. The library's own threads that rest until the next offload are no leaks.
    """
    failed = request.session.testsfailed
    gc.collect()
    threads = set(threading.enumerate())
    # The tasks themselves, so that no later one is taken for one of them by its id.
    tasks = _pending_tasks()
    descriptors = _descriptors()
    yield
    if request.session.testsfailed > failed:
        return
    left = [f"thread {each!r}" for each in _threads_left(threads)]
    gc.collect()
    left += [f"task {each!r}" for each in _pending_tasks() if each not in tasks]
    left += [f"descriptor {fd} -> {to}" for fd, to in sorted(_descriptors() - descriptors)]
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)


def _threads_left(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return the new threads that do not end by themselves within a moment."""
    threads = sys.modules.get("timebounds.bounds._threads")
    pause = 0.005
    left: list[threading.Thread] = []
    for _ in range(round(_THREADS_END_WITHIN / pause)):
        resting: set[threading.Thread] = threads.all_resting() if threads is not None else set()
        left = [each for each in threading.enumerate() if each not in before | resting]
        if not left:
            return left
        left[0].join(pause)
    return left


def _pending_tasks() -> list[Any]:
    """Return all tasks of all loops that are not done; none where asyncio is not loaded."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return []
    return [each for each in gc.get_objects() if _is_task(each, asyncio.Task) and not each.done()]


def _is_task(value: object, kind: type) -> bool:
    # `isinstance` would ask proxies of all kinds for their `__class__`.
    return issubclass(type(value), kind)


def _descriptors() -> set[tuple[int, str]]:
    """Return the open descriptors and what they lead to, where the system tells."""
    found: set[tuple[int, str]] = set()
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for name in names:
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            # That of the listing itself is gone by now.
            continue
    return found
