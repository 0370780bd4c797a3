"""A real server on the loopback interface that hands its text out byte by byte."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SETUP", "DripServer", "client_tls", "server_tls"]

# Seconds for what the demo does not measure: connecting, the handshake, a request.
SETUP = 5.0
# How soon a server that nobody has called sees that it is to close.
_LOOK = 0.05
# Certificate and key in one file, made for this demo: they protect nothing.
_CERTIFICATE = Path(__file__).with_name("localhost.pem")


def server_tls() -> ssl.SSLContext:
    """Return the TLS context of the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_CERTIFICATE)
    return context


def client_tls() -> ssl.SSLContext:
    """Return a client's TLS context that trusts that server and no other."""
    return ssl.create_default_context(cafile=_CERTIFICATE)


@final
class DripServer:
    """Serves one client: the head at once, then one byte of the text every `interval` seconds.

    A context manager: at its end the thread has returned and every socket is closed.

    Args:
        text: what to hand out.
        interval: seconds before each byte.
        head: what to send first, once the client has sent something.
        tls: the context, for a server that speaks TLS.
    """

    def __init__(
        self,
        text: bytes,
        interval: float,
        *,
        head: bytes = b"",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._text = text
        self._interval = interval
        self._head = head
        self._tls = tls
        self._hurry = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="drip server", daemon=True)

    def __enter__(self) -> DripServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_LOOK)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing = True
        self._hurry.set()
        self._thread.join()
        self._listener.close()

    @property
    def port(self) -> int:
        """The port at which it listens, on 127.0.0.1."""
        port: int = self._listener.getsockname()[1]
        return port

    def connect(self) -> socket.socket:
        """Return a client's blocking socket, connected to this server."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=SETUP)
        sock.settimeout(None)
        return sock

    def pour(self) -> None:
        """Hand out the rest without waiting."""
        self._hurry.set()

    def _run(self) -> None:
        # A client that goes before the end is no fault of the server.
        with contextlib.suppress(OSError), self._accept() as client:
            client.settimeout(SETUP)
            if self._tls is None:
                self._serve(client)
            else:
                with self._tls.wrap_socket(client, server_side=True) as secured:
                    self._serve(secured)

    def _accept(self) -> socket.socket:
        while not self._closing:
            with contextlib.suppress(TimeoutError):
                return self._listener.accept()[0]
        raise ConnectionAbortedError

    def _serve(self, client: socket.socket) -> None:
        if self._head:
            client.recv(65_536)
            client.sendall(self._head)
        for at in range(len(self._text)):
            self._hurry.wait(self._interval)
            if self._closing:
                return
            client.sendall(self._text[at : at + 1])
