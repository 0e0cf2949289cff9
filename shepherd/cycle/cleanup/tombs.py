"""Documents that an operator deleted: which of their older buckets are still there.

A deleted row keeps its tombstone until no older bucket of its document is left: then the next merge may drop the row. What was
purged must not only be out of reach but gone, so every segment with bytes of it is rewritten; its tombstone stays for ever.

A harvest may bring bytes of a purged document again, under any equivalent name and with or without a record of it; so what
counts is which segments were looked at, and not what anybody has noted. Segment numbers only grow: the last cleanup remembers
the first that it has not seen (cleanup/report), and only segments behind it are searched again for purged documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from shepherd.arrays.distinct_urls import Paths
from shepherd.arrays.keys import distinct, find_rows, find_sites, sort_order
from shepherd.arrays.pool import ordered, tasks
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import I64, NO_OID, Array, Bools, Reason, Records, in_bucket
from shepherd.store.disk import names
from shepherd.store.state.directory import State
from shepherd.store.state.objects import Objects
from shepherd.urls import Footprints, parse

_BUCKET: Final = np.dtype([("oid", "<u8"), ("site", "<u8"), ("path", "<u8")])
_SCANNED: Final = 1 << 18  # headers at a time
_KEYS: Final = ("norm", "path", "site", "oid", "reason")


def _no_rows() -> I64:
    return np.zeros(0, np.int64)


def _nobody() -> Bools:
    return np.zeros(0, np.bool_)


@dataclass(frozen=True)
class Tombs:
    """Deleted documents, and where older buckets of them stand. Such buckets are copied nowhere: they go with their segments."""

    hollow: I64 = field(default_factory=_no_rows)  # rows whose bucket is no tombstone
    deleted: I64 = field(default_factory=_no_rows)  # rows that may be dropped once nothing older is left
    older_row: I64 = field(default_factory=_no_rows)  # a row for each older bucket
    segment: I64 = field(default_factory=_no_rows)  # and its segment
    purged: Bools = field(default_factory=_nobody)  # and whether its document was purged

    @property
    def settled(self) -> I64:
        """The deleted rows of which no older bucket is left."""
        return np.setdiff1d(self.deleted, self.older_row)

    @property
    def forced(self) -> frozenset[int]:
        """The segments with bytes of what was purged."""
        return frozenset(self.segment[self.purged].tolist())

    def without(self, segments: I64) -> Tombs:
        """The same once these segments are gone."""
        stay = ~np.isin(self.segment, segments)
        return Tombs(self.hollow, self.deleted, self.older_row[stay], self.segment[stay], self.purged[stay])


def find_tombs(state: State, rows: I64, jobs: int, unseen: int = 0) -> Tombs:
    """`rows` are those of deleted documents; of purged ones nothing is left in segments before `unseen`, as far as these are
    buried there. Only the segments are scanned in which there may be something to be found."""
    if not len(rows):
        return Tombs()
    columns = state.index.take(rows, _KEYS)
    hollow, buried = _tombstones(state, columns, unseen)
    deleted = columns["reason"] == Reason.DELETED
    first = unseen if (buried & ~deleted).all() else 0
    prints = Footprints(state.control.key)
    paths = Paths.of(prints)
    documents = columns | {"oid": np.where(hollow, np.uint64(NO_OID), columns["oid"])}  # that one is one of those to be found
    numbers = [number for number in state.segments() if number >= first]
    matches = [
        _matches(state, documents, part, prints, paths) for part in _buckets(state, numbers, distinct(documents["path"]), jobs)
    ]
    match = np.concatenate([_no_rows(), *(match for match, _oid in matches)])
    oid = np.concatenate([np.zeros(0, np.uint64), *(oid for _match, oid in matches)])
    segment = (oid >> np.uint64(32)).astype(np.int64)
    return Tombs(rows[hollow], rows[deleted], rows[match], segment, documents["reason"][match] == Reason.PURGED)


def _tombstones(state: State, columns: dict[str, Array], unseen: int) -> tuple[Bools, Bools]:
    """Which rows have a bucket that is no tombstone, and which have a tombstone that the last cleanup has seen."""
    hollow = np.zeros(len(columns["oid"]), np.bool_)
    stored = np.flatnonzero(in_bucket(columns["oid"]))
    for row in stored[np.argsort(columns["oid"][stored], kind="stable")].tolist():
        hollow[row] = not state.objects.head(int(columns["oid"][row])).header.flags & BucketFlag.TOMBSTONE
    return hollow, ~hollow & (columns["oid"] < np.uint64(unseen << 32))


def _buckets(state: State, numbers: Sequence[int], paths: Array, jobs: int) -> Iterator[Records]:
    """Every bucket of these segments, needed or not, with one of these paths; segment by segment."""
    return ordered(tasks(_scan, state, paths, numbers), jobs)


def _scan(state: State, paths: Array, number: int) -> Records:
    objects = Objects(state.path / names.OBJECTS)
    try:
        heads = ((oid, head.site, head.path) for oid, head in objects.scan(number))
        return np.concatenate([np.zeros(0, _BUCKET), *_of_paths(heads, paths)])
    finally:
        objects.close()


def _of_paths(heads: Iterable[tuple[int, int, int]], paths: Array) -> Iterator[Records]:
    heads = iter(heads)
    while len(part := np.fromiter(islice(heads, _SCANNED), _BUCKET)):
        yield part[find_sites(paths, np.ascontiguousarray(part["path"])) >= 0]


def _matches(state: State, documents: dict[str, Array], buckets: Records, prints: Footprints, paths: Paths) -> tuple[I64, Array]:
    """Pairs of a document and the oid of a bucket of it, tombstones of rows left out."""
    key = documents["norm"], documents["path"], np.where(paths.special(documents["path"]), documents["site"], np.uint64(0))
    order = sort_order(*key)
    path = np.ascontiguousarray(buckets["path"])
    own = np.where(paths.special(path), buckets["site"], np.uint64(0))
    norm = _norms(state, buckets, prints)
    place = find_rows(key[0][order], key[1][order], key[2][order], norm, path, own)
    match, oid = order[place[place >= 0]], buckets["oid"][place >= 0]
    older = oid != documents["oid"][match]
    return match[older], oid[older]


def _norms(state: State, buckets: Records, prints: Footprints) -> Array:
    """The normalised site of each bucket: by the site table, or, where the site has no rows any more, by the bucket's URL."""
    place = find_sites(state.sites["site"][0 : state.sites.rows], np.ascontiguousarray(buckets["site"]))
    norm = np.zeros(len(buckets), np.uint64)
    norm[place >= 0] = state.sites["norm"].take(place[place >= 0])
    for n in np.flatnonzero(place < 0).tolist():
        norm[n] = prints.half(parse(state.objects.head(int(buckets["oid"][n])).url).norm)
    return norm
