"""Recorded answers in a worker: what archives do to HTTP messages, and what hostile ones do to it."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import brotli
import pytest
import zstandard

from shepherd import urls
from shepherd.formats.bucket import BucketFlag, Codec
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.reaper.document.recording import without_chunks
from shepherd.wire import messages as wire
from tests.support.driver import FOOTPRINTS, LINKS, Dispatcher, Outcome, connected, run
from tests.support.origin import serve

TIME_MS = 1_580_702_706_123
CHUNKED = "Transfer-Encoding: chunked"


def message(body: bytes, *headers: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, "Content-Type: text/html", *headers, "", ""]).encode() + body


def chunks(body: bytes, size: int = 50) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;x=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def worked_on(http: bytes, path: str = "/x", **changes: Any) -> Outcome:
    """What a worker answers to a RECORDED; nobody is contacted."""
    norm, half, site = FOOTPRINTS.of(urls.parse(f"http://a.example{path}"))
    told: dict[str, Any] = {
        "token": 1,
        "kind": Kind.PAGE,
        "url": f"http://a.example{path}",
        "norm": norm,
        "path": half,
        "site": site,
        "qkey": urls.qkey_of_address("192.0.2.7"),
        "address": "192.0.2.7",
        "weight": 9,
        "section": 0,
        "time_ms": TIME_MS,
        "http": http,
        "cut": "",
        "provenance": "WARC file x.warc",
        "alone": False,
    }

    async def one(dispatcher: Dispatcher) -> Outcome:
        await dispatcher.peer.send(wire.Recorded(**(told | changes)))
        async for answer in dispatcher.peer.messages():
            if isinstance(answer, wire.FetchResult):
                return Outcome.of(answer)
        raise AssertionError("no answer")

    with serve({}) as origin:

        async def connected_one() -> Outcome:
            async with connected(origin) as dispatcher:
                return await one(dispatcher)

        outcome = run(connected_one())
        assert origin.connections == 0
        return outcome


def test_status_headers_body_time_and_address_are_kept() -> None:
    outcome = worked_on(message(LINKS, "X-Odd:  \xfc ", "ETag: W/1"))
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    found = outcome.bucket
    assert found.attributes["S"] == b"HTTP/1.1 200 OK"
    assert found.attributes["H"] == "Content-Type: text/html\r\nX-Odd:  \xfc \r\nETag: W/1\r\n".encode()
    assert (found.attributes["A"], found.attributes["P"]) == (b"192.0.2.7", b"WARC file x.warc")
    assert found.attributes["t"] == b"A page"
    assert "m" not in found.attributes  # nobody knows
    assert (found.header.time_ms, found.body()) == (TIME_MS, LINKS)
    assert (outcome.record["start_ms"], outcome.record["end_ms"], outcome.record["download_ms"]) == (TIME_MS, TIME_MS, 0)
    assert outcome.hrefs == ["http://a.example/one", "https://b.example/two?y=2"]


@pytest.mark.parametrize("body", [chunks(LINKS), LINKS])
def test_body_that_is_chunked_or_only_says_so_is_read(body: bytes) -> None:
    assert worked_on(message(body, CHUNKED)).bucket.body() == LINKS


def test_message_that_ends_inside_a_chunk_is_truncated() -> None:
    outcome = worked_on(message(chunks(LINKS)[:120], CHUNKED))
    assert JournalFlag.TRUNCATED in outcome.flags
    assert outcome.bucket.attributes["X"] == b"incomplete"
    assert LINKS.startswith(outcome.bucket.body())


@pytest.mark.parametrize(
    ("coding", "pack", "codec"),
    [
        ("gzip", gzip.compress, Codec.GZIP_SENT),
        ("br", brotli.compress, Codec.BR_SENT),
        ("zstd", zstandard.compress, Codec.ZSTD_SENT),
        ("deflate", zlib.compress, Codec.DEFLATE_SENT),
    ],
)
def test_content_coding_counts_unless_the_archive_has_undone_it(coding: str, pack: Any, codec: Codec) -> None:
    body = LINKS * 3
    kept = worked_on(message(chunks(pack(body)), CHUNKED, f"Content-Encoding: {coding}")).bucket
    assert (kept.header.codec, kept.body()) == (codec, body)
    undone = worked_on(message(body, f"Content-Encoding: {coding}")).bucket
    assert undone.header.codec in (Codec.NONE, Codec.LZ4)
    assert (undone.body(), undone.attributes["t"]) == (body, b"A page")


def test_broken_gzip_is_a_decoding_error() -> None:
    packed = bytearray(gzip.compress(LINKS * 9))
    packed[40] ^= 255
    assert worked_on(message(bytes(packed), "Content-Encoding: gzip")).verdict == (Result.HARD, Reason.DECODING)


def test_reason_why_a_record_was_cut_is_kept() -> None:
    found = worked_on(message(LINKS), cut="time").bucket
    assert found.attributes["X"] == b"time"
    assert found.header.flags & BucketFlag.TRUNCATED


def test_interim_answer_is_not_the_answer() -> None:
    http = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + message(LINKS)
    assert worked_on(http).bucket.attributes["S"] == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "http",
    [
        b"",
        b"\r\n\r\n",
        LINKS,
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 99999999999 OK\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\nbody",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 600_000,
    ],
    ids=lambda http: repr(http[:40]),
)
def test_what_is_no_answer_is_malformed(http: bytes) -> None:
    outcome = worked_on(http)
    assert outcome.verdict == (Result.HARD, Reason.MALFORMED)
    assert outcome.raw.bucket == b""


def test_error_and_redirect_have_their_verdicts() -> None:
    assert worked_on(message(b"no", status="HTTP/1.0 404 Not Found")).verdict == (Result.HARD, Reason.CLIENT_ERROR)
    assert worked_on(message(b"no", status="HTTP/2 503 ")).verdict == (Result.SOFT, Reason.SERVER_ERROR)
    moved = worked_on(message(b"", "Location: /y", status="HTTP/1.1 301 Moved"))
    assert moved.verdict == (Result.REDIRECT, Reason.REDIRECT)
    assert moved.raw.location == "http://a.example/y"


def test_robots_file_is_read_up_to_its_limit() -> None:
    body = b"User-agent: *\nCrawl-delay: 7\n" + b"# comment\n" * 60_000
    outcome = worked_on(message(body), "/robots.txt", kind=Kind.ROBOTS)
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert outcome.record["crawl_delay_ms"] == 7_000
    assert outcome.bucket.header.plain_bytes == 500 * 1024


def test_page_that_needs_a_process_of_its_own_is_parsed() -> None:
    assert worked_on(message(b"x" * 3_000_000)).bucket.header.plain_bytes == 3_000_000
    assert worked_on(message(LINKS), alone=True).bucket.body() == LINKS


@pytest.mark.parametrize(
    "body", [b"", b"0\r\n\r\n", b"zz\r\n", b"5\r\nabc", b"3\nabc\n0\n\n", b"-3\r\nabc\r\n", b"3\r\nabc\r\nzz"]
)
def test_odd_chunks_do_not_raise(body: bytes) -> None:
    found, _whole = without_chunks(body)
    assert found in (body, b"abc", b"")
