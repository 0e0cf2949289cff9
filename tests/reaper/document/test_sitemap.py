"""Sitemaps and feeds: what they list, when it was modified, and bombs."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shepherd.dates import seconds_of
from shepherd.reaper.document import sitemap
from shepherd.reaper.document.extract import PageFacts, extract
from shepherd.reaper.document.headers import HeaderFacts
from shepherd.reaper.fetch.exchange import ExtractOptions
from tests.support import sampling

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"
URLSET = f"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="{NAMESPACE}" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1" xmlns:xhtml="http://www.w3.org/1999/xhtml">
<url><loc> http://a.example/1?a=1&amp;b=2 </loc><lastmod>2026-01-02</lastmod>
  <image:image><image:loc>http://a.example/i.png</image:loc></image:image></url>
<url><lastmod>2026-01-02T03:04:05+01:00</lastmod><loc><![CDATA[http://a.example/2]]></loc>
  <xhtml:link rel="alternate" hreflang="de" href="http://a.example/de/2"/></url>
<url><loc>http://a.example/3</loc></url>
<url><loc></loc></url>
</urlset>"""
INDEX = f"""<sitemapindex xmlns="{NAMESPACE}"><sitemap><loc>http://a.example/s1.xml.gz</loc><lastmod>2026</lastmod></sitemap>
<sitemap><loc>/s2.xml</loc></sitemap></sitemapindex>"""
RSS = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><title> News\n of sheep </title>
<link>http://a.example/</link><atom:link rel="self" href="http://a.example/feed"/>
<item><title>One</title><link>http://a.example/one</link><pubDate>Fri, 02 Jan 2026 03:04:05 GMT</pubDate><guid>http://a.example/g</guid></item>
<item><guid isPermaLink="true">http://a.example/two</guid></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><link href="http://a.example/" />
<link rel="self" href="/feed"/>
<entry><title>x</title><link rel="alternate" href="http://a.example/one"/><link rel="enclosure" href="/e.mp3"/>
<published>2025-01-01T00:00:00Z</published><updated>2026-01-02T03:04:05Z</updated></entry></feed>"""
RDF = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"
 xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><link>http://a.example/</link></channel>
<item><link>http://a.example/one</link><dc:date>2026-01-02</dc:date></item></rdf:RDF>"""
DAY = 1_767_312_000  # 2026-01-02
TIME = DAY + 3 * 3600 + 4 * 60 + 5

NEWS = {"http://a.example/": 0, "http://a.example/one": TIME, "http://a.example/two": 0}


def read(body: str | bytes, header: str = "application/xml") -> PageFacts:
    data = body if isinstance(body, bytes) else body.encode()
    return extract(data, HeaderFacts(header), "http://a.example/sitemap.xml", ExtractOptions(100))


def test_a_sitemap_lists_pages_and_their_times_and_no_pictures() -> None:
    found = read(URLSET)
    assert found.times == {
        "http://a.example/1?a=1&b=2": DAY,
        "http://a.example/2": TIME - 3600,
        "http://a.example/de/2": TIME - 3600,
        "http://a.example/3": 0,
    }
    assert found.links == list(found.times)
    assert found.content_type == "application/xml"


def test_an_index_lists_sitemaps() -> None:
    assert read(INDEX, "text/xml").times == {"http://a.example/s1.xml.gz": 1_767_225_600, "/s2.xml": 0}


@pytest.mark.parametrize(
    ("body", "header", "kind", "times"),
    [
        (
            RSS,
            "text/xml",
            "application/rss+xml",
            {"http://a.example/": 0, "http://a.example/one": TIME, "http://a.example/two": 0},
        ),
        (
            RSS,
            "text/html",
            "application/rss+xml",
            {"http://a.example/": 0, "http://a.example/one": TIME, "http://a.example/two": 0},
        ),
        (ATOM, "application/atom+xml", "application/atom+xml", {"http://a.example/": 0, "http://a.example/one": TIME}),
        (RDF, "application/rdf+xml", "application/rss+xml", {"http://a.example/": 0, "http://a.example/one": DAY}),
    ],
)
def test_feeds_list_their_entries(body: str, header: str, kind: str, times: dict[str, int]) -> None:
    found = read(body, header)
    assert (found.content_type, found.times) == (kind, times)
    assert found.title in ("News of sheep", "News", "")


def test_packed_and_plain_sitemaps() -> None:
    packed = gzip.compress(URLSET.encode())
    for header in ("application/gzip", "application/x-gzip", "application/octet-stream", ""):
        assert len(read(packed, header).links) == 4
    assert read(packed, "application/x-gzip").content_type == "application/x-gzip"
    lines = "\ufeffhttp://a.example/1\r\n\r\nhttps://a.example/2 \r\nhttp://a.example/1\r\n"
    assert read(lines, "text/plain").links == ["http://a.example/1", "https://a.example/2"]
    assert read(gzip.compress(lines.encode()), "application/gzip").links == ["http://a.example/1", "https://a.example/2"]
    assert read("see http://a.example/1\n", "text/plain").links == []
    assert read("http://a.example/1\nand more\n", "text/plain").links == []
    assert read(gzip.compress(b"<html><a href=1>"), "application/gzip").links == []


def test_what_stands_before_the_damage_is_kept() -> None:
    for damaged in (URLSET[:-20], URLSET + "<x>", URLSET.replace("</urlset>", "&undefined;"), URLSET.encode()[:-30] + b"\xff"):
        assert len(read(damaged).links) == 4
    packed = gzip.compress(URLSET.encode() * 1)
    assert len(read(packed[:-12], "application/gzip").links) >= 1


