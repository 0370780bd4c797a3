"""Real servers for tests: started by them, on a machine that has the programs."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

READY_WITHIN = 30.0


def program(*names):
    """Find a program, in Debian's folder for servers too; without it skip, in CI fail."""
    folders = [*sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True), os.defpath]
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return found
    text = f"no {names[0]} here"
    if os.environ.get("CI"):
        pytest.fail(f"{text}: .ci/run installs it")
    pytest.skip(text)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(command, ready, log, *, end, **more):
    """Run a server from the moment in which `ready()` holds, and send `end` after the block.

    Each takes its own signal for an order to end at once, clients or not.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, **more)
    try:
        give_up = time.monotonic() + READY_WITHIN
        while not ready():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up, log.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        yield
    finally:
        process.send_signal(end)
        process.wait(30)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


@contextlib.contextmanager
def redis_server(folder):
    """A redis-server of the test's own; give its port."""
    port = free_port()
    command = [program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--save", "", "--appendonly", "no", "--dir", str(folder)]
    with running(command, lambda: listens(port), folder / "redis.log", end=signal.SIGKILL):
        yield port


@contextlib.contextmanager
def postgres_server():
    """A PostgreSQL of the test's own, on a socket in its folder; give what connects to it."""
    initdb, postgres = program("initdb"), program("postgres")
    # It refuses to run as root, and so does what makes its files.
    user = {"user": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="timebounds-") as home:
        if user:
            shutil.chown(home, user="postgres")
        data = Path(home) / "data"
        make = [initdb, "-D", str(data), "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8"]
        made = subprocess.run(make, capture_output=True, text=True, cwd=home, check=False, **user)
        assert made.returncode == 0, made.stdout + made.stderr
        port = free_port()
        command = [postgres, "-D", str(data), "-p", str(port), "-k", home]
        command += ["-c", "listen_addresses=127.0.0.1", "-F"]
        with tempfile.TemporaryDirectory(prefix="timebounds-") as logs:
            log = Path(logs) / "postgres.log"

            def ready():
                return "ready to accept connections" in log.read_text()

            with running(command, ready, log, end=signal.SIGINT, cwd=home, **user):
                yield f"hostaddr=127.0.0.1 port={port} user=tester dbname=postgres"
