"""What a document says: its type and charset, its links and title, and its wishes towards robots.

Invariant: whatever the bytes, time and memory are bounded (see MAX_TEXT, scan.py and sitemap.py), nothing raises, and the strings
are as the document wrote them: joining and normalising URLs is urls.py's. HTML, feeds, sitemaps and, where requisites are wanted,
style sheets have links; nothing else has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shepherd.reaper.document import json_feed, requisites, sitemap, sniff
from shepherd.reaper.document.charset import as_utf8, find_charset
from shepherd.reaper.document.headers import HeaderFacts
from shepherd.reaper.document.html_page import MAX_TITLE, HtmlPage, followed_href
from shepherd.reaper.document.simhash import simhash
from shepherd.reaper.document.visible_text import MAX_PAGE
from shepherd.reaper.fetch.exchange import ExtractOptions

MAX_TEXT: Final = 16 * 1024 * 1024  # bytes of a text that are read: as characters they may take four times that


@dataclass(frozen=True)
class PageFacts:
    """What a body says."""

    content_type: str  # what it is: the header's word, or that of its bytes where they know better
    charset: str  # "" where it is not text
    base: str  # what its links are relative to
    title: str = ""
    links: list[str] = field(default_factory=list)  # as written, in document order, no two equal
    requisites: list[str] = field(default_factory=list)  # the same; what it needs to be shown
    times: Mapping[str, int] = field(default_factory=dict)  # of links, as written: when each was last modified, where it says so
    canonical: str = ""  # as written, or ""
    refresh: str = ""  # target of a meta refresh, as written, or ""; it is among the links too
    language: str = ""
    simhash: int | None = None
    noindex: bool = False
    nofollow: bool = False  # then there are no links


def extract(body: bytes, header_facts: HeaderFacts, base: str, options: ExtractOptions) -> PageFacts:
    """The facts in a decoded body, beside those in its headers."""
    content_type = sniff.content_type(body, header_facts.content_type)
    if content_type in sniff.HTML_TYPES:
        return _html(body, content_type, header_facts, base, options)
    listing = _listing_of(body, content_type)
    if listing is not None:
        nofollow = "nofollow" in header_facts.wishes
        return PageFacts(
            content_type=content_type,
            charset="",
            base=base,
            title=" ".join(listing.title[: 8 * MAX_TITLE].split())[:MAX_TITLE],
            links=[] if nofollow else list(listing.urls),
            times={} if nofollow else listing.urls,
            canonical=header_facts.canonical,
            language=header_facts.language,
            noindex="noindex" in header_facts.wishes,
            nofollow=nofollow,
        )
    return _other(body, content_type, header_facts, base, options)


def _html(body: bytes, content_type: str, header_facts: HeaderFacts, base: str, options: ExtractOptions) -> PageFacts:
    body = body[:MAX_TEXT]
    charset = find_charset(body, header_facts.content_type)
    page = HtmlPage(base, options.links, options.agent, header_facts, options.requisites)
    page.read(as_utf8(body, charset))
    nofollow = "nofollow" in page.wishes
    return PageFacts(
        content_type=content_type,
        charset=charset,
        base=page.base,
        title=page.title,
        links=[] if nofollow else list(page.links),
        requisites=list(page.requisites),
        canonical=page.canonical or header_facts.canonical,
        refresh=page.refresh,
        language=page.language or header_facts.language,
        simhash=simhash(page.text),
        noindex="noindex" in page.wishes,
        nofollow=nofollow,
    )


def _listing_of(body: bytes, content_type: str) -> sitemap.Listing | None:
    """The URLs of a feed or sitemap; None for every other document."""
    if content_type in (sniff.RSS, sniff.ATOM) or (sniff.is_xml(content_type) and sitemap.is_sitemap(body)):
        return sitemap.read_xml(body)
    if json_feed.is_feed(body, content_type):
        return json_feed.read(body)
    if content_type in sniff.GZIP_TYPES and sitemap.is_gzipped_listing(body):
        return sitemap.read_gzipped(body)
    if content_type == sniff.PLAIN and sitemap.is_url_list(body):
        return sitemap.read_list(body)
    return None


def _other(body: bytes, content_type: str, header_facts: HeaderFacts, base: str, options: ExtractOptions) -> PageFacts:
    body = body[:MAX_TEXT]
    charset = find_charset(body, header_facts.content_type) if content_type.startswith("text/") else ""
    requisite_hrefs: dict[str, None] = {}
    if content_type == sniff.CSS and options.requisites:
        text = as_utf8(body[: requisites.MAX_CSS], charset).decode("utf-8", "replace")
        requisite_hrefs = dict.fromkeys(href for url in requisites.of_css(text) if (href := followed_href(url)))
    return PageFacts(
        content_type=content_type,
        charset=charset,
        base=base,
        requisites=list(requisite_hrefs)[: options.links],
        canonical=header_facts.canonical,
        language=header_facts.language,
        simhash=simhash(as_utf8(body[:MAX_PAGE], charset)) if content_type == sniff.PLAIN else None,
        noindex="noindex" in header_facts.wishes,
        nofollow="nofollow" in header_facts.wishes,
    )
