"""What the reaper makes of an exchange: the RESULT with its journal record, its bucket and its contributions.

Functions of what they are given, without I/O or clock, so that a large page can be worked on in a thread. The tables of status
and failure are here and nowhere else. Invariant: the body of a bucket always decodes whole; a body that was cut is stored as far
as it was decoded, marked as truncated.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import numpy as np

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats import bucket, contrib
from shepherd.formats.attributes import MAX_LINKS
from shepherd.formats.bucket import BucketFlag, Codec
from shepherd.formats.tables import JOURNAL, NO_OID, NO_ROW, ContribFlag, JournalFlag, Kind, Reason, Result
from shepherd.net import extract, wire
from shepherd.net.fetch import Response
from shepherd.sections import section_of_type

_SENT: Final = {
    "gzip": Codec.GZIP_SENT,
    "x-gzip": Codec.GZIP_SENT,
    "br": Codec.BR_SENT,
    "zstd": Codec.ZSTD_SENT,
    "deflate": Codec.DEFLATE_SENT,
}
FAILURES: Final = {
    Reason.CONNECTION: Result.CONNECTION,
    Reason.DEADLINE: Result.SOFT,
    Reason.TOO_SLOW: Result.SOFT,
    Reason.MALFORMED: Result.HARD,
    Reason.GUARD: Result.HARD,
}
PERMANENT: Final = (301, 308)
NO_FLAGS: Final = JournalFlag(0)
U32_MAX: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for all answers on one connection."""

    state: int
    footprints: urls.Footprints
    filter: Filter
    links_per_page: int
    compress: str  # how a body that came plain is stored
    robots_agent: str  # the product token that robots.txt and meta robots may address


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was sent, or begun, and what came of it."""

    fetch: wire.Fetch
    response: Response
    start_ms: int
    end_ms: int

    @property
    def download_ms(self) -> int:
        """Rounded up, so that the next contact is never early."""
        return min(int(self.response.total_s * 1000) + 1, U32_MAX)

    def result(
        self,
        result: Result,
        reason: Reason,
        *,
        flags: JournalFlag = NO_FLAGS,
        digest: int = 0,
        body_bytes: int = 0,
        crawl_delay_ms: int = 0,
        stored: bytes = b"",
        links: bytes = b"",
        location: str = "",
        rules: bytes = b"",
        rules_status: int = 0,
        status: int | None = None,
        section: int | None = None,
    ) -> wire.Result:
        """`status` is what the answer counts as, where that is not what the server said."""
        response = self.response
        if response.contacted:
            flags |= JournalFlag.CONTACTED
        record = _record(
            self.fetch,
            result,
            reason,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            download_ms=self.download_ms,
            digest=digest,
            body_bytes=body_bytes,
            stored_bytes=len(stored),
            wire_bytes=min(response.wire_bytes, U32_MAX),
            retry_after_s=retry_after_s(response.header("retry-after"), self.end_ms),
            crawl_delay_ms=crawl_delay_ms,
            status=response.status if status is None else status,
            section=self.fetch.section if section is None else section,
            flags=flags,
        )
        return wire.Result(self.fetch.token, record, stored, links, location, rules, rules_status)


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body."""

    data: bytes
    truncated: str  # why it is not whole, a word; "" if it is

    @property
    def flags(self) -> JournalFlag:
        return JournalFlag.TRUNCATED if self.truncated else NO_FLAGS


def without_exchange(fetch: wire.Fetch, result: Result, reason: Reason, now_ms: int, *, contacted: bool = False) -> wire.Result:
    """The answer to a request that the server never saw, or (contacted) of which nothing more is known."""
    flags = JournalFlag.CONTACTED if contacted else NO_FLAGS
    record = _record(fetch, result, reason, start_ms=now_ms, end_ms=now_ms, flags=flags)
    return wire.Result(fetch.token, record, b"", b"", "", b"", 0)


def has_body(response: Response) -> bool:
    """Whether there is a document to decode and keep."""
    return response.reason == Reason.NONE and 200 <= response.status < 300


def failed(exchange: Exchange) -> wire.Result:
    """An exchange that brought no answer. A kept connection that died is no failure of the server."""
    reason = exchange.response.reason
    if exchange.response.stale:
        return exchange.result(Result.SOFT, reason, flags=JournalFlag.STALE)
    return exchange.result(FAILURES[reason], reason)


def broken(exchange: Exchange, reason: Reason) -> wire.Result:
    """An answer that came and cannot be used."""
    return exchange.result(Result.HARD, reason)


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
        links=_block(context, fetch, links, ContribFlag.CANONICAL, canonical),
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


