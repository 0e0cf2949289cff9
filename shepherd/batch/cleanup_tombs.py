"""Documents that an operator deleted: which of their older buckets are still there.

A deleted row keeps its tombstone until no older bucket of its document is left: then the next merge may drop the row. What was
purged must not only be out of reach but gone, so every segment with bytes of it is rewritten; its tombstone stays for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from shepherd.batch.pool import ordered
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import I64, Array, Bools, Reason, Records, in_bucket
from shepherd.phases.keys import distinct, find_rows, find_sites, sort_order
from shepherd.phases.merge import Paths
from shepherd.store import names
from shepherd.store.objects import Objects
from shepherd.store.state import State
from shepherd.urls import Footprints, parse

_FOUND: Final = np.dtype([("oid", "<u8"), ("site", "<u8"), ("path", "<u8")])
_SCANNED: Final = 1 << 18  # headers at a time
_KEYS: Final = ("norm", "path", "site", "oid", "reason")


def _no_rows() -> I64:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Tombs:
    hollow: I64 = field(default_factory=_no_rows)  # rows whose bucket is no tombstone
    settled: I64 = field(default_factory=_no_rows)  # rows of documents that were deleted, and no older bucket is left
    forced: frozenset[int] = frozenset()  # segments with bytes of what was purged
    waiting: int = 0  # documents of which older buckets are left, or were not looked for


def find_tombs(state: State, rows: I64, jobs: int) -> Tombs:
    """`rows` are those of deleted documents. All segments are scanned, but only if there is something to be found."""
    if not len(rows):
        return Tombs()
    columns = state.index.take(rows, _KEYS)
    hollow, old = _tombstones(state, columns)
    pending = np.flatnonzero((columns["reason"] == Reason.DELETED) | ~old)
    if not len(pending):
        return Tombs(rows[hollow])
    prints = Footprints(state.control.key)
    paths = Paths(prints.half("/robots.txt"), prints.half("/"))
    sought = {name: column[pending] for name, column in columns.items()}
    forced: set[int] = set()
    left = np.zeros(len(pending), np.bool_)
    for found in _buckets(state, distinct(sought["path"]), jobs):
        match, oid = _matches(state, sought, found, prints, paths)
        left[match] = True
        purged = sought["reason"][match] == Reason.PURGED
        forced.update((oid[purged] >> np.uint64(32)).tolist())
    settled = pending[~left & (sought["reason"] == Reason.DELETED)]
    return Tombs(rows[hollow], rows[settled], frozenset(forced), int(np.count_nonzero(left)))


def _tombstones(state: State, columns: dict[str, Array]) -> tuple[Bools, Bools]:
    """Which rows have a bucket that is no tombstone, and which have one from before the last cleanup of everything."""
    hollow, old = (np.zeros(len(columns["oid"]), np.bool_) for _ in range(2))
    stored = np.flatnonzero(in_bucket(columns["oid"]))
    for row in stored[np.argsort(columns["oid"][stored], kind="stable")].tolist():
        header = state.objects.head(int(columns["oid"][row])).header
        hollow[row] = not header.flags & BucketFlag.TOMBSTONE
        old[row] = not hollow[row] and header.time_ms < state.control.cleaned * 1000
    return hollow, old


def _buckets(state: State, paths: Array, jobs: int) -> Iterator[Records]:
    """Every bucket, needed or not, with one of these paths; segment by segment."""

    def one(number: int) -> Records:
        objects = Objects(state.path / names.OBJECTS)
        try:
            heads = ((oid, head.site, head.path) for oid, head in objects.scan(number))
            return np.concatenate([np.zeros(0, _FOUND), *_of_paths(heads, paths)])
        finally:
            objects.close()

    return ordered(one, state.segments(), jobs)


def _of_paths(heads: Iterable[tuple[int, int, int]], paths: Array) -> Iterator[Records]:
    heads = iter(heads)
    while len(part := np.fromiter(islice(heads, _SCANNED), _FOUND)):
        yield part[find_sites(paths, np.ascontiguousarray(part["path"])) >= 0]


def _matches(state: State, sought: dict[str, Array], found: Records, prints: Footprints, paths: Paths) -> tuple[I64, Array]:
    """Pairs of a sought document and the oid of a bucket of it, tombstones of rows left out."""
    wanted = sought["norm"], sought["path"], np.where(paths.special(sought["path"]), sought["site"], np.uint64(0))
    order = sort_order(*wanted)
    path = np.ascontiguousarray(found["path"])
    own = np.where(paths.special(path), found["site"], np.uint64(0))
    norm = _norms(state, found, prints)
    at = find_rows(wanted[0][order], wanted[1][order], wanted[2][order], norm, path, own)
    match, oid = order[at[at >= 0]], found["oid"][at >= 0]
    older = oid != sought["oid"][match]
    return match[older], oid[older]


def _norms(state: State, found: Records, prints: Footprints) -> Array:
    """The normalised site of each bucket: by the site table, or, where the site has no rows any more, by the bucket's URL."""
    at = find_sites(state.sites["site"][0 : state.sites.rows], np.ascontiguousarray(found["site"]))
    norm = np.zeros(len(found), np.uint64)
    norm[at >= 0] = state.sites["norm"].take(at[at >= 0])
    for n in np.flatnonzero(at < 0).tolist():
        norm[n] = prints.half(parse(state.objects.head(int(found["oid"][n])).url).norm)
    return norm
