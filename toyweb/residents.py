"""The odd sites of the toy web, each named by what is odd about it. Site n is the n-th of RESIDENTS; the others are ordinary.

A resident is an ordinary site (`builder.Builder`) to which its function adds pages, or whose traits it changes. None of that
depends on the seed, so every toy web has every case. All of them mean well: those that do not are in `zoo/`.
"""

from __future__ import annotations

import re
from math import isqrt

from toyweb import robots as rules
from toyweb.builder import Resident, SiteBuilder
from toyweb.charsets import CHARSETS
from toyweb.plan import MAX_DEPTH, Mirror, PageKind, Ref, Secure, ToyPage, Validators, Via

HUB = 0
ZOO_PATH = "/zoo.html"
_SITES_PER_DIRECTORY = 16

_CALENDAR_ENTRY = "/calendar/2024/01"
_CALENDAR_PATH = re.compile(r"/calendar/([1-9][0-9]{3,5})/(0[1-9]|1[0-2])(/0[1-9]|/1[0-9]|/2[0-8])?")
_MONTH_DAYS = 28


def hub(site: SiteBuilder) -> None:
    """Links to every site: the only place where a gatherer needs to start. A chain of redirects ends in a page of its own."""
    site.robots = rules.EMPTY
    redirect = site.add("/", "/moved/once", PageKind.REDIRECT_301, target=Ref(site.number, "/moved/twice"))
    redirect = site.add_behind(redirect, "/moved/twice", PageKind.REDIRECT_302, target=Ref(site.number, "/moved/thrice"))
    redirect = site.add_behind(redirect, "/moved/thrice", PageKind.REDIRECT_301, target=Ref(site.number, "/moved/here.html"))
    site.add_behind(redirect, "/moved/here.html", PageKind.PAGE)


def add_directory(site: SiteBuilder, count: int) -> None:
    """The pages of the hub that name all other sites; of a large web, as many pages as names on each."""
    size = max(_SITES_PER_DIRECTORY, isqrt(count))
    for first in range(1, count, size):
        directory = site.add("/", f"/directory/{first // size + 1}", PageKind.PAGE)
        for number in range(first, min(first + size, count)):
            site.link(directory, Ref(number, "/"))


def calendar(site: SiteBuilder) -> None:
    """Has a calendar without end. All other pages are nearer than its entry, so a limit on the site need not cost one of them."""
    site.robots = rules.ABSENT
    site.popular = False
    events = site.add(site.sections()[0], "/events.html", PageKind.PAGE)
    site.link(events, Ref(site.number, _CALENDAR_ENTRY))


def calendar_page(ref: Ref) -> ToyPage | None:
    """The page of a month (its days, the next month, the next year) or of a day (the next day), if the path is one."""
    match = _CALENDAR_PATH.fullmatch(ref.path)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2]), match[3]
    if day is None:
        following = (year + 1, 1) if month == 12 else (year, month + 1)
        paths = [f"/calendar/{year}/{month:02}/{number:02}" for number in range(1, _MONTH_DAYS + 1)]
        paths += [f"/calendar/{following[0]}/{following[1]:02}", f"/calendar/{year + 1}/{month:02}"]
    else:
        tomorrow = int(day[1:]) % _MONTH_DAYS + 1
        paths = [f"/calendar/{year}/{month:02}", f"/calendar/{year}/{month:02}/{tomorrow:02}"]
    return ToyPage(ref, PageKind.CALENDAR, MAX_DEPTH + 1, children=tuple(Ref(ref.site, path) for path in paths))


def redirects_to_www(site: SiteBuilder) -> None:
    site.mirror = Mirror.TO_WWW


def redirects_to_bare(site: SiteBuilder) -> None:
    site.mirror = Mirror.TO_BARE


def redirects_to_https(site: SiteBuilder) -> None:
    site.secure = Secure.TO_HTTPS


def redirects_to_http(site: SiteBuilder) -> None:
    site.secure = Secure.TO_HTTP


def either_scheme(site: SiteBuilder) -> None:
    site.secure = Secure.EITHER


def another_name(site: SiteBuilder) -> None:
    """The bytes of the next site, under a name of its own: made as a copy by `model.py`."""


def robots_unreachable(site: SiteBuilder) -> None:
    site.robots = rules.UNREACHABLE


def robots_closed(site: SiteBuilder) -> None:
    site.robots = rules.CLOSED


def robots_moved(site: SiteBuilder) -> None:
    site.robots = rules.MOVED


def short_crawl_delay(site: SiteBuilder) -> None:
    site.robots = rules.SHORT_DELAY


def longer_crawl_delay(site: SiteBuilder) -> None:
    site.robots = rules.LONGER_DELAY


def invited_only(site: SiteBuilder) -> None:
    site.robots = rules.INVITED_ONLY


def one_banned(site: SiteBuilder) -> None:
    site.robots = rules.ONE_BANNED


def robots_limited(site: SiteBuilder) -> None:
    site.robots = rules.LIMITED


def robots_forbidden(site: SiteBuilder) -> None:
    site.robots = rules.FORBIDDEN


