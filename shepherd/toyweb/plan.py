"""What exists on the toy web: sites and pages, and the tree of links by which each page is reached. No bytes yet.

Every page hangs in one tree: the hub's root (depth 0), its directory pages (1), the roots of the sites (2), their sections (3)
and the pages below these (4). Other links (`links.py`) can only shorten the way, so `Page.depth` is the longest it can be.
A page's `kind` says how it answers; `zoo.py` adds the odd ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from shepherd.toyweb import robots as rules
from shepherd.toyweb.draw import Draw
from shepherd.toyweb.robots import Robots
from shepherd.toyweb.text import TOPICS, farm

MAX_DEPTH = 4
ROOT_DEPTH = 2


class Kind(StrEnum):
    """How a page answers."""

    PAGE = "page"
    CHANGING = "changing"  # another body in every version of the web
    MOVING = "moving"  # a page in version 0, a 301 to its new place from version 1 on
    ARRIVED = "arrived"  # that new place: a 404 in version 0
    LATIN1 = "latin1"
    TEXT = "text"
    PDF = "pdf"
    NOINDEX = "noindex"
    NOFOLLOW = "nofollow"  # its links are not to be followed
    BUSY = "busy"  # 503 with Retry-After to the first request, then a page
    LIMITED = "limited"  # the same with 429
    REDIRECT_301 = "redirect 301"
    REDIRECT_302 = "redirect 302"
    MISSING = "missing"  # linked, but 404
    GONE = "gone"  # 410
    BROKEN = "broken"  # 500
    DROPPED = "dropped"  # the connection is closed without an answer
    CALENDAR = "calendar"  # the trap: one page for every day and month for ever


_ODD_HTML = (Kind.LATIN1, Kind.NOINDEX, Kind.NOFOLLOW, Kind.BUSY, Kind.LIMITED, Kind.CALENDAR)
HTML_KINDS = frozenset((Kind.PAGE, Kind.CHANGING, Kind.MOVING, Kind.ARRIVED, *_ODD_HTML))
STORED_KINDS = (HTML_KINDS | {Kind.TEXT, Kind.PDF}) - {Kind.CALENDAR}


class Mirror(StrEnum):
    """What `x` and `www.x` have to do with each other."""

    SAME = "same"  # both serve, links name either
    TO_WWW = "to www"  # x redirects all it has, robots.txt included, to www.x
    TO_BARE = "to bare"  # www.x redirects its pages to x, but has a robots.txt of its own


class Ref(NamedTuple):
    """A place on the toy web: number of the site, path and query."""

    site: int
    path: str


@dataclass(frozen=True)
class Page:
    """One page. `linked` is false where only links lead to it that a polite gatherer does not follow."""

    ref: Ref
    kind: Kind
    depth: int
    linked: bool = True
    children: tuple[Ref, ...] = ()  # the tree
    target: Ref | None = None  # of a redirect or a move


@dataclass(frozen=True)
class Site:
    """One site, known under two names, at one address."""

    number: int
    name: str
    title: str
    address: str
    robots: Robots
    mirror: Mirror
    validators: bool  # sends ETag and Last-Modified, answers 304
    keep_alive: bool
    compress: bool
    popular: tuple[str, ...]  # paths that links from anywhere may lead to, most popular first; empty = only the tree leads here
    pages: dict[str, Page]

    def host(self, www: bool) -> str:
        return f"www.{self.name}" if www else self.name


class Builder:
    """One site in the making: the ordinary pages first, then whatever `zoo.py` adds or changes."""

    def __init__(self, seed: int, number: int, address: str, depth: int = ROOT_DEPTH) -> None:
        self.draw = Draw(seed, "site", number)
        self.number = number
        self.address = address
        self.robots = self.draw.pick((rules.ABSENT, rules.EMPTY, rules.PRIVATE, rules.PRIVATE_BUT_OPEN))
        self.mirror = Mirror.SAME
        self.validators = True
        self.keep_alive = True
        self.compress = not self.draw.one_in(8)
        self.popular = True
        self._title = farm(self.draw)
        self._pages: dict[str, Page] = {}
        self._children: dict[str, list[Ref]] = {}
        self._put(Page(Ref(number, "/"), Kind.PAGE, depth))
        self._ordinary_pages()

    def add(self, parent: str, path: str, kind: Kind, *, linked: bool = True, target: Ref | None = None) -> str:
        """Add a page below another one, and return its path."""
        self._put(Page(Ref(self.number, path), kind, self._pages[parent].depth + 1, linked, target=target))
        self.link(parent, Ref(self.number, path))
        return path

    def add_behind(self, redirect: str, path: str, kind: Kind, *, target: Ref | None = None) -> str:
        """Add a page that no page names: the redirect alone leads to it."""
        self._put(Page(Ref(self.number, path), kind, self._pages[redirect].depth + 1, target=target))
        return path

    def link(self, parent: str, child: Ref) -> None:
        """One more child of a page, here or elsewhere."""
        self._children.setdefault(parent, []).append(child)

    def sections(self) -> list[str]:
        """The pages right below the root that have pages below them."""
        return [path for path in self._pages if path != "/" and path in self._children]

    def finish(self) -> Site:
        pages = {path: self._with_children(page) for path, page in self._pages.items()}
        popular = [path for path, page in pages.items() if _is_plain(page)] if self.popular else []
        return Site(
            number=self.number,
            name=site_name(self.number),
            title=self._title,
            address=self.address,
            robots=self.robots,
            mirror=self.mirror,
            validators=self.validators,
            keep_alive=self.keep_alive,
            compress=self.compress,
            popular=tuple(popular),
            pages=pages,
        )

    def _put(self, page: Page) -> None:
        assert page.ref.path not in self._pages, f"two pages at {page.ref}"
        self._pages[page.ref.path] = page

    def _with_children(self, page: Page) -> Page:
        return Page(page.ref, page.kind, page.depth, page.linked, tuple(self._children.get(page.ref.path, ())), page.target)

    def _ordinary_pages(self) -> None:
        draw = self.draw
        topics = list(TOPICS)
        sections = []
        for _ in range(3 + draw.below(3)):
            sections.append(self.add("/", f"/{topics.pop(draw.below(len(topics)))}/", Kind.PAGE))
        for number in range(7 + draw.below(18)):
            section = sections[number % len(sections)]
            name = f"{section}list?item={number}" if draw.one_in(6) else f"{section}{draw.pick(TOPICS)}-{number}.html"
            kind = Kind.CHANGING if draw.one_in(6) else Kind.PAGE
            if draw.one_in(24):
                kind = draw.pick((Kind.TEXT, Kind.PDF))
                name = f"{section}{draw.pick(TOPICS)}-{number}.{'txt' if kind is Kind.TEXT else 'pdf'}"
            self.add(section, name, kind)
        if draw.one_in(2):
            self.add("/", "/private/accounts.html", Kind.PAGE)
            self.add("/", "/private/open/visitors.html", Kind.PAGE)
        if draw.one_in(3):
            target = Ref(self.number, draw.pick(sections))
            self.add("/", "/old-index.html", draw.pick((Kind.REDIRECT_301, Kind.REDIRECT_302)), target=target)
        if draw.one_in(4):
            self.add(draw.pick(sections), f"/lost-{draw.below(1000)}.html", Kind.MISSING)


def _is_plain(page: Page) -> bool:
    return page.kind in (Kind.PAGE, Kind.CHANGING) and page.linked and not page.ref.path.startswith("/private/")


def site_name(number: int) -> str:
    """The name of a site without `www.`."""
    return f"site{number}.toy.example"
