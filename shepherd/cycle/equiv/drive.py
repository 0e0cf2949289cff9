"""Drives equiv: when cf/url-equiv has changed, N.merged becomes N.equiv, with the norms of the sites that the change concerns.

The table that made the norms stands in the state, so the sites that it or the new one speaks of are known by name; the rows of
all others are copied as they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from shepherd.arrays.distinct_urls import Paths, take
from shepherd.arrays.keys import find_sites, sort_order
from shepherd.arrays.partitions import Tick, partitions, whole_norms
from shepherd.arrays.pool import ordered, tasks
from shepherd.config import Config
from shepherd.cycle.common.norms import first_sites, sites_named, version_of
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.equiv import rules as phase
from shepherd.cycle.equiv.rules import RejoinedRows
from shepherd.equiv import Equiv, load_equiv
from shepherd.errors import NothingToDo
from shepherd.formats.tables import I64, SITES, U64, Array, Columns, in_bucket
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import lookup
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.urls import Footprints, norm_of

MOST_LISTED: Final = 100
COUNTS: Final = ("documents", "gathered")


@dataclass(frozen=True)
class Changed:
    """Sites whose norm changes, sorted, with their rows in the site table."""

    site: U64
    row: I64
    old: U64
    new: U64
    apart: tuple[str, ...]  # of these, the names of those that are on their own again


@dataclass(frozen=True)
class Moving:
    """Rows that get another norm: where they are, ascending; and as they will be, in order."""

    row: I64
    columns: dict[str, Array]


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    state = writer.furthest()
    if state.name.phase != "merged" and not (writer.is_dry_run and state.name.closed):
        raise not_now(state, "nothing has been merged")
    table = load_equiv(config.equiv_path)
    if version_of(table) == state.control.equiv:
        raise NothingToDo(f"{config.equiv_path} says the same as when {state.name} was made")
    changed = _changed_sites(state, table)
    builder = writer.build(state, StateName(state.number + state.name.closed, "equiv"), now)
    try:
        builder.change(equiv=version_of(table))
        if version_of(table):
            builder.write(names.EQUIV, table.text.encode())
        builder.keep_objects()
        builder.keep_table("servers")
        builder.keep_logs(names.CONTRIB)
        moving = _moving(state, changed)
        firsts = first_sites(table, state.prints)
        counts, deltas, joined = _write_index(builder, state, moving, firsts, config.store.partition_rows, tick, jobs)
        _write_sites(builder, state, changed, deltas, config.store.partition_rows)
        report: dict[str, object] = {"phase": "equiv", "sites": len(changed.site), "split sites": len(changed.apart), **counts}
        report["joined"] = _urls(state, joined)
        if changed.apart:
            report["apart"] = sorted(changed.apart)[:MOST_LISTED]
            report["note"] = (
                "pages of these sites that were dropped as the same as others do not come back by themselves: "
                "`shep insert` them, or wait until a link names them"
            )
        return writer.publish(builder, report)
    finally:
        builder.close()


def _changed_sites(state: State, table: Equiv) -> Changed:
    prints = Footprints(state.control.key, table.norm_of)
    table_sites = state.sites["site"][0 : state.sites.rows]
    named = sorted((prints.half(name), name) for name in sites_named(state.equiv) | sites_named(table))
    site = np.array([half for half, _name in named], np.uint64)
    row = find_sites(table_sites, site)
    there = np.flatnonzero(row >= 0)
    new = np.array([prints.norm(named[n][1]) for n in there.tolist()], np.uint64)
    old = state.sites["norm"].take(row[there])
    alone = np.array([prints.half(norm_of(named[n][1])) for n in there.tolist()], np.uint64)
    differs = old != new
    apart = tuple(named[n][1] for n in there[differs & (new == alone)].tolist())
    return Changed(site[there[differs]], row[there[differs]], old[differs], new[differs], apart)


def _moving(state: State, changed: Changed) -> Moving:
    parts = [np.zeros(0, np.int64)]
    for norm in sorted(set(changed.old.tolist())):
        rows = lookup.rows_of_norm(state, norm)
        mine = find_sites(changed.site, state.index["site"][rows.start : rows.stop]) >= 0
        parts.append(np.flatnonzero(mine) + rows.start)
    row = np.concatenate(parts)
    columns = state.index.take(row)
    columns["norm"] = changed.new[find_sites(changed.site, columns["site"])]
    columns["touched"] = np.full(len(row), state.number, columns["touched"].dtype)
    return Moving(row, take(columns, sort_order(*(columns[name] for name in phase.KEY))))


def _write_index(
    builder: Builder, state: State, moving: Moving, firsts: U64, step: int, tick: Tick, jobs: int
) -> tuple[dict[str, int], list[Columns], U64]:
    """Counts; how the numbers of rows of sites change; and buckets of rows that others stand for now."""
    ranges = list(whole_norms(state.index, step))
    starts = np.array([start for start, _stop in ranges[1:]], np.int64)
    leaving = np.split(moving.row, np.searchsorted(moving.row, starts))
    cuts = [0, *np.searchsorted(moving.columns["norm"], state.index["norm"].take(starts)).tolist(), len(moving.row)]
    coming = [{name: column[a:b] for name, column in moving.columns.items()} for a, b in pairwise(cuts)]
    work = tasks(_partition, state, (Paths.of(state.prints), firsts), zip(ranges, leaving, coming, strict=True))
    counts: Counter[str] = Counter({"moved rows": len(moving.row)})
    deltas: list[Columns] = []
    joined = [np.zeros(0, np.uint64)]
    index = builder.table("index")
    for (start, stop), rejoined in zip(ranges, ordered(work, jobs), strict=True):
        if rejoined is None:
            index.append(state.index.slice(start, stop))
        else:
            index.append(rejoined.columns)
            deltas += _deltas(rejoined)
            counts["joined documents"] += len(rejoined.joined)
            joined.append(rejoined.joined[:MOST_LISTED])
        tick(stop - start)
    builder.finish_table(index)
    return dict(counts), deltas, np.concatenate(joined)[:MOST_LISTED]


def _partition(state: State, shared: tuple[Paths, U64], part: tuple[tuple[int, int], I64, Columns]) -> RejoinedRows | None:
    """One range, the rows that leave it, and those that come to it. None where nothing changes."""
    (start, stop), leaving, coming = part
    if not len(leaving) and not len(coming["norm"]):
        return None
    return phase.rejoin(state.index.slice(start, stop), leaving - start, coming, *shared, state=state.number)


def _deltas(rejoined: RejoinedRows) -> list[Columns]:
    return [
        {"site": tally.site, **{name: sign * getattr(tally, name) for name in COUNTS}}
        for sign, tally in ((-1, rejoined.before), (1, rejoined.after))
    ]


def _write_sites(builder: Builder, state: State, changed: Changed, deltas: list[Columns], step: int) -> None:
    """The columns that change, range by range; the others are kept."""
    site = np.concatenate([np.zeros(0, np.uint64), *(delta["site"] for delta in deltas)])
    row = find_sites(state.sites["site"][0 : state.sites.rows], site)
    writer = builder.table("sites", ("norm", *COUNTS))
    for start, stop in partitions(state.sites.rows, step):
        columns = {name: values.copy() for name, values in state.sites.slice(start, stop, ("norm", *COUNTS)).items()}
        mine = (changed.row >= start) & (changed.row < stop)
        columns["norm"][changed.row[mine] - start] = changed.new[mine]
        here = np.flatnonzero((row >= start) & (row < stop))
        for name in COUNTS:
            change = np.concatenate([np.zeros(0, np.int64), *(delta[name] for delta in deltas)])[here]
            total = columns[name].astype(np.int64)
            np.add.at(total, row[here] - start, change)
            columns[name] = total.astype(SITES[name])
        writer.append(columns)
    builder.finish_table(writer)
    builder.keep_table("sites", ("norm", *COUNTS))


def _urls(state: State, oids: U64) -> list[str]:
    """The URLs of some buckets; what is still in contrib has none yet."""
    return [state.objects.head(oid).url for oid in oids[in_bucket(oids)].tolist()]
