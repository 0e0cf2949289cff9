"""What a record of a WARC file is to us: a page or robots file to be taken in, or why not.

Nothing of a block is looked at here: it is of the web, and a worker's to read (reaper/document/recording.py). `LeftOut` is what
we do not want, as what the filter rejects; `Bad` is what cannot be used.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from shepherd.errors import BadUrl
from shepherd.filters import Filter
from shepherd.formats.tables import Kind, Reason, RowType, qkey_unresolved
from shepherd.importing.warc_file import Record
from shepherd.store.state import lookup
from shepherd.store.state.directory import State
from shepherd.urls import ROBOTS_PATH, Url, parse, qkey_of_address

REJECTED: Final = "rejected by the filter"
ALREADY_KNOWN: Final = "known already"
DELETED: Final = "deleted by an operator"
OTHER_SCHEMES: Final = "not of http or https"
OTHER_DOCUMENTS: Final = "revisits of another document"
UNKNOWN_REVISITS: Final = "revisits of what is not known"
CUTS: Final = ("length", "time", "disconnect", "unspecified")  # the words of WARC-Truncated


class LeftOut(Exception):
    """Why a record is not taken in, although there is nothing wrong with it."""


class Bad(Exception):
    """What is wrong with a record."""


@dataclass(frozen=True)
class WarcPage:
    """A document of a record. `refers_ms` is of a revisit: when what it refers to was gathered, 0 if it does not say."""

    url: Url
    norm: int
    path: int
    site: int
    kind: Kind
    time_ms: int
    address: str
    cut: str
    weight: int
    section: int
    has_row: bool  # whether it has a row
    revisit: bool = False
    refers_ms: int = 0

    @property
    def qkey(self) -> int:
        return qkey_of_address(self.address) if self.address else qkey_unresolved(self.site)


class Judge:
    """Judges by one state, and by the filter."""

    def __init__(self, state: State, filters: Filter, weight: int, now_ms: int) -> None:
        """`weight` is what a new document begins with."""
        self._state, self._filters, self._weight, self._now_ms = state, filters, weight, now_ms

    def page(self, record: Record) -> WarcPage:
        """The document of a response or revisit; LeftOut or Bad say why there is none."""
        headers = record.headers
        url = self._url(headers.get("warc-target-uri", ""))
        time_ms = time_of(headers.get("warc-date", ""))
        if time_ms is None:
            raise Bad("it has no WARC-Date that can be read")
        if not 0 < time_ms <= self._now_ms:
            raise Bad("its WARC-Date is in the future, or before 1970")
        norm, path, site = self._state.prints.of(url)
        row = row_of(self._state, norm, path, site)
        if row is not None:
            self._must_be_new(row, time_ms)
        columns = self._state.index
        return WarcPage(
            url=url,
            norm=norm,
            path=path,
            site=site,
            kind=Kind.ROBOTS if url.path == ROBOTS_PATH else Kind.PAGE,
            time_ms=time_ms,
            address=_address(headers.get("warc-ip-address", "")),
            cut=_cut(record),
            weight=self._weight if row is None else columns["weight"].value(row),
            section=self._filters.section_of(url.href).section if row is None else columns["section"].value(row),
            has_row=row is not None,
            revisit=record.type == "revisit",
            refers_ms=self._refers(url, record) if record.type == "revisit" else 0,
        )

    def _url(self, text: str) -> Url:
        text = text.removeprefix("<").removesuffix(">")
        if text.partition(":")[0].lower() not in ("http", "https"):
            raise LeftOut(OTHER_SCHEMES) if ":" in text else Bad("it has no WARC-Target-URI")
        try:
            href = self._filters.clean(parse(text).href)
        except BadUrl as error:
            raise Bad(f"its URL cannot be used: {error}") from None
        if href is None:
            raise LeftOut(REJECTED)
        return parse(href)

    def _must_be_new(self, row: int, time_ms: int) -> None:
        """A record that says nothing new would be skipped by cork, but its bucket would be kept until a cleanup."""
        index = self._state.index
        if index["type"].value(row) == RowType.FORGOTTEN and index["reason"].value(row) in (Reason.DELETED, Reason.PURGED):
            raise LeftOut(DELETED)
        if index["checked"].value(row) >= time_ms // 1000:
            raise LeftOut(ALREADY_KNOWN)

    def _refers(self, url: Url, record: Record) -> int:
        target = record.headers.get("warc-refers-to-target-uri", "")
        if target and self._url(target) != url:
            raise LeftOut(OTHER_DOCUMENTS)
        return time_of(record.headers.get("warc-refers-to-date", "")) or 0


def row_of(state: State, norm: int, path: int, site: int) -> int | None:
    """The row that stands for a document: of root pages and robots files every site has its own."""
    if path in (state.prints.root, state.prints.robots):
        return lookup.row_of(state, norm, path, site)
    rows = lookup.rows_of(state, norm, path)
    return rows.start if rows else None


def time_of(text: str) -> int | None:
    """Milliseconds of a WARC-Date; None for any other text."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return ""


def _cut(record: Record) -> str:
    word = record.headers.get("warc-truncated", "").strip().lower()
    if word:
        return word if word in CUTS else CUTS[-1]
    return "length" if record.cut else ""
