"""What a page says: its links, title, base, canonical and robots wishes.

Invariant: whatever the bytes, the cost is bounded (see scan.py), nothing raises, and the strings are as the page wrote them:
joining and normalising URLs is urls.py's. Only HTML has links.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.net.charset import as_utf8, find_charset
from shepherd.net.scan import WANTED, Tag, is_tame, scan_tags

MAX_TITLE: Final = 500
MAX_LINK: Final = 4_096  # characters; a URL has at most 2,000 bytes, but blanks and dots may be dropped from it
HTML_TYPES: Final = ("text/html", "application/xhtml+xml")

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_MIME: Final = re.compile(r"\s*([a-zA-Z0-9!#$&^_.+-]{1,64}/[a-zA-Z0-9!#$&^_.+-]{1,64})")
_REFRESH: Final = re.compile(r"""\s*[\d.]+\s*[;,\s]\s*(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.*))""", re.IGNORECASE | re.DOTALL)
_HTML_START: Final = re.compile(
    rb"(?:<!doctype html|<(?:html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p)[\s>]|<!--)", re.IGNORECASE
)
_MAGIC: Final = (
    (b"%PDF-", "application/pdf"),
    (b"<?xml", "text/xml"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"\x1f\x8b", "application/gzip"),
    (b"PK\x03\x04", "application/zip"),
)
_ROBOTS_VALUED: Final = ("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview")


@dataclass(frozen=True)
class Page:
    """What was found in a body."""

    content_type: str  # of the header, without parameters; sniffed where there is none
    charset: str  # "" where it is not text
    title: str
    links: list[str]  # as written, in document order, no two equal
    base: str  # what they are relative to
    canonical: str  # as written, or ""
    refresh: str  # target of a meta refresh, as written, or ""; it is among the links too
    noindex: bool
    nofollow: bool  # then there are no links


def extract(body: bytes, content_type_header: str, base: str, limit_links: int, x_robots: str = "", agent: str = "") -> Page:
    """Read a decoded body. `x_robots` is all X-Robots-Tag headers, `agent` the product token that wishes may be addressed to."""
    content_type = media_type(content_type_header) or sniff(body)
    wishes = _wishes(x_robots, agent)
    if content_type not in HTML_TYPES:
        charset = find_charset(body, content_type_header) if content_type.startswith("text/") else ""
        return Page(content_type, charset, "", [], base, "", "", "noindex" in wishes, "nofollow" in wishes)
    charset = find_charset(body, content_type_header)
    reader = _Reader(base, limit_links, agent, wishes)
    for tag in _tags(as_utf8(body, charset)):
        reader.take(tag)
        if len(reader.links) >= limit_links:
            break
    return reader.page(content_type, charset)


def media_type(header: str) -> str:
    """The type that a Content-Type header declares, in lower case and without parameters; "" where it declares none."""
    declared = _MIME.match(header)
    return declared.group(1).lower() if declared else ""


def sniff(body: bytes) -> str:
    """The content type of a body that came without one."""
    beginning = body[:1024]
    charset = find_charset(beginning, "") if beginning[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    beginning = (as_utf8(beginning, charset) if charset else beginning.removeprefix(b"\xef\xbb\xbf")).lstrip()
    if _HTML_START.match(beginning):
        return "text/html"
    for magic, content_type in _MAGIC:
        if beginning.startswith(magic):
            return content_type
    return "application/octet-stream" if b"\0" in beginning else "text/plain"


def _tags(page: bytes) -> Iterator[Tag]:
    if not is_tame(page):
        yield from scan_tags(page)
        return
    from selectolax.lexbor import LexborHTMLParser

    root = LexborHTMLParser(page).root
    if root is None:
        return
    # A walk in Python is cheaper than `css`: setting up its engine for a page costs more than parsing the page.
    for node in root.traverse():
        name = node.tag
        if name not in WANTED:
            continue
        if name != "title":
            yield Tag(name, node.attributes)
        elif node.parent is None or node.parent.tag != "svg":
            yield Tag(name, {}, node.text())


class _Reader:
    """Collects from the tags of one page."""

    def __init__(self, base: str, limit: int, agent: str, wishes: frozenset[str]) -> None:
        self.links: dict[str, None] = {}  # a set that keeps the order
        self._limit = limit
        self._agent = agent.lower()
        self._base, self._based = base, False
        self._wishes = wishes
        self._title: str | None = None
        self._canonical = self._refresh = ""

    def take(self, tag: Tag) -> None:
        name, attributes, text = tag
        if name in ("a", "area"):
            rel = attributes.get("rel")
            if not rel or "nofollow" not in rel.lower().split():
                self._link(attributes.get("href"))
        elif name in ("frame", "iframe"):
            self._link(attributes.get("src"))
        elif name == "meta":
            self._meta(attributes)
        elif name == "link":
            self._relation(attributes)
        elif name == "title" and self._title is None:
            self._title = " ".join(text[: 8 * MAX_TITLE].split())[:MAX_TITLE]
        elif name == "base" and "href" in attributes and not self._based:
            self._rebase(attributes["href"])

    def page(self, content_type: str, charset: str) -> Page:
        nofollow = "nofollow" in self._wishes
        return Page(
            content_type=content_type,
            charset=charset,
            title=self._title or "",
            links=[] if nofollow else list(self.links),
            base=self._base,
            canonical=self._canonical,
            refresh=self._refresh,
            noindex="noindex" in self._wishes,
            nofollow=nofollow,
        )

    def _link(self, href: str | None) -> None:
        """Keep what may be a link to another page: nothing empty, overlong, inside this page or of another scheme."""
        if href is None or len(self.links) >= self._limit:
            return
        href = href.strip(" \t\n\f\r")
        if not href or href[0] == "#" or len(href) > MAX_LINK:
            return
        scheme = _SCHEME.match(href)
        if scheme is None or scheme.group(1).lower() in ("http", "https"):
            self.links[href] = None

    def _meta(self, attributes: dict[str, str | None]) -> None:
        content = attributes.get("content") or ""
        name = (attributes.get("name") or "").strip().lower()
        if name == "robots" or (name and name == self._agent):
            self._wishes |= _wishes(content, self._agent)
        if (
            (attributes.get("http-equiv") or "").strip().lower() == "refresh"
            and not self._refresh
            and len(content) <= 2 * MAX_LINK
        ):
            found = _REFRESH.match(content)
            self._refresh = next((part.strip() for part in found.groups() if part is not None), "") if found else ""
            self._link(self._refresh)

    def _relation(self, attributes: dict[str, str | None]) -> None:
        relations = (attributes.get("rel") or "").lower().split()
        href = (attributes.get("href") or "").strip()
        if "canonical" in relations and not self._canonical and len(href) <= MAX_LINK:
            self._canonical = href
        elif "nofollow" not in relations and ("next" in relations or "prev" in relations):
            self._link(href)

    def _rebase(self, href: str | None) -> None:
        self._based = True  # only the first one counts, even if it is useless
        with contextlib.suppress(BadUrl):
            self._base = urls.join(self._base, (href or "")[:MAX_LINK]).href


def _wishes(text: str, agent: str) -> frozenset[str]:
    """What the words of a robots meta tag or of X-Robots-Tag lines ask of us: some of `noindex` and `nofollow`.

    `name: words` speaks to that agent alone, up to the next name or the end of the line.
    """
    found: set[str] = set()
    for line in text.lower().split("\n"):
        ours = True
        for part in line.split(","):
            name, colon, word = part.rpartition(":")
            name = name.strip()
            if colon and name.partition(":")[0].strip() not in _ROBOTS_VALUED:
                ours = name in (agent.lower(), "*")
            word = word.strip()
            if ours and word in ("noindex", "nofollow", "none"):
                found |= {"noindex", "nofollow"} if word == "none" else {word}
    return frozenset(found)
