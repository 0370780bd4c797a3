"""W1, W3: http.client and urllib.request, each whole exchange under one deadline."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest
from http_peers import (
    BODY,
    BUDGET,
    HEAD,
    MODES,
    Server,
    Web,
    dripping,
    expiring,
    on_time,
    opening,
    stuck_lookup,
)
from lines import contexts
from peers import black_hole

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
    StopRequested,
    StopSignal,
    bounding,
    dial_report,
)
from timebounds.interop._dialing import dial, dial_unix, pause, run_out
from timebounds.interop.http_client import (
    DeadlineHTTPConnection,
    DeadlineHTTPHandler,
    DeadlineHTTPSConnection,
    DeadlineHTTPSHandler,
)
from timebounds.testing import DripServer, Misbehaviour

pytestmark = pytest.mark.real


@contextlib.contextmanager
def connection(url, **more):
    parts = urlsplit(url)
    if parts.scheme == "https":
        made = DeadlineHTTPSConnection(parts.hostname, parts.port, context=contexts()[0], **more)
    else:
        made = DeadlineHTTPConnection(parts.hostname, parts.port, **more)
    with contextlib.closing(made):
        yield made


def by_http_client(url, **more):
    with connection(url, **more) as conn:
        conn.request("GET", urlsplit(url).path)
        with conn.getresponse() as response:
            return response.read()


def opener(*more):
    return urllib.request.build_opener(
        DeadlineHTTPHandler(),
        DeadlineHTTPSHandler(context=contexts()[0]),
        urllib.request.ProxyHandler({}),
        *more,
    )


def by_urllib(url, **more):
    with opener().open(url, **more) as response:
        return response.read()


CLIENTS = {"http.client": by_http_client, "urllib.request": by_urllib}
each_client = pytest.mark.parametrize("ask", CLIENTS.values(), ids=CLIENTS)
each_layer = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@each_client
@each_layer
@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_drips_or_stalls_ends_with_the_budget(ask, tls, mode):
    """W3."""
    with dripping(mode, tls=tls) as url, expiring(match=r"recv: the deadline of 0\.5 s"):
        ask(url, timeout=BUDGET)


@each_client
@each_layer
def test_chunks_without_end_end_with_the_budget(ask, tls):
    """W3: a server that is quick, and never done."""
    with Web(tls=tls) as web, expiring():
        ask(web.url("/endless", host="localhost"))


@each_client
def test_the_client_itself_takes_it_for_a_timeout(ask):
    """W1: inside the block the client's own classes are raised, urllib's with the reason."""
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        bounding(Deadline.after(0.1)),
        pytest.raises(TimeoutError),
    ):
        ask(f"http://127.0.0.1:{peer.address[1]}/")


def test_leaving_the_block_raises_ours_from_the_clients_error():
    """W1: a URLError whose reason is the deadline."""
    with black_hole() as (host, port), expiring(0.3) as caught:
        by_urllib(f"http://{host}:{port}/")
    assert isinstance(caught.value.__cause__, urllib.error.URLError)
    assert dial_report(caught.value).phase == "connect"


@each_client
@each_layer
@pytest.mark.parametrize("bounded", [False, True])
def test_a_healthy_server_answers(ask, tls, bounded):
    with Web(tls=tls) as web, contextlib.ExitStack() as stack:
        if bounded:
            stack.enter_context(bounding(Deadline.after(30)))
        assert ask(web.url(host="localhost")) == b"fine"


@each_layer
def test_a_connection_is_kept_and_each_request_has_its_own_deadline(tls):
    """A08: a short limit of before does not end what has a long one, nor the reverse."""
    with Web(tls=tls) as web, connection(web.url(host="localhost")) as conn:

        def get(path, seconds):
            with bounding(Deadline.after(seconds)):
                conn.request("GET", path)
                return conn.getresponse().read()

        assert get("/", 0.4) == b"fine"
        with opening(web.gate, 0.6):
            assert get("/late", 30) == b"late"
        assert get("/", 0.4) == b"fine"
        conn.request("GET", "/")
        assert conn.getresponse().read() == b"fine"
        assert web.connections == 1
        web.gate.clear()
        with on_time(0.3), pytest.raises(DeadlineExceeded):
            get("/late", 0.3)


@each_client
def test_an_address_that_swallows_everything_is_bounded(ask):
    """K1."""
    with black_hole() as (host, port), expiring(0.3, match="in the connect"):
        ask(f"http://{host}:{port}/")


def test_a_healthy_address_behind_three_that_swallow_everything_is_reached(monkeypatch):
    """A13, A14: within the budget, which no one of them may eat."""
    with Web() as web, black_hole() as hole, monkeypatch.context() as patch:
        here = socket.getaddrinfo(*web.address, type=socket.SOCK_STREAM)[0]
        there = socket.getaddrinfo(*hole, type=socket.SOCK_STREAM)[0]

        def look_up(host, *args, flags=0, **kwargs):
            if flags & socket.AI_NUMERICHOST:
                raise socket.gaierror(socket.EAI_NONAME, "no number")
            return [there] * 3 + [here]

        patch.setattr(socket, "getaddrinfo", look_up)
        with bounding(Deadline.after(3)):
            assert by_http_client("http://many.test/") == b"fine"


@each_client
def test_a_lookup_that_never_ends_is_bounded(ask, monkeypatch):
    """K3, A15."""
    with stuck_lookup(monkeypatch) as url, expiring(0.3, match="in the lookup"):
        ask(url)


@each_client
def test_a_handshake_that_is_never_answered_is_bounded(ask):
    """A17."""
    with DripServer(Misbehaviour.SILENT) as peer, expiring(0.3, match="TLS handshake"):
        ask(f"https://localhost:{peer.address[1]}/")


@each_client
def test_a_stop_ends_it_too(ask):
    """D9: while it reads."""
    stop = StopSignal()
    timer = threading.Timer(0.1, stop.request, ("enough",))
    with DripServer(Misbehaviour.SILENT) as peer, pytest.raises(StopRequested, match="enough"):
        timer.start()
        with bounding(Deadline.after(30, stop=stop)):
            ask(f"http://127.0.0.1:{peer.address[1]}/")
    timer.join()


@pytest.mark.parametrize("door", ["http.client", "urllib.request"])
def test_a_body_that_is_read_later_keeps_the_deadline_of_its_request(door):
    """A87."""
    with dripping(Misbehaviour.DRIP_BODY) as url, on_time(), contextlib.ExitStack() as stack:
        with bounding(Deadline.after(BUDGET)):
            if door == "http.client":
                conn = stack.enter_context(connection(url))
                conn.request("GET", "/")
                response = stack.enter_context(conn.getresponse())
            else:
                response = stack.enter_context(opener().open(url))
        assert response.status == 200
        with pytest.raises(DeadlineExceeded):
            response.read()


# ---------------------------------------------------------------- what is used again


def test_a_connection_that_a_bound_has_struck_is_opened_anew():
    """W1: no answer is ever taken for that to another request."""
    with Web() as web, connection(web.url()) as conn:
        with pytest.raises(DeadlineExceeded), bounding(Deadline.after(0.1)):
            conn.request("GET", "/late")
            conn.getresponse()
        web.gate.set()
        conn.request("GET", "/")
        assert conn.getresponse().read() == b"fine"
        assert web.connections == 2


def test_an_answer_that_was_left_early_takes_its_connection_along():
    """W1: its rest is no head of the next answer."""
    with Web() as web, connection(web.url()) as conn:
        with pytest.raises(DeadlineExceeded), bounding(Deadline.after(0.1)):
            conn.request("GET", "/slow")
            with conn.getresponse() as response:
                response.read()
        web.gate.set()
        conn.request("GET", "/")
        assert conn.getresponse().read() == b"fine"
        assert web.connections == 2


def test_an_answer_without_a_body_need_not_be_read():
    with Web() as web, connection(web.url()) as conn:
        conn.request("GET", "/moved")
        conn.getresponse().close()
        conn.request("GET", "/")
        assert conn.getresponse().read() == b"fine"
        assert web.connections == 1


def test_a_request_of_which_a_part_was_sent_takes_its_connection_along():
    """S1: the peer takes nothing for a while."""
    with Web() as web, connection(web.url()) as conn:
        with pytest.raises(DeadlineExceeded), bounding(Deadline.after(0.1)):
            conn.request("GET", "/late")
            conn.send(bytes(50_000_000))
        assert conn.sock is None
        web.gate.set()
        conn.request("POST", "/", body=b"x" * 10)
        assert conn.getresponse().read() == b"fine"


def test_an_answer_can_be_read_on_where_more_time_is_given():
    """W2."""
    with Web() as web, connection(web.url()) as conn:
        with bounding(Deadline.after(0.1)):
            conn.request("GET", "/slow")
            response = conn.getresponse()
        with pytest.raises(DeadlineExceeded):
            response.read()
        web.gate.set()
        conn.sock.deadline = Deadline.after(30)
        assert response.read() == b"ab"


# ---------------------------------------------------------------- a fixed deadline, own timeouts


@each_layer
def test_a_connection_may_have_a_deadline_of_its_own(tls):
    """W1: which can be set anew for a request; the blocks around do not matter then."""
    with Web(tls=tls) as web:
        url = web.url(host="localhost")
        with connection(url, deadline=Deadline.after(0.3)) as conn:
            assert conn.deadline.remaining() > 0
            conn.request("GET", "/late")
            with pytest.raises(DeadlineExceeded):
                conn.getresponse()
            conn.deadline = Deadline.after(30)
            conn.request("GET", "/")
            with bounding(Deadline.after(0)):
                assert conn.getresponse().read() == b"fine"
            conn.deadline = Deadline.after(0)
            with pytest.raises(DeadlineExceeded):
                conn.request("GET", "/")


def test_what_has_expired_connects_to_nothing():
    """D7."""
    with Web() as web:
        with pytest.raises(DeadlineExceeded), bounding(Deadline.after(0)):
            by_http_client(web.url())
        assert web.connections == 0


@each_client
@pytest.mark.parametrize("bounded", [False, True])
def test_the_clients_own_timeout_is_a_limit_within_and_no_deadline(ask, bounded):
    """W1: of connecting and of a read."""
    with black_hole() as (host, port), contextlib.ExitStack() as stack:
        if bounded:
            stack.enter_context(bounding(Deadline.after(30)))
        with on_time(0.2), pytest.raises(OSError, match="timed out") as caught:
            ask(f"http://{host}:{port}/", timeout=0.2)
        assert not isinstance(caught.value, DeadlineExceeded)
        with (
            DripServer(Misbehaviour.SILENT) as peer,
            on_time(0.2),
            pytest.raises(TimeoutError, match="timed out"),
        ):
            ask(f"http://127.0.0.1:{peer.address[1]}/", timeout=0.2)


def test_the_timeout_of_new_sockets_holds_where_none_is_given():
    socket.setdefaulttimeout(0.2)
    try:
        with DripServer(Misbehaviour.SILENT) as peer, on_time(0.2), pytest.raises(TimeoutError):
            by_http_client(f"http://127.0.0.1:{peer.address[1]}/")
    finally:
        socket.setdefaulttimeout(None)


@pytest.mark.parametrize("source", [("127.0.0.1", 0), ("", 0)])
def test_a_connection_comes_from_where_it_is_told(source):
    with Web() as web:
        assert by_http_client(web.url(), source_address=source) == b"fine"


# ---------------------------------------------------------------- proxies


def tunnel(port, to, tls):
    kind = DeadlineHTTPSConnection if tls else DeadlineHTTPConnection
    more = {"context": contexts()[0]} if tls else {}
    conn = kind("127.0.0.1", port, **more)
    conn.set_tunnel("localhost", to)
    return contextlib.closing(conn)


@each_layer
def test_a_tunnel_leads_to_the_server(tls):
    with Web() as proxy, Web(tls=tls) as web, tunnel(proxy.port, web.port, tls) as conn:
        with bounding(Deadline.after(30)):
            conn.request("GET", "/")
            assert conn.getresponse().read() == b"fine"
        assert proxy.requests == [f"CONNECT localhost:{web.port}"]


@pytest.mark.parametrize("mode", [Misbehaviour.DRIP_HEADER, Misbehaviour.SILENT])
def test_a_proxy_that_does_not_open_its_tunnel_is_bounded(mode):
    """W3: and no half of a connection stays behind."""
    head = b"HTTP/1.1 200 a tunnel, soon\r\n\r\n"
    with (
        DripServer(mode, head=head, interval=0.1) as peer,
        tunnel(peer.address[1], 443, tls=True) as conn,
    ):
        with expiring():
            conn.request("GET", "/")
        assert conn.sock is None


def test_a_server_behind_a_tunnel_is_bounded():
    """W3: its handshake."""
    with (
        Web() as proxy,
        DripServer(Misbehaviour.SILENT) as peer,
        tunnel(proxy.port, peer.address[1], tls=True) as conn,
        expiring(match="handshake"),
    ):
        conn.request("GET", "/")


def test_urllib_goes_through_a_proxy_and_follows_under_the_same_deadline():
    with Web() as web:
        proxies = {"http": f"127.0.0.1:{web.port}"}
        through = urllib.request.build_opener(
            DeadlineHTTPHandler(), urllib.request.ProxyHandler(proxies)
        )
        with bounding(Deadline.after(30)), through.open("http://example.test/moved") as response:
            assert response.read() == b"fine"
        assert web.requests[0] == "GET http://example.test/moved"
        assert len(web.requests) == 2


def test_a_certificate_that_is_not_trusted_is_no_deadline():
    with (
        Web(tls=True) as web,
        contextlib.closing(DeadlineHTTPSConnection("localhost", web.port)) as conn,
        bounding(Deadline.after(30)),
        pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        conn.request("GET", "/")


def test_https_has_a_default_context_and_debugging_as_ever():
    handler = DeadlineHTTPSHandler()
    conn = DeadlineHTTPSConnection("localhost")
    assert isinstance(handler, urllib.request.HTTPSHandler)
    assert (conn.port, conn.timeout, conn.deadline) == (443, None, None)
    assert isinstance(conn, http.client.HTTPSConnection)


# ---------------------------------------------------------------- the mechanism


def test_a_socket_that_can_not_be_fitted_is_closed():
    """K4."""
    with Server(lambda sock: sock.recv(1)) as server, pytest.raises(OSError, match="not available"):
        dial(server.address, options=[(socket.SOL_SOCKET, -1, 1)])


def test_a_dialed_socket_has_its_timeout_and_its_options():
    """K4."""
    nodelay = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with (
        Server(lambda sock: sock.recv(1)) as server,
        dial(server.address, timeout=7, options=[nodelay]) as sock,
    ):
        assert isinstance(sock, DeadlineSocket)
        assert sock.gettimeout() == 7
        assert sock.getsockopt(*nodelay[:2])


def test_a_timeout_that_is_said_again_holds_whatever_was_said_between():
    """R9: pools say it before each request."""
    with Server(lambda sock: sock.recv(1)) as server, dial(server.address, timeout=0.2) as sock:
        for between in (lambda: None, lambda: sock.setblocking(True), lambda: sock.settimeout(0)):
            between()
            sock.settimeout(0.2)
            assert (sock.gettimeout(), sock.getblocking()) == (0.2, True)
            with on_time(0.2), pytest.raises(TimeoutError):
                sock.recv(1)


@contextlib.contextmanager
def unix_server(folder, backlog):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        server.listen(backlog)
        yield server, str(folder / "socket")


def take_one(server):
    server.accept()[0].close()


def test_a_unix_socket_is_connected_and_bounded(tmp_path):
    with unix_server(tmp_path, 0) as (server, path), dial_unix(path, timeout=5) as sock:
        assert sock.gettimeout() == 5
        # The queue is full: the next one waits.
        with expiring(0.2, match="connect to"):
            dial_unix(path, timeout=5)
        with on_time(0.2), pytest.raises(TimeoutError, match=r"timed out after 0\.2 s"):
            dial_unix(path, timeout=0.2)
        room = threading.Timer(0.1, take_one, (server,))
        room.start()
        with bounding(Deadline.after(30)):
            dial_unix(path).close()
        room.join()
    with pytest.raises(FileNotFoundError):
        dial_unix(str(tmp_path / "nothing"))


def test_a_pause_ends_with_the_deadline():
    with on_time(0.1), bounding(Deadline.after(0.1)):
        pause(30)
    with on_time(0.1):
        pause(0.1)


def test_who_has_waited_in_vain_is_told_why():
    with on_time(0.1), pytest.raises(DeadlineExceeded, match="a place: the deadline"):
        run_out(Deadline.after(0.1), "a place")


def test_the_whole_body_of_a_dripping_server_arrives_where_time_is_given():
    with (
        DripServer(Misbehaviour.DRIP_BODY, head=HEAD, body=BODY, interval=0.002) as peer,
        bounding(Deadline.after(30)),
    ):
        assert by_http_client(f"http://127.0.0.1:{peer.address[1]}/") == BODY
