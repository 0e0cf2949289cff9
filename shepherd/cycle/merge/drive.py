"""Drives merge: contributions and requests become rows of N+1.merged.

Three passes, each bounded by a range of footprints: what waits is put in the order of norms (waiting.py reads the inbox,
contributions.py sorts), the index is merged range by range, and from its tallies of sites the site table is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, pairwise

import numpy as np

from shepherd.arrays import keys
from shepherd.arrays.column_spill import ColumnSpill, SpilledRows
from shepherd.arrays.distinct_urls import Paths, take
from shepherd.arrays.partitions import Tick, even_borders, rows_before, whole_norms
from shepherd.arrays.pool import ordered, tasks
from shepherd.config import Config
from shepherd.cycle.common.limits import wants_select
from shepherd.cycle.common.norms import norm_map, version_of
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.merge import rules as merge
from shepherd.cycle.merge.contributions import CONTRIBUTED, NAMED, ContributionSpill
from shepherd.cycle.merge.edits import Op
from shepherd.cycle.merge.requests import MOST_LISTED
from shepherd.cycle.merge.rules import MergedRows
from shepherd.cycle.merge.sites import TALLIED, SiteMerge, write_sites
from shepherd.cycle.merge.waiting import Waiting, survey
from shepherd.equiv import load_equiv
from shepherd.errors import NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.formats.frame import Frame
from shepherd.formats.tables import NO_OID, U64, Array, Columns, Records, in_bucket
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.urls import Footprints

Range = tuple[int, int]
RECORD_BYTES = 60  # of a contribution, about, with its text: for a guess at their number


@dataclass(frozen=True)
class _Pass:
    """What the work on every range needs."""

    urls: SpilledRows
    refused: U64
    paths: Paths
    firsts: U64  # the sites that stand for their class
    number: int  # of the state that is made
    now: int
    max_retries: int


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    parent = writer.furthest()
    if not parent.name.closed:
        raise not_now(parent, "a merge needs a closed state")
    key = parent.control.key
    inbox_survey = survey(writer.database.inbox.waiting(parent.control.applied), key)
    filters = load_filter(config.filter_path)
    same = parent.control.filter == filters.version and parent.control.equiv == version_of(load_equiv(config.equiv_path))
    same &= not wants_select(parent.control, config)
    if same and not inbox_survey.items and not parent.numbered(names.CONTRIB):
        closed = "".join(f"; {why}" for why in inbox_survey.refused[:1])
        raise NothingToDo(f"no requests and no contributions wait; weights, limits, filter and url-equiv are the same{closed}")
    prints = Footprints(key)
    norms, paths = norm_map(parent.equiv, prints), Paths.of(prints)
    waiting = Waiting(inbox_survey, filters, config, prints, norms, paths)
    builder = writer.build(parent, StateName(parent.number + 1, "merged"), now)
    try:
        builder.keep_objects()
        builder.keep_table("servers")
        builder.keep_logs(names.CONTRIB)
        builder.change(applied=(*builder.control.applied, *(item.name for item in inbox_survey.items)), filter=filters.version)
        counts = _merge(builder, parent, waiting, filters, config, now, tick, jobs)
        bad = [*inbox_survey.refused, *waiting.faults.words(), *waiting.in_vain.words()]
        bad_count = len(inbox_survey.refused) + waiting.faults.count + waiting.in_vain.count
        report = {"phase": "merge", **counts, "bad requests": bad_count, "bad": bad[:MOST_LISTED]}
        return writer.publish(builder, report)
    finally:
        builder.close()


def _merge(
    builder: Builder, parent: State, waiting: Waiting, filters: Filter, config: Config, now: int, tick: Tick, jobs: int
) -> dict[str, int]:
    norm_borders, site_borders = _borders(parent, waiting.read_edits(), config.store.partition_rows)
    with ExitStack() as stack:
        urls = stack.enter_context(ColumnSpill(builder.scratch, CONTRIBUTED, "norm", norm_borders))
        named = stack.enter_context(ColumnSpill(builder.scratch, NAMED, "site", site_borders, with_texts=True))
        tallies = stack.enter_context(ColumnSpill(builder.scratch, TALLIED, "site", site_borders))
        intake = ContributionSpill(parent, waiting.norms, config.merge.weight_gap, urls, named, now)
        _take_in(intake, builder, parent, waiting)
        edits = waiting.edits
        of_sites = intake.refused, waiting.paths, waiting.norms.firsts
        shared = _Pass(urls.settle(), *of_sites, builder.name.number, now, config.plan.max_retries)
        ranges = pairwise(rows_before(parent.index["norm"][0 : parent.index.rows], norm_borders).tolist())
        work = tasks(_partition, parent, shared, zip(count(), ranges, _cut(edits, norm_borders)))
        counts: Counter[str] = Counter()
        index = builder.table("index")
        for merged in ordered(work, jobs):
            index.append(merged.columns)
            tallies.add({name: getattr(merged.sites, name) for name in TALLIED})
            counts.update(merged.counts)
            tick(len(merged.columns["norm"]))
        builder.finish_table(index)
        refreshed = edits["site"][edits["op"] == Op.REFRESH]
        asked_for = keys.distinct(np.concatenate([intake.inserted, refreshed]))
        sites = SiteMerge(tallies.settle(), named.settle(), filters, asked_for)
        counts.update(write_sites(builder, parent, sites, site_borders, jobs))
    requests = waiting.inserted + len(edits)
    return {"requests": requests, "contributions": urls.rows, "refused sites": len(intake.refused), **counts}


def _partition(parent: State, shared: _Pass, part: tuple[int, Range, Records]) -> MergedRows:
    """One range: its number, its rows in the parent, and the edits of it."""
    number, rows, edits = part
    old, contributed = parent.index.slice(*rows), shared.urls.read(number)
    if len(shared.refused):
        contributed = take(contributed, keys.find_sites(shared.refused, contributed["site"]) < 0)
    facts = partial(_robots_facts, parent)
    return merge.merge(
        *(old, contributed, edits, facts, shared.paths, shared.firsts),
        state=shared.number,
        now_s=shared.now,
        max_retries=shared.max_retries,
    )


def _borders(parent: State, requests: int, step: int) -> tuple[U64, U64]:
    """Where ranges of norms and of sites begin, so that none has many more than `step` rows, old and new.

    A normalised site is never cut, so its rows must fit into memory; select's hard limit sees to that.
    """
    logs = (parent.control.files[names.contrib(n)].length for n in parent.numbered(names.CONTRIB))
    waiting = sum(length // RECORD_BYTES for length in logs) + requests
    starts = np.array([start for start, _stop in whole_norms(parent.index, step)][1:], np.int64)
    by_rows = parent.index["norm"].take(starts)
    norm = keys.distinct(np.concatenate([by_rows, even_borders(1 + waiting // step)]))
    return norm, even_borders(1 + (parent.sites.rows + waiting // 4) // step)


def _take_in(intake: ContributionSpill, builder: Builder, parent: State, waiting: Waiting) -> None:
    """All contributions. What waits in the inbox becomes a file like the others: record will look for the texts there."""
    for number in parent.numbered(names.CONTRIB):
        ordinal = 0
        for block in parent.contrib_keys(number):
            intake.add(number, ordinal, block)
            ordinal += len(block)
    frames = _of_inbox(intake, builder.control.contribs, waiting)
    first = next(frames, None)
    if first is not None:
        builder.write_frames(names.contrib(builder.control.contribs), chain((first,), frames))
        builder.change(contribs=builder.control.contribs + 1)
    intake.end()


def _of_inbox(intake: ContributionSpill, number: int, waiting: Waiting) -> Iterator[Frame]:
    """The frames of contrib file `number`, each taken in as it is read."""
    ordinal = 0
    for block in waiting.contributed():
        intake.add(number, ordinal, block.keys, block.rows)
        ordinal += len(block.keys)
        yield block.frame


def _cut(edits: Records, borders: U64) -> list[Records]:
    cuts = rows_before(np.ascontiguousarray(edits["norm"]), borders).tolist()
    return [edits[a:b] for a, b in pairwise(cuts)]


def _robots_facts(parent: State, site: U64) -> Columns:
    """What a reap has found out about robots files that have no row yet: cork makes sites, too, when a page moves to one."""
    row = keys.find_sites(parent.sites["site"][0 : parent.sites.rows], site)
    has_row = np.flatnonzero(row >= 0)
    facts: dict[str, Array] = {name: np.zeros(len(site), np.uint64) for name in ("status", "checked", "size", "digest")}
    facts["oid"] = np.full(len(site), NO_OID, np.uint64)
    facts["oid"][has_row] = parent.sites["robots_oid"].take(row[has_row])
    facts["status"][has_row] = parent.sites["robots_status"].take(row[has_row])
    facts["checked"][has_row] = parent.sites["robots_checked"].take(row[has_row])
    for n in np.flatnonzero(in_bucket(facts["oid"])).tolist():
        stored = parent.objects.head(int(facts["oid"][n]))
        facts["size"][n] = stored.header.length
        facts["digest"][n] = int.from_bytes(stored.attributes.get("D", b"")[:8], "little")
    return facts | {"gathered": facts["checked"], "changed": facts["checked"]}
