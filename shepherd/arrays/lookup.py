"""Finding footprints in a large sorted column: where each leading part begins is written down once, and little is left to bisect.

Footprints are evenly spread, so a part that begins with the same bits has few of them, and a query looks at a few neighbouring
numbers instead of at twenty all over a column that no cache can hold. All queries make each step together, without a branch.
Any sorted column gives the right answer; one that is unevenly spread only takes more steps.
"""

from __future__ import annotations

import numpy as np

from shepherd.formats.tables import I64, U64, Array

PART_BITS = 4  # so many keys in a part: fewer make a table that is too large for the cache, more make more steps
LEADING_BITS = 16
REST_BITS = np.uint64(64 - LEADING_BITS)


class Lookup:
    """Of a sorted column of distinct keys."""

    def __init__(self, keys: U64) -> None:
        bits = max(len(keys).bit_length() - PART_BITS, 1)
        self._keys, self._shift = keys, np.uint64(64 - bits)
        self._starts = np.searchsorted(keys, np.arange(1 << bits, dtype=np.uint64) << self._shift).astype(np.int64)
        self._widest = int(np.diff(self._starts, append=len(keys)).max())

    def find(self, queries: U64) -> I64:
        """For each query its row, or -1."""
        if not len(self._keys):
            return np.full(len(queries), -1, np.int64)
        row, width = self._starts.take((queries >> self._shift).astype(np.int64)), self._widest
        while width:  # it is at `row`, or up to `width` rows behind it
            half = (width + 1) // 2
            row += (self._keys.take(row + (half - 1), mode="clip") < queries) * half
            width -= half
        row_or_minus_1: I64 = (row + 1) * (self._keys.take(row, mode="clip") == queries) - 1
        return row_or_minus_1


def ranges_of(splits: U64, keys: U64) -> Array:
    """For each key how many of the sorted `splits` are not above it. For nearly all keys their leading bits decide."""
    leading, rest = np.arange(1 << LEADING_BITS, dtype=np.uint64) << REST_BITS, (np.uint64(1) << REST_BITS) - np.uint64(1)
    narrow = np.min_scalar_type(len(splits))
    least = np.searchsorted(splits, leading, side="right").astype(narrow)
    most = np.searchsorted(splits, leading | rest, side="right").astype(narrow)
    upper = (keys >> REST_BITS).astype(np.int64)
    range_ = least.take(upper)
    unsure = np.flatnonzero((least != most).take(upper))
    range_[unsure] = np.searchsorted(splits, keys.take(unsure), side="right")
    return range_
