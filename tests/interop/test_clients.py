"""W1, W3: urllib3, requests and httpx, each whole exchange under one deadline; async clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from http_peers import (
    BUDGET,
    MODES,
    Server,
    Web,
    answer,
    dripping,
    expiring,
    on_time,
    opening,
    relay,
    settled,
    stuck_lookup,
)
from lines import CERTIFICATE, contexts
from peers import black_hole

from timebounds import (
    Deadline,
    DeadlineExceeded,
    StopRequested,
    StopSignal,
    bounding,
    dial_report,
    enforcing,
)
from timebounds.testing import DripServer, Misbehaviour

pytest.importorskip("httpx", reason="no clients here: `run.py interop` has them")

import httpcore
import httpx
import requests
import urllib3

from timebounds.interop.httpx import DeadlineTransport
from timebounds.interop.requests import DeadlineAdapter
from timebounds.interop.urllib3 import (
    DeadlinePoolManager,
    DeadlineProxyManager,
    bounded_pools,
)

pytestmark = pytest.mark.real

NAMED = str(CERTIFICATE)


class Client(contextlib.ExitStack):
    """A client with its pool: `get(url)` returns the body, `stream(url)` what reads it later."""

    # What lets it try once.
    once: ClassVar = {}


class ByUrllib3(Client):
    errors = urllib3.exceptions.HTTPError
    once: ClassVar = {"retries": urllib3.Retry(connect=0, read=False)}

    def __init__(self, proxy=None, timeout=None, **more):
        super().__init__()
        more = {"ca_certs": NAMED, "timeout": timeout, **more}
        if proxy is None:
            manager = DeadlinePoolManager(**more)
        else:
            manager = DeadlineProxyManager(proxy, **more)
        self.manager = self.enter_context(manager)
        self.callback(self.close_pools)

    def close_pools(self):
        """Close them now: a record that was logged may hold an error, and that a pool."""
        keys = self.manager.pools.keys()
        for key in keys:
            self.manager.pools[key].close()

    def get(self, url):
        return self.manager.request("GET", url).data

    def post(self, url, body):
        self.manager.request("POST", url, body=body)

    def stream(self, url):
        response = self.manager.request("GET", url, preload_content=False)
        self.callback(response.close)
        return response.read


class ByRequests(Client):
    errors = requests.RequestException

    def __init__(self, proxy=None, timeout=None, retries=0):
        super().__init__()
        self.timeout = timeout
        self.session = self.enter_context(requests.Session())
        self.session.trust_env = False
        self.session.verify = NAMED
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, DeadlineAdapter(max_retries=retries))
        if proxy is not None:
            self.session.proxies = {"http": proxy, "https": proxy}

    def get(self, url):
        return self.session.get(url, timeout=self.timeout).content

    def post(self, url, body):
        self.session.post(url, data=body)

    def stream(self, url):
        response = self.session.get(url, timeout=self.timeout, stream=True)
        self.callback(response.close)
        return lambda: response.content


class ByHttpx(Client):
    errors = httpx.HTTPError

    def __init__(self, proxy=None, timeout=None, **more):
        super().__init__()
        if proxy is not None and proxy.startswith("https"):
            proxy = httpx.Proxy(proxy, ssl_context=contexts()[0])
        transport = DeadlineTransport(contexts()[0], proxy=proxy, **more)
        self.client = httpx.Client(transport=transport, timeout=timeout, follow_redirects=True)
        self.enter_context(self.client)

    def get(self, url):
        return self.client.get(url).content

    def post(self, url, body):
        self.client.post(url, content=body)

    def stream(self, url):
        response = self.enter_context(self.client.stream("GET", url))
        return response.read


CLIENTS = {"urllib3": ByUrllib3, "requests": ByRequests, "httpx": ByHttpx}
each_client = pytest.mark.parametrize("by", CLIENTS.values(), ids=CLIENTS)
each_layer = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@each_client
@each_layer
@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_drips_or_stalls_ends_with_the_budget(by, tls, mode):
    """W3: whatever the client calls it, what leaves the block is ours, from that."""
    with (
        dripping(mode, tls=tls) as url,
        by(timeout=BUDGET) as client,
        expiring() as caught,
    ):
        client.get(url)
    assert isinstance(caught.value.__cause__, by.errors)


@each_client
@each_layer
def test_chunks_without_end_end_with_the_budget(by, tls):
    """W3: a server that is quick, and never done; with urllib3's own retries, which are on."""
    with Web(tls=tls) as web, by() as client, expiring():
        client.get(web.url("/endless", host="localhost"))


