"""One row per document: of rows that are equivalent the best one stays; and rows set between others, in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.distinct_urls import Paths
from shepherd.arrays.keys import find_sites, run_ends, run_starts, with_flag
from shepherd.formats.tables import I64, SACRED, U64, Array, Bools, Columns, Flag, Reason, RowType


@dataclass(frozen=True)
class DocumentRows:
    """The rows that stay; and of those that inherit from equivalents which go: which they are, their new flags and weights."""

    row: I64
    heir: I64
    flags: Array
    weight: Array


def drop_equivalents(index: Columns, keep: Bools, paths: Paths, firsts: U64) -> DocumentRows:
    """Of the rows in a mask, the best of each document, and what it inherits from those that go.

    `firsts` are the sites that stand for their class. A row of one is better than others, but not than what is gathered.
    """
    rows, starts = _equivalents(index, keep, paths, firsts)
    first = np.flatnonzero(starts)
    heirs = rows[first]
    keep = keep.copy()
    keep[rows[~starts]] = False
    if not len(rows):
        return DocumentRows(np.flatnonzero(keep), heirs, index["flags"][heirs], index["weight"][heirs])
    wishes = index["flags"][rows] & np.uint16(Flag.INITIAL | Flag.PINNED)
    flags = index["flags"][heirs] | np.bitwise_or.reduceat(wishes, first)
    order = np.argsort(heirs)
    weights = np.maximum.reduceat(index["weight"][rows], first)
    return DocumentRows(np.flatnonzero(keep), heirs[order], flags[order], weights[order])


def _equivalents(index: Columns, keep: Bools, paths: Paths, firsts: U64) -> tuple[I64, Bools]:
    """The kept rows that share norm and path with another one, run after run, the best of each run first."""
    starts = run_starts(index["norm"], index["path"])
    rows = np.flatnonzero(~(starts & run_ends(starts)))  # few, of which some do not count
    rows = rows[keep[rows] & ~paths.special(index["path"][rows])]
    starts = run_starts(index["norm"][rows], index["path"][rows])
    shared = ~(starts & run_ends(starts))
    rows, starts = rows[shared], starts[shared]
    worse = (
        index["site"][rows],
        ~index["weight"][rows],
        ~with_flag(index["flags"][rows], SACRED),
        find_sites(firsts, index["site"][rows]) < 0,
        index["type"][rows] != RowType.GATHERED,
        _rank_of_request(index, rows),
        np.cumsum(starts),
    )
    return rows[np.lexsort(worse)], starts


def _rank_of_request(index: Columns, rows: I64) -> Array:
    """0 for what an operator purged, 1 for what he deleted, 2 for all else: an operator decides for the document."""
    forgotten, reason = index["type"][rows] == RowType.FORGOTTEN, index["reason"][rows]
    return np.where(forgotten & (reason == Reason.PURGED), 0, np.where(forgotten & (reason == Reason.DELETED), 1, 2))


def interleave(old: Columns, rows: I64, new: Columns, before: I64) -> dict[str, Array]:
    """Some rows of `old`, with new ones set between them: `before[i]` of them stand before new row i."""
    place = before + np.arange(len(before))
    from_old = np.ones(len(rows) + len(place), np.bool_)
    from_old[place] = False
    source = np.zeros(len(from_old), np.int64)
    source[from_old] = rows
    merged = {}
    for name in old:
        column = old[name].take(source, mode="clip") if len(old[name]) else np.empty(len(source), old[name].dtype)
        column[place] = new[name]
        merged[name] = column
    return merged
