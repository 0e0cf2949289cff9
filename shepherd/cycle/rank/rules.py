"""Link ranks: what documents are worth by the links that lead to them, and the weights that stand for that.

The rank of a document is the share of time that somebody spends there who follows one of the links of each page, all as likely,
and who begins anew at any document, all as likely, where a page has no links, or by chance. Several rows of one document (root
pages) have one rank: one of them stands for all.

All shares of WHOLE are whole numbers, and so are their sums: neither the order of adding, nor how rows are cut into partitions,
nor the machine changes a bit of the result. What rounding loses goes to all documents alike with the next turn.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from shepherd.arrays.keys import equal_rows, lower_bound, run_starts, with_flag
from shepherd.arrays.representatives import representatives
from shepherd.arrays.rows import IN_USE
from shepherd.formats.tables import I64, U16, U32, U64, Array, Bools, Columns, Flag

READ: Final = ("norm", "path", "type", "flags")
WHOLE: Final = 1 << 62  # all ranks together
DAMPING_BITS: Final = 30
GATHER: Final = 1 << 18  # links at a time: what is made of them stays in the cache
DOUBLE: Final = 2_048  # what twice the rank adds to a weight
INSERTED: Final = 4  # doublings above the mean that a rank has which weighs as much as what an operator inserts
LEAST: Final = 1  # weight
MOST: Final = 65_535
PROTECTED: Final = int(Flag.INITIAL | Flag.PINNED)  # rows that lose no weight
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


# --- documents and links ----------------------------------------------------------------------------------------


def standing(index: Columns) -> I64:
    """For each row of a partition the one that stands for its document; -1 for rows that have no rank.

    Robots files have none, nor have rows that take no feedback. A partition holds whole normalised sites.
    """
    ranked = np.isin(index["type"], IN_USE) & ~with_flag(index["flags"], Flag.ROBOTS)
    rows = np.flatnonzero(ranked)
    standing_row = np.full(len(ranked), -1, np.int64)
    standing_row[rows] = representatives(index, rows)
    return standing_row


class Documents:
    """The documents of a partition, by normalised site and path."""

    def __init__(self, norm: U64, path: U64, stands: Bools) -> None:
        """`stands` are the rows that stand for a document."""
        self._rows = np.flatnonzero(stands)
        self._norm, self._path = norm[self._rows], path[self._rows]
        self._same = np.zeros(len(self._rows), np.uint64)  # norm and path say it all

    def find(self, norm: U64, path: U64) -> I64:
        """For each link the row that stands for its document, or -1."""
        place = lower_bound(self._norm, self._path, self._same, norm, path, np.zeros(len(norm), np.uint64))
        row = equal_rows(place, (self._norm, norm), (self._path, path))
        has_row = row >= 0
        row[has_row] = self._rows[row[has_row]]
        return row


def distinct_links(source: U32, target: I64, start: int) -> U64:
    """Links as numbers, the target in the upper half, in order, each once; without those of a page to itself or to nowhere (-1).

    Sources are rows of the index, targets of the partition that begins at `start`.
    """
    there = np.flatnonzero((target >= 0) & (target + start != source))
    links = target[there].astype(np.uint64) << _HALF | source[there]
    links.sort()
    return links[run_starts(links)]


def sources_of(links: U64) -> U32:
    return (links & _LOW).astype(np.uint32)


def targets_of(links: U64) -> I64:
    return (links >> _HALF).astype(np.int64)


# --- one turn ---------------------------------------------------------------------------------------------------


def damping_of(share: float) -> int:
    """The part of a rank that is passed on, as a fraction of 2 to the power of DAMPING_BITS."""
    return round(share * (1 << DAMPING_BITS))


def damped(flow: U64, damping: int) -> U64:
    """The damped part, rounded down, without passing 64 bits on the way."""
    low, factor, bits = np.uint64((1 << DAMPING_BITS) - 1), np.uint64(damping), np.uint64(DAMPING_BITS)
    part: U64 = (flow >> bits) * factor + ((flow & low) * factor >> bits)
    return part


def start_over(passed: int, documents: int, damping: int) -> int:
    """What every document gets of those who begin anew, where `passed` of WHOLE went along links."""
    return (WHOLE - (passed * damping >> DAMPING_BITS)) // documents


def flow_of(share: U64, source: U32, arrivals: U32, step: int = GATHER) -> U64:
    """What the links of some rows bring them: `source` has the pages that link to each, `arrivals` how many of them are whose.

    `share` is of all rows what each of their links passes on.
    """
    flow, ends = np.zeros(len(arrivals), np.uint64), np.cumsum(arrivals, dtype=np.int64)
    linked = np.flatnonzero(arrivals)
    ends = ends[linked]
    begins = ends - arrivals[linked]
    for first in range(0, len(source), step):
        last = min(first + step, len(source))
        low, high = np.searchsorted(ends, first, side="right"), np.searchsorted(begins, last)
        parts = np.add.reduceat(share.take(source[first:last]), np.maximum(begins[low:high] - first, 0))
        flow[linked[low:high]] += parts  # a page that very many link to is met again in the next part
    return flow


def shares(flow: U64, stands: Bools, links: U16, base: int, damping: int) -> U64:
    """What each link of some rows passes on; of a document without links, its whole rank."""
    rank = (damped(flow, damping) + np.uint64(base)) * stands
    return np.asarray(rank // np.maximum(links, 1))


def ranks(share: U64, links: U16) -> U64:
    """The ranks that make these shares, but for what rounding took."""
    return np.asarray(share * np.maximum(links, 1).astype(np.uint64))


def passed_on(share: U64, links: U16) -> int:
    """How much of WHOLE goes along the links of some rows."""
    return int((share * links).sum())


def moved(share: U64, before: U64, links: U16) -> int:
    """How much of WHOLE has changed its place with a turn; what has moved is counted where it was and where it is."""
    return int(ranks(np.maximum(share, before) - np.minimum(share, before), links).sum())


# --- weights ----------------------------------------------------------------------------------------------------


@cache
def _steps() -> npt.NDArray[np.float64]:
    """Where the steps of one doubling begin, from 0.5 on; by Decimal, whose digits are the same everywhere."""
    return np.array([float(Decimal(2) ** (Decimal(step) / DOUBLE - 1)) for step in range(DOUBLE)])


def levels(rank: U64) -> I64:
    """The logarithms of ranks, in steps of which a doubling has DOUBLE; ranks are not 0."""
    fraction, exponent = np.frexp(rank.astype(np.float64))
    return np.asarray(exponent.astype(np.int64) * DOUBLE + np.searchsorted(_steps(), fraction, side="right"))


def weights(rank: U64, documents: int, insert_weight: int) -> U16:
    """Ranks on the scale of weights: twice the rank is DOUBLE more, and what has 2 to the power of INSERTED times the mean weighs
    as much as what an operator inserts.
    """
    mean = levels(np.array([WHOLE // documents], np.uint64))[0]
    weight = levels(np.maximum(rank, np.uint64(1))) - mean + insert_weight - INSERTED * DOUBLE
    return np.asarray(np.clip(weight, LEAST, MOST).astype(np.uint16))


def with_protected(weight: U16, before: Array, flags: Array) -> U16:
    """The new weights; what an operator has inserted or pinned keeps at least what it has."""
    return np.where(with_flag(flags, PROTECTED), np.maximum(weight, before), weight).astype(np.uint16)
