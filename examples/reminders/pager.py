"""The service that is paged, on the loopback interface: it makes each key visible once."""

from __future__ import annotations

import socket
import threading
from typing import Self

from sending import ACKNOWLEDGED


class Pager:
    """Takes a line for each alert and acknowledges it. `faults` makes it misbehave, in turn.

    A fault is "drop" (takes the alert and closes without an answer), "refuse" (closes at once) or
    "hang" (takes it, and answers when the client has gone).
    """

    def __init__(self, *faults: str) -> None:
        self.alerts: dict[str, str] = {}
        self.asked: list[str] = []
        self._faults = list(faults)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._server.getsockname()
        self._thread = threading.Thread(target=self._serve, name="pager")
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with client:
                client.settimeout(30)
                try:
                    self._talk(client)
                except OSError:
                    continue

    def _talk(self, client: socket.socket) -> None:
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "refuse":
            return
        with client.makefile("rb") as lines:
            line = lines.readline().decode()
            if not line.endswith("\n"):
                return
            key, text = line.rstrip("\n").split("\t", 1)
            self.asked.append(key)
            self.alerts.setdefault(key, text)
            if fault == "hang":
                lines.read()
            if fault != "drop":
                client.sendall(ACKNOWLEDGED)

    def close(self) -> None:
        """End it."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
