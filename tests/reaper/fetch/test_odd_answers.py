"""Odd, slow and lying servers: every exchange ends by its deadline with the reason that fits, and within its memory."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

from shepherd.config import FetchLimits
from shepherd.formats.tables import Reason
from shepherd.reaper.fetch.fetcher import Fetcher, Response
from shepherd.reaper.fetch.guard import Guard
from tests.reaper.fetch.fetching import LOOPBACK, fetch_all, request
from tests.support.origin import Answer, hang, ok, reset, serve
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.waits

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def odd(status: bytes, *lines: bytes) -> bytes:
    """An answer of three bytes."""
    return b"".join(line + b"\r\n" for line in (status, b"Content-Length: 3", *lines)) + b"\r\nabc"


def length(value: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\nabc" % value


TAKEN = [
    pytest.param(b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", id="no reason phrase"),
    pytest.param(b"HTTP/1.0 200 OK\r\n\r\nabc", id="HTTP/1.0 without a length"),
    pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", id="bare line feeds"),
    pytest.param(odd(b"HTTP/1.1 200 OK", b"Content-Length: 3"), id="the same length twice"),
    pytest.param(length(b"3, 3"), id="the same length twice in a line"),
    pytest.param(ok(b"abc") + ok(b"def"), id="a second answer behind the first"),
    pytest.param(CHUNKED + b"3;ext=1\r\nabc\r\n0\r\nX: y\r\n\r\n", id="chunk extension and trailer"),
    pytest.param(
        CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n") + b"3\r\nabc\r\n0\r\n\r\n", id="chunks and a length"
    ),
    pytest.param(odd(b"HTTP/1.1 200 OK", b": nameless", b"X : y"), id="blank in a header's name"),
]
REFUSED = [
    *(pytest.param(odd(status), id=status.decode()) for status in (
        b"http/1.1 200 OK", b"ICY 200 OK", b"HTTP/2 200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 20 OK", b"HTTP/1.1 abc OK",
        b"HTTP/1.1 099 OK", b"HTTP/1.1 000 OK", b"HTTP/1.1 -200 OK", b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1",
    )),
    pytest.param(b"<html>hello</html>", id="HTTP/0.9"),
    pytest.param(b"\r\n\r\n" + ok(b"abc"), id="blank lines first"),
    pytest.param(b"\x16\x03\x01\x02\x00" + b"\1" * 512, id="TLS where none is due"),
    pytest.param(b"HTTP/1.1 200 " + b"x" * 200_000, id="a status line without end"),
    pytest.param(odd(b"HTTP/1.1 200 O\0K"), id="NUL in the status line"),
    pytest.param(odd(b"HTTP/1.1 200 OK", b"X\0: y"), id="NUL in a name"),
    pytest.param(odd(b"HTTP/1.1 200 OK", b"X: a\rb"), id="carriage return in a value"),
    pytest.param(odd(b"HTTP/1.1 200 OK", b"no colon"), id="header without a colon"),
    pytest.param(odd(b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found"), id="a second status line"),
    pytest.param(odd(b"HTTP/1.1 200 OK", b"X: a", *[b" b" * 1_000] * 100), id="folds without end"),
    *(pytest.param(length(value), id=f"length {value.decode()!r}") for value in (
        b"3, 4", b"3x", b"+3", b"-3", b"", b"0x3", b"99999999999999999999999",
    )),
    pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xyz\r\n\r\nabc", id="unknown transfer coding"),
    pytest.param(CHUNKED + b"fffffffffffffffff\r\nabc", id="chunk beyond 64 bits"),
    pytest.param(CHUNKED + b"-3\r\nabc", id="negative chunk"),
    pytest.param(CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n", id="chunk longer than it says"),
    pytest.param(CHUNKED + b"3\r\nabc\r\n", id="last chunk missing"),
    pytest.param(CHUNKED + b"3\r\nabc\r\n0\r\n" + b"X: y\r\n" * 200 + b"\r\n", id="200 trailers"),
    pytest.param(CHUNKED + b"3\r\nabc\r\n0\r\nX: " + b"y" * 200_000, id="a trailer without end"),
    pytest.param(b"HTTP/1.1 103 Early Hints\r\n" + b"Link: </a>\r\n" * 50 + b"\r\n" + odd(b"HTTP/1.1 200 OK", *[b"X: y"] * 60),
                 id="100 headers in two heads"),
]  # fmt: skip


def fetched(answer: Answer) -> Response:
    with serve({"/x": answer}) as origin:
        [response] = fetch_all([request(origin.port)])
        assert len(origin.seen) == 1
        return response


@pytest.mark.parametrize("answer", TAKEN)
def test_odd_answer_that_can_be_understood_is_accepted(answer: bytes) -> None:
    response = fetched(answer)
    assert (response.reason, response.status, response.body, response.truncated) == (Reason.NONE, 200, b"abc", False)


@pytest.mark.parametrize("answer", REFUSED)
def test_an_answer_that_breaks_the_rules_is_malformed(answer: bytes) -> None:
    response = fetched(answer)
    assert (response.reason, response.body) == (Reason.MALFORMED, b"")
    assert response.contacted


def test_a_header_over_several_lines_is_one() -> None:
    response = fetched(odd(b"HTTP/1.1 200 OK", b"X: a", b"  b", b"\tc", b"Y: d"))
    assert (response.header("x"), response.header("y")) == ("a b c", "d")
    assert fetched(b"HTTP/1.1 200 OK\r\n X: a\r\nContent-Length: 3\r\n\r\nabc").all("x") == []


@pytest.mark.parametrize("status", [204, 304])
def test_status_without_a_body_has_none(status: int) -> None:
    response = fetched(ok(b"abc", status=f"{status} Nothing"))
    assert (response.reason, response.status, response.body) == (Reason.NONE, status, b"")


@pytest.mark.parametrize(
    ("status", "header"),
    [
        ("401 Unauthorized", "WWW-Authenticate: Basic realm=x"),
        ("407 Proxy", "Proxy-Authenticate: Basic realm=x"),
        ("408 Late", "X: y"),
        ("421 Misdirected", "X: y"),
        ("200 OK", "Set-Cookie: a=b"),
        ("200 OK", 'Alt-Svc: h2=":1"'),
        ("303 See", "Location: /x"),
    ],
)
def test_no_answer_of_a_server_makes_us_repeat_a_request(status: str, header: str) -> None:
    with serve({"/x": ok(b"", header, "Connection: keep-alive", status=status)}) as origin:
        responses = fetch_all([request(origin.port, reuse=True) for _ in range(2)])
        assert [str(response.status) for response in responses] == [status[:3]] * 2
        assert len(origin.seen) == 2 and b"ookie" not in origin.seen[1] and b"uthorization" not in origin.seen[1]


# --- deadlines ---------------------------------------------------------------------------------------------------


def drip(data: bytes, gap_s: float) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            time.sleep(gap_s)

    return answer


def slow_body(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    drip(b"a" * 1000, 0.02)(connection)


def interim(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.02)


SLOW = [
    pytest.param(hang, id="silent"),
    pytest.param(drip(ok(b"abc"), 0.02), id="slow headers"),
    pytest.param(slow_body, id="slow body"),
    pytest.param(drip(CHUNKED + b"1\r\na\r\n" * 100, 0.01), id="slow chunks"),
    pytest.param(interim, id="interim answers without end"),
]


@pytest.mark.parametrize("answer", SLOW)
def test_a_slow_exchange_is_cut_by_the_deadline_and_has_failed(
    answer: Answer, record_property: Callable[[str, object], None]
) -> None:
    with serve({"/x": answer}) as origin:
        begin = time.monotonic()
        [response] = fetch_all([request(origin.port, timeout_s=0.5)])
        overrun_ms = round((time.monotonic() - begin - 0.5) * 1000)
    assert (response.reason, response.body) == (Reason.DEADLINE, b"")
    assert response.contacted and not response.truncated
    record_property("overrun_ms", overrun_ms)
    print(f"overrun {overrun_ms} ms")


@contextlib.contextmanager
def mute(backlog: int | None = None) -> Iterator[int]:
    """A port whose connections nobody takes; with a backlog of 0 that is full, not even the system."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as listener, contextlib.ExitStack() as stack:
        if backlog is not None:
            for _ in range(3):
                other = stack.enter_context(socket.socket())
                other.setblocking(False)
                other.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.parametrize(("scheme", "backlog"), [("http", None), ("https", None), ("http", 0)], ids=["headers", "TLS", "connect"])
