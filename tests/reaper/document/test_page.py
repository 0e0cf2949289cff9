"""The outcome of the answers of servers: records, buckets, contributions."""

from __future__ import annotations

import gzip
import hashlib
import random
import socket
import time
from email.utils import formatdate

import numpy as np
import pytest

from shepherd import urls
from shepherd.filters import parse_filter
from shepherd.formats.bucket import BucketFlag, Codec
from shepherd.formats.tables import NO_OID, NO_ROW, ContribFlag, JournalFlag, Kind, Reason, Result
from shepherd.reaper.document.simhash import simhash
from shepherd.reaper.fetch.exchange import retry_after_s
from shepherd.reaper.process import parsing
from shepherd.sections import Section
from tests.support.driver import FILTER, FOOTPRINTS, HTML, LINKS, digest_of, gather
from tests.support.origin import hang, ok, reset


def test_a_page_becomes_a_record_a_bucket_and_contributions() -> None:
    outcome = gather(ok(LINKS, HTML))
    record = outcome.record
    norm, path, site = FOOTPRINTS.of(urls.parse("http://a.example/x"))
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert (record["norm"], record["path"], record["site"], record["answered"]) == (norm, path, site, site)
    assert (record["status"], record["kind"], record["section"], record["hops"]) == (200, Kind.PAGE, 3, 2)
    assert (record["oid"], record["plan_row"], record["qkey"]) == (NO_OID, NO_ROW, urls.qkey_of_address("127.0.0.1"))
    assert record["digest"] == digest_of(LINKS)
    assert record["body_bytes"] == len(LINKS) < record["wire_bytes"]
    assert record["stored_bytes"] == len(outcome.raw.bucket)
    assert 0 < record["start_ms"] < record["start_ms"] + record["download_ms"] <= record["end_ms"] + 1
    assert outcome.flags == JournalFlag.CONTACTED

    stored = outcome.bucket
    assert (stored.header.site, stored.header.path, stored.header.state) == (site, path, 9)
    assert stored.header.time_ms == record["end_ms"]
    assert (stored.body(), stored.header.plain_bytes) == (LINKS, len(LINKS))
    assert stored.url == "http://a.example/x"
    assert stored.attributes["S"] == b"HTTP/1.1 200 OK"
    assert HTML.encode() in stored.attributes["H"]
    assert stored.attributes["T"] == b"text/html"
    assert stored.attributes["C"] == b"utf-8"
    assert stored.attributes["t"] == b"A page"
    assert stored.attributes["D"] == hashlib.sha256(LINKS).digest()
    assert stored.attributes["A"] == b"127.0.0.1"
    assert int.from_bytes(stored.attributes["m"], "little") == record["download_ms"]

    links = outcome.links
    assert outcome.hrefs == ["http://a.example/one", "https://b.example/two?y=2"]
    for at, href in enumerate(outcome.hrefs):
        assert (links.norm[at], links.path[at], links.site[at]) == FOOTPRINTS.of(urls.parse(href))
    assert links.flags.tolist() == [0, ContribFlag.HTTPS]
    assert links.parent_weight.tolist() == [1234, 1234]
    assert (links.parents_site.tolist(), links.parents_path.tolist(), links.parent.tolist()) == ([site], [path], [0, 0])
    assert links.filter_version == parse_filter(FILTER).version
    pairs = np.frombuffer(stored.attributes["L"], "<u8").reshape(-1, 2)
    assert pairs.tolist() == [[int(n), int(p)] for n, p in zip(links.norm, links.path, strict=True)]


def test_bucket_records_language_wishes_canonical_time_and_simhash() -> None:
    page = b"<html lang=de><link rel=canonical href='/y?utm_x=1'><meta name=robots content=noindex><p>words that are long enough"
    stored = gather(ok(page, HTML, "Last-Modified: Fri, 02 Jan 2026 03:04:05 GMT", "X-Robots-Tag: nofollow")).bucket
    assert (stored.attributes["l"], stored.attributes["N"]) == (b"de", b"noindex nofollow")
    assert stored.attributes["K"] == b"http://a.example/y"
    assert int.from_bytes(stored.attributes["M"], "little") == 1_767_323_045_000
    assert int.from_bytes(stored.attributes["h"], "little") == simhash(b"words that are long enough")
    bare = gather(ok(b"<p>a", HTML, "Last-Modified: yesterday", "Content-Language: en")).bucket
    assert not set("NKMh") & bare.attributes.keys()
    assert bare.attributes["l"] == b"en"


