"""Exchanges with nginx: HTTP/2, TLS by policy, gzip, conditional requests and kept connections."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from shepherd.config import FetchLimits
from shepherd.formats import coding
from shepherd.formats.tables import Reason
from tests.reaper.fetch.fetching import fetch_all, request
from tests.support.nginx import need, nginx
from tests.support.origin import ok, serve

PAGE = b"<html><title>A page</title>" + b"<p>and a paragraph</p>" * 400 + b"</html>"
SELF_SIGNED = Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem"  # for a.example


@dataclass(frozen=True)
class Site:
    root: Path
    plain: int
    h2: int  # TLS 1.2 or 1.3, and HTTP/2
    old: int  # TLS 1.2 at most
    authorities: str


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need()
    home = tmp_path_factory.mktemp("nginx")
    root = home / "root"
    root.mkdir()
    for directory in (root, home, *home.parents):  # started as root, it works as another user
        if directory.stat().st_uid == os.getuid():
            directory.chmod(directory.stat().st_mode | 0o055)
    for name, content in {"page.html": PAGE, "small": b"small", "large": os.urandom(3 << 20)}.items():
        (root / name).write_bytes(content)
    both, old_only = "ssl_protocols TLSv1.2 TLSv1.3;", "ssl_protocols TLSv1.2;"
    with nginx(home / "new", root, ["a.example"], both) as new, nginx(home / "old", root, ["a.example"], old_only) as old:
        authorities = new.ca_file.read_text() + old.ca_file.read_text()
        yield Site(root, new.plain, new.secure, old.secure, authorities)


def secure(path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def authority(path: Path) -> str:
    return path.read_text().partition("-----END PRIVATE KEY-----\n")[2]


def test_http2_is_spoken_where_the_server_offers_it(site: Site) -> None:
    requests = [request(site.plain, "/page.html"), request(site.h2, "/page.html", scheme="https")]
    responses = fetch_all(requests, authorities=site.authorities)
    assert [response.status_line.split()[0] for response in responses] == [b"HTTP/1.1", b"HTTP/2"]
    for response in responses:
        assert (response.reason, response.status, response.encoding) == (Reason.NONE, 200, "gzip")
        assert coding.decode(response.body, response.encoding, 1 << 20) == (PAGE, False)
        assert response.header("content-type") == "text/html" and response.headers.lower().startswith(b"server: nginx")


def test_http1_is_spoken_where_the_server_offers_nothing_else() -> None:
    with serve({"/x": ok(b"abc")}, secure(SELF_SIGNED)) as origin:
        [response] = fetch_all([request(origin.port, scheme="https")], authorities=authority(SELF_SIGNED))
        assert (response.status_line, response.body) == (b"HTTP/1.1 200 OK", b"abc")


def test_a_large_body_over_http2_is_cut_at_its_limit_and_the_connection_dropped(site: Site) -> None:
    whole = (site.root / "large").read_bytes()
    asked = [request(site.h2, "/large", scheme="https", body_bytes=limit, reuse=True) for limit in (100_000, 8 << 20, 100_000)]
    cut, full, again = fetch_all(asked, authorities=site.authorities)
    assert (cut.reason, cut.truncated, cut.body) == (Reason.NONE, True, whole[:100_000])
    assert (full.truncated, full.body) == (False, whole)
    assert again.body == cut.body


def test_kept_connections_of_http2_are_used_again(site: Site) -> None:
    asked = [request(site.h2, path, scheme="https", reuse=True) for path in ("/small", "/page.html", "/small")]
    responses = fetch_all(asked, authorities=site.authorities)
    assert [response.status for response in responses] == [200, 200, 200]
    assert responses[0].connect_s > 0 and responses[1].connect_s == responses[2].connect_s == 0
    assert all(response.contacted and not response.stale for response in responses)


def test_no_connection_is_kept_unless_asked_for(site: Site) -> None:
    responses = fetch_all([request(site.h2, "/small", scheme="https") for _ in range(3)], authorities=site.authorities)
    assert all(response.body == b"small" and response.connect_s > 0 for response in responses)


# --- TLS ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "known", "limits", "reason"),
    [
        pytest.param("a.example", True, FetchLimits(), Reason.NONE, id="trusted"),
        pytest.param("a.example", False, FetchLimits(), Reason.TLS, id="untrusted"),
        pytest.param("b.example", True, FetchLimits(), Reason.TLS, id="for another name"),
        pytest.param("b.example", False, FetchLimits(verify_tls=False), Reason.NONE, id="not verified"),
        pytest.param("a.example", True, FetchLimits(min_tls="1.3"), Reason.NONE, id="new enough"),
    ],
)
def test_the_policy_of_certificates(site: Site, host: str, known: bool, limits: FetchLimits, reason: Reason) -> None:
    asked = request(site.h2, "/small", scheme="https", host=host)
    [response] = fetch_all([asked], authorities=site.authorities if known else "", limits=limits)
    assert (response.reason, response.body) == (reason, b"small" if reason == Reason.NONE else b"")
    assert response.contacted and (response.detail == "") == (reason == Reason.NONE)


def test_an_old_version_of_tls_is_refused_where_the_operator_wants_a_newer(site: Site) -> None:
    asked = request(site.old, "/small", scheme="https")
    [refused] = fetch_all([asked], authorities=site.authorities, limits=FetchLimits(min_tls="1.3"))
    [taken] = fetch_all([asked], authorities=site.authorities, limits=FetchLimits(min_tls="1.2"))
    assert (refused.reason, taken.reason) == (Reason.TLS, Reason.NONE)


def test_a_server_without_tls_is_refused(site: Site) -> None:
    [response] = fetch_all([request(site.plain, "/small", scheme="https")], authorities=site.authorities)
    assert response.reason == Reason.TLS and response.status == 0


def test_an_expired_certificate_is_refused() -> None:
    path = Path(__file__).resolve().parents[3] / "tests/support/expired.pem"
    with serve({"/x": ok(b"abc")}, secure(path)) as origin:
        [response] = fetch_all([request(origin.port, scheme="https")], authorities=authority(path))
        assert (response.reason, response.body, origin.seen) == (Reason.TLS, b"", [])
        assert "expired" in response.detail


# --- conditional requests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_is_stored_is_not_sent_again_until_it_changes(site: Site, scheme: str) -> None:
    port = site.plain if scheme == "http" else site.h2
    page = site.root / "page.html"
    os.utime(page, (1_600_000_000, 1_600_000_000))
    [first] = fetch_all([request(port, "/page.html", scheme=scheme)], authorities=site.authorities)
    etag, modified = first.header("etag"), first.header("last-modified")
    assert etag.startswith('W/"') and modified == formatdate(1_600_000_000, usegmt=True)  # packed, so only weakly the same
    known = [{"etag": etag}, {"modified": modified}, {"etag": etag, "modified": modified}]
    responses = fetch_all(
        [request(port, "/page.html", scheme=scheme, **validators) for validators in known], authorities=site.authorities
    )
    assert [(response.status, response.body) for response in responses] == [(304, b"")] * 3
    os.utime(page, (1_700_000_000, 1_700_000_000))
    responses = fetch_all(
        [request(port, "/page.html", scheme=scheme, **validators) for validators in known], authorities=site.authorities
    )
    assert [response.status for response in responses] == [200] * 3


@pytest.mark.parametrize(
    ("etag", "modified"),
    [("*", ""), ("", "yesterday"), ("", "0"), ("x" * 2_000, ""), ("a\nb", "\x7f"), ('"\xe9"', "Sat, 99 Jan 2022 00:00:00 GMT")],
)
def test_what_cannot_be_a_validator_is_not_sent(etag: str, modified: str) -> None:
    with serve({"/x": ok(b"abc")}) as origin:
        [response] = fetch_all([request(origin.port, etag=etag, modified=modified)])
        assert response.status == 200 and b"If-" not in origin.seen[0]


@pytest.mark.parametrize(
    "modified",
    [
        "Sat, 01 Jan 2022 00:00:00 GMT",
        "Saturday, 01-Jan-22 00:00:00 GMT",
        "Sat Jan  1 00:00:00 2022",
        "Sat, 01 Jan 2022 00:00:00 +0100",
    ],
)
def test_a_date_is_sent_back_as_it_came_in_any_of_its_forms(modified: str) -> None:
    with serve({"/x": ok(b"", status="304 Not Modified")}) as origin:
        fetch_all([request(origin.port, modified=modified, etag="unquoted")])
        assert f"\r\nIf-Modified-Since: {modified}\r\n".encode() in origin.seen[0]
        assert b"\r\nIf-None-Match: unquoted\r\n" in origin.seen[0]
