"""Looking up footprints in sorted columns, for all queries at once.

An index slice is sorted by (norm, path, site). A lookup bisects: first on norm, then on path and site inside the run of that
norm, every query at the same step; so the cost is queries times log2 of the longest run. Where there are many queries, one
number for each row that has most of norm and path in it is worth making: numpy bisects in it without coming back to Python.
All keys are uint64: a mix with a signed type would become float64 and lose bits.
"""

from __future__ import annotations

import numpy as np

from shepherd.formats.tables import I64, U64, Array, Bools, Columns, Flag, Records, RowType

NOT_FOUND = -1
ROWS_FOR_A_QUERY = 32  # a number for each of so many rows costs less than one query that bisects step by step


def lower_bound(norm: U64, path: U64, site: U64, qnorm: U64, qpath: U64, qsite: U64) -> I64:
    """For each query the first row that is not before it."""
    many = len(qnorm) * ROWS_FOR_A_QUERY > len(norm) > 0
    low, high = _by_one_number(norm, path, qnorm, qpath) if many else _by_norm(norm, qnorm)
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        middle_path, query_path = path[middle], qpath[open_]
        before = middle_path < query_path
        tied = np.flatnonzero(middle_path == query_path)
        before[tied] = site[middle[tied]] < qsite[open_[tied]]
        low[open_[before]] = middle[before] + 1
        after = ~before
        high[open_[after]] = middle[after]
        open_ = open_[low[open_] < high[open_]]
    return low


def _by_norm(norm: U64, qnorm: U64) -> tuple[I64, I64]:
    """Where the rows of each query's norm begin and end."""
    return np.searchsorted(norm, qnorm, side="left").astype(np.int64), np.searchsorted(norm, qnorm, side="right").astype(np.int64)


def _by_one_number(norm: U64, path: U64, qnorm: U64, qpath: U64) -> tuple[I64, I64]:
    """Where the rows begin and end that have each query's norm and as many upper bits of its path as fit behind its rank.

    Norms of rows rank 1, 3, 5 ...; a norm that no row has gets the even number between its neighbours.
    """
    starts = run_starts(norm)
    norms = norm[starts]
    bits = np.uint64((2 * len(norms)).bit_length())
    rank = np.cumsum(starts, dtype=np.uint64) * np.uint64(2) - np.uint64(1)
    rows = rank << np.uint64(64) - bits | path >> bits
    norm_rank = np.searchsorted(norms, qnorm)
    qrank = 2 * norm_rank + (norms[np.minimum(norm_rank, len(norms) - 1)] == qnorm)
    queries = qrank.astype(np.uint64) << np.uint64(64) - bits | qpath >> bits
    low = np.searchsorted(rows, queries).astype(np.int64)
    high, same_bits = low.copy(), np.flatnonzero(rows[np.minimum(low, len(rows) - 1)] == queries)
    high[same_bits] = np.searchsorted(rows, queries[same_bits], side="right")
    return low, high


def find_rows(norm: U64, path: U64, site: U64, qnorm: U64, qpath: U64, qsite: U64) -> I64:
    """For each query the row equal to it in all three, or -1."""
    row = lower_bound(norm, path, site, qnorm, qpath, qsite)
    return equal_rows(row, (norm, qnorm), (path, qpath), (site, qsite))


def find_sites(site: U64, queries: U64) -> I64:
    """For each query its row in a sorted column of distinct keys, or -1."""
    return equal_rows(np.searchsorted(site, queries).astype(np.int64), (site, queries))


def find_servers(qkey: U64, queries: U64) -> I64:
    """The same for queue keys in any order. Most are IPv4 addresses: sorted by their upper halves, they find nearly all that a
    search needs in the cache, as if they were sorted, at a sixth of the price.
    """
    order = np.argsort((queries >> np.uint64(16)).astype(np.uint16), kind="stable")
    row = np.empty(len(queries), np.int64)
    row[order] = find_sites(qkey, queries.take(order))
    return row


