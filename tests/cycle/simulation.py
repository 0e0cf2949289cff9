"""What a gatherer that is complete and polite should know of the toy web after some cycles, worked out without one.

It shares nothing with Shepherd but what it asks the toy web's own desk: pages come from there as bytes, links from these bytes by
`toywalk.followed`, robots rules from the toy web's own data. What it repeats of docs/cycle.md is the order of things: what was
asked for is taken in first; all that is known is asked for, once; what failed is dropped, then what was found is added.
Limits are not simulated: sites that have some are to be judged by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urljoin, urlsplit

from tests.support.toywalk import followed, get, header
from toyweb.answer import Desk
from toyweb.http import ToyAnswer
from toyweb.model import Model, canonical
from toyweb.plan import FOLLOWED, REDIRECTS

AGENT = "shepherd"
MOST_MOVES = 3
VALIDATORS = {"if_none_match": "ETag", "if_modified_since": "Last-Modified"}
_TRACKING = re.compile(r"[?&]utm_source=[a-z-]*$")
_REJECTED = re.compile(r"\.(?:png|gif|jpeg|svg)$")  # by the filter that comes with Shepherd


class Fate(StrEnum):
    UNGATHERED = "ungathered"
    GATHERED = "gathered"
    ERROR = "error"
    FORGOTTEN = "forgotten"


@dataclass
class Known:
    """A document, and what was served for it last; a redirect has no body."""

    url: str  # as it was first found
    fate: Fate = Fate.UNGATHERED
    body: bytes | None = None
    validators: dict[str, str] = field(default_factory=dict)  # to ask again with
    inserted: bool = False


@dataclass
class Simulation:
    """`same` names the hosts that stand for others. After each cycle `known` has every document by its name."""

    model: Model
    same: Mapping[str, str]
    known: dict[str, Known] = field(default_factory=dict)
    _desk: Desk = field(init=False)
    _robots_read: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._desk = Desk(self.model)

    def name(self, url: str) -> str:
        """One name for all spellings of a document. Root pages are kept for each site, because equivalence needs them."""
        return url if urlsplit(url).path == "/" else self.canonical(url)

    def canonical(self, url: str) -> str:
        parts = urlsplit(canonical(url))
        return parts._replace(netloc=self.same.get(parts.netloc, parts.netloc)).geturl()

    def insert(self, urls: Iterable[str]) -> None:
        for url in urls:
            self.known.setdefault(self.name(url), Known(url)).inserted = True

    def delete(self, urls: Iterable[str]) -> None:
        for url in urls:
            self.known[self.name(url)] = Known(url, Fate.FORGOTTEN)

    def advance(self) -> None:
        """The next version of the web."""
        self._desk.advance()

    def cycle(self, inserted: Iterable[str] = (), deleted: Iterable[str] = ()) -> None:
        """One cycle, with what is asked for while its reap runs."""
        found: dict[str, str] = {}
        failed = set()
        for name, document in list(self.known.items()):
            if document.fate is Fate.FORGOTTEN or self._is_shut(document.url):
                continue
            links = self._ask(document)
            if document.fate is Fate.ERROR and self._allows(document.url) and not document.inserted:
                failed.add(name)
            for link in links:
                found.setdefault(self.name(link), link)
        self.known = {name: document for name, document in self.known.items() if name not in failed}
        for name, link in found.items():
            self.known.setdefault(name, Known(link))
        self.insert(inserted)
        self.delete(deleted)

    def _ask(self, document: Known) -> list[str]:
        """Settle a document; what it leads to. Only a body that is new is read."""
        links = self._named_by_robots(document.url)
        if not self._allows(document.url):
            document.fate = Fate.ERROR
            return links
        url, answer = self._moved(document)
        if answer.status in REDIRECTS.values():
            document.fate, document.body, document.validators = Fate.GATHERED, None, {}
            return [*links, *self._wanted([urljoin(url, header(answer, "Location"))])]
        if answer.status == 200:
            new, document.fate, document.body = answer.body != document.body, Fate.GATHERED, answer.body
            told = {name: header(answer, sent) for name, sent in VALIDATORS.items()}
            document.validators = {name: value for name, value in told.items() if value}
            return [*links, *self._wanted(followed(url, answer, FOLLOWED) if new else [])]
        if answer.status != 304:
            document.fate = Fate.ERROR
        return links

    def _moved(self, document: Known) -> tuple[str, ToyAnswer]:
        """The answer, at whichever name of its site it is to be had, and where that is. Who asks for patience is given it."""
        url = document.url
        for _ in range(1 + MOST_MOVES):
            answer = get(self._desk, url, **document.validators)
            if header(answer, "Retry-After"):
                answer = get(self._desk, url, **document.validators)
            target = urljoin(url, header(answer, "Location"))
            if answer.status not in REDIRECTS.values() or self.canonical(target) != self.canonical(url):
                break
            url = target
        return url, answer

    def _allows(self, url: str) -> bool:
        parts = urlsplit(url)
        site = self.model.site_of(parts.netloc)
        return site is not None and site.robots.allows(AGENT, parts.path + (f"?{parts.query}" if parts.query else ""))

    def _is_shut(self, url: str) -> bool:
        """While robots.txt cannot be had, nobody asks, and nothing is decided."""
        site = self.model.site_of(urlsplit(url).netloc)
        return site is not None and (site.robots.status >= 500 or site.robots.status == 429)

    def _named_by_robots(self, url: str) -> list[str]:
        """The sitemaps of a site, when it is met for the first time."""
        site = self.model.site_of(urlsplit(url).netloc)
        if site is None or site.number in self._robots_read:
            return []
        self._robots_read.add(site.number)
        return [f"http://{site.name}{path}" for path in site.robots.sitemaps]

    def _wanted(self, links: Iterable[str]) -> list[str]:
        stripped = (_TRACKING.sub("", link) for link in links)
        return [link for link in stripped if not _REJECTED.search(link) and not self.model.is_trap(link)]
