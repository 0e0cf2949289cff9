"""Old rows and contributed URLs become one index again: one row per document, in order.

Two rows are the same document when normalised site and path agree; only robots files and root pages are kept for every site,
because politeness and equivalence need them. A site has a robots row exactly while it has another row. First the rows that nobody
needs go (`keep_rows`), then what is left is what is known: so the result does not depend on how the contributions were cut into
merges. Every column is copied once, from its old place to its new one; all else touches only the rows it is about.

A partition holds whole normalised sites, so that it can count what a site has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.distinct_urls import Paths, distinct_urls, find_known, new_rows, robots_rows, take, update_known
from shepherd.arrays.keys import find_sites, lower_bound, with_flag
from shepherd.arrays.one_row import DocumentRows, drop_equivalents, interleave
from shepherd.arrays.tally import SiteTally, tally
from shepherd.cycle.merge import edits
from shepherd.formats.tables import I64, U64, Array, Bools, Columns, Flag, Reason, Records, RowType

KEPT_ERRORS = int(Flag.INITIAL | Flag.PINNED | Flag.ROBOTS)
KEY = ("norm", "path", "site")
TALLIED = (*KEY, "type", "flags")


@dataclass(frozen=True)
class MergedRows:
    """The rows of a partition, their sites, and counts of what was merged."""

    columns: Mapping[str, Array]
    sites: SiteTally
    counts: Mapping[str, int]


def merge(
    index: Columns,
    contributed: Columns,
    edit_records: Records,
    robots_facts: Callable[[U64], Columns],
    paths: Paths,
    firsts: U64,
    *,
    state: int,
    now_s: int,
    max_retries: int,
) -> MergedRows:
    """One partition. `contributed` has norm, path, site, oid, lastmod, weight, section, flags, in any order.

    `edit_records` stand in their order; `robots_facts` says what is known of the robots files of sites that have no row for
    theirs.
    """
    survivors = keep_rows(index, paths, firsts, max_retries=max_retries)
    keys = {name: index[name].take(survivors.row) for name in TALLIED}
    urls = distinct_urls(contributed, paths, firsts)
    old_row, before = find_known(keys, urls, paths)
    linked = new_rows(take(urls, old_row < 0), paths, state=state) | {"before": before[old_row < 0]}
    sites = tally(keys, linked)
    lonely, bare = sites.site[sites.documents == sites.robots], sites.robots == 0
    lonely_robots = _robots_of(lonely, keys)
    rows, linked = np.delete(survivors.row, lonely_robots), take(linked, ~np.isin(linked["site"], lonely))
    robots = robots_rows(sites.site[bare], sites.norm[bare], robots_facts(sites.site[bare]), paths, state=state)
    robots["before"] = lower_bound(*(keys[name] for name in KEY), *(robots[name] for name in KEY))
    added = _in_order(linked, robots)
    before = added["before"] - np.searchsorted(lonely_robots, added["before"])
    columns = interleave(index, rows, added, before)

    def place(row: I64) -> I64:
        """Where some of the rows that stay have come to stand."""
        position = np.searchsorted(rows, row)
        return position + np.searchsorted(before, position, side="right")

    columns["flags"][place(survivors.heir)], columns["weight"][place(survivors.heir)] = survivors.flags, survivors.weight
    columns["touched"][place(survivors.heir)] = state
    stays = (old_row >= 0) & ~np.isin(old_row, lonely_robots)
    in_vain = update_known(columns, place(survivors.row[old_row[stays]]), take(urls, stays), state=state)
    counts = {
        "dropped": len(index["norm"]) - len(rows),
        "duplicate contributions": len(contributed["norm"]) - len(urls["norm"]),
        "known": int(np.count_nonzero(old_row >= 0)),
        "new": len(linked["norm"]),
        "new robots files": len(robots["norm"]),
        "empty sites": len(lonely),
        "inserts of purged URLs": in_vain,
    }
    if not len(edit_records):
        return MergedRows(columns, _settled(sites), counts)
    edited_row, _place = find_known(columns, {name: np.ascontiguousarray(edit_records[name]) for name in KEY}, paths)
    counts |= edits.apply(columns, edited_row, edit_records, state=state, now_s=now_s)
    return MergedRows(columns, tally(columns), counts)


def _settled(sites: SiteTally) -> SiteTally:
    """The tally once each site has its one robots row, and those that have nothing else are gone."""
    stay = sites.documents > sites.robots
    documents = sites.documents + (sites.robots == 0)
    return SiteTally(
        sites.site[stay], sites.norm[stay], documents[stay], sites.gathered[stay], np.ones(np.count_nonzero(stay), np.int64)
    )


def _robots_of(lonely: U64, rows: Columns) -> I64:
    """The rows of sites that have nothing but robots files; nearly always there is nothing to look for."""
    robots = np.flatnonzero(with_flag(rows["flags"], Flag.ROBOTS)) if len(lonely) else np.zeros(0, np.int64)
    return robots[find_sites(lonely, rows["site"][robots]) >= 0]


def keep_rows(index: Columns, paths: Paths, firsts: U64, *, max_retries: int) -> DocumentRows:
    """Without forgotten rows, dead errors, and all but the best of equivalent rows.

    A row that an operator deleted stays, so that a link does not bring it back. A row that stands for dropped equivalents gets
    the best weight of them, and is initial or pinned if one of them was.
    """
    return drop_equivalents(index, _alive(index, max_retries), paths, firsts)


def _alive(index: Columns, max_retries: int) -> Bools:
    asked_for = (index["reason"] == np.uint8(Reason.DELETED)) | (index["reason"] == np.uint8(Reason.PURGED))
    forgotten = (index["type"] == np.uint8(RowType.FORGOTTEN)) & ~asked_for
    dead = (index["type"] == np.uint8(RowType.ERROR)) & (index["retry"] >= max_retries) & ~with_flag(index["flags"], KEPT_ERRORS)
    return np.asarray(~forgotten & ~dead)


def _in_order(some: Columns, others: Columns) -> dict[str, Array]:
    """Two sorted sets of rows as one; they have no key in common."""
    before = lower_bound(some["norm"], some["path"], some["site"], others["norm"], others["path"], others["site"])
    return interleave(some, np.arange(len(some["norm"])), others, before)
