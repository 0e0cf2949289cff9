"""What the toy web answers to a request: status, headers and body, conditional requests and compression included.

`Desk.answer` is all of HTTP that is not bytes on a socket. Its only state is the version of the web and, for pages that
ask for patience, which of them have done so.
"""

from __future__ import annotations

import email.utils
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from shepherd.toyweb import pages
from shepherd.toyweb import robots as rules
from shepherd.toyweb.draw import Draw, digest
from shepherd.toyweb.model import Model, canonical_url
from shepherd.toyweb.plan import Kind, Mirror, Page, Ref, Site

HANG_UP = 0  # the status of an answer that is none

_DAY_S = 86_400
_FIRST_MODIFIED_S = 1_704_067_200  # 2024-01-01
_RETRY_AFTER_S = 1
_PATIENCE = {Kind.BUSY: 503, Kind.LIMITED: 429}
_REFUSED = {Kind.MISSING: 404, Kind.GONE: 410, Kind.BROKEN: 500}
_REDIRECTS = {Kind.REDIRECT_301: 301, Kind.REDIRECT_302: 302}


@dataclass(frozen=True)
class Request:
    """A request line and its headers, their names in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def host(self) -> str:
        return self.headers.get("host", "").partition(":")[0].lower()

    @property
    def conditional(self) -> bool:
        return "if-none-match" in self.headers or "if-modified-since" in self.headers


@dataclass(frozen=True)
class Answer:
    """What to send; Content-Length follows from the body. `close` = the connection ends with it."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    close: bool = False


class Desk:
    """Answers for a whole toy web."""

    def __init__(self, model: Model, version: int = 0) -> None:
        self.model = model
        self.version = version
        self._asked_for_patience: set[Ref] = set()
        self._bodies = lru_cache(maxsize=4096)(self._body)

    def advance(self) -> None:
        """The next version of the web: changing pages change, moving pages have moved."""
        self.version += 1

    def answer(self, request: Request) -> Answer:
        site = self.model.site_of(request.host)
        if request.method not in ("GET", "HEAD"):
            return _plain(405, "Only GET and HEAD are understood here.", close=True)
        if site is None:
            return _plain(421, "No such site on this toy web.", close=True)
        answer = self._of_site(site, request)
        return answer if site.keep_alive else Answer(answer.status, answer.headers, answer.body, close=True)

    def _of_site(self, site: Site, request: Request) -> Answer:
        www = request.host.startswith("www.")
        path = _without_tracking(request.target)
        if site.mirror is Mirror.TO_WWW and not www:
            return _redirect(301, f"http://{site.host(True)}{request.target}")
        if site.mirror is Mirror.TO_BARE and www and path != rules.PATH:
            return _redirect(301, f"http://{site.host(False)}{request.target}")
        if path == rules.PATH and site.robots.moved_to:
            return _redirect(302, site.robots.moved_to)
        if path == (site.robots.moved_to or rules.PATH):
            return _plain(site.robots.status, site.robots.text() if site.robots.status == 200 else "No rules to be had.\n")
        page = self.model.page(Ref(site.number, path))
        return _plain(404, "There is nothing here.\n") if page is None else self._of_page(site, page, request)

    def _of_page(self, site: Site, page: Page, request: Request) -> Answer:
        if page.kind is Kind.DROPPED:
            return Answer(HANG_UP, close=True)
        if page.kind in _REDIRECTS or (page.kind is Kind.MOVING and self.version > 0):
            assert page.target is not None
            location = page.target.path if page.target.site == site.number else canonical_url(page.target)
            return _redirect(_REDIRECTS.get(page.kind, 301), location)
        if page.kind in _REFUSED or (page.kind is Kind.ARRIVED and self.version == 0):
            status = _REFUSED.get(page.kind, 404)
            return _plain(status, f"{status}: not a page any more, or not yet.\n")
        if page.kind in _PATIENCE and page.ref not in self._asked_for_patience:
            self._asked_for_patience.add(page.ref)
            return _plain(_PATIENCE[page.kind], "One moment.\n", ("Retry-After", str(_RETRY_AFTER_S)))
        return self._content(site, page, request)

    def _content(self, site: Site, page: Page, request: Request) -> Answer:
        edition = self.version if page.kind is Kind.CHANGING else 0
        headers = [("Content-Type", pages.content_type(page))]
        if site.validators:
            # A weak validator, because it stands for the page with and without compression.
            tag = f'W/"{digest(self.model.seed, "etag", *page.ref, edition)}"'
            day = Draw(self.model.seed, "modified", *page.ref).below(300) + 300 * edition
            modified_s = _FIRST_MODIFIED_S + _DAY_S * day
            headers += [("ETag", tag), ("Last-Modified", email.utils.formatdate(modified_s, usegmt=True))]
            if _unchanged(request, tag, modified_s):
                return Answer(304, tuple(headers[1:]))
        compress = site.compress and page.kind is not Kind.PDF
        if compress:
            headers.append(("Vary", "Accept-Encoding"))
            compress = "gzip" in request.headers.get("accept-encoding", "").lower()
            if compress:
                headers.append(("Content-Encoding", "gzip"))
        return Answer(200, tuple(headers), self._bodies(page, edition, compress))

    def _body(self, page: Page, edition: int, compress: bool) -> bytes:
        plain = pages.body(self.model, page, edition)
        return zlib.compress(plain, 6, 31) if compress else plain  # 31: as a gzip stream, whose time stays 0


def _unchanged(request: Request, tag: str, modified_s: int) -> bool:
    """RFC 9110: If-None-Match decides alone where it is sent."""
    wanted = request.headers.get("if-none-match")
    if wanted is not None:
        return wanted.strip() == "*" or tag.removeprefix("W/") in (item.strip().removeprefix("W/") for item in wanted.split(","))
    since = request.headers.get("if-modified-since")
    if since is None:
        return False
    try:
        return email.utils.parsedate_to_datetime(since).timestamp() >= modified_s
    except ValueError:
        return False


def _without_tracking(target: str) -> str:
    path, _, query = target.partition("?")
    kept = "&".join(item for item in query.split("&") if item and not item.startswith("utm_"))
    return f"{path}?{kept}" if kept else path


def _plain(status: int, text: str, *headers: tuple[str, str], close: bool = False) -> Answer:
    return Answer(status, (("Content-Type", "text/plain; charset=utf-8"), *headers), text.encode(), close)


def _redirect(status: int, location: str) -> Answer:
    return _plain(status, f"It is at {location}\n", ("Location", location))
