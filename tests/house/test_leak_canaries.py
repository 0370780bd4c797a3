"""The checks of tests/conftest.py, tried on tests that leak: each of them must be rejected."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from children import ROOT, python

pytestmark = pytest.mark.slow

LEAKS = """
import asyncio, gc, os, socket, threading, time


def test_a_socket_is_not_closed():
    socket.socket()


def test_a_thread_ends_with_an_error():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()


def test_a_thread_runs_on():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def test_a_task_is_destroyed_while_pending():
    async def main():
        asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()


def test_a_coroutine_is_never_awaited():
    asyncio.sleep(1)


def test_an_error_of_a_task_is_never_looked_at():
    async def main():
        async def bad():
            raise ValueError("unseen")

        task = asyncio.create_task(bad())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task

    asyncio.run(main())


def test_an_event_loop_is_not_closed():
    asyncio.new_event_loop()


def test_a_descriptor_stays_open():
    os.open("/dev/null", os.O_RDONLY)


def test_a_descriptor_changes_hands():
    os.close(SPARE)
    assert os.open("/dev/zero", os.O_RDONLY) == SPARE


def test_a_finaliser_raises():
    class Bad:
        def __del__(self):
            raise ValueError("in a finaliser")

    Bad()


def test_a_callback_blocks_the_loop():
    async def main():
        time.sleep(0.6)

    asyncio.run(main())


SPARE = os.open("/dev/null", os.O_RDONLY)
"""

CLEAN = """
import asyncio, logging, os, socket, threading


def test_everything_is_closed():
    one, other = socket.socketpair()
    with one, other:
        pass
    os.close(os.open("/dev/null", os.O_RDONLY))


def test_a_thread_is_about_to_end():
    gate = threading.Event()
    threading.Thread(target=gate.wait).start()
    gate.set()


def test_a_loop_runs_and_ends():
    async def main():
        await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(int))

    asyncio.run(main())


def test_a_warning_is_expected(asyncio_complaints):
    logging.getLogger("asyncio").warning("as %s", "planned")
    assert asyncio_complaints() == ["as planned"]
"""

FAILING = """
import os


def test_fails_and_leaves_a_descriptor():
    os.open("/dev/null", os.O_RDONLY)
    assert False
"""

HANGING = """
import threading


def test_hangs():
    threading.Event().wait()
"""


def names(source: str) -> list[str]:
    return [line[4:].split("(")[0] for line in source.splitlines() if line.startswith("def test_")]


CONFTEST = (ROOT / "tests" / "conftest.py").read_text()


def run_suite(folder: Path, sources: dict[str, str], *, conftest: str = CONFTEST, seed: int = 1):
    """Run these files under our conftest; give the run and each test's verdicts."""
    (folder / "conftest.py").write_text(conftest)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, source in sources.items():
        (folder / f"test_{name}.py").write_text(source)
    result = folder / "result.xml"
    own = ["-o", "testpaths=.", "-o", "pythonpath=", "-p", "no:cacheprovider"]
    run = python(
        "-m", "pytest", "-v", *own, f"--junitxml={result}", cwd=folder, TIMEBOUNDS_SEED=str(seed)
    )
    verdicts: dict[str, set[str]] = {}
    if result.exists():
        for case in ET.parse(result).iter("testcase"):
            verdicts.setdefault(case.attrib["name"], set()).update(child.tag for child in case)
    return run, verdicts


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    folder = tmp_path_factory.mktemp("canaries")
    run, verdicts = run_suite(folder, {"leaks": LEAKS, "clean": CLEAN})
    assert verdicts, run.stdout + run.stderr
    return verdicts


@pytest.mark.parametrize("leak", names(LEAKS))
def test_a_test_that_leaks_does_not_pass(tried, leak):
    assert tried[leak] & {"error", "failure"}


@pytest.mark.parametrize("name", names(CLEAN))
def test_a_clean_test_passes_beside_leaking_ones(tried, name):
    assert tried[name] == set()


def test_a_failed_test_is_not_blamed_twice(tmp_path):
    _, verdicts = run_suite(tmp_path, {"failing": FAILING})
    assert verdicts == {"test_fails_and_leaves_a_descriptor": {"failure"}}


def test_the_watchdog_ends_a_test_that_hangs_and_shows_where(tmp_path):
    hasty = CONFTEST.replace("\nHANGS_AFTER = 60\n", "\nHANGS_AFTER = 1\n")
    assert hasty != CONFTEST
    run, verdicts = run_suite(tmp_path, {"hanging": HANGING}, conftest=hasty)
    assert verdicts == {}
    assert run.returncode == 1
    assert "Timeout (0:00:01)!" in run.stderr
    assert "in test_hangs" in run.stderr


def test_the_same_seed_gives_the_same_order_and_another_seed_another(tmp_path):
    source = "\n".join(f"def test_{number}(): pass" for number in range(20))

    def order(seed: int) -> list[str]:
        run, _ = run_suite(tmp_path, {"one": source, "two": source}, seed=seed)
        assert f"--order-seed={seed}" in run.stdout
        return [line.split()[0] for line in run.stdout.splitlines() if " PASSED" in line]

    first = order(1)
    assert len(first) == 40
    assert first == order(1)
    assert first != order(2)
    files = [name.split("::")[0] for name in first]
    assert files in (sorted(files), sorted(files, reverse=True)), "a file was torn apart"
