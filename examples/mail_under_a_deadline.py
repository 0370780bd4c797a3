"""smtplib, imaplib and poplib: greeting, TLS, log-in and every message under one deadline.

Each of them makes its socket in one method, and that is all there is to change. What they do inside
`with bounding(deadline):` ends with that deadline. For STARTTLS give them a context that obeys too:
`smtp.starttls(context=bounded_tls(ssl.create_default_context()))`. Give smtplib a `local_hostname`:
without one it asks the resolver for its own, and nothing bounds that.
"""

import imaplib
import poplib
import smtplib
import time

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
    bounding,
    connect,
    current_deadline,
)
from timebounds.testing import DripServer


def dialed(host, port):
    """Connect under the deadline around, by a socket that goes on obeying it."""
    return DeadlineSocket(connect((host, port), current_deadline()).socket)


class BoundedSMTP(smtplib.SMTP):
    def _get_socket(self, host, port, timeout):
        return dialed(host, port)


class BoundedIMAP4(imaplib.IMAP4):
    def _create_socket(self, timeout):
        return dialed(self.host, self.port)

    def __exit__(self, *exc_info):
        try:
            super().__exit__(*exc_info)
        finally:
            if self.sock.fileno() >= 0:
                self.shutdown()  # imaplib itself leaves it open after a limit


class BoundedPOP3(poplib.POP3):
    file = sock = None

    def __init__(self, *args, **more):
        try:
            super().__init__(*args, **more)
        except BaseException:
            self.close()  # poplib itself leaves it open
            raise

    def _create_socket(self, timeout):
        return dialed(self.host, self.port)


if __name__ == "__main__":
    with DripServer(body=b"220 a greeting that takes its time\r\n", interval=0.1) as peer:
        host, port = peer.address
        for open_session in (
            lambda: BoundedSMTP(host, port, local_hostname="localhost"),
            lambda: BoundedIMAP4(host, port),
            lambda: BoundedPOP3(host, port),
        ):
            began = time.monotonic()
            try:
                with bounding(Deadline.after(0.3)):
                    open_session()
            except DeadlineExceeded as error:
                print(f"{time.monotonic() - began:.2f} s: {error}")
            else:
                raise AssertionError
