"""Drives plan: from a closed state to N+1.reap; of the tables only the column `deferred` changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from shepherd.arrays.lookup import Lookup
from shepherd.arrays.partitions import Tick, no_progress, partitions
from shepherd.arrays.pool import ordered, tasks
from shepherd.config import Config, Plan, last_cf
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.plan import anticipation as anticipate
from shepherd.cycle.plan import judgement
from shepherd.cycle.plan import pool as planpool
from shepherd.cycle.plan import records as planrecords
from shepherd.cycle.plan import rules as plan
from shepherd.cycle.plan.judgement import Refusals
from shepherd.cycle.plan.pool import Marks, PlannedRows, Pool
from shepherd.cycle.plan.records import Places, RobotsFiles
from shepherd.cycle.plan.rules import Due, Favours
from shepherd.errors import NothingToDo
from shepherd.filters import Filter, load_filter
from shepherd.formats import tables
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import I64, U8, Columns, Deferred, Records
from shepherd.politeness import quota
from shepherd.politeness.quota import Servers
from shepherd.politeness.site_pauses import owners_in
from shepherd.politeness.strange_ports import strange_sites
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.columns import Column
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.urls import Footprints

READ = ("path", "site", "type", "flags", "reason", "retry", "checked", "frequency", "weight")
KEYS = ("norm", "path", "site")
WRITTEN = (*KEYS, "oid", "digest", "weight", "flags", "section")
COLUMN = "deferred"
OF_SITES = (
    *("site", "norm", "qkey", "qkey_checked", "qkey_next", "robots_checked", "robots_next", "robots_since"),
    *("delay_ms", "crawl_delay_ms", "policy", "avg_ms", "group", "queue_bonus", "refresh_boost", "pause_s", "pause_end"),
)

Range = tuple[int, int]


@dataclass(frozen=True)
class _Pass:
    """What the work on every partition needs."""

    sites: Columns
    favours: Favours
    lookup: Lookup
    settings: Plan
    now: int
    allowed_since: int  # network.allow was another before: what the guard has refused until then is tried again
    refusals: Refusals = judgement.NOTHING


@dataclass(frozen=True)
class _Input:
    """What every step works on."""

    state: State
    shared: _Pass
    servers: Servers
    ranges: list[Range]
    jobs: int

    def refusing(self, refusals: Refusals) -> _Input:
        return replace(self, shared=replace(self.shared, refusals=refusals))


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    parent = writer.furthest()
    if not parent.name.closed:
        raise not_now(parent, "a plan needs a closed state")
    filters = judgement.filter_to_judge_by(writer.database, parent, load_filter(config.filter_path))
    allowed_since = last_cf.allowed_since(writer.database.path, config.network.allow, now)
    inputs = _read(parent, config, now, jobs, allowed_since)
    most = quota.most_contacts(config.plan, parent.control.speed)
    inputs, planned_rows, marks = _choose_by_filter(inputs, most, tick, filters)
    contacts = planpool.contacts_of(planned_rows, inputs.servers)
    places = _places(inputs, planned_rows)
    planned = planrecords.page_rows(places)
    column = _Deferred(inputs.ranges, marks, planpool.verdicts(inputs.servers, contacts), planned)
    counts, changed = column.counts(parent.index[COLUMN])
    room = most - int(contacts.sum())
    if config.plan.anticipate and len(planned_rows.pages) and room > 0 and not counts[Deferred.PLAN_FULL]:
        more = _anticipated(inputs, planned_rows, contacts, marks, room)
        if filters is not None:
            more = judgement.without(more, judgement.rejected(parent, filters, np.sort(more.pages.row), jobs))
        planned_rows = anticipate.with_more(planned_rows, more)
        contacts, places = planpool.contacts_of(planned_rows, inputs.servers), _places(inputs, planned_rows)
    records = _records(inputs, places)
    if not len(records):
        raise NothingToDo(_why_nothing(counts))
    builder = writer.build(parent, StateName(parent.number + 1, "reap"), now)
    try:
        if changed:
            column.write(builder)
        builder.keep_table("index", (COLUMN,) if changed else ())
        for table in ("sites", "servers"):
            builder.keep_table(table)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        builder.write_records(names.PLAN, FrameKind.PLAN, records)
        return writer.publish(builder, planrecords.report(records, contacts, counts, inputs.servers, config.plan, most))
    finally:
        builder.close()


def _read(state: State, config: Config, now: int, jobs: int, allowed_since: int) -> _Input:
    sites = state.sites.slice(0, state.sites.rows, OF_SITES)
    if allowed_since:
        refused = quota.unresolved(sites["qkey"]) & (sites["qkey_checked"] <= allowed_since)
        sites["qkey_next"] = np.where(refused, 0, sites["qkey_next"]).astype(np.uint32)
    servers = quota.servers_of(
        sites,
        state.servers.slice(0, state.servers.rows),
        now_s=now,
        plan=config.plan,
        politeness=config.politeness,
        unsure_ms=state.control.unsure,
        owners=partial(owners_in(state), 0),
        strange=strange_sites(state),
    )
    ranges = list(partitions(state.index.rows, config.store.partition_rows))
    shared = _Pass(sites, Favours.of(sites), Lookup(sites["site"]), config.plan, now, allowed_since)
    return _Input(state, shared, servers, ranges, jobs)


def _due_of(state: State, shared: _Pass, part: Range) -> tuple[Due, Marks]:
    start, stop = part
    index = state.index.slice(start, stop, READ)
    due = plan.due_rows(
        index,
        shared.sites,
        shared.favours,
        shared.lookup,
        now_s=shared.now,
        plan=shared.settings,
        first_row=start,
        allowed_since=shared.allowed_since,
    )
    due = shared.refusals.drop_from(due)
    return due, Marks.of(due, first_row=start, rows=stop - start)


def _choose_by_filter(inputs: _Input, most: int, tick: Tick, filters: Filter | None) -> tuple[_Input, PlannedRows, list[Marks]]:
    """The best rows that the filter in force accepts."""
    if filters is None:
        return inputs, *_choose(inputs, most, tick)
    inputs = inputs.refusing(judgement.outside(inputs.state, filters))
    accepted = np.zeros(0, np.uint32)
    for turn in range(judgement.MOST_ROUNDS):
        planned, marks = _choose(inputs, most, no_progress if turn else tick)
        unknown = np.setdiff1d(planned.pages.row, accepted)
        rejected = judgement.rejected(inputs.state, filters, unknown, inputs.jobs)
        if not len(rejected):
            return inputs, planned, marks
        accepted = np.union1d(accepted, np.setdiff1d(unknown, rejected))
        inputs = inputs.refusing(inputs.shared.refusals.with_rows(rejected))
    return inputs, judgement.without(planned, rejected), marks


def _choose(inputs: _Input, most: int, tick: Tick) -> tuple[PlannedRows, list[Marks]]:
    pool, marks = Pool(), []
    work = tasks(_due_of, inputs.state, inputs.shared, inputs.ranges)
    for (start, stop), (due, mark) in zip(inputs.ranges, ordered(work, inputs.jobs), strict=True):
        pool = planpool.add(pool, due, inputs.servers, most)
        marks.append(mark)
        tick(stop - start)
    return planpool.choose(pool, inputs.servers, most), marks


def _anticipated(inputs: _Input, planned_rows: PlannedRows, contacts: I64, marks: list[Marks], room: int) -> PlannedRows:
    """What would fall due next, as far as there is room: a second look at the index, if what is due has not filled the plan."""
    servers = anticipate.room_left(inputs.servers, planned_rows, contacts)
    pool = Pool()
    work = tasks(_soon_of, inputs.state, inputs.shared, zip(inputs.ranges, marks, strict=True))
    for early in ordered(work, inputs.jobs):
        pool = planpool.add(pool, early, servers, room)
    return planpool.choose(pool, servers, room)


def _soon_of(state: State, shared: _Pass, part: tuple[Range, Marks]) -> Due:
    (start, stop), mark = part
    index = state.index.slice(start, stop, READ)
    due = np.unpackbits(mark.due, count=stop - start)
    early = anticipate.anticipated_rows(
        index, shared.sites, shared.favours, shared.lookup, due, now_s=shared.now, plan=shared.settings, first_row=start
    )
    return shared.refusals.drop_from(early)


def _places(inputs: _Input, planned_rows: PlannedRows) -> Places:
    files = planrecords.robots_files(inputs.shared.sites, planned_rows)
    work = tasks(_robots_of, inputs.state, files, inputs.ranges)
    return planrecords.places(plan.join(list(ordered(work, inputs.jobs))), planned_rows.pages)


def _robots_of(state: State, files: RobotsFiles, part: Range) -> Due:
    path = Footprints(state.control.key).robots
    return planrecords.find_robots(state.index.slice(*part, KEYS), files, robots_path=path, first_row=part[0])


def _records(inputs: _Input, places: Places) -> Records:
    parts = ((start, stop, planrecords.part_of(places, start, stop - start)) for start, stop in inputs.ranges)
    work = tasks(_records_of, inputs.state, inputs.shared.sites, parts)
    return planrecords.put_together(len(places.due), ordered(work, inputs.jobs))


def _records_of(state: State, sites: Columns, part: tuple[int, int, Places]) -> tuple[I64, Records]:
    start, stop, places = part
    return places.place, planrecords.records(state.index.slice(start, stop, WRITTEN), sites, places.due, first_row=start)


@dataclass(frozen=True)
class _Deferred:
    """The column `deferred`, made anew whenever it is looked at: that is cheap, and it need not be in memory."""

    ranges: list[Range]
    marks: list[Marks]
    verdict: U8
    planned: tables.U32

    def parts(self) -> Iterator[U8]:
        for (start, stop), mark in zip(self.ranges, self.marks, strict=True):
            yield planpool.deferred(mark, self.verdict, self.planned, first_row=start, rows=stop - start)

    def counts(self, old_column: Column) -> tuple[I64, bool]:
        """How many rows, by reason; and whether the column is no longer the old one."""
        total, changed = np.zeros(max(Deferred) + 1, np.int64), False
        for (start, stop), part in zip(self.ranges, self.parts(), strict=True):
            total += [np.count_nonzero(part == np.uint8(reason)) for reason in range(len(total))]
            changed = changed or not np.array_equal(old_column[start:stop], part)
        return total, changed

    def write(self, builder: Builder) -> None:
        table = builder.table("index", (COLUMN,))
        for part in self.parts():
            table.append({COLUMN: part})
        builder.finish_table(table)


def _why_nothing(deferred: I64) -> str:
    waiting = ", ".join(f"{count} {reason}" for reason, count in sorted(planrecords.reasons(deferred).items()))
    return f"nothing is due{f' ({waiting})' if waiting else ''}; insert URLs or come back later"
