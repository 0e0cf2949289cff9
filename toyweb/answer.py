"""What the toy web answers to a request: status, headers and body, conditional requests and compression included.

`Desk.answer` is all of HTTP that is not bytes on a socket. Its only state is the version of the web and, for pages that
ask for patience, which of them have done so: `patience` is that, a byte a page, which several processes may share.
"""

from __future__ import annotations

import email.utils
import sys
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from toyweb import pages, residents
from toyweb import robots as rules
from toyweb.draw import digest
from toyweb.http import HANG_UP, ToyAnswer, ToyRequest
from toyweb.model import Model, canonical_url
from toyweb.plan import CLOSED, PATIENCE, REDIRECTS, REFUSED, Mirror, PageKind, Ref, Secure, ToyPage, ToySite, Validators

PATIENCE_BYTES = 64

_RETRY_AFTER_S = 1
_KEPT_BYTES = 256 * 1024 * 1024
_PACKED_ALREADY = (PageKind.PDF, PageKind.IMAGE)
_Key = tuple[str, str, str, bool]


class PatienceMarks(Protocol):
    """Bytes that can be set."""

    def __getitem__(self, number: int, /) -> int: ...
    def __setitem__(self, number: int, mark: int, /) -> None: ...


class Desk:
    """Answers for a whole toy web."""

    def __init__(self, model: Model, version: int = 0, patience: PatienceMarks | None = None) -> None:
        self.model = model
        self.version = version
        self._asked_for_patience = bytearray(PATIENCE_BYTES) if patience is None else patience
        self._ready: dict[_Key, ToyAnswer] = {}
        self._ready_bytes = 0
        self._room_bytes = _KEPT_BYTES

    def advance(self) -> None:
        """The next version of the web: changing pages change, moving pages have moved, closing ones are gone at last."""
        self.version += 1
        self._forget()

    def answer(self, request: ToyRequest, now_s: float = 0.0) -> ToyAnswer:
        """`now_s` is for a Retry-After that is a date."""
        key = (request.scheme, request.host, request.target, "gzip" in request.headers.get("accept-encoding", "").lower())
        ready = self._ready.get(key)
        if ready is not None and request.method == "GET" and not request.conditional:
            return ready
        answer = self._make(request, now_s)
        if answer.status == 200 and answer.lasting and request.method == "GET":
            self._keep(key, answer)
        return answer

    def prepare(self) -> int:
        """Have every page of every site ready, as http without `www.` and compressed; how many there are."""
        self._room_bytes = sys.maxsize
        for listed in self.model.pages():
            _ = self.answer(ToyRequest("GET", listed.path, {"host": listed.host, "accept-encoding": "gzip"})).message
        return len(self._ready)

    def _keep(self, key: _Key, answer: ToyAnswer) -> None:
        if self._ready_bytes > self._room_bytes:
            self._forget()
        self._ready_bytes += len(answer.body)
        self._ready[key] = answer

    def _forget(self) -> None:
        self._ready.clear()
        self._ready_bytes = 0

    def _make(self, request: ToyRequest, now_s: float) -> ToyAnswer:
        if request.method not in ("GET", "HEAD"):
            return _plain(405, "Only GET and HEAD are understood here.", close=True)
        site = self.model.site_of(request.host)
        if site is None:
            return self._of_zoo(request)
        answer = self._of_site(site, request, now_s)
        return answer if site.keep_alive else replace(answer, close=True)

    def _of_zoo(self, request: ToyRequest) -> ToyAnswer:
        exhibit = next((exhibit for exhibit in self.model.exhibits if exhibit.has(request.host)), None)
        if exhibit is None:
            return _plain(421, "No such site on this toy web.", close=True)
        return exhibit.answer(request)

    def _of_site(self, site: ToySite, request: ToyRequest, now_s: float) -> ToyAnswer:
        moved = _moved(site, request)
        if moved:
            return _redirect(301, moved)
        path = _without_tracking(request.target)
        if path == rules.PATH and site.robots.moved_to:
            return _redirect(302, site.robots.moved_to)
        if path == (site.robots.moved_to or rules.PATH):
            return _robots(site)
        if path == residents.ZOO_PATH and site.number == residents.HUB and self.model.exhibits:
            return ToyAnswer(200, (("Content-Type", "text/html; charset=utf-8"),), self._zoo_page)
        page = self.model.page(Ref(site.number, path))
        return _plain(404, "There is nothing here.\n") if page is None else self._of_page(site, page, request, now_s)

    @cached_property
    def _zoo_page(self) -> bytes:
        rows = (f'<li><a href="{exhibit.url}">{exhibit.name}</a>: {exhibit.about}</li>\n' for exhibit in self.model.exhibits)
        head = "<!DOCTYPE html>\n<html><head><title>The zoo</title></head><body><h1>The zoo</h1><ul>\n"
        return (head + "".join(rows) + "</ul></body></html>\n").encode()

    def _of_page(self, site: ToySite, page: ToyPage, request: ToyRequest, now_s: float) -> ToyAnswer:
        if page.kind is PageKind.DROPPED:
            return ToyAnswer(HANG_UP, close=True)
        if page.kind in REDIRECTS or (page.kind is PageKind.MOVING and self.version > 0):
            assert page.target is not None
            location = page.target.path if page.target.site == site.number else canonical_url(page.target)
            return _redirect(REDIRECTS.get(page.kind, 301), location)
        if page.kind is PageKind.CLOSING and self.version >= CLOSED:
            return _plain(410, "410: it was here, and is no more.\n")
        if page.kind in REFUSED or (page.kind is PageKind.ARRIVED and self.version == 0):
            status = REFUSED.get(page.kind, 404)
            return _plain(status, f"{status}: not a page any more, or not yet.\n")
        if page.kind in PATIENCE and not self._asked_for_patience[self._patience_of(page)]:
            self._asked_for_patience[self._patience_of(page)] = 1
            later = str(_RETRY_AFTER_S)
            if page.variant == "date":  # in whole seconds, so it may be up to one longer
                later = email.utils.formatdate(now_s + _RETRY_AFTER_S + 1, usegmt=True)
            return replace(_plain(PATIENCE[page.kind], "One moment.\n", ("Retry-After", later)), lasting=False)
        return self._content(site, page, request)

    def _patience_of(self, page: ToyPage) -> int:
        return self._patience[page.ref]

    @cached_property
    def _patience(self) -> dict[Ref, int]:
        """The pages that ask for patience, numbered: they are all on one resident's site."""
        site = self.model.sites[residents.RESIDENTS.index(residents.busy)]
        return {page.ref: number for number, page in enumerate(p for p in site.pages.values() if p.kind in PATIENCE)}

    def _content(self, site: ToySite, page: ToyPage, request: ToyRequest) -> ToyAnswer:
        original = self.model.original(page)
        headers = [("Content-Type", pages.content_type(page))]
        if pages.x_robots(page):
            headers.append(("X-Robots-Tag", pages.x_robots(page)))
        validators, unchanged = self._validators(site, original, request)
        if unchanged:
            return ToyAnswer(304, validators)
        headers += validators
        compress = site.compress and page.kind not in _PACKED_ALREADY and page.variant != "gzip"
        if compress:
            headers.append(("Vary", "Accept-Encoding"))
            compress = "gzip" in request.headers.get("accept-encoding", "").lower()
            if compress:
                headers.append(("Content-Encoding", "gzip"))
        body = pages.packed_body if compress else pages.body
        return ToyAnswer(200, tuple(headers), body(self.model, page, self.version))

    def _validators(self, site: ToySite, page: ToyPage, request: ToyRequest) -> tuple[tuple[tuple[str, str], ...], bool]:
        """What can be asked again with, and whether it was and holds."""
        kind = site.validators
        edition = self.version if page.kind is PageKind.CHANGING or kind is Validators.FICKLE else 0
        # A weak validator, because it stands for the page with and without compression.
        tag = f'W/"{digest(self.model.seed, "etag", *page.ref, edition)}"'
        modified_s = self.model.modified_s(page.ref, self.version)
        if kind is Validators.NONE:
            return (), False
        headers = [] if kind is Validators.MODIFIED else [("ETag", tag)]
        if kind in (Validators.BOTH, Validators.MODIFIED):
            headers.append(("Last-Modified", email.utils.formatdate(modified_s, usegmt=True)))
        condition = request.headers.get("if-none-match")
        if condition is not None and kind is not Validators.MODIFIED:  # RFC 9110: it decides alone where it is sent
            return tuple(headers), _is_among(tag, condition)
        since = request.headers.get("if-modified-since")
        later = since is not None and kind in (Validators.BOTH, Validators.MODIFIED) and _is_not_before(since, modified_s)
        return tuple(headers), later


