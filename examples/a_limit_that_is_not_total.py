"""The same drip, twice: http.client with timeout=0.2, then one deadline of 0.2 s."""

import http.client
import socket
import threading
from time import monotonic

from timebounds import BudgetedReceiver, Deadline, DeadlineExceeded

BODY, GAP = 20, 0.02
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BODY


def drip(listener):
    """Answer two requests, a byte of the body each 20 ms."""
    for _ in range(2):
        connection, _ = listener.accept()
        with connection:
            caller_has_left.clear()
            connection.recv(65536)
            connection.sendall(HEAD)
            for _ in range(BODY):
                if caller_has_left.wait(GAP):
                    break
                connection.sendall(b"x")


caller_has_left = threading.Event()
with socket.create_server(("127.0.0.1", 0)) as listener:
    server = threading.Thread(target=drip, args=(listener,))
    server.start()

    begin = monotonic()
    client = http.client.HTTPConnection(*listener.getsockname(), timeout=0.2)
    client.request("GET", "/")
    body = client.getresponse().read()
    client.close()
    print(f"http.client, timeout=0.2:  {monotonic() - begin:.2f} s, {len(body)} bytes, no error")
    assert monotonic() - begin > 0.2

    begin = monotonic()
    deadline = Deadline.after(0.2)
    with socket.create_connection(listener.getsockname(), deadline.timeout()) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        receiver = BudgetedReceiver(sock)
        try:
            receiver.receive_until(b"\r\n\r\n", 65536, deadline)
            receiver.receive_exactly(BODY, deadline)
        except DeadlineExceeded as error:
            print(f"Deadline.after(0.2):       {monotonic() - begin:.2f} s, {error.report}")
        caller_has_left.set()
    server.join()
