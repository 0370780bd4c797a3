"""W4: the interpreter's own tests pass over sockets of ours; `run.py suites` runs them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from children import ROOT, environment

pytestmark = [pytest.mark.real, pytest.mark.suites]

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "everywhere.py"
# Seconds for a module, and for the whole of its test.
LIMIT = 300

# Which classes of a module; all of them where nothing is said.
MODULES = {
    "test_httplib": (),
    "test_smtplib": (),
    "test_poplib": (),
    "test_ftplib": (),
    "test_urllib2_localnet": (),
    "test_xmlrpc": (),
    "test_imaplib": (),
    "test_ssl": (),
    "test_socket": ("FileObject", "BasicTCP", "BufferIO", "Sendfile", "NetworkConnection"),
}

# What differs on purpose, and why.
ON_PURPOSE = {
    r"testReadAfterTimeout .*FileObject": "a file of ours can be read again after a timeout (W2)",
    r"test_name_closed_socketio ": "it looks for the standard library's class in the repr",
}


def run(mode, module):
    """Return how many tests were run, and what failed: names and texts."""
    try:
        ended = subprocess.run(
            [sys.executable, SCRIPT, mode, f"test.{module}", *MODULES[module]],
            env=environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{mode} {module}: not over after {LIMIT} s", pytrace=False)
    last = ended.stdout.strip().rpartition("\n")[2]
    try:
        count, failed = json.loads(last)
    except ValueError:
        pytest.fail(f"{mode} {module} broke off: {ended.stderr[-5000:]}", pytrace=False)
    return count, dict(failed)


@pytest.mark.skipif(
    importlib.util.find_spec("test") is None or importlib.util.find_spec("test.support") is None,
    reason="this interpreter has no tests of its own",
)
@pytest.mark.parametrize("module", MODULES)
def test_what_passes_over_plain_sockets_passes_over_ours(module):
    """W4."""
    count, failed = run("ours", module)
    print(f"{module}: {count} were run")
    assert count > 0
    different = {
        name: text
        for name, text in failed.items()
        if not any(re.match(pattern, name) for pattern in ON_PURPOSE)
    }
    if different:
        different = {n: t for n, t in different.items() if n not in run("plain", module)[1]}
    assert not different, "\n".join([*different, *different.values()])
