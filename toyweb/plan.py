"""What can exist on the toy web: kinds of pages, traits of sites, and the places they have. No bytes yet.

Every page hangs in one tree: the hub's root (depth 0), its directory pages (1), the roots of the sites (2), their sections (3)
and the pages below these (4); what only sitemaps name may be deeper. Other links (`links.py`) can only shorten the way, so
`Page.depth` is the longest it can be.
A page's `kind` says how it answers, its `via` how it can be found. `builder.py` makes sites, `residents.py` the odd ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from toyweb.robots import RobotsFile

MAX_DEPTH = 4
ROOT_DEPTH = 2
DOMAIN = "toy.example"


class PageKind(StrEnum):
    """How a page answers."""

    PAGE = "page"
    CHANGING = "changing"  # another body in every version of the web
    MOVING = "moving"  # a page in version 0, a 301 to its new place from version 1 on
    ARRIVED = "arrived"  # that new place: a 404 in version 0
    CLOSING = "closing"  # a page up to version 1, a 410 from version 2 on
    CHARSET = "charset"  # the variant says which charset, and how the page says so
    MARKUP = "markup"  # its children are named by the element that the variant names, not by anchors
    NOINDEX = "noindex"  # variant "header": said by X-Robots-Tag, else by a meta element
    NOFOLLOW = "nofollow"  # its links are not to be followed; variants as above
    TEXT = "text"
    PDF = "pdf"
    IMAGE = "image"  # the variant is its format
    STYLE = "style"
    SCRIPT = "script"
    SITEMAP = "sitemap"  # names its children and the site's plain pages, with lastmod; variant "gzip" or "text"
    SITEMAP_INDEX = "sitemap index"
    RSS = "rss"
    ATOM = "atom"
    BUSY = "busy"  # 503 with Retry-After to the first request, then a page; variant "date": Retry-After is a date
    LIMITED = "limited"  # the same with 429
    REDIRECT_301 = "redirect 301"
    REDIRECT_302 = "redirect 302"
    REDIRECT_303 = "redirect 303"
    REDIRECT_307 = "redirect 307"
    REDIRECT_308 = "redirect 308"
    MISSING = "missing"  # linked, but 404
    DELETED = "gone"  # 410
    FORBIDDEN = "forbidden"  # 403
    BROKEN = "broken"  # 500
    DROPPED = "dropped"  # the connection is closed without an answer
    CALENDAR = "calendar"  # the trap: one page for every day and month for ever


REDIRECTS = {kind: int(kind[-3:]) for kind in PageKind if kind.startswith("redirect")}
CLOSED = 2  # the version from which on closing pages are gone
REFUSED = {PageKind.MISSING: 404, PageKind.DELETED: 410, PageKind.FORBIDDEN: 403, PageKind.BROKEN: 500}
PATIENCE = {PageKind.BUSY: 503, PageKind.LIMITED: 429}

_ODD_HTML = (
    PageKind.CHARSET,
    PageKind.MARKUP,
    PageKind.NOINDEX,
    PageKind.NOFOLLOW,
    PageKind.BUSY,
    PageKind.LIMITED,
    PageKind.CALENDAR,
)
HTML_KINDS = frozenset((PageKind.PAGE, PageKind.CHANGING, PageKind.MOVING, PageKind.ARRIVED, PageKind.CLOSING, *_ODD_HTML))
NAMING_KINDS = frozenset((PageKind.SITEMAP, PageKind.SITEMAP_INDEX, PageKind.RSS, PageKind.ATOM))  # no HTML, but they name pages
_FILES = frozenset((PageKind.TEXT, PageKind.PDF, PageKind.IMAGE, PageKind.STYLE, PageKind.SCRIPT))
STORED_KINDS = (HTML_KINDS | NAMING_KINDS | _FILES) - {PageKind.CALENDAR}


class Via(StrEnum):
    """The least by which a page can be found: what a gatherer must read and follow to know of it."""

    LINK = "link"  # anchors, frames, areas, meta refresh, redirects
    NOFOLLOW = "nofollow"  # only links that ask not to be followed
    SITEMAP = "sitemap"  # a Sitemap line of robots.txt, or a sitemap
    FEED = "feed"  # RSS or Atom
    REQUISITE = "requisite"  # an image, style or script that a page shows
    REJECTED = "rejected"  # a link, but by a name that the filter which comes with Shepherd rejects


FOLLOWED = frozenset((Via.LINK, Via.SITEMAP, Via.FEED))  # what Shepherd reads and follows by default


class Mirror(StrEnum):
    """What `x` and `www.x` have to do with each other."""

    SAME = "same"  # both serve, links name either
    TO_WWW = "to www"  # x redirects all it has, robots.txt included, to www.x
    TO_BARE = "to bare"  # www.x redirects its pages to x, but has a robots.txt of its own


class Secure(StrEnum):
    """What http and https have to do with each other."""

    SAME = "same"  # both serve, links name http
    EITHER = "either"  # both serve, links name either
    TO_HTTPS = "to https"  # http redirects all it has, robots.txt included, to https
    TO_HTTP = "to http"  # https redirects to http, and links name either


class Validators(StrEnum):
    """What a site sends that a client can ask again with."""

    BOTH = "both"
    ETAG = "etag"
    MODIFIED = "modified"
    FICKLE = "fickle"  # an ETag that is another one in every version, though the page is the same
    NONE = "none"


class Ref(NamedTuple):
    """A place on the toy web: number of the site, path and query."""

    site: int
    path: str


@dataclass(frozen=True)
class ToyPage:
    """One page."""

    ref: Ref
    kind: PageKind
    depth: int
    via: Via = Via.LINK
    variant: str = ""
    children: tuple[Ref, ...] = ()  # the tree
    target: Ref | None = None  # of a redirect or a move


@dataclass(frozen=True)
class ToySite:
    """One site, known under two names and two schemes, on one server."""

    number: int
    name: str
    title: str
    server: int  # the listener it is behind
    address: str
    robots: RobotsFile
    mirror: Mirror
    secure: Secure
    copy_of: int | None  # the site whose bytes it serves as its own
    validators: Validators
    keep_alive: bool
    compress: bool
    sections: tuple[str, ...]  # paths that every page names
    popular: tuple[str, ...]  # paths that links from anywhere may lead to, most popular first; empty = only the tree leads here
    pages: dict[str, ToyPage]

    def host(self, www: bool) -> str:
        return f"www.{self.name}" if www else self.name


def site_name(number: int) -> str:
    """The name of a site without `www.`."""
    return f"site{number}.{DOMAIN}"
