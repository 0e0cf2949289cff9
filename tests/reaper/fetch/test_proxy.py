"""Fetches through a proxy: only the configured one, to the judged address, and without a word of its password."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from shepherd.config import FetchLimits
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.guard import Guard
from shepherd.wire.proxy import Proxy, find
from tests.reaper.fetch.fetching import LOOPBACK, fetch_all, request
from tests.support.origin import ok, serve
from tests.support.proxies import Relay, serve_proxy

KINDS = ["http", "socks5"]
SECRET = "hunter2"


def through(relay: Relay, kind: str, user: str = "", password: str = "") -> Proxy:
    return Proxy(kind, "127.0.0.1", relay.port, user, password)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_a_fetch_goes_through_the_proxy_to_the_judged_address(kind: str, tls: bool) -> None:
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem")
    with serve({"/x": ok(b"abc", "X: y")}, context, address="127.0.0.2") as origin, serve_proxy(kind) as relay:
        asked = request(origin.port, scheme="https" if tls else "http", address="127.0.0.2")
        [response] = fetch_all([asked], proxy=through(relay, kind), limits=FetchLimits(verify_tls=False))
        assert (response.reason, response.status, response.body) == (Reason.NONE, 200, b"abc")
        assert relay.asked == [f"127.0.0.2:{origin.port}"]  # the address, never the name
        assert response.address == "127.0.0.2" and response.contacted
        assert (response.header("x"), response.header("x-proxy"), response.status_line) == ("y", "", b"HTTP/1.1 200 OK")
        assert b"\r\nHost: a.example\r\n" in origin.seen[0] and b"GET /x HTTP/1.1" in origin.seen[0]


@pytest.mark.parametrize("kind", KINDS)
def test_kept_connections_go_through_the_proxy_too(kind: str) -> None:
    with serve({"/x": ok(b"abc", "Connection: keep-alive")}) as origin, serve_proxy(kind) as relay:
        responses = fetch_all([request(origin.port, reuse=True) for _ in range(3)], proxy=through(relay, kind))
        assert [response.body for response in responses] == [b"abc"] * 3
        assert (len(relay.asked), origin.connections, len(origin.seen)) == (1, 1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_guard_judges_the_target_before_the_proxy_is_contacted(kind: str) -> None:
    with serve({}) as origin, serve_proxy(kind) as relay:
        for address in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"):
            [response] = fetch_all([request(origin.port, address=address)], proxy=through(relay, kind), guard=Guard(()))
            assert (response.reason, response.contacted) == (Reason.GUARD, False)
        assert (relay.asked, origin.connections) == ([], 0)


def test_remote_proxy_needs_a_contact_address() -> None:
    remote = Proxy("http", "192.0.2.1", 3128)
    [response] = fetch_all([request(80)], proxy=remote, guard=Guard(LOOPBACK, anonymous=True))
    assert (response.reason, response.contacted) == (Reason.GUARD, False)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_proxy_gets_its_password(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serve({"/x": ok(b"abc")}) as origin, serve_proxy(kind) as relay:
        relay.credentials = f"me:{SECRET}"
        good, bad = through(relay, kind, "me", SECRET), through(relay, kind, "me", "wrong")
        [response] = fetch_all([request(origin.port)], proxy=good)
        assert response.body == b"abc"
        assert b"uthorization" not in origin.seen[0]
        [refused] = fetch_all([request(origin.port)], proxy=bad)
        assert (refused.reason, refused.status) == (Reason.CONNECTION, 0)
        assert len(origin.seen) == 1
        assert SECRET not in f"{response!r} {refused!r} {good!r} {caplog.text}" and "wrong" not in repr(refused)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
    ],
    ids=["forbidden", "bad gateway", "nonsense", "headers without end"],
)
def test_a_proxy_that_refuses_is_a_failed_connection(answer: bytes) -> None:
    with serve({}) as origin, serve_proxy("http") as relay:
        relay.answer = answer
        [response] = fetch_all([request(origin.port, timeout_s=5)], proxy=through(relay, "http"))
        assert (response.reason, response.status, response.body) == (Reason.CONNECTION, 0, b"")
        assert origin.connections == 0


def test_proxy_is_looked_up_by_its_name() -> None:
    assert find("http://localhost:3128/", "me:a:b") == Proxy("http", find("http://localhost:3128").address, 3128, "me", "a:b")
    assert find("socks5://[::1]:1080") == Proxy("socks5", "::1", 1080)
    assert find("socks5://[::1]:1080").url == "socks5://[::1]:1080"


def test_environment_and_netrc_are_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text(f"machine a.example login me password {SECRET}\ndefault login me password {SECRET}\n")
    (tmp_path / ".netrc").chmod(0o600)
    (tmp_path / ".curlrc").write_text("user-agent = evil\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with serve({"/x": ok(b"abc")}) as origin, serve_proxy("http") as relay, serve_proxy("http") as other:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{relay.port}")
        [response] = fetch_all([request(origin.port)])
        assert response.body == b"abc"
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setenv("NO_PROXY", "*")
        [response] = fetch_all([request(origin.port)], proxy=through(other, "http"))
        assert response.body == b"abc"
        assert (relay.heads, len(other.asked)) == ([], 1)
        assert all(b"uthorization" not in seen and b"evil" not in seen for seen in origin.seen)
        monkeypatch.setenv("SSL_CERT_FILE", str(Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem")
    with serve({"/x": ok(b"abc")}, context) as origin:
        [response] = fetch_all([request(origin.port, scheme="https")])
        assert response.reason == Reason.TLS  # the environment cannot make us trust it