def robots_wildcards(site: SiteBuilder) -> None:
    site.robots = rules.WILDCARDS
    _odd_paths(site)


def robots_several_groups(site: SiteBuilder) -> None:
    site.robots = rules.SEVERAL_GROUPS
    _odd_paths(site)


def robots_marked(site: SiteBuilder) -> None:
    site.robots = rules.MARKED
    site.add("/", "/private/marked.html", PageKind.PAGE)


def robots_old_newlines(site: SiteBuilder) -> None:
    site.robots = rules.OLD_NEWLINES
    site.add("/", "/private/old.html", PageKind.PAGE)


def robots_huge(site: SiteBuilder) -> None:
    site.robots = rules.HUGE
    site.add("/", "/private/far-down.html", PageKind.PAGE)


def robots_page_instead(site: SiteBuilder) -> None:
    """A page that says `not found` with status 200, which is no rule at all."""
    site.robots = rules.PAGE_INSTEAD


def robots_slow(site: SiteBuilder) -> None:
    site.robots = rules.SLOW


def _odd_paths(site: SiteBuilder) -> None:
    for name in ("first/end", "allowed/end", "allowed/way/end", "end", "leaf.pdf.html", "x?item=10", "x?item=2"):
        site.add("/", f"/odd/{name}", PageKind.PAGE)
    site.add("/", "/odd/leaf.pdf", PageKind.PDF)


def hangs_up(site: SiteBuilder) -> None:
    """Closes every connection after one answer, and one page's connection without any. Never a reused connection: a client
    library may silently ask again when one of those dies, which would look like impatience in the log."""
    site.robots = rules.EMPTY
    site.keep_alive = False
    site.add("/", "/hang-up.html", PageKind.DROPPED)


def without_validators(site: SiteBuilder) -> None:
    """No ETag, no Last-Modified: only an equal digest shows that a page is unchanged."""
    site.validators = Validators.NONE


def etag_only(site: SiteBuilder) -> None:
    site.validators = Validators.ETAG


def modified_only(site: SiteBuilder) -> None:
    site.validators = Validators.MODIFIED


def fickle_etag(site: SiteBuilder) -> None:
    """The page is the same, its ETag never is: only an equal digest shows that."""
    site.validators = Validators.FICKLE


def charsets(site: SiteBuilder) -> None:
    site.robots = rules.EMPTY
    site.keep_only(4)
    for variant in CHARSETS:
        site.add("/", f"/charsets/{variant.replace(' ', '-')}.html", PageKind.CHARSET, variant=variant)


def types(site: SiteBuilder) -> None:
    """Text, PDF and images, linked like pages."""
    site.robots = rules.EMPTY
    site.add("/", "/prices.txt", PageKind.TEXT)
    site.add("/", "/leaflet.pdf", PageKind.PDF)
    for variant in ("png", "gif", "jpeg", "svg"):
        site.add("/", f"/album/ewe.{variant}", PageKind.IMAGE, variant=variant, via=Via.REJECTED)


def markup(site: SiteBuilder) -> None:
    """Pages that are named by other elements than anchors."""
    site.robots = rules.EMPTY
    site.keep_only(4)
    for variant in ("frame", "iframe", "area", "refresh", "base", "next", "canonical"):
        page = site.add("/", f"/markup/{variant}.html", PageKind.MARKUP, variant=variant)
        site.add(page, f"/markup/by-{variant}/page.html", PageKind.PAGE)


def sitemap(site: SiteBuilder) -> None:
    """robots.txt names a sitemap, which names two pages that nothing else does. One of plain lines beside it."""
    site.robots = rules.RobotsFile(groups=(rules.Group(disallow=("/private/",)),), sitemaps=("/sitemap.xml", "/sitemap.txt"))
    named = site.add_behind("/", "/sitemap.xml", PageKind.SITEMAP, via=Via.SITEMAP)
    for number in range(2):
        site.add(named, f"/mapped/{number}.html", PageKind.PAGE)
    site.add(
        site.add_behind("/", "/sitemap.txt", PageKind.SITEMAP, via=Via.SITEMAP, variant="text"),
        "/mapped/text.html",
        PageKind.PAGE,
    )


def sitemap_index(site: SiteBuilder) -> None:
    """An index of sitemaps, two of them gzip files, one of which is also named so."""
    site.robots = rules.RobotsFile(sitemaps=("/maps/index.xml",))
    index = site.add_behind("/", "/maps/index.xml", PageKind.SITEMAP_INDEX, via=Via.SITEMAP)
    site.add(site.add(index, "/maps/plain.xml", PageKind.SITEMAP), "/mapped/plainly.html", PageKind.PAGE)
    site.add(site.add(index, "/maps/packed", PageKind.SITEMAP, variant="gzip"), "/mapped/packed.html", PageKind.PAGE)
    archived = site.add(index, "/maps/archived.xml.gz", PageKind.SITEMAP, variant="gzip")
    site.add(archived, "/mapped/archived.html", PageKind.PAGE)