@each_client
def test_threads_that_share_a_client_have_each_its_own_deadline(by):
    """A08, W1: nobody ends early or late because of another, and no answer goes astray."""
    told = []

    def patient(client, url):
        for _ in range(20):
            with bounding(Deadline.after(30)):
                told.append(client.get(url))

    def hasty(client, url):
        for _ in range(3):
            began = time.monotonic()
            try:
                with bounding(Deadline.after(0.2)):
                    client.get(url)
            except DeadlineExceeded:
                told.append(0.2 <= time.monotonic() - began < 0.2 + 0.75)

    with Web() as web, by() as client:
        jobs = [(patient, "/"), (hasty, "/late"), (hasty, "/slow")] * 2
        threads = [threading.Thread(target=job, args=(client, web.url(path))) for job, path in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
    assert sorted(told, key=str) == [True] * 12 + [b"fine"] * 40


@each_client
def test_the_client_itself_takes_it_for_a_timeout(by):
    """W1: inside the block, as it does without us."""
    timeouts = {
        ByUrllib3: urllib3.exceptions.TimeoutError,
        ByRequests: requests.Timeout,
        ByHttpx: httpx.TimeoutException,
    }
    with DripServer(Misbehaviour.SILENT) as peer, by() as client, black_hole() as (host, port):
        for url in (f"http://127.0.0.1:{peer.address[1]}/", f"http://{host}:{port}/"):
            with bounding(Deadline.after(0.2)), pytest.raises(by.errors) as caught:
                client.get(url)
            # urllib3 has a class of its own where retries were allowed.
            told = getattr(caught.value, "reason", caught.value)
            assert isinstance(told, timeouts[by])


@each_client
@each_layer
@pytest.mark.parametrize("bounded", [False, True])
def test_a_healthy_server_answers(by, tls, bounded):
    with Web(tls=tls) as web, by() as client, contextlib.ExitStack() as stack:
        if bounded:
            stack.enter_context(bounding(Deadline.after(30)))
        for path in ("/", "/moved", "/"):
            assert client.get(web.url(path, host="localhost")) == b"fine"
        assert web.connections == 1


@each_client
@each_layer
def test_a_pooled_connection_obeys_the_deadline_of_each_request(by, tls):
    """A08: a short limit of before does not end what has a long one, nor the reverse."""
    with Web(tls=tls) as web, by() as client:

        def get(path, seconds):
            with bounding(Deadline.after(seconds)):
                return client.get(web.url(path, host="localhost"))

        assert get("/", 0.4) == b"fine"
        with opening(web.gate, 0.6):
            assert get("/late", 30) == b"late"
        assert get("/", 0.4) == b"fine"
        assert client.get(web.url(host="localhost")) == b"fine"
        assert web.connections == 1
        web.gate.clear()
        with on_time(0.3), pytest.raises(DeadlineExceeded):
            get("/late", 0.3)
        # What it struck is not used again.
        web.gate.set()
        assert get("/", 30) == b"fine"
        assert web.connections == 2


@each_client
def test_an_address_that_swallows_everything_is_bounded(by):
    """K1: the evidence is there too."""
    with (
        black_hole() as (host, port),
        by() as client,
        expiring(0.3, match="in the connect") as caught,
    ):
        client.get(f"http://{host}:{port}/")
    assert dial_report(caught.value).attempts[0].ended == "expired"


@each_client
def test_a_lookup_that_never_ends_is_bounded(by, monkeypatch):
    """K3, A15."""
    with stuck_lookup(monkeypatch) as url, by() as client, expiring(0.3, match="in the lookup"):
        client.get(url)


@each_client
def test_a_name_without_an_address_is_told_as_ever(by):
    with by(**by.once) as client, bounding(Deadline.after(30)), pytest.raises(by.errors):
        client.get("http://nothing.invalid/")


@each_client
def test_a_port_where_nobody_listens_is_told_as_ever(by):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with by() as client, bounding(Deadline.after(30)), pytest.raises(by.errors, match="refused"):
        client.get(f"http://127.0.0.1:{port}/")


@each_client
def test_a_handshake_that_is_never_answered_is_bounded(by):
    """A17."""
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        by() as client,
        expiring(0.3, match="TLS handshake"),
    ):
        client.get(f"https://localhost:{peer.address[1]}/")


