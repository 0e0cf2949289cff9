"""Which segments are worth copying, how many of them at a time, and in which pieces.

A segment is sparse when less than a share of it is needed, small when it is much shorter than segments may be. Sparse ones are
copied to free the rest; small ones, two at least, to be joined. A join of small ones makes fewer than there were, and of what is
copied nothing is waste: so cleanups come to an end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.formats.tables import I64, U64, Bools

PIECE = 1 << 22  # adjacent buckets are copied together, about so many bytes at a time
PIECES = 8  # of a segment at least, so that the last one does not leave much of it empty


@dataclass(frozen=True)
class Fill:
    """How full the segments of a state are, by ascending number."""

    number: I64
    length: I64
    rows: I64  # buckets that are needed
    bytes: I64  # and their bytes

    @property
    def share(self) -> int:
        """How much of all of it is needed, in percent, rounded down."""
        total = int(self.length.sum())
        return int(self.bytes.sum()) * 100 // total if total else 100


@dataclass(frozen=True)
class SegmentChoice:
    """Places in a Fill, in the order in which they are worth copying; how many for which reason."""

    places: I64
    empty: int
    sparse: int
    small: int
    forced: int


def choose(fill: Fill, cleanup: config.Cleanup, segment_bytes: int, forced: Collection[int] = ()) -> SegmentChoice:
    """`forced` are numbers of segments that must be rewritten, because of purged bytes in them.

    While all segments together are over the limit of size, also segments that are less than sparse are taken, the emptiest first.
    """
    must = np.isin(fill.number, np.array(sorted(forced), np.int64))
    empty = fill.rows == 0
    sparse = ~empty & (fill.bytes * 100 < fill.length * cleanup.sparse)
    sparse |= ~empty & _over(fill, empty | sparse | must, cleanup.size_bytes)
    small = ~(empty | sparse | must) & (fill.length * 100 < segment_bytes * cleanup.small)
    if np.count_nonzero(small) + (1 if np.any(sparse | must) else 0) < 2:
        small = np.zeros(len(small), np.bool_)
    worth_copying = empty | sparse | must | small
    ratio = fill.bytes * 1_000_000 // np.maximum(fill.length, 1)
    order = np.lexsort((fill.number, np.where(small, fill.bytes, ratio), small, ~must, ~empty))
    counts = (int(np.count_nonzero(mask)) for mask in (empty, sparse & ~must, small, must & ~empty))
    return SegmentChoice(order[worth_copying[order]], *counts)


def _over(fill: Fill, already: Bools, limit: int) -> Bools:
    """Further segments with something to free, the emptiest first, until all that is left is within the limit."""
    more = np.zeros(len(already), np.bool_)
    total = int(fill.bytes[already].sum() + fill.length[~already].sum())
    if not limit or total <= limit:
        return more
    waste = fill.length - fill.bytes
    ratio = fill.bytes * 1_000_000 // np.maximum(fill.length, 1)
    order = np.lexsort((fill.number, ratio))
    order = order[~already[order] & (waste[order] > 0)]
    remaining = total - np.cumsum(waste[order]) + waste[order]  # before each is taken
    more[order[remaining > limit]] = True
    return more


def batch(fill: Fill, choice: SegmentChoice, room: int, rows: int) -> I64:
    """The places to copy now: in the order of the choice all that fit, each by itself, into `room` bytes and `rows` buckets.

    One segment may have more than `rows`; what needs no copy always fits. A small segment is not copied
    alone: that would gain nothing.
    """
    places: list[int] = []
    used = buckets = 0
    for place in choice.places.tolist():
        need, count = int(fill.bytes[place]), int(fill.rows[place])
        if used + need <= room and (buckets + count <= rows or buckets == 0):
            places.append(place)
            used, buckets = used + need, buckets + count
    alone = len(places) == 1 and fill.rows[places[0]] > 0 and places[0] in choice.places[len(choice.places) - choice.small :]
    return np.zeros(0, np.int64) if alone else np.sort(np.array(places, np.int64))


def pieces(offset: I64, size: I64, segment_bytes: int) -> Bools:
    """Where a piece begins: after a gap, and where the one before it is long enough."""
    begins = np.ones(len(offset), np.bool_)
    if len(begins):
        most = max(min(PIECE, segment_bytes // PIECES), 1)
        begins[1:] = (offset[1:] != offset[:-1] + size[:-1]) | (offset[1:] // most != offset[:-1] // most)
    return begins


def places_after(old: U64, begins: Bools, placed: U64) -> U64:
    """The oid of each copy: that of its piece, and as far into it as before."""
    piece = np.cumsum(begins) - 1
    first = old[begins]
    return np.asarray(placed[piece] + (old - first[piece]), np.uint64)
