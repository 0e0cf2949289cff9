"""Drives record: the new URLs that select kept get thin buckets, what was deleted a tombstone, and state N is closed.

Where millions of rows need a bucket they are taken in rounds, so that memory is bounded: a round is a range of places, and the
rows that point there are found by one more look at the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shepherd.arrays import keys, patch
from shepherd.arrays import site_counts as sitecounts
from shepherd.arrays.lookup import Lookup
from shepherd.arrays.partitions import Tick, partitions
from shepherd.arrays.patch import Patch, TableChanges
from shepherd.arrays.pool import ordered, tasks
from shepherd.arrays.rows import counts_as_gathered
from shepherd.arrays.scratch import put_aside
from shepherd.config import Config
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.record import rules as record
from shepherd.cycle.record import thin_buckets
from shepherd.cycle.record.rules import Needs, Placed
from shepherd.cycle.record.thin_buckets import BucketMaker, BucketUnit, RowsToRecord
from shepherd.filters import load_filter
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import I64, NO_OID, SERVERS, U64, Array, RowType, in_contrib
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.objects import SegmentWriter
from shepherd.urls import Footprints

ROUND_ROWS = 1 << 23  # that get their bucket in one round
_SPACE = 1 << 64
Range = tuple[int, int]


@dataclass(frozen=True)
class UrlSource:
    """One of the three places where a URL stands: which rows, by what their places are ordered, and how they are read."""

    name: str
    key: str
    cell_bits: int  # rows are counted by ranges of keys, to know where to cut
    units: Callable[[State, RowsToRecord], list[BucketUnit]]

    def rows(self, needs: Needs) -> I64:
        return np.flatnonzero(getattr(needs, self.name))


SOURCES = (
    UrlSource("contrib", "oid", 20, thin_buckets.from_contrib),
    UrlSource("robots", "site", 56, thin_buckets.from_names),
    UrlSource("bucket", "oid", 24, lambda _state, rows_to_record: thin_buckets.from_buckets(rows_to_record)),
)


@dataclass(frozen=True)
class Survey:
    """Of a partition, or of all: how many rows need what; and by site the documents that are gathered or to be gathered, and
    those that are gathered."""

    cells: dict[str, Counter[int]]
    given_up: int
    site: U64
    active: Array
    gathered: Array


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    state = writer.furthest()
    if state.name.phase != "selected":
        raise not_now(state, "nothing has been selected")
    filters = load_filter(config.filter_path)
    maker = BucketMaker(filters, state.number, now * 1000, Footprints(state.control.key).robots)
    ranges = list(partitions(state.index.rows, config.store.partition_rows))
    builder = writer.build(state, StateName(state.number, CLOSED), now)
    try:
        builder.keep_objects()
        survey = _survey(state, ranges, tick, jobs)
        segments = builder.segment_writer(config.store.segment_bytes)
        rounds = list(_rounds(builder, state, maker, ranges, survey, segments, jobs))
        builder.finish_segments(segments)
        counts = _totals(rounds)
        _write_index(builder, state, ranges, rounds, counts, survey.given_up)
        reset = _write_sites(builder, state, survey, config, now)
        _write_servers(builder, state, _without_refused(state, survey, rounds), config.store.partition_rows)
        report = {"phase": "record", **counts, "given up": survey.given_up, "queue keys reset": reset}
        return writer.publish(builder, report)
    finally:
        builder.close()


# --- what is needed -----------------------------------------------------------------------------------------------


def _survey(state: State, ranges: Sequence[Range], tick: Tick, jobs: int) -> Survey:
    site_column = state.sites["site"][0 : state.sites.rows]
    lookup = Lookup(site_column)
    active, gathered = np.zeros(len(site_column), np.uint32), np.zeros(len(site_column), np.uint32)
    cells: dict[str, Counter[int]] = {source.name: Counter() for source in SOURCES}
    given_up = 0
    for (start, stop), part in zip(ranges, ordered(tasks(_look, state, None, ranges), jobs), strict=True):
        for name, cell_counts in part.cells.items():
            cells[name].update(cell_counts)
        row = lookup.find(part.site)
        active[row[row >= 0]] += part.active[row >= 0].astype(np.uint32)
        gathered[row[row >= 0]] += part.gathered[row >= 0].astype(np.uint32)
        given_up += part.given_up
        tick(stop - start)
    return Survey(cells, given_up, site_column, active, gathered)


def _look(state: State, _shared: None, where: Range) -> Survey:
    _row, index = _candidates(state, where)
    needs = record.needs(index, state=state.number)
    cells = {}
    for source in SOURCES:
        cell, count = np.unique(index[source.key][source.rows(needs)] >> np.uint64(source.cell_bits), return_counts=True)
        cells[source.name] = Counter(dict(zip(cell.tolist(), count.tolist(), strict=True)))
    useless = in_contrib(index["oid"]) & (index["type"] == RowType.FORGOTTEN) & ~needs.contrib
    whole = state.index.slice(*where, ("site", "type", "flags"))
    site_counts = sitecounts.count_rows(whole["site"], record.is_active(whole), counts_as_gathered(whole))
    return Survey(cells, int(np.count_nonzero(useless)), *site_counts)


def _cuts(cells: Counter[int], bits: int) -> list[int]:
    """The keys between which there are about as many rows as a round may have."""
    cuts, round_rows = [0], 0
    for cell in sorted(cells):
        if round_rows and round_rows + cells[cell] > ROUND_ROWS:
            cuts.append(cell << bits)
            round_rows = 0
        round_rows += cells[cell]
    return [*cuts, _SPACE] if cells else []


def _rows_of_round(state: State, ranges: Sequence[Range], source: UrlSource, low: int, high: int) -> RowsToRecord:
    """The rows whose key is in the range, in its order; of equal keys, in the order of the index."""
    parts = [_rows_of_part(state, where, source, low, high) for where in ranges]
    row = np.concatenate([part.row for part in parts])
    oid, site = np.concatenate([part.oid for part in parts]), np.concatenate([part.site for part in parts])
    reason = np.concatenate([part.reason for part in parts])
    order = np.argsort(oid if source.key == "oid" else site, kind="stable")
    return RowsToRecord(row[order], oid[order], site[order], reason[order])


def _rows_of_part(state: State, where: Range, source: UrlSource, low: int, high: int) -> RowsToRecord:
    row, index = _candidates(state, where)
    chosen_rows = source.rows(record.needs(index, state=state.number))
    key = index[source.key][chosen_rows]
    chosen_rows = chosen_rows[(key >= np.uint64(low)) & (key <= np.uint64(high - 1))]
    reason = np.where(record.is_dead(index), index["reason"], np.uint8(0))
    return RowsToRecord(row[chosen_rows] + where[0], index["oid"][chosen_rows], index["site"][chosen_rows], reason[chosen_rows])


def _candidates(state: State, where: Range) -> tuple[I64, dict[str, Array]]:
    """The few rows that may need a bucket, found by one column or two."""
    index = state.index.slice(*where, record.READ)
    row = np.flatnonzero(record.may_need(index))
    return row, {name: values[row] for name, values in index.items()}


# --- the buckets --------------------------------------------------------------------------------------------------


def _rounds(
    builder: Builder,
    state: State,
    maker: BucketMaker,
    ranges: Sequence[Range],
    survey: Survey,
    segments: SegmentWriter,
    jobs: int,
) -> Iterator[Placed]:
    """What was placed, sorted by row; of more than one round it is put aside, so that only one is in memory."""
    plan = [(s, *cut) for s in SOURCES for cut in pairwise(_cuts(survey.cells[s.name], s.cell_bits))]
    for source, low, high in plan:
        rows_to_record = _rows_of_round(state, ranges, source, low, high)
        work = tasks(_build, state, maker, source.units(state, rows_to_record))
        placed = _place(rows_to_record, source, ordered(work, jobs), segments)
        yield placed if len(plan) <= len(SOURCES) else _aside(builder, placed)


def _build(state: State, maker: BucketMaker, unit: BucketUnit) -> thin_buckets.BuiltBuckets:
    return unit.build(state, maker)


def _place(
    rows_to_record: RowsToRecord, source: UrlSource, built: Iterator[thin_buckets.BuiltBuckets], segments: SegmentWriter
) -> Placed:
    oids, sizes = np.full(len(rows_to_record), NO_OID, np.uint64), np.zeros(len(rows_to_record), np.uint32)
    first = 0
    for unit in built:
        there = first + np.flatnonzero(unit.lengths)
        oids[there] = segments.append_all(unit.data, unit.lengths[unit.lengths > 0])
        sizes[there] = unit.lengths[unit.lengths > 0]
        first += len(unit.lengths)
    order = np.argsort(rows_to_record.row, kind="stable")
    if source.name == "bucket":  # a row without a new bucket has a tombstone, and keeps it
        order = order[sizes[order] > 0]
    return Placed(rows_to_record.row[order], oids[order], sizes[order], rows_to_record.reason[order] != 0)


def _aside(builder: Builder, placed: Placed) -> Placed:
    row, oid, size, dead = (put_aside(a, builder.scratch) for a in (placed.row, placed.oid, placed.size, placed.dead))
    return Placed(row, oid, size, dead)


def _totals(rounds: Sequence[Placed]) -> dict[str, int]:
    rows = sum(len(placed.row) for placed in rounds)
    refused = sum(int(np.count_nonzero(placed.refused)) for placed in rounds)
    dead = sum(int(np.count_nonzero(placed.dead)) for placed in rounds)
    return {"recorded": rows - refused - dead, "filtered": refused, "tombstones": dead}


# --- the tables ---------------------------------------------------------------------------------------------------


def _write_index(
    builder: Builder, state: State, ranges: Sequence[Range], rounds: Sequence[Placed], counts: dict[str, int], given_up: int
) -> None:
    placed = counts["recorded"] + counts["tombstones"]
    changed = record.changed_columns(placed, counts["filtered"], counts["tombstones"], given_up)
    for name in changed:
        writer = builder.table("index", [name])
        for start, stop in ranges:
            old, type_ = state.index[name][start:stop], state.index["type"][start:stop]
            writer.append({name: record.place(name, old, type_, _among(rounds, start, stop), state=state.number)})
        builder.finish_table(writer)
    builder.keep_table("index", changed)


def _among(rounds: Sequence[Placed], start: int, stop: int) -> Placed:
    """What was placed of the rows of one partition."""
    parts = []
    for placed in rounds:
        first, last = np.searchsorted(placed.row, [start, stop]).tolist()
        parts.append(placed.part(first, last))
    row = np.concatenate([np.zeros(0, np.int64), *(part.row for part in parts)])
    order = np.argsort(row, kind="stable")
    oid = np.concatenate([np.zeros(0, np.uint64), *(part.oid for part in parts)])
    size = np.concatenate([np.zeros(0, np.uint32), *(part.size for part in parts)])
    dead = np.concatenate([np.zeros(0, np.bool_), *(part.dead for part in parts)])
    return Placed(row[order] - start, oid[order], size[order], dead[order])


def _write_sites(builder: Builder, state: State, survey: Survey, config: Config, now: int) -> int:
    """Counts as they are now, and addresses that were last looked up too long ago as if never; how many of these."""
    step, reset_s = config.store.partition_rows, config.politeness.qkey_reset_s
    parts, reset = [], 0
    for start, stop in partitions(state.sites.rows, step):
        sites = state.sites.slice(start, stop, ("gathered", "qkey", "qkey_checked", "qkey_next"))
        old = record.too_old(sites, now_s=now, reset_s=reset_s)
        gathered = survey.gathered[start:stop]
        row = np.flatnonzero(old | (gathered != sites["gathered"]))
        addresses = {name: np.where(old[row], 0, sites[name][row]).astype(np.uint32) for name in ("qkey_checked", "qkey_next")}
        parts.append({"row": row + start, "gathered": gathered[row], **addresses})
        reset += int(np.count_nonzero(old))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    changes = TableChanges(patch.only_changed(state.sites, Patch(columns.pop("row"), columns)))
    patch.write(builder, "sites", state.sites, changes, step)
    builder.keep([f"sites/{names.NAMES}"])
    return reset


def _without_refused(state: State, survey: Survey, rounds: Sequence[Placed]) -> Array:
    """The active documents of each site, without those that the filter has refused only now: what slept was not counted."""
    active = survey.active.astype(np.int64)
    for placed in rounds:
        index = state.index.take(placed.row[placed.refused], ("site", "type", "flags"))
        site = index["site"][record.is_active(index)]
        active -= np.bincount(keys.find_sites(survey.site, site), minlength=len(active))
    return active


def _write_servers(builder: Builder, state: State, active: Array, step: int) -> None:
    """How many documents each server has to answer for: those of its sites, of which only those with an address have one."""
    qkeys = state.servers["qkey"][0 : state.servers.rows]
    documents = np.zeros(len(qkeys), np.int64)
    for start, stop in partitions(state.sites.rows, step):
        server = keys.find_servers(qkeys, state.sites["qkey"][start:stop])
        np.add.at(documents, server[server >= 0], active[start:stop][server >= 0])
    changed = Patch(np.arange(len(qkeys)), {"documents": documents.astype(SERVERS["documents"])})
    patch.write(builder, "servers", state.servers, TableChanges(patch.only_changed(state.servers, changed)), step)
