"""Drives rebuild: makes a new closed state from a damaged one, its buckets, and an older state that is sound.

Read cycle/rebuild/rules and store/check/salvage first. Memory is bounded by a range of norms: what the buckets say is spilled by
range, and the index is made range by range.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from shepherd.arrays.column_spill import ColumnSpill, SpilledRows
from shepherd.arrays.distinct_urls import Paths
from shepherd.arrays.keys import find_sites, with_flag
from shepherd.arrays.partitions import Tick, even_borders
from shepherd.config import Config
from shepherd.cycle.common.bucket_moves import BucketMoves
from shepherd.cycle.common.norms import version_of
from shepherd.cycle.common.site_table import SiteCounter, Sites, keep_sites, write_sites
from shepherd.cycle.rebuild import rules as rebuild
from shepherd.cycle.rebuild.buckets import BucketCopier
from shepherd.cycle.rebuild.rules import DamagedRows
from shepherd.cycle.rebuild.sites import Census, restore_servers, restore_sites
from shepherd.equiv import load_equiv, parse_equiv
from shepherd.errors import Corruption, EquivError
from shepherd.filters import load_filter
from shepherd.formats import facts, tables
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import INDEX, U64, Array, Flag, RowType
from shepherd.store.check import check, salvage
from shepherd.store.check.recover import REBUILT
from shepherd.store.check.salvage import Wreck
from shepherd.store.disk import names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.urls import Footprints

RANGE_ROWS: Final = 250_000
SITTING_ROWS: Final = 1 << 18  # of facts, which are wide, held in memory before they are spilled
SPILLED: Final[dict[str, npt.DTypeLike]] = {"norm": "<u8", "fact": facts.FACT}
MOST_RANGES: Final = 512
KEYS: Final = rebuild.KEYS


def run(writer: Writer, wreck: Wreck, number: int, older: State | None, config: Config, now: int, tick: Tick) -> State:
    """Publish closed state `number`, made from what is left of the wreck. Its report says what could not be known."""
    prints = Footprints(wreck.control.key)
    paths = Paths.of(prints)
    filters = load_filter(config.filter_path)
    builder = writer.build(wreck, StateName(number, CLOSED), now)
    counts: Counter[str] = Counter()
    try:
        sites = restore_sites(wreck, older, filters, counts)
        census = Census(sites, prints)
        rows = max(wreck.rows("index"), older.index.rows if older is not None else 0)
        borders = even_borders(min(1 + rows // RANGE_ROWS, MOST_RANGES))
        with ColumnSpill(builder.scratch, SPILLED, "norm", borders, sitting_rows=SITTING_ROWS) as spill:
            moved = _take_segments(builder, wreck, spill, census, config.store.segment_bytes, counts, tick)
            sites = census.table(filters)
            weight = config.merge.insert_weight
            sites, inhabited = _write_index(builder, wreck, older, spill.settle(), borders, moved, sites, paths, weight, counts)
        sites = keep_sites(sites, inhabited)
        write_sites(builder, sites)
        restore_servers(builder, wreck, older, sites, config, now, counts)
        _take_logs(builder, wreck, counts)
        _take_equivalences(builder, wreck, older, config)
        builder.change(filter=filters.version, unsure=now * 1000)
        report = {"phase": REBUILT, "from": str(wreck.name), "older": str(older.name) if older is not None else "-"}
        return writer.publish(builder, report | {"counts": {key: value for key, value in counts.items() if value}}, _prove)
    finally:
        builder.close()


# --- buckets ----------------------------------------------------------------------------------------------------


def _take_segments(
    builder: Builder, wreck: Wreck, spill: ColumnSpill, census: Census, limit: int, counts: Counter[str], tick: Tick
) -> BucketMoves:
    """Every segment that is sound is linked; of the others every bucket that can be read in any of their copies is copied."""
    copier = BucketCopier(builder.segment_writer(limit))
    for number in wreck.segments():
        path = f"{names.OBJECTS}/{names.segment(number)}"
        linked = next((place for place in wreck.segment_copies(number) if _link_segment(builder, wreck, path, place)), None)
        copies = wreck.segment_copies(number) if linked is None else [linked]
        counts["segments: missing"] += int(not copies)
        counts["segments: damaged"] += int(bool(copies) and linked is None)
        for place in copies:
            data = salvage.map_file(place) or b""
            for walk in facts.walk_segment(data, len(data)):
                own = facts.own_names(data, walk.offsets, census.half)
                counts["buckets: under a false name"] += int(np.count_nonzero(~own))
                counts["buckets: places where none can be read"] += 0 if linked else len(walk.damage)
                bucket_facts = facts.facts_of(data, number, walk.offsets[own], census.norms)
                if linked is None:
                    bucket_facts = copier.take(data, bucket_facts)
                _spill(spill, bucket_facts, counts)
            tick(len(data))
        _spill(spill, copier.bodiless(), counts)
    builder.finish_segments(copier.segments)
    counts["buckets: without their damaged bodies"] = copier.bodies_lost
    return copier.moves()


def _spill(spill: ColumnSpill, bucket_facts: Array, counts: Counter[str]) -> None:
    counts["buckets: read"] += len(bucket_facts)
    spill.add({"norm": np.ascontiguousarray(bucket_facts["norm"]), "fact": bucket_facts})


def _link_segment(builder: Builder, wreck: Wreck, path: str, place: Path) -> bool:
    """Take a segment over as it is, if nothing is wrong with it; without control its buckets must vouch for themselves."""
    if wreck.own_control:
        if place == wreck.path / path and wreck.is_sound(path):
            builder.keep([path])
            return True
        return False
    if not place.is_relative_to(wreck.path.parent):  # of a mirror, which may be on another disk
        return False
    data = salvage.map_file(place)
    walks = facts.walk_segment(data, len(data)) if data is not None else ()
    if data is None or any(walk.damage or not facts.sound_bodies(data, walk.offsets).all() for walk in walks):
        return False
    builder.adopt(path, place)
    return True


# --- index ------------------------------------------------------------------------------------------------------


def _write_index(
    builder: Builder,
    wreck: Wreck,
    older: State | None,
    spilled: SpilledRows,
    borders: U64,
    moved: BucketMoves,
    sites: Sites,
    paths: Paths,
    weight: int,
    counts: Counter[str],
) -> tuple[Sites, Array]:
    """The site table with its counts and robots files, and which of its sites have rows."""
    columns = {name: wreck.column("index", name) for name in INDEX}
    keys_whole = all(columns[name].is_whole() for name in KEYS)
    counts["rows: by their buckets alone"] = 0
    counter = SiteCounter(sites.columns["site"])
    robots: list[Array] = []
    writer = builder.table("index")
    edges = [0, *borders.tolist(), 1 << 64]
    for part, (low, high) in enumerate(pairwise(edges)):
        bucket_facts = spilled.read(part)["fact"]
        best = rebuild.newest(bucket_facts, paths)
        if keys_whole:
            norm = columns["norm"].values()
            start, stop = _between(norm, low, high)
            slices = {name: column.slice(start, stop) for name, column in columns.items()}
            damaged = DamagedRows(
                {n: values for n, (values, _) in slices.items()}, {n: valid for n, (_, valid) in slices.items()}
            )
        else:
            damaged = rebuild.rows_of_buckets(bucket_facts, best)
            counts["rows: by their buckets alone"] += len(damaged.columns["norm"])
        damaged = DamagedRows({**damaged.columns, "oid": moved.follow(damaged.columns["oid"])}, damaged.valid)
        older_rows = _older_rows(older, low, high, moved)
        restored = rebuild.restore(damaged, bucket_facts, best, older_rows, paths, state=builder.name.number, weight=weight)
        writer.append(restored.columns)
        counts.update(restored.counts)
        counter.add(restored.columns)
        robots.append(_robots_files(restored.columns))
    builder.finish_table(writer)
    return _with_robots(sites, counter, np.concatenate(robots)), counter.documents > 0


def _older_rows(older: State | None, low: int, high: int, moved: BucketMoves) -> dict[str, Array]:
    if older is None:
        return tables.empty(INDEX)
    norm = older.index["norm"]
    rows = range(older.index.rows)
    start, stop = bisect_left(rows, low, key=norm.value), bisect_left(rows, high, key=norm.value)
    part = older.index.slice(start, stop)
    return part | {"oid": moved.follow(part["oid"])}


def _between(norm: U64, low: int, high: int) -> tuple[int, int]:
    start = int(np.searchsorted(norm, np.uint64(low)))
    return start, len(norm) if high >= 1 << 64 else int(np.searchsorted(norm, np.uint64(high)))


_ROBOTS: Final = np.dtype([("site", "<u8"), ("oid", "<u8"), ("status", "<u2")])


def _robots_files(rows: dict[str, Array]) -> Array:
    """The robots files with a body: site, oid, status."""
    have = with_flag(rows["flags"], Flag.ROBOTS) & (rows["type"] == RowType.GATHERED) & (rows["digest"] != 0)
    files = np.zeros(int(np.count_nonzero(have)), _ROBOTS)
    for name in ("site", "oid", "status"):
        files[name] = rows[name][have]
    return files


def _with_robots(sites: Sites, counter: SiteCounter, files: Array) -> Sites:
    """A site whose robots.txt is gone, or another than it knew, asks for it again."""
    columns = sites.columns | counter.columns()
    robots_oid = np.full(len(sites), tables.NO_OID, np.uint64)
    row = find_sites(columns["site"], np.ascontiguousarray(files["site"]))
    robots_oid[row[row >= 0]] = files["oid"][row >= 0]
    other = robots_oid != columns["robots_oid"]
    columns |= {"robots_oid": robots_oid}
    columns |= {"robots_next": np.where(other, np.uint32(0), columns["robots_next"])}
    return Sites(columns, sites.names)


# --- logs -------------------------------------------------------------------------------------------------------


def _take_logs(builder: Builder, wreck: Wreck, counts: Counter[str]) -> None:
    """Contributions and journals: whole, or every frame that checks."""
    for path in wreck.logs():
        if wreck.is_sound(path):
            builder.keep([path])
            continue
        bytes_written = builder.write_frames(path, wreck.frames(path))
        counts[f"{path}: bytes kept of a damaged file"] = bytes_written


def _prove(state: State) -> None:
    """Read all that was built, before it gets its name: what does not hold together must never be published."""
    fault = next((fault for fault in check.walk_built(state) if not fault.note), None)
    if fault is not None:
        raise Corruption(
            f"what was made of {state.control.parent} does not hold together, so it was not published: {fault}; "
            "everything stands as before, name a mirror with --mirror"
        )


def _take_equivalences(builder: Builder, wreck: Wreck, older: State | None, config: Config) -> None:
    """The table that made the norms: from the wreck, from the older state, or from cf/, wherever it is still the same."""
    version = wreck.control.equiv
    if not version or wreck.is_sound(names.EQUIV):
        return  # what is sound is kept when the state is published
    tables_ = [load_equiv(config.equiv_path)] + ([older.equiv] if older is not None and older.control.equiv == version else [])
    with contextlib.suppress(Corruption, EquivError, UnicodeDecodeError, FileNotFoundError):
        tables_.append(parse_equiv(opening.read_file(wreck.path / names.EQUIV).decode()))
    same = next((table for table in tables_ if version_of(table) == version), None)
    if same is None:
        raise Corruption(
            f"{wreck.path / names.EQUIV} is damaged: put the url-equiv of that time into {config.directory} and run again"
        )
    builder.write(names.EQUIV, same.text.encode())
