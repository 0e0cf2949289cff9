"""Buckets without a body for many rows: thin ones for new URLs and robots files, tombstones for what was deleted.

Rows are taken in the order in which their URLs stand on disk, so each contrib file, the names of the sites and the segments are
read once, front to back. A BucketUnit is a piece of that work; a worker makes its buckets, and the one writer gives them their
places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shepherd.arrays.keys import find_sites, run_starts
from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats import bucket, contrib, tables
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import I64, REASON_TEXT, U8, U64, Reason
from shepherd.formats.thin import pack_thin
from shepherd.store.disk import names
from shepherd.store.state import logs, lookup
from shepherd.store.state.directory import State
from shepherd.urls import ROBOTS_PATH

UNIT_ROWS = 1 << 15
NAMES_BYTES = 1 << 22  # of site names in one unit


@dataclass(frozen=True)
class RowsToRecord:
    """Rows that need a bucket, in the order of their places; `reason` is why a row is dead, 0 where it is not."""

    row: I64
    oid: U64
    site: U64
    reason: U8

    def __len__(self) -> int:
        return len(self.row)

    def part(self, first: int, last: int) -> RowsToRecord:
        return RowsToRecord(self.row[first:last], self.oid[first:last], self.site[first:last], self.reason[first:last])


@dataclass(frozen=True)
class BuiltBuckets:
    """Buckets end to end, and the length of each; 0 where a row gets none."""

    data: bytes
    lengths: I64


@dataclass(frozen=True)
class BucketMaker:
    """What all buckets of one state have in common."""

    filters: Filter
    number: int  # of the state
    time_ms: int
    robots_path: int

    def thin(self, rows: RowsToRecord, path: U64, site_names: Sequence[bytes], texts: Sequence[bytes]) -> list[bytes]:
        buckets = pack_thin(rows.site, path, self.time_ms, self.number, site_names, texts)
        for place in np.flatnonzero(rows.reason).tolist():
            url = (site_names[place] + texts[place]).decode("ascii")
            buckets[place] = self.tombstone(int(rows.site[place]), int(path[place]), url, int(rows.reason[place]))
        return buckets

    def tombstone(self, site: int, path: int, url: str, reason: int) -> bytes:
        return bucket.tombstone(site, path, self.time_ms, self.number, url, REASON_TEXT[Reason(reason)])


class BucketUnit(Protocol):
    """Some rows that need a bucket, and where their URLs stand: plain data."""

    def build(self, state: State, maker: BucketMaker) -> BuiltBuckets: ...


def _built(buckets: Sequence[bytes]) -> BuiltBuckets:
    return BuiltBuckets(b"".join(buckets), np.fromiter(map(len, buckets), np.int64, len(buckets)))


# --- URLs that stand in contrib ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FromContrib:
    """Some frames of a contrib file: where each begins and ends, its first oid, and the rows that point into it."""

    number: int
    frames: Sequence[tuple[int, int, int, RowsToRecord]]

    def build(self, state: State, maker: BucketMaker) -> BuiltBuckets:
        buckets: list[bytes] = []
        path = state.path / names.contrib(self.number)
        for start, end, first, rows in self.frames:
            try:
                buckets += _of_block(state, maker, logs.frame_at(path, start, end).payload, first, rows)
            except Corruption as error:
                raise Corruption(error.what, path, start) from error
        return _built(buckets)


def _of_block(state: State, maker: BucketMaker, payload: memoryview, first: int, rows: RowsToRecord) -> list[bytes]:
    number_in_block = (rows.oid - np.uint64(first)).astype(np.int64)
    block = contrib.decode(payload, only=number_in_block)
    order = np.argsort(block.sites)
    place = order[np.searchsorted(block.sites[order], block.site[number_in_block])]
    site_names = [block.names[i] for i in place.tolist()]
    # A row that an equivalent's URL brought back keeps its own site.
    for other in np.flatnonzero(block.site[number_in_block] != rows.site).tolist():
        site_names[other] = _site_name(state, int(rows.site[other]))
    buckets = maker.thin(rows, block.path[number_in_block], site_names, block.texts)
    if block.filter_version == maker.filters.version:
        return buckets
    clean, dead = maker.filters.clean, (rows.reason != 0).tolist()
    urls = ((name + text).decode("ascii") for name, text in zip(site_names, block.texts, strict=True))
    return [data if is_dead or clean(url) is not None else b"" for data, url, is_dead in zip(buckets, urls, dead, strict=True)]


def _site_name(state: State, site: int) -> bytes:
    row = lookup.site_row(state, site)
    if row is None:
        raise Corruption("a row is of a site that is not in the site table")
    return state.site_name(row).encode("ascii")


def from_contrib(state: State, rows: RowsToRecord) -> list[BucketUnit]:
    """All rows of `rows`, by the frames that they point into."""
    units: list[BucketUnit] = []
    rows_seen = 0
    for number in state.numbered(names.CONTRIB):
        frames: list[tuple[int, int, int, RowsToRecord]] = []
        first, unit_rows = tables.contrib_oid(number, 0), 0
        for start, end, records in logs.frame_places(state.path / names.contrib(number)):
            low, high = np.searchsorted(rows.oid, np.array([first, first + records], np.uint64)).tolist()
            if low < high:
                frames.append((start, end, first, rows.part(low, high)))
                unit_rows += high - low
            if unit_rows >= UNIT_ROWS:
                units.append(FromContrib(number, frames))
                rows_seen, unit_rows, frames = rows_seen + unit_rows, 0, []
            first += records
        if frames:
            units.append(FromContrib(number, frames))
            rows_seen += unit_rows
    if rows_seen != len(rows):
        raise Corruption(f"{len(rows) - rows_seen} rows point at contributions that are not there", state.path)
    return units


# --- robots files, whose URL is the name of their site ------------------------------------------------------------


@dataclass(frozen=True)
class FromNames:
    """Robots files, and the rows of their sites in the site table, in order."""

    rows: RowsToRecord
    site_row: I64

    def build(self, state: State, maker: BucketMaker) -> BuiltBuckets:
        names = state.names_at(self.site_row).texts().tolist()
        path = np.full(len(names), maker.robots_path, np.uint64)
        return _built(maker.thin(self.rows, path, names, [ROBOTS_PATH.encode()] * len(names)))


def from_names(state: State, rows: RowsToRecord) -> list[BucketUnit]:
    """`rows` is sorted by site."""
    row = find_sites(state.sites["site"][0 : state.sites.rows], rows.site)
    if len(row) and int(row.min()) < 0:
        raise Corruption("a robots row is of a site that is not in the site table", state.path)
    window = state.sites["name"].take(row) // np.uint64(NAMES_BYTES)
    cuts = np.flatnonzero(run_starts(window, np.arange(len(row)) // UNIT_ROWS)).tolist()
    return [FromNames(rows.part(a, b), row[a:b]) for a, b in zip(cuts, [*cuts[1:], len(row)], strict=True)]


# --- what has a bucket, and was deleted ---------------------------------------------------------------------------


@dataclass(frozen=True)
class FromBuckets:
    """Deleted rows that have a bucket; one whose bucket is a tombstone already keeps it, unless it is purged by now.

    A cleanup looks for purged bytes when it meets a tombstone that is newer than the last one: so a purge has to leave one.
    """

    rows: RowsToRecord

    def build(self, state: State, maker: BucketMaker) -> BuiltBuckets:
        return _built([self._buried(state, maker, oid, reason) for oid, reason in self._each()])

    def _each(self) -> Iterator[tuple[int, int]]:
        return zip(self.rows.oid.tolist(), self.rows.reason.tolist(), strict=True)

    def _buried(self, state: State, maker: BucketMaker, oid: int, reason: int) -> bytes:
        stored = state.objects.head(oid)
        says_so = stored.attributes.get("P") == REASON_TEXT[Reason(reason)].encode() or reason != Reason.PURGED
        if stored.header.flags & BucketFlag.TOMBSTONE and says_so:
            return b""
        return maker.tombstone(stored.header.site, stored.header.path, stored.url, reason)


def from_buckets(rows: RowsToRecord) -> list[BucketUnit]:
    return [FromBuckets(rows.part(start, start + UNIT_ROWS)) for start in range(0, len(rows), UNIT_ROWS)]