def test_canonical_of_a_header_is_flagged_and_contributed() -> None:
    outcome = gather(ok(b"%PDF-1.4", "Content-Type: application/pdf", 'Link: <https://c.example/main>; rel="canonical"'))
    assert JournalFlag.ELSEWHERE in outcome.flags
    assert outcome.hrefs == ["https://c.example/main"]
    assert outcome.bucket.attributes["K"] == b"https://c.example/main"


def test_a_sitemap_becomes_contributions_with_their_times() -> None:
    body = b"""<urlset><url><loc>http://A.example/one?utm_x=1</loc><lastmod>2026-01-02</lastmod></url>
    <url><loc>https://b.example</loc></url><url><loc>http://a.example/x.jpg</loc></url></urlset>"""
    for reply in (ok(body, "Content-Type: text/xml"), ok(gzip.compress(body), "Content-Type: application/x-gzip")):
        outcome = gather(reply)
        assert outcome.hrefs == ["http://a.example/one", "https://b.example/"]
        assert outcome.links.lastmod.tolist() == [1_767_312_000, 0]


def test_requisites_are_contributed_where_configured_and_flagged() -> None:
    page = b"<meta name=robots content=nofollow><img src=/i.png><img src=/j.jpg><script src=//b.example/s.js></script><a href=/1>"
    assert gather(ok(page, HTML)).raw.links == b""
    outcome = gather(ok(page, HTML), hello={"settings": {"requisites": True}})
    assert outcome.hrefs == ["http://a.example/i.png", "http://b.example/s.js"]
    assert outcome.links.flags.tolist() == [ContribFlag.REQUISITE] * 2
    both = gather(ok(b"<img src=/i.png><a href=/i.png><img src=/k.png>", HTML), hello={"settings": {"requisites": True}})
    assert dict(zip(both.hrefs, both.links.flags.tolist(), strict=True)) == {
        "http://a.example/i.png": 0,
        "http://a.example/k.png": ContribFlag.REQUISITE,
    }


def test_sitemaps_of_a_robots_file_are_contributed_and_bounded() -> None:
    lines = "".join(f"Sitemap: https://b.example/{n}.xml\n" for n in range(1_100))
    body = f"Sitemap: /s.xml?utm_x=1\nUser-agent: *\nCrawl-delay: 3\n{lines}".encode()
    outcome = gather(ok(body, "Content-Type: text/plain"), kind=Kind.ROBOTS)
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert outcome.record["crawl_delay_ms"] == 3_000
    assert outcome.hrefs[:2] == ["http://a.example/s.xml", "https://b.example/0.xml"]
    assert len(outcome.hrefs) == 1_000
    assert outcome.links.parents_site.tolist() == [outcome.record["site"]]
    again = gather(ok(body, "Content-Type: text/plain"), kind=Kind.ROBOTS, digest=digest_of(body))
    assert again.verdict == (Result.UNCHANGED, Reason.UNCHANGED)
    assert again.raw.links == b""


def test_a_body_that_came_compressed_is_stored_as_it_was_sent() -> None:
    sent = gzip.compress(LINKS)
    outcome = gather(ok(sent, HTML, "Content-Encoding: gzip"))
    stored = outcome.bucket
    assert (stored.header.codec, stored.stored, stored.header.plain_bytes) == (Codec.GZIP_SENT, sent, len(LINKS))
    assert stored.body() == LINKS
    assert outcome.record["digest"] == digest_of(LINKS)
    assert len(outcome.hrefs) == 2


def test_a_body_that_came_plain_is_compressed_as_configured() -> None:
    body = b"<p>" + b"the same words again " * 1000
    for compress, codec in (("lz4", Codec.LZ4), ("zstd", Codec.ZSTD), ("none", Codec.NONE)):
        stored = gather(ok(body, HTML), hello={"settings": {"compress": compress}}).bucket
        assert (stored.header.codec, stored.body()) == (codec, body)