def _moved(site: ToySite, request: ToyRequest) -> str:
    """Where a site sends all who come by this name and scheme; "" if it does not."""
    www = request.host.startswith("www.")
    if site.mirror is Mirror.TO_WWW and not www:
        return f"{request.scheme}://{site.host(True)}{request.target}"
    if site.mirror is Mirror.TO_BARE and www and request.target != rules.PATH:
        return f"{request.scheme}://{site.host(False)}{request.target}"
    scheme = {Secure.TO_HTTPS: "https", Secure.TO_HTTP: "http"}.get(site.secure, request.scheme)
    return "" if scheme == request.scheme else f"{scheme}://{request.host}{request.target}"


def _robots(site: ToySite) -> ToyAnswer:
    robots = site.robots
    if robots.status != 200:
        return replace(_plain(robots.status, "No rules to be had.\n"), pause_s=robots.pause_s)
    kind = "text/html" if robots.instead else "text/plain"
    return ToyAnswer(200, (("Content-Type", f"{kind}; charset=utf-8"),), robots.text(site.name).encode(), pause_s=robots.pause_s)


def _is_among(tag: str, condition: str) -> bool:
    return condition.strip() == "*" or tag.removeprefix("W/") in (
        item.strip().removeprefix("W/") for item in condition.split(",")
    )


def _is_not_before(since: str, modified_s: int) -> bool:
    try:
        return email.utils.parsedate_to_datetime(since).timestamp() >= modified_s
    except ValueError:
        return False


def _without_tracking(target: str) -> str:
    path, _, query = target.partition("?")
    if not query:
        return path
    parameters = "&".join(item for item in query.split("&") if item and not item.startswith("utm_"))
    return f"{path}?{parameters}" if parameters else path


def _plain(status: int, text: str, *headers: tuple[str, str], close: bool = False) -> ToyAnswer:
    return ToyAnswer(status, (("Content-Type", "text/plain; charset=utf-8"), *headers), text.encode(), close)


def _redirect(status: int, location: str) -> ToyAnswer:
    return _plain(status, f"It is at {location}\n", ("Location", location))
