"""A real server drips a byte now and then; the call ends at its deadline all the same."""

import socket
import threading

from timebounds import BudgetedReceiver, Deadline, DeadlineExceeded

caller_has_left = threading.Event()


def drip(listener):
    connection, _ = listener.accept()
    with connection:
        while not caller_has_left.wait(0.02):
            connection.sendall(b"x")


with socket.create_server(("127.0.0.1", 0)) as listener:
    server = threading.Thread(target=drip, args=(listener,))
    server.start()
    # The budget begins here: connecting is inside it.
    deadline = Deadline.after(0.2)
    with socket.create_connection(listener.getsockname(), deadline.timeout()) as sock:
        receiver = BudgetedReceiver(sock, idle_timeout=0.1)
        try:
            receiver.receive_exactly(1000, deadline)
        except DeadlineExceeded as error:
            print(error)
            print(error.report)
        finally:
            caller_has_left.set()
        assert receiver.report.data == receiver.pending
    server.join()
