"""After an expiry no byte is lost: go on with resume(), or give up with discard()."""

import socket

from timebounds import BudgetedReceiver, Deadline, DeadlineExceeded, Unfinished

ours, theirs = socket.socketpair()
with ours, theirs:
    receiver = BudgetedReceiver(ours)

    theirs.sendall(b"half of ")
    try:
        receiver.receive_exactly(12, Deadline.after(0.01))
    except DeadlineExceeded as error:
        print(error)
    print("pending:", receiver.pending)

    # The middle of a message is no place to begin another one.
    try:
        receiver.receive_exactly(4, Deadline.after(1.0))
    except Unfinished as error:
        print(error)

    theirs.sendall(b"itXX")
    print("resumed:", receiver.resume(Deadline.after(1.0)))

    theirs.sendall(b"never fin")
    try:
        receiver.receive_exactly(100, Deadline.after(0.01))
    except DeadlineExceeded:
        print("discarded:", receiver.discard())
    theirs.sendall(b"new")
    print("anew:", receiver.receive_exactly(3, Deadline.after(1.0)))
