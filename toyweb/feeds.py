"""Sitemaps, sitemap indexes and feeds: documents that name pages with the time of their last change."""

from __future__ import annotations

import email.utils
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from xml.sax.saxutils import escape

from toyweb.plan import PageKind

_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_SITEMAP_NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


class Named(NamedTuple):
    """A page as such a document names it."""

    url: str
    title: str
    modified_s: int


def content_type(kind: PageKind, variant: str) -> str:
    if kind in (PageKind.SITEMAP, PageKind.SITEMAP_INDEX):
        return {"gzip": "application/gzip", "text": "text/plain; charset=utf-8"}.get(variant, "application/xml; charset=utf-8")
    return "application/rss+xml; charset=utf-8" if kind is PageKind.RSS else "application/atom+xml; charset=utf-8"


def document(kind: PageKind, variant: str, name: str, home: str, named: Sequence[Named]) -> bytes:
    """The bytes of one. `home` is the URL of the site's root."""
    if variant == "text":
        return "".join(f"{entry.url}\n" for entry in named).encode()
    text = _WRITERS[kind](name, home, named).encode()
    if variant != "gzip":
        return text
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    return packer.compress(text) + packer.flush()


def _sitemap(_name: str, _home: str, named: Sequence[Named]) -> str:
    rows = (f"<url><loc>{escape(entry.url)}</loc><lastmod>{_day(entry)}</lastmod></url>" for entry in named)
    return "\n".join([_XML, f"<urlset {_SITEMAP_NS}>", *rows, "</urlset>", ""])


def _index(_name: str, _home: str, named: Sequence[Named]) -> str:
    rows = (f"<sitemap><loc>{escape(entry.url)}</loc><lastmod>{_moment(entry)}</lastmod></sitemap>" for entry in named)
    return "\n".join([_XML, f"<sitemapindex {_SITEMAP_NS}>", *rows, "</sitemapindex>", ""])


def _rss(name: str, home: str, named: Sequence[Named]) -> str:
    rows = []
    for entry in named:
        date = email.utils.formatdate(entry.modified_s, usegmt=True)
        title, link = escape(entry.title), escape(entry.url)
        rows.append(f"<item><title>{title}</title><link>{link}</link><guid>{link}</guid><pubDate>{date}</pubDate></item>")
    head = f"<title>{escape(name)}</title><link>{escape(home)}</link><description>News of the farm</description>"
    return "\n".join([_XML, '<rss version="2.0"><channel>', head, *rows, "</channel></rss>", ""])


def _atom(name: str, home: str, named: Sequence[Named]) -> str:
    rows = []
    for entry in named:
        title, link = escape(entry.title), escape(entry.url, {'"': "&quot;"})
        rows.append(
            f'<entry><title>{title}</title><link href="{link}"/><id>{link}</id><updated>{_moment(entry)}</updated></entry>'
        )
    newest = max((entry for entry in named), key=lambda entry: entry.modified_s, default=Named(home, name, 0))
    head = f"<title>{escape(name)}</title><id>{escape(home)}</id><updated>{_moment(newest)}</updated>"
    return "\n".join([_XML, '<feed xmlns="http://www.w3.org/2005/Atom">', head, *rows, "</feed>", ""])


def _day(entry: Named) -> str:
    return datetime.fromtimestamp(entry.modified_s, UTC).strftime("%Y-%m-%d")


def _moment(entry: Named) -> str:
    return datetime.fromtimestamp(entry.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_WRITERS: dict[PageKind, Callable[[str, str, Sequence[Named]], str]] = {
    PageKind.SITEMAP: _sitemap,
    PageKind.SITEMAP_INDEX: _index,
    PageKind.RSS: _rss,
    PageKind.ATOM: _atom,
}
