"""How many rows there are of each type, reason, status, section, weight and age: what `shep stats` shows.

Robots files are counted by themselves. They are few, so everything is counted first and they are taken out of it: choosing the
others row by row would cost more than all the counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.formats.tables import I64, Array, Columns, Flag

WEIGHT_SHIFT: Final = 12  # sixteen bins of 4,096
COLUMNS: Final = ("type", "reason", "status", "section", "flags", "weight", "checked", "size")


@dataclass(frozen=True)
class Counts:
    """By value of the column; `weights` by bin; `ages` as `count` says."""

    rows: int
    robots: int
    stored_bytes: int
    types: I64
    reasons: I64
    statuses: I64
    sections: I64
    weights: I64
    ages: I64

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


def none(edges: Sequence[int]) -> Counts:
    """Of no rows."""
    return count({name: np.zeros(0, np.uint32) for name in COLUMNS}, 0, edges)


def count(columns: Columns, now: int, edges: Sequence[int]) -> Counts:
    """Count rows, of which these are the COLUMNS.

    `edges` are ages in seconds, rising. `ages[n]` are those last checked less than edges[n] before now, but not less than
    edges[n - 1]; behind the last edge stand the older ones, and last those that were never checked.
    """
    robots = np.flatnonzero(columns["flags"] & np.uint16(Flag.ROBOTS))
    pages = _by_value(columns, now, edges)
    if len(robots):
        others = _by_value({name: columns[name].take(robots) for name in COLUMNS}, now, edges)
        pages = [every - other for every, other in zip(pages, others, strict=True)]
    return Counts(len(columns["type"]), len(robots), int(columns["size"].sum(dtype=np.int64)), *pages)


def _by_value(columns: Columns, now: int, edges: Sequence[int]) -> list[I64]:
    """The six arrays of Counts."""
    whole = (("type", 8), ("reason", 8), ("status", 16), ("section", 8))
    by_value = [np.bincount(columns[name], minlength=1 << bits) for name, bits in whole]
    weights = np.bincount(columns["weight"] >> WEIGHT_SHIFT, minlength=1 << 16 - WEIGHT_SHIFT)
    return [*by_value, weights, _ages(columns["checked"], now, edges)]


def _ages(checked: Array, now: int, edges: Sequence[int]) -> I64:
    """A few comparisons of whole columns: a tenth of the price of finding each row's bin."""
    newer = [np.count_nonzero(checked > np.uint32(min(max(now - edge, 0), 2**32 - 1))) for edge in edges]
    ever = np.count_nonzero(checked)
    so_far: I64 = np.array([0, *newer, ever, len(checked)], np.int64)
    return so_far[1:] - so_far[:-1]
