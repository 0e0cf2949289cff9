"""What a cleanup finds in the index: which bytes of which segment are still needed, and which rows give theirs up.

A partition is looked at by `look`; the sums of all looks say how full every segment is. `mark` then changes the rows: what is
forgotten or rejected lets go of its bucket, what only sleeps of its body. No row is added or dropped; that is merge's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import with_flag
from shepherd.arrays.rows import BODY_FLAGS, THIN_BYTES, has_body
from shepherd.formats.tables import (
    I64,
    NO_OID,
    SACRED,
    U8,
    U32,
    U64,
    Array,
    Bools,
    Columns,
    Flag,
    Reason,
    RowType,
    in_bucket,
)

WEIGHTS = 65_536
SECTIONS = 256
READ = ("oid", "digest", "type", "reason", "flags", "weight", "section", "gathered", "size")
CHANGED = ("oid", "digest", "type", "reason", "flags", "section", "gathered", "changed", "touched", "size")


@dataclass(frozen=True)
class Wishes:
    """What is known of the rows of a partition beyond their columns."""

    rejected: Bools | None = None  # by the filter as it is now
    section: U8 | None = None  # as the filter is now
    hollow: I64 | None = None  # rows of deleted documents whose bucket is no tombstone
    settled: I64 | None = None  # rows of deleted documents of which no older bucket is left


@dataclass(frozen=True)
class Look:
    """What the rows of a partition, or of all, need and could give up. Looks add up."""

    rows: I64  # buckets that are needed, by segment
    bytes: I64  # and their bytes
    stale: int  # forgotten rows that still hold a bucket
    rejected: int
    moved: int  # rows of another section than the filter says
    settled: int
    trims: int  # sleeping rows with a body
    weights: I64  # bytes that gathered bodies would free, by weight of their rows
    documents: I64  # gathered documents with a body, by section
    stored: I64  # the bytes of their buckets

    def __add__(self, other: Look) -> Look:
        return Look(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def marks(self) -> int:
        """How many rows there are to change, but for those that make room."""
        return self.stale + self.rejected + self.moved + self.settled + self.trims


def nothing(segments: int) -> Look:
    zeros = [np.zeros(size, np.int64) for size in (segments, segments, WEIGHTS, SECTIONS, SECTIONS)]
    return Look(zeros[0], zeros[1], 0, 0, 0, 0, 0, *zeros[2:])


def look(index: Columns, wishes: Wishes, segments: int) -> Look:
    """One partition, as if it were marked already, but for the thin buckets that trimmed rows get."""
    fate = fates(index, wishes)
    needed = in_bucket(index["oid"]) & ~(fate.stale | fate.rejected | fate.settled | fate.trims)
    segment = (index["oid"][needed] >> np.uint64(32)).astype(np.int64)
    bytes_ = np.zeros(segments, np.int64)
    np.add.at(bytes_, segment, index["size"][needed].astype(np.int64))
    weights = np.zeros(WEIGHTS, np.int64)
    bodies = np.flatnonzero(_could_sleep(index, fate))
    np.add.at(weights, index["weight"][bodies], _freed(index["size"][bodies]))
    documents = needed & is_document(index)
    section = (index["section"] if wishes.section is None else wishes.section)[documents].astype(np.int64)
    stored = np.zeros(SECTIONS, np.int64)
    np.add.at(stored, section, index["size"][documents].astype(np.int64))
    return Look(
        rows=np.bincount(segment, minlength=segments).astype(np.int64),
        bytes=bytes_,
        stale=_count(fate.stale),
        rejected=_count(fate.rejected),
        moved=_count(fate.moved),
        settled=_count(fate.settled),
        trims=_count(fate.trims),
        weights=weights,
        documents=np.bincount(section, minlength=SECTIONS).astype(np.int64),
        stored=stored,
    )


@dataclass(frozen=True)
class RowFates:
    """Which rows of a partition change, and how; no row has two of these, but `moved` beside `trims`."""

    stale: Bools
    rejected: Bools
    settled: Bools
    trims: Bools
    moved: Bools


def fates(index: Columns, wishes: Wishes) -> RowFates:
    """A robots file is never rejected: politeness needs it for as long as its site has rows."""
    forgotten = index["type"] == RowType.FORGOTTEN
    deleted = forgotten & is_deleted(index["reason"])
    nowhere = np.zeros(len(forgotten), np.bool_)
    settled, hollow = nowhere.copy(), nowhere.copy()
    for mask, rows in ((settled, wishes.settled), (hollow, wishes.hollow)):
        if rows is not None:
            mask[rows] = True
    settled &= deleted & (index["reason"] == Reason.DELETED)
    stale = forgotten & in_bucket(index["oid"]) & (~deleted | hollow) & ~settled
    rejected = nowhere if wishes.rejected is None else wishes.rejected & ~forgotten & ~with_flag(index["flags"], Flag.ROBOTS)
    trims = (index["type"] == RowType.SLEEPING) & has_body(index) & ~rejected
    moved = nowhere
    if wishes.section is not None:
        moved = ~forgotten & ~rejected & (wishes.section != index["section"])
    return RowFates(*(np.asarray(mask) for mask in (stale, rejected, settled, trims, moved)))


def is_deleted(reason: Array) -> Bools:
    """Rows that an operator deleted point at a tombstone for as long as an older bucket could bring them back."""
    return np.asarray((reason == Reason.DELETED) | (reason == Reason.PURGED))


def _count(mask: Bools) -> int:
    return int(np.count_nonzero(mask))


def is_document(index: Columns) -> Bools:
    """Gathered, with a body, and no robots file."""
    gathered = (index["type"] == RowType.GATHERED) & ~with_flag(index["flags"], Flag.ROBOTS)
    return np.asarray(gathered & has_body(index))


def _could_sleep(index: Columns, fate: RowFates) -> Bools:
    return np.asarray(is_document(index) & ~fate.rejected & ~with_flag(index["flags"], SACRED))


def _freed(size: Array) -> I64:
    return np.maximum(size.astype(np.int64) - THIN_BYTES, 1)


# --- room -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrimBar:
    """Bodies of rows below a weight go, and of those equal to it the first that free so many bytes."""

    weight: int = 0
    tie_bytes: int = 0


def bar_for(weights: I64, excess: int) -> TrimBar:
    """The bar that frees at least `excess` bytes, or all that can be freed."""
    if excess <= 0:
        return TrimBar()
    below = np.cumsum(weights)
    if int(below[-1]) <= excess:
        return TrimBar(WEIGHTS)
    weight = int(np.searchsorted(below, excess))
    return TrimBar(weight, excess - int(below[weight] - weights[weight]))


def squeezed(index: Columns, wishes: Wishes, bar: TrimBar) -> tuple[Bools, TrimBar]:
    """The rows of a partition that lose their bodies for want of room, and the bar for the partition after it."""
    could = _could_sleep(index, fates(index, wishes))
    weight = index["weight"].astype(np.int64)
    ties = np.flatnonzero(could & (weight == bar.weight))
    freed = np.cumsum(_freed(index["size"][ties]))
    tied = ties[np.concatenate([np.zeros(1, np.int64), freed[:-1]])[: len(ties)] < bar.tie_bytes]
    go = could & (weight < bar.weight)
    go[tied] = True
    return go, TrimBar(bar.weight, max(bar.tie_bytes - int(freed[-1]), 0) if len(ties) else bar.tie_bytes)


# --- marks ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thin:
    """The thin buckets that rows of a partition get in place of their bodies, in the order of rows."""

    row: I64
    oid: U64
    size: U32


@dataclass(frozen=True)
class MarkedColumns:
    columns: Mapping[str, Array]
    ceases: Bools  # gathered rows that are gathered no more
    counts: Mapping[str, int]


def mark(index: Columns, wishes: Wishes, squeeze: Bools, thin: Thin, *, state: int) -> MarkedColumns:
    """The changed columns of one partition. A trimmed row without a thin bucket yet is left for another time."""
    fate = fates(index, wishes)
    columns = {name: index[name].copy() for name in CHANGED}
    dropped = fate.rejected | fate.settled
    bare = fate.stale | dropped
    thinned = np.zeros(len(bare), np.bool_)
    thinned[thin.row] = True
    columns["type"][fate.rejected] = RowType.FORGOTTEN
    columns["reason"][fate.rejected] = Reason.FILTER
    columns["reason"][fate.settled] = Reason.NONE
    pressed = squeeze & thinned
    columns["type"][pressed] = RowType.SLEEPING
    columns["reason"][pressed] = Reason.SPACE
    columns["oid"][bare & in_bucket(index["oid"])] = NO_OID
    columns["oid"][thin.row] = thin.oid
    columns["size"][bare] = 0
    columns["size"][thin.row] = thin.size
    for name in ("digest", "gathered", "changed"):
        columns[name][bare | thinned] = 0
    columns["flags"][thinned] &= np.uint16(0xFFFF ^ BODY_FLAGS)
    if wishes.section is not None:
        columns["section"][fate.moved] = wishes.section[fate.moved]
    columns["touched"][bare | thinned | fate.moved] = state
    ceases = (index["type"] == RowType.GATHERED) & (columns["type"] != RowType.GATHERED)
    counts = {
        "filtered": _count(fate.rejected),
        "deleted rows to be dropped": _count(fate.settled),
        "forgotten rows without their buckets": _count(fate.stale),
        "trimmed": _count(thinned & ~pressed),
        "bodies dropped for room": _count(pressed),
        "sections changed": _count(fate.moved),
    }
    return MarkedColumns(columns, np.asarray(ceases), counts)
