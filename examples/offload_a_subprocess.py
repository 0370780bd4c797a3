"""A child process that takes too long: killed at the deadline, reaped, and nothing left behind."""

import asyncio
import signal
import subprocess
import sys

from timebounds import Deadline, DeadlineExceeded, kill_process, offload

SLOW = [sys.executable, "-c", "import time; time.sleep(60)"]


async def output_of(child):
    deadline = Deadline.after(0.2)
    try:
        await offload(child.communicate, deadline=deadline, release=kill_process(child))
    except DeadlineExceeded as error:
        print(error)
        return error.report


with subprocess.Popen(SLOW, stdout=subprocess.PIPE) as child:  # noqa: S603  (our own words)
    report = asyncio.run(output_of(child))
print([step for step, _ in report.steps])
# It was waited for: its output was read to the end, and its status is known.
assert child.returncode == -signal.SIGKILL
assert report.outcome == "deadline_expired"
assert report.released <= report.returned < 30
print("what it had written until then:", report.value[0])
