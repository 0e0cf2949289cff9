"""Drives plan: reads a closed state, publishes N+1.reap with the plan."""

from __future__ import annotations

from collections import Counter

from shepherd.batch.partitions import Tick, partitions
from shepherd.config import Config
from shepherd.errors import NothingToDo
from shepherd.formats import tables
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import Kind, Records, Why
from shepherd.phases import plan, planrecords, quota
from shepherd.phases.plan import Chosen
from shepherd.phases.quota import Servers
from shepherd.store import names
from shepherd.store.database import Writer
from shepherd.store.names import StateName
from shepherd.store.state import State
from shepherd.urls import Footprints

READ = ("site", "type", "flags", "reason", "retry", "checked", "frequency", "weight")
WRITTEN = ("norm", "path", "site", "oid", "digest", "weight", "flags", "section")


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    parent = writer.furthest()
    if not parent.name.closed:
        raise NothingToDo(f"{parent.name} is not finished; run `shepherd cycle`, or the program that comes next")
    sites = parent.sites.slice(0, parent.sites.rows)
    server_table = parent.servers.slice(0, parent.servers.rows)
    servers = quota.servers_of(sites, server_table, now_s=now, plan=config.plan, politeness=config.politeness)
    chosen = _choose(parent, sites, servers, config, now, tick)
    records = _records(parent, sites, chosen, config.store.partition_rows)
    if not len(records):
        raise NothingToDo(_why_nothing(chosen))
    builder = writer.build(parent, StateName(parent.number + 1, "reap"), now)
    try:
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        builder.write_records(names.PLAN, FrameKind.PLAN, records)
        return writer.publish(builder, _report(records, chosen))
    finally:
        builder.close()


def _choose(state: State, sites: tables.Columns, servers: Servers, config: Config, now: int, tick: Tick) -> Chosen:
    pool: list[plan.Due] = []
    waiting: Counter[str] = Counter()
    most = config.plan.max_pages
    for start, stop in partitions(state.index.rows, config.store.partition_rows):
        part = state.index.slice(start, stop, READ)
        due, deferred = plan.candidates(part, sites, now_s=now, plan=config.plan, first_row=start)
        pool.append(due)
        waiting.update(deferred)
        if sum(map(len, pool)) > 2 * most:
            best, deferred = plan.keep_best(plan.join(pool), servers, most)
            pool = [best]
            waiting.update(deferred)
        tick(stop - start)
    chosen = plan.choose(plan.join(pool), servers, most)
    waiting.update(chosen.deferred)
    return Chosen(chosen.pages, chosen.robots_site_row, chosen.robots_priority, dict(waiting))


def _records(state: State, sites: tables.Columns, chosen: Chosen, step: int) -> Records:
    robots = Footprints(state.control.key).half("/robots.txt")
    parts = []
    for start, stop in partitions(state.index.rows, step):
        part = state.index.slice(start, stop, WRITTEN)
        parts.append(planrecords.page_records(part, sites, chosen, first_row=start))
        parts.append(planrecords.robots_records(part, sites, chosen, robots_path=robots, first_row=start))
    return planrecords.best_first(parts)


def _why_nothing(chosen: Chosen) -> str:
    waiting = ", ".join(f"{count} {reason}" for reason, count in sorted(chosen.deferred.items()) if count)
    return f"nothing is due{f' ({waiting})' if waiting else ''}; insert URLs or come back later"


def _report(records: Records, chosen: Chosen) -> dict[str, object]:
    planned = {why.name.lower(): int((records["why"] == why).sum()) for why in Why}
    return {
        "phase": "plan",
        "planned": len(records),
        "pages": int((records["kind"] == Kind.PAGE).sum()),
        "planned_by": {name: count for name, count in planned.items() if count},
        "deferred": {reason: count for reason, count in chosen.deferred.items() if count},
    }
