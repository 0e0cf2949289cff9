"""The odd sites of the toy web, each named by what is odd about it. Site n is the n-th of RESIDENTS; the others are ordinary.

A resident is an ordinary site (`plan.Builder`) to which its function adds pages, or whose traits it changes. None of that
depends on the seed, so every toy web has every case.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shepherd.toyweb import robots as rules
from shepherd.toyweb.plan import MAX_DEPTH, Builder, Kind, Mirror, Page, Ref

HUB = 0
_SITES_PER_DIRECTORY = 16

_CALENDAR_ENTRY = "/calendar/2024/01"
_CALENDAR_PATH = re.compile(r"/calendar/([1-9][0-9]{3,5})/(0[1-9]|1[0-2])(/0[1-9]|/1[0-9]|/2[0-8])?")
_MONTH_DAYS = 28


def hub(site: Builder) -> None:
    """Links to every site: the only place where a gatherer needs to start. A chain of redirects ends in a page of its own."""
    site.robots = rules.EMPTY
    at = site.add("/", "/moved/once", Kind.REDIRECT_301, target=Ref(site.number, "/moved/twice"))
    at = site.add_behind(at, "/moved/twice", Kind.REDIRECT_302, target=Ref(site.number, "/moved/thrice"))
    at = site.add_behind(at, "/moved/thrice", Kind.REDIRECT_301, target=Ref(site.number, "/moved/here.html"))
    site.add_behind(at, "/moved/here.html", Kind.PAGE)


def add_directory(site: Builder, count: int) -> None:
    """The pages of the hub that name all other sites."""
    for first in range(1, count, _SITES_PER_DIRECTORY):
        directory = site.add("/", f"/directory/{first // _SITES_PER_DIRECTORY + 1}", Kind.PAGE)
        for number in range(first, min(first + _SITES_PER_DIRECTORY, count)):
            site.link(directory, Ref(number, "/"))


def calendar(site: Builder) -> None:
    """Has a calendar without end. All other pages are nearer than its entry, so a limit on the site need not cost one of them."""
    site.robots = rules.ABSENT
    site.popular = False
    events = site.add(site.sections()[0], "/events.html", Kind.PAGE)
    site.link(events, Ref(site.number, _CALENDAR_ENTRY))


def calendar_page(ref: Ref) -> Page | None:
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
    return Page(ref, Kind.CALENDAR, MAX_DEPTH + 1, children=tuple(Ref(ref.site, path) for path in paths))


def redirects_to_www(site: Builder) -> None:
    site.mirror = Mirror.TO_WWW


def redirects_to_bare(site: Builder) -> None:
    site.mirror = Mirror.TO_BARE


def robots_unreachable(site: Builder) -> None:
    site.robots = rules.UNREACHABLE


def robots_closed(site: Builder) -> None:
    site.robots = rules.CLOSED


def robots_moved(site: Builder) -> None:
    site.robots = rules.MOVED


def short_crawl_delay(site: Builder) -> None:
    site.robots = rules.SHORT_DELAY


def longer_crawl_delay(site: Builder) -> None:
    site.robots = rules.LONGER_DELAY


def invited_only(site: Builder) -> None:
    site.robots = rules.INVITED_ONLY


def one_banned(site: Builder) -> None:
    site.robots = rules.ONE_BANNED


def hangs_up(site: Builder) -> None:
    """Closes every connection after one answer, and one page's connection without any. Never a reused connection: a client
    library may silently ask again when one of those dies, which would look like impatience in the log."""
    site.robots = rules.EMPTY
    site.keep_alive = False
    site.add("/", "/hang-up.html", Kind.DROPPED)


def without_validators(site: Builder) -> None:
    """No ETag, no Last-Modified: only an equal digest tells that a page is unchanged."""
    site.validators = False


def types_and_charsets(site: Builder) -> None:
    site.robots = rules.EMPTY
    site.add("/", "/cafe.html", Kind.LATIN1)
    site.add("/", "/prices.txt", Kind.TEXT)
    site.add("/", "/leaflet.pdf", Kind.PDF)


def redirects(site: Builder) -> None:
    """Permanent and temporary, to this site and to another, and two pages that redirect to each other."""
    site.robots = rules.EMPTY
    away = Ref(HUB, "/")
    here = Ref(site.number, site.sections()[0])
    site.add("/", "/r/here-for-good", Kind.REDIRECT_301, target=here)
    site.add("/", "/r/here-for-now", Kind.REDIRECT_302, target=here)
    site.add("/", "/r/away-for-good", Kind.REDIRECT_301, target=away)
    site.add("/", "/r/away-for-now", Kind.REDIRECT_302, target=away)
    only = site.add("/", "/r/only-way", Kind.REDIRECT_301, target=Ref(site.number, "/r/end.html"))
    site.add_behind(only, "/r/end.html", Kind.PAGE)
    loop = site.add("/", "/r/loop-a", Kind.REDIRECT_302, target=Ref(site.number, "/r/loop-b"))
    site.add_behind(loop, "/r/loop-b", Kind.REDIRECT_302, target=Ref(site.number, "/r/loop-a"))


def errors(site: Builder) -> None:
    site.robots = rules.EMPTY
    site.add("/", "/missing.html", Kind.MISSING)
    site.add("/", "/gone.html", Kind.GONE)
    site.add("/", "/broken.html", Kind.BROKEN)


def busy(site: Builder) -> None:
    """Asks for patience once (Retry-After), then answers."""
    site.robots = rules.EMPTY
    site.add("/", "/busy.html", Kind.BUSY)
    site.add("/", "/limited.html", Kind.LIMITED)


def not_to_follow(site: Builder) -> None:
    """noindex, nofollow, and pages to which only links lead that are not to be followed."""
    site.robots = rules.EMPTY
    site.add("/", "/draft.html", Kind.NOINDEX)
    guestbook = site.add("/", "/guestbook.html", Kind.NOFOLLOW)
    site.add(guestbook, "/from-the-guestbook.html", Kind.PAGE, linked=False)
    site.add("/", "/advertisement.html", Kind.PAGE, linked=False)


def moving(site: Builder) -> None:
    """Some pages move for good in version 1 of the web; others change with every version."""
    site.robots = rules.EMPTY
    for number in range(1, 4):
        old = site.add("/", f"/stall-{number}.html", Kind.MOVING, target=Ref(site.number, f"/market-hall/stall-{number}.html"))
        site.add_behind(old, f"/market-hall/stall-{number}.html", Kind.ARRIVED)
        site.add("/", f"/today-{number}.html", Kind.CHANGING)


def uncompressed(site: Builder) -> None:
    site.compress = False


RESIDENTS: tuple[Callable[[Builder], None], ...] = (
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
    types_and_charsets,
    redirects,
    errors,
    busy,
    not_to_follow,
    moving,
    uncompressed,
)