def test_an_empty_success_is_still_a_document() -> None:
    for reply in (ok(b"", HTML), ok(gzip.compress(b""), HTML, "Content-Encoding: gzip"), ok(b"", status="204 No Content")):
        outcome = gather(reply)
        assert outcome.verdict == (Result.STORED, Reason.GATHERED)
        assert (outcome.bucket.body(), outcome.bucket.header.plain_bytes, outcome.raw.links) == (b"", 0, b"")


def test_the_same_body_again_is_unchanged_and_costs_no_bucket() -> None:
    outcome = gather(ok(LINKS, HTML), digest=digest_of(LINKS))
    assert outcome.verdict == (Result.UNCHANGED, Reason.UNCHANGED)
    assert (outcome.raw.bucket, outcome.raw.links) == (b"", b"")
    assert outcome.record["digest"] == digest_of(LINKS) and outcome.contacted


def test_a_304_is_unchanged_only_if_we_asked_conditionally() -> None:
    reply = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    asked = gather(reply, etag='"e"', digest=77)
    assert asked.verdict == (Result.UNCHANGED, Reason.UNCHANGED) and asked.record["digest"] == 77
    assert gather(reply, digest=77).verdict == (Result.HARD, Reason.MALFORMED)


def test_a_truncated_body_is_kept_and_marked_in_record_and_bucket() -> None:
    body = LINKS + b"<p>" + b"words " * 20_000
    outcome = gather(ok(body, HTML), hello={"settings": {"body_bytes": 10_000}})
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert JournalFlag.TRUNCATED in outcome.flags
    assert outcome.bucket.header.flags == BucketFlag.TRUNCATED
    assert outcome.bucket.attributes["X"] == b"length"
    assert outcome.bucket.body() == body[:10_000]
    assert len(outcome.hrefs) == 2


def test_a_compressed_body_that_is_truncated_is_stored_as_far_as_it_decodes() -> None:
    noise = random.Random(1).randbytes(60_000).hex().encode()
    outcome = gather(ok(gzip.compress(LINKS + noise), HTML, "Content-Encoding: gzip"), hello={"settings": {"body_bytes": 20_000}})
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert JournalFlag.TRUNCATED in outcome.flags
    body = outcome.bucket.body()
    assert len(LINKS) < len(body) < len(LINKS + noise) and (LINKS + noise).startswith(body)
    assert outcome.bucket.header.codec in (Codec.NONE, Codec.LZ4)


def test_a_compressed_body_that_the_server_cut_short_is_kept_and_marked() -> None:
    outcome = gather(ok(gzip.compress(LINKS)[:-12], HTML, "Content-Encoding: gzip"))
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert outcome.bucket.attributes["X"] == b"incomplete"
    assert LINKS.startswith(outcome.bucket.body())
    nothing = gather(ok(gzip.compress(LINKS)[:12], HTML, "Content-Encoding: gzip"))
    assert nothing.verdict == (Result.HARD, Reason.DECODING)


def test_a_bomb_is_cut_at_the_limit_of_decoded_bytes() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    outcome = gather(
        ok(bomb, HTML, "Content-Encoding: gzip"), hello={"settings": {"decoded_bytes": 2 << 20, "body_bytes": 1 << 20}}
    )
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    assert JournalFlag.TRUNCATED in outcome.flags
    assert outcome.bucket.attributes["X"] == b"expansion"
    assert outcome.record["body_bytes"] == outcome.bucket.header.plain_bytes == 2 << 20
    assert len(outcome.raw.bucket) < 1 << 20


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, gzip", "rot13"])
def test_a_body_that_does_not_decode_is_a_hard_error(coding: str) -> None:
    outcome = gather(ok(b"this is not compressed at all", HTML, f"Content-Encoding: {coding}"))
    assert outcome.verdict == (Result.HARD, Reason.DECODING)
    assert outcome.contacted and outcome.raw.bucket == b""


