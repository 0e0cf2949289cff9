"""The toy web as a pure function of (seed, number of sites, version): what exists, what links where, what should be gathered.

Nothing here serves or fetches. A test asks `Model.expected` what a complete and polite gather from `Model.seeds` must have
stored, and compares. Read `plan.py` first, then `zoo.py`; the bytes are made in `answer.py`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from shepherd.errors import UsageError
from shepherd.toyweb import zoo
from shepherd.toyweb.draw import Draw
from shepherd.toyweb.plan import ROOT_DEPTH, STORED_KINDS, Builder, Kind, Page, Ref, Site, site_name

MIN_SITES = 50
MAX_SITES = 200
SITES_PER_ADDRESS = 2
BASE = "127.1.0.0"


@dataclass(frozen=True)
class Listed:
    """A page as `Model.pages` tells it: `url` is the canonical one, `depth` the longest way from the seeds."""

    url: str
    host: str
    path: str
    kind: Kind
    depth: int
    allowed: bool
    linked: bool


class Model:
    """A toy web. Two of the same seed, size and base are the same web, byte for byte."""

    def __init__(self, seed: int = 1, sites: int = 80, base: str = BASE) -> None:
        if not MIN_SITES <= sites <= MAX_SITES:
            raise UsageError(f"a toy web has from {MIN_SITES} to {MAX_SITES} sites, not {sites}")
        self.seed = seed
        self.base = base
        self.addresses = _addresses(base, -(-sites // SITES_PER_ADDRESS))
        self.sites = tuple(self._site(number, sites) for number in range(sites))
        self._by_name = {site.name: site for site in self.sites}
        ranks = {site: Draw(seed, "rank", site).below(1 << 32) for site in range(sites)}
        self.by_popularity = tuple(sorted((site for site in self.sites if site.popular), key=lambda site: ranks[site.number]))

    def _site(self, number: int, count: int) -> Site:
        address = self.addresses[number % len(self.addresses)]
        builder = Builder(self.seed, number, address, 0 if number == zoo.HUB else ROOT_DEPTH)
        if number < len(zoo.RESIDENTS):
            zoo.RESIDENTS[number](builder)
        if number == zoo.HUB:
            zoo.add_directory(builder, count)
        return builder.finish()

    def hosts(self) -> Iterator[tuple[str, Site]]:
        """Every name that a site answers to, with the site."""
        for site in self.sites:
            yield site.host(False), site
            yield site.host(True), site

    def site_of(self, host: str) -> Site | None:
        """The site behind a host name, with or without `www.`."""
        return self._by_name.get(host.removeprefix("www."))

    def page(self, ref: Ref) -> Page | None:
        """The page at a place; the calendar has one for every day to come."""
        page = self.sites[ref.site].pages.get(ref.path)
        if page is None and ref.site == _CALENDAR_SITE:
            page = zoo.calendar_page(ref)
        return page

    def seeds(self) -> list[str]:
        """The URLs to insert: everything else is found from here."""
        return [canonical_url(Ref(zoo.HUB, "/"))]

    def pages(self, agent: str = "shepherd") -> Iterator[Listed]:
        """Every page but those of the calendar, with what the agent is to know of it."""
        for site in self.sites:
            for path, page in site.pages.items():
                allowed = site.robots.allows(agent, path)
                yield Listed(canonical_url(page.ref), site.name, path, page.kind, page.depth, allowed, page.linked)

    def expected(self, agent: str = "shepherd", version: int = 0) -> frozenset[str]:
        """The canonical URLs that a complete and polite gather stores a body for; the calendar comes on top (`is_trap`).

        Not among them: errors and redirects, what robots.txt keeps from the agent, what only nofollow links lead to.
        """
        stored = STORED_KINDS - {Kind.ARRIVED if version == 0 else Kind.MOVING}
        return frozenset(page.url for page in self.pages(agent) if page.kind in stored and page.allowed and page.linked)

    def is_trap(self, url: str) -> bool:
        """Is it a page of the endless calendar?"""
        parts = urlsplit(canonical(url))
        return parts.hostname == site_name(_CALENDAR_SITE) and zoo.calendar_page(Ref(_CALENDAR_SITE, parts.path)) is not None

    def trap_host(self) -> str:
        """The host whose calendar never ends: a filter should limit it."""
        return site_name(_CALENDAR_SITE)

    def delays_s(self, default_s: float, agent: str = "shepherd") -> dict[str, float]:
        """The gap that every address and every host may insist on, for `log.audit`."""
        delays = dict.fromkeys(self.addresses, default_s)
        for host, site in self.hosts():
            delays[host] = max(default_s, site.robots.delay_s(agent))
        return delays


_CALENDAR_SITE = zoo.RESIDENTS.index(zoo.calendar)


def canonical_url(ref: Ref) -> str:
    """The URL by which the tests know a page: http, no `www.`."""
    return f"http://{site_name(ref.site)}{ref.path}"


def canonical(url: str) -> str:
    """The same document's canonical URL: `www.` is stripped."""
    return url.replace("://www.", "://", 1)


def _addresses(base: str, count: int) -> tuple[str, ...]:
    try:
        first = ipaddress.IPv4Address(base)
        last = first + count
    except ValueError as error:
        raise UsageError(f"the toy web's base {base!r} is not an IPv4 address it can count up from: {error}") from error
    if not (first.is_loopback and last.is_loopback):
        raise UsageError(f"the toy web's base {base} is not a loopback address; take one like {BASE}")
    return tuple(str(first + number) for number in range(1, count + 1))
