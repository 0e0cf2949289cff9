"""Which group each row of a partition belongs to, and what bars of groups mean for rows.

A group has a number; -1 is none, and tables by number end with an entry for it. Numbers are known by site (servers), by section,
or are all the same; what is needed of every row is spread from these, what is needed of a few is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shepherd.arrays.thresholds import NO_BAR, Members, Window, as_key_and_row
from shepherd.formats.tables import I64, U16, Array, Bools


class Grouping(Protocol):
    def spread(self, table: Array) -> Array:
        """The entry of a table by number, for every row."""

    def numbers_at(self, rows: I64) -> Array:
        """The numbers of some rows."""


@dataclass(frozen=True)
class ByKey:
    """By what each row has: its site or its section."""

    number: Array  # the group of each site or section
    which: Array  # the site or section of each row

    def spread(self, table: Array) -> Array:
        return table.take(self.number).take(self.which)

    def numbers_at(self, rows: I64) -> Array:
        return self.number.take(self.which.take(rows))


@dataclass(frozen=True)
class OneGroup:
    """All rows are of group 0."""

    def spread(self, table: Array) -> Array:
        return table[:1]

    def numbers_at(self, rows: I64) -> Array:
        return np.zeros(len(rows), np.int32)


def members(candidates: Bools, key: U16, first_row: int, grouping: Grouping, window: Window) -> tuple[I64, Members]:
    """The candidates that are of a group and in its window: their rows in the partition, and what a tally needs of them.

    Rows are chosen by weight before anything of them is copied: after the first pass only few are left.
    """
    best, worst = np.append(window.best, np.uint16(0)), np.append(window.worst, np.uint16(65_535))
    if window.all_weights:
        inside = candidates & grouping.spread(best > 0)
    elif np.array_equal(window.best, window.worst):
        inside = candidates & (key == grouping.spread(best))
    else:
        inside = candidates & (key <= grouping.spread(best)) & (key >= grouping.spread(worst))
    rows = np.flatnonzero(inside)
    group = grouping.numbers_at(rows)
    if group.min(initial=0) < 0:
        rows, group = rows.compress(group >= 0), group.compress(group >= 0)
    return rows, Members(rows + first_row, key.take(rows), group)


def behind(candidates: Bools, key: U16, first_row: int, grouping: Grouping, bars: I64, bits: int) -> Bools:
    """Which candidates are not before the bar of their group."""
    bar_key, bar_row = as_key_and_row(np.append(bars, NO_BAR), bits)
    bar = grouping.spread(bar_key)
    result: Bools = candidates & (key < bar)
    ties = np.flatnonzero(candidates & (key == bar))
    result[ties] = ties + first_row >= bar_row.take(grouping.numbers_at(ties))
    return result
