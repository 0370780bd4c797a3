"""A worker with room for two: what is refused, what goes stale, and the account at the end."""

import threading

from timebounds import Deadline, Overflow, QueueFull, Worker

gate, busy = threading.Event(), threading.Event()


def send(work):
    busy.set()
    gate.wait(5)  # stands for a slow service
    print(f"sent {work.payload}")


worker = Worker(
    send,
    capacity=2,
    overflow=Overflow.REJECT,
    dead_letter=lambda work: print(f"not sent: {work.payload}, {work.record.outcome}"),
)
worker.submit("first", Deadline.after(10))
busy.wait(5)
worker.submit("second", Deadline.after(0.05))  # by then or not at all
worker.submit("third", Deadline.after(10))
try:
    worker.submit("fourth", Deadline.after(10))
except QueueFull as error:
    print(error)

threading.Event().wait(0.06)
gate.set()
print(worker.close(Deadline.after(5), reserve=1))
