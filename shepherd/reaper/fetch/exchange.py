"""An exchange with a server and its RESULT: the tables of status and failure are here and nowhere else.

Pure functions, without I/O or clock. Read this first, then document/page.py and document/robots_rules.py, which turn an answer
into a page and into robots rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from shepherd import urls
from shepherd.dates import http_seconds
from shepherd.filters import Filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.reaper.fetch.fetcher import Response
from shepherd.wire import messages as wire

FAILURES: Final = {
    Reason.CONNECTION: Result.CONNECTION,
    Reason.DEADLINE: Result.SOFT,
    Reason.TOO_SLOW: Result.SOFT,
    Reason.MALFORMED: Result.HARD,
    Reason.GUARD: Result.HARD,
    Reason.TLS: Result.SITE,
}
PERMANENT: Final = (301, 308)
NO_FLAGS: Final = JournalFlag(0)
U32_MAX: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class ExtractOptions:
    """What is read from a document."""

    links: int  # at most
    agent: str = ""  # the product token that robots wishes may address
    requisites: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What holds for all answers on one connection."""

    state: int
    footprints: urls.Footprints
    filter: Filter
    options: ExtractOptions  # its agent is also the product token that robots.txt may address
    compress: str  # how a body that came plain is stored


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was sent, or begun, and its response."""

    fetch: wire.Fetch
    response: Response
    start_ms: int
    end_ms: int

    @property
    def download_ms(self) -> int:
        """The time of the transfer, rounded up so that the next contact is never early; 0 where it is unknown."""
        total_s = self.response.total_s
        return min(int(total_s * 1000) + 1, U32_MAX) if total_s else 0

    def result(
        self,
        result: Result,
        reason: Reason,
        *,
        flags: JournalFlag = NO_FLAGS,
        digest: int = 0,
        body_bytes: int = 0,
        crawl_delay_ms: int = 0,
        stored: bytes = b"",
        links: bytes = b"",
        location: str = "",
        rules: bytes = b"",
        rules_status: int = 0,
        status: int | None = None,
        section: int | None = None,
    ) -> wire.FetchResult:
        """The RESULT of this exchange; `status` replaces the server's where the answer counts as another."""
        response = self.response
        if response.contacted:
            flags |= JournalFlag.CONTACTED
        record = _record(
            self.fetch,
            result,
            reason,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            download_ms=self.download_ms,
            digest=digest,
            body_bytes=body_bytes,
            stored_bytes=len(stored),
            wire_bytes=min(response.wire_bytes, U32_MAX),
            retry_after_s=retry_after_s(response.header("retry-after"), self.end_ms),
            crawl_delay_ms=crawl_delay_ms,
            status=response.status if status is None else status,
            section=section,
            flags=flags,
        )
        answer = wire.FetchResult(self.fetch.token, record, stored, links, location, rules, rules_status, b"", 0, 0)
        return self._with_head(answer) if self.fetch.head else answer

    def _with_head(self, result: wire.FetchResult) -> wire.FetchResult:
        """The result with the server's headers and the time of each step."""
        response = self.response
        head = b"\r\n".join((response.status_line, response.headers)) if response.status_line else b""
        connect_ms, first_byte_ms = (
            min(int(seconds * 1000 + 0.5), U32_MAX) for seconds in (response.connect_s, response.first_byte_s)
        )
        return replace(result, head=head, connect_ms=connect_ms, first_byte_ms=first_byte_ms)


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body."""

    data: bytes
    truncated: str  # one word on why it is not whole; "" if it is

    @property
    def flags(self) -> JournalFlag:
        return JournalFlag.TRUNCATED if self.truncated else NO_FLAGS


def without_exchange(
    fetch: wire.Fetch, result: Result, reason: Reason, now_ms: int, *, contacted: bool = False
) -> wire.FetchResult:
    """The result of a request that the server never saw, or (contacted) whose answer is lost."""
    flags = JournalFlag.CONTACTED if contacted else NO_FLAGS
    record = _record(fetch, result, reason, start_ms=now_ms, end_ms=now_ms, flags=flags)
    return wire.FetchResult(fetch.token, record, b"", b"", "", b"", 0, b"", 0, 0)


def has_body(response: Response) -> bool:
    """Whether there is a document to decode and keep."""
    return response.reason == Reason.NONE and 200 <= response.status < 300


def failure(exchange: Exchange) -> wire.FetchResult:
    """The result of an exchange without an answer. A kept connection that died is not a failure of the server."""
    reason = exchange.response.reason
    if exchange.response.stale:
        return exchange.result(Result.SOFT, reason, flags=JournalFlag.STALE)
    return exchange.result(FAILURES[reason], reason)


def unusable(exchange: Exchange, reason: Reason) -> wire.FetchResult:
    """The result of an answer that arrived and cannot be used."""
    return exchange.result(Result.HARD, reason)


def error_of(status: int) -> tuple[Result, Reason]:
    """The result and reason for a status that is neither success nor redirect."""
    if status == 429 or 500 <= status < 600:
        return Result.SOFT, Reason.SERVER_ERROR
    if 400 <= status < 500:
        return Result.HARD, Reason.CLIENT_ERROR
    return Result.HARD, Reason.MALFORMED


def is_redirect(response: Response) -> bool:
    """Whether the answer names another URL to ask."""
    return 300 <= response.status < 400 and response.status != 304 and bool(response.header("location"))


def location_of(response: Response) -> str:
    """The Location of a response. Headers are bytes; in a Location they are UTF-8 more often than Latin-1."""
    raw = response.header("location").encode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def retry_after_s(value: str, now_ms: int) -> int:
    """The seconds in a Retry-After header, or until the date in it; 0 where it cannot be read."""
    if not value:
        return 0
    if value.isascii() and value.isdigit():
        return min(int(value[:10]), U32_MAX)
    until = http_seconds(value)
    return min(max(0, int(until - now_ms / 1000) + 1), U32_MAX) if until is not None else 0


def _record(
    fetch: wire.Fetch,
    result: Result,
    reason: Reason,
    *,
    start_ms: int,
    end_ms: int,
    digest: int = 0,
    download_ms: int = 0,
    body_bytes: int = 0,
    stored_bytes: int = 0,
    wire_bytes: int = 0,
    retry_after_s: int = 0,
    crawl_delay_ms: int = 0,
    status: int = 0,
    flags: int = 0,
    section: int | None = None,
) -> bytes:
    """A journal record with the footprints of the request; the dispatcher fills in the rest."""
    return Entry(
        norm=fetch.norm,
        path=fetch.path,
        site=fetch.site,
        answered=fetch.site,
        qkey=fetch.qkey,
        digest=digest,
        start_ms=start_ms,
        end_ms=end_ms,
        download_ms=download_ms,
        body_bytes=body_bytes,
        stored_bytes=stored_bytes,
        wire_bytes=wire_bytes,
        retry_after_s=retry_after_s,
        crawl_delay_ms=crawl_delay_ms,
        status=status,
        flags=flags,
        hops=fetch.hops,
        kind=Kind(fetch.kind),
        result=result,
        reason=reason,
        section=fetch.section if section is None else section,
    ).pack()
