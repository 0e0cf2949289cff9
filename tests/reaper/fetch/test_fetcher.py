"""Exchanges with good servers, bad servers and servers that lie."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shepherd.config import FetchLimits
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.fetcher import Fetcher, Request, Response
from shepherd.reaper.fetch.guard import Guard
from tests.support.origin import Answer, hang, ok, reset, serve

LOOPBACK = ("127.0.0.0/8",)


def fetch(
    answer: Answer, *, limits: FetchLimits | None = None, tls: ssl.SSLContext | None = None, **changes: object
) -> tuple[Response, list[bytes]]:
    """One fetch of http://a.example/x from a server that gives this answer; the response, and the requests it saw."""
    with serve({"/x": answer}, tls) as origin:

        async def run() -> Response:
            fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", limits or FetchLimits())
            request = Request("http://a.example/x", "127.0.0.1", origin.port, timeout_s=20, body_bytes=1 << 20)
            try:
                return await fetcher.fetch(dataclasses.replace(request, **changes))  # type: ignore[arg-type]
            finally:
                fetcher.close()

        return uvloop.run(run()), origin.seen


def test_an_answer_arrives_as_it_was_sent() -> None:
    packed = gzip.compress(b"hello" * 100)
    response, seen = fetch(ok(packed, "Content-Encoding: GZIP", "X-Robots-Tag: noindex", "X-Robots-Tag: none", "ETag: \xe9"))
    assert (response.reason, response.status, response.status_line) == (Reason.NONE, 200, b"HTTP/1.1 200 OK")
    assert response.body == packed
    assert response.encoding == "gzip"
    assert response.header("x-robots-tag") == "noindex"
    assert response.all("X-Robots-Tag") == ["noindex", "none"]
    assert response.headers.startswith(b"Content-Length: ") and b"ETag: \xe9\r\n" in response.headers
    assert response.contacted and not response.truncated
    assert response.address == "127.0.0.1"
    assert response.wire_bytes > len(packed)
    request = seen[0].decode()
    assert request.startswith("GET /x HTTP/1.1\r\nHost: a.example\r\n")
    assert "\r\nUser-Agent: shepherd/test\r\n" in request
    assert "\r\nAccept-Encoding: gzip, br, zstd, deflate\r\n" in request
    assert "If-" not in request


def test_stored_validators_are_sent_back_unless_they_would_inject_a_header() -> None:
    response, seen = fetch(ok(b"", status="304 Not Modified"), etag='W/"a"', modified="Sat, 01 Jan 2022 00:00:00 GMT")
    assert response.status == 304
    assert b'\r\nIf-None-Match: W/"a"\r\n' in seen[0]
    assert b"\r\nIf-Modified-Since: Sat, 01 Jan 2022 00:00:00 GMT\r\n" in seen[0]
    _, seen = fetch(ok(b""), etag='"a"\r\nX-Evil: 1', modified="\xe9")
    assert b"Evil" not in seen[0] and b"If-" not in seen[0]


def test_a_redirect_is_returned_and_not_followed() -> None:
    response, seen = fetch(ok(b"", "Location: /y", status="301 Moved"))
    assert (response.status, response.header("location")) == (301, "/y")
    assert len(seen) == 1


def test_a_body_over_the_limit_is_kept_up_to_it_and_marked() -> None:
    response, _ = fetch(ok(b"a" * 300_000), body_bytes=100_000)
    assert response.reason == Reason.NONE
    assert response.truncated and response.body == b"a" * 100_000


def test_a_body_of_exactly_the_limit_is_whole() -> None:
    response, _ = fetch(ok(b"a" * 100_000), body_bytes=100_000)
    assert not response.truncated and len(response.body) == 100_000


def test_an_endless_body_ends_at_the_limit() -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"a" * 65536)

    response, _ = fetch(endless, body_bytes=1_000_000)
    assert response.truncated and len(response.body) == 1_000_000


def test_the_body_of_an_error_is_not_read_to_its_end() -> None:
    response, _ = fetch(ok(b"a" * 300_000, status="404 Not Found"))
    assert (response.reason, response.status) == (Reason.NONE, 404)
    assert len(response.body) < 100_000


def silent_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    hang(connection)


def half_a_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    hang(connection)


@pytest.mark.parametrize("answer", [hang, silent_headers, half_a_body])
def test_a_fetch_cut_by_its_deadline_has_failed(answer: Answer) -> None:
    response, _ = fetch(answer, timeout_s=0.3)
    assert response.reason == Reason.DEADLINE
    assert response.body == b"" and response.contacted


def closes_at_once(connection: socket.socket) -> None:
    connection.close()


