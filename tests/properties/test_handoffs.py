"""D4: what `timeout()` and `timeout_ms()` hand out, to the real calls that take it.

Whatever is left, each call accepts it, and never takes it for "do not block" or "no limit". What
is waited for is ready already, or nothing of the limit is left to wait for, so nothing sleeps.
"""

from __future__ import annotations

import os
import queue
import select
import selectors
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from timebounds import Deadline
from timebounds.testing import FakeClock

FOREVER = None
# From one nanosecond to more than any platform can count, around the sizes where one wraps round.
lengths = (
    st.sampled_from([1e-300, 1e-12, 1e-9, 1e-6, 9.99e-4, 1e-3, 1.0, 86_400.0])
    | st.sampled_from([2_147_483.0, 2_147_483.648, 4_294_967.297, 4_294_968.0, 9_223_372_036.9])
    | st.floats(min_value=1e-9, max_value=1e7)
    | st.floats(min_value=0, exclude_min=True, max_value=sys.float_info.max)
)
budgets = st.just(FOREVER) | lengths
tiny = pytest.mark.parametrize("left", [1e-300, 1e-9, 1e-6])
huge = pytest.mark.parametrize("left", [3e6, 4_294_968.0, 9_223_372_037.0, 1e300])


def deadline_of(left):
    clock = FakeClock()
    return Deadline.never(clock=clock) if left is FOREVER else clock.deadline(left)


@pytest.fixture(scope="module")
def ready():
    """A socket with a byte to read."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x")
        yield ours


@pytest.fixture(scope="module")
def silent():
    """A socket with nothing to read."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