def retry_after_s(value: str, now_ms: int) -> int:
    """Seconds of a Retry-After header, given as such or as a date; 0 where it says nothing we can read."""
    if value.isascii() and value.isdigit():
        return min(int(value[:10]), U32_MAX)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError, IndexError):
        return 0
    until = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    return min(max(0, int(until - now_ms / 1000) + 1), U32_MAX)


def error_of(status: int) -> tuple[Result, Reason]:
    """What a status means that is no success and no redirect."""
    if status == 429 or 500 <= status < 600:
        return Result.SOFT, Reason.SERVER_ERROR
    if 400 <= status < 500:
        return Result.HARD, Reason.CLIENT_ERROR
    return Result.HARD, Reason.MALFORMED


def is_redirect(response: Response) -> bool:
    """Whether the answer names another URL to ask."""
    return 300 <= response.status < 400 and response.status != 304 and bool(response.header("location"))


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
        links=_block(context, fetch, links, kind, location),
        location=location,
    )


def location_of(response: Response) -> str:
    """Headers are bytes; in a Location they are meant as UTF-8 more often than as Latin-1."""
    raw = response.header("location").encode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


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


def _block(context: Context, fetch: wire.Fetch, links: urls.Links, flag: ContribFlag, flagged: str | None) -> bytes:
    """A contrib block of these links, with this page as their parent; the link `flagged` carries the flag."""
    count = len(links)
    if not count:
        return b""
    sites, first = np.unique(links.site, return_index=True)
    https = [ContribFlag.HTTPS if href.startswith("https:") else 0 for href in links.hrefs]
    own = [flag if href == flagged else 0 for href in links.hrefs]
    return contrib.encode(
        contrib.Block(
            norm=links.norm,
            path=links.path,
            site=links.site,
            lastmod=np.zeros(count, "<u4"),
            parent=np.zeros(count, "<u4"),
            parent_weight=np.full(count, fetch.weight, "<u2"),
            flags=np.array(https, "<u2") | np.array(own, "<u2"),
            section=np.array([context.filter.section_of(href).section for href in links.hrefs], "u1"),
            texts=[text.encode("ascii") for text in links.paths],
            sites=sites,
            norms=links.norm[first],
            names=[links.sites[at].encode("ascii") for at in first.tolist()],
            parents_site=np.array([fetch.site], "<u8"),
            parents_path=np.array([fetch.path], "<u8"),
            filter_version=context.filter.version,
        )
    )


def redirect_bucket(context: Context, exchange: Exchange, target: str) -> bytes:
    """The bucket of a redirect, wherever it leads."""
    return bucket_of(context, exchange, [("E", target.encode("utf-8", "replace")[: urls.MAX_URL_BYTES])], None)


def bucket_of(context: Context, exchange: Exchange, attributes: list[tuple[str, bytes]], body: Body | None) -> bytes:
    """The bucket of a document, or of a redirect where `body` is None."""
    fetch, response = exchange.fetch, exchange.response
    known = [
        ("U", fetch.url.encode("ascii")),
        ("S", response.status_line),
        ("H", response.headers if body is not None else b""),
        *attributes,
        ("A", response.address.encode("ascii")),
        ("m", exchange.download_ms.to_bytes(4, "little")),
    ]
    flags = BucketFlag(0)
    codec, stored = Codec.NONE, b""
    if body is not None:
        sent = _SENT.get(response.encoding)
        if body.truncated:
            known.append(("X", body.truncated.encode("ascii")))
            flags = BucketFlag.TRUNCATED
        if sent is not None and not body.truncated and body.data:
            codec, stored = sent, response.body
        else:
            codec, stored = bucket.compress(body.data, context.compress)
    return bucket.pack(
        site=fetch.site,
        path=fetch.path,
        time_ms=exchange.end_ms,
        state=context.state,
        attributes=[(letter, text) for letter, text in known if text],
        body=stored,
        codec=codec,
        plain_bytes=len(body.data) if body is not None else 0,
        flags=flags,
    )


def _record(fetch: wire.Fetch, result: Result, reason: Reason, *, start_ms: int, end_ms: int, **more: int) -> bytes:
    """A journal record with the footprints of the request; what the dispatcher fills in is left open."""
    row = np.zeros(1, JOURNAL)
    values = {
        "norm": fetch.norm,
        "path": fetch.path,
        "site": fetch.site,
        "answered": fetch.site,
        "qkey": fetch.qkey,
        "oid": NO_OID,
        "start_ms": start_ms,
        "end_ms": end_ms,
        "plan_row": NO_ROW,
        "hops": fetch.hops,
        "kind": Kind(fetch.kind),
        "result": result,
        "reason": reason,
        "section": fetch.section,
    }
    for name, value in (values | more).items():
        row[name] = value
    return row.tobytes()
