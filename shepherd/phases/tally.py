"""How many rows each site has, counted from rows that stand in the order of the index.

Rows of one site stand mostly side by side there, so runs are counted first and only runs are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.formats.tables import I64, U64, Columns, Flag, RowType
from shepherd.phases.keys import run_starts, with_flag


@dataclass(frozen=True)
class Tally:
    """Distinct sites, sorted, each with its norm, its rows, those of them that are gathered pages, and its robots files."""

    site: U64
    norm: U64
    documents: I64
    gathered: I64
    robots: I64

    def __len__(self) -> int:
        return len(self.site)


def tally(rows: Columns) -> Tally:
    """Of rows with norm, site, type and flags."""
    robots = with_flag(rows["flags"], Flag.ROBOTS)
    gathered = (rows["type"] == RowType.GATHERED) & ~robots
    first = np.flatnonzero(run_starts(rows["site"]))
    if not len(first):
        none = np.zeros(0, np.int64)
        return Tally(rows["site"], rows["norm"], none, none, none)
    counts = (
        np.diff(np.append(first, len(rows["site"]))),
        np.add.reduceat(gathered.astype(np.int64), first),
        np.add.reduceat(robots.astype(np.int64), first),
    )
    return _summed(rows["site"][first], rows["norm"][first], *counts)


def join(some: Tally, others: Tally) -> Tally:
    """Two tallies as one."""
    names = ("site", "norm", "documents", "gathered", "robots")
    return _summed(*(np.concatenate([getattr(some, name), getattr(others, name)]) for name in names))


def _summed(site: U64, norm: U64, *counts: I64) -> Tally:
    order = np.argsort(site, kind="stable")
    start = np.flatnonzero(run_starts(site[order]))
    if not len(start):
        return Tally(site, norm, *counts)
    return Tally(site[order[start]], norm[order[start]], *(np.add.reduceat(count[order], start) for count in counts))