def test_a_large_page_keeps_all_of_its_links() -> None:
    body = b"".join(b'<a href="/%d">%s</a>\n' % (n, b"x" * 300) for n in range(6000))
    assert len(body) > parsing.INLINE_BYTES
    for reply in (ok(body, HTML), ok(gzip.compress(body), HTML, "Content-Encoding: gzip")):
        outcome = gather(reply)
        assert len(outcome.links) == 6000
        assert len(outcome.bucket.attributes["L"]) == 256 * 16
        assert outcome.bucket.body() == body


def test_links_stop_at_the_limit_of_a_page() -> None:
    body = b"".join(b'<a href="/%d">x</a>' % n for n in range(100))
    assert len(gather(ok(body, HTML), hello={"settings": {"links_per_page": 7}}).links) == 7


def test_nofollow_gives_no_contributions_and_noindex_is_only_noted() -> None:
    by_meta = gather(ok(b'<meta name="robots" content="noindex, nofollow">' + LINKS, HTML))
    by_header = gather(ok(LINKS, HTML, "X-Robots-Tag: noindex", "X-Robots-Tag: nofollow"))
    for outcome in (by_meta, by_header):
        assert outcome.verdict == (Result.STORED, Reason.GATHERED)
        assert JournalFlag.NOINDEX in outcome.flags
        assert outcome.raw.links == b""


def test_a_canonical_link_elsewhere_is_flagged_and_contributed() -> None:
    outcome = gather(ok(b'<link rel="canonical" href="https://c.example/main">' + LINKS, HTML))
    assert JournalFlag.ELSEWHERE in outcome.flags
    assert sorted(outcome.hrefs) == ["http://a.example/one", "https://b.example/two?y=2", "https://c.example/main"]
    flags = dict(zip(outcome.hrefs, outcome.links.flags.tolist(), strict=True))
    assert flags["https://c.example/main"] == ContribFlag.CANONICAL | ContribFlag.HTTPS
    assert flags["http://a.example/one"] == 0


def test_base_moves_links_and_the_canonical_link() -> None:
    page = b'<base href="https://d.example/in/"><link rel="canonical" href="main"><a href="other">1</a>'
    outcome = gather(ok(page, HTML))
    assert sorted(outcome.hrefs) == ["https://d.example/in/main", "https://d.example/in/other"]
    assert gather(ok(b'<base href="http://"><a href="/other">1</a>', HTML)).hrefs == ["http://a.example/other"]


def test_a_canonical_link_to_the_page_or_its_equivalent_is_ignored() -> None:
    for href in ("/x", "https://www.a.example/x", "http://a.example/x#part", "photo.jpg", "ftp://c.example/"):
        outcome = gather(ok(f'<link rel="canonical" href="{href}">'.encode(), HTML))
        assert JournalFlag.ELSEWHERE not in outcome.flags, href


@pytest.mark.parametrize(
    ("status", "flag"),
    [(301, ContribFlag.PERMANENT), (308, ContribFlag.PERMANENT), (302, 8), (303, 8), (307, ContribFlag.TEMPORARY)],
)
def test_a_redirect_is_a_thin_bucket_and_one_contribution(status: int, flag: int) -> None:
    outcome = gather(ok(b"moved", "Location: https://b.example/new?utm_a=1#part", status=f"{status} Moved"))
    assert outcome.verdict == (Result.REDIRECT, Reason.REDIRECT)
    assert outcome.raw.location == "https://b.example/new"
    assert outcome.hrefs == ["https://b.example/new"]
    assert outcome.links.flags.tolist() == [flag | ContribFlag.HTTPS]
    assert (JournalFlag.PERMANENT in outcome.flags) == (flag == ContribFlag.PERMANENT)
    stored = outcome.bucket
    assert stored.attributes["E"] == b"https://b.example/new?utm_a=1"
    assert stored.attributes["S"] == f"HTTP/1.1 {status} Moved".encode()
    assert stored.stored == b""


