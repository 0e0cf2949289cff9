"""The robots rules that a worker knows, and the rules that follow from the answer to a request for a robots file.

A redirect of a robots file settles nothing: the dispatcher requests its target when that server is ready.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from shepherd import robots, urls
from shepherd.errors import BadUrl
from shepherd.formats.tables import JournalFlag, Reason, Result
from shepherd.reaper.document import outlinks, sniff
from shepherd.reaper.document.bucket import bucket_of, redirect_bucket
from shepherd.reaper.fetch.exchange import (
    NO_FLAGS,
    PERMANENT,
    U32_MAX,
    Body,
    Context,
    Exchange,
    error_of,
    failure,
    has_body,
    is_redirect,
    location_of,
    unusable,
)
from shepherd.wire import messages as wire

_CACHE_BYTES: Final = 16 * 1024 * 1024  # of robots.txt; as rules they take several times that
_ENTRY_BYTES: Final = 256


class RulesCache:
    """Rules by site, least recently used forgotten first, bounded by the bytes they were made of."""

    def __init__(self, limit_bytes: int = _CACHE_BYTES) -> None:
        self._room = limit_bytes
        self._entries: OrderedDict[int, tuple[robots.Rules | None, int]] = OrderedDict()

    def get(self, site: int) -> robots.Rules | None:
        """The rules of a site; None where nothing may be gathered: no rules are known, or its robots.txt is unreachable."""
        entry = self._entries.get(site)
        if entry is None:
            return None
        self._entries.move_to_end(site)
        return entry[0]

    def put(self, site: int, rules: robots.Rules | None, body_bytes: int) -> None:
        if site in self._entries:
            self._room += self._entries.pop(site)[1]
        size = body_bytes + _ENTRY_BYTES
        self._entries[site] = rules, size
        self._room -= size
        while self._room < 0 and len(self._entries) > 1:
            _, (_, freed) = self._entries.popitem(last=False)
            self._room += freed


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """The answer to a request for a robots file. If it settles something, `rules` decide now; None: nothing is gathered."""

    result: wire.FetchResult
    settles: bool
    rules: robots.Rules | None


def robots_file(context: Context, exchange: Exchange, body: Body | None) -> RobotsAnswer:
    """The rules in an answer; `body` is None where there is none, or none that can be decoded."""
    response = exchange.response
    if body is not None:
        return _robots_body(context, exchange, body)
    if response.reason == Reason.NONE and is_redirect(response):
        return _robots_redirect(context, exchange)
    if has_body(response):
        return RobotsAnswer(unusable(exchange, Reason.DECODING), True, None)
    if response.reason != Reason.NONE:
        return RobotsAnswer(failure(exchange), True, None)
    rules = robots.rules_for(response.status, b"", context.options.agent)
    nowhere = rules is not None and 300 <= response.status < 400
    status = robots.ABSENT if nowhere else response.status  # a redirect to nowhere counts as no file at all
    result = exchange.result(*error_of(response.status), rules_status=status if rules is not None else 0, status=status)
    return RobotsAnswer(result, True, rules)


def _robots_redirect(context: Context, exchange: Exchange) -> RobotsAnswer:
    response = exchange.response
    try:
        location = urls.join(exchange.fetch.url, location_of(response)).href
    except BadUrl:
        result = exchange.result(Result.HARD, Reason.MALFORMED, rules_status=robots.ABSENT, status=robots.ABSENT)
        return RobotsAnswer(result, True, robots.rules_for(robots.ABSENT, b"", context.options.agent))
    result = exchange.result(
        Result.REDIRECT,
        Reason.REDIRECT,
        flags=JournalFlag.PERMANENT if response.status in PERMANENT else NO_FLAGS,
        stored=redirect_bucket(context, exchange, location),
        location=location,
    )
    return RobotsAnswer(result, False, None)


def _robots_body(context: Context, exchange: Exchange, body: Body) -> RobotsAnswer:
    fetch, response = exchange.fetch, exchange.response
    sha256 = hashlib.sha256(body.data).digest()
    digest = int.from_bytes(sha256[:8], "little")
    rules = robots.rules_for(response.status, body.data, context.options.agent)
    delay_s = rules.crawl_delay_s if rules is not None else None
    unchanged = digest == fetch.digest
    attributes = [("T", sniff.media_type(response.header("content-type")).encode("ascii")), ("D", sha256)]
    result = exchange.result(
        Result.UNCHANGED if unchanged else Result.STORED,
        Reason.UNCHANGED if unchanged else Reason.GATHERED,
        flags=body.flags,
        digest=digest,
        body_bytes=len(body.data),
        crawl_delay_ms=min(int((delay_s or 0) * 1000), U32_MAX),
        stored=b"" if unchanged else bucket_of(context, exchange, attributes, body),
        links=b"" if unchanged or rules is None else _sitemaps(context, exchange.fetch, rules),
        rules=body.data,
        rules_status=response.status,
    )
    return RobotsAnswer(result, True, rules)


def _sitemaps(context: Context, fetch: wire.Fetch, rules: robots.Rules) -> bytes:
    """The sitemaps that a robots file names, as contributions of its site."""
    links = outlinks.distinct_links(context, fetch.url, rules.sitemaps[: robots.MAX_SITEMAPS], fetch.url)
    return outlinks.block(context, fetch, outlinks.Outlinks(links))
