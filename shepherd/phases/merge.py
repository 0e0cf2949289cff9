"""Old rows and contributed URLs become one index again: one row per document, in order.

Two rows are the same document when normalised site and path agree; only robots files and root pages are kept for every site,
because politeness and equivalence need them. First the rows that nobody needs go (`keep_rows`), then what is left is what is
known: so the result does not depend on how the contributions were cut into merges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shepherd.formats.tables import (
    I64,
    INDEX,
    NO_OID,
    SACRED,
    U64,
    Array,
    Bools,
    Columns,
    ContribFlag,
    Flag,
    Reason,
    RowType,
    empty,
)
from shepherd.phases.keys import find_equivalent, find_rows, lower_bound, run_ends, run_starts, sort_order, with_flag

KEPT_ERRORS = int(Flag.INITIAL | Flag.PINNED | Flag.ROBOTS)


@dataclass(frozen=True)
class Paths:
    """Footprints of the two paths that every site has a row of its own for."""

    robots: int
    root: int

    def special(self, path: U64) -> Bools:
        return np.asarray((path == np.uint64(self.robots)) | (path == np.uint64(self.root)))


@dataclass(frozen=True)
class Merged:
    columns: Mapping[str, Array]
    counts: Mapping[str, int]


def merge(index: Columns, contributed: Columns, robots: Columns, paths: Paths, *, state: int, max_retries: int) -> Merged:
    """One partition. `contributed` has norm, path, site, oid, weight, section, flags, in any order.

    `robots` is what `robots_rows` made for the new sites of this partition.
    """
    keep, inherited = keep_rows(index, paths, state=state, max_retries=max_retries)
    kept = dict(index) | inherited if keep.all() else take(dict(index) | inherited, keep)
    urls = distinct_urls(contributed, paths)
    known = find_known(kept, urls, paths)
    updated = kept | update_known(kept, take(urls, known >= 0), known[known >= 0], state=state)
    linked = new_rows(take(urls, known < 0), paths, state=state)
    missing = find_rows(kept["norm"], kept["path"], kept["site"], robots["norm"], robots["path"], robots["site"]) < 0
    added = merge_columns(linked, take(robots, missing & ~_among(robots, linked)))
    counts = {
        "dropped": len(keep) - int(np.count_nonzero(keep)),
        "duplicate contributions": len(contributed["norm"]) - len(urls["norm"]),
        "known": int(np.count_nonzero(known >= 0)),
        "new": len(linked["norm"]),
        "new robots files": len(added["norm"]) - len(linked["norm"]),
    }
    return Merged(merge_columns(updated, added), counts)


def take(columns: Columns, rows: I64 | Bools) -> dict[str, Array]:
    return {name: column[rows] for name, column in columns.items()}


def keep_rows(index: Columns, paths: Paths, *, state: int, max_retries: int) -> tuple[Bools, dict[str, Array]]:
    """False for forgotten rows, dead errors, and all but the best of equivalent rows; and the columns that this changes.

    A row that an operator deleted stays, so that a link does not bring it back. A row that stands for dropped equivalents gets
    the best weight of them, and is initial or pinned if one of them was.
    """
    keep = _alive(index, max_retries)
    rows, starts = _equivalents(index, keep, paths)
    if not len(rows):
        return keep, {}
    first = np.flatnonzero(starts)
    heirs = rows[first]
    wishes = index["flags"][rows] & np.uint16(Flag.INITIAL | Flag.PINNED)
    columns = {name: index[name].copy() for name in ("flags", "weight", "touched")}
    columns["flags"][heirs] |= np.bitwise_or.reduceat(wishes, first)
    columns["weight"][heirs] = np.maximum.reduceat(index["weight"][rows], first)
    columns["touched"][heirs] = state
    keep[rows[~starts]] = False
    return keep, columns


def _alive(index: Columns, max_retries: int) -> Bools:
    forgotten = (index["type"] == RowType.FORGOTTEN) & (index["reason"] != Reason.DELETED)
    dead = (index["type"] == RowType.ERROR) & (index["retry"] >= max_retries) & ~with_flag(index["flags"], KEPT_ERRORS)
    return np.asarray(~forgotten & ~dead)


def _equivalents(index: Columns, keep: Bools, paths: Paths) -> tuple[I64, Bools]:
    """The kept rows that share norm and path with another one, run after run, the best of each run first."""
    rows = np.flatnonzero(keep & ~paths.special(index["path"]))
    starts = run_starts(index["norm"][rows], index["path"][rows])
    rows = rows[~(starts & run_ends(starts))]
    starts = run_starts(index["norm"][rows], index["path"][rows])
    worse = (
        index["site"][rows],
        ~index["weight"][rows],
        ~with_flag(index["flags"][rows], SACRED),
        index["type"][rows] != RowType.GATHERED,
        np.cumsum(starts),
    )
    return rows[np.lexsort(worse)], starts


def distinct_urls(contributed: Columns, paths: Paths) -> dict[str, Array]:
    """One contribution per document, in order: the site of the best one, the best weight, and the wishes of all."""
    own_site = np.where(paths.special(contributed["path"]), contributed["site"], np.uint64(0))
    order = sort_order(contributed["norm"], contributed["path"], own_site)
    starts = run_starts(*(column[order] for column in (contributed["norm"], contributed["path"], own_site)))
    order = _best_of_runs_first(contributed, order, starts)
    ordered = take(contributed, order)
    first = np.flatnonzero(starts)
    best = take(ordered, first)
    if len(first):
        best["weight"] = np.maximum.reduceat(ordered["weight"], first)
        wishes = np.bitwise_or.reduceat(ordered["flags"], first)
        best["flags"] = best["flags"] | wishes & np.uint16(ContribFlag.INSERTED | ContribFlag.PINNED)
    return best


def _best_of_runs_first(contributed: Columns, order: I64, starts: Bools) -> I64:
    """Inserted first, then by weight, https, site, place; most runs are of one row, and only the others are sorted."""
    shared = np.flatnonzero(~(starts & run_ends(starts)))
    rows = order[shared]
    flags = contributed["flags"][rows]
    worse = (
        contributed["oid"][rows],
        contributed["site"][rows],
        ~with_flag(flags, ContribFlag.HTTPS),
        ~contributed["weight"][rows],
        ~with_flag(flags, ContribFlag.INSERTED),
        np.cumsum(starts)[shared],
    )
    sorted_ = order.copy()
    sorted_[shared] = rows[np.lexsort(worse)]
    return sorted_


def find_known(index: Columns, urls: Columns, paths: Paths) -> I64:
    """For each URL the row that stands for it, or -1."""
    known = find_equivalent(index["norm"], index["path"], urls["norm"], urls["path"])
    special = np.flatnonzero(paths.special(urls["path"]))
    known[special] = find_rows(
        index["norm"], index["path"], index["site"], urls["norm"][special], urls["path"][special], urls["site"][special]
    )
    return known


def update_known(index: Columns, urls: Columns, row: I64, *, state: int) -> dict[str, Array]:
    """The columns that contributions to known rows change: better weights of what is not gathered, and what was inserted.

    An error that an operator inserts again is due at once: he may know that its cause is gone.
    """
    columns = {
        name: index[name].copy()
        for name in ("type", "reason", "flags", "weight", "retry", "oid", "digest", "gathered", "touched")
    }
    type_, old_weight = index["type"][row], index["weight"][row]
    inserted = with_flag(urls["flags"], ContribFlag.INSERTED)
    open_ = (type_ != RowType.GATHERED) & (type_ != RowType.FORGOTTEN)
    weight = np.where(inserted | open_, np.maximum(old_weight, urls["weight"]), old_weight)
    wishes = np.where(inserted, np.uint16(Flag.INITIAL), np.uint16(0))
    wishes |= np.where(inserted & with_flag(urls["flags"], ContribFlag.PINNED), np.uint16(Flag.PINNED), np.uint16(0))
    flags = index["flags"][row] | wishes
    forgotten = inserted & (type_ == RowType.FORGOTTEN)
    revived = forgotten | (inserted & (type_ == RowType.ERROR))

    columns["weight"][row] = weight
    columns["flags"][row] = flags
    columns["type"][row[revived]] = RowType.UNGATHERED
    columns["reason"][row[revived]] = Reason.INSERTED
    columns["retry"][row[revived]] = 0
    columns["oid"][row[forgotten]] = urls["oid"][forgotten]  # its old bucket says that it was deleted
    columns["digest"][row[forgotten]] = 0
    columns["gathered"][row[forgotten]] = 0
    changed = (weight != old_weight) | (flags != index["flags"][row]) | revived
    columns["touched"][row[changed]] = state
    return columns


def new_rows(urls: Columns, paths: Paths, *, state: int) -> dict[str, Array]:
    """Index rows of URLs that nobody knew: they point into contrib."""
    columns = empty(INDEX, len(urls["norm"]))
    for name in ("norm", "path", "site", "oid", "weight", "section"):
        columns[name] = urls[name]
    inserted = with_flag(urls["flags"], ContribFlag.INSERTED)
    pinned = inserted & with_flag(urls["flags"], ContribFlag.PINNED)
    columns["type"][:] = RowType.UNGATHERED
    columns["reason"][:] = np.where(inserted, Reason.INSERTED, Reason.LINK)
    for mask, flag in (
        (inserted, Flag.INITIAL),
        (pinned, Flag.PINNED),
        (urls["path"] == np.uint64(paths.root), Flag.EQUIV),
        (urls["path"] == np.uint64(paths.robots), Flag.ROBOTS),
    ):
        columns["flags"] |= np.where(mask, np.uint16(flag), np.uint16(0))
    columns["frequency"][:] = 1
    columns["touched"][:] = state
    return columns


def robots_rows(site: U64, norm: U64, weight: Array, paths: Paths, *, state: int) -> dict[str, Array]:
    """The rows of the robots files of new sites, in order; they have no bucket yet, and no place in contrib."""
    robots = np.full(len(site), paths.robots, np.uint64)
    order = sort_order(norm, robots, site)
    urls = {"norm": norm, "path": robots, "site": site, "weight": weight}
    urls |= {"oid": np.full(len(site), NO_OID, np.uint64), "flags": np.zeros(len(site), np.uint16)}
    urls |= {"section": np.zeros(len(site), np.uint8)}
    return new_rows(take(urls, order), paths, state=state)


def merge_columns(old: Columns, new: Columns) -> dict[str, Array]:
    """Two sorted sets of rows as one; they have no key in common."""
    before = lower_bound(old["norm"], old["path"], old["site"], new["norm"], new["path"], new["site"])
    place = before + np.arange(len(before))
    from_old = np.ones(len(old["norm"]) + len(place), np.bool_)
    from_old[place] = False
    merged = {}
    for name in old:
        column = np.empty(len(from_old), old[name].dtype)
        column[from_old] = old[name]
        column[place] = new[name]
        merged[name] = column
    return merged


def _among(queries: Columns, rows: Columns) -> Bools:
    found = find_rows(rows["norm"], rows["path"], rows["site"], queries["norm"], queries["path"], queries["site"])
    return np.asarray(found >= 0)
