"""What every test gets: a look for leaks, a limit on hanging, an order by chance."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# ---------------------------------------------------------------- hypothesis

# Machines that run tests stall at times, so no example has a time limit of its own;
# a test that hangs meets the watchdog.
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=10_000)
settings.register_profile("mutate", settings.get_profile("ci"), max_examples=20)
settings.load_profile("ci")

# ---------------------------------------------------------------- mutation

# Some tests run for each mutant: few examples then, and the quick ones first. A call is three
# frames deep, and who mutates keeps the source as trees that no look for leaks should walk.
MUTATING = "mutmut" in sys.modules
LAST = {"properties": 1, "real": 2}

if MUTATING:
    settings.load_profile("mutate")
    sys.setrecursionlimit(5_000)
    gc.freeze()

# ---------------------------------------------------------------- interrupts

# Where the suite was started in the background, a shell has Ctrl-C ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# ---------------------------------------------------------------- order

SEED = "TIMEBOUNDS_SEED"


def pytest_addoption(parser):
    parser.addoption(
        "--order-seed",
        type=int,
        default=int(os.environ.get(SEED) or random.SystemRandom().randrange(10**6)),
        help=f"the seed of the tests' order, also set by {SEED}",
    )


def pytest_report_header(config):
    return f"order: --order-seed={config.getoption('--order-seed')}"


def pytest_collection_modifyitems(config, items):
    """Shuffle the files, and the tests within each; a file's shared fixtures keep it whole."""
    for item in items:
        if " at 0x" in item.nodeid:
            msg = f"{item.nodeid} has another name in the next run: give its parameters ids"
            raise pytest.UsageError(msg)
    if MUTATING:
        items.sort(key=lambda item: LAST.get(item.path.parent.name, 0))
        return
    chance = random.Random(config.getoption("--order-seed"))
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = list(files.values())
    chance.shuffle(order)
    for tests in order:
        chance.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


# ---------------------------------------------------------------- hanging

HANGS_AFTER = 60
SOAK_HANGS_AFTER = 600

_stderr = pytest.StashKey[int]()


def pytest_configure(config):
    # Capturing is suspended at this moment, so this is the real one: a dying run's last words
    # would otherwise go to a file that nobody reads.
    config.stash[_stderr] = os.dup(2)


def pytest_unconfigure(config):
    os.close(config.stash[_stderr])
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    marks = [item.get_closest_marker(each) for each in ("soak", "suites")]
    long = MUTATING or any(marks)
    limit = SOAK_HANGS_AFTER if long else HANGS_AFTER
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


# ---------------------------------------------------------------- leaks

# A thread that has done its work may need a moment to end on a busy machine.
THREAD_ENDS_WITHIN = 1.0
# asyncio's debug mode complains from 0.1 s on; a stalled machine does that to innocent callbacks.
LOOP_BLOCKED_FROM = 0.5

_failed = pytest.StashKey[bool]()


class _Complaints(logging.Handler):
    """Keep what asyncio warns about: it logs where it cannot raise."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.records = []

    def emit(self, record):
        slow = isinstance(record.msg, str) and record.msg.startswith("Executing %s took")
        if not slow or record.args[1] >= LOOP_BLOCKED_FROM:
            self.records.append(record)

    def take(self):
        taken, self.records = self.records, []
        return [record.getMessage() for record in taken]


_complaints = _Complaints()


def pytest_sessionstart():
    logging.getLogger("asyncio").addHandler(_complaints)


def pytest_sessionfinish():
    logging.getLogger("asyncio").removeHandler(_complaints)


def pytest_collection_finish():
    # What lives from here to the end is looked at no more, which makes the collection after each
    # test cheap enough to do always: a task destroyed later would be held against another test.
    gc.collect()
    gc.freeze()


# What pytest keeps of the tests that have ended would make it dear again.
_AGAIN_AFTER = 100
_ended = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish():
    if next(_ended) % _AGAIN_AFTER == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


def _descriptors():
    found = set()
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return found
    for name in names:
        # The listing had a descriptor of its own, which is gone by now.
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue
    return found


def _resting():
    """The library's own threads that wait for work: they end by themselves, and are none's."""
    threads = sys.modules.get("timebounds.bounds._threads")
    return set() if threads is None else threads.all_resting()


def _settle_work():
    """Wait until no thread of the library holds work any more: what that owns closes with it."""
    threads = sys.modules.get("timebounds.bounds._threads")
    until = time.monotonic() + THREAD_ENDS_WITHIN
    while threads is not None and threads.any_working():
        if time.monotonic() > until:
            break
        threading.Event().wait(0.001)


def _threads_left(before):
    left = [thread for thread in threading.enumerate() if thread not in before]
    until = time.monotonic() + THREAD_ENDS_WITHIN
    while left := [thread for thread in left if thread.is_alive() and thread not in _resting()]:
        left[0].join(0.01)
        if time.monotonic() > until:
            break
    return left


@pytest.fixture
def asyncio_complaints():
    """Take what asyncio has warned about, for a test that provokes it: `asyncio_complaints()`."""

    def take():
        gc.collect()
        return _complaints.take()

    return take


@pytest.fixture(autouse=True)
def _no_leaks(request) -> Iterator[None]:
    """Fail the test that leaves a thread, a descriptor or an unhappy event loop behind."""
    _complaints.take()
    threads = set(threading.enumerate())
    descriptors = _descriptors()
    yield
    gc.collect()
    # The traceback of a failed test holds its frames, and so whatever it had open.
    if request.node.stash.get(_failed, False):
        return
    _settle_work()
    left = [f"thread {thread!r}" for thread in _threads_left(threads)]
    # Once more: what a thread held until now.
    gc.collect()
    left += [f"descriptor {number} -> {to}" for number, to in _descriptors() - descriptors]
    left += [f"asyncio: {text}" for text in _complaints.take()]
    if left:
        pytest.fail("left behind:\n  " + "\n  ".join(left), pytrace=False)