@given(left=budgets)
@example(left=4_294_968.0)
def test_what_is_handed_out_is_within_what_a_c_int_of_milliseconds_holds(left):
    """D4: beyond it CPython's sockets wrap round, silently: 4,294,968 s are 0.7 s for them."""
    seconds, ms = deadline_of(left).timeout(), deadline_of(left).timeout_ms()
    if left is FOREVER:
        assert (seconds, ms) == (None, None)
    else:
        assert 0 < seconds <= left
        assert 1 <= ms < 2**31
        assert ms == 1 or ms / 1000 <= left
        assert -(-seconds * 1000 // 1) < 2**31
        assert type(ms) is int


# ---------------------------------------------------------------- sockets and selectors


@given(left=budgets)
def test_a_socket_takes_it(ready, left):
    """D4: `settimeout(0)` would make the socket non-blocking."""
    ready.settimeout(deadline_of(left).timeout())
    assert ready.recv(1, socket.MSG_PEEK) == b"x"
    if left is FOREVER:
        assert ready.gettimeout() is None
    else:
        # CPython rounds up to whole nanoseconds.
        assert 0 < ready.gettimeout() <= left + 2e-9


@tiny
def test_a_socket_with_next_to_nothing_left_times_out(silent, left):
    """D4: which is a TimeoutError; a non-blocking socket raises BlockingIOError."""
    silent.settimeout(deadline_of(left).timeout())
    with pytest.raises(TimeoutError):
        silent.recv(1)


@given(left=budgets)
def test_a_poll_takes_whole_milliseconds(ready, left):
    """D4."""
    poller = select.poll()
    poller.register(ready, select.POLLIN)
    assert poller.poll(deadline_of(left).timeout_ms()) == [(ready.fileno(), select.POLLIN)]


@tiny
def test_a_poll_with_next_to_nothing_left_ends(silent, left):
    """D4: rounded down without a floor it would be 0, and in a loop spin."""
    poller = select.poll()
    poller.register(silent, select.POLLIN)
    assert deadline_of(left).timeout_ms() == 1
    assert poller.poll(deadline_of(left).timeout_ms()) == []


KINDS = [selectors.EpollSelector, selectors.PollSelector, selectors.SelectSelector]


@pytest.mark.parametrize("kind", KINDS)
@given(left=budgets)
def test_a_selector_takes_it(ready, kind, left):
    """D4."""
    with kind() as selector:
        selector.register(ready, selectors.EVENT_READ)
        [(key, events)] = selector.select(deadline_of(left).timeout())
    assert (key.fileobj, events) == (ready, selectors.EVENT_READ)


@pytest.mark.parametrize("kind", KINDS)
@tiny
def test_a_selector_with_next_to_nothing_left_ends(silent, kind, left):
    """D4."""
    with kind() as selector:
        selector.register(silent, selectors.EVENT_READ)
        assert selector.select(deadline_of(left).timeout()) == []


# ---------------------------------------------------------------- threads


@given(left=budgets)
def test_a_lock_takes_it_but_for_none(left):
    """D4: there, and only there, -1 is the word for no limit."""
    lock, limit = threading.Lock(), deadline_of(left).timeout()
    assert lock.acquire(timeout=-1 if limit is None else limit)
    # A finite limit of one's own needs no such word.
    lock.release()
    assert lock.acquire(timeout=deadline_of(left).timeout(60))


def test_a_lock_refuses_none():
    """D4: it is a TypeError at once, not a wait without a limit."""
    limit = Deadline.never().timeout()
    assert limit is None
    with pytest.raises(TypeError):
        threading.Lock().acquire(timeout=limit)


@tiny
def test_a_lock_with_next_to_nothing_left_is_not_acquired(left):
    """D4."""
    lock = threading.Lock()
    with lock:
        assert not lock.acquire(timeout=deadline_of(left).timeout())


@given(left=budgets)
def test_what_waits_for_another_thread_takes_it(left):
    """D4: with what they wait for there already."""
    event, items, future = threading.Event(), queue.Queue(), Future()
    event.set()
    items.put("item")
    future.set_result("value")
    limit = deadline_of(left).timeout()
    assert event.wait(limit)
    assert items.get(timeout=limit) == "item"
    assert future.result(limit) == "value"
    condition = threading.Condition()
    with condition:
        assert condition.wait_for(event.is_set, limit)
    assert threading.Semaphore(1).acquire(timeout=limit)
    ended = threading.Thread()
    ended.start()
    ended.join(limit)


@tiny
def test_what_waits_for_another_thread_ends_with_next_to_nothing_left(left):
    """D4: as a wait that is over."""
    limit = deadline_of(left).timeout()
    assert not threading.Event().wait(limit)
    condition = threading.Condition()
    with condition:
        assert not condition.wait(limit)
    with pytest.raises(queue.Empty):
        queue.Queue().get(timeout=limit)
    with pytest.raises(TimeoutError):
        Future().result(limit)


class Waited:
    """What a thread waits for, and the condition that tells whether one does."""

    def __init__(self):
        event, items, future, condition = (
            threading.Event(), queue.Queue(), Future(), threading.Condition(),
        )  # fmt: skip

        def wait(limit):
            with condition:
                return condition.wait(limit)

        def notify():
            with condition:
                condition.notify()

        self.ways = {
            "Event": (event.wait, event.set, event._cond),
            "Condition": (wait, notify, condition),
            "Queue": (
                lambda limit: items.get(timeout=limit),
                lambda: items.put(1),
                items.not_empty,
            ),
            "Future": (future.result, lambda: future.set_result(1), future._condition),
        }


@huge
@pytest.mark.parametrize("way", Waited().ways)
def test_a_huge_limit_waits_for_what_comes(left, way):
    """D4: it is not taken for 0: a thread is seen to wait, and only then gets what it waits for."""
    wait, come, condition = Waited().ways[way]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, deadline_of(left).timeout())
        patience = Deadline.after(10)
        while not condition._waiters and not patience.expired() and not waiting.done():
            threading.Event().wait(0.001)
        assert not waiting.done()
        come()
        assert waiting.result(10)


# ---------------------------------------------------------------- processes


def ended_child():
    """Start a child and see it end, without taking its status away."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return child


@pytest.mark.real
@settings(max_examples=8)
@given(left=budgets)
@example(left=1e-9)
@example(left=4_294_968.0)
def test_a_wait_for_a_process_takes_it(left):
    """D4."""
    with ended_child() as child:
        assert child.wait(timeout=deadline_of(left).timeout()) == 0


@pytest.mark.real
@pytest.mark.parametrize("left", [FOREVER, 60.0, 3e6, 1e300])
def test_the_output_of_a_process_is_read_under_it(left):
    """D4: through a selector, which overflows where a wait does not."""
    with ended_child() as child:
        assert child.communicate(timeout=deadline_of(left).timeout()) == (b"", None)
