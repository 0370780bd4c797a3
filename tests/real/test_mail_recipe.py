"""W1: the recipe for smtplib, imaplib and poplib, with servers that are well and that are not."""

from __future__ import annotations

import runpy
import threading
from types import SimpleNamespace

import pytest
from http_peers import Server, expiring
from lines import contexts
from peers import black_hole

from children import ROOT
from timebounds import Deadline, bounded_tls, bounding
from timebounds.testing import DripServer, Misbehaviour

pytestmark = pytest.mark.real

RECIPE = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "mail_under_a_deadline.py")))


def smtp(host, port):
    return RECIPE.BoundedSMTP(host, port, local_hostname="localhost")


SESSIONS = {"smtplib": smtp, "imaplib": RECIPE.BoundedIMAP4, "poplib": RECIPE.BoundedPOP3}
each_session = pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
GREETINGS = {"smtplib": b"220 mail", "imaplib": b"* OK mail", "poplib": b"+OK mail"}


class Mail(Server):
    """Answers each line as the script says, by its last word that the script knows; TLS on demand.

    An answer of None is never given.
    """

    def __init__(self, greeting, script, *, tls_after=None):
        super().__init__(self._talk)
        self._greeting = greeting
        self._script = script
        self._tls_after = tls_after
        self._ended = threading.Event()

    def __exit__(self, *exc_info):
        self._ended.set()
        super().__exit__(*exc_info)

    def _talk(self, sock):
        sock.sendall(self._greeting + b"\r\n")
        held = b""
        try:
            while data := sock.recv(4096):
                held += data
                while b"\r\n" in held:
                    line, _, held = held.partition(b"\r\n")
                    sock = self._answer(sock, line.split(b" "))
        finally:
            # By now it may be another one than was given.
            sock.close()

    def _answer(self, sock, words):
        tag = words[0]
        for word in words:
            if word not in self._script:
                continue
            said = self._script[word]
            if said is None:
                self._ended.wait(30)
                return sock
            sock.sendall(said.replace(b"TAG", tag) + b"\r\n")
            if word == self._tls_after:
                return contexts()[1].wrap_socket(sock, server_side=True)
        return sock


SMTP = {
    b"ehlo": b"250-mail\r\n250 STARTTLS",
    b"STARTTLS": b"220 go on",
    b"MAIL": None,
    b"mail": b"250 ok",
    b"rcpt": b"250 ok",
    b"data": b"354 go on",
    b".": b"250 taken",
    b"QUIT": b"221 bye",
}
IMAP = {
    b"CAPABILITY": b"* CAPABILITY IMAP4REV1 STARTTLS\r\nTAG OK done",
    b"STARTTLS": b"TAG OK go on",
    b"NOOP": b"TAG OK done",
    b"LOGIN": None,
    b"LOGOUT": b"* BYE\r\nTAG OK done",
}
POP3 = {
    b"CAPA": b"+OK\r\nSTLS\r\n.",
    b"STLS": b"+OK go on",
    b"STAT": b"+OK 2 320",
    b"USER": None,
    b"QUIT": b"+OK bye",
}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_message_is_sent(tls):
    with (
        Mail(GREETINGS["smtplib"], SMTP, tls_after=b"STARTTLS") as server,
        bounding(Deadline.after(30)),
        smtp("localhost", server.port) as session,
    ):
        if tls:
            session.starttls(context=bounded_tls(contexts()[0]))
        assert session.sendmail("a@localhost", ["b@localhost"], "Hello") == {}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_mail_is_read(tls):
    with (
        Mail(GREETINGS["imaplib"], IMAP, tls_after=b"STARTTLS") as server,
        bounding(Deadline.after(30)),
        RECIPE.BoundedIMAP4("localhost", server.port) as session,
    ):
        if tls:
            session.starttls(bounded_tls(contexts()[0]))
        assert session.noop()[0] == "OK"
    with (
        Mail(GREETINGS["poplib"], POP3, tls_after=b"STLS") as server,
        bounding(Deadline.after(30)),
    ):
        session = RECIPE.BoundedPOP3("localhost", server.port)
        if tls:
            session.stls(bounded_tls(contexts()[0]))
        assert session.stat() == (2, 320)
        session.quit()


@each_session
def test_a_greeting_that_drips_ends_with_the_budget(session):
    """W3."""
    with DripServer(body=b"220 +OK a greeting of many bytes\r\n", interval=0.1) as peer, expiring():
        session(*peer.address)


@each_session
def test_a_greeting_that_never_comes_and_a_connection_that_is_never_made_are_bounded(session):
    """W3, K1."""
    with DripServer(Misbehaviour.SILENT) as peer, expiring(0.3):
        session(*peer.address)
    with black_hole() as address, expiring(0.3, match="in the connect"):
        session(*address)


def test_an_answer_that_never_comes_is_bounded():
    """W3: in the middle of a session."""
    with (
        Mail(GREETINGS["smtplib"], {**SMTP, b"mail": None}) as server,
        expiring(0.3),
        smtp("localhost", server.port) as session,
    ):
        session.sendmail("a@localhost", ["b@localhost"], "Hello")
    with (
        Mail(GREETINGS["imaplib"], IMAP) as server,
        expiring(0.3),
        RECIPE.BoundedIMAP4("localhost", server.port) as session,
    ):
        session.login("a", "b")
    with Mail(GREETINGS["poplib"], POP3) as server:
        with expiring(0.3):
            session = RECIPE.BoundedPOP3("localhost", server.port)
            session.user("a")
        session.close()


def test_a_handshake_that_never_comes_is_bounded():
    """A17: the server says go on, and then nothing."""
    with (
        Mail(GREETINGS["smtplib"], SMTP) as server,
        expiring(0.3, match="TLS handshake"),
        smtp("localhost", server.port) as session,
    ):
        session.starttls(context=bounded_tls(contexts()[0]))
