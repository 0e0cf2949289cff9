"""One document asked for by hand: the same reaper, guard, robots.txt and delays as in a reap, and nothing is stored.

The bytes of the web are touched in a local reapd alone, over the protocol of a reap (docs/protocol.md). Where a server may not be
asked yet, `NotYet` says from when on it may be; what was learnt until then (`Learnt`) need not be asked for again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from shepherd import urls
from shepherd.clock import end_of
from shepherd.config import Config
from shepherd.dispatch.contribute import Contributions, HotCache
from shepherd.dispatch.items import MAX_ROBOTS_HOPS, Item, Text, request
from shepherd.dispatch.sites import Site, SiteBook
from shepherd.dispatch.verify import Answer, PendingRequest, Verifier
from shepherd.errors import BadUrl, PeerLost
from shepherd.filters import Filter
from shepherd.formats import bucket
from shepherd.formats.check import Bytes
from shepherd.formats.journal import Entry
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.politeness.manual import Destination, ManualContacts, Readiness
from shepherd.robots import ABSENT, MAX_BYTES
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import ROBOTS_PATH, Url, parse
from shepherd.wire import messages as wire


class NotYet(Exception):
    """A server may not be asked before `ready.at_ms`."""

    def __init__(self, url: str, address: str, ready: Readiness) -> None:
        super().__init__(url)
        self.url, self.address, self.ready = url, address, ready


@dataclass(frozen=True)
class RobotsTxt:
    """A robots.txt: how it is known, its status (0 = unreachable) and body."""

    source: str  # stored, asked for now, ignored
    status: int
    body: bytes
    checked_s: int = 0  # when a stored one was last confirmed


@dataclass(frozen=True)
class SitePlace:
    """Where a site is, or why nowhere."""

    address: str
    server: Destination
    reason: Reason


@dataclass(frozen=True)
class ManualAnswer:
    """The outcome of one request: what the verifier believes, and what is only shown."""

    url: str
    answer: Answer
    head: bytes
    connect_ms: int
    first_byte_ms: int

    @property
    def record(self) -> Entry:
        return self.answer.record

    @property
    def contacted(self) -> bool:
        return self.answer.contacted

    @property
    def result(self) -> Result:
        return self.answer.result

    @property
    def reason(self) -> Reason:
        return self.answer.reason

    def attributes(self) -> dict[str, bytes]:
        """Of its bucket, if it has one."""
        return bucket.parse(self.answer.bucket).attributes if self.answer.bucket else {}

    def links(self) -> list[str]:
        links = self.answer.links
        if links is None:
            return []
        names = dict(zip(links.block.sites.tolist(), links.block.names, strict=True))
        sites = links.block.site[links.rows].tolist()
        return [(names[site] + text).decode("ascii") for site, text in zip(sites, links.texts, strict=True)]


@dataclass
class Learnt:
    """What the attempts so far have brought, by site."""

    rules: dict[str, RobotsTxt] = field(default_factory=dict)
    crawl_delay_ms: dict[str, int] = field(default_factory=dict)
    robots: list[ManualAnswer] = field(default_factory=list)  # requests for robots files, hops included
    hop: tuple[str, int] | None = None  # where the robots.txt redirected to, and how often it has


@dataclass(frozen=True)
class Story:
    """The whole of it. Without an answer nobody was asked for the page: there is no address, or robots.txt is unreachable."""

    url: Url
    place: SitePlace
    rules: RobotsTxt | None
    ready: Readiness | None
    answer: ManualAnswer | None


class Single:
    """One connection to a reaper, greeted, with one request in flight at a time."""

    def __init__(
        self,
        peer: wire.Peer,
        state: State,
        config: Config,
        filters: Filter,
        contacts: ManualContacts,
        clock_ms: Callable[[], int],
    ) -> None:
        self._peer, self._state = peer, state
        self._contacts, self._clock = contacts, clock_ms
        self._tokens, self._timeout_ms = itertools.count(1), round(config.fetch.timeout_s * 1000)
        self._book = SiteBook(state, config.politeness, filters, clock_ms() // 1000)
        contributions = Contributions(_no_contributions, filters.version, HotCache(bits=1))
        self._verifier = Verifier(state.control.key, state.number, filters.version, config.fetch, contributions)

    async def ask(self, url: Url, learnt: Learnt) -> Story:
        """Look the site up, read its robots.txt, ask for the page. NotYet where that must wait."""
        place = await self._place(url, learnt)
        if not place.address:
            return Story(url, place, None, None, None)
        rules = self._known_rules(url, learnt)
        if rules is None:
            rules = learnt.rules[url.site] = await self._ask_for_rules(url, learnt)
            place = await self._place(url, learnt)  # with the Crawl-delay that it asks for
        if not rules.status:
            return Story(url, place, rules, None, None)
        await self._peer.send(wire.Robots(self._state.prints.half(url.site), rules.status, rules.body[:MAX_BYTES]))
        ready = self._contacts.ready(place.server)
        answer = await self._fetch(url.href, Kind.PAGE, self._state.prints.of(url), place, 0)
        return Story(url, place, rules, ready, answer)

    # --- what is known ----------------------------------------------------------------------------------------------

    async def _place(self, url: Url, learnt: Learnt) -> SitePlace:
        token, site = next(self._tokens), self._site(url)
        await self._peer.send(wire.Resolve(token, site.site, site.name))
        resolved = await self._receive(token)
        if not isinstance(resolved, wire.Resolved):
            raise PeerLost("the reaper did not answer RESOLVE with RESOLVED")
        if resolved.reason or not urls.is_address_of(resolved.address, resolved.qkey):
            reason = Reason.GUARD if resolved.reason == Reason.GUARD else Reason.NO_ADDRESS
            return SitePlace("", Destination(0, 0, 0), reason)
        self._book.located(site, resolved.qkey, resolved.address)
        site.crawl_delay_ms = learnt.crawl_delay_ms.get(site.name, site.crawl_delay_ms)
        server = Destination(resolved.qkey, site.group, site.delay_ms, site.crawl_delay_ms, site.site)
        return SitePlace(resolved.address, server, Reason.NONE)

    def _site(self, url: Url) -> Site:
        norm, _path, site = self._state.prints.of(url)
        return self._book.enter(site, norm, url.site)

    def _known_rules(self, url: Url, learnt: Learnt) -> RobotsTxt | None:
        """What this call has learnt, or what is stored and still fresh."""
        site = self._site(url)
        if site.name in learnt.rules:
            return learnt.rules[site.name]
        if self._book.ignores_robots(site):
            return RobotsTxt("ignored", ABSENT, b"")
        row = lookup.site_row(self._state, site.site)
        if row is None or not site.rules_known or not self._book.has_rules(site):
            return None
        status, body = self._book.rules(site)
        return RobotsTxt("stored", status, body[:MAX_BYTES], self._state.sites["robots_checked"].value(row))

    # --- asking -----------------------------------------------------------------------------------------------------

    async def _ask_for_rules(self, url: Url, learnt: Learnt) -> RobotsTxt:
        """Redirects are followed, each when its own server may be asked."""
        prints = self._state.prints.of(parse(f"{url.site}{ROBOTS_PATH}"))
        target, hops = learnt.hop or (f"{url.site}{ROBOTS_PATH}", 0)
        while True:
            place = await self._place(parse(target), learnt)
            if not place.address:
                return RobotsTxt("asked for now", 0, b"")
            answer = await self._fetch(target, Kind.ROBOTS, prints, place, hops)
            learnt.robots.append(answer)
            if answer.result != Result.REDIRECT:
                learnt.crawl_delay_ms[url.site] = answer.record.crawl_delay_ms
                return RobotsTxt("asked for now", answer.answer.rules_status, answer.answer.rules)
            hops += 1
            if hops > MAX_ROBOTS_HOPS or not _is_url(answer.answer.location):
                return RobotsTxt("asked for now", ABSENT, b"")
            target = answer.answer.location
            learnt.hop = target, hops

    async def _fetch(self, url: str, kind: Kind, prints: tuple[int, int, int], place: SitePlace, hops: int) -> ManualAnswer:
        ready = self._contacts.ready(place.server)
        if ready.at_ms <= self._clock():
            ready = self._contacts.claim(place.server, ready)
        if ready.at_ms > self._clock():
            raise NotYet(url, place.address, ready)
        token, (norm, path, site) = next(self._tokens), prints
        item = Item(kind, norm, path, site, site, site, url, hops=hops, alone=True)  # if it kills its parser, we hear of it
        contact = self._contacts.begin(place.server, kind, prints, ready.delay_ms)
        start_ms = contact.deadline_ms - self._timeout_ms
        pending = PendingRequest(item, place.server.qkey, place.server.group, url, start_ms)
        fetch = request(item, Text(url, "", ""), self._site(parse(url)), token, start_ms, self._timeout_ms, reuse=False)
        await self._peer.send(replace(fetch, head=True))
        message = await self._receive(token)
        if not isinstance(message, wire.FetchResult):
            raise PeerLost("the reaper did not answer FETCH with RESULT")
        answer = self._verifier.checked(message, pending, 0, end_of(self._clock()))
        self._contacts.end(contact, answer.record)
        return ManualAnswer(url, answer, message.head, message.connect_ms, message.first_byte_ms)

    async def _receive(self, token: int) -> wire.Resolved | wire.FetchResult:
        async for message in self._peer.messages():
            if isinstance(message, wire.Resolved | wire.FetchResult):
                if message.token != token:
                    raise PeerLost("the reaper answered something that it was not asked")
                return message
        raise PeerLost("the reaper closed its connection: what it fetched has killed it, or its memory was too small")


def _is_url(text: str) -> bool:
    try:
        parse(text)
    except BadUrl:
        return False
    return True


def _no_contributions(_records: int, _block: Bytes) -> None:
    """Nothing is stored."""
