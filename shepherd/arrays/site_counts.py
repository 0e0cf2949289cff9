"""How many rows, and gathered documents, a site has: counted anew, or changed by what a phase did to some rows.

Rows of one site stand together in the index more often than not. So a count first joins neighbours of one site and only then
looks for the site: a search in millions of sites costs more than all the rest.
"""

from __future__ import annotations

import numpy as np

from shepherd.arrays.keys import run_starts
from shepherd.arrays.lookup import Lookup
from shepherd.formats.tables import I64, U64, Bools


def count_rows(site: U64, counts: Bools, marked: Bools) -> tuple[U64, I64, I64]:
    """The sites of the counted rows, sorted; how many rows each has, and how many of these are marked, too."""
    site, marked = site[counts], marked[counts]
    starts = np.flatnonzero(run_starts(site))
    if not len(starts):
        return site, np.zeros(0, np.int64), np.zeros(0, np.int64)
    length = np.diff(np.append(starts, len(site)))
    marks = np.add.reduceat(marked.astype(np.int64), starts)
    order = np.argsort(site[starts], kind="stable")
    site = site[starts][order]
    first = np.flatnonzero(run_starts(site))
    return site[first], np.add.reduceat(length[order], first), np.add.reduceat(marks[order], first)


def changed(site: U64, before: U64, after: U64) -> I64:
    """By how many each of these sites (sorted) has gained, when one row each left the sites `before` and came to `after`."""
    lookup, gained = Lookup(site), np.zeros(len(site), np.int64)
    for sites, step in ((before, -1), (after, 1)):
        row = lookup.find(sites)
        gained += step * np.bincount(row[row >= 0], minlength=len(site))
    return gained
