"""What a page needs to be shown: only where it is asked for."""

from __future__ import annotations

import pytest

from shepherd.filters import parse_filter
from shepherd.reaper.document.extract import PageFacts, extract
from shepherd.reaper.document.headers import HeaderFacts
from shepherd.reaper.document.requisites import of_css, of_srcset
from shepherd.reaper.fetch.exchange import ExtractOptions
from tests.support.driver import HTML as CONTENT
from tests.support.driver import gather
from tests.support.origin import ok

HTML = """<html><head><link rel=stylesheet href=s.css><link rel="shortcut ICON" href=i.ico><link rel=next href=n>
<style>@import "t.css"; p { background: URL( 'u.png' ) }</style><script src=j.js></script><script>url(no)</script></head>
<body background=b.gif><img src=1.png srcset="2.png 1x, 3.png 2x,4,5.png 100w"><picture><source srcset="6.webp"></picture>
<video src=v.mp4 poster=p.jpg><track src=c.vtt></video><audio src=a.mp3></audio><embed src=e><object data=o></object>
<div style="background:url(&quot;d.png&quot;)"></div><input type=image src=in.png><img src="data:image/png;base64,xx">
<a href=link>x</a><iframe src=frame></iframe><form action=f></form></body></html>"""
NEEDED = [
    "s.css", "i.ico", "t.css", "u.png", "j.js", "b.gif", "1.png", "2.png", "3.png", "4,5.png", "6.webp", "v.mp4", "p.jpg",
    "c.vtt", "a.mp3", "e", "o", "d.png", "in.png",
]  # fmt: skip


def read(html: str, requisites: bool = True, header: str = "text/html") -> PageFacts:
    return extract(html.encode(), HeaderFacts(header), "http://a.example/", ExtractOptions(100, "", requisites))


def test_requisites_come_only_where_configured() -> None:
    assert read(HTML).requisites == NEEDED
    assert read(HTML, requisites=False).requisites == []
    assert read(HTML).links == read(HTML, requisites=False).links == ["n", "link", "frame"]


@pytest.mark.parametrize(
    ("configured", "lines", "found"),
    [
        (False, "", []),
        (False, "set requisites yes host a.example", ["http://a.example/1.png"]),
        (False, "set requisites yes address 127.0.0.0/8", ["http://a.example/1.png"]),
        (False, "set requisites yes host b.example", []),
        (True, "set requisites yes host b.example", ["http://a.example/1.png"]),
        (True, "set requisites no host a.example", []),
    ],
)
def test_line_of_the_filter_says_for_a_site_whether_requisites_are_gathered(
    configured: bool, lines: str, found: list[str]
) -> None:
    settings = {"timeout_s": 20, "requisites": configured}
    hello = {"filter": lines, "filter_version": parse_filter(lines).version, "settings": settings}
    outcome = gather(ok(b"<img src=/1.png>", CONTENT), hello=hello)
    assert (outcome.hrefs if outcome.raw.links else []) == found


def test_a_page_without_a_tree_needs_the_same() -> None:
    wild = HTML + "<p>" * 20_000
    assert read(wild).requisites == NEEDED


def test_a_style_sheet_needs_what_it_names() -> None:
    css = "@import url(a.css); @import 'b.css' print; /* url(no) */ p{background:url(\"c d.png\")} q{src:url(data:x),url(e\\.f)}"
    assert read(css, header="text/css").requisites == ["a.css", "b.css", "c d.png", "e.f"]
    assert read(css, header="text/css", requisites=False).requisites == []
    assert read(css, header="text/plain").requisites == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", ["a"]),
        ("a 1x,b 2x", ["a", "b"]),
        (" a , b", ["a", "b"]),
        ("a,, b 100w 50h", ["a", "b"]),
        ("data:image/png;base64,xx 1x, b", ["data:image/png;base64,xx", "b"]),
        ("a (x,y) 1x, b", ["a", "b"]),
        ("", []),
        (" , ", []),
    ],
)
def test_candidates_of_a_srcset(text: str, found: list[str]) -> None:
    assert list(of_srcset(text)) == found


def test_css_escapes_and_unclosed_brackets() -> None:
    assert list(of_css(r"url(\41 b) url('\0') url(\d800 )")) == ["Ab", "\ufffd", "\ufffd"]
    assert list(of_css("url(a")) == ["a"]
    assert list(of_css("URL( x ) @IMPORT 'y'")) == ["x", "y"]
