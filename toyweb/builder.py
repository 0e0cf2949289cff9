"""One site in the making: the ordinary pages first, then whatever a resident adds or changes.

Sizes follow Zipf's law: a site of `largest` pages is as rare as one half that size is common. All of it is drawn under the
number of the site, or of the site that it is a copy of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt

from toyweb import robots as rules
from toyweb.draw import Draw
from toyweb.plan import ROOT_DEPTH, Mirror, PageKind, Ref, Secure, ToyPage, ToySite, Validators, Via, site_name
from toyweb.text import TOPICS, farm

SMALLEST = 8
LARGEST = 48
STYLE, SCRIPT, LOGO, PAPER = "/style.css", "/farm.js", "/logo.png", "/paper.gif"


class SiteBuilder:
    """Call `finish` once all is added."""

    def __init__(
        self, seed: int, number: int, server: int, address: str, largest: int = LARGEST, *, copy_of: int | None = None
    ) -> None:
        self.draw = Draw(seed, "site", number if copy_of is None else copy_of)
        self.number = number
        self.server, self.address = server, address
        self.copy_of = copy_of
        self.robots = self.draw.pick((rules.ABSENT, rules.EMPTY, rules.PRIVATE, rules.PRIVATE_BUT_OPEN))
        self.mirror = Mirror.SAME
        self.secure = Secure.SAME
        self.validators = Validators.BOTH
        self.keep_alive = True
        self.compress = not self.draw.one_in(8)
        self.popular = True
        self._title = farm(self.draw)
        self._pages: dict[str, ToyPage] = {}
        self._children: dict[str, list[Ref]] = {}
        self._sections: list[str] = []
        self._put(ToyPage(Ref(number, "/"), PageKind.PAGE, ROOT_DEPTH))
        self._ordinary_pages(_size(self.draw, largest))

    def add(
        self, parent: str, path: str, kind: PageKind, *, via: Via = Via.LINK, variant: str = "", target: Ref | None = None
    ) -> str:
        """Add a page below another one, and return its path. What is below a page that is hard to find is as hard to find."""
        above = self._pages[parent]
        least_via = above.via if via is Via.LINK else via
        self._put(ToyPage(Ref(self.number, path), kind, above.depth + 1, least_via, variant, target=target))
        self.link(parent, Ref(self.number, path))
        return path

    def add_behind(
        self, redirect: str, path: str, kind: PageKind, *, via: Via = Via.LINK, variant: str = "", target: Ref | None = None
    ) -> str:
        """Add a page that no page names: a redirect, or robots.txt, alone leads to it."""
        self._put(ToyPage(Ref(self.number, path), kind, self._pages[redirect].depth + 1, via, variant, target=target))
        return path

    def link(self, parent: str, child: Ref) -> None:
        """One more child of a page, here or elsewhere."""
        self._children.setdefault(parent, []).append(child)

    def sections(self) -> list[str]:
        """The pages right below the root that have pages below them."""
        return list(self._sections)

    def keep_only(self, count: int) -> None:
        """Drop all pages behind the first `count`: for a site that gets many of its own."""
        paths = list(self._pages)[:count]
        self._pages = {path: self._pages[path] for path in paths}
        here = {parent: [child for child in children if child.path in paths] for parent, children in self._children.items()}
        self._children = {parent: children for parent, children in here.items() if parent in paths}
        self._sections = [path for path in self._sections if path in paths]

    def at_depth_0(self) -> None:
        """The hub: its pages are two links nearer than those of other sites."""
        self._pages = {path: replace(page, depth=page.depth - ROOT_DEPTH) for path, page in self._pages.items()}

    def finish(self) -> ToySite:
        pages = {path: replace(page, children=tuple(self._children.get(path, ()))) for path, page in self._pages.items()}
        popular = [path for path, page in pages.items() if _is_plain(page)] if self.popular else []
        return ToySite(
            number=self.number,
            name=site_name(self.number),
            title=self._title,
            server=self.server,
            address=self.address,
            robots=self.robots,
            mirror=self.mirror,
            secure=self.secure,
            copy_of=self.copy_of,
            validators=self.validators,
            keep_alive=self.keep_alive,
            compress=self.compress,
            sections=tuple(self._sections),
            popular=tuple(popular),
            pages=pages,
        )

    def _put(self, page: ToyPage) -> None:
        assert page.ref.path not in self._pages, f"two pages at {page.ref}"
        self._pages[page.ref.path] = page

    def _ordinary_pages(self, size: int) -> None:
        draw = self.draw
        topics = list(TOPICS)
        for number in range(max(2 + draw.below(3), isqrt(size) // 2)):
            topic = topics.pop(draw.below(len(topics))) if topics else f"{draw.pick(TOPICS)}-{number}"
            self._sections.append(self.add("/", f"/{topic}/", PageKind.PAGE))
        sections = self._sections
        for number in range(size - len(sections) - 1):
            self._ordinary_page(sections[number % len(sections)], number)
        if draw.one_in(2):
            self.add("/", "/private/accounts.html", PageKind.PAGE)
            self.add("/", "/private/open/visitors.html", PageKind.PAGE)
        if draw.one_in(3):
            target = Ref(self.number, draw.pick(sections))
            self.add("/", "/old-index.html", draw.pick((PageKind.REDIRECT_301, PageKind.REDIRECT_302)), target=target)
        if draw.one_in(4):
            self.add(draw.pick(sections), f"/lost-{draw.below(1000)}.html", PageKind.MISSING)
        for path, kind, variant in ((STYLE, PageKind.STYLE, ""), (SCRIPT, PageKind.SCRIPT, ""), (LOGO, PageKind.IMAGE, "png")):
            self.add_behind("/", path, kind, via=Via.REQUISITE, variant=variant)
        self.add_behind("/", PAPER, PageKind.IMAGE, via=Via.REQUISITE, variant="gif")

    def _ordinary_page(self, section: str, number: int) -> None:
        draw = self.draw
        topic = draw.pick(TOPICS)
        name = f"{section}list?item={number}" if draw.one_in(6) else f"{section}{topic}-{number}.html"
        kind = PageKind.CHANGING if draw.one_in(6) else PageKind.PAGE
        if draw.one_in(24):
            kind, ending = draw.pick(((PageKind.TEXT, "txt"), (PageKind.PDF, "pdf")))
            name = f"{section}{topic}-{number}.{ending}"
        self.add(section, name, kind)


Resident = Callable[[SiteBuilder], None]


def _size(draw: Draw, largest: int) -> int:
    """From SMALLEST to `largest`; half as many sites have twice as many pages."""
    return largest * 1000 // (1000 + draw.below(max(1, 1000 * largest // SMALLEST - 1000)))


def _is_plain(page: ToyPage) -> bool:
    ordinary = page.kind in (PageKind.PAGE, PageKind.CHANGING)
    return ordinary and page.via is Via.LINK and not page.ref.path.startswith("/private/")
