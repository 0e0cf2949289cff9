"""How many rows each site has, counted from rows that stand in the order of the index.

Rows of one site stand mostly side by side there, so runs are counted first and only runs are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import run_ends, run_starts, with_flag
from shepherd.formats.tables import I64, U64, Bools, Columns, Flag, RowType


@dataclass(frozen=True)
class SiteTally:
    """Distinct sites, sorted, each with its norm, its rows, those of them that are gathered pages, and its robots files."""

    site: U64
    norm: U64
    documents: I64
    gathered: I64
    robots: I64

    def __len__(self) -> int:
        return len(self.site)


def tally(*tables: Columns) -> SiteTally:
    """Of all rows of some tables with norm, site, type and flags."""
    runs = [_runs(rows) for rows in tables]
    site, norm, documents, gathered, robots = (np.concatenate(column) for column in zip(*runs, strict=True))
    order = np.argsort(site)  # sums do not depend on the order of what is summed, so it need not be stable
    start = np.flatnonzero(run_starts(site[order]))
    if not len(start):
        return SiteTally(site, norm, documents, gathered, robots)
    counts = (np.add.reduceat(count[order], start) for count in (documents, gathered, robots))
    return SiteTally(site[order[start]], norm[order[start]], *counts)


def _runs(rows: Columns) -> tuple[U64, U64, I64, I64, I64]:
    """Site, norm and the three counts of each run of rows of one site."""
    robots = with_flag(rows["flags"], Flag.ROBOTS)
    gathered = (rows["type"] == np.uint8(RowType.GATHERED)) & ~robots
    starts = run_starts(rows["site"])
    first, last = np.flatnonzero(starts), np.flatnonzero(run_ends(starts))
    return rows["site"][first], rows["norm"][first], last - first + 1, _within(gathered, last), _within(robots, last)


def _within(mask: Bools, last: I64) -> I64:
    """How many of a mask each run has, by the rows that runs end with."""
    so_far = np.cumsum(mask, dtype=np.int32)[last]  # a partition has fewer rows; in 64 bits this takes three times as long
    return np.diff(so_far, prepend=0).astype(np.int64)