@each_client
def test_a_certificate_that_is_not_trusted_is_no_deadline(by):
    with (
        Web(tls=True) as web,
        by(**by.once) as client,
        bounding(Deadline.after(30)),
        pytest.raises(by.errors, match="mismatch"),
    ):
        # The same loopback in other words, which the certificate does not name.
        client.get(web.url(host="127.1"))


@each_client
def test_a_stop_ends_it_too(by):
    """D9: while it reads."""
    stop = StopSignal()
    timer = threading.Timer(0.1, stop.request, ("enough",))
    with DripServer(Misbehaviour.SILENT) as peer, by() as client:
        timer.start()
        with (
            pytest.raises(StopRequested, match="enough"),
            bounding(Deadline.after(30, stop=stop)),
        ):
            client.get(f"http://127.0.0.1:{peer.address[1]}/")
    timer.join()


@each_client
def test_a_body_that_is_read_later_keeps_the_deadline_of_its_request(by):
    """A87."""
    with dripping(Misbehaviour.DRIP_BODY) as url, by() as client, on_time():
        with bounding(Deadline.after(BUDGET)):
            read = client.stream(url)
        with pytest.raises(by.errors) as caught:
            read()
        cause = caught.value
        while cause.__cause__ or cause.__context__:
            cause = cause.__cause__ or cause.__context__
        assert isinstance(cause, DeadlineExceeded)


@each_client
@pytest.mark.parametrize("bounded", [False, True])
def test_the_clients_own_timeout_is_a_limit_within_and_no_deadline(by, bounded):
    """W1: of connecting and of a read."""
    with (
        black_hole() as (host, port),
        by(timeout=0.2, **by.once) as client,
        DripServer(Misbehaviour.SILENT) as peer,
        contextlib.ExitStack() as stack,
    ):
        if bounded:
            stack.enter_context(bounding(Deadline.after(30)))
        for url in (f"http://{host}:{port}/", f"http://127.0.0.1:{peer.address[1]}/"):
            with on_time(0.2), pytest.raises(by.errors, match="timed out"):
                client.get(url)


# ---------------------------------------------------------------- proxies


@each_client
@each_layer
def test_a_proxy_leads_to_the_server(by, tls):
    with Web() as proxy, Web(tls=tls) as web, by(proxy=proxy.url("")) as client:
        with bounding(Deadline.after(30)):
            assert client.get(web.url(host="localhost")) == b"fine"
        method = "CONNECT" if tls else "GET"
        assert proxy.requests[0].startswith(method)


# requests looks at no certificate of a proxy for a plain URL.
@pytest.mark.filterwarnings("ignore:Unverified HTTPS")
@each_client
@each_layer
def test_a_proxy_behind_tls_leads_to_the_server(by, tls):
    """W1: TLS within TLS where the server has it too, with several requests."""
    with (
        Web(tls=True) as proxy,
        Web(tls=tls) as web,
        by(proxy=proxy.url("", host="localhost")) as client,
    ):
        for _ in range(2):
            with bounding(Deadline.after(30)):
                assert client.get(web.url(host="localhost")) == b"fine"
        with expiring(0.3, match="recv"):
            client.get(web.url("/late", host="localhost"))


@each_client
@pytest.mark.parametrize("mode", [Misbehaviour.DRIP_HEADER, Misbehaviour.SILENT])
def test_a_proxy_that_does_not_open_its_tunnel_is_bounded(by, mode):
    """W3."""
    head = b"HTTP/1.1 200 a tunnel, soon\r\n\r\n"
    with (
        DripServer(mode, head=head, interval=0.1) as peer,
        by(proxy=f"http://127.0.0.1:{peer.address[1]}") as client,
        expiring(),
    ):
        client.get("https://localhost/")


@each_client
@each_layer
def test_a_proxy_that_does_not_shake_hands_is_bounded(by, tls):
    """A17: for a tunnel, and where it is to forward."""
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        by(proxy=f"https://localhost:{peer.address[1]}") as client,
        expiring(match="TLS handshake"),
    ):
        client.get(f"http{'s' * tls}://localhost/")


@each_client
@pytest.mark.parametrize("secure", [False, True])
def test_a_server_behind_a_tunnel_is_bounded(by, secure):
    """W3: its handshake, within TLS too."""
    with (
        Web(tls=secure) as proxy,
        DripServer(Misbehaviour.SILENT) as peer,
        by(proxy=proxy.url("", host="localhost")) as client,
        expiring(),
    ):
        client.get(f"https://localhost:{peer.address[1]}/")


