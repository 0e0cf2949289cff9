"""Faults that no request is to blame for, and those that only its client is: who learns what, and what continues all the same."""

from __future__ import annotations

import os
import socket
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shepherd.client import Server, pull
from shepherd.errors import PeerRefused, UsageError
from shepherd.formats import stream
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.client.test_stream import succeed
from tests.support.liar import lying, send_answer
from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving, token_of
from tests.support.waiting import PATIENCE_S, wait_until


def test_fault_of_ours_is_a_500_without_a_path(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, served.as_client() as server, server.leased("x") as lease:
        (tmp_path / "cf" / "filter").write_text("this is no line of a filter\n")
        answer = served.ask(f"/v1/leases/{lease.name}/document?url=http://h0.example/")
        assert answer.status_code == 500 and str(tmp_path) not in answer.text
        assert any(event["event"] == "failed" and "filter" in event["text"] for event in served.events())


def test_damaged_older_state_does_not_hide_the_others(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    succeed(tmp_path, 3, flock(4), keep=9)
    older = Database(tmp_path / "db").closed(2)
    control = older.path / names.CONTROL
    control.chmod(0o644)
    control.write_bytes(b"damaged")
    with serving(tmp_path) as served:
        assert [one["state"] for one in served.as_client().states()["states"]] == [1, 3]
        assert any(event["event"] == "failed" and str(older.name) in event["text"] for event in served.events())


def is_cut(served: Serving, path: str) -> bool:
    return any(event.get("cut") and event["path"] == path for event in served.events())


def test_upload_that_its_client_breaks_off_is_no_error_of_ours(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served:
        parts = urlsplit(served.url)
        for path, name in (("/v1/feedback", "weigher"), ("/v1/leases", "reader")):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token_of(name)}\r\n"
            with socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S) as one:
                one.sendall(head.encode() + b"Content-Length: 900\r\n\r\nhttp://a.example/ 5\n")
            wait_until(partial(is_cut, served, path), "it is not told")
        assert all(event["level"] != "error" for event in served.events())
        assert os.listdir(served.database.inbox.directory) == []


def test_wrong_figure_of_a_hostile_server_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    lies = {
        "/documents": lambda handler: send_answer(handler, b"", Content_Type=stream.MEDIA_TYPE, Shepherd_Items="many"),
        "/files/control": lambda handler: send_answer(handler, b"x", 206, Content_Range="bytes few-more/all"),
    }
    with lying(tmp_path / "db", lies) as liar, Server(liar.url, "x") as server, server.leased("x") as lease:
        with pytest.raises(PeerRefused, match="'many' in a header"):
            list(pull(liar.url, "x", lease=lease))
        with pytest.raises(PeerRefused, match="'few' in a header"):
            server.file(lease, "control")


@pytest.mark.parametrize("host", ["a.example", "192.0.2.1:80", "localhost.example", "[2001:db8::1]"])
def test_token_goes_over_the_network_only_encrypted(host: str) -> None:
    with pytest.raises(UsageError, match="https://HOST:PORT"):
        Server(f"http://{host}", "secret")
    for url in (f"https://{host}", "http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"):
        Server(url, "secret").close()
    Server(f"http://{host}", "secret", insecure=True).close()


@pytest.mark.parametrize("gone", ["state", ""], ids=["its states", "all of it"])
def test_database_that_vanishes_is_a_500_and_is_logged(tmp_path: Path, gone: str) -> None:
    fill(tmp_path, flock(3))
    there, away = tmp_path / "db" / gone, tmp_path / "away"
    ways: list[tuple[str, str, dict[str, str]]] = [
        ("GET", "/v1/states", {}), ("GET", "/v1/status", {}), ("GET", "/v1/sites", {}), ("GET", "/v1/servers", {}),
        ("GET", "/v1/explain?url=http://h0.example/", {}), ("POST", "/v1/leases", {"data": '{"purpose": "x"}'}),
    ]  # fmt: skip
    with serving(tmp_path) as served, served.as_client("boss") as server:
        lease = f"/v1/leases/{server.lease('x').name}"
        if gone:  # else the lease is gone with the rest
            ways += [("GET", f"{lease}/{what}", {}) for what in ("documents", "count", "files", "files/control")]
        there.rename(away)
        wait_until(lambda: "shepherd_fault 1.0" in served.ask("/metrics").text, "no alarm is raised")
        assert served.ask("/metrics").status_code == 200 and "shepherd_build_info" in served.ask("/metrics").text
        for method, path, how in ways:
            answer = served.ask(path, method, "boss", data=how.get("data"))
            assert (answer.status_code, "cannot read its database" in answer.text) == (500, True), (path, answer.text)
            assert str(tmp_path) not in answer.text
        told = [event for event in served.events() if event["level"] == "error"]
        assert len(told) >= len(ways) and all(event["event"] == "failed" and "traceback" not in event for event in told)
        assert any(str(tmp_path) in event["text"] for event in told)
        away.rename(there)
        wait_until(lambda: "shepherd_fault 0.0" in served.ask("/metrics").text, "the alarm stays")
        assert served.ask("/v1/states").status_code == 200
