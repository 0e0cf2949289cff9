"""The RESULT of an answer for a page, with its journal record, its bucket and its contributions.

Pure functions, without I/O or clock, so that a large page can be parsed in another process. Read exchange.py first.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.formats.attributes import MAX_LINKS
from shepherd.formats.tables import ContribFlag, JournalFlag, Reason, Result
from shepherd.reaper.document import extract, outlinks
from shepherd.reaper.document.bucket import bucket_of, redirect_bucket
from shepherd.reaper.document.headers import HeaderFacts, facts_of_headers, modified_ms
from shepherd.reaper.fetch.exchange import (
    NO_FLAGS,
    PERMANENT,
    Body,
    Context,
    Exchange,
    ExtractOptions,
    error_of,
    failure,
    is_redirect,
    location_of,
)
from shepherd.reaper.fetch.fetcher import Response
from shepherd.sections import section_of_type
from shepherd.wire import messages as wire


def page_result(context: Context, exchange: Exchange, body: Body) -> wire.FetchResult:
    """The result of a document that arrived."""
    fetch, response = exchange.fetch, exchange.response
    sha256 = hashlib.sha256(body.data).digest()
    digest = int.from_bytes(sha256[:8], "little")
    if digest == fetch.digest:
        return exchange.result(Result.UNCHANGED, Reason.UNCHANGED, flags=body.flags, digest=digest, body_bytes=len(body.data))
    parsed = extract.extract(body.data, _header_facts(context, response), fetch.url, _options_for(context, fetch))
    canonical = outlinks.clean_href(context, parsed.base, parsed.canonical) if parsed.canonical else None
    elsewhere = canonical if canonical and _is_elsewhere(context, fetch, canonical) else None
    contribution = _outlinks(context, fetch, parsed, elsewhere)
    flags = body.flags | (JournalFlag.NOINDEX if parsed.noindex else NO_FLAGS)
    flags |= JournalFlag.ELSEWHERE if elsewhere else NO_FLAGS
    attributes = [
        ("T", parsed.content_type.encode("ascii", "replace")),
        ("C", parsed.charset.encode("ascii")),
        ("D", sha256),
        ("t", parsed.title.encode("utf-8", "replace")),
        ("l", parsed.language.encode("ascii")),
        ("N", _wishes(parsed)),
        ("K", (canonical or "").encode("ascii")),
        ("M", _modified(response.header("last-modified"))),
        ("h", parsed.simhash.to_bytes(8, "little") if parsed.simhash is not None else b""),
        ("L", np.stack((contribution.links.norm, contribution.links.path), axis=1)[:MAX_LINKS].astype("<u8").tobytes()),
    ]
    return exchange.result(
        Result.STORED,
        Reason.GATHERED,
        flags=flags,
        digest=digest,
        body_bytes=len(body.data),
        section=_section(context, fetch, parsed.content_type),
        stored=bucket_of(context, exchange, attributes, body),
        links=outlinks.block(context, fetch, contribution),
    )


def _options_for(context: Context, fetch: wire.Fetch) -> ExtractOptions:
    """The options for a page: a line of the filter for its site overrides the configuration."""
    with_requisites = context.filter.requisites_of(fetch.url, fetch.qkey)
    return context.options if with_requisites is None else replace(context.options, requisites=with_requisites)


def _header_facts(context: Context, response: Response) -> HeaderFacts:
    return facts_of_headers(
        response.header("content-type"),
        response.all("x-robots-tag"),
        response.all("link"),
        response.header("content-language"),
        context.options.agent,
    )


def _wishes(parsed: extract.PageFacts) -> bytes:
    return b" ".join(word for word, is_set in ((b"noindex", parsed.noindex), (b"nofollow", parsed.nofollow)) if is_set)


def _modified(header: str) -> bytes:
    time_ms = modified_ms(header) if header else None
    return time_ms.to_bytes(8, "little") if time_ms is not None else b""


def _section(context: Context, fetch: wire.Fetch, content_type: str) -> int:
    """The section that the filter sets, else the one it had before, as an operator may have set that, else that of its type."""
    rule = context.filter.section_of(fetch.url)
    return rule.section if rule.line else fetch.section or section_of_type(content_type)


def bodiless_result(context: Context, exchange: Exchange) -> wire.FetchResult:
    """The result of an answer without a document: a redirect, an error, a failure, or "not modified"."""
    fetch, response = exchange.fetch, exchange.response
    if response.reason != Reason.NONE:
        return failure(exchange)
    if response.status == 304 and (fetch.etag or fetch.modified):
        return exchange.result(Result.UNCHANGED, Reason.UNCHANGED, digest=fetch.digest)
    if is_redirect(response):
        return _redirect(context, exchange)
    return exchange.result(*error_of(response.status))


def _redirect(context: Context, exchange: Exchange) -> wire.FetchResult:
    fetch, response = exchange.fetch, exchange.response
    permanent = response.status in PERMANENT
    location_header = location_of(response)
    target, location = location_header, ""
    try:
        target = urls.join(fetch.url, location_header).href
        location = context.filter.clean(target) or ""
    except BadUrl:
        pass
    links = urls.batch(fetch.url, [location] if location else [], context.footprints)
    kind = ContribFlag.PERMANENT if permanent else ContribFlag.TEMPORARY
    contribution = outlinks.Outlinks(links, {location: kind})
    return exchange.result(
        Result.REDIRECT,
        Reason.REDIRECT,
        flags=JournalFlag.PERMANENT if permanent else NO_FLAGS,
        stored=redirect_bucket(context, exchange, target),
        links=outlinks.block(context, fetch, contribution),
        location=location,
    )


def _is_elsewhere(context: Context, fetch: wire.Fetch, canonical: str) -> bool:
    """Whether a page's canonical URL is that of another document.

    Compared by the implicit rule: a reaper does not know the classes that made fetch.norm.
    """
    here, there = (context.footprints.of(urls.parse(url))[:2] for url in (fetch.url, canonical))
    return here != there


def _outlinks(context: Context, fetch: wire.Fetch, parsed: extract.PageFacts, canonical: str | None) -> outlinks.Outlinks:
    """What a document links to. Its requisites are a part of it, so nofollow does not apply to them."""
    followed = [] if parsed.nofollow else [*([canonical] if canonical else []), *parsed.links]
    needed = parsed.requisites[: max(0, context.options.links - len(followed))]
    links = outlinks.distinct_links(context, parsed.base, [*followed, *needed], fetch.url)
    flags: dict[str, int] = {}
    if needed:
        followed_hrefs = frozenset(outlinks.distinct_links(context, parsed.base, followed, fetch.url).hrefs)
        flags = {href: ContribFlag.REQUISITE for href in links.hrefs if href not in followed_hrefs}
    if canonical:
        flags[canonical] = ContribFlag.CANONICAL
    return outlinks.Outlinks(links, flags, outlinks.times_of(context, parsed.base, parsed.times))
