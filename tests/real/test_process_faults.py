"""T3, T7: the wall clock is stepped, the process is frozen; D5: another boot's instants."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import children

pytestmark = [pytest.mark.real, pytest.mark.slow]

GCC = shutil.which("gcc")
if GCC is None and os.environ.get("CI"):
    pytest.fail("CI has no gcc", pytrace=False)

JUMPING = """
import mmap, os, socket, struct, threading, time
from timebounds import MONOTONIC, WALL, BudgetedReceiver, Deadline, DeadlineExceeded, Expiry
fd = os.open(os.environ["WALLJUMP_FILE"], os.O_RDWR)
page = mmap.mmap(fd, 4096)
def jump(seconds):
    page[0:8] = struct.pack("<q", int(seconds * 1e9))
expiry = Expiry.after(60)
jump(3600)
assert expiry.stale(), "the wall did not jump"
jump(-86400)
assert expiry.fresh()
stop = threading.Event()
def storm():
    n = 0
    while not stop.wait(0.001):
        n += 1
        jump((-1) ** n * 7200)
thread = threading.Thread(target=storm)
thread.start()
ours, theirs = socket.socketpair()
condition = threading.Condition()
def receive():
    try:
        BudgetedReceiver(ours).receive_some(1, Deadline.after(0.2))
    except DeadlineExceeded:
        pass
def wait():
    with condition:
        MONOTONIC.wait(condition, 0.2)
for name, verb in ("receive", receive), ("sleep", lambda: MONOTONIC.sleep(0.2)), ("wait", wait):
    began = time.monotonic()
    verb()
    took = time.monotonic() - began
    assert 0.2 <= took < 0.45, (name, took)
stop.set()
thread.join()
ours.close(), theirs.close()
page.close(), os.close(fd)
print("held")
"""


@pytest.mark.skipif(GCC is None, reason="gcc is not installed")
def test_a_thousand_steps_of_the_wall_a_second_move_no_wait(tmp_path):
    """C3, T3."""
    shim, page = tmp_path / "walljump.so", tmp_path / "page"
    source = Path(__file__).parents[1] / "support" / "walljump.c"
    subprocess.run([GCC, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    page.write_bytes(bytes(4096))
    out = children.python("-c", JUMPING, WALLJUMP_FILE=str(page), LD_PRELOAD=str(shim))
    assert out.stdout == "held\n", out.stderr


FROZEN = """
import socket, sys, time
from timebounds import BudgetedReceiver, BudgetedSender, Deadline, DeadlineExceeded, connect
ours, theirs = socket.socketpair()
receiver, sender = BudgetedReceiver(ours), BudgetedSender(ours)
silent = socket.create_server(("127.0.0.1", 0), backlog=0)
silent.listen(0)
queued = [socket.socket() for _ in range(4)]
for each in queued:
    each.setblocking(False)
    each.connect_ex(silent.getsockname())
began, deadline = time.monotonic(), Deadline.after(0.3)
print("waiting", flush=True)
try:
    VERB
except DeadlineExceeded as error:
    late = time.monotonic() - began > 0.8
    print(error.report.outcome, FACT, error.report.overshoot > 0.3, late)
"""


@pytest.mark.parametrize(
    ("verb", "fact"),
    [
        ("receiver.receive_exactly(2, deadline)", "error.report.reads <= 1"),
        ("sender.send_all(bytes(10_000_000), deadline)", "error.report.sends <= 2"),
        ("connect(silent.getsockname(), deadline)", "len(error.report.attempts) <= 1"),
    ],
)
def test_a_process_that_was_frozen_sees_its_expiry_first_of_all(verb, fact):
    """T7: no further read, send or address is started."""
    with subprocess.Popen(
        [sys.executable, "-c", FROZEN.replace("VERB", verb).replace("FACT", fact)],
        env=children.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "waiting\n"
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        subprocess.run(["sleep", "0.9"], check=True)
        child.send_signal(signal.SIGCONT)
        assert child.communicate(timeout=30)[0] == "deadline_expired True True True\n"
