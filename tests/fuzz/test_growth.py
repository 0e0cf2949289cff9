"""Work grows with the bytes that a stranger sends, not with their square: every parser and printer, on every shape that hurts.

Each is fed a shape of some length, and of four times that length. Of CPU time that may take six times as much; a square takes
sixteen. Who adds a parser adds it to the table: `test_parser_stands_in_the_table` finds those that are missing.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from shepherd import dates, lines, robots, text, urls
from shepherd.console import readable
from shepherd.errors import ShepherdError
from shepherd.export import safe_names
from shepherd.formats import cdxj, coding, feedback, httphead, oldbuckets, warc
from shepherd.formats.tables import Reason
from shepherd.importing import judge, warc_file
from shepherd.reaper.document import (
    charset,
    extract,
    headers,
    html_page,
    json_feed,
    recording,
    requisites,
    scan,
    simhash,
    sitemap,
    sniff,
    visible_text,
)
from shepherd.reaper.fetch import exchange
from shepherd.reaper.fetch.exchange import ExtractOptions
from shepherd.reaper.fetch.response import Response
from shepherd.report import spelling
from shepherd.urls import Footprints

MOST: Final = 6.0  # times the CPU for four times the bytes
LENGTHS: Final = ((1 << 14, 1 << 16), (1 << 16, 1 << 18))  # the second pair is for what grows too much between the first
LARGE: Final = {
    "scan.is_tame": ((1 << 16, 1 << 18), (1 << 18, 1 << 20)),  # it looks closer at pages of more than 128 KiB
    "recording.exchange_of": ((1 << 18, 1 << 20), (1 << 20, 1 << 22)),  # to copy what follows a head is quick, but a square
    "recording.without_chunks": ((1 << 18, 1 << 20), (1 << 20, 1 << 22)),
}
CHEAP_S: Final = 0.004  # of CPU for the longest: a square of its bytes costs a hundred times that
ROUNDS: Final = 3

# --- shapes -----------------------------------------------------------------------------------------------------------
# A beginning, what is repeated, and an end.
Shape = tuple[str, str, str]

MARKUP: Final[tuple[Shape, ...]] = (
    ("", "<", ""),
    ("", "<a", ""),
    ("", "<a ", ""),
    ("<a" * 2_000, "x", ""),
    ("<a ", "b=c ", ""),
    ("", "<a b='", ""),
    ("", "<a b=\"'", ""),
    ("<a", " ", "b"),
    ("<a ", "= ", ""),
    ("<a ", "/", ""),
    ("", "<a b='>' ", ">"),
    ("", "</", ""),
    ("", "</a", ""),
    ("", "<!", ""),
    ("", "<!-", ""),
    ("", "<!--", ""),
    ("<!--", "-", ""),
    ("<!--", "--!", ""),
    ("", "<?", ""),
    ("", "<![CDATA[", ""),
    ("", "]]>", ""),
    ("", "<script>", ""),
    ("<script>", "</scrip", ""),
    ("<script>", "<!--<script>", ""),
    ("<style>", "</style ", ""),
    ("<title>", "</titl", ""),
    ("", "<svg><style>", ""),
    ("", "<p><b>", ""),
    ("", "<table>", ""),
    ("", "<select><option>", ""),
    ("", "<template>", ""),
    ("", "<meta charset", ""),
    ("<meta ", "charset", ">"),
    ("<meta http-equiv=refresh content='", "0 ", "'>"),
    ("<base href='", "/..", "'>"),
    ("<a href='", "&amp", "'>"),
    ("<a href='&#", "5", ";'>"),
    ("<p>&#x", "f", ";"),
    ("<p>", "&#", ""),
    ("<p>", "&notit;", ""),
    ("<p>", "\0", ""),
    ("<p>", "\ufffd", ""),
    ("<html lang='", "a-", "'>"),
    ("<img srcset='x, ", "(y, ", "'>"),
    ("<p>", "</p>", ""),
    ("", "<a href=/x>x</a>", ""),
)
STYLES: Final[tuple[Shape, ...]] = (
    ("", "url(", ""),
    ("", 'url("', ""),
    ("", "url('\"", ""),
    ("url(", " ", ""),
    ("url(", "\\", ")"),
    ("url(", "\\a ", ")"),
    ("", "@import", ""),
    ("", "@import ", ""),
    ("@import", " ", ""),
    ("", "@import 'url(\"", ""),
    ("", "/*", ""),
    ("/*", "*", ""),
    ("", "a{url(x/*", ""),
    ("", "(", ""),
)
SRCSETS: Final[tuple[Shape, ...]] = (
    ("x, ", "(y, ", ""),
    ("x ", "(", ""),
    ("x ", "(a ", ""),
    ("", ",", ""),
    ("", ", ", ""),
    ("", " ", ""),
    ("x", " ", ""),
    ("", "a 1x, ", ""),
    ("", "a ( ", ""),
)
FIELDS: Final[tuple[Shape, ...]] = (
    ("", " ", ""),
    ("", "\t", "x"),
    ("text/html; charset=", " ", ""),
    ("", "charset=", ""),
    ("", "charset ", ""),
    ("text/", "a", ""),
    ("", "a/", ""),
    ("", "<", ""),
    ("<", "x", ""),
    ("", "<a>;", ""),
    ("<a>", ";", ""),
    ("<a>", "; rel", ""),
    ("<a>", '; rel="', ""),
    ("<a>", "; rel=x", ""),
    ("<a>;", " ", ""),
    ("", '<a>; rel=",', ""),
    ("", '<a>; title="x", ', ""),
    ("", "noindex,", ""),
    ("", "noindex\n", ""),
    ("", "a:", ""),
    ("", "a:\n", ""),
    ("", "en-", ""),
    ("", "en,", ""),
    ("", "9", ""),
    ("", "Mon, ", ""),
    ("", "1 ", ""),
    ("", "1:", ""),
    ("Mon, 01 Jan 2024 ", "0", ":00:00 GMT"),
    ("2024-01-01T00:00:00.", "0", ""),
    ("", "(", ""),
    ("", "-", ""),
    ("", "+", ""),
    ("", ",", ""),
    ("", "gzip, ", ""),
)
HEADS: Final[tuple[Shape, ...]] = (
    ("", "\r\n", ""),
    ("", "\n", ""),
    ("", "\r", ""),
    ("", "Content-Length: 99999999999999\r\n", ""),
    ("Content-Length: ", "9", "\r\n"),
    ("Content-Length", " ", ""),
    ("", "content-length", ""),
    ("", "\ncontent-encoding", ""),
    ("", "a: b\n", ""),
    ("", "a", ""),
    ("", ":", ""),
    ("", "Set-Cookie: a=b; path=/; expires=", "\r\n"),
    ("", " folded\r\n", ""),
)
MESSAGES: Final[tuple[Shape, ...]] = (
    ("", "HTTP/1.1 100 Continue\r\n\r\n", ""),
    ("", "HTTP/1.1 100 C\n\n", "HTTP/1.1 200 OK\r\n\r\n"),
    ("", "HTTP/1.1 100\r\na: b\r\n\r\n", ""),
    ("HTTP/1.1", " ", ""),
    ("HTTP/1.1 200", " ", "\r\n\r\n"),
    ("HTTP/1.1 200 OK\r\n", "a: b\r\n", ""),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", ""),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;", ""),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0", ""),
    ("HTTP/1.1 200 OK\r\n", "Transfer-Encoding: chunked\r\n", "\r\n1\r\nx"),
    ("HTTP/1.1 200 OK\r\n", "Content-Encoding: gzip\r\n", "\r\nx"),
)
XML: Final[tuple[Shape, ...]] = (
    ("", "<", ""),
    ("", " ", "<rss>"),
    ("", "<?xml ", ""),
    ("<?xml ", "?", ""),
    ("", "<!--", ""),
    ("", "<!-- -->", "<rss>"),
    ("", "<!DOCTYPE ", ""),
    ("<?xml version='1.0' encoding='", "a", "'?>"),
    ("<urlset>", "<url><loc>http://a.example/</loc></url>", "</urlset>"),
    ("<urlset><url>", "<loc>x</loc>", ""),
    ("<urlset><url><loc>", "x", ""),
    ("<urlset><url><loc>", "&amp;", ""),
    ("<urlset>", "<a>", ""),
    ("<urlset a='", "x", ""),
    ("<urlset ", "a='x' ", ">"),
    ("<urlset>", "<![CDATA[", ""),
    ("<urlset>", "]]>", ""),
    ("<urlset>", "<a b='", ""),
    ("<feed>", "<entry><link href='x'/>", ""),
    ("<rss>", "<item><pubDate>Mon, 1</pubDate></item>", ""),
)
JSON: Final[tuple[Shape, ...]] = (
    ("", "[", ""),
    ('{"items":', "[", ""),
    ("", '{"items":', ""),
    ('{"version":"https://jsonfeed.org/version/1","items":[', '{"url":"x"},', "{}]}"),
    ('{"a":', "9", "}"),
    ('{"a":"', "\\u0000", '"}'),
    ("{", '"a":1,', '"b":2}'),
    ('{"title":"', " ", '"}'),
)
ROBOTS: Final[tuple[Shape, ...]] = (
    ("", "User-agent: *\n", ""),
    ("User-agent: *\n", "Disallow: /*a*a*a*$\n", ""),
    ("User-agent: *\nDisallow: /", "*", "\n"),
    ("User-agent: *\nDisallow: /", "a*", "\n"),
    ("User-agent: *\n", "Allow: /%41\n", ""),
    ("User-agent: *\n", "Crawl-delay: 9\n", ""),
    ("User-agent: *\nCrawl-delay: ", "9", "\n"),
    ("", "Sitemap: x\n", ""),
    ("", "#", ""),
    ("", ":", ""),
    ("", "\r", ""),
    ("", " ", ""),
    ("", "user agent", ""),
    ("", "\ufeff", ""),
)
ADDRESSES: Final[tuple[Shape, ...]] = (
    ("http://", "a", "/"),
    ("http://", "@", "/"),
    ("http://", "a:", "@b/"),
    ("http://", ":", ""),
    ("http:", "/", ""),
    ("", "a:", "@"),
    ("a:", "1", "@"),
    ("", "/", "@"),
    ("", " ", ":@"),
    ("", "a", ":"),
    ("http://a/", "../", ""),
    ("http://a/", "%2e/", ""),
    ("http://a/", "%", ""),
    ("http://a/", "/", ""),
    ("http://a/?", "&", ""),
    ("http://a/?", "sid=", ""),
    ("http://a/?", "cfid=", ""),
    ("http://a/.aspx", "/(a(", ""),
    ("http://[", ":", "]/"),
    ("http://", "xn--", "/"),
    ("http://", "\u00e9.", "/"),
    ("", "\n", ""),
    ("", "\x1b[", ""),
    ("", "\u202e", ""),
    ("", "#", ""),
    ("", "a #", ""),
)
BUCKETS: Final[tuple[Shape, ...]] = (
    ("Ua\n", "Bx\n", ""),
    ("Ua\n", "B\n", "bx\n"),
    ("", "Ua\n", "\n"),
    ("", "B", ""),
    ("D", "ab", "\n\n"),
    ("D", "9", "\n\n"),
    ("", "\n", ""),
)
WARCS: Final[tuple[Shape, ...]] = (
    ("", "WARC/1.0", ""),
    ("", "WARC/1.0\r\n", ""),
    ("", "WARC/1.0\r\n\r\n", ""),
    ("", "WARC/1.0\r\nContent-Length: 99999999999999\r\n\r\n", ""),
    ("", "WARC/1.0\r\nContent-Length: 9999\r\n\r\n", ""),
    ("", "WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 1\r\n\r\n", ""),
    ("", "WARC/1.0\r\nContent-Length: 0\r\n\r\n\r\n\r\n", ""),
    ("WARC/1.0\r\n", "Content-Length: 99999999999999\r\n", ""),
    ("WARC/1.0\r\n", "a: b\r\n", "\r\n"),
    ("WARC/1.0\r\na:", "b", "\r\n\r\n"),
    ("", "\r\n", ""),
    ("", "\x1f\x8b\x08", ""),
    ("", "\x1f\x8b\x08\0\0\0\0\0\0\x03", ""),
    ("", "WARC", ""),
    ("", "x", ""),
)

# --- parsers ----------------------------------------------------------------------------------------------------------

OPTIONS: Final = ExtractOptions(10_000, "shepherd", True)
FOOTPRINTS: Final = Footprints(bytes(16))
BASE: Final = "http://a.example/"
HTML: Final = headers.HeaderFacts("text/html")


def shown(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def header(data: bytes) -> str:
    return data.decode("latin-1")


def page(data: bytes) -> None:
    html_page.HtmlPage(BASE, OPTIONS.links, OPTIONS.agent, HTML, True).read(data)


def robots_of(data: bytes) -> None:
    rules = robots.parse_robots(data, "shepherd")
    rules.decide("/a" * 900)
    rules.allows("/b")


def story(data: bytes) -> None:
    address = shown(data)
    spelling.steps(address, urls.parse(address))


def warc_records(data: bytes, seekable: bool) -> None:
    stream = io.BytesIO(data)
    stream.seekable = lambda: seekable  # type: ignore[method-assign]
    for _ in warc_file.records(stream, 1 << 20):
        pass


def recorded(data: bytes) -> None:
    recording._response(_Recorded(data), _Limits())  # type: ignore[arg-type]


class _Recorded:
    kind, cut, address, provenance = 0, "", "", ""

    def __init__(self, http: bytes) -> None:
        self.http = http


class _Limits:
    header_bytes, body_bytes = 1 << 16, 1 << 26


Feed = Callable[[bytes], object]
# By the name of what is fed, with its shapes.
PARSERS: Final[dict[str, tuple[Feed, tuple[Shape, ...]]]] = {
    "charset.find_charset": (
        lambda data: (charset.find_charset(data, ""), charset.find_charset(b"", header(data))),
        MARKUP + FIELDS + XML,
    ),
    "charset.codec_of": (lambda data: charset.codec_of(header(data)), FIELDS),
    "charset.as_utf8": (lambda data: [charset.as_utf8(data, name) for name in charset._CHARSETS], MARKUP[:3] + ADDRESSES[-8:]),
    "extract.extract": (lambda data: extract.extract(data, headers.HeaderFacts(sniff.CSS), BASE, OPTIONS), STYLES),
    "html_page.HtmlPage": (page, MARKUP),
    "html_page.followed_href": (lambda data: html_page.followed_href(shown(data)), ADDRESSES),
    "headers.facts_of_headers": (
        lambda data: headers.facts_of_headers(header(data), [header(data)], [header(data)], header(data), "shepherd"),
        FIELDS,
    ),
    "headers.robots_wishes": (lambda data: headers.robots_wishes(header(data), "shepherd"), FIELDS),
    "headers.canonical_of": (lambda data: headers.canonical_of([header(data)]), FIELDS),
    "headers.language_of": (lambda data: headers.language_of(header(data)), FIELDS),
    "headers.modified_ms": (lambda data: headers.modified_ms(header(data)), FIELDS),
    "json_feed.is_feed": (lambda data: json_feed.is_feed(data, json_feed.PLAIN_TYPE), JSON),
    "json_feed.read": (json_feed.read, JSON),
    "recording.exchange_of": (recorded, MESSAGES),
    "recording.without_chunks": (recording.without_chunks, tuple(("", unit, "") for _, unit, _ in MESSAGES)),
    "requisites.of_srcset": (lambda data: list(requisites.of_srcset(shown(data))), SRCSETS),
    "requisites.of_css": (lambda data: list(requisites.of_css(shown(data))), STYLES),
    "requisites.of_tag": (lambda data: list(requisites.of_tag("img", {"srcset": shown(data), "style": shown(data)}, "")), STYLES),
    "scan.is_tame": (scan.is_tame, MARKUP),
    "scan.scan_tags": (lambda data: list(scan.scan_tags(data, all_tags=True)), MARKUP),
    "simhash.simhash": (simhash.simhash, MARKUP[:2]),
    "sitemap.is_sitemap": (sitemap.is_sitemap, XML),
    "sitemap.is_gzipped_listing": (lambda data: sitemap.is_gzipped_listing(_gzipped(data)), XML),
    "sitemap.is_url_list": (sitemap.is_url_list, ADDRESSES),
    "sitemap.read_list": (sitemap.read_list, (*ADDRESSES, ("", "http://a.example/\n", ""))),
    "sitemap.read_gzipped": (lambda data: sitemap.read_gzipped(_gzipped(data)), XML),
    "sitemap.read_xml": (sitemap.read_xml, XML),
    "sniff.media_type": (lambda data: sniff.media_type(header(data)), FIELDS),
    "sniff.content_type": (lambda data: sniff.content_type(data, "text/html"), MARKUP + XML),
    "sniff.sniff": (sniff.sniff, MARKUP + XML + JSON),
    "sniff.is_xml": (lambda data: sniff.is_xml(header(data)), FIELDS),
    "sniff.root_element": (sniff.root_element, MARKUP + XML),
    "visible_text.text_of_tags": (visible_text.text_of_tags, MARKUP),
    "robots.parse_robots": (robots_of, ROBOTS),
    "robots.rules_for": (lambda data: robots.rules_for(200, data, "shepherd"), ROBOTS),
    "robots.headings": (lambda data: robots.headings(data, "shepherd"), ROBOTS),
    "dates.seconds_of": (lambda data: dates.seconds_of(header(data)), FIELDS),
    "dates.http_seconds": (lambda data: dates.http_seconds(header(data)), FIELDS),
    "exchange.retry_after_s": (lambda data: exchange.retry_after_s(header(data), 0), FIELDS),
    "exchange.location_of": (lambda data: exchange.location_of(_response(b"Location: " + data)), FIELDS + HEADS),
    "coding.decode": (lambda data: coding.decode(data, header(data[:1_000]), 1 << 20), FIELDS),
    "judge.time_of": (lambda data: judge.time_of(header(data)), FIELDS),
    "text.escape": (lambda data: (text.escape(data), text.escape(shown(data))), ADDRESSES),
    "text.redact": (lambda data: text.redact(shown(data)), ADDRESSES),
    "text.parse_given": (lambda data: text.parse_given(shown(data)), ADDRESSES),
    "lines.WordLine": (lambda data: list(lines.WordLine.cut(shown(data), "")), ADDRESSES),
    "urls.parse": (lambda data: urls.parse(shown(data)), ADDRESSES),
    "urls.join": (lambda data: urls.join(BASE, shown(data)), ADDRESSES),
    "urls.batch": (lambda data: urls.batch(BASE, [shown(data)], FOOTPRINTS), ADDRESSES),
    "urls.is_site": (urls.is_site, ADDRESSES),
    "httphead.head": (lambda data: httphead.head(b"HTTP/1.1 200 " + data, data, 1, False), HEADS + FIELDS),
    "httphead.pairs": (httphead.pairs, HEADS),
    "httphead.fit_headers": (lambda data: httphead.fit_headers(data, 1, True), HEADS),
    "oldbuckets.read_v2": (lambda data: oldbuckets.read_v2(data, True), BUCKETS),
    "oldbuckets.read_v30": (oldbuckets.read_v30, BUCKETS),
    "cdxj.url_key": (cdxj.url_key, ADDRESSES),
    "warc.fields": (lambda data: warc.fields([("a", shown(data))]), ADDRESSES),
    "feedback.parse_line": (lambda data: feedback.parse_line(shown(data), lambda _: (0, 0)), ADDRESSES),
    "safe_names.file_path": (lambda data: safe_names.file_path(shown(data), True), ADDRESSES),
    "spelling.steps": (story, ADDRESSES),
    "readable.readable": (lambda data: readable.readable(shown(data), "text/html"), MARKUP),
    "readable.is_text": (lambda data: readable.is_text(shown(data)), FIELDS),
    "warc_file.records": (lambda data: warc_records(data, True), WARCS),
    "warc_file.records of a pipe": (lambda data: warc_records(data, False), WARCS[:5]),
}
# Modules of whose public functions each stands in the table, if it is given text or bytes.
MODULES: Final = (
    *sorted(f"shepherd.reaper.document.{path.stem}" for path in Path(extract.__file__).parent.glob("[a-z]*.py")),
    *("shepherd.robots", "shepherd.dates", "shepherd.lines", "shepherd.console.readable", "shepherd.export.safe_names"),
    *("shepherd.formats.coding", "shepherd.formats.httphead", "shepherd.formats.oldbuckets", "shepherd.importing.warc_file"),
)
ELSEWHERE: Final = {
    "outlinks.clean_href": "urls.join",
    "outlinks.distinct_links": "urls.batch",
    "outlinks.times_of": "urls.join",
    "visible_text.text_of_tree": "html_page.HtmlPage",
    "bucket.redirect_bucket": "httphead.head",  # it packs what was parsed
    "bucket.bucket_of": "httphead.head",
    "robots_rules.robots_file": "robots.parse_robots",
    "page.page_result": "extract.extract",
    "page.bodiless_result": "httphead.pairs",
    "recording.request_of": "recording.exchange_of",
}


def _gzipped(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, 1)


def _response(head: bytes) -> Response:
    return Response(Reason.NONE, "", 301, b"HTTP/1.1 301", head)


# --- growth -----------------------------------------------------------------------------------------------------------


def made(shape: Shape, length: int) -> bytes:
    before, unit, after = (part.encode("latin-1") if part.startswith("\x1f") else part.encode() for part in shape)
    return before + unit * (length // len(unit)) + after


def cpu_s(feed: Feed, data: bytes, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        with contextlib.suppress(ValueError, ShepherdError):  # it is refused
            feed(data)
        best = min(best, time.process_time() - start)
    return best


def growth(feed: Feed, shape: Shape, lengths: tuple[tuple[int, int], ...] = LENGTHS) -> float:
    """Times the CPU for four times the bytes; the least of all lengths, because at a limit another way is taken."""
    if cpu_s(feed, made(shape, lengths[0][1]), 1) < CHEAP_S:
        return 1.0
    least = float("inf")
    for short, long in lengths:
        least = min(least, cpu_s(feed, made(shape, long), ROUNDS) / cpu_s(feed, made(shape, short), ROUNDS))
        if least <= MOST:
            break
    return least


@pytest.mark.parametrize("name", PARSERS)
def test_work_grows_with_the_bytes(name: str) -> None:
    feed, shapes = PARSERS[name]
    lengths = LARGE.get(name, LENGTHS)
    complaints = [f"{shape}: {times:.1f} times" for shape in shapes if (times := growth(feed, shape, lengths)) > MOST]
    assert not complaints, "\n".join(complaints)


def test_square_is_seen() -> None:
    """Of a pattern as everybody writes it."""
    import re

    assert growth(re.compile(rb" +x").search, ("", " ", ""), ((1 << 12, 1 << 14),)) > MOST


def public_functions(module: str) -> Iterator[str]:
    """Functions and methods that are given text, bytes or a stream."""
    loaded: Any = importlib.import_module(module)
    for name, value in vars(loaded).items():
        if name.startswith("_") or not inspect.isfunction(value) or value.__module__ != module:
            continue
        given = " ".join(str(parameter.annotation) for parameter in inspect.signature(value).parameters.values())
        if any(kind in given for kind in ("bytes", "str", "Stream", "Body", "Recorded", "Exchange")):
            yield f"{module.rpartition('.')[2]}.{name}"


def test_parser_stands_in_the_table() -> None:
    found = {name for module in MODULES for name in public_functions(module)}
    assert found - PARSERS.keys() - ELSEWHERE.keys() == set(), "add these to the table, with their shapes"
    assert ELSEWHERE.keys() - found == set(), "these are gone"
    assert set(ELSEWHERE.values()) <= PARSERS.keys()
