"""What happened to the documents between two states: two slices of the index, both sorted by footprint, laid side by side.

A forgotten row is no document: so one that is forgotten counts as gone, and one that comes back as new. A document is found again
by (norm, path, site), else by (norm, path) alone: then it has moved within its class of sites. Robots files and root pages are
kept for every site, so these never move. The slices must begin and end with the same norms.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Final

import numpy as np

from shepherd.arrays.distinct_urls import Paths
from shepherd.arrays.keys import find_rows, run_ranks, run_starts, sort_order
from shepherd.formats.tables import I64, U8, Columns, RowType

READ: Final = ("norm", "path", "site", "type", "digest", "checked")
NO_ROW: Final = -1


class Difference(IntFlag):
    """What happened to a document; the first two alone, the others also together."""

    ADDED = 1
    FORGOTTEN = 2
    CHANGED = 4  # its content: another digest, or a first one
    MOVED = 8  # to an equivalent site
    REFRESHED = 16  # checked again, and its content is the same
    TYPE = 32  # gathered, an error, asleep: another than before


@dataclass(frozen=True)
class Differences:
    """A line for each document that differs, in the order of the index."""

    old: I64  # its row in the old slice, or NO_ROW
    new: I64
    what: U8

    def __len__(self) -> int:
        return len(self.what)


def diff(old: Columns, new: Columns, paths: Paths) -> Differences:
    """Both with the columns READ."""
    before, after = _documents(old), _documents(new)
    some, others = _some(old, before), _some(new, after)
    match = _matched(some, others)
    unmatched = np.flatnonzero(match < 0)
    is_matched = np.zeros(len(before), np.bool_)
    is_matched[match[match >= 0]] = True
    candidates = np.flatnonzero(~is_matched)
    moved = _moved(_some(some, candidates), _some(others, unmatched), paths)
    match[unmatched] = np.append(candidates, NO_ROW)[moved]  # the last is for what is really new
    is_matched[match[unmatched[moved >= 0]]] = True
    forgotten = np.flatnonzero(~is_matched)

    pairs = np.flatnonzero(match >= 0)
    changes = _changes(_some(some, match[pairs]), _some(others, pairs))
    changed, added = np.flatnonzero(changes), np.flatnonzero(match < 0)
    nothing = np.full(max(len(forgotten), len(added)), NO_ROW, np.int64)
    rows_old = np.concatenate([before[match[pairs[changed]]], nothing[: len(added)], before[forgotten]])
    rows_new = np.concatenate([after[pairs[changed]], after[added], nothing[: len(forgotten)]])
    what = np.concatenate(
        [
            changes[changed],
            np.full(len(added), Difference.ADDED, np.uint8),
            np.full(len(forgotten), Difference.FORGOTTEN, np.uint8),
        ]
    )
    order = _in_order(old, new, rows_old, rows_new)
    return Differences(rows_old[order], rows_new[order], what[order])


def _documents(index: Columns) -> I64:
    return np.flatnonzero(index["type"] != np.uint8(RowType.FORGOTTEN))


def _some(index: Columns, rows: I64) -> Columns:
    return {name: index[name].take(rows) for name in READ}


def _matched(old: Columns, new: Columns) -> I64:
    """For each new row the old one of the same footprint and site, or NO_ROW."""
    keys = ("norm", "path", "site")
    if len(old["norm"]) == len(new["norm"]) and all(np.array_equal(old[name], new[name]) for name in keys):
        return np.arange(len(new["norm"]), dtype=np.int64)  # as it is between most states
    return find_rows(*(old[name] for name in keys), *(new[name] for name in keys))


def _moved(old: Columns, new: Columns, paths: Paths) -> I64:
    """For each row that is left the one among those gone that is the same document, or NO_ROW; several are taken in order."""
    match = np.full(len(new["norm"]), NO_ROW, np.int64)
    movable_old, movable_new = (np.flatnonzero(~paths.special(some["path"])) for some in (old, new))
    keys = []
    for some, rows in ((old, movable_old), (new, movable_new)):
        norm, path = some["norm"].take(rows), some["path"].take(rows)
        keys += [norm, path, run_ranks(run_starts(norm, path)).astype(np.uint64)]
    match[movable_new] = np.append(movable_old, NO_ROW)[find_rows(*keys)]
    return match


def _changes(old: Columns, new: Columns) -> U8:
    """What differs between rows of the same documents, as Difference."""
    content, checked = old["digest"] != new["digest"], old["checked"] != new["checked"]
    pairs = (
        (Difference.CHANGED, content),
        (Difference.MOVED, old["site"] != new["site"]),
        (Difference.REFRESHED, checked & ~content),
        (Difference.TYPE, old["type"] != new["type"]),
    )
    result = np.zeros(len(content), np.uint8)
    for what, rows in pairs:
        result |= rows.view(np.uint8) * np.uint8(what)
    return result


def _in_order(old: Columns, new: Columns, rows_old: I64, rows_new: I64) -> I64:
    """By the footprint that a document has now, or had."""
    is_new = rows_new >= 0
    keys = []
    for name in ("norm", "path", "site"):
        key = np.zeros(len(is_new), np.uint64)
        key[is_new], key[~is_new] = new[name].take(rows_new[is_new]), old[name].take(rows_old[~is_new])
        keys.append(key)
    return sort_order(keys[0], keys[1], keys[2])