def feeds(site: SiteBuilder) -> None:
    """RSS and Atom, linked like pages; each names a page that nothing else does, and what was changed last."""
    site.robots = rules.EMPTY
    site.add("/", "/news/latest.html", PageKind.CHANGING)
    for path, kind in (("/news.rss", PageKind.RSS), ("/news.atom", PageKind.ATOM)):
        feed = site.add("/", path, kind)
        site.add(feed, f"/news/by-{kind.value}.html", PageKind.PAGE, via=Via.FEED)


def redirects(site: SiteBuilder) -> None:
    """Permanent and temporary, to this site and to another, and two pages that redirect to each other."""
    site.robots = rules.EMPTY
    away = Ref(HUB, "/")
    here = Ref(site.number, site.sections()[0])
    site.add("/", "/r/here-for-good", PageKind.REDIRECT_301, target=here)
    site.add("/", "/r/here-for-now", PageKind.REDIRECT_302, target=here)
    site.add("/", "/r/away-for-good", PageKind.REDIRECT_301, target=away)
    site.add("/", "/r/away-for-now", PageKind.REDIRECT_302, target=away)
    for kind in (PageKind.REDIRECT_303, PageKind.REDIRECT_307, PageKind.REDIRECT_308):
        path = site.add("/", f"/r/{kind.value[-3:]}", kind, target=Ref(site.number, f"/r/after-{kind.value[-3:]}.html"))
        site.add_behind(path, f"/r/after-{kind.value[-3:]}.html", PageKind.PAGE)
    only = site.add("/", "/r/only-way", PageKind.REDIRECT_301, target=Ref(site.number, "/r/end.html"))
    site.add_behind(only, "/r/end.html", PageKind.PAGE)
    loop = site.add("/", "/r/loop-a", PageKind.REDIRECT_302, target=Ref(site.number, "/r/loop-b"))
    site.add_behind(loop, "/r/loop-b", PageKind.REDIRECT_302, target=Ref(site.number, "/r/loop-a"))


def errors(site: SiteBuilder) -> None:
    site.robots = rules.EMPTY
    site.add("/", "/missing.html", PageKind.MISSING)
    site.add("/", "/gone.html", PageKind.DELETED)
    site.add("/", "/forbidden.html", PageKind.FORBIDDEN)
    site.add("/", "/broken.html", PageKind.BROKEN)


def busy(site: SiteBuilder) -> None:
    """Asks for patience once (Retry-After, in seconds or as a date), then answers."""
    site.robots = rules.EMPTY
    site.add("/", "/busy.html", PageKind.BUSY)
    site.add("/", "/limited.html", PageKind.LIMITED)
    site.add("/", "/limited-until.html", PageKind.LIMITED, variant="date")


def not_to_follow(site: SiteBuilder) -> None:
    """noindex, nofollow, and pages to which only links lead that are not to be followed."""
    site.robots = rules.EMPTY
    site.add("/", "/draft.html", PageKind.NOINDEX)
    site.add("/", "/draft-by-header.html", PageKind.NOINDEX, variant="header")
    for variant in ("", "header"):
        guestbook = site.add("/", f"/guestbook{variant}.html", PageKind.NOFOLLOW, variant=variant)
        site.add(guestbook, f"/from-the-guestbook{variant}.html", PageKind.PAGE, via=Via.NOFOLLOW)
    site.add("/", "/advertisement.html", PageKind.PAGE, via=Via.NOFOLLOW)


def moving(site: SiteBuilder) -> None:
    """Some pages move for good in version 1 of the web, one is gone in version 2; others change with every version."""
    site.robots = rules.EMPTY
    for number in range(1, 4):
        old = site.add(
            "/", f"/stall-{number}.html", PageKind.MOVING, target=Ref(site.number, f"/market-hall/stall-{number}.html")
        )
        site.add_behind(old, f"/market-hall/stall-{number}.html", PageKind.ARRIVED)
        site.add("/", f"/today-{number}.html", PageKind.CHANGING)
    site.add("/", "/last-days.html", PageKind.CLOSING)


def uncompressed(site: SiteBuilder) -> None:
    site.compress = False


RESIDENTS: tuple[Resident, ...] = (
    hub,
    calendar,
    redirects_to_www,
    redirects_to_bare,
    robots_unreachable,
    robots_closed,
    robots_moved,
    short_crawl_delay,
    longer_crawl_delay,
    invited_only,
    one_banned,
    hangs_up,
    without_validators,
    types,
    redirects,
    errors,
    busy,
    not_to_follow,
    moving,
    uncompressed,
    charsets,
    markup,
    sitemap,
    sitemap_index,
    feeds,
    redirects_to_https,
    redirects_to_http,
    either_scheme,
    robots_limited,
    robots_forbidden,
    robots_wildcards,
    robots_several_groups,
    robots_marked,
    robots_old_newlines,
    robots_huge,
    robots_page_instead,
    robots_slow,
    etag_only,
    modified_only,
    fickle_etag,
    another_name,
)
CALENDAR = RESIDENTS.index(calendar)
COPY = RESIDENTS.index(another_name)
ORIGINAL = COPY + 1  # the first ordinary site