def test_every_step_is_under_the_deadline(scheme: str, backlog: int | None) -> None:
    with mute(backlog) as port:
        [response] = fetch_all([request(port, scheme=scheme, timeout_s=0.4)])
    assert (response.reason, response.contacted) == (Reason.DEADLINE, True)


def test_waiting_for_a_turn_is_under_the_deadline() -> None:
    with serve({"/x": hang}) as origin:
        asked = [request(origin.port, timeout_s=1.0), request(origin.port, timeout_s=0.3)]
        first, second = fetch_all(asked, limits=FetchLimits(in_flight=1), at_once=True)
        assert (first.reason, first.contacted) == (Reason.DEADLINE, True)
        assert (second.reason, second.contacted) == (Reason.DEADLINE, False)
        assert origin.connections == 1


def test_body_below_the_minimum_rate_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shepherd.reaper.fetch.fetcher.SLOW_AFTER_S", 1)
    with serve({"/x": slow_body}) as origin:
        [response] = fetch_all([request(origin.port)], limits=FetchLimits(min_bytes_per_s=1_000))
        assert (response.reason, response.body) == (Reason.TOO_SLOW, b"")


# --- connections that break --------------------------------------------------------------------------------------


@contextlib.contextmanager
def breaking(handle: Callable[[socket.socket, int], None]) -> Iterator[tuple[int, list[bytes]]]:
    """Connections one after the other, each handed over with its number; what was read is in the list."""
    listener = socket.create_server(("127.0.0.1", 0))
    seen: list[bytes] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            for number in range(100):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(PATIENCE_S)
                    first = connection.recv(65536)
                    seen.append(first)
                    handle(connection, number)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1], seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    "how", [lambda connection, number: None, lambda connection, number: reset(connection)], ids=["end", "reset"]
)
def test_a_handshake_that_breaks_off_is_no_verdict_on_the_certificate(how: Callable[[socket.socket, int], None]) -> None:
    with breaking(how) as (port, seen):
        [response] = fetch_all([request(port, scheme="https")])
        assert (response.reason, len(seen)) == (Reason.CONNECTION, 1)