# ---------------------------------------------------------------- retries, pools


@pytest.mark.parametrize("by", [ByUrllib3, ByRequests])
def test_retries_and_their_waiting_end_with_the_deadline(by):
    """W3, A27: neither Retry-After nor a backoff outlives it."""
    patient = urllib3.Retry(5, backoff_factor=20, status_forcelist=[503])
    with Web() as web, by(retries=patient) as client:
        with expiring():
            client.get(web.url("/busy"))
        assert len(web.requests) == 1
    with DripServer(Misbehaviour.SILENT) as peer, by(retries=patient) as client, expiring(0.3):
        client.get(f"http://127.0.0.1:{peer.address[1]}/")


def test_a_wait_for_a_redirection_ends_with_the_deadline():
    """W3: which a pool follows by itself."""

    def talk(sock):
        sock.recv(65_536)
        sock.sendall(answer(b"", "302 Moved", "Location: /", "Retry-After: 30"))
        sock.recv(65_536)

    with Server(talk) as server, ByUrllib3(retries=urllib3.Retry(3)) as client:
        pool = client.manager.connection_from_host("127.0.0.1", server.port)
        with expiring(0.3):
            pool.urlopen("GET", "/")


def test_without_a_bound_retries_are_urllib3s_own():
    with Web() as web, ByUrllib3(retries=urllib3.Retry(1, status_forcelist=[503])) as client:
        client.manager.connection_pool_kw["retries"] = None
        with bounding(Deadline.after(30)):
            assert client.manager.request("GET", web.url()).data == b"fine"
        assert type(client.manager.request("GET", web.url()).retries) is urllib3.Retry


class Counting(urllib3.Retry):
    """Retries of one's own class, as many have them."""

    asked = 0

    def increment(self, *args, **kwargs):
        type(self).asked += 1
        return super().increment(*args, **kwargs)


def test_retries_of_a_class_of_their_own_stay_what_they_are():
    """W1: two errors within the deadline, and then the answer."""
    failing = [True, True]

    def talk(sock):
        sock.recv(65_536)
        if failing:
            failing.pop()
        else:
            sock.sendall(answer(b"third"))
            sock.recv(1)

    with (
        Server(talk) as server,
        ByUrllib3(retries=Counting(5)) as client,
        bounding(Deadline.after(30)),
    ):
        response = client.manager.request("GET", f"http://127.0.0.1:{server.port}/")
    assert response.data == b"third"
    assert isinstance(response.retries, Counting)
    assert len(response.retries.history) == 2


def test_retries_that_are_off_stay_off():
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        ByUrllib3(retries=False) as client,
        expiring(0.2) as caught,
    ):
        client.get(f"http://127.0.0.1:{peer.address[1]}/")
    assert isinstance(caught.value.__cause__, urllib3.exceptions.ReadTimeoutError)


@contextlib.contextmanager
def full_pool(by):
    """A client whose pool has one connection, which is in use; give it and a URL."""
    more = {
        ByUrllib3: {"maxsize": 1, "block": True},
        ByHttpx: {"limits": httpx.Limits(max_connections=1)},
    }
    with Web() as web, by(**more[by]) as client:
        client.stream(web.url("/slow"))
        yield client, web.url()


@pytest.mark.parametrize("by", [ByUrllib3, ByHttpx])
def test_waiting_for_a_place_in_the_pool_is_bounded(by):
    """W1."""
    with full_pool(by) as (client, url), expiring(0.3, match="connection of the pool"):
        client.get(url)


def test_the_clients_own_limit_of_that_wait_holds_within():
    with full_pool(ByUrllib3) as (client, url), bounding(Deadline.after(30)):
        pool = client.manager.connection_from_url(url)
        with on_time(0.2), pytest.raises(urllib3.exceptions.EmptyPoolError):
            pool.urlopen("GET", "/", pool_timeout=0.2)
        with bounding(Deadline.never()), pytest.raises(urllib3.exceptions.EmptyPoolError):
            pool.urlopen("GET", "/", pool_timeout=0.2)
    with (
        full_pool(ByHttpx) as (client, url),
        bounding(Deadline.after(30)),
        on_time(0.2),
        pytest.raises(httpx.PoolTimeout),
    ):
        client.client.get(url, timeout=httpx.Timeout(30, pool=0.2))


