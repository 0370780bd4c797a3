"""S: what the kernel may answer, injected into the system calls of a receive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import children

pytestmark = [pytest.mark.slow, pytest.mark.real]

STRACE = shutil.which("strace")
if STRACE is None and os.environ.get("CI"):
    pytest.fail("CI has no strace", pytrace=False)
needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

SCRIPT = """
import os, select, socket, sys, threading, time
from timebounds import BudgetedReceiver, Deadline
ours, theirs = socket.socketpair()
receiver = BudgetedReceiver(ours, idle_timeout=5)
theirs.sendall(b"AB")
size, budget, chunks = {size}, {budget}, {chunks}
def send():
    for chunk in chunks:
        time.sleep(0.05)
        theirs.sendall(chunk)
thread = threading.Thread(target=send)
thread.start()
began = time.monotonic()
os.write(2, b"begin\\n")
try:
    print(receiver.receive_exactly(size, Deadline.after(budget)))
except Exception as error:
    print(type(error).__name__, getattr(error, "errno", None), receiver.pending)
    report = getattr(error, "report", None)
    if report is not None:
        print(report.outcome, report.satisfied, report.data)
os.write(2, b"end\\n")
print(ours.gettimeout(), round(time.monotonic() - began, 1))
thread.join()
"""


def under(*inject, size=4, budget=5.0, chunks=(b"CD",)):
    script = SCRIPT.format(size=size, budget=budget, chunks=chunks)
    rules = [word for rule in inject for word in ("-e", f"inject={rule}")]
    out = subprocess.run(
        [STRACE, "-f", "-o", os.devnull, *rules, sys.executable, "-c", script],
        env=children.environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "Traceback" not in out.stderr, out.stderr
    return out.stdout.splitlines()


@needs_strace
def test_without_injection_it_is_whole():
    assert under()[0] == "b'ABCD'"


@needs_strace
@pytest.mark.parametrize("error", ["EINTR", "EAGAIN"])
def test_interruptions_and_spurious_readiness_are_waited_out(error):
    """S3: on the first reads, however many."""
    assert under(f"recvfrom:error={error}:when=1..3")[0] == "b'ABCD'"


@needs_strace
def test_interrupted_polls_are_waited_out():
    assert under("poll:error=EINTR:when=1..3")[0] == "b'ABCD'"


@needs_strace
@pytest.mark.parametrize(
    ("error", "name", "number"),
    [
        ("ECONNRESET", "ConnectionResetError", 104),
        ("ECONNABORTED", "ConnectionAbortedError", 103),
        ("ETIMEDOUT", "TimeoutError", 110),
        ("ENETUNREACH", "OSError", 101),
    ],
)
def test_errors_of_the_connection_propagate_with_the_bytes_kept(error, name, number):
    """R8: the kernel's own ETIMEDOUT is no idle wait."""
    assert under(f"recvfrom:error={error}:when=2+")[0] == f"{name} {number} b'AB'"


@needs_strace
def test_an_error_of_poll_propagates_with_the_bytes_kept():
    assert under("poll:error=ENOMEM:when=1+")[0] == "OSError 12 b'AB'"


@needs_strace
def test_an_end_that_the_kernel_reports_is_an_end():
    lines = under("recvfrom:retval=0:when=2+")
    assert lines[:2] == ["PeerClosed None b''", "eof False b'AB'"]


@needs_strace
def test_data_that_a_slow_call_brings_too_late_is_kept_and_declared_late():
    """R2."""
    lines = under("recvfrom:delay_exit=400000:when=1", size=2, budget=0.2)
    assert lines[:2] == ["DeadlineExceeded None b''", "deadline_expired True b'AB'"]


@needs_strace
def test_one_system_call_a_read_and_no_change_of_mode(tmp_path):
    """Speed, R9: with data ready."""
    log = tmp_path / "calls"
    script = """
import os, socket
from timebounds import BudgetedReceiver, Deadline
ours, theirs = socket.socketpair()
theirs.sendall(b"x" * 16_000)
receiver = BudgetedReceiver(ours, idle_timeout=1)
deadline = Deadline.after(60)
os.stat("/begin-mark") if os.path.exists("/begin-mark") else None
for _ in range(1000):
    receiver.receive_exactly(16, deadline)
os.path.exists("/end-mark")
"""
    out = subprocess.run(
        [STRACE, "-f", "-o", log, sys.executable, "-c", script],
        env=children.environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    text = log.read_text()
    calls = text[text.index("/begin-mark") : text.index("/end-mark")].splitlines()[1:-1]
    names = {line.split()[1].split("(")[0] for line in calls}
    assert names == {"recvfrom"}
    assert len(calls) == 1000
