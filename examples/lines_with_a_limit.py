"""Lines: surplus is kept for the next line, and a line that never ends is refused."""

import socket

from timebounds import BudgetedReceiver, Deadline, LimitExceeded

ours, theirs = socket.socketpair()
with ours, theirs:
    # Two lines and the beginning of an endless one, all in one packet.
    theirs.sendall(b"HELLO\r\nSIZE 42\r\n" + b"A" * 200)

    receiver = BudgetedReceiver(ours)
    print(receiver.receive_until(b"\r\n", 80, Deadline.after(2.0)))
    print(receiver.receive_until(b"\r\n", 80, Deadline.after(2.0)))
    try:
        receiver.receive_until(b"\r\n", 80, Deadline.after(2.0))
    except LimitExceeded as error:
        print(error)
        # Where the next line begins, nobody knows. Give the bytes up, or close the connection.
        assert len(receiver.discard()) == 200
