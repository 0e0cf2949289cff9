"""What a document says: which type and charset it has, its links and title, and what it wishes.

Invariant: whatever the bytes, the cost is bounded (see scan.py and sitemap.py), nothing raises, and the strings are as the
document wrote them: joining and normalising URLs is urls.py's. HTML, feeds, sitemaps and, where requisites are wanted, style
sheets have links; nothing else has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shepherd.reaper.document import json_feed as jsonfeed
from shepherd.reaper.document import requisites, sitemap, sniff
from shepherd.reaper.document.charset import as_utf8, find_charset
from shepherd.reaper.document.headers import Said
from shepherd.reaper.document.html_page import MAX_TITLE, HtmlPage, followed
from shepherd.reaper.document.simhash import simhash
from shepherd.reaper.document.visible_text import MAX_PAGE
from shepherd.reaper.fetch.exchange import Wanted


@dataclass(frozen=True)
class Page:
    """What was found in a body."""

    content_type: str  # what it is: the header's word, or that of its bytes where they know better
    charset: str  # "" where it is not text
    base: str  # what its links are relative to
    title: str = ""
    links: list[str] = field(default_factory=list)  # as written, in document order, no two equal
    requisites: list[str] = field(default_factory=list)  # the same; what it needs to be shown
    times: Mapping[str, int] = field(default_factory=dict)  # of links, as written: when each was last modified, if said
    canonical: str = ""  # as written, or ""
    refresh: str = ""  # target of a meta refresh, as written, or ""; it is among the links too
    language: str = ""
    simhash: int | None = None
    noindex: bool = False
    nofollow: bool = False  # then there are no links


def extract(body: bytes, said: Said, base: str, wanted: Wanted) -> Page:
    """Read a decoded body, of which the headers said that much."""
    kind = sniff.content_type(body, said.content_type)
    if kind in sniff.HTML_TYPES:
        return _html(body, kind, said, base, wanted)
    listed = _listed(body, kind)
    if listed is not None:
        nofollow = "nofollow" in said.wishes
        return Page(
            content_type=kind,
            charset="",
            base=base,
            title=" ".join(listed.title[: 8 * MAX_TITLE].split())[:MAX_TITLE],
            links=[] if nofollow else list(listed.urls),
            times={} if nofollow else listed.urls,
            canonical=said.canonical,
            language=said.language,
            noindex="noindex" in said.wishes,
            nofollow=nofollow,
        )
    return _other(body, kind, said, base, wanted)


def _html(body: bytes, kind: str, said: Said, base: str, wanted: Wanted) -> Page:
    charset = find_charset(body, said.content_type)
    page = HtmlPage(base, wanted.links, wanted.agent, said, wanted.requisites)
    page.read(as_utf8(body, charset))
    nofollow = "nofollow" in page.wishes
    return Page(
        content_type=kind,
        charset=charset,
        base=page.base,
        title=page.title,
        links=[] if nofollow else list(page.links),
        requisites=list(page.requisites),
        canonical=page.canonical or said.canonical,
        refresh=page.refresh,
        language=page.language or said.language,
        simhash=simhash(page.text),
        noindex="noindex" in page.wishes,
        nofollow=nofollow,
    )


def _listed(body: bytes, kind: str) -> sitemap.Listed | None:
    """What a feed or sitemap lists; None for every other document."""
    if kind in (sniff.RSS, sniff.ATOM) or (sniff.is_xml(kind) and sitemap.is_sitemap(body)):
        return sitemap.read_xml(body)
    if jsonfeed.is_feed(body, kind):
        return jsonfeed.read(body)
    if kind in sniff.GZIP_TYPES and sitemap.is_gzipped_listing(body):
        return sitemap.read_gzipped(body)
    if kind == sniff.PLAIN and sitemap.is_url_list(body):
        return sitemap.read_list(body)
    return None


def _other(body: bytes, kind: str, said: Said, base: str, wanted: Wanted) -> Page:
    charset = find_charset(body, said.content_type) if kind.startswith("text/") else ""
    needed: dict[str, None] = {}
    if kind == sniff.CSS and wanted.requisites:
        text = as_utf8(body[: requisites.MAX_CSS], charset).decode("utf-8", "replace")
        needed = dict.fromkeys(kept for url in requisites.of_css(text) if (kept := followed(url)))
    return Page(
        content_type=kind,
        charset=charset,
        base=base,
        requisites=list(needed)[: wanted.links],
        canonical=said.canonical,
        language=said.language,
        simhash=simhash(as_utf8(body[:MAX_PAGE], charset)) if kind == sniff.PLAIN else None,
        noindex="noindex" in said.wishes,
        nofollow="nofollow" in said.wishes,
    )
