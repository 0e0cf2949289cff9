"""HTTP/2 from servers that break its rules: every exchange ends, says what happened, and was asked for once."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable

import pytest

from shepherd.config import FetchLimits
from shepherd.formats.tables import Reason
from tests.reaper.fetch import h2
from tests.reaper.fetch.fetching import fetch_all, request
from tests.reaper.fetch.h2 import DATA, END_HEADERS, END_STREAM, HEADERS, RST, frame, literal, serve_frames

Frames = Callable[[int], bytes]


def head(stream: int, more: bytes = b"", flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, h2.STATUS_200 + more)


def code(number: int) -> bytes:
    return struct.pack(">I", number)


def goaway(last: int, number: int = 0) -> bytes:
    return frame(h2.GOAWAY, 0, 0, struct.pack(">II", last, number))


WHOLE = END_HEADERS | END_STREAM
BROKEN = {Reason.MALFORMED, Reason.CONNECTION}
LONG = literal(b"x", b"y" * 100)
LENGTH_9 = literal(b"content-length", b"9")
CASES: list[tuple[str, Frames, set[Reason]]] = [
    ("good", lambda s: head(s) + frame(DATA, END_STREAM, s, b"abc"), {Reason.NONE}),
    ("in many pieces", lambda s: head(s) + frame(DATA, 0, s, b"a") * 3 + frame(DATA, END_STREAM, s), {Reason.NONE}),
    ("a flood of pings", lambda s: frame(h2.PING, 0, 0, b"12345678") * 5_000 + head(s, b"", WHOLE), {Reason.NONE, *BROKEN}),
    ("garbage", lambda s: b"GET / HTTP/1.1\r\n\r\n" * 10, BROKEN),
    ("a frame larger than agreed", lambda s: frame(DATA, 0, s, b"a" * 1_000_000), BROKEN),
    ("data before headers", lambda s: frame(DATA, END_STREAM, s, b"abc"), BROKEN),
    ("data of a stream that is not there", lambda s: head(s) + frame(DATA, 0, s + 2, b"abc"), BROKEN),
    ("headers that are no HPACK", lambda s: frame(HEADERS, END_HEADERS, s, b"\xff" * 30), BROKEN),
    ("headers without a status", lambda s: frame(HEADERS, WHOLE, s, literal(b"x", b"y")), BROKEN),
    ("a header with a NUL, which is left out", lambda s: head(s, literal(b"x", b"a\0b"), WHOLE), {Reason.NONE}),
    ("200 headers", lambda s: head(s, literal(b"x", b"y") * 200, WHOLE), {Reason.MALFORMED}),
    ("continuations without end", lambda s: head(s, b"", 0) + frame(h2.CONTINUATION, 0, s, LONG * 100) * 1_000, BROKEN),
    ("empty continuations without end", lambda s: head(s, b"", 0) + frame(h2.CONTINUATION, 0, s) * 100_000, BROKEN),
    ("a length that is too long", lambda s: head(s, LENGTH_9) + frame(DATA, END_STREAM, s, b"abc"), BROKEN),
    ("a length that is too short", lambda s: head(s, LENGTH_9) + frame(DATA, END_STREAM, s, b"a" * 20), BROKEN),
    ("a pushed answer", lambda s: frame(h2.PUSH, END_HEADERS, s, struct.pack(">I", 2)) + head(s, b"", WHOLE),
     BROKEN),
    ("a window that overflows", lambda s: frame(h2.WINDOW, 0, 0, code(0x7FFFFFFF)) + head(s, b"", WHOLE),
     BROKEN),
    ("reset at once", lambda s: frame(RST, 0, s, code(2)), BROKEN),
    ("reset in the body", lambda s: head(s) + frame(DATA, 0, s, b"abc") + frame(RST, 0, s, code(2)), BROKEN),
    ("refused", lambda s: frame(RST, 0, s, code(h2.REFUSED_STREAM)), BROKEN),
    ("wants HTTP/1.1", lambda s: frame(RST, 0, s, code(h2.HTTP_1_1_REQUIRED)), BROKEN),
    ("goes away before the request", lambda s: goaway(0), BROKEN),
    ("goes away in anger", lambda s: goaway(0, 11), BROKEN),
    ("never ends the body", lambda s: head(s) + frame(DATA, 0, s, b"abc"), {Reason.DEADLINE}),
    ("never answers", lambda s: b"", {Reason.DEADLINE}),
]  # fmt: skip


@pytest.mark.parametrize(("frames", "reasons"), [pytest.param(frames, reasons, id=name) for name, frames, reasons in CASES])
@pytest.mark.parametrize("reuse", [False, True], ids=["new", "kept"])
def test_bad_frames_end_the_exchange_with_their_reason(frames: Frames, reasons: set[Reason], reuse: bool) -> None:
    def answer(connection: ssl.SSLSocket, stream: int) -> None:
        connection.sendall(frames(stream))

    with serve_frames(answer) as server:
        asked = request(server.port, scheme="https", timeout_s=1.5, reuse=reuse)
        [response] = fetch_all([asked], limits=FetchLimits(verify_tls=False))
        assert response.reason in reasons, (response.reason, response.detail)
        assert response.contacted and server.requests == 1
        if response.reason == Reason.NONE:
            assert (response.status, response.header("x")) == (200, "") and response.body in (b"abc", b"aaa", b"")
        else:
            assert response.body == b""


def test_stream_that_is_refused_on_a_kept_connection_is_not_requested_again() -> None:
    def answer(connection: ssl.SSLSocket, stream: int) -> None:
        good = head(stream) + frame(DATA, END_STREAM, stream, b"abc")
        connection.sendall(good if stream == 1 else frame(RST, 0, stream, code(h2.REFUSED_STREAM)))

    with serve_frames(answer) as server:
        asked = request(server.port, scheme="https", reuse=True)
        first, second = fetch_all([asked, asked], limits=FetchLimits(verify_tls=False))
        assert first.body == b"abc"
        assert second.reason != Reason.NONE and second.stale
        assert (server.requests, server.connections) == (2, 1)


@pytest.mark.parametrize("number", [h2.HTTP_1_1_REQUIRED, h2.REFUSED_STREAM])
@pytest.mark.parametrize("reuse", [False, True], ids=["new", "kept"])
def test_server_that_wants_http_1_gets_it_in_the_next_exchange(number: int, reuse: bool) -> None:
    """The next exchange, which comes after the delay, is in HTTP/1.1; within the first nothing is sent again."""

    def answer(connection: ssl.SSLSocket, stream: int) -> None:
        connection.sendall(frame(RST, 0, stream, code(number)))

    with serve_frames(answer) as server:
        asked = request(server.port, scheme="https", reuse=reuse)
        first, second, third = fetch_all([asked] * 3, limits=FetchLimits(verify_tls=False))
        assert first.reason != Reason.NONE and first.stale and first.contacted
        assert [(one.reason, one.body) for one in (second, third)] == [(Reason.NONE, b"old")] * 2
        assert (server.requests, server.old_requests, server.connections) == (1, 2, 3)
