"""The demo in real time: it ends well, and what it measures lies within wide bounds."""

from __future__ import annotations

import asyncio
import socket

import pytest

from children import python
from timebounds import Deadline, demo, offload_job
from timebounds.demo import loopback, offloading
from timebounds.demo.drip import DripServer, client_tls, server_tls
from timebounds.demo.waterfall import WIDTH, Kind

pytestmark = pytest.mark.real

# Beyond a bound, for machines that stall.
SLACK = 0.25


def test_the_demo_holds_every_claim_and_prints_ascii():
    run = python("-W", "error", "-m", "timebounds", "demo", "--plain")
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert run.stdout.isascii()
    assert max(map(len, run.stdout.splitlines())) <= WIDTH
    assert run.stdout.count("[held]") == 21
    assert run.stdout.endswith("All 21 claims held.\n")


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_one_deadline_ends_a_drip_keeps_its_bytes_and_resumes(tls):
    """R1, R2, R4, R10."""
    found, _ = loopback.best(
        lambda: loopback.one_deadline(tls=tls), lambda found: found.seconds < 0.5 + SLACK
    )
    assert found.outcome == "deadline_expired"
    assert 500_000_000 <= found.ns <= (0.5 + SLACK) * 1e9
    assert 1 <= len(found.kept) <= 7
    assert loopback.TEXT.startswith(found.kept)
    assert found.whole == loopback.TEXT
    assert [row.start for row in found.rows] == sorted(row.start for row in found.rows)
    # Within a microsecond: instants are floats here.
    assert all(0 <= row.start <= row.end <= found.seconds + 1e-6 for row in found.rows)
    drawn = [row.note for row in found.rows if row.kind is Kind.READ]
    assert len(drawn) <= len(found.kept)


def test_a_timeout_for_each_read_lets_a_drip_go_on():
    found, _ = loopback.best(loopback.per_read_timeout, lambda found: found.outcome == "complete")
    assert found.outcome == "complete"
    assert found.kept == loopback.TEXT[: loopback.SHORT]
    assert found.seconds > 1.0


def test_a_popular_client_calls_a_drip_a_success():
    found, _ = loopback.best(loopback.popular_client, lambda found: found.outcome == "200 OK")
    assert (found.outcome, found.kept) == ("200 OK", loopback.BODY)
    assert found.seconds >= 3 * loopback.LIMIT


def test_a_server_that_does_not_drip_makes_the_claims_fail(monkeypatch, capsys):
    monkeypatch.setattr(loopback, "EVERY", 0.0)
    monkeypatch.setattr(loopback, "BODY_EVERY", 0.0)
    assert demo.run(["demo", "--plain"], [loopback.tell]) == 1
    out = capsys.readouterr().out
    assert out.count("[FAILED]") == 6
    assert "(try 3 of 3)" in out


def test_a_read_that_does_time_out_is_seen_as_such(monkeypatch):
    monkeypatch.setattr(loopback, "PER_READ", 0.01)
    found = loopback.per_read_timeout()
    assert (found.outcome, found.kept) == ("timed out", b"")
    assert [row.kind for row in found.rows] == [Kind.EMPTY]
    monkeypatch.setattr(loopback, "LIMIT", 0.01)
    monkeypatch.setattr(loopback, "BODY_EVERY", 0.5)
    assert loopback.popular_client().outcome == "timed out"


def test_a_server_that_nobody_calls_ends():
    with DripServer(b"x", 60):
        pass


def test_a_server_whose_client_leaves_ends():
    with DripServer(b"x" * 10_000, 0.0) as server:
        server.connect().close()


def test_a_server_ends_while_its_client_still_waits():
    with DripServer(b"xx", 60) as server, server.connect() as client:
        client.settimeout(0.01)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_a_tls_client_trusts_this_server_alone():
    context = client_tls()
    with DripServer(b"x", 0.0, tls=server_tls()) as server, server.connect() as sock:
        sock.settimeout(5.0)
        with (
            context.wrap_socket(sock, server_hostname="localhost") as secured,
            socket.socket(fileno=None) as other,
        ):
            assert other.fileno() != secured.fileno()
            assert secured.recv(1) == b"x"


def test_a_thread_that_nobody_stops_goes_on_without_its_socket():
    """O10: the trace without a coordinator."""
    found, _ = loopback.best(
        offloading.uncoordinated, lambda found: found.order(offloading.ALONE) == offloading.ALONE
    )
    assert found.order(offloading.ALONE) == offloading.ALONE
    assert (found.descriptor, found.effects, found.errors, found.cancelling) == (-1, 1, 1, 1)
    assert found.at("thread:side-effect") - found.at("caller:released") >= offloading.STEP


def test_an_offloaded_read_is_stopped_released_awaited_and_closed():
    """O1, O2, O10: the trace with a coordinator, a hundred cancels included."""
    found, _ = loopback.best(
        offloading.coordinated, lambda found: found.cancelling == offloading.CANCELS
    )
    assert found.order(offloading.TOGETHER) == offloading.TOGETHER
    assert found.descriptor >= 0
    assert (found.effects, found.closings, found.errors, found.cancelling) == (0, 1, 1, 100)
    returned = found.at("thread:returned")
    assert found.at("stop:requested") < found.at("stop:observed") < returned
    assert returned + offloading.STEP <= found.at("resource:closed")


def test_a_read_that_nobody_stops_has_its_effect():
    async def main():
        stage = offloading._Stage()
        with stage.ours, stage.theirs:
            stage.theirs.sendall(b"!")
            await offload_job(stage.reading_job, deadline=Deadline.after(10))
        return stage.seen(0)

    found = asyncio.run(main())
    assert (found.effects, found.descriptor >= 0) == (1, True)
