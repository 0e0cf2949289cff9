"""What is no request of HTTP, or not yet one of a client: a short answer, a count, and nothing of its text anywhere."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from shepherd.serve.log import LINES_AT_ONCE, LINES_PER_S, EventThrottle
from tests.serve.test_attacks import exchange
from tests.serve.test_tls import FILES, certify
from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving, token_of
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.waits

MARK = b"s3cr3t-m4rk"
HEAD = b"GET /v1/states HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\n"
NAMES = (
    b"Authorization", b"Host", b"Cookie", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Upgrade", b"Expect",
    b"Range", b"If-Range", b"If-None-Match", b"Content-Type", b"Content-Encoding", b"Accept", b"Origin", b"Referer", b"X-Any",
)  # fmt: skip
HALF_S = 0.3
CONTROLS = (b"\x00", b"\x01", b"\x07", b"\x0b", b"\x1b[2J", b"\x7f", b"\r", b"\n", b"\xff\xfe", b"\xe2\x80\xae")


def broken_requests() -> Iterator[bytes]:
    yield from (
        MARK,
        MARK + b"\r\n\r\n",
        b"\r\n" * 5 + MARK + b"\r\n\r\n",
        b"\x00" * 50 + MARK,
        b"\xff" * 50 + MARK + b"\r\n\r\n",
    )
    for method in (MARK, b"get", b"G\x00T", b"GET\t", b"BREW", b"CONNECT", b"TRACE", b"OPTIONS", b"PROPFIND"):
        yield method + b" /" + MARK + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for target in (
        b"*",
        b"//",
        b"http://[",
        b"http://x:y@[::1",
        b"\x00",
        b"\x80",
        b"/%00",
        b"/%zz",
        b" /",
        b"?token=",
        b"/\x1b[",
    ):
        yield b"GET " + target + MARK + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for version in (b"HTTP/9.9", b"HTTP/1", b"HTTP/1.1.1", b"http/1.1", b"HTTP/-1.1", b"ICY", MARK, b""):
        yield b"GET /" + MARK + b" " + version + b"\r\nX: " + MARK + b"\r\n\r\n"
    for name, control in itertools.product(NAMES, CONTROLS):
        yield HEAD + name + b": Bearer " + MARK + control + MARK + b"\r\n\r\n"
    for line in (MARK, b": " + MARK, MARK + b" : x", b"\x00" + MARK + b": x", b" folded: " + MARK, b"A" + MARK + b"\xc3: x"):
        yield HEAD + line + b"\r\n\r\n"
    yield HEAD + b"Authorization: Bearer " + MARK * 2_000 + b"\r\n\r\n"
    yield b"GET /" + MARK * 2_000 + b" HTTP/1.1\r\n\r\n"
    yield HEAD + (b"X: " + MARK + b"\r\n") * 500 + b"\r\n"
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    for body in (
        MARK,
        b"5;" + MARK * 2_000 + b"\r\n",
        b"-1\r\n" + MARK,
        b"zz" + MARK + b"\r\n",
        b"3\r\nabc" + MARK,
        b"0\r\n" + MARK + b"\r\n\r\n",
    ):
        yield chunked + body
    yield POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + MARK
    yield POST + b"Transfer-Encoding: gzip, " + MARK + b"\r\n\r\n"
    yield POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n" + MARK
    yield POST + b"Content-Length: 400000\r\n\r\n" + MARK
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + MARK
    yield (
        HEAD
        + b"Connection: Upgrade\r\nUpgrade: h2c-"
        + MARK
        + b"\r\nHTTP2-Settings: "
        + MARK
        + b"\r\n\r\n"
        + MARK
        + b"\x00\r\n\r\n"
    )
    yield HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: " + MARK + b"\r\n\r\n\xff\xff" + MARK
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + MARK + b"\r\n\r\n"  # the hello of TLS
    yield b"SSH-2.0-" + MARK + b"\r\n\r\n"
    yield b"\x05\x01\x00" + MARK
    # Well-formed, and from nobody whom the server knows.
    yield HEAD + b"Authorization: Bearer " + MARK + b"\r\n\r\n"
    yield HEAD + b"Expect: " + MARK + b"\r\n\r\n"
    yield b"GET /v9/" + MARK + b" HTTP/1.1\r\nHost: localhost\r\nExpect: " + MARK + b"\r\n\r\n"
    yield b"GET /v1/leases/" + MARK + b"/documents?url=" + MARK + b" HTTP/1.1\r\nHost: " + MARK + b"\r\n\r\n"
    yield b"GET /static/" + MARK + b" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: " + MARK + b"\r\n\r\n"
    yield b"DELETE /" + MARK + b"?token=" + MARK + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer_to(served: Serving, data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """All that comes back for these bytes, behind which nothing follows."""
    parts = urlsplit(served.url)
    heard = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S) as plain,
        tls.wrap_socket(plain) if tls else plain as connection,
    ):
        connection.sendall(data)
        connection.settimeout(HALF_S)  # what is not whole is answered by nothing before it ends
        with contextlib.suppress(TimeoutError):
            heard += connection.recv(1 << 16)
        connection.settimeout(PATIENCE_S)
        connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(1 << 16):
            heard += more
    return heard


def written(served: Serving) -> bytes:
    return (served.home / "log").read_bytes() + served.errors()


def test_nothing_of_a_broken_request_is_logged_or_answered(served: Serving) -> None:
    """Each of them is also one that is answered shortly, or not at all, and that leaves the server as it was."""
    for data in broken_requests():
        heard = answer_to(served, data)
        assert MARK not in heard, (data[:300], heard)
        assert len(heard) < 2_000 and heard[:5] in (b"", b"HTTP/"), (data[:300], heard)
        assert b" 500 " not in heard.partition(b"\r\n")[0], (data[:300], heard)
    assert served.ask("/v1/states").status_code == 200  # and its line is in the log behind theirs
    assert MARK not in written(served) and b"Traceback" not in written(served)
    assert [event for event in served.events() if event["event"] == "bug"] == []
    assert served.errors() == b""


def test_token_with_a_control_character_is_not_logged(served: Serving) -> None:
    token = token_of("boss").encode()
    for control in CONTROLS:
        heard = answer_to(served, HEAD + b"Authorization: Bearer " + token + control + b"\r\n\r\n")
        assert token not in heard
    served.ask("/v1/states")
    assert token not in written(served)


def test_nothing_of_a_broken_request_over_tls_is_logged(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    context = ssl.create_default_context(cafile=str(certify(tmp_path / "cf")))
    context.check_hostname = False
    with serving(tmp_path, FILES, ca=tmp_path / "cf" / "server.crt") as served:
        for data in (HEAD + b"Authorization: " + MARK + b"\x01\r\n\r\n", MARK + b"\r\n\r\n"):
            assert MARK not in answer_to(served, data, context)  # inside the session
            assert MARK not in answer_to(served, data)  # and in its place
        assert served.ask("/v1/states", verify=served.ca).status_code == 200
        assert MARK not in written(served) and served.errors() == b""


def most_lines(since_s: float) -> float:
    """As many as a throttle lets into the log in that time."""
    return LINES_AT_ONCE + LINES_PER_S * (time.monotonic() - since_s) + 1


def test_flood_of_broken_requests_is_limited_and_hardly_logged(tmp_path: Path) -> None:
    """They count like all others of their address: beyond the limit is 429. A line of the log stands for many of them."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "requests_per_s = 0.001\n") as served:
        began_s = time.monotonic()
        statuses = [exchange(served, b"GET / HTTP/7.7\r\n\r\n").split()[1] for _ in range(100)]
        assert statuses == [b"400"] + [b"429"] * 99
        assert served.ask("/v1/states", name="").status_code == 429  # of the same address, and without a token
        assert served.ask("/v1/states").status_code == 200
        lines = [event for event in served.events() if event["event"] == "broken_request"]
        assert 0 < len(lines) <= most_lines(began_s) and lines[0]["peer"] == "127.0.0.1"


