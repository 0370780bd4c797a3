"""How a connection is made in a thread: lookup in a slot, addresses one by one, the handshake.

Rules (K2-K4, A10, A15-A17):
- A host that is a number is looked up without a thread: there is nothing to wait for.
- Connecting and shaking hands never block in the system: they are polled by the deadline's clock.
- What was opened is closed unless it is handed out; its mode then is a new socket's.

What must not live here: which address is tried for how long.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import TYPE_CHECKING, Any, final

from timebounds._settled import Raised, Returned
from timebounds.blocking.waiting import Wait
from timebounds.bounds.lookup import Question, nothing_found, resolve
from timebounds.policies.dialing import Dial, Lookup, Step
from timebounds.policies.plan import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext

    from timebounds.bounds.deadline import Deadline

    Address = tuple[str, int]


@final
class DialPort:
    """Carries out the steps of dialing; `sock` is what was made so far."""

    __slots__ = (
        "_address", "_context", "_hostname", "_resolver", "_side", "_source", "lookup", "sock",
    )  # fmt: skip

    lookup: Question[Any] | None
    sock: Any

    def __init__(
        self,
        address: Address | None,
        *,
        resolver: Callable[[str, int], Sequence[Any]] = resolve,
        source: Address | None = None,
        context: SSLContext | None = None,
        hostname: str | None = None,
        server_side: bool = False,
        sock: socket.socket | None = None,
    ) -> None:
        self._address = address
        self._resolver = resolver
        self._source = source
        self._context = context
        self._hostname = hostname
        self._side = server_side
        self.lookup = None
        self.sock = sock

    def perform(self, step: Step, deadline: Deadline) -> Returned[Any] | Raised | Reply:
        """Carry out one step within its limit."""
        try:
            if isinstance(step, Lookup):
                return self._look_up(deadline)
            do = self._dial if isinstance(step, Dial) else self._shake
            ready = do(step, deadline)
        except Exception as error:  # noqa: BLE001  (the plan decides what follows)
            return Raised(error)
        return Returned(None) if ready else Reply.SILENCE

    def close(self) -> None:
        """Close what was opened and is not wanted."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def _look_up(self, deadline: Deadline) -> Returned[Any] | Raised | Reply:
        assert self._address is not None
        self.lookup = question = Question(self._resolver, *self._address)
        answer = question.wait(deadline)
        if isinstance(answer, Returned) and not answer.value:
            return Raised(nothing_found(self._address[0]))
        return Reply.SILENCE if answer is None else answer

    def _dial(self, step: Any, deadline: Deadline) -> bool:
        family, kind, proto, _, address = step.endpoint
        self.sock = sock = socket.socket(family, kind, proto)
        connected = False
        try:
            sock.settimeout(0.0)
            if self._source is not None:
                sock.bind(self._source)
            connected = self._connect(sock, address, step, deadline)
        finally:
            if not connected:
                self.close()
        if connected:
            sock.settimeout(socket.getdefaulttimeout())
        return connected

    def _connect(self, sock: socket.socket, address: Any, step: Dial, deadline: Deadline) -> bool:
        failure = sock.connect_ex(address)
        if failure == errno.EINPROGRESS:
            # On a fast network it is there by now: asking once more is cheaper than to wait.
            failure = sock.connect_ex(address)
            if failure == errno.EALREADY:
                if not Wait(step, deadline).ready(sock.fileno(), select.POLLOUT):
                    return False
                failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure not in (0, errno.EISCONN):
            raise OSError(failure, os.strerror(failure))
        return True

    def _shake(self, step: Step, deadline: Deadline) -> bool:
        import ssl  # noqa: PLC0415  (whoever has a context has loaded it)

        assert self._context is not None
        timeout = self.sock.gettimeout()
        self.sock.settimeout(0.0)
        self.sock = sock = self._context.wrap_socket(
            self.sock,
            server_side=self._side,
            server_hostname=self._hostname,
            do_handshake_on_connect=False,
        )
        wait = Wait(step, deadline)
        while True:
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                events = select.POLLIN
            except ssl.SSLWantWriteError:
                events = select.POLLOUT
            else:
                sock.settimeout(timeout)
                return True
            if not wait.ready(sock.fileno(), events):
                return False