@pytest.mark.parametrize("by", [ByUrllib3, ByHttpx])
def test_a_deadline_that_never_comes_bounds_no_wait_for_a_place(by):
    more = {ByUrllib3: {"block": True}, ByHttpx: {}}[by]
    with Web() as web, by(**more) as client, bounding(Deadline.never()):
        assert client.get(web.url()) == b"fine"


# ---------------------------------------------------------------- each one's own


def test_managers_with_pools_of_their_own_are_refused():
    """W1: a SOCKS proxy would be passed by."""
    manager = urllib3.PoolManager()
    manager.pool_classes_by_scheme = {"http": urllib3.HTTPConnectionPool}
    with pytest.raises(TypeError, match="PoolManager has pools of its own"):
        bounded_pools(manager)
    with (
        ByRequests(proxy="socks5://127.0.0.1:1") as client,
        pytest.raises(requests.exceptions.InvalidSchema, match="SOCKS"),
    ):
        client.get("http://localhost/")


def test_a_host_that_can_be_no_name_is_told_as_ever():
    with ByUrllib3() as client, pytest.raises(urllib3.exceptions.LocationParseError):
        client.get(f"http://{'x' * 70}.test/")


def test_an_address_of_the_sixth_version_needs_no_brackets():
    conn = DeadlinePoolManager().connection_from_url("http://[::1]:9/")._new_conn()
    assert conn.host == "::1"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        conn._dns_host, conn.port = "[::1]", server.getsockname()[1]
        with contextlib.closing(conn):
            conn.connect()
            assert conn.sock.getpeername()[0] == "::1"


def test_urllib3_takes_contexts_and_default_authorities():
    """W1: as it does itself; a context of the proxy's too."""
    with Web(tls=True) as web, ByUrllib3(ssl_context=contexts()[0], ca_certs=None) as client:
        assert client.get(web.url(host="localhost")) == b"fine"
    with Web(tls=True) as web, ByUrllib3(ca_certs=None) as client:
        with pytest.raises(urllib3.exceptions.MaxRetryError, match="CERTIFICATE_VERIFY_FAILED"):
            client.get(web.url(host="localhost"))
        proxy = web.url("", host="localhost")
        with (
            ByUrllib3(proxy, ca_certs=None) as behind,
            pytest.raises(urllib3.exceptions.MaxRetryError, match="VERIFY_FAILED"),
        ):
            behind.get("https://localhost/")
        with Web(tls=True) as end, ByUrllib3(proxy, proxy_ssl_context=contexts()[0]) as behind:
            assert behind.get(end.url(host="localhost")) == b"fine"


def test_requests_can_be_copied_with_its_adapter():
    """W1: sessions are pickled; the copy is bounded too."""
    import pickle

    copied = pickle.loads(pickle.dumps(DeadlineAdapter(pool_maxsize=3)))
    with requests.Session() as session, DripServer(Misbehaviour.SILENT) as peer:
        session.mount("http://", copied)
        with expiring(0.2):
            session.get(f"http://127.0.0.1:{peer.address[1]}/")


def test_httpx_without_a_known_pool_is_refused(monkeypatch):
    """W1: rather than left without a bound."""
    monkeypatch.setattr(httpcore, "NetworkBackend", str)
    with pytest.raises(TypeError, match="unknown here"):
        DeadlineTransport()


def test_http2_is_refused():
    with pytest.raises(ValueError, match="share a connection"):
        DeadlineTransport(http2=True)


def test_httpx_over_a_unix_socket(tmp_path):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with ByHttpx(uds=path) as client, expiring(0.2, match="recv"):
            client.get("http://localhost/")
        server.accept()[0].close()
    with ByHttpx(uds=path + "2") as client, pytest.raises(httpx.ConnectError):
        client.get("http://localhost/")


def test_httpx_may_limit_connecting_and_reading_differently():
    """W1: as its Timeout says."""
    limits = httpx.Timeout(0.2, connect=30)
    with (
        DripServer(Misbehaviour.SILENT) as peer,
        ByHttpx(timeout=limits) as client,
        on_time(0.2),
        pytest.raises(httpx.ReadTimeout),
    ):
        client.get(f"http://127.0.0.1:{peer.address[1]}/")


