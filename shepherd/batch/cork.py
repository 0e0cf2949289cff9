"""Drives cork: takes every harvest of N.reap into the tables and closes state N."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shepherd.batch.partitions import Tick, partitions
from shepherd.batch.sites import NAMED, SiteCounter, Sites, add_sites, read_sites, write_sites
from shepherd.config import Config
from shepherd.errors import NothingToDo, RecoveryNeeded
from shepherd.filters import Filter, load_filter
from shepherd.formats import tables
from shepherd.formats.control import CLOSED
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, Kind, Records, in_bucket
from shepherd.phases import contacts, cork, keys
from shepherd.store import harvest, names
from shepherd.store.database import Writer
from shepherd.store.names import StateName
from shepherd.store.objects import Objects
from shepherd.store.state import Builder, State
from shepherd.urls import Footprints, parse

READ = ("norm", "path", *cork.CHANGED)


@dataclass(frozen=True)
class Taken:
    """One harvest, and the number that its first segment gets."""

    path: Path
    found: harvest.Found
    first_segment: int

    @property
    def segments(self) -> int:
        return len(self.found.checkpoint.segments)


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    state = writer.furthest()
    if state.name.phase != "reap":
        raise NothingToDo(f"nothing has been reaped (the newest state is {state.name})")
    taken = _harvests(state)
    journal = _journal(taken)
    filters = load_filter(config.filter_path)
    builder = writer.build(state, StateName(state.number, CLOSED), now)
    try:
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        _adopt(builder, taken, journal)
        report = _apply(builder, state, journal, _moved_to(state, taken, journal, filters), config, tick)
        return writer.publish(builder, report)
    finally:
        builder.close()


def _harvests(state: State) -> list[Taken]:
    """The harvests, oldest end first, with their segments numbered on from the state's."""
    paths = state.harvests()
    if not paths:
        raise NothingToDo(f"{state.name} has no harvest yet; run shep-reap")
    found = {path: harvest.inspect(path) for path in paths}
    for path in paths:
        harvest.verify(path)  # from here on its bytes are ours: what is damaged must not get a checksum that says it is not
        if not found[path].ended:
            raise RecoveryNeeded(f"{path}: this reap was interrupted; run shep-reap, which goes on with it")
        harvest.confirm_end(path)
    taken, number = [], state.control.segments
    for path in sorted(paths, key=lambda p: (found[p].checkpoint.time_ms, p.name)):
        taken.append(Taken(path, found[path], number))
        number += len(found[path].checkpoint.segments)
    return taken


def _journal(taken: list[Taken]) -> Records:
    """All journals end to end, their oids made global."""
    parts = [np.zeros(0, JOURNAL)]
    for one in taken:
        part = harvest.read_journal(one.path).copy()
        stored = in_bucket(part["oid"])
        part["oid"][stored] += np.uint64(one.first_segment - 1 << 32)
        parts.append(part)
    return np.concatenate(parts)


def _adopt(builder: Builder, taken: list[Taken], journal: Records) -> None:
    """Segments, contributions and the journal become files of the state."""
    number = builder.control.contribs
    builder.write_records(names.journal(number), FrameKind.JOURNAL, journal)
    segments = builder.control.segments
    for one in taken:
        for local in range(1, one.segments + 1):
            target = names.segment(one.first_segment + local - 1)
            builder.adopt(f"{names.OBJECTS}/{target}", one.path / names.local_segment(local))
        segments += one.segments
        if one.found.checkpoint.contrib.length:
            builder.adopt(names.contrib(number), one.path / names.CONTRIB)
        number += 1
    resumed = journal[journal["kind"] == Kind.RESUMED]["end_ms"]
    unsure = max([builder.control.unsure, *resumed.tolist()])
    builder.change(segments=segments, contribs=number, unsure=unsure)


def _moved_to(state: State, taken: list[Taken], journal: Records, filters: Filter) -> Sites:
    """The site table with the sites that pages moved to, whose names stand in the moved pages' buckets."""
    sites = read_sites(state)
    moved = journal[(journal["answered"] != journal["site"]) & in_bucket(journal["oid"]) & (journal["kind"] == Kind.PAGE)]
    unknown = moved[keys.find_sites(sites.columns["site"], np.ascontiguousarray(moved["answered"])) < 0]
    prints = Footprints(state.control.key)
    site, first = np.unique(unknown["answered"], return_index=True)
    urls = [parse(_bucket_url(taken, oid)) for oid in unknown["oid"][first].tolist()]
    norm = np.array([prints.half(url.norm) for url in urls], np.uint64)
    return add_sites(sites, site, norm, [url.site.encode("ascii") for url in urls], filters)[0]


def _bucket_url(taken: list[Taken], oid: int) -> str:
    segment, offset = tables.split_oid(oid)
    one = next(t for t in taken if t.first_segment <= segment < t.first_segment + t.segments)
    objects = Objects(one.path, names.local_segment)
    try:
        return objects.head(tables.bucket_oid(segment - one.first_segment + 1, offset)).url
    finally:
        objects.close()


def _apply(builder: Builder, state: State, journal: Records, sites: Sites, config: Config, tick: Tick) -> dict[str, object]:
    grown = len(sites) > state.sites.rows
    columns = sites.columns | contacts.apply_sites(sites.columns, journal, config.politeness)
    servers = contacts.apply_servers(state.servers.slice(0, state.servers.rows), columns, journal, config.politeness)
    settled = cork.newest(journal)
    counts: Counter[str] = Counter()
    counter = SiteCounter(columns["site"])
    index = builder.table("index", cork.CHANGED)
    ranges = list(partitions(state.index.rows, config.store.partition_rows))
    for (start, stop), records in zip(ranges, _by_partition(state, settled, ranges), strict=True):
        part = state.index.slice(start, stop, READ)
        corked = cork.apply_index(part, records, columns, state=state.number, plan=config.plan, politeness=config.politeness)
        index.append(dict(corked.columns))
        counts.update(corked.counts)
        counter.add({**part, **corked.columns})
        tick(stop - start)
    builder.finish_table(index)
    builder.keep_table("index", cork.CHANGED)
    columns |= counter.columns()
    if grown:
        write_sites(builder, Sites(columns, sites.names))
    else:
        builder.write_table("sites", {name: values for name, values in columns.items() if name not in NAMED})
        builder.keep([f"sites/{name}" for name in (*NAMED, names.NAMES)])
    builder.write_table("servers", servers)
    return {"phase": "cork", "journal": len(journal), "settled": {k: v for k, v in counts.items() if v}}


def _by_partition(state: State, settled: Records, ranges: list[tuple[int, int]]) -> list[Records]:
    """The records (sorted as the index is) that fall into each partition; those before the first row go to the first."""
    record_keys = [np.ascontiguousarray(settled[name]) for name in ("norm", "path", "site")]
    starts = np.array([start for start, _stop in ranges[1:]], np.int64)
    row_keys = [state.index[name].take(starts) for name in ("norm", "path", "site")]
    return np.split(settled, keys.lower_bound(*record_keys, *row_keys).tolist())
