"""The fixtures of `pytest_timebounds`, used as its users do: in a run of pytest of their own."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import partial

import pytest

from children import ROOT, all_passed, python, run_pytest


@pytest.fixture
def run(tmp_path):
    """Run tests with the plugin; return what came of each, and all that was printed."""
    return partial(run_pytest, tmp_path)


def test_loading_the_plugin_does_not_import_the_library():
    """No test run pays for it before a fixture is used."""
    code = (
        "import sys, pytest_timebounds; "
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'timebounds'))"
    )
    assert python("-c", code).stdout == "[]\n"


def test_a_run_that_uses_no_fixture_does_not_import_the_library(run):
    outcomes, text = run("""
        import sys

        def test_nothing():
            assert "pytest_timebounds" in sys.modules
            assert "timebounds" not in sys.modules

        def test_no_leaks_needs_none_of_it(no_leaks):
            assert "timebounds" not in sys.modules
    """)
    assert all_passed(outcomes), text


def test_the_entry_point_has_the_modules_name():
    """So that `-p pytest_timebounds` beside it loads it no second time."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"] == {"pytest11": {"pytest_timebounds": "pytest_timebounds"}}


def test_the_fixtures_are_listed_with_what_they_do(run):
    _, text = run("def test(): pass", "--fixtures")
    for name in ("fake_clock", "virtual_loop", "scripted_socket", "drip_server", "no_leaks"):
        assert re.search(rf"^{name} -- .*pytest_timebounds.py:\d+\n    \w", text, re.MULTILINE)


def test_one_clock_drives_threads_tasks_and_scripts_of_one_test(run):
    outcomes, text = run("""
        import asyncio
        import threading

        from timebounds import BudgetedReceiver
        from timebounds.testing import Data, FakeClock, ScriptedSocket

        async def sleep():
            await asyncio.sleep(30)

        def test_a_clock_of_its_own(fake_clock):
            assert type(fake_clock) is FakeClock
            assert fake_clock.now() == 0.0
            fake_clock.advance(1)

        def test_another_clock(fake_clock):
            assert fake_clock.now() == 0.0
            fake_clock.run(sleep())
            assert fake_clock.now() == 30.0

        def test_a_loop_on_it(fake_clock, virtual_loop):
            with asyncio.Runner(loop_factory=virtual_loop) as runner:
                runner.run(sleep())
            assert fake_clock.now() == 30.0
            with asyncio.Runner(loop_factory=virtual_loop) as runner:
                runner.run(sleep())
            assert fake_clock.now() == 60.0

        def test_a_script_on_it(fake_clock, scripted_socket):
            peer = scripted_socket(Data(b"AB", after=1), Data(b"C", after=2), timeout=7)
            assert type(peer) is ScriptedSocket
            assert peer.clock is fake_clock
            receiver = BudgetedReceiver(peer)
            assert receiver.receive_exactly(3, fake_clock.deadline(10)) == b"ABC"
            assert fake_clock.now() == 3.0
            assert peer.gettimeout() == 7

        def test_a_thread_on_it(no_leaks, fake_clock):
            thread = threading.Thread(target=fake_clock.sleep, args=(5,))
            thread.start()
            fake_clock.wait_until_waiting(1)
            fake_clock.advance(5)
            thread.join()
    """)
    assert len(outcomes) == 5
    assert all_passed(outcomes), text


@pytest.mark.real
def test_misbehaving_peers_are_closed_at_the_end_of_the_test(run):
    """And are no leaks, in whatever order the fixtures are named."""
    outcomes, text = run("""
        import threading

        import pytest

        from timebounds import BudgetedReceiver, Deadline
        from timebounds.testing import DripServer, Misbehaviour

        made = []

        def use(drip_server):
            peer = drip_server(Misbehaviour.DRIP_HEADER, body=b"abc", interval=0.001)
            assert type(peer) is DripServer
            made.extend([peer, drip_server(Misbehaviour.SILENT), drip_server()])
            with peer.connect() as sock:
                assert BudgetedReceiver(sock).receive_exactly(3, Deadline.after(30)) == b"abc"
            assert threading.active_count() == 4

        def test_one(drip_server):
            use(drip_server)

        def test_two(drip_server):
            assert threading.active_count() == 1
            with pytest.raises(ConnectionRefusedError):
                made[0].connect()

        def test_three(drip_server, no_leaks):
            use(drip_server)

        def test_four(no_leaks, drip_server):
            use(drip_server)

        def test_five(drip_server):
            drip_server().close()
    """)
    assert len(outcomes) == 5
    assert all_passed(outcomes), text


