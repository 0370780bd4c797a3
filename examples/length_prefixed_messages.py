"""Messages with a length in front: a limit before the read, one deadline for head and body."""

import socket

from timebounds import BudgetedReceiver, Deadline, PeerClosed

LARGEST = 1 << 20


def receive_message(receiver, deadline):
    size = int.from_bytes(receiver.receive_exactly(4, deadline), "big")
    if size > LARGEST:
        msg = f"a message of {size} bytes was announced, {LARGEST} are allowed"
        raise ValueError(msg)
    return receiver.receive_exactly(size, deadline)


ours, theirs = socket.socketpair()
with ours, theirs:
    for text in (b"first", b"", b"third"):
        theirs.sendall(len(text).to_bytes(4, "big") + text)
    theirs.sendall((1000).to_bytes(4, "big") + b"cut sh")
    theirs.close()

    # One receiver for a connection's whole life; one deadline for each message.
    receiver = BudgetedReceiver(ours, idle_timeout=1.0)
    for _ in range(3):
        print(receive_message(receiver, Deadline.after(2.0)))
    try:
        receive_message(receiver, Deadline.after(2.0))
    except PeerClosed as error:
        print(error)
    assert receiver.report.data == b"cut sh"
