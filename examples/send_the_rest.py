"""A send that ends early: how much was accepted is known, and only the rest follows."""

import socket
import threading

from timebounds import BudgetedSender, Deadline, DeadlineExceeded

ours, theirs = socket.socketpair()
with ours, theirs:
    message = b"0123456789" * 100_000
    sender = BudgetedSender(ours, idle_timeout=5.0)
    try:
        sender.send_all(message, Deadline.after(0.1))  # the peer does not read
    except DeadlineExceeded as error:
        print(error)
        accepted = error.report.accepted
    assert sender.unsent == message[accepted:]

    got = []
    reader = threading.Thread(
        target=lambda: got.append(theirs.recv(len(message), socket.MSG_WAITALL))
    )
    reader.start()
    sender.resume(Deadline.after(5.0))
    reader.join()
    assert got == [message]  # each byte once
    print(sender.report)
