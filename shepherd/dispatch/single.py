"""One document asked for by hand: the same reaper, guard, robots.txt and delays as in a reap, and nothing is stored.

The bytes of the web are touched in a local reapd alone, over the protocol of a reap (docs/protocol.md). Where a server may not be
asked yet, `NotYet` says from when on it may be; what was learnt until then (`Learnt`) need not be asked for again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shepherd import urls
from shepherd.config import Config
from shepherd.dispatch.items import MAX_ROBOTS_HOPS
from shepherd.errors import BadUrl, Corruption, PeerLost
from shepherd.filters import Filter
from shepherd.formats import bucket, contrib
from shepherd.formats.bucket import Bucket
from shepherd.formats.tables import CONTRIB_BIT, JOURNAL, JournalFlag, Kind, Reason, Records, Result
from shepherd.politeness.delays import default_delay_ms, site_delay_ms
from shepherd.politeness.manual import Destination, ManualContacts, Readiness
from shepherd.robots import ABSENT, MAX_BYTES
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import ROBOTS_PATH, Url, parse
from shepherd.wire import messages as wire

START_BY_MS: Final = 10_000


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
    """What came of one request."""

    url: str
    record: Records
    head: bytes
    bucket: Bucket | None
    links: tuple[str, ...]
    location: str
    connect_ms: int
    first_byte_ms: int
    rules: bytes
    rules_status: int

    @property
    def contacted(self) -> bool:
        return bool(int(self.record["flags"][0]) & JournalFlag.CONTACTED)

    @property
    def result(self) -> Result:
        return Result(self.record["result"][0])

    @property
    def reason(self) -> Reason:
        return Reason(self.record["reason"][0])


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
        self._peer, self._state, self._config, self._filters = peer, state, config, filters
        self._contacts, self._clock = contacts, clock_ms
        self._tokens = itertools.count(1)

    async def ask(self, url: Url, learnt: Learnt) -> Story:
        """Look the site up, read its robots.txt, ask for the page. NotYet where that must wait."""
        place = await self._place(url.site, learnt)
        if not place.address:
            return Story(url, place, None, None, None)
        rules = self._known_rules(url.site, place.server.qkey, learnt)
        if rules is None:
            rules = learnt.rules[url.site] = await self._ask_for_rules(url, learnt)
            place = await self._place(url.site, learnt)  # with the Crawl-delay that it asks for
        if not rules.status:
            return Story(url, place, rules, None, None)
        await self._peer.send(wire.Robots(self._state.prints.half(url.site), rules.status, rules.body[:MAX_BYTES]))
        ready = self._contacts.ready(place.server)
        answer = await self._fetch(url.href, Kind.PAGE, url.site, self._state.prints.of(url), place, 0)
        return Story(url, place, rules, ready, answer)

    # --- what is known ----------------------------------------------------------------------------------------------

    async def _place(self, site: str, learnt: Learnt) -> SitePlace:
        prints = self._state.prints
        token = next(self._tokens)
        await self._peer.send(wire.Resolve(token, prints.half(site), site))
        resolved = await self._receive(token)
        if not isinstance(resolved, wire.Resolved):
            raise PeerLost("the reaper did not answer RESOLVE with RESOLVED")
        if resolved.reason or not resolved.address or urls.qkey_of_address(resolved.address) != resolved.qkey:
            reason = Reason.GUARD if resolved.reason == Reason.GUARD else Reason.NO_ADDRESS
            return SitePlace("", Destination(0, 0, 0), reason)
        settings = self._filters.site_settings(site, resolved.qkey)
        row = lookup.site_row(self._state, prints.half(site))
        crawl_ms = learnt.crawl_delay_ms.get(site, self._state.sites["crawl_delay_ms"].value(row) if row is not None else 0)
        wait_ms = site_delay_ms(settings.delay_ms, crawl_ms, default_delay_ms(self._config.politeness))
        group = self._state.sites["group"].value(row) if row is not None else settings.group
        return SitePlace(resolved.address, Destination(resolved.qkey, group, wait_ms, crawl_ms), Reason.NONE)

    def _known_rules(self, site: str, qkey: int, learnt: Learnt) -> RobotsTxt | None:
        """What this call has learnt, or what is stored and still fresh. A stored redirect must be asked for again."""
        if site in learnt.rules:
            return learnt.rules[site]
        if self._filters.robots_ignored_by(site, qkey) is not None:
            return RobotsTxt("ignored", ABSENT, b"")
        row = lookup.site_row(self._state, self._state.prints.half(site))
        if row is None:
            return None
        values = {name: self._state.sites[name].value(row) for name in _ROBOTS}
        if values["robots_next"] * 1000 <= self._clock() or values["robots_since"] or not values["robots_status"]:
            return None
        checked_s = values["robots_checked"]
        if not 200 <= values["robots_status"] < 300:
            return RobotsTxt("stored", values["robots_status"], b"", checked_s)
        if values["robots_oid"] >= CONTRIB_BIT:
            return None
        stored = self._state.objects.get(values["robots_oid"])
        return (
            None if "E" in stored.attributes else RobotsTxt("stored", values["robots_status"], stored.body(MAX_BYTES), checked_s)
        )

    # --- asking -----------------------------------------------------------------------------------------------------

    async def _ask_for_rules(self, url: Url, learnt: Learnt) -> RobotsTxt:
        """Redirects are followed, each when its own server may be asked."""
        prints = self._state.prints.of(parse(f"{url.site}{ROBOTS_PATH}"))
        target, hops = learnt.hop or (f"{url.site}{ROBOTS_PATH}", 0)
        while True:
            place = await self._place(parse(target).site, learnt)
            if not place.address:
                return RobotsTxt("asked for now", 0, b"")
            answer = await self._fetch(target, Kind.ROBOTS, url.site, prints, place, hops)
            learnt.robots.append(answer)
            if answer.result != Result.REDIRECT:
                learnt.crawl_delay_ms[url.site] = int(answer.record["crawl_delay_ms"][0])
                return RobotsTxt("asked for now", answer.rules_status, answer.rules)
            hops += 1
            if hops > MAX_ROBOTS_HOPS or not _is_url(answer.location):
                return RobotsTxt("asked for now", ABSENT, b"")
            target = answer.location
            learnt.hop = target, hops

    async def _fetch(
        self, url: str, kind: Kind, site: str, prints: tuple[int, int, int], place: SitePlace, hops: int
    ) -> ManualAnswer:
        ready = self._contacts.ready(place.server)
        if ready.at_ms > self._clock():
            raise NotYet(url, place.address, ready)
        token, norm, path = next(self._tokens), prints[0], prints[1]
        contact = self._contacts.begin(place.server, kind, prints)
        request = wire.Fetch(
            token=token,
            kind=kind,
            url=url,
            norm=norm,
            path=path,
            site=prints[2],
            rules=self._state.prints.half(site),
            qkey=place.server.qkey,
            address=place.address,
            weight=0,
            section=0,
            etag="",
            modified="",
            digest=0,
            hops=hops,
            reuse=False,
            alone=True,  # if it kills its parser, we hear of it
            start_by_ms=min(self._clock() + START_BY_MS, contact.deadline_ms),
            deadline_ms=contact.deadline_ms,
            head=True,
        )
        await self._peer.send(request)
        message = await self._receive(token)
        if not isinstance(message, wire.FetchResult):
            raise PeerLost("the reaper did not answer FETCH with RESULT")
        answer = _checked(message, url, prints)
        self._contacts.end(contact, answer.record, answer.contacted)
        return answer

    async def _receive(self, token: int) -> wire.Resolved | wire.FetchResult:
        async for message in self._peer.messages():
            if isinstance(message, wire.Resolved | wire.FetchResult):
                if message.token != token:
                    raise PeerLost("the reaper answered something that it was not asked")
                return message
        raise PeerLost("the reaper closed its connection: what it fetched has killed it, or its memory was too small")


_ROBOTS: Final = ("robots_next", "robots_since", "robots_status", "robots_checked", "robots_oid")


def _is_url(text: str) -> bool:
    try:
        parse(text)
    except BadUrl:
        return False
    return True


def _checked(message: wire.FetchResult, url: str, prints: tuple[int, int, int]) -> ManualAnswer:
    """What a reaper says is believed as far as it can be checked."""
    if len(message.record) != JOURNAL.itemsize:
        raise Corruption(f"a journal record of {len(message.record)} bytes")
    record = np.frombuffer(message.record, JOURNAL).copy()
    try:
        Result(record["result"][0]), Reason(record["reason"][0])
    except ValueError as error:
        raise Corruption(f"a journal record with {error}") from error
    if (int(record["norm"][0]), int(record["path"][0]), int(record["site"][0])) != prints:
        raise Corruption("the record is not about what was requested")
    links = contrib.decode(message.links) if message.links else None
    return ManualAnswer(
        url=url,
        record=record,
        head=message.head,
        bucket=bucket.parse(message.bucket) if message.bucket else None,
        links=tuple(_hrefs(links)) if links is not None else (),
        location=message.location,
        connect_ms=message.connect_ms,
        first_byte_ms=message.first_byte_ms,
        rules=message.rules,
        rules_status=message.rules_status,
    )


def _hrefs(links: contrib.Block) -> Iterator[str]:
    names = dict(zip(links.sites.tolist(), links.names, strict=True))
    for site, text in zip(links.site.tolist(), links.texts, strict=True):
        yield (names.get(site, b"") + text).decode("ascii", "backslashreplace")
