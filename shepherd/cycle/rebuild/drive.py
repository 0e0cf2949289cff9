"""Drives rebuild: makes a new closed state from a damaged one, its buckets, and an older state that is sound.

Read cycle/rebuild/rules and store/check/salvage first. Memory is bounded by a range of norms: what the buckets say is spilled by
range, and the index is made range by range.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
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
from shepherd.cycle.rebuild.rules import DamagedRows
from shepherd.cycle.rebuild.sites import Census, restore_servers, restore_sites
from shepherd.equiv import load_equiv
from shepherd.errors import Corruption
from shepherd.filters import load_filter
from shepherd.formats import bucket, facts, tables
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import INDEX, U64, Array, Flag, RowType
from shepherd.store.check import salvage
from shepherd.store.check.recover import REBUILT
from shepherd.store.check.salvage import Wreck
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.objects import SegmentWriter
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
        return writer.publish(builder, report | {"counts": {key: value for key, value in counts.items() if value}})
    finally:
        builder.close()


# --- buckets ----------------------------------------------------------------------------------------------------


def _take_segments(
    builder: Builder, wreck: Wreck, spill: ColumnSpill, census: Census, limit: int, counts: Counter[str], tick: Tick
) -> BucketMoves:
    """Every segment that is sound is linked; of the others every bucket that can be read is copied."""
    writer = builder.segment_writer(limit)
    old, new = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for number in wreck.segments():
        path = f"{names.OBJECTS}/{names.segment(number)}"
        data = salvage.map_file(wreck.path / path)
        if data is None:
            counts["segments: missing"] += 1
            continue
        linked = _link_segment(builder, wreck, path, data)
        counts["segments: damaged"] += int(not linked)
        for walk in facts.walk_segment(data, len(data)):
            bucket_facts = facts.facts_of(data, number, walk.offsets, census.norms)
            if not linked:
                sound = facts.sound_bodies(data, walk.offsets)
                old.append(np.ascontiguousarray(bucket_facts["oid"]))
                bucket_facts = _copy_buckets(data, bucket_facts, sound, writer)
                new.append(np.ascontiguousarray(bucket_facts["oid"]))
                counts["buckets: places where none can be read"] += len(walk.damage)
                counts["buckets: without their damaged bodies"] += int(np.count_nonzero(~sound))
            counts["buckets: read"] += len(bucket_facts)
            spill.add({"norm": np.ascontiguousarray(bucket_facts["norm"]), "fact": bucket_facts})
        tick(len(data))
    builder.finish_segments(writer)
    return BucketMoves(np.concatenate(old), np.concatenate(new))


def _link_segment(builder: Builder, wreck: Wreck, path: str, data: salvage.Bytes) -> bool:
    """Take a segment over as it is, if nothing is wrong with it; without control its buckets must vouch for themselves."""
    if wreck.is_sound(path):
        builder.keep([path])
        return True
    walks = facts.walk_segment(data, len(data))
    if wreck.own_control or any(walk.damage or not facts.sound_bodies(data, walk.offsets).all() for walk in walks):
        return False
    builder.adopt(path, wreck.path / path)
    return True


def _copy_buckets(data: salvage.Bytes, originals: Array, sound: Array, writer: SegmentWriter) -> Array:
    """The facts of the copies; of a bucket whose body is damaged only the URL is left."""
    copies = originals.copy()
    for n, (oid, size, whole) in enumerate(
        zip(originals["oid"].tolist(), originals["size"].tolist(), sound.tolist(), strict=True)
    ):
        offset = tables.split_oid(oid)[1]
        stored = data[offset : offset + size]
        if not whole:
            parsed = bucket.parse(stored, with_body=False)
            head = parsed.header
            stored = bucket.thin(head.site, head.path, head.time_ms, head.state, parsed.url)
            copies["flags"][n] = BucketFlag.THIN | facts.BODY_DAMAGED
            copies["digest"][n] = 0
        copies["oid"][n], copies["size"][n] = writer.append(stored), len(stored)
    return copies


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


def _take_equivalences(builder: Builder, wreck: Wreck, older: State | None, config: Config) -> None:
    """The table that made the norms: from the wreck, from the older state, or from cf/, wherever it is still the same."""
    version = wreck.control.equiv
    if not version or wreck.is_sound(names.EQUIV):
        return  # what is sound is kept when the state is published
    tables_ = [load_equiv(config.equiv_path)] + ([older.equiv] if older is not None and older.control.equiv == version else [])
    same = next((table for table in tables_ if version_of(table) == version), None)
    if same is None:
        raise Corruption(
            f"{wreck.path / names.EQUIV} is damaged: put the url-equiv of that time into {config.directory} and run again"
        )
    builder.write(names.EQUIV, same.text.encode())
