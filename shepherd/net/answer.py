"""What the reaper makes of the answer for a page: the RESULT with its journal record, its bucket and its contributions.

Functions of what they are given, without I/O or clock, so that a large page can be worked on in a thread. Read exchange.py first.
"""

from __future__ import annotations

import hashlib

import numpy as np

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.formats.attributes import MAX_LINKS
from shepherd.formats.tables import ContribFlag, JournalFlag, Reason, Result
from shepherd.net import extract, outlinks, wire
from shepherd.net.exchange import NO_FLAGS, PERMANENT, Body, Context, Exchange, error_of, failed, is_redirect, location_of
from shepherd.net.stored import bucket_of, redirect_bucket
from shepherd.sections import section_of_type


def page(context: Context, exchange: Exchange, body: Body) -> wire.Result:
    """A document that arrived."""
    fetch, response = exchange.fetch, exchange.response
    sha256 = hashlib.sha256(body.data).digest()
    digest = int.from_bytes(sha256[:8], "little")
    if digest == fetch.digest:
        return exchange.result(Result.UNCHANGED, Reason.UNCHANGED, flags=body.flags, digest=digest, body_bytes=len(body.data))
    content_type, x_robots = response.header("content-type"), "\n".join(response.all("x-robots-tag"))
    parsed = extract.extract(body.data, content_type, fetch.url, context.links_per_page, x_robots, context.robots_agent)
    flags = body.flags | (JournalFlag.NOINDEX if parsed.noindex else NO_FLAGS)
    canonical = _elsewhere(context, fetch, parsed)
    if canonical is not None:
        flags |= JournalFlag.ELSEWHERE
    links = _links(context, fetch, parsed, canonical)
    pairs = np.stack((links.norm, links.path), axis=1)[:MAX_LINKS].astype("<u8").tobytes()
    attributes = [
        ("T", parsed.content_type.encode("utf-8", "replace")),
        ("C", parsed.charset.encode("utf-8", "replace")),
        ("D", sha256),
        ("t", parsed.title.encode("utf-8", "replace")),
        ("L", pairs),
    ]
    return exchange.result(
        Result.STORED,
        Reason.GATHERED,
        flags=flags,
        digest=digest,
        body_bytes=len(body.data),
        section=_section(context, fetch, parsed.content_type),
        stored=bucket_of(context, exchange, attributes, body),
        links=outlinks.block(context, fetch, links, ContribFlag.CANONICAL, canonical),
    )


def _section(context: Context, fetch: wire.Fetch, content_type: str) -> int:
    """What the filter says of the URL, else what it had before, for an operator may have set that, else what the document is."""
    told = context.filter.section_of(fetch.url)
    return told.section if told.line else fetch.section or section_of_type(content_type)


def bodiless(context: Context, exchange: Exchange) -> wire.Result:
    """An answer for a page that brought no document: a redirect, an error, a failure, or nothing new."""
    fetch, response = exchange.fetch, exchange.response
    if response.reason != Reason.NONE:
        return failed(exchange)
    if response.status == 304 and (fetch.etag or fetch.modified):
        return exchange.result(Result.UNCHANGED, Reason.UNCHANGED, digest=fetch.digest)
    if is_redirect(response):
        return _redirect(context, exchange)
    return exchange.result(*error_of(response.status))


def _redirect(context: Context, exchange: Exchange) -> wire.Result:
    fetch, response = exchange.fetch, exchange.response
    permanent = response.status in PERMANENT
    said = location_of(response)
    target, location = said, ""
    try:
        target = urls.join(fetch.url, said).href
        location = context.filter.clean(target) or ""
    except BadUrl:
        pass
    links = urls.batch(fetch.url, [location] if location else [], context.footprints)
    kind = ContribFlag.PERMANENT if permanent else ContribFlag.TEMPORARY
    return exchange.result(
        Result.REDIRECT,
        Reason.REDIRECT,
        flags=JournalFlag.PERMANENT if permanent else NO_FLAGS,
        stored=redirect_bucket(context, exchange, target),
        links=outlinks.block(context, fetch, links, kind, location),
        location=location,
    )


def _elsewhere(context: Context, fetch: wire.Fetch, parsed: extract.Page) -> str | None:
    """The canonical URL of a page if that is another document than this one, and one we would gather."""
    if not parsed.canonical:
        return None
    try:
        href = context.filter.clean(urls.join(parsed.base, parsed.canonical).href)
    except BadUrl:
        return None
    if href is None:
        return None
    # Compared by the implicit rule: a reaper does not know the classes that made fetch.norm.
    here, there = (context.footprints.of(urls.parse(url))[:2] for url in (fetch.url, href))
    return None if here == there else href


def _links(context: Context, fetch: wire.Fetch, parsed: extract.Page, canonical: str | None) -> urls.Links:
    if parsed.nofollow:
        return urls.batch(fetch.url, [], context.footprints)
    found = [*([canonical] if canonical else []), *parsed.links]
    try:
        return urls.batch(parsed.base, found, context.footprints, context.filter.clean)
    except BadUrl:  # the page's own <base>
        return urls.batch(fetch.url, found, context.footprints, context.filter.clean)