def test_httpx_connects_again_within_the_deadline():
    """W3: its waiting between attempts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with ByHttpx(retries=20) as client, expiring(1.2):
        client.get(f"http://127.0.0.1:{port}/")


def test_httpx_comes_from_where_it_is_told_and_shows_its_socket():
    with (
        Web() as web,
        ByHttpx(local_address="127.0.0.1", socket_options=[]) as client,
        client.client.stream("GET", web.url()) as response,
    ):
        stream = response.extensions["network_stream"]
        assert stream.get_extra_info("server_addr") == ("127.0.0.1", web.port)
        assert stream.get_extra_info("client_addr")[0] == "127.0.0.1"
        assert stream.get_extra_info("socket").getpeername()[1] == web.port
        assert stream.get_extra_info("ssl_object") is None
        assert stream.get_extra_info("another") is None
        assert response.read() == b"fine"
        stream.close()
        assert stream.get_extra_info("is_readable")


@each_client
def test_a_body_that_is_sent_is_bounded(by):
    """S1: the peer takes nothing; what was sent in part takes its connection along."""
    gate = threading.Event()

    def talk(sock):
        sock.recv(65_536)
        sock.sendall(answer(b"once"))
        gate.wait(30)

    with Server(talk) as server, by() as client:
        url = f"http://127.0.0.1:{server.port}/"
        with expiring(0.3, match="send"):
            client.post(url, bytes(50_000_000))
        assert client.get(url) == b"once"
        gate.set()


@each_client
def test_a_peer_that_hangs_up_while_it_is_sent_to_is_told_as_ever(by):
    """S1: that is no deadline."""

    def talk(sock):
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with (
        Server(talk) as server,
        by(**by.once) as client,
        bounding(Deadline.after(30)),
        pytest.raises(by.errors),
    ):
        client.post(f"http://127.0.0.1:{server.port}/", bytes(50_000_000))


def test_httpx_sees_that_an_idle_connection_was_closed():
    """W1: by its descriptor, as it does itself."""
    gate = threading.Event()

    def talk(sock):
        sock.recv(65_536)
        sock.sendall(answer(b"once"))
        gate.wait(30)

    with Server(talk, tls=True) as server, ByHttpx() as client:
        url = f"https://localhost:{server.port}/"
        response = client.client.get(url)
        stream = response.extensions["network_stream"]
        gate.set()
        settled(lambda: stream.get_extra_info("is_readable"))
        assert client.get(url) == b"once"
        assert server.connections == 2


def test_tls_within_tls_that_ends_early_is_told():
    """W1: of the inner session."""

    def talk(sock):
        head = sock.recv(65_536)
        sock.sendall(b"HTTP/1.1 200 tunnel\r\n\r\n")
        relay(sock, ("127.0.0.1", int(head.split()[1].rpartition(b":")[2])))

    def cut(sock):
        sock.recv(65_536)

    with (
        Server(talk, tls=True) as proxy,
        Server(cut, tls=True) as web,
        ByHttpx(proxy=f"https://localhost:{proxy.port}") as client,
        pytest.raises(httpx.TransportError),
        bounding(Deadline.after(30)),
    ):
        client.get(f"https://localhost:{web.port}/")


# ---------------------------------------------------------------- asynchronous


@pytest.mark.parametrize("mode", [*MODES, Misbehaviour.SILENT])
def test_an_asynchronous_client_needs_no_part_of_ours(mode):
    """A48: enforcing cancels it where it waits, and its pool is whole afterwards."""

    async def main(url, healthy):
        async with httpx.AsyncClient(timeout=BUDGET * 2) as client:
            with on_time(), pytest.raises(DeadlineExceeded):
                async with enforcing(Deadline.after(BUDGET)):
                    await client.get(url)
            async with enforcing(Deadline.after(30)):
                return (await client.get(healthy)).content

    with Web() as web, dripping(mode) as url:
        assert asyncio.run(main(url, web.url())) == b"fine"


def test_an_asynchronous_client_is_bounded_while_it_connects(monkeypatch):
    """K1: an address that swallows everything."""

    async def main(url):
        async with httpx.AsyncClient(timeout=None) as client:
            with on_time(0.3), pytest.raises(DeadlineExceeded):
                async with enforcing(Deadline.after(0.3)):
                    await client.get(url)

    with black_hole() as (host, port):
        asyncio.run(main(f"http://{host}:{port}/"))


def test_a_drop_in_part_refuses_a_thread_that_runs_a_loop():
    """D6: rather than block it."""

    async def main(url):
        for by in CLIENTS.values():
            with by() as client, pytest.raises(RuntimeError, match="loop"):
                client.get(url)

    with Web() as web:
        asyncio.run(main(web.url()))
        assert time.monotonic() > 0
        assert urlsplit(web.url()).port == web.port