@pytest.mark.slow
def test_what_is_left_behind_is_named(run):
    outcomes, text = run("""
        import asyncio
        import os
        import threading

        release = threading.Event()
        kept = []

        def test_thread(no_leaks):
            kept.append(threading.Thread(target=release.wait, name="the forgotten"))
            kept[-1].start()

        def test_release():
            release.set()
            kept[-1].join()

        def test_descriptor(no_leaks):
            kept.append(os.open("/dev/null", os.O_RDONLY))

        def test_close():
            os.close(kept[-1])

        def test_task(no_leaks):
            async def forgotten():
                await asyncio.sleep(3600)

            loop = asyncio.new_event_loop()
            kept.append(loop)
            kept.append(loop.create_task(forgotten(), name="the abandoned"))

        def test_cancel():
            task, loop = kept.pop(), kept.pop()
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                loop.close()
    """)
    assert outcomes == {
        "test_thread": ["PASSED", "ERROR"],
        "test_release": ["PASSED"],
        "test_descriptor": ["PASSED", "ERROR"],
        "test_close": ["PASSED"],
        "test_task": ["PASSED", "ERROR"],
        "test_cancel": ["PASSED"],
    }, text
    assert re.search(r"left behind:\n  thread <Thread\(the forgotten, started \d+\)>", text)
    assert re.search(r"left behind:\n  descriptor \d+ -> /dev/null", text)
    assert re.search(r"left behind:\n  task <Task pending name='the abandoned'", text)


@pytest.mark.slow
def test_what_was_there_before_or_ends_by_itself_is_no_leak(run):
    outcomes, text = run("""
        import asyncio
        import os
        import threading

        import pytest

        from timebounds import Deadline, offload

        @pytest.fixture(scope="module")
        def service():
            release = threading.Event()
            thread = threading.Thread(target=release.wait)
            thread.start()
            fd = os.open("/dev/null", os.O_RDONLY)
            loop = asyncio.new_event_loop()
            task = loop.create_task(asyncio.sleep(0))
            yield
            loop.run_until_complete(task)
            loop.close()
            os.close(fd)
            release.set()
            thread.join()

        def test_a_wider_fixture(no_leaks, service):
            pass

        def test_a_thread_that_ends_by_itself(no_leaks):
            threading.Thread(target=threading.Event().wait, args=(0.05,)).start()

        def test_the_librarys_resting_threads(no_leaks):
            asyncio.run(offload(int, deadline=Deadline.after(30)))

        def test_a_task_that_is_done(no_leaks):
            async def main():
                kept.append(asyncio.create_task(asyncio.sleep(0)))
                await kept[0]

            asyncio.run(main())

        kept = []

        def test_a_cycle_that_holds_a_descriptor(no_leaks):
            class Node:
                pass

            node = Node()
            node.self, node.file = node, os.fdopen(os.dup(1))
            node.file.close()
    """)
    assert len(outcomes) == 5
    assert all_passed(outcomes), text


def test_a_test_that_failed_is_not_looked_at(run):
    """Its traceback keeps things alive, and its own error is what counts."""
    outcomes, text = run("""
        import os

        def test_failing(no_leaks):
            fd = os.open("/dev/null", os.O_RDONLY)
            assert not "the reason"

        def test_clean(no_leaks):
            pass
    """)
    assert outcomes == {"test_failing": ["FAILED"], "test_clean": ["PASSED"]}, text
    assert "left behind" not in text


def test_it_patches_no_time(run):
    """Case A79: with the fixtures in use, real time is real."""
    outcomes, text = run("""
        import asyncio
        import queue
        import time

        import pytest

        def test_real_time_goes_on(fake_clock, virtual_loop, scripted_socket):
            began = time.monotonic()
            asyncio.run(asyncio.sleep(0.01))
            with pytest.raises(queue.Empty):
                queue.Queue().get(timeout=0.01)
            assert time.monotonic() - began >= 0.019
            assert fake_clock.now() == 0.0
    """)
    assert all_passed(outcomes), text


def test_the_plugins_own_names_are_all_there():
    import pytest_timebounds

    assert [
        name for name in pytest_timebounds.__all__ if not hasattr(pytest_timebounds, name)
    ] == []
    assert sys.modules["pytest_timebounds"].__doc__.startswith("Fixtures of `timebounds`")
