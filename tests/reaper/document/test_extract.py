"""Extraction: what counts as a link, what a page may say about itself, and hostile HTML."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from shepherd.reaper.document.charset import as_utf8, find_charset
from shepherd.reaper.document.extract import PageFacts, extract
from shepherd.reaper.document.headers import facts_of_headers
from shepherd.reaper.document.scan import is_tame, scan_tags
from shepherd.reaper.document.sniff import sniff
from shepherd.reaper.fetch.exchange import ExtractOptions
from tests.support import sampling

ROOT = Path(__file__).resolve().parents[3]
BASE = "http://a.example/dir/page"


def page(
    html: str | bytes,
    *,
    header: str = "text/html",
    x_robots: str = "",
    link: str = "",
    languages: str = "",
    limit: int = 1_000,
    requisites: bool = False,
) -> PageFacts:
    body = html if isinstance(html, bytes) else html.encode()
    said = facts_of_headers(header, x_robots.split("\n"), [link], languages, "Shepherd")
    return extract(body, said, BASE, ExtractOptions(limit, "Shepherd", requisites))


def test_links_come_in_document_order_once_and_not_from_forms() -> None:
    html = """<link rel=next href=n><a href=1>x</a><area href=2><a href=" 1 "></a><form action=f></form>
              <img src=i><iframe src=3></iframe><link rel=alternate href=alt>
              <link rel="prev nofollow" href=p><a name=x></a><a href=4>
              <noscript><a href=5></a></noscript>"""
    assert page(html).links == ["n", "1", "2", "3", "4", "5"]
    assert page("<frameset><frame src=f1><frame src=f2></frameset>").links == ["f1", "f2"]


@pytest.mark.parametrize(
    "href",
    ["javascript:x()", "JavaScript:x", "mailto:a@b", "data:text/html,x", "tel:1", "ftp://x/", "#top", "", "  ", "x" * 5_000],
)
def test_what_cannot_be_gathered_is_not_a_link(href: str) -> None:
    assert page(f'<a href="{href}">x</a><a href="ok?a:b">x</a><a href="HTTPS://x/">').links == ["ok?a:b", "HTTPS://x/"]


def test_references_in_attributes_follow_the_attribute_rule() -> None:
    html = '<a href="?a=1&amp;b=2&copy=3&lt;&#x26;&not"></a>'
    assert page(html).links == ["?a=1&b=2&copy=3<&¬"]
    assert [tag.attributes["href"] for tag in scan_tags(html.encode())] == ["?a=1&b=2&copy=3<&¬"]


def test_links_that_the_author_does_not_vouch_for_are_dropped() -> None:
    assert page('<a href=1 rel="noopener NoFollow"></a><a href=2 rel=nofollower></a>').links == ["2"]
    assert page("<a href=1 rel=ugc></a><area href=2 rel='sponsored'><a href=3 rel=author>").links == ["3"]


@pytest.mark.parametrize(
    ("meta", "x_robots", "noindex", "nofollow"),
    [
        ("", "", False, False),
        ("<META NAME=Robots CONTENT='NoIndex, follow'>", "", True, False),
        ("<meta name=robots content='nofollow'>", "", False, True),
        ("<meta name=robots content=none>", "", True, True),
        ("<meta name=robots content=index><meta name=robots content=nofollow>", "", False, True),
        ("<meta name=shepherd content=noindex>", "", True, False),
        ("<meta name=googlebot content=none>", "", False, False),
        ("", "noindex", True, False),
        ("", "max-snippet: 5, nofollow", False, True),
        ("", "unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", True, False),
        ("", "googlebot: noindex, nofollow", False, False),
        ("", "googlebot: noindex, shepherd: nofollow", False, True),
        ("", "googlebot: none, *: noindex", True, False),
        ("<meta name=robots content=noindex>", "nofollow", True, True),
    ],
)
def test_wishes_of_page_and_header(meta: str, x_robots: str, noindex: bool, nofollow: bool) -> None:
    found = page(f"{meta}<a href=1>x</a>", x_robots=x_robots)
    assert (found.noindex, found.nofollow) == (noindex, nofollow)
    assert found.links == ([] if nofollow else ["1"])


def test_base_counts_once_and_only_if_it_can_be_gathered_from() -> None:
    assert page("<base target=x><base href=/b/><base href=/c/><a href=1>").base == "http://a.example/b/"
    assert page("<base href='javascript:x'><base href=/c/>").base == BASE
    assert page("<a href=1>").base == BASE


def test_canonical_of_the_header_counts_where_the_page_has_none() -> None:
    header = '<http://x/a>; rel="next", <https://c.example/d?a,b>; title="x; rel=canonical"; REL="Canonical nofollow"'
    assert page("<p>", link=header).canonical == "https://c.example/d?a,b"
    assert page("<link rel=canonical href=/own>", link=header).canonical == "/own"
    assert page(b"%PDF-1.4", header="application/pdf", link="</pdf>;rel=canonical").canonical == "/pdf"
    for wrong in ("", "<>; rel=canonical", "</x>; rel=next", '</x>; title="rel=canonical"', "<" * 5_000, "</x> rel=canonical"):
        assert page("<p>", link=wrong).canonical == "", wrong


def test_canonical_is_no_link() -> None:
    found = page("<link rel='canonical' href=' /c '><link rel=canonical href=/d>")
    assert (found.canonical, found.links) == ("/c", [])


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0;url=/x", "/x"),
        ("5; URL='/x y'", "/x y"),
        ('3 , url = "/x"z', "/x"),
        ("1;/x", "/x"),
        ("5", ""),
        ("url=/x", ""),
        ("0;url=", ""),
    ],
)
def test_meta_refresh(content: str, target: str) -> None:
    escaped = content.replace('"', "&quot;")
    found = page(f'<meta http-equiv=Refresh content="{escaped}">')
    assert (found.refresh, found.links) == (target, [target] if target else [])


@pytest.mark.parametrize(
    ("html", "languages", "language"),
    [
        ("<html lang=de-AT><p>", "en", "de-at"),
        ("<html xml:lang='pt_BR'>", "", "pt-br"),
        ("<html lang=''><meta http-equiv=content-language content='fr, en'>", "", "fr"),
        ("<p>", "EN-us, de", "en-us"),
        ("<html lang='x y'>", "", ""),
        (f"<html lang='de-{'abc-' * 20}x'>", "", ""),
        ("<div lang=it>", "", ""),
    ],
)
def test_language_is_what_page_or_header_declare(html: str, languages: str, language: str) -> None:
    assert page(html, languages=languages).language == language


def test_feeds_that_a_page_names_are_links() -> None:
    html = "<link rel=alternate type=application/rss+xml href=f><link rel=alternate hreflang=de href=g>"
    assert page(html).links == ["f"]


def test_title_is_collapsed_cut_and_not_that_of_a_drawing() -> None:
    assert page("<svg><title>icon</title></svg><title> A \n &amp;\tb </title><title>c</title>").title == "A & b"
    assert len(page(f"<title>{'x ' * 10_000}</title>").title) == 500
    assert page("<p>").title == ""


@pytest.mark.parametrize(
    ("body", "header", "content_type", "links"),
    [
        (b"<a href=1>", "text/html; charset=utf-8", "text/html", 1),
        (b"<a href=1>", "Application/XHTML+XML", "application/xhtml+xml", 1),
        (b"<a href=1>", "text/plain", "text/plain", 0),
        (b"<a href=1>", "image/png", "image/png", 0),
        (b"\xef\xbb\xbf \n<!DOCTYPE HTML><a href=1>", "", "text/html", 1),
        ("<html><a href=1>".encode("utf-16"), "", "text/html", 1),
        (b"<a href=1>", "nonsense", "text/html", 1),
        (b"%PDF-1.7 <a href=1>", "text/html", "application/pdf", 0),
        (b"\x89PNG\r\n\x1a\n<a href=1>", "text/html", "image/png", 0),
        (b"<abbr><a href=1>", "", "text/plain", 0),
    ],
)
def test_header_and_bytes_decide_what_a_document_is(body: bytes, header: str, content_type: str, links: int) -> None:
    found = page(body, header=header)
    assert (found.content_type, len(found.links)) == (content_type, links)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"%PDF-1.4", "application/pdf"), (b"\x89PNG\r\n\x1a\n", "image/png"), (b"<?xml ?>", "application/xml"), (b"", "text/plain"),
     (b"a\0b", "application/octet-stream"), (b"hello", "text/plain"), (b"<!-- x --><p>", "text/html")],
)  # fmt: skip
def test_sniffing(body: bytes, content_type: str) -> None:
    assert sniff(body) == content_type


@pytest.mark.parametrize(
    ("body", "header", "charset"),
    [
        ("é".encode("utf-8-sig"), "text/html; charset=latin1", "utf-8"),
        ("<p>é".encode("utf-16"), "text/html; charset=utf-8", "utf-16le"),
        (b"<meta charset=utf-8>\xe9", "text/html; charset=ISO-8859-1", "windows-1252"),
        (b"<meta charset='Shift_JIS'>", "text/html", "shift_jis"),
        (b'<meta http-equiv=content-type content="text/html; charset=koi8-r">', "text/html; charset=bogus", "koi8-r"),
        (b"<meta charset=utf-16>x", "text/html", "utf-8"),
        (b"<meta charset=unicode_escape>\\x41", "text/html; charset=zip", "utf-8"),
        ("naïve café".encode(), "text/html", "utf-8"),
        ("naïve café".encode()[:-1], "text/html", "utf-8"),
        ("Съешь же ещё этих мягких французских булок, да выпей чаю".encode("cp1251"), "text/html", "windows-1251"),
        (b"<?xml version='1.0' encoding='iso-8859-2'?><p>", "application/xhtml+xml", "iso-8859-2"),
    ],
)
def test_charset_by_mark_header_meta_utf8_detector(body: bytes, header: str, charset: str) -> None:
    assert find_charset(body, header) == charset


@pytest.mark.parametrize(
    ("codec", "charset", "text"),
    [
        ("koi8-r", "koi8-r", "Съешь же ещё этих мягких французских булок, да выпей чаю. Пастух считает овец у ворот."),
        ("shift_jis", "shift_jis", "羊飼いは門が閉まる前に羊を数えます。そして家に帰ります。日本語の文章です。"),
        ("euc-jp", "euc-jp", "羊飼いは門が閉まる前に羊を数えます。そして家に帰ります。日本語の文章です。"),
        ("gb18030", "gb18030", "牧羊人在关门之前数羊,然后回家。这是一段用来测试的中文文字,没有任何声明。"),
        ("big5", "big5", "牧羊人在關門之前數羊,然後回家。這是一段用來測試的中文文字,沒有任何聲明。"),
        ("euc-kr", "euc-kr", "양치기는 문이 닫히기 전에 양을 세고 집으로 돌아갑니다. 이것은 한국어 문장입니다."),
        ("iso8859-7", "iso-8859-7", "Ο βοσκός μετράει τα πρόβατα πριν κλείσει η πύλη και μετά πηγαίνει στο σπίτι του."),
    ],
)
def test_undeclared_charset_is_detected(codec: str, charset: str, text: str) -> None:
    body = f"<title>{text}</title><p>{text * 3}".encode(codec)
    found = page(body)
    assert found.charset == charset
    assert found.title == text


@pytest.mark.parametrize("label", ["csISOLatin1", "ISO_8859-1:1987", "x-cp1252", "Latin1"])
def test_labels_mean_what_they_mean_to_browsers(label: str) -> None:
    assert find_charset(b"\x80", f"text/html; charset={label}") == "windows-1252"


def test_characters_that_cannot_be_decoded_are_replaced() -> None:
    assert page(b"<title>a\xffb</title><a href='\xff'>", header="text/html; charset=utf-8").title == "a\ufffdb"
    assert page("<title>é</title>".encode("latin-1"), header="text/html; charset=latin1").title == "é"
    assert as_utf8("é".encode("utf-16-be"), "utf-16be") == "é".encode()


@settings(max_examples=sampling.examples(300), deadline=None)
@given(
    body=st.binary(max_size=300), header=st.sampled_from(["", "text/html", "text/html; charset=utf-16", "text/html; charset=gbk"])
)
def test_noise_is_never_an_error(body: bytes, header: str) -> None:
    for noise in (body, b"<title>" + body, b"<a href='" + body + b"'><meta name=robots content=" + body):
        found = page(noise, header=header)
        "".join((found.title, found.base, found.canonical, found.refresh, *found.links)).encode()


PIECES = [
    "<a href=1>",
    "<a href='2' rel=x>t</a>",
    '<A HREF="3&amp;4"x=y>',
    "<p>",
    "</p>",
    "<div title='<a href=5>'>",
    "</div>",
    "<!-- <a href=6> -->",
    "<script>'<a href=7>'</script>",
    "<style><a href=8></style>",
    "text > ' \" text",
    "<a b=c/href=9>",
    "<a/href=10/>",
    "<br/>",
    "<!-->",
    "<a href = 11 >",
    '<a href="12"href=13>',
    "<!x <a href=14>",
    "</ <a href=15>",
    "<textarea><a href=16></textarea>",
    "<b>",
    "</b>",
    "<iframe src=17><a href=18></iframe>",
    "<area href=19 =x>",
    "< a href=20>",
    "<p don't><a href=21>",
    "<meta name=a content=b>",
]


@settings(max_examples=sampling.examples(400), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_scanner_reads_the_links_of_the_tree(pieces: list[str]) -> None:
    html = "".join(["<body>", *pieces]).encode()
    tree = [node.attributes for node in LexborHTMLParser(html).css("a[href],area[href]")]
    flat = [tag.attributes for tag in scan_tags(html) if "href" in tag.attributes]
    in_order = list(dict.fromkeys(attributes["href"] for attributes in flat))
    assert in_order == list(dict.fromkeys(attributes["href"] for attributes in tree))  # the tree repeats links it reopens


def numbered(template: str, count: int) -> str:
    return "".join(template % number for number in range(count))


LAZY_IMAGE = (
    '<img class="lazy" id=i%d src="data:," data-src="/1.jpg" data-srcset="/1.jpg 1x" sizes="auto" alt="" title="a > b"'
    " width=640 height=480 loading=lazy decoding=async fetchpriority=low>\n"
)

# Made when they are needed: they are large, and every process of a test run imports this file.
HOSTILE: dict[str, Callable[[], str]] = {
    "a million links": lambda: numbered("<a href=/%d>x</a>", 1_000_000),
    "deep nesting": lambda: "<div>" * 1_000_000 + "<a href=1>",
    "deep nesting behind false ends": lambda: "<div></x>" * 200_000,
    "reopened formatting": lambda: "<p>" + numbered("<font color=%d>", 3_000) + "<p>x" * 3_000,
    "10 MB attribute": lambda: f'<a href="{"x" * 10_000_000}">',
    "a million attributes": lambda: "<a " + numbered("x%d=1 ", 1_000_000) + "href=1>",
    "lazy images": lambda: "<p>" + "x" * 300_000 + numbered(LAZY_IMAGE, 80),
    "openers before a long word": lambda: "<a" * 9_999 + "x" * 1_000_000,
    "openers inside a quote": lambda: '<a b="' + "<a c=' " * 9_000 + "x" * 1_000_000,
    "openers before attributes": lambda: "<a " * 9_000 + numbered("x%d=1 ", 100_000),
    "attributes behind quoted ends": lambda: "<a " + numbered("x%d='>' ", 300_000) + "href=1>",
    "references": lambda: f"<a href='{'&amp' * 1_000_000}'>",
    "unclosed quotes": lambda: "<a b=\"'" * 500_000,
    "unclosed comments": lambda: "<!--" * 500_000,
    "unclosed scripts": lambda: "<script>" * 500_000,
    "tag openers": lambda: "<a" * 2_000_000,
    "lone equals signs": lambda: "<a " + "= " * 1_000_000,
    "a huge title": lambda: f"<title>{'x ' * 5_000_000}</title><a href=1>",
    "NULs": lambda: "<a href=1>" + "\0" * 5_000_000 + "<a\0 hr\0ef=2>",
    "references in text": lambda: "&amp;" * 2_000_000,
    "scripts that look alike": lambda: "<body>" + "<script>a</script>" * 5_000 + "a" * 5_000_000,
    "styles inside drawings": lambda: "<svg>" + "<style><script>" * 5_000,
    "style attributes": lambda: numbered("<p style='background:url(%d'>", 300_000),
    "a huge srcset": lambda: f"<img srcset='{'a 1x, ' * 1_000_000}'>",
    "unclosed brackets of a srcset": lambda: f"<img srcset='{'a ( ' * 500_000}'>",
    "brackets behind commas of a srcset": lambda: f"<img srcset='x, {'(y, ' * 500_000}'>",
    "unclosed url()": lambda: f"<style>{'url(' * 1_000_000}</style>",
    "unclosed comments of a style": lambda: f"<style>{'/*' * 1_000_000}</style>",
    "backslashes of a style": lambda: "<style>url(" + "\\" * 1_000_000 + ")</style>",
}

LIMITED = """
import resource, sys
body = sys.stdin.buffer.read()
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from shepherd.reaper.fetch.exchange import ExtractOptions
from shepherd.reaper.document.extract import extract
from shepherd.reaper.document.headers import HeaderFacts
for requisites in (False, True):
    options = ExtractOptions(10_000, "", requisites)
    print(len(extract(body, HeaderFacts("text/html"), "http://a.example/", options).links), flush=True)
