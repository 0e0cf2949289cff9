"""What became of the documents between two states: two slices of the index, both sorted by footprint, laid side by side.

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


class What(IntFlag):
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
    before, after = _living(old), _living(new)
    some, others = _some(old, before), _some(new, after)
    match = _matched(some, others)
    left = np.flatnonzero(match < 0)
    kept = np.zeros(len(before), np.bool_)
    kept[match[match >= 0]] = True
    gone = np.flatnonzero(~kept)
    moved = _moved(_some(some, gone), _some(others, left), paths)
    match[left] = np.append(gone, NO_ROW)[moved]  # the last is for what is really new
    kept[match[left[moved >= 0]]] = True
    lost = np.flatnonzero(~kept)

    met = np.flatnonzero(match >= 0)
    changes = _changes(_some(some, match[met]), _some(others, met))
    told, fresh = np.flatnonzero(changes), np.flatnonzero(match < 0)
    nothing = np.full(max(len(lost), len(fresh)), NO_ROW, np.int64)
    rows_old = np.concatenate([before[match[met[told]]], nothing[: len(fresh)], before[lost]])
    rows_new = np.concatenate([after[met[told]], after[fresh], nothing[: len(lost)]])
    what = np.concatenate(
        [changes[told], np.full(len(fresh), What.ADDED, np.uint8), np.full(len(lost), What.FORGOTTEN, np.uint8)]
    )
    order = _in_order(old, new, rows_old, rows_new)
    return Differences(rows_old[order], rows_new[order], what[order])


def _living(index: Columns) -> I64:
    return np.flatnonzero(index["type"] != np.uint8(RowType.FORGOTTEN))


def _some(index: Columns, rows: I64) -> Columns:
    return {name: index[name].take(rows) for name in READ}


def _matched(old: Columns, new: Columns) -> I64:
    """For each new row the old one of the same footprint and site, or NO_ROW."""
    keys = ("norm", "path", "site")
    if len(old["norm"]) == len(new["norm"]) and all(np.array_equal(old[name], new[name]) for name in keys):
        return np.arange(len(new["norm"]), dtype=np.int64)  # as it is between most states
    return find_rows(*(old[name] for name in keys), *(new[name] for name in keys))


def _moved(gone: Columns, left: Columns, paths: Paths) -> I64:
    """For each row that is left the one among those gone that is the same document, or NO_ROW; several are taken in order."""
    found = np.full(len(left["norm"]), NO_ROW, np.int64)
    from_, to = (np.flatnonzero(~paths.special(some["path"])) for some in (gone, left))
    keys = []
    for some, rows in ((gone, from_), (left, to)):
        norm, path = some["norm"].take(rows), some["path"].take(rows)
        keys += [norm, path, run_ranks(run_starts(norm, path)).astype(np.uint64)]
    found[to] = np.append(from_, NO_ROW)[find_rows(*keys)]
    return found


def _changes(old: Columns, new: Columns) -> U8:
    """What differs between rows of the same documents, as What."""
    content, checked = old["digest"] != new["digest"], old["checked"] != new["checked"]
    pairs = (
        (What.CHANGED, content),
        (What.MOVED, old["site"] != new["site"]),
        (What.REFRESHED, checked & ~content),
        (What.TYPE, old["type"] != new["type"]),
    )
    result = np.zeros(len(content), np.uint8)
    for what, rows in pairs:
        result |= rows.view(np.uint8) * np.uint8(what)
    return result


def _in_order(old: Columns, new: Columns, rows_old: I64, rows_new: I64) -> I64:
    """By the footprint that a document has now, or had."""
    known = rows_new >= 0
    keys = []
    for name in ("norm", "path", "site"):
        key = np.zeros(len(known), np.uint64)
        key[known], key[~known] = new[name].take(rows_new[known]), old[name].take(rows_old[~known])
        keys.append(key)
    return sort_order(keys[0], keys[1], keys[2])
