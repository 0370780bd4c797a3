"""Starting another Python that sees what this run tests: the source tree, or an installed copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