def test_a_document_type_is_refused() -> None:
    bomb = '<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "http://a.example/">]><urlset><url><loc>&a;</loc></url></urlset>'
    assert sitemap.read_xml(bomb.encode()) == sitemap.Listing(why="it has a document type, which is refused")


def test_limits_end_the_reading_and_keep_what_was_read() -> None:
    head, entry = f'<urlset xmlns="{NAMESPACE}">', "<url><loc>http://a.example/%d</loc></url>"
    many = head + "".join(entry % n for n in range(sitemap.MAX_URLS + 10)) + "</urlset>"
    found = sitemap.read_xml(many.encode())
    assert (len(found.urls), found.why) == (50_000, "more than 50,000 URLs")
    deep = head + entry % 1 + "<url>" * 40
    assert sitemap.read_xml(deep.encode()) == sitemap.Listing({"http://a.example/1": 0}, why="nested deeper than 32")
    long = head + entry % 1 + f"<url><loc>{'x' * 70_000}</loc></url>"
    assert sitemap.read_xml(long.encode()) == sitemap.Listing(
        {"http://a.example/1": 0}, why="more than 65,536 characters in one element"
    )
    wide = head + entry % 1 + f"<url a='{'x' * 1_000_000}'>"
    assert sitemap.read_xml(wide.encode()).why == "more than 65,536 bytes in one tag"
    lines = "".join(f"http://a.example/{n}\n" for n in range(50_010))
    assert len(sitemap.read_list(lines.encode()).urls) == 50_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026", 1_767_225_600),
        ("2026-01", 1_767_225_600),
        (" 2026-01-02 ", DAY),
        ("2026-01-02T03:04Z", TIME - 5),
        ("2026-01-02T03:04:05Z", TIME),
        ("2026-01-02 03:04:05", TIME),
        ("2026-01-02T03:04:05.678901+00:00", TIME),
        ("2026-01-02T03:04:05-0130", TIME + 5_400),
        ("2026-01-02T03:04:60Z", TIME + 54),
        ("Fri, 02 Jan 2026 03:04:05 GMT", TIME),
        ("Fri, 02 Jan 2026 04:04:05 +0100", TIME),
        ("", 0),
        ("yesterday", 0),
        ("2026-13-01", 0),
        ("1950-01-01", 0),
        ("9999-12-31", 0),
        ("2026-01-02T25:00:00Z", 0),
        ("0000", 0),
        ("Fri, 99 Foo 2026", 0),
    ],
)
def test_times(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "lol">'
    + "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(30))
    + "]><urlset><url><loc>&l30;</loc></url></urlset>"
)
BOMBS: dict[str, Callable[[], bytes]] = {
    "billion laughs": lambda: LAUGHS.encode(),
    "one entity over and over": lambda: f'<!DOCTYPE a [<!ENTITY x "{"y" * 100_000}">]><urlset>{"&x;" * 100_000}'.encode(),
    "outer entity": lambda: b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><urlset><url><loc>&x;</loc></url></urlset>',
    "deep nesting": lambda: b"<urlset>" + b"<a>" * 5_000_000,
    "endless text": lambda: b"<urlset>" + b"x" * 30_000_000,
    "endless attribute": lambda: b"<urlset a='" + b"x" * 30_000_000,
    "endless comment": lambda: b"<urlset><!--" + b"x" * 30_000_000,
    "endless name": lambda: b"<urlset><" + b"x" * 30_000_000,
    "a million attributes": lambda: b"<urlset " + b"".join(b"a%d='' " % n for n in range(1_000_000)),
    "a million namespaces": lambda: b"<urlset " + b"".join(b"xmlns:a%d='u' " % n for n in range(1_000_000)),
    "a million entries": lambda: b"<urlset>" + b"".join(b"<url><loc>http://a/%d</loc></url>" % n for n in range(1_000_000)),
    "empty elements": lambda: b"<urlset>" + b"<url/>" * 3_000_000,
    "gzip bomb": lambda: gzip.compress(b"<urlset>" + b" " * 200_000_000, 1),
    "gzip bomb of entries": lambda: gzip.compress(b"<urlset>" + b"<url><loc>http://a/</loc></url>" * 1_000_000, 1),
}  # fmt: skip

LIMITED = """
import resource, sys
body = sys.stdin.buffer.read()
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from shepherd.reaper.fetch.exchange import ExtractOptions
from shepherd.reaper.document.extract import extract
from shepherd.reaper.document.headers import HeaderFacts
header = "application/gzip" if body[:2] == b"\\x1f\\x8b" else "application/xml"
print(len(extract(body, HeaderFacts(header), "http://a.example/", ExtractOptions(10_000)).links))
"""


@pytest.mark.parametrize("name", sampling.of_the_day(BOMBS, 5, "bombs"))
def test_bombs_fit_in_a_gigabyte_and_are_survived(name: str) -> None:
    run = subprocess.run([sys.executable, "-c", LIMITED], input=BOMBS[name](), capture_output=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr.decode()[-500:]
    assert int(run.stdout) <= sitemap.MAX_URLS


@settings(max_examples=sampling.examples(200), deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_never_an_error(noise: bytes) -> None:
    for body in (b"<urlset>" + noise, noise, b"<?xml version='1.0' encoding='" + noise + b"'?><urlset>"):
        sitemap.read_xml(body)
        sitemap.read_list(body)
    sitemap.read_gzipped(b"\x1f\x8b\x08\0" + noise)
