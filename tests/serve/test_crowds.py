"""Too many requests and bytes: of one client, and of one address. What connections take is in test_seats.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shepherd.addresses import network_of
from shepherd.config import Serve
from shepherd.serve import limits
from shepherd.serve.limits import ClientLimits, Rate
from tests.support.segment_states import fill
from tests.support.serving import flock, serving
from tests.support.waiting import wait_until


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
