"""A receive in a thread, cancelled from its task: no byte is lost, and the socket stays usable."""

import asyncio
import socket

from timebounds import BudgetedReceiver, Deadline, StopRequested, offload_job, offload_report


def receive(job, receiver, started):
    started()
    # The job's deadline carries its stop, and a receive obeys that: nothing else is needed.
    return receiver.receive_exactly(10, job.deadline)


async def cancelled(receiver):
    loop, started = asyncio.get_running_loop(), asyncio.Event()

    def tell():
        loop.call_soon_threadsafe(started.set)

    deadline = Deadline.after(60)
    task = asyncio.create_task(offload_job(receive, receiver, tell, deadline=deadline))
    await started.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError as error:
        return offload_report(error)


ours, theirs = socket.socketpair()
with ours, theirs:
    receiver = BudgetedReceiver(ours)
    theirs.sendall(b"half ")

    report = asyncio.run(cancelled(receiver))
    print("cancelled:", [step for step, _ in report.steps])
    assert report.outcome == "cancelled"
    assert isinstance(report.error, StopRequested)
    assert report.ran < 10  # not the sixty seconds of its deadline

    theirs.sendall(b"whole")
    print("resumed:", receiver.resume(Deadline.after(1.0)))
    assert receiver.report.data == b"half whole"
