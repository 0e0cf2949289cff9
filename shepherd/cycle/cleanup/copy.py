"""Needed buckets copied into new segments, as they are; and thin ones written in place of bodies that go.

A segment is verified whole, bodies and all, before a byte of it is copied: what is damaged stops the cleanup, and never gets a
checksum that says it is not.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from shepherd.arrays.pool import ordered, tasks
from shepherd.cycle.cleanup import shakedown
from shepherd.cycle.cleanup.rules import Thin
from shepherd.cycle.common.bucket_moves import BucketMoves
from shepherd.formats import bucket
from shepherd.formats.tables import I64
from shepherd.readers.segments import Claims, Segment
from shepherd.store.state.directory import State
from shepherd.store.state.objects import SegmentWriter


def copy_segments(state: State, numbers: I64, needed: Claims, segments: SegmentWriter, limit: int, jobs: int) -> BucketMoves:
    """The needed buckets of these segments, in the order of oids."""
    new = [np.zeros(0, np.uint64)]
    work = tasks(_verify, state, None, ((number, needed.of(number)) for number in numbers.tolist()))
    for number in ordered(work, jobs):
        segment = Segment(state, number, needed.of(number))
        begins = shakedown.pieces(segment.offset, segment.claims.size, limit)
        start, last = np.flatnonzero(begins), np.append(np.flatnonzero(begins)[1:], len(begins)) - 1
        spans = zip(segment.offset[start].tolist(), (segment.offset[last] + segment.claims.size[last]).tolist(), strict=True)
        placed = np.array([segments.append(segment.view(first, end)) for first, end in spans], np.uint64)
        new.append(shakedown.places_after(segment.claims.oid, begins, placed))
    return BucketMoves(needed.oid, np.concatenate(new))


def _verify(state: State, _shared: None, part: tuple[int, Claims]) -> int:
    """The number of a segment, of which all needed buckets are sound."""
    number, claims = part
    for _part in Segment(state, number, claims).verify(bodies=True):
        pass
    return number


def write_thin(state: State, claims: Claims, segments: SegmentWriter, number: int) -> tuple[Thin, I64]:
    """A thin bucket for each of these rows, with the URL and the time of the one it has; and the decoded bytes that go with it.

    Both in the order of rows.
    """
    oids, sizes = np.zeros(len(claims), np.uint64), np.zeros(len(claims), np.uint32)
    plain = np.zeros(len(claims), np.int64)
    count = 0
    for segment_number in sorted(Counter((claims.oid >> np.uint64(32)).tolist())):
        segment = Segment(state, segment_number, claims.of(segment_number))
        for part in segment.verify(bodies=False):
            plain[count : count + len(part.offset)] = part.heads["plain_bytes"]
            heads = (part.heads[name].tolist() for name in ("site", "path", "time_ms"))
            for site, path, time_ms, url in zip(*heads, segment.urls(part), strict=True):
                data = bucket.thin(site, path, time_ms, number, url.decode("ascii"))
                oids[count], sizes[count] = segments.append(data), len(data)
                count += 1
    order = np.argsort(claims.row, kind="stable")
    return Thin(claims.row[order], oids[order], sizes[order]), plain[order]