def equal_rows(row: I64, *pairs: tuple[U64, U64]) -> I64:
    """Of the rows before which queries would stand, by these pairs of column and queries: those that equal them, or -1."""
    last = len(pairs[0][0]) - 1
    if last < 0:
        return np.full(len(row), NOT_FOUND, np.int64)
    place = np.minimum(row, last)  # what belongs behind the last row is not equal to it
    equal = np.ones(len(row), np.bool_)
    for keys, queries in pairs:
        equal &= keys.take(place) == queries
    return (row + 1) * equal - 1  # the row or -1: half the price of np.where


def sort_order(norm: U64, path: U64, *more: Array) -> I64:
    """The permutation that sorts by norm, path and what follows, stable.

    One number with the upper halves of norm and path is sorted first, which takes a third of the time of sorting by one column
    after the other. It leaves few rows in doubt, and only these are sorted by all columns.
    """
    if not len(norm):
        return np.zeros(0, np.int64)
    least = norm.min()
    half = (norm - least) >> np.uint64(max(0, int(norm.max() - least).bit_length() - 32))
    number = half << np.uint64(32) | path >> np.uint64(32)
    order = np.argsort(number)
    starts = _told_apart(number[order], norm[order])
    tied = np.flatnonzero(~(starts & run_ends(starts)))
    rows = order[tied]
    worse = (rows, *(column[rows] for column in reversed((norm, path, *more))), np.cumsum(starts)[tied])
    order[tied] = rows[np.lexsort(worse)]
    return order


def _told_apart(number: U64, norm: U64) -> Bools:
    """True where a row of this order is behind the one before it for certain, so where what must be sorted again begins.

    Two norms with the same upper half stand mixed: all rows of that half are sorted again.
    """
    starts, half = run_starts(number), run_starts(number >> np.uint64(32))
    mixed = run_starts(norm) & ~half
    if mixed.any():
        of_half = np.cumsum(half)
        again = np.zeros(of_half[-1] + 1, np.bool_)
        again[of_half[mixed]] = True
        starts &= half | ~again[of_half]
    return starts


def stable_order(keys: U64) -> I64:
    """The permutation that sorts, equal keys in their order.

    Numbers are sorted much faster than their places are, so place and key are sorted as one number. That has room for the
    leading bits of the key alone: if keys differ only in what is lost, a proper sort must do it.
    """
    low = np.uint64((1 << max(len(keys) - 1, 0).bit_length()) - 1)
    packed = keys & ~low | np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    order = (packed & low).astype(np.int64)
    ordered = keys.take(order)
    return np.argsort(keys, kind="stable") if (ordered[1:] < ordered[:-1]).any() else order


def by_key(key: Array) -> I64:
    """The permutation that sorts 32-bit keys, stable. Numpy sorts 16 bits by radix: two of these beat one sort of the whole."""
    order = np.argsort(key.astype(np.uint16), kind="stable")
    high = (key >> key.dtype.type(16)).astype(np.uint16)
    return order.take(np.argsort(high.take(order), kind="stable")) if high.any() else order


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
    return positions - np.maximum.accumulate(positions * starts)


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
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    return plain.take(rows, axis=0).reshape(-1).view(records.dtype)


def with_flag(flags: Array, mask: int) -> Bools:
    """True where any of the wanted flags is set."""
    return np.asarray((flags & flags.dtype.type(mask)) != 0)


def site_counts(site: U64, index: Columns) -> tuple[I64, I64]:
    """How many rows of an index slice, and how many gathered ones, each site has; slices add up."""
    row = find_sites(site, index["site"])
    has_site = row >= 0
    gathered = has_site & (index["type"] == RowType.GATHERED) & ~with_flag(index["flags"], Flag.ROBOTS)
    count = len(site)
    return (
        np.bincount(row[has_site], minlength=count).astype(np.int64),
        np.bincount(row[gathered], minlength=count).astype(np.int64),
    )
