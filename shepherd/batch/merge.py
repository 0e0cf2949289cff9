"""Drives merge: contributions and inserted URLs become rows of N+1.merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shepherd.batch.partitions import Tick, whole_norms
from shepherd.batch.requests import MOST_TOLD, Requests, as_block, read_requests
from shepherd.batch.sites import SiteCounter, Sites, add_sites, keep_sites, read_sites, settings_of, write_sites
from shepherd.config import Config
from shepherd.errors import NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.formats import contrib, tables
from shepherd.formats.contrib import Block
from shepherd.formats.frame import FrameKind, pack_frame
from shepherd.formats.tables import U64, Array, Columns, ContribFlag, Flag, Reason, RowType, in_bucket
from shepherd.phases import keys, merge
from shepherd.phases.merge import Paths
from shepherd.phases.quota import unresolved
from shepherd.store import names
from shepherd.store.database import Writer
from shepherd.store.names import StateName
from shepherd.store.state import Builder, State
from shepherd.urls import Footprints

CONTRIBUTED = ("norm", "path", "site", "oid", "weight", "section", "flags")


@dataclass(frozen=True)
class Contributed:
    """All contributions, sorted by norm, and the distinct sites they name."""

    columns: dict[str, Array]
    site: U64
    norm: U64
    names: list[bytes]


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    parent = writer.furthest()
    if not parent.name.closed:
        raise NothingToDo(f"{parent.name} is not closed; run `shepherd cycle`, or the program that comes next")
    items = writer.database.inbox.waiting(parent.control.applied)
    waiting = parent.numbered(names.CONTRIB)
    filters = load_filter(config.filter_path)
    if not items and not waiting and parent.control.filter == filters.version:
        raise NothingToDo("no requests and no contributions wait, and the filter is the same")
    prints = Footprints(parent.control.key)
    builder = writer.build(parent, StateName(parent.number + 1, "merged"), now)
    try:
        builder.keep_objects()
        builder.keep_table("servers")
        builder.keep_logs(names.CONTRIB)
        requests = read_requests(items, filters, config)
        blocks = [*_waiting_blocks(parent, waiting), *_inserted_block(builder, requests, prints, filters)]
        builder.change(applied=(*builder.control.applied, *requests.names), filter=filters.version)
        contributed = _collect(blocks, config.merge.weight_gap)
        known = _known_sites(parent, filters)
        sites, refused = add_sites(known, contributed.site, contributed.norm, contributed.names, filters)
        sites = _look_up_soon(sites, contributed)
        counts = _merge(builder, parent, contributed, sites, refused, prints, config, tick)
        report = {"phase": "merge", "contributions": len(contributed.columns["norm"]), "requests": len(requests.urls), **counts}
        report |= {"refused sites": len(refused), "bad requests": len(requests.bad), "bad": requests.bad[:MOST_TOLD]}
        return writer.publish(builder, report)
    finally:
        builder.close()


def _inserted_block(builder: Builder, requests: Requests, prints: Footprints, filters: Filter) -> list[tuple[int, int, Block]]:
    """What was inserted, as a contrib file of its own: record will look for the texts there."""
    if not requests.urls:
        return []
    number, block = builder.control.contribs, as_block(requests, prints, filters.version)
    builder.write(names.contrib(number), pack_frame(FrameKind.CONTRIB, len(block), contrib.encode(block)))
    builder.change(contribs=number + 1)
    return [(number, 0, block)]


def _known_sites(parent: State, filters: Filter) -> Sites:
    """The site table, judged anew where the filter has changed."""
    sites = read_sites(parent)
    if parent.control.filter == filters.version:
        return sites
    return Sites(sites.columns | settings_of(sites.names, filters), sites.names)


def _look_up_soon(sites: Sites, contributed: Contributed) -> Sites:
    """An operator who inserts a URL again has mended something: a site without an address is looked up at once."""
    inserted = keys.with_flag(contributed.columns["flags"], ContribFlag.INSERTED)
    named = keys.find_sites(sites.columns["site"], keys.distinct(contributed.columns["site"][inserted]))
    again = named[named >= 0]
    again = again[unresolved(sites.columns["qkey"][again])]
    qkey_next = sites.columns["qkey_next"].copy()
    qkey_next[again] = 0
    return Sites(sites.columns | {"qkey_next": qkey_next}, sites.names)


def _waiting_blocks(state: State, numbers: list[int]) -> Iterator[tuple[int, int, Block]]:
    """File, ordinal of the first record, block; without texts."""
    for number in numbers:
        ordinal = 0
        for block in state.contribs(number, with_texts=False):
            yield number, ordinal, block
            ordinal += len(block)


def _collect(blocks: list[tuple[int, int, Block]], gap: int) -> Contributed:
    parts: dict[str, list[Array]] = {name: [np.zeros(0, tables.INDEX[name])] for name in CONTRIBUTED}
    for number, ordinal, block in blocks:
        own = keys.with_flag(block.flags, ContribFlag.OWN_WEIGHT)
        weight = block.parent_weight.astype(np.int64)
        parts["weight"].append(np.where(own, weight, np.maximum(weight - gap, 1)).astype(np.uint16))
        parts["oid"].append(np.uint64(tables.contrib_oid(number, ordinal)) + np.arange(len(block), dtype=np.uint64))
        for name in ("norm", "path", "site", "section", "flags"):
            parts[name].append(getattr(block, name))
    columns = {name: np.concatenate(values) for name, values in parts.items()}
    order = np.argsort(columns["norm"], kind="stable")
    empty = np.zeros(0, np.uint64)
    return Contributed(
        merge.take(columns, order),
        np.concatenate([empty, *(b.sites for _n, _o, b in blocks)]),
        np.concatenate([empty, *(b.norms for _n, _o, b in blocks)]),
        [name for _n, _o, b in blocks for name in b.names],
    )


def _merge(
    builder: Builder,
    parent: State,
    contributed: Contributed,
    sites: Sites,
    refused: U64,
    prints: Footprints,
    config: Config,
    tick: Tick,
) -> dict[str, int]:
    paths = Paths(prints.half("/robots.txt"), prints.half("/"))
    urls = contributed.columns
    urls = merge.take(urls, ~np.isin(urls["site"], refused))
    robots = _robots_rows(urls, sites, paths, builder.name.number)
    counter = SiteCounter(sites.columns["site"])
    counts: Counter[str] = Counter()
    writer = builder.table("index")
    ranges = list(whole_norms(parent.index, config.store.partition_rows))
    borders = parent.index["norm"].take(np.array([start for start, _stop in ranges[1:]], np.int64))
    url_parts, robot_parts = _split(urls, borders), _split(robots, borders)
    for (start, stop), mine, files in zip(ranges, url_parts, robot_parts, strict=True):
        old = parent.index.slice(start, stop)
        merged = merge.merge(old, mine, files, paths, state=builder.name.number, max_retries=config.plan.max_retries)
        rows, lonely = _without_lonely_robots(_with_sizes(merged.columns, parent))
        writer.append(rows)
        counts.update(merged.counts)
        counts["robots files of empty sites"] += lonely
        counter.add(rows)
        tick(stop - start)
    builder.finish_table(writer)
    kept = keep_sites(Sites(sites.columns | counter.columns(), sites.names), counter.documents > 0)
    write_sites(builder, kept)
    return dict(counts) | {"sites": len(kept)}


def _split(columns: Columns, borders: U64) -> list[dict[str, Array]]:
    """Rows sorted by norm, cut where the partitions of the index begin."""
    cuts = [0, *np.searchsorted(columns["norm"], borders).tolist(), len(columns["norm"])]
    return [{name: c[a:b] for name, c in columns.items()} for a, b in pairwise(cuts)]


def _robots_rows(urls: Columns, sites: Sites, paths: Paths, state: int) -> dict[str, Array]:
    """A robots row for every site; merge drops those that are known. What a reap already fetched counts."""
    site = sites.columns["site"]
    best = np.ones(len(site), np.uint16)
    np.maximum.at(best, keys.find_sites(site, urls["site"]), urls["weight"])
    rows = merge.robots_rows(site, sites.columns["norm"], best, paths, state=state)
    at = keys.find_sites(sites.columns["site"], rows["site"])
    oid, checked = sites.columns["robots_oid"][at], sites.columns["robots_checked"][at]
    have = in_bucket(oid)
    rows["oid"] = np.where(have, oid, rows["oid"])
    rows["type"] = np.where(have, np.uint8(RowType.GATHERED), rows["type"])
    rows["reason"] = np.where(have, np.uint8(Reason.GATHERED), rows["reason"])
    rows["status"] = np.where(have, sites.columns["robots_status"][at], rows["status"])
    for name in ("gathered", "checked", "changed"):
        rows[name] = np.where(have, checked, rows[name])
    return rows


def _with_sizes(rows: Columns, parent: State) -> dict[str, Array]:
    """A robots file that was fetched before it had a row: its bucket tells size and digest."""
    bare = np.flatnonzero(keys.with_flag(rows["flags"], Flag.ROBOTS) & in_bucket(rows["oid"]) & (rows["size"] == 0))
    if not len(bare):
        return dict(rows)
    columns = dict(rows) | {name: rows[name].copy() for name in ("size", "digest")}
    for row, oid in zip(bare.tolist(), rows["oid"][bare].tolist(), strict=True):
        stored = parent.objects.head(oid)
        columns["size"][row] = stored.header.length
        columns["digest"][row] = int.from_bytes(stored.attributes.get("D", b"")[:8], "little")
    return columns


def _without_lonely_robots(rows: Columns) -> tuple[dict[str, Array], int]:
    """A robots file stays only while its site has another row."""
    robots = keys.with_flag(rows["flags"], Flag.ROBOTS)
    lonely = robots & ~np.isin(rows["site"], rows["site"][~robots])
    return (merge.take(rows, ~lonely) if lonely.any() else dict(rows)), int(np.count_nonzero(lonely))
