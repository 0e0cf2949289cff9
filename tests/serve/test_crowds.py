"""Too many connections, requests and bytes: of one client, of one address, and of all together."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shepherd.addresses import network_of
from shepherd.config import Serve
from shepherd.serve import limits
from shepherd.serve.limits import ClientLimits, Rate
from tests.serve.test_tls import FILES, certify
from tests.support.segment_states import fill
from tests.support.serving import flock, serving
from tests.support.waiting import PATIENCE_S, wait_until


def test_many_connections_do_not_shut_others_out(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path, "connections = 4\n") as served:
        parts = urlsplit(served.url)
        with contextlib.ExitStack() as held:
            for _ in range(4):
                held.enter_context(socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S))
            wait_until(lambda: served.ask("/v1/states").status_code == 503, "a fifth connection is served")
        wait_until(lambda: served.ask("/v1/states").status_code == 200)


def test_client_that_asks_too_often_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with (
        serving(tmp_path, "connections_per_client = 1\nbytes_per_s = 50\nstall_s = 1.0\n") as served,
        served.as_client("boss") as server,
        server.leased("test") as lease,
    ):
        slow = served.ask(f"/v1/leases/{lease.name}/files/control", name="boss", stream=True)
        busy = served.ask("/v1/states", name="boss")
        assert busy.status_code == 429 and int(busy.headers["Retry-After"]) >= 1
        assert served.ask("/v1/states", name="reader").status_code == 200
        slow.close()
        wait_until(lambda: served.ask("/v1/states", name="boss").status_code == 200)
        assert served.ask("/v1/states", name="boss", headers={"Host": "localhost"}).status_code == 200


def test_rate_of_requests_is_kept() -> None:
    now = [0.0]
    rate = Rate(10, 20, lambda: now[0])
    assert [rate.try_take() for _ in range(20)] == [0.0] * 20
    assert rate.try_take() == pytest.approx(0.1)
    now[0] = 1.0
    assert [rate.try_take() > 0 for _ in range(11)] == [False] * 10 + [True]
    assert rate.take(5) == pytest.approx(0.5)
    assert Rate(0, 0).take(10**9) == Rate(0, 0).try_take() == 0.0


@pytest.mark.parametrize("tls", [False, True])
def test_one_address_does_not_shut_others_out(tmp_path: Path, tls: bool) -> None:
    """By connections that send nothing, and so never get past their handshakes over TLS."""
    fill(tmp_path, flock(3))
    ca = certify(tmp_path / "cf")
    with serving(tmp_path, f"connections_per_address = 3\n{FILES if tls else ''}", ca=ca) as served:
        place = ("127.0.0.1", urlsplit(served.url).port or 0)
        with contextlib.ExitStack() as held:
            for _ in range(3):
                held.enter_context(socket.create_connection(place, PATIENCE_S, ("127.0.0.2", 0)))
            for _ in range(5):
                with socket.create_connection(place, PATIENCE_S, ("127.0.0.2", 0)) as one_more:
                    assert one_more.recv(12) == (b"" if tls else b"HTTP/1.1 503")
            assert served.ask("/v1/states", verify=ca).status_code == 200
            assert "shepherd_serve_turned_away_total 5.0" in served.ask("/metrics", verify=ca).text
        told = [event for event in served.events() if event["event"] == "turned_away"]
        assert [(event["peer"], event["held"]) for event in told] == [("127.0.0.2", 3)]
        wait_until(lambda: is_answered(place, "127.0.0.2", tls), "those that have gone are still counted")


def is_answered(place: tuple[str, int], address: str, tls: bool) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, PATIENCE_S, (address, 0)) as plain:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) if tls else plain as connection:
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return connection.recv(12) == b"HTTP/1.1 200"
    return False


def test_stranger_that_asks_too_often_is_refused(tmp_path: Path) -> None:
    """Without a token, and with an unknown one; clients with a token are not hindered by that."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "requests_per_s = 0.01\n") as served:
        assert [served.ask(path, name=name).status_code for path, name in (("/", ""), ("/v1/states", "nobody"))] == [200, 429]
        assert served.ask("/v1/states", name="reader").status_code == 200
        assert served.ask("/v1/feedback", "POST", name="other").status_code == 403
        assert served.ask("/v1/states", name="other").status_code == 429  # what is refused is counted, too


def test_memory_of_strangers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_STRANGERS", 3)
    known = ClientLimits(Serve(requests_per_s=0.01))
    assert known.of_stranger("a").requests.try_take() == 0.0
    for name in ("b", "c", "a", "d"):
        known.of_stranger(name)
    assert known.of_stranger("a").requests.try_take() > 0.0  # who keeps asking is not forgotten
    assert list(known._strangers) == ["c", "d", "a"]


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
    ],
)
def test_addresses_of_one_network_count_together(address: str, network: str) -> None:
    assert network_of(address) == network


def test_feedback_beyond_its_limit_on_disk_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path, "feedback_waiting_bytes = 1000\n") as served:
        line = b"http://a.example/ 5\n"
        assert served.ask("/v1/feedback", "POST", "weigher", data=line * 30).status_code == 202
        refused = served.ask("/v1/feedback", "POST", "weigher", data=line * 30)
        assert refused.status_code == 507 and "serve.feedback_waiting_bytes" in refused.json()["error"]
        assert served.ask("/v1/feedback", "POST", "weigher", data=line * 20).status_code == 202
        assert len(os.listdir(served.database.inbox.directory)) == 2
