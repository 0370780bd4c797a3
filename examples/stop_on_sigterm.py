"""A service that reads lines until it is told to go: SIGTERM ends the wait, and no line is lost."""

import os
import signal
import socket
import threading

from timebounds import BudgetedReceiver, Deadline, StopRequested, StopSignal


def serve(receiver, deadline):
    while True:
        line = receiver.receive_until(b"\n", 80, deadline)
        print("served", line)


ours, theirs = socket.socketpair()
with ours, theirs, StopSignal.on_signals(signal.SIGTERM) as stop:
    receiver = BudgetedReceiver(ours)
    theirs.sendall(b"one\ntwo\nthr")
    # As an operator would; a second one would end the process as if nobody listened.
    operator = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    operator.start()
    try:
        serve(receiver, Deadline.never(stop=stop))
    except StopRequested as error:
        print(error)
    operator.join()

assert stop.reason == "SIGTERM"
assert receiver.report.outcome == "stopped"
print("kept for whoever comes next:", receiver.pending)
assert receiver.pending == b"thr"
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
