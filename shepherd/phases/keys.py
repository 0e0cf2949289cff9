"""Looking up footprints in sorted columns, for all queries at once.

An index slice is sorted by (norm, path, site). A lookup bisects: first on norm, then on path and site inside the run of that
norm, every query at the same step; so the cost is queries times log2 of the longest run, and no key is ever packed or sorted as
a record.
All keys are uint64: a mix with a signed type would become float64 and lose bits.
"""

from __future__ import annotations

import numpy as np

from shepherd.formats.tables import I64, U64, Array, Bools, Columns, Flag, Records, RowType

NOT_FOUND = -1


def lower_bound(norm: U64, path: U64, site: U64, qnorm: U64, qpath: U64, qsite: U64) -> I64:
    """For each query the first row that is not before it."""
    low = np.searchsorted(norm, qnorm, side="left").astype(np.int64)
    high = np.searchsorted(norm, qnorm, side="right").astype(np.int64)
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        at, wanted = path[middle], qpath[open_]
        before = at < wanted
        tied = np.flatnonzero(at == wanted)
        before[tied] = site[middle[tied]] < qsite[open_[tied]]
        low[open_[before]] = middle[before] + 1
        after = ~before
        high[open_[after]] = middle[after]
        open_ = open_[low[open_] < high[open_]]
    return low


def find_rows(norm: U64, path: U64, site: U64, qnorm: U64, qpath: U64, qsite: U64) -> I64:
    """For each query the row equal to it in all three, or -1."""
    row = lower_bound(norm, path, site, qnorm, qpath, qsite)
    return _found(row, (norm, qnorm), (path, qpath), (site, qsite))


def find_equivalent(norm: U64, path: U64, qnorm: U64, qpath: U64) -> I64:
    """For each query the first row with the same normalised site and path, or -1."""
    row = lower_bound(norm, path, np.zeros_like(path), qnorm, qpath, np.zeros_like(qpath))
    return _found(row, (norm, qnorm), (path, qpath))


def find_sites(site: U64, queries: U64) -> I64:
    """For each query its row in a sorted column of distinct keys, or -1."""
    return _found(np.searchsorted(site, queries).astype(np.int64), (site, queries))


def _found(row: I64, *pairs: tuple[U64, U64]) -> I64:
    column = pairs[0][0]
    inside = np.flatnonzero(row < len(column))
    equal = np.ones(len(inside), np.bool_)
    for keys, queries in pairs:
        equal &= keys[row[inside]] == queries[inside]
    found = np.full(len(row), NOT_FOUND, np.int64)
    found[inside[equal]] = row[inside[equal]]
    return found


def sort_order(norm: U64, path: U64, site: U64) -> I64:
    """The permutation that sorts by (norm, path, site), stable."""
    return np.lexsort((site, path, norm)).astype(np.int64)


def run_starts(*columns: Array) -> Bools:
    """True where a row differs from the one before it in any of the (sorted) columns."""
    starts = np.ones(len(columns[0]), np.bool_)
    if len(starts):
        starts[1:] = False
        for column in columns:
            starts[1:] |= column[1:] != column[:-1]
    return starts


def run_ends(starts: Bools) -> Bools:
    """True where a row is the last of its run."""
    ends = np.ones(len(starts), np.bool_)
    ends[:-1] = starts[1:]
    return ends


def run_ranks(starts: Bools) -> I64:
    """The position of each row inside its run."""
    positions = np.arange(len(starts), dtype=np.int64)
    return positions - np.maximum.accumulate(np.where(starts, positions, 0))


def distinct(keys: U64) -> U64:
    """The different values, sorted."""
    ordered = np.sort(keys)
    return ordered[run_starts(ordered)]


def pick(records: Records, rows: I64 | Bools) -> Records:
    """Some rows of a structured array, taken as plain numbers: that is many times quicker. Its width is a multiple of 8.

    All of them are the array itself, which nobody may change.
    """
    if rows.dtype == np.bool_ and rows.all():
        return records
    plain = np.ascontiguousarray(records).view(np.uint64).reshape(len(records), records.dtype.itemsize // 8)
    return plain[rows].reshape(-1).view(records.dtype)


def with_flag(flags: Array, wanted: int) -> Bools:
    """True where any of the wanted flags is set."""
    return np.asarray((flags & flags.dtype.type(wanted)) != 0)


def site_counts(site: U64, index: Columns) -> tuple[I64, I64]:
    """How many rows of an index slice, and how many gathered ones, each site has; slices add up."""
    row = find_sites(site, index["site"])
    known = row >= 0
    gathered = known & (index["type"] == RowType.GATHERED) & ~with_flag(index["flags"], Flag.ROBOTS)
    count = len(site)
    return (
        np.bincount(row[known], minlength=count).astype(np.int64),
        np.bincount(row[gathered], minlength=count).astype(np.int64),
    )