def test_flood_of_refusals_is_hardly_logged(tmp_path: Path) -> None:
    """Of those without a token, of paths that are not there, and of a client beyond its limit."""
    fill(tmp_path, flock(3))
    token = b"Authorization: Bearer " + token_of("reader").encode() + b"\r\n"
    with serving(tmp_path, "requests_per_s = 0.001\n") as served:
        began_s, parts = time.monotonic(), urlsplit(served.url)
        with (
            socket.create_connection((parts.hostname or "", parts.port or 0), PATIENCE_S) as connection,
            connection.makefile("rb") as answers,
        ):
            for path, header in ((b"/v1/states", b""), (b"/nowhere", b""), (b"/v1/states", token)):
                for _ in range(100):
                    connection.sendall(b"HEAD " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n")
                    while answers.readline().strip():
                        pass
        lines = [event for event in served.events() if event["event"] == "request" and event["status"] != 200]
        assert 0 < len(lines) <= most_lines(began_s)
        figures = [line.rpartition(" ") for line in served.ask("/metrics", name="boss").text.splitlines()]
        counted = sum(float(count) for name, _, count in figures if name.startswith("shepherd_serve_requests_total{"))
        assert counted >= 300  # the figures know them all


def test_log_says_how_many_events_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    throttle = EventThrottle(0.5, 2.0, lambda: now_s[0])
    with caplog.at_level(logging.INFO, "shepherd"):
        for _ in range(10):
            throttle.log("request", peer="192.0.2.7")
        now_s[0] = 2.0
        throttle.log("request", peer="192.0.2.8")
    fields = [record.__dict__["fields"] for record in caplog.records]
    assert fields == [{"peer": "192.0.2.7"}] * 2 + [{"peer": "192.0.2.8", "not_logged": 8}]
