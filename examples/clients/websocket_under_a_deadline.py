"""websocket-client: connecting, the upgrade and every message under one deadline.

    python websocket_under_a_deadline.py ws://127.0.0.1:8765/

It takes a socket that is connected. For `wss:` that one must have TLS already.
"""

import ssl
import sys
from urllib.parse import urlsplit

import websocket

from timebounds import Deadline, DeadlineSocket, bounding, connect, current_deadline


def bounded_websocket(url, context=None):
    """Connect under the deadline around, by a socket that goes on obeying it."""
    parts = urlsplit(url)
    secure = parts.scheme == "wss"
    tls = (context or ssl.create_default_context()) if secure else None
    port = parts.port or (443 if secure else 80)
    sock = connect((parts.hostname, port), current_deadline(), tls=tls).socket
    return websocket.create_connection(url, socket=DeadlineSocket(sock))


if __name__ == "__main__":
    with bounding(Deadline.after(2)):
        ws = bounded_websocket(sys.argv[1])
        ws.send("hello")
        print(ws.recv())
        ws.close()
