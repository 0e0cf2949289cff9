"""Drives record: the new URLs that select kept get thin buckets, and state N is closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shepherd.batch.partitions import Tick, partitions
from shepherd.batch.sites import SiteCounter
from shepherd.config import Config
from shepherd.errors import Corruption, NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.formats import bucket, tables
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import I64, NO_OID, U64, Array, Reason, RowType, in_contrib
from shepherd.phases import record
from shepherd.store import lookup
from shepherd.store.database import Writer
from shepherd.store.names import StateName
from shepherd.store.objects import SegmentWriter
from shepherd.store.state import State

READ = ("oid", "site", "path", "type", "flags", "reason", "size", "touched")
CHANGED = ("oid", "type", "reason", "size", "touched")


@dataclass(frozen=True)
class Wanted:
    """The rows that need a bucket, in the order of their places in contrib; robots files, which have none, come last."""

    row: I64
    oid: U64
    site: U64
    path: U64


@dataclass(frozen=True)
class Placed:
    """For each wanted row its bucket; NO_OID where the filter has refused it since."""

    row: I64
    oid: U64
    size: Array


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    state = writer.furthest()
    if state.name.phase != "selected":
        raise NothingToDo(f"nothing has been selected (the newest state is {state.name})")
    filters = load_filter(config.filter_path)
    step = config.store.partition_rows
    builder = writer.build(state, StateName(state.number, CLOSED), now)
    try:
        builder.keep_objects()
        segments = builder.segment_writer(config.store.segment_bytes)
        placed = _write_buckets(state, _wanted(state, step), segments, filters, now)
        builder.finish_segments(segments)
        counter = SiteCounter(state.sites["site"][0 : state.sites.rows])
        table = builder.table("index", CHANGED)
        for start, stop in partitions(state.index.rows, step):
            part = state.index.slice(start, stop, READ)
            columns = _columns(part, placed, start, stop, state.number)
            table.append(columns)
            counter.add({**part, **columns})
            tick(stop - start)
        builder.finish_table(table)
        builder.keep_table("index", CHANGED)
        builder.write_table("sites", counter.columns())
        builder.keep_table("sites", counter.columns())
        builder.keep_table("servers")
        refused = int((placed.oid == np.uint64(NO_OID)).sum())
        return writer.publish(builder, {"phase": "record", "recorded": len(placed.row) - refused, "filtered": refused})
    finally:
        builder.close()


def _wanted(state: State, step: int) -> Wanted:
    parts: dict[str, list[Array]] = {name: [np.zeros(0, np.uint64)] for name in ("oid", "site", "path")}
    rows = [np.zeros(0, np.int64)]
    for start, stop in partitions(state.index.rows, step):
        part = state.index.slice(start, stop, READ)
        needs = np.flatnonzero(record.needs_bucket(part))
        rows.append(needs + start)
        for name, values in parts.items():
            values.append(part[name][needs])
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    order = np.argsort(columns["oid"], kind="stable")  # NO_OID is the largest
    return Wanted(np.concatenate(rows)[order], *(columns[name][order] for name in ("oid", "site", "path")))


def _write_buckets(state: State, wanted: Wanted, segments: SegmentWriter, filters: Filter, now: int) -> Placed:
    oids = np.full(len(wanted.row), NO_OID, np.uint64)
    sizes = np.zeros(len(wanted.row), np.uint32)
    sites, paths = wanted.site.tolist(), wanted.path.tolist()
    for at, url in _urls(state, wanted, filters):
        data = bucket.thin(sites[at], paths[at], now * 1000, state.number, url)
        oids[at], sizes[at] = segments.append(data), len(data)
    order = np.argsort(wanted.row, kind="stable")
    return Placed(wanted.row[order], oids[order], sizes[order])


def _urls(state: State, wanted: Wanted, filters: Filter) -> Iterator[tuple[int, str]]:
    """Position and URL of each wanted row: one scan of the contrib files, then the robots files by their sites' names."""
    at, from_contrib = 0, int(np.count_nonzero(in_contrib(wanted.oid)))
    places = wanted.oid.tolist()
    for number in state.numbered("contrib"):
        first = tables.contrib_oid(number, 0)
        for block in state.contribs(number):
            names = dict(zip(block.sites.tolist(), block.names, strict=True))
            judge = block.filter_version != filters.version
            while at < from_contrib and places[at] < first + len(block):
                record_at = places[at] - first
                url = (names[int(block.site[record_at])] + block.texts[record_at]).decode("ascii")
                if not judge or filters.clean(url) is not None:
                    yield at, url
                at += 1
            first += len(block)
    if at != from_contrib:
        raise Corruption(f"{state.path}: {from_contrib - at} rows point at contributions that are not there")
    for at in range(from_contrib, len(places)):
        row = lookup.site_row(state, int(wanted.site[at]))
        if row is None:
            raise Corruption(f"{state.path}: a robots row is of a site that is not in the site table")
        yield at, state.site_name(row) + "/robots.txt"


def _columns(part: dict[str, Array], placed: Placed, start: int, stop: int, state: int) -> dict[str, Array]:
    first, last = np.searchsorted(placed.row, [start, stop]).tolist()
    rows, oids, sizes = placed.row[first:last] - start, placed.oid[first:last], placed.size[first:last]
    refused = oids == np.uint64(NO_OID)
    type_, reason = part["type"].copy(), part["reason"].copy()
    type_[rows[refused]] = RowType.FORGOTTEN
    reason[rows[refused]] = Reason.FILTER
    changed = {"type": type_, "reason": reason}
    return changed | record.place_oids({**part, **changed}, rows, oids, sizes, state=state)
