"""The toy web as a pure function of (seed, number of sites, version): what exists, what links where, what should be gathered.

Nothing here serves or fetches. A test asks `Model.expected` what a complete and polite gather from `Model.seeds` must have
stored, and compares. Read `plan.py` first, then `residents.py`; the bytes are made in `answer.py`.
Sites are made when they are asked for, so a web may have very many of them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd
from typing import overload
from urllib.parse import urlsplit

from shepherd.errors import UsageError
from toyweb import residents
from toyweb.builder import LARGEST, SMALLEST, SiteBuilder
from toyweb.draw import Draw
from toyweb.plan import CLOSED, DOMAIN, FOLLOWED, STORED_KINDS, PageKind, Ref, ToyPage, ToySite, Via, site_name
from toyweb.zoo.table import EXHIBITS

FEWEST = 50  # with all residents; so many that there are ordinary sites, too
SITES_PER_ADDRESS = 2
BASE = "127.1.0.0"
LOOPBACK = "127.0.0.1"

_KEPT_SITES = 4096
_MOST_POPULAR = 65_536
_DAY_S = 86_400
_FIRST_MODIFIED_S = 1_704_067_200  # 2024-01-01
_HOST = re.compile(rf"(?:www\.)?site(0|[1-9][0-9]{{0,8}})\.{re.escape(DOMAIN)}")


@dataclass(frozen=True)
class Shape:
    """Which toy web: two of the same shape are the same web, byte for byte.

    `cdn` of the sites, the last ones, share one address. With `one_address` every server is a port of 127.0.0.1.
    """

    seed: int
    sites: int
    base: str
    per_address: int
    cdn: int
    largest: int  # pages of the largest sites
    plain: bool  # no residents but the hub
    zoo: bool
    one_address: bool


@dataclass(frozen=True)
class Listed:
    """A page as `Model.pages` lists it: `url` is the canonical one, `depth` the longest way from the seeds."""

    url: str
    host: str
    path: str
    kind: PageKind
    depth: int
    allowed: bool
    via: Via


class SitesByNumber(Sequence[ToySite]):
    """The sites of a model by number."""

    def __init__(self, model: Model, count: int) -> None:
        self._count = count
        self._make = lru_cache(maxsize=_KEPT_SITES)(model.build)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> ToySite: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[ToySite]: ...
    def __getitem__(self, number: int | slice) -> ToySite | Sequence[ToySite]:
        if isinstance(number, slice):
            return [self._make(n) for n in range(*number.indices(self._count))]
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._make(number)


class Model:
    """A toy web."""

    def __init__(
        self,
        seed: int = 1,
        sites: int = 80,
        base: str = BASE,
        *,
        per_address: int = SITES_PER_ADDRESS,
        cdn: int = 0,
        largest: int = LARGEST,
        plain: bool = False,
        zoo: bool = False,
        one_address: bool = False,
    ) -> None:
        self.shape = shape = Shape(seed, sites, base, per_address, cdn, largest, plain, zoo, one_address)
        fewest = 1 if shape.plain else FEWEST
        if sites < fewest:
            raise UsageError(f"a toy web has at least {fewest} sites, not {sites}")
        if not 0 <= shape.cdn <= sites - fewest or shape.per_address < 1 or shape.largest < SMALLEST:
            raise UsageError("a toy web has 1 site per address or more, and some beside those of its CDN; see shep-toyweb --help")
        self.seed, self.base = seed, base
        self._spread = -(-(sites - shape.cdn) // shape.per_address)  # servers of sites that are not on the CDN
        self.exhibits = EXHIBITS if shape.zoo else ()
        self.servers = self._spread + bool(shape.cdn) + len(self.exhibits)
        self._server_addresses = (LOOPBACK,) * self.servers if shape.one_address else _addresses(base, self.servers)
        self.addresses = tuple(dict.fromkeys(self._server_addresses))
        self.sites = SitesByNumber(self, sites)

    def build(self, number: int) -> ToySite:
        """Make a site; `sites` remembers it."""
        shape, server = self.shape, self._server(number)
        copy_of = residents.ORIGINAL if number == residents.COPY and not shape.plain else None
        builder = SiteBuilder(self.seed, number, server, self.address_of(server), shape.largest, copy_of=copy_of)
        if number == residents.HUB:
            builder.at_depth_0()
        if number < self._residents:
            residents.RESIDENTS[number](builder)
        if number == residents.HUB:
            residents.add_directory(builder, shape.sites)
            if shape.zoo:
                builder.add("/", residents.ZOO_PATH, PageKind.PAGE)
        return builder.finish()

    def _server(self, number: int) -> int:
        return self._spread if number >= self.shape.sites - self.shape.cdn else number % self._spread

    @property
    def _residents(self) -> int:
        return 1 if self.shape.plain else len(residents.RESIDENTS)

    def address_of(self, server: int) -> str:
        return self._server_addresses[server]

    @cached_property
    def ranking(self) -> tuple[int, ...]:
        """The numbers of the sites that links from anywhere lead to, the most popular first; of a very large web not all."""
        odd = {number for number in range(min(self._residents, len(self.sites))) if not self.sites[number].popular}
        count, draw = len(self.sites), Draw(self.seed, "rank")
        # Steps without a common divisor with the count come by every site once.
        step = next(step for step in iter(lambda: 1 + draw.below(count), None) if gcd(step, count) == 1)
        first = draw.below(count)
        numbers = ((first + step * rank) % count for rank in range(min(count, _MOST_POPULAR)))
        return tuple(number for number in numbers if number not in odd)

    @property
    def by_popularity(self) -> Sequence[ToySite]:
        """The same as sites."""
        return [self.sites[number] for number in self.ranking]

    def hosts(self) -> Iterator[tuple[str, int]]:
        """Every name that is answered to, with the number of its server. Of endless names only the first."""
        for number in range(len(self.sites)):
            yield site_name(number), self._server(number)
            yield f"www.{site_name(number)}", self._server(number)
        for place, exhibit in enumerate(self.exhibits):
            for host in exhibit.hosts():
                yield host, self.server_of_exhibit(place)

    def server_of(self, host: str) -> int | None:
        """The number of the server that a name leads to; None for a name that is not of this web."""
        site = self.site_of(host)
        if site is not None:
            return site.server
        place = next((place for place, exhibit in enumerate(self.exhibits) if exhibit.has(host)), None)
        return None if place is None else self.server_of_exhibit(place)

    def server_of_exhibit(self, place: int) -> int:
        return self.servers - len(self.exhibits) + place

    def site_of(self, host: str) -> ToySite | None:
        """The site behind a host name, with or without `www.`."""
        match = _HOST.fullmatch(host)
        return self.sites[int(match[1])] if match and int(match[1]) < len(self.sites) else None

    def page(self, ref: Ref) -> ToyPage | None:
        """The page at a place; the calendar has one for every day to come."""
        page = self.sites[ref.site].pages.get(ref.path)
        if page is None and ref.site == residents.CALENDAR and not self.shape.plain:
            page = residents.calendar_page(ref)
        return page

    def original(self, page: ToyPage) -> ToyPage:
        """The page whose bytes a page has: itself, unless its site is a copy."""
        copied = self.sites[page.ref.site].copy_of
        return page if copied is None else self.sites[copied].pages[page.ref.path]

    def modified_s(self, ref: Ref, version: int) -> int:
        """When a page was last changed, as its Last-Modified says."""
        page = self.sites[ref.site].pages.get(ref.path)
        edition = version if page is not None and page.kind is PageKind.CHANGING else 0
        return _FIRST_MODIFIED_S + _DAY_S * (Draw(self.seed, "modified", *ref).below(300) + 300 * edition)

    def seeds(self) -> list[str]:
        """The URLs to insert: everything else is found from here."""
        return [canonical_url(Ref(residents.HUB, "/"))]

    def pages(self, agent: str = "shepherd") -> Iterator[Listed]:
        """Every page but those of the calendar and of the zoo, with what the agent is to know of it."""
        for site in self.sites:
            for path, page in site.pages.items():
                allowed = site.robots.allows(agent, path)
                yield Listed(canonical_url(page.ref), site.name, path, page.kind, page.depth, allowed, page.via)

    def expected(self, agent: str = "shepherd", version: int = 0, ways: frozenset[Via] = FOLLOWED) -> frozenset[str]:
        """The canonical URLs that a complete and polite gather stores a body for; the calendar comes on top (`is_trap`).

        Not among them: errors and redirects, what robots.txt keeps from the agent, what only nofollow links lead to. `ways` is
        what the gatherer follows: sitemaps, feeds and requisites are for those that do.
        """
        stored = (
            STORED_KINDS
            - {PageKind.ARRIVED if version == 0 else PageKind.MOVING}
            - ({PageKind.CLOSING} if version >= CLOSED else set())
        )
        pages = (page for page in self.pages(agent) if page.kind in stored and page.allowed and page.via in ways)
        return frozenset(page.url for page in pages)

    def is_trap(self, url: str) -> bool:
        """Is it a page of the endless calendar?"""
        parts = urlsplit(canonical(url))
        ref = Ref(residents.CALENDAR, parts.path)
        return parts.hostname == site_name(residents.CALENDAR) and residents.calendar_page(ref) is not None

    def trap_host(self) -> str:
        """The host whose calendar never ends: a filter should limit it."""
        return site_name(residents.CALENDAR)

    def delays_s(self, default_s: float, agent: str = "shepherd") -> dict[str, float]:
        """The gap that every address and every host may insist on, for `log.audit`."""
        delays = dict.fromkeys(self.addresses, default_s)
        for site in self.sites:
            for host in (site.host(False), site.host(True)):
                delays[host] = max(default_s, site.robots.delay_s(agent))
        delays |= {exhibit.host: max(default_s, exhibit.crawl_delay_s) for exhibit in self.exhibits}
        return delays


def canonical_url(ref: Ref) -> str:
    """The URL by which the tests know a page: http, no `www.`."""
    return f"http://{site_name(ref.site)}{ref.path}"


def canonical(url: str) -> str:
    """The same document's canonical URL: http, and `www.` is stripped."""
    return url.replace("https://", "http://", 1).replace("://www.", "://", 1)


def _addresses(base: str, count: int) -> tuple[str, ...]:
    try:
        first = ipaddress.IPv4Address(base)
        last = first + count
    except ValueError as error:
        raise UsageError(f"the toy web's base {base!r} is not an IPv4 address it can count up from: {error}") from error
    if not (first.is_loopback and last.is_loopback):
        raise UsageError(f"the toy web's base {base} is not a loopback address; take one like {BASE}")
    return tuple(str(first + number) for number in range(1, count + 1))