@pytest.mark.parametrize("ending", ["closed", "reset", "closed in the headers", "closed in the body"])
def test_request_on_a_kept_connection_that_closes_is_not_repeated(ending: str) -> None:
    def handle(connection: socket.socket, number: int) -> None:
        connection.sendall(ok(b"abc", "Connection: keep-alive"))
        second = connection.recv(65536)
        if second:
            seen.append(second)
            if ending == "closed in the headers":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-")
            elif ending == "closed in the body":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        if ending == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with breaking(handle) as (port, seen):
        first, second = fetch_all([request(port, reuse=True), request(port, "/second", reuse=True)])
        assert first.body == b"abc" and not first.stale
        assert second.reason != Reason.NONE and second.contacted and second.body == b""
        assert second.stale == (ending in ("closed", "reset"))
        assert [line.split(b" ")[1] for line in seen] == [b"/x", b"/second"]


def test_a_kept_connection_that_closed_long_before_the_second_request_is_replaced() -> None:
    def handle(connection: socket.socket, number: int) -> None:
        connection.sendall(ok(b"abc", "Connection: keep-alive"))

    async def two(port: int) -> list[Response]:
        fetcher = Fetcher(Guard(LOOPBACK), "shepherd/test", FetchLimits())
        first = await fetcher.fetch(request(port, reuse=True))
        await asyncio.sleep(1.5)  # libcurl looks at what it kept once a second
        second = await fetcher.fetch(request(port, reuse=True))
        fetcher.close()
        return [first, second]

    with breaking(handle) as (port, seen):
        responses = uvloop.run(two(port))
        assert [(response.body, response.stale) for response in responses] == [(b"abc", False)] * 2
        assert len(seen) == 2