"""


@pytest.mark.parametrize("name", sampling.of_the_day(HOSTILE, 10, "hostile html"))
def test_hostile_html_fits_in_a_gigabyte_and_is_survived(name: str) -> None:
    """Asked for its links, and then for what it needs to be shown as well."""
    body = HOSTILE[name]().encode()
    run = subprocess.run([sys.executable, "-c", LIMITED], input=body, capture_output=True, check=False, cwd=ROOT)
    assert run.returncode == 0, f"after {run.stdout!r}: {run.stderr.decode()[-500:]}"
    assert [int(links) <= 10_000 for links in run.stdout.split()] == [True, True]


def test_an_ordinary_large_page_gets_its_tree() -> None:
    row = "<tr class=x><td><b>n</b></td><td><a href='/item?id=%d' class='c d'>item</a></td></tr>\n"
    html = f"<!doctype html><html><body><table>{numbered(row, 900)}</table><img src='data:,{'x' * 9_000}'>"
    assert is_tame(html.encode())
    assert len(page(html).links) == 900


@pytest.mark.parametrize("header", ["text/html; charset%sx", "text/html; charset=%s", "text/html; charset=%skoi8-r"])
def test_overlong_content_type_names_no_charset(header: str) -> None:
    """At a square's cost this would take an hour: 64,000 blanks took 18 s."""
    assert find_charset(b"a", header % (" " * 1_000_000)) == "utf-8"


def test_large_page_of_lazy_images_gets_its_tree() -> None:
    assert is_tame((f"<p>{'x' * 300_000}" + numbered(LAZY_IMAGE, 900)).encode())


@pytest.mark.parametrize(
    "hidden",
    ["<img %s>", "<img a='>' %s>", "<script>x<y z='</script><img %s>", "<img a' b=\"'>\" %s>", "<!-- <a b=' --><img %s>"],
)
def test_crowded_tag_has_no_tree_whatever_stands_around_it(hidden: str) -> None:
    attributes = numbered("x%d='>' ", 20_000)
    assert not is_tame((hidden % attributes).encode())


def test_the_links_are_capped() -> None:
    assert len(page(numbered("<a href=%d>", 50), limit=7).links) == 7
    assert page(numbered("<a href=%d>", 20_000), limit=7).links == [str(number) for number in range(7)]


def test_wish_to_another_agent_does_not_swallow_the_next_header() -> None:
    found = page("<a href=1>x</a>", x_robots="googlebot: noindex\nnofollow")
    assert (found.noindex, found.nofollow) == (False, True)
