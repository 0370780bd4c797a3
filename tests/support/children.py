"""Starting another Python that sees what this run tests: the source tree, or an installed copy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    env.update(more)
    if not os.environ.get("TIMEBOUNDS_INSTALLED"):
        env["PYTHONPATH"] = str(ROOT / "src")
    return env


def python(
    *arguments: str | os.PathLike[str], cwd: Path = ROOT, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in development mode; keep its output, do not judge its status."""
    return subprocess.run(
        [sys.executable, "-X", "dev", *arguments],
        env=environment(**more),
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=50,
        check=False,
    )


def run_pytest(
    folder: Path, source: str, *options: str, conftest: str = ""
) -> tuple[dict[str, list[str]], str]:
    """Run tests with our plugin; return what came of each, and all that was printed."""
    (folder / "conftest.py").write_text(dedent(conftest))
    (folder / "test_it.py").write_text(dedent(source))
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    # Where an installed copy is tested, its entry point has loaded the plugin already.
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_timebounds", "-rA", *options)
    ended = python("-W", "error", *words, cwd=folder, PYTHONDONTWRITEBYTECODE="1")
    outcomes: dict[str, list[str]] = {}
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\w+)", ended.stdout, re.MULTILINE)
    for outcome, name in found:
        outcomes.setdefault(name, []).append(outcome)
    return outcomes, ended.stdout + ended.stderr


def all_passed(outcomes: dict[str, list[str]]) -> bool:
    return bool(outcomes) and all(each == ["PASSED"] for each in outcomes.values())
