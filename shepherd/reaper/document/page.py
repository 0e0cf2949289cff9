"""What the reaper makes of the answer for a page: the RESULT with its journal record, its bucket and its contributions.

Functions of what they are given, without I/O or clock, so that a large page can be worked on in a thread. Read exchange.py first.
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
from shepherd.reaper.document.headers import Said, headers_say, modified_ms
from shepherd.reaper.fetch.exchange import (
    NO_FLAGS,
    PERMANENT,
    Body,
    Context,
    Exchange,
    Wanted,
    error_of,
    failed,
    is_redirect,
    location_of,
)
from shepherd.reaper.fetch.fetcher import Response
from shepherd.sections import section_of_type
from shepherd.wire import messages as wire


def page(context: Context, exchange: Exchange, body: Body) -> wire.Result:
    """A document that arrived."""
    fetch, response = exchange.fetch, exchange.response
    sha256 = hashlib.sha256(body.data).digest()
    digest = int.from_bytes(sha256[:8], "little")
    if digest == fetch.digest:
        return exchange.result(Result.UNCHANGED, Reason.UNCHANGED, flags=body.flags, digest=digest, body_bytes=len(body.data))
    parsed = extract.extract(body.data, _said(context, response), fetch.url, _wanted(context, fetch))
    canonical = outlinks.cleaned(context, parsed.base, parsed.canonical) if parsed.canonical else None
    elsewhere = canonical if canonical and _is_elsewhere(context, fetch, canonical) else None
    found = _outlinks(context, fetch, parsed, elsewhere)
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
        ("L", np.stack((found.links.norm, found.links.path), axis=1)[:MAX_LINKS].astype("<u8").tobytes()),
    ]
    return exchange.result(
        Result.STORED,
        Reason.GATHERED,
        flags=flags,
        digest=digest,
        body_bytes=len(body.data),
        section=_section(context, fetch, parsed.content_type),
        stored=bucket_of(context, exchange, attributes, body),
        links=outlinks.block(context, fetch, found),
    )


def _wanted(context: Context, fetch: wire.Fetch) -> Wanted:
    """What a line of the filter says of the site goes before the configuration."""
    told = context.filter.requisites_of(fetch.url, fetch.qkey)
    return context.wanted if told is None else replace(context.wanted, requisites=told)


def _said(context: Context, response: Response) -> Said:
    return headers_say(
        response.header("content-type"),
        response.all("x-robots-tag"),
        response.all("link"),
        response.header("content-language"),
        context.wanted.agent,
    )


def _wishes(parsed: extract.Page) -> bytes:
    return b" ".join(word for word, asked in ((b"noindex", parsed.noindex), (b"nofollow", parsed.nofollow)) if asked)


def _modified(header: str) -> bytes:
    time_ms = modified_ms(header) if header else None
    return time_ms.to_bytes(8, "little") if time_ms is not None else b""


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
    found = outlinks.Outlinks(links, {location: kind})
    return exchange.result(
        Result.REDIRECT,
        Reason.REDIRECT,
        flags=JournalFlag.PERMANENT if permanent else NO_FLAGS,
        stored=redirect_bucket(context, exchange, target),
        links=outlinks.block(context, fetch, found),
        location=location,
    )


def _is_elsewhere(context: Context, fetch: wire.Fetch, canonical: str) -> bool:
    """Whether a page's canonical URL is that of another document.

    Compared by the implicit rule: a reaper does not know the classes that made fetch.norm.
    """
    here, there = (context.footprints.of(urls.parse(url))[:2] for url in (fetch.url, canonical))
    return here != there


def _outlinks(context: Context, fetch: wire.Fetch, parsed: extract.Page, canonical: str | None) -> outlinks.Outlinks:
    """What a document links to. What it needs to be shown is a part of it, and so no link that nofollow speaks of."""
    named = [] if parsed.nofollow else [*([canonical] if canonical else []), *parsed.links]
    needed = parsed.requisites[: max(0, context.wanted.links - len(named))]
    links = outlinks.batch(context, parsed.base, [*named, *needed], fetch.url)
    flags: dict[str, int] = {}
    if needed:
        followed = frozenset(outlinks.batch(context, parsed.base, named, fetch.url).hrefs)
        flags = {href: ContribFlag.REQUISITE for href in links.hrefs if href not in followed}
    if canonical:
        flags[canonical] = ContribFlag.CANONICAL
    return outlinks.Outlinks(links, flags, outlinks.times_of(context, parsed.base, parsed.times))