def closes_after_an_interim_answer(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")


@pytest.mark.parametrize("answer", [reset, closes_at_once, closes_after_an_interim_answer])
def test_a_connection_that_breaks_before_the_answer_is_a_connection_error(answer: Answer) -> None:
    response, _ = fetch(answer)
    assert response.reason == Reason.CONNECTION and response.contacted


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", id="length too long"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\nabcd", id="length negative"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", id="two lengths"),
        pytest.param(CHUNKED + b"zz\r\nabc", id="chunk size not a number"),
        pytest.param(CHUNKED + b"10\r\nabc", id="chunk cut off"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="transfer coding not asked for"),
        pytest.param(b"SSH-2.0-OpenSSH_9\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\nabc", id="NUL in a header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: y", id="headers cut off"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\nabc", id="101 headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: %s\r\n" % (b"y" * 40_000) * 2 + b"\r\nabc", id="80 KB of headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000, id="a header without end"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, id="interim answers without end"),
    ],
)
def test_malformed_answer_is_distinct_from_a_broken_connection(answer: bytes) -> None:
    response, _ = fetch(answer)
    assert response.reason == Reason.MALFORMED
    assert response.body == b"" and response.contacted


def test_an_interim_answer_leaves_no_headers_behind() -> None:
    response, _ = fetch(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok(b"abc", "X: y"))
    assert (response.status, response.header("link"), response.header("x")) == (200, "", "y")


def test_the_guard_refuses_before_the_server_sees_anything() -> None:
    with serve({}) as origin:

        async def run() -> Response:
            fetcher = Fetcher(Guard(()), "shepherd/test", FetchLimits())
            try:
                return await fetcher.fetch(Request("http://a.example/x", "127.0.0.1", origin.port, 20, 1000))
            finally:
                fetcher.close()

        response = uvloop.run(run())
        assert response.reason == Reason.GUARD and not response.contacted
        assert origin.connections == 0


def test_nobody_listening_is_a_connection_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    response, _ = fetch(b"", port=port)
    assert response.reason == Reason.CONNECTION and response.contacted


def secure(**limits: Any) -> Response:
    """A fetch over TLS from a server whose certificate is right for its name and signed by itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).resolve().parents[3] / "tests/support/self-signed.pem")
    response, _ = fetch(ok(b"abc"), tls=context, limits=FetchLimits(**limits), url="https://a.example/x")
    return response


def test_untrusted_certificate_is_refused_unless_verification_is_off() -> None:
    response = secure()
    assert (response.reason, response.body) == (Reason.TLS, b"")
    assert response.contacted
    assert secure(verify_tls=False).body == b"abc"


def test_environment_cannot_set_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    response, seen = fetch(ok(b"abc"))
    assert response.body == b"abc" and seen[0].startswith(b"GET /x ")


def test_a_connection_is_kept_only_where_it_may_be() -> None:
    for reuse, connections in ((False, 3), (True, 1)):
        with serve({"/x": ok(b"abc", "Connection: keep-alive")}) as origin:

            async def run(port: int = origin.port, reuse: bool = reuse) -> None:
                fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits())
                for _ in range(3):
                    response = await fetcher.fetch(Request("http://a.example/x", "127.0.0.1", port, 20, 1000, reuse=reuse))
                    assert response.body == b"abc" and response.contacted
                fetcher.close()

            uvloop.run(run())
            assert (origin.connections, len(origin.seen)) == (connections, 3)


def test_a_used_handle_carries_nothing_into_the_next_fetch() -> None:
    routes: dict[str, Answer] = {"/x": ok(b"abc", "X: y"), "/bad": CHUNKED + b"zz\r\n", "/reset": reset, "/empty": ok(b"")}
    with serve(routes) as origin:

        async def run() -> list[Response]:
            fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits(in_flight=1))
            requests = [Request(f"http://a.example{path}", "127.0.0.1", origin.port, 20, 1000) for path in ("/reset", "/bad")]
            requests += [Request("http://a.example/x", "127.0.0.1", origin.port, 20, 1000, etag='"e"')]
            requests += [Request("http://a.example/empty", "127.0.0.1", origin.port, 20, 1000)]
            responses = await asyncio.gather(*map(fetcher.fetch, requests))
            fetcher.close()
            return responses

        responses = uvloop.run(run())
        assert [r.reason for r in responses] == [Reason.CONNECTION, Reason.MALFORMED, Reason.NONE, Reason.NONE]
        assert (responses[3].body, responses[3].header("x")) == (b"", "")
        assert b"If-None-Match" not in origin.seen[3]


def test_cancelled_fetch_does_not_disturb_the_others() -> None:
    with serve({"/hang": hang, "/x": ok(b"abc")}) as origin:

        async def run() -> Response:
            fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits())
            stuck = asyncio.create_task(fetcher.fetch(Request("http://a.example/hang", "127.0.0.1", origin.port, 20, 1000)))
            request = Request("http://a.example/x", "127.0.0.1", origin.port, 20, 1000)
            await fetcher.fetch(request)
            stuck.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stuck
            response = await fetcher.fetch(request)
            fetcher.close()
            return response

        assert uvloop.run(run()).body == b"abc"
