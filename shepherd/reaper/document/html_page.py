"""What an HTML page says: links, title, base, canonical, language, robots wishes, and what it needs to be shown.

Tags come from a tree where one is cheap to build, else from scan.py in their order; both feed the same reader. The strings are
as the page wrote them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from shepherd import urls
from shepherd.errors import BadUrl
from shepherd.expressions import Markup, UrlForm
from shepherd.reaper.document import requisites
from shepherd.reaper.document import visible_text as text
from shepherd.reaper.document.headers import HeaderFacts, language_of, robots_wishes
from shepherd.reaper.document.scan import is_tame, scan_tags

MAX_TITLE: Final = 500
MAX_LINK: Final = 4_096  # characters; a URL has at most 2,000 bytes, but blanks and dots may be dropped from it

_UNFOLLOWED: Final = frozenset(("nofollow", "ugc", "sponsored"))  # others wrote it, or paid for it
_MAX_REQUISITES: Final = 10_000  # requisites of a page at most

Attributes = dict[str, str | None]


class HtmlPage:
    """Collects from one page; `text` is what its simhash is made of."""

    def __init__(self, base: str, limit: int, agent: str, header_facts: HeaderFacts, with_requisites: bool) -> None:
        self.links: dict[str, None] = {}  # a set that keeps the order
        self.requisites: dict[str, None] = {}
        self.base, self._has_base = base, False
        self.wishes = header_facts.wishes
        self.title = self.canonical = self.refresh = self.language = ""
        self.text = b""
        self._has_title = False
        self._limit = limit
        self._agent = agent.lower()
        self._with_requisites = with_requisites
        self._handlers: dict[str, Callable[[Attributes], None]] = {
            "a": self._anchor,
            "area": self._anchor,
            "frame": self._frame,
            "iframe": self._frame,
            "meta": self._meta,
            "link": self._relation,
            "base": self._set_base,
            "html": self._html,
        }

    def read(self, page: bytes) -> None:
        """Read a page in UTF-8."""
        if is_tame(page):
            self._read_tree(page)
        else:
            self._read_tags(page)
            self.text = text.text_of_tags(page)

    def _read_tree(self, page: bytes) -> None:
        from selectolax.lexbor import LexborHTMLParser

        tree = LexborHTMLParser(page)
        if tree.root is None:
            return
        handlers, with_requisites = self._handlers, self._with_requisites
        hidden: list[str] | None = None  # texts of scripts and styles inside the body
        # A walk in Python is cheaper than `css`: setting up its engine for a page costs more than parsing the page.
        for node in tree.root.traverse():
            name = node.tag
            if handler := handlers.get(name or ""):
                if len(self.links) < self._limit:
                    handler(node.attributes)
            elif name == "title":
                if not self._has_title and (node.parent is None or node.parent.tag != "svg"):
                    self._set_title(node.text())
            elif name == "body":
                hidden = []
            elif hidden is not None and name in ("script", "style"):
                hidden.append(node.text())
            if with_requisites:
                self._add_requisites(name or "", node.attributes, node.text() if name == "style" else "")
        self.text = text.text_of_tree(tree.body, hidden or [])

    def _read_tags(self, page: bytes) -> None:
        with_requisites = self._with_requisites
        for name, attributes, content in scan_tags(page, all_tags=with_requisites):
            if handler := self._handlers.get(name):
                handler(attributes)
            elif name == "title" and not self._has_title:
                self._set_title(content)
            if with_requisites:
                self._add_requisites(name, attributes, content)
            elif len(self.links) >= self._limit:
                break

    # --- tags -------------------------------------------------------------------------------------------------------

    def _anchor(self, attributes: Attributes) -> None:
        rel = attributes.get("rel")
        if not rel or _UNFOLLOWED.isdisjoint(rel.lower().split()):
            self._add_link(attributes.get("href"))

    def _frame(self, attributes: Attributes) -> None:
        self._add_link(attributes.get("src"))

    def _add_link(self, href: str | None) -> None:
        """Keep what may be a link to another page: nothing empty, overlong, inside this page or of another scheme."""
        if href is None or href in self.links or len(self.links) >= self._limit:
            return
        if followed := followed_href(href):
            self.links[followed] = None

    def _add_requisites(self, name: str, attributes: Attributes, content: str) -> None:
        if name not in requisites.REQUIRING and "style" not in attributes:
            return
        for url in requisites.of_tag(name, attributes, content):
            if len(self.requisites) < _MAX_REQUISITES and (followed := followed_href(url)):
                self.requisites[followed] = None

    def _html(self, attributes: Attributes) -> None:
        self.language = self.language or language_of(attributes.get("lang") or attributes.get("xml:lang") or "")

    def _set_title(self, content: str) -> None:
        self._has_title = True
        self.title = " ".join(content[: 8 * MAX_TITLE].split())[:MAX_TITLE]

    def _meta(self, attributes: Attributes) -> None:
        content = attributes.get("content") or ""
        name = (attributes.get("name") or "").strip().lower()
        if name == "robots" or (name and name == self._agent):
            self.wishes |= robots_wishes(content, self._agent)
        directive = (attributes.get("http-equiv") or "").strip().lower()
        if directive == "refresh" and not self.refresh and len(content) <= 2 * MAX_LINK:
            refresh = Markup.REFRESH.match(content)
            self.refresh = next((part.strip() for part in refresh.groups() if part is not None), "") if refresh else ""
            self._add_link(self.refresh)
        elif directive == "content-language" and not self.language:
            self.language = language_of(content)

    def _relation(self, attributes: Attributes) -> None:
        relations = (attributes.get("rel") or "").lower().split()
        href = (attributes.get("href") or "").strip()
        if "canonical" in relations and not self.canonical and len(href) <= MAX_LINK:
            self.canonical = href
        elif "nofollow" not in relations and ("next" in relations or "prev" in relations or _is_feed(relations, attributes)):
            self._add_link(href)

    def _set_base(self, attributes: Attributes) -> None:
        if self._has_base or "href" not in attributes:
            return
        self._has_base = True  # only the first one counts, even if it is useless
        with contextlib.suppress(BadUrl):
            self.base = urls.join(self.base, (attributes["href"] or "")[:MAX_LINK]).href


def followed_href(href: str) -> str:
    """The href without blanks around it, if it may lead to another document, else ""."""
    href = href.strip(" \t\n\f\r")
    if not href or href[0] == "#" or len(href) > MAX_LINK:
        return ""
    if ":" not in href or href.startswith(("https://", "http://", "/")):
        return href
    scheme = UrlForm.SCHEME.match(href)
    return href if scheme is None or scheme.group(1).lower() in ("http", "https") else ""


def _is_feed(relations: list[str], attributes: Attributes) -> bool:
    """Whether a link leads to a feed of this site: its entries are links with a date."""
    kind = (attributes.get("type") or "").strip().lower()
    return "alternate" in relations and kind in ("application/rss+xml", "application/atom+xml", "application/feed+json")