@pytest.mark.parametrize("location", ["http://", "javascript:alert(1)", "/photo.jpg", "http://u:p@b.example/"])
def test_a_redirect_to_nowhere_we_would_go_is_still_recorded(location: str) -> None:
    outcome = gather(ok(b"", f"Location: {location}", status="302 Found"))
    assert outcome.verdict == (Result.REDIRECT, Reason.REDIRECT)
    assert (outcome.raw.location, outcome.raw.links) == ("", b"")
    assert outcome.bucket.attributes["E"]


def test_a_location_in_utf8_is_read_as_such() -> None:
    reply = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: /\xc3\xa9\r\n\r\n"
    assert gather(reply).raw.location == "http://a.example/%C3%A9"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (404, (Result.HARD, Reason.CLIENT_ERROR)),
        (410, (Result.HARD, Reason.CLIENT_ERROR)),
        (403, (Result.HARD, Reason.CLIENT_ERROR)),
        (429, (Result.SOFT, Reason.SERVER_ERROR)),
        (500, (Result.SOFT, Reason.SERVER_ERROR)),
        (503, (Result.SOFT, Reason.SERVER_ERROR)),
        (300, (Result.HARD, Reason.MALFORMED)),
        (999, (Result.HARD, Reason.MALFORMED)),
    ],
)
def test_every_status_has_its_verdict(status: int, verdict: tuple[Result, Reason]) -> None:
    outcome = gather(ok(b"no", status=f"{status} No"))
    assert outcome.verdict == verdict
    assert (outcome.record["status"], outcome.contacted, outcome.raw.bucket) == (status, True, b"")


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    assert gather(ok(b"", "Retry-After: 120", status="429 Slow down")).record["retry_after_s"] == 120
    assert retry_after_s(formatdate(1_000_100, usegmt=True), 1_000_000_000) == 101
    assert retry_after_s(formatdate(5, usegmt=True), 1_000_000_000) == 0
    assert retry_after_s("9" * 50, 0) == 0xFFFFFFFF
    for text in ("", "soon", "-5", "1.5", "\u0663", "Fri, 99 Foo 2026", "0" * 5000):
        assert retry_after_s(text, 0) == 0


def test_failures_of_the_exchange_have_their_verdicts() -> None:
    for reply, verdict in (
        (reset, (Result.CONNECTION, Reason.CONNECTION)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", (Result.HARD, Reason.MALFORMED)),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n", (Result.HARD, Reason.MALFORMED)),
    ):
        outcome = gather(reply)
        assert outcome.verdict == verdict
        assert outcome.contacted


def test_a_slow_body_ends_at_the_deadline_of_the_request() -> None:
    def slow(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        hang(connection)

    outcome = gather(slow, deadline_ms=time.time_ns() // 1_000_000 + 400)
    assert outcome.verdict == (Result.SOFT, Reason.DEADLINE)
    assert outcome.contacted and outcome.raw.bucket == b""


def test_document_is_counted_in_its_section() -> None:
    assert gather(ok(b"%PDF-1.7", "Content-Type: application/pdf"), section=0).record["section"] == Section.PDF
    assert gather(ok(LINKS, HTML), section=40).record["section"] == 40
    rules = f"{FILTER}section feed prefix http://a.example/\n"
    hello = {"filter": rules, "filter_version": parse_filter(rules).version}
    by_line = gather(ok(LINKS, HTML), hello=hello, section=40)
    assert by_line.record["section"] == Section.FEED
    assert by_line.links.section.tolist() == [Section.FEED, Section.NONE]


def parsed_at(threshold_s: float, body: bytes, monkeypatch: pytest.MonkeyPatch) -> JournalFlag:
    monkeypatch.setattr(parsing, "COSTLY_S", threshold_s)
    outcome = gather(ok(body, HTML))
    assert outcome.verdict == (Result.STORED, Reason.GATHERED)
    return outcome.flags


@pytest.mark.parametrize("size", [100, parsing.INLINE_BYTES + 1], ids=["in the worker", "in a child"])
def test_record_says_that_a_page_has_cost_much(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"x" * size
    assert parsed_at(0.0, body, monkeypatch) == JournalFlag.CONTACTED | JournalFlag.COSTLY
    assert parsed_at(1e9, body, monkeypatch) == JournalFlag.CONTACTED
