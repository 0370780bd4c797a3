"""Lookup, connecting, sending and the answer under one deadline, and what is told of each."""

import socket
import threading

from timebounds import Deadline, connect, dial_report


def serve(server):
    client, _ = server.accept()
    with client:
        question = client.recv(100)
        client.sendall(question.upper())


with socket.create_server(("127.0.0.1", 0)) as server:
    threading.Thread(target=serve, args=[server]).start()
    port = server.getsockname()[1]

    deadline = Deadline.after(2.0)
    with connect(("localhost", port), deadline) as connection:
        connection.send_all(b"ping\n", deadline)
        print(connection.receive_until(b"\n", 80, deadline))
        report = connection.report
        print(f"{report.outcome}: lookup {report.lookup:.4f} s, connect {report.connect:.4f} s")

# Nobody listens there any more: the system's own error, with a note for each address.
try:
    connect(("127.0.0.1", port), Deadline.after(2.0))
except ConnectionRefusedError as error:
    print(dial_report(error).outcome, error.__notes__)
