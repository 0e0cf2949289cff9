"""The plan as it is written: its records, with all that the dispatcher needs to know of each row, and its report.

First the robots files are looked up in the index, partition by partition; then it is known which record stands where, and each
partition's records are put into their places. A plan of some million records is never sorted or copied as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import by_key, find_rows
from shepherd.cycle.plan.pool import PlannedRows, best_first
from shepherd.cycle.plan.rules import CLASS_ROBOTS, WHY_OF_CLASS, Due, join
from shepherd.formats.tables import I64, PLAN, U32, U64, Columns, Deferred, Kind, Records, Why
from shepherd.formats.vocabulary import word
from shepherd.politeness.quota import Servers

PLAIN = np.dtype((np.void, PLAN.itemsize))  # np.put moves it as one piece: three times as fast as indexing rows of words
SERVERS_LISTED = 10
KIND_OF_CLASS = np.full(CLASS_ROBOTS + 1, Kind.PAGE, np.uint8)
KIND_OF_CLASS[CLASS_ROBOTS] = Kind.ROBOTS


@dataclass(frozen=True)
class RobotsFiles:
    """The planned robots files, sorted by norm, so that a partition of the index finds its own."""

    norm: U64
    site: U64
    site_row: U32
    priority: U32


@dataclass(frozen=True)
class Places:
    """What is planned, in the order of the index, and the place of each in the plan."""

    due: Due
    place: I64


def robots_files(sites: Columns, planned: PlannedRows) -> RobotsFiles:
    norm = sites["norm"][planned.robots_site_row]
    order = np.argsort(norm, kind="stable")
    site_row = planned.robots_site_row[order]
    return RobotsFiles(norm[order], sites["site"][site_row], site_row, planned.robots_priority[order])


def find_robots(index: Columns, robots: RobotsFiles, *, robots_path: int, first_row: int) -> Due:
    """Those of the robots files whose row lies in this partition. A site that has no such row gets its file without one."""
    norm = index["norm"]
    if not len(norm):
        return join([])
    here = slice(np.searchsorted(robots.norm, norm[0]), np.searchsorted(robots.norm, norm[-1], side="right"))
    paths = np.full(len(robots.norm[here]), robots_path, np.uint64)
    row = find_rows(norm, index["path"], index["site"], robots.norm[here], paths, robots.site[here])
    has_row = row >= 0
    rows = (row[has_row] + first_row).astype(np.uint32)
    return Due(rows, robots.priority[here][has_row], robots.site_row[here][has_row])


def places(robots: Due, pages: Due) -> Places:
    """Best first: by priority, then by row. The pages already stand so, and any robots file before all of them."""
    robots = robots.take(by_key(robots.row))
    planned = join([robots.take(best_first(robots.priority)), pages])
    place = by_key(planned.row)
    return Places(planned.take(place), place)


def page_rows(planned: Places) -> U32:
    """The rows of all planned pages, sorted."""
    return planned.due.row.compress(planned.due.priority >> np.uint32(24) != np.uint32(CLASS_ROBOTS))


def part_of(planned: Places, first_row: int, rows: int) -> Places:
    """What lies in one partition."""
    low, high = np.searchsorted(planned.due.row, np.array([first_row, first_row + rows], np.uint32))
    here, due = slice(low, high), planned.due
    return Places(Due(due.row[here], due.priority[here], due.site_row[here]), planned.place[here])


def records(index: Columns, sites: Columns, planned: Due, *, first_row: int) -> Records:
    """The records of these rows of one partition."""
    rows, class_ = planned.row.astype(np.int64) - first_row, planned.priority >> np.uint32(24)
    plan_records = np.zeros(len(rows), PLAN)
    for name in ("norm", "path", "site", "oid", "digest", "weight", "flags", "section"):
        plan_records[name] = index[name].take(rows)
    plan_records["row"], plan_records["priority"] = planned.row, planned.priority
    plan_records["qkey"] = sites["qkey"].take(planned.site_row)
    plan_records["why"] = WHY_OF_CLASS.take(class_)
    plan_records["kind"] = KIND_OF_CLASS.take(class_)
    return plan_records


def put_together(count: int, parts: Iterable[tuple[I64, Records]]) -> Records:
    """The plan, from the places and records of its parts."""
    plan = np.zeros(count, PLAN)
    plain = plan.view(PLAIN)
    for place, part in parts:
        np.put(plain, place, part.view(PLAIN))
    return plan


# --- the report: when each server is done, and how much of their time is used, in whole numbers -------------------


def report(records: Records, contacts: I64, deferred: I64, servers: Servers, plan: config.Plan, most: int) -> dict[str, object]:
    """`contacts` is by server, `deferred` by reason; `most` is how many contacts the plan had room for."""
    why = np.bincount(records["why"], minlength=max(Why) + 1)
    return {
        "phase": "plan",
        "planned": len(records),
        "pages": int(np.count_nonzero(records["kind"] == Kind.PAGE)),
        "planned_by": {word(reason): int(why[reason]) for reason in Why if why[reason]},
        "deferred": reasons(deferred),
        "room": most,
        **_servers(contacts, servers, plan),
    }


def reasons(deferred: I64) -> dict[str, int]:
    """In words, without those that do not occur."""
    return {word(reason): int(deferred[reason]) for reason in Deferred if reason and deferred[reason]}


def _servers(contacts: I64, servers: Servers, plan: config.Plan) -> dict[str, object]:
    """Each slot of a server makes its share of the contacts one after the other, and waits the delay between them."""
    number = np.flatnonzero(contacts)
    count, timing = contacts[number], servers.timing.of(number)
    turns = -(-count // timing.slots)
    end_ms = timing.start_ms + turns * timing.avg_ms + (turns - 1) * timing.delay_ms
    end_s = -(-end_ms // 1000)
    room_ms = plan.reap_s * 1000
    used_ms = np.minimum(-(-count * (timing.delay_ms + timing.avg_ms) // timing.slots), room_ms)
    # The latest first; those that end together by their number: the order of a whole sort, at the cost of ten.
    latest = np.lexsort((number, -end_s))[:SERVERS_LISTED]
    return {
        "servers": len(number),
        "expected_s": int(end_s.max(initial=0)),
        "utilisation_permille": int(used_ms.sum()) * 1000 // max(len(number) * room_ms, 1),
        "latest": [
            {"server": servers.name(int(number[n])), "contacts": int(count[n]), "expected_s": int(end_s[n])} for n in latest
        ],
    }
