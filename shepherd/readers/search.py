"""What buckets say of their rows, above all URLs: of many rows in the order of the segments, so that a disk reads on and on.

A search by text reads every bucket once, front to back, whatever the order of the rows is. Rows and places of at most GROUP_ROWS
buckets are held at a time: of a larger index the columns are read again for the next segments, which costs little beside the
buckets. Every header is verified before its URL is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from shepherd.arrays.partitions import Tick, segment_groups
from shepherd.formats.tables import I64, Bools, in_bucket
from shepherd.readers.segments import Claims, Part, Segment
from shepherd.store.state.directory import State

GROUP_ROWS: Final = 1 << 22
SPARSE: Final = 1 << 16  # bytes from one bucket to the next beyond which each is read alone

Pieces: TypeAlias = Callable[[], Iterator[I64]]  # some rows of a state, in order, a partition at a time, each time from the start
Matcher: TypeAlias = Callable[[bytes], bool]


def urls_of(state: State, rows: I64) -> list[bytes | None]:
    """The URL of each row; None where its bucket is gone, or it never had one."""
    url_of_place: list[bytes | None] = [None] * len(rows)
    order = np.argsort(rows, kind="stable")
    for some, urls in _read(state, _claims(state, rows)):
        for place, url in zip(order[np.searchsorted(rows, some, sorter=order)].tolist(), urls, strict=True):
            url_of_place[place] = url
    return url_of_place


def count(state: State, pieces: Pieces) -> I64:
    """How many buckets of these rows each segment has."""
    counts = np.zeros(state.control.segments, np.int64)
    for rows in pieces():
        oid = state.index["oid"].take(rows)
        counts += np.bincount((oid[in_bucket(oid)] >> np.uint64(32)).astype(np.int64), minlength=len(counts))
    return counts


def matching(state: State, pieces: Pieces, counts: I64, matches: Matcher, tick: Tick) -> Iterator[I64]:
    """Those of the rows whose URL matches, in the order of their buckets, some at a time. `counts` are those of `count`."""
    for first, last in segment_groups(counts, GROUP_ROWS):
        for rows, urls in _read(state, _claims_within(state, pieces, first, last)):
            mask: Bools = np.fromiter(map(matches, urls), np.bool_, len(urls))
            tick(len(urls))
            yield rows[mask]


def read(state: State, pieces: Pieces, counts: I64) -> Iterator[tuple[I64, Segment, Part]]:
    """Every bucket of the rows, in the order of the segments, verified but for its body: rows, and where their buckets are."""
    for first, last in segment_groups(counts, GROUP_ROWS):
        claims = _claims_within(state, pieces, first, last)
        for number in np.unique(claims.oid >> np.uint64(32)).tolist():
            yield from _parts(state, number, claims.of(number))


def _parts(state: State, number: int, part: Claims) -> Iterator[tuple[I64, Segment, Part]]:
    segment = Segment(state, number, part)
    for some in segment.verify(bodies=False):
        yield part.row[some.first : some.first + len(some.offset)], segment, some


def _claims_within(state: State, pieces: Pieces, first: int, last: int) -> Claims:
    """The buckets of the rows that lie in these segments."""
    parts = [np.zeros(0, np.int64)]
    least, most = np.uint64(first << 32), np.uint64(last << 32)
    for rows in pieces():
        oid = state.index["oid"].take(rows)
        parts.append(rows[(oid >= least) & (oid < most)])
    return _claims(state, np.concatenate(parts))


def _claims(state: State, rows: I64) -> Claims:
    oid = state.index["oid"].take(rows)
    rows, oid = rows[in_bucket(oid)], oid[in_bucket(oid)]
    order = np.argsort(oid)
    rows, oid = rows[order], oid[order]
    return Claims(oid, state.index["size"].take(rows).astype(np.int64), rows)


def _read(state: State, claims: Claims) -> Iterator[tuple[I64, list[bytes]]]:
    """Rows and their URLs, in the order of oids."""
    for number in np.unique(claims.oid >> np.uint64(32)).tolist():
        part = claims.of(number)
        if int(part.oid[-1] - part.oid[0]) > SPARSE * len(part):
            yield part.row, [state.objects.head(oid).url.encode() for oid in part.oid.tolist()]
            continue
        for rows, segment, some in _parts(state, number, part):
            yield rows, segment.urls(some)
