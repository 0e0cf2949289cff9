"""Contributed URLs in a merge: one per document, which of them are known, and the rows of those that are not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import equal_rows, find_sites, lower_bound, run_ends, run_starts, sort_order, with_flag
from shepherd.formats.tables import I64, INDEX, NO_OID, U64, Array, Bools, Columns, ContribFlag, Flag, Reason, RowType, empty
from shepherd.urls import Footprints


@dataclass(frozen=True)
class Paths:
    """Footprints of the two paths that every site has a row of its own for."""

    robots: int
    root: int

    @classmethod
    def of(cls, prints: Footprints) -> Paths:
        return cls(prints.robots, prints.root)

    def special(self, path: U64) -> Bools:
        return np.asarray((path == np.uint64(self.robots)) | (path == np.uint64(self.root)))


def take(columns: Columns, rows: I64 | Bools) -> dict[str, Array]:
    places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    return {name: column.take(places) for name, column in columns.items()}


def distinct_urls(contributed: Columns, paths: Paths, firsts: U64) -> dict[str, Array]:
    """One contribution per document, in order: the site of the best one, the best weight, the newest time, all wishes."""
    own_site = np.where(paths.special(contributed["path"]), contributed["site"], np.uint64(0))
    order = sort_order(contributed["norm"], contributed["path"], own_site)
    starts = run_starts(*(column.take(order) for column in (contributed["norm"], contributed["path"], own_site)))
    order = _best_of_runs_first(contributed, order, starts, firsts)
    ordered = take(contributed, order)
    first = np.flatnonzero(starts)
    best = take(ordered, first)
    if len(first):
        best["weight"] = np.maximum.reduceat(ordered["weight"], first)
        best["lastmod"] = np.maximum.reduceat(ordered["lastmod"], first)
        wishes = np.bitwise_or.reduceat(ordered["flags"], first)
        best["flags"] = best["flags"] | wishes & np.uint16(ContribFlag.INSERTED | ContribFlag.PINNED)
    return best


def _best_of_runs_first(contributed: Columns, order: I64, starts: Bools, firsts: U64) -> I64:
    """Inserted first, then of a site that stands for its class, then by weight, https, site, place.

    Most runs are of one row, and only the others are sorted.
    """
    shared = np.flatnonzero(~(starts & run_ends(starts)))
    rows = order[shared]
    flags = contributed["flags"][rows]
    worse = (
        contributed["oid"][rows],
        contributed["site"][rows],
        ~with_flag(flags, ContribFlag.HTTPS),
        ~contributed["weight"][rows],
        find_sites(firsts, contributed["site"][rows]) < 0,
        ~with_flag(flags, ContribFlag.INSERTED),
        np.cumsum(starts)[shared],
    )
    sorted_ = order.copy()
    sorted_[shared] = rows[np.lexsort(worse)]
    return sorted_


def find_known(index: Columns, urls: Columns, paths: Paths) -> tuple[I64, I64]:
    """For each URL (norm, path, site) the row that stands for it, or -1; and the row before which a new one would stand."""
    special = np.flatnonzero(paths.special(urls["path"]))
    site = np.zeros_like(urls["site"])  # of all others norm and path say enough
    site[special] = urls["site"][special]
    place = lower_bound(index["norm"], index["path"], index["site"], urls["norm"], urls["path"], site)
    old_row = equal_rows(place, (index["norm"], urls["norm"]), (index["path"], urls["path"]))
    old_row[special] = equal_rows(place[special], *((index[name], urls[name][special]) for name in ("norm", "path", "site")))
    return old_row, place


def update_known(columns: dict[str, Array], row: I64, urls: Columns, *, state: int) -> int:
    """What contributions change in rows that are known, in columns that are the caller's own; how many inserts are in vain.

    A better weight of what is not gathered, and all that an operator inserts: an error is due at once, for he may know that its
    cause is gone, and what was deleted is back; but what was purged is kept out for ever. A document that was modified
    since it was checked, as its site says, is marked; plan decides what that is worth.
    """
    type_, old_weight, old_flags = columns["type"][row], columns["weight"][row], columns["flags"][row]
    purged = (type_ == RowType.FORGOTTEN) & (columns["reason"][row] == Reason.PURGED)
    inserted = with_flag(urls["flags"], ContribFlag.INSERTED)
    in_vain = int(np.count_nonzero(inserted & purged))
    inserted &= ~purged
    open_ = (type_ != RowType.GATHERED) & (type_ != RowType.FORGOTTEN)
    weight = np.where(inserted | open_, np.maximum(old_weight, urls["weight"]), old_weight)
    wishes = np.where(inserted, np.uint16(Flag.INITIAL), np.uint16(0))
    wishes |= np.where(inserted & with_flag(urls["flags"], ContribFlag.PINNED), np.uint16(Flag.PINNED), np.uint16(0))
    modified = (type_ == RowType.GATHERED) & (urls["lastmod"] > columns["checked"][row]) & ~with_flag(old_flags, Flag.ROBOTS)
    wishes |= np.where(modified, np.uint16(Flag.MODIFIED), np.uint16(0))
    flags = old_flags & np.uint16(0xFFFF ^ Flag.UNREFERENCED) | wishes  # whatever names it refers to it
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
    changed = (weight != old_weight) | (flags != old_flags) | revived
    columns["touched"][row[changed]] = state
    return in_vain


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


def robots_rows(site: U64, norm: U64, facts: Columns, paths: Paths, *, state: int) -> dict[str, Array]:
    """Robots rows of sites that have none, in order; `facts` is what a reap found out about their files before they had a row.

    They have no place in contrib, and no weight: nothing competes with them.
    """
    order = np.lexsort((site, norm))
    urls = {"norm": norm[order], "path": np.full(len(site), paths.robots, np.uint64), "site": site[order]}
    urls |= {"oid": np.full(len(site), NO_OID, np.uint64), "flags": np.zeros(len(site), np.uint16)}
    urls |= {"weight": np.zeros(len(site), np.uint16), "section": np.zeros(len(site), np.uint8)}
    rows = new_rows(urls, paths, state=state)
    have = facts["oid"][order] != NO_OID
    for name in ("oid", "status", "gathered", "checked", "changed", "size", "digest"):
        rows[name] = np.where(have, facts[name][order], rows[name]).astype(INDEX[name])
    rows["type"] = np.where(have, np.uint8(RowType.GATHERED), rows["type"])
    rows["reason"] = np.where(have, np.uint8(Reason.GATHERED), rows["reason"])
    return rows
