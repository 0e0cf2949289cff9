"""What the next reap is to gather: which rows are due, how urgent each is, and how many a server has time for.

`candidates` looks at one partition, `keep_best` shrinks what has come together so far, `choose` decides. Shrinking on the way
never changes the decision, so memory is bounded by the plan and not by the index. Every choice is by (priority, row): rows are
in the order of their footprints, so there are no ties.

A site without a fresh robots.txt costs its server one contact more, for that file; the pages stand behind it in the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.formats.tables import I64, U8, U32, Bools, Columns, Flag, Reason, RowType, Why
from shepherd.phases.keys import find_sites, run_starts, with_flag
from shepherd.phases.quota import Servers, unresolved

CLASS_ROBOTS = 15
CLASS_FORCED = 7
CLASS_OVERDUE = 5
CLASS_FREQUENT = 4
CLASS_NEW = 3
CLASS_DUE = 2
CLASS_RETRY = 1
AGE_STEPS = 8  # of the age bucket in one refresh cycle


@dataclass(frozen=True)
class Due:
    """Rows that may be planned: 17 bytes each, whatever the index holds."""

    row: U32  # of the whole index
    priority: U32
    why: U8
    site_row: I64  # of the sites table

    def take(self, rows: I64 | Bools) -> Due:
        return Due(self.row[rows], self.priority[rows], self.why[rows], self.site_row[rows])

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Chosen:
    """The plan's pages, best first, and the sites whose robots.txt is planned before them, with its priority."""

    pages: Due
    robots_site_row: I64
    robots_priority: U32
    deferred: Mapping[str, int]


def join(parts: list[Due]) -> Due:
    if not parts:
        return Due(np.zeros(0, np.uint32), np.zeros(0, np.uint32), np.zeros(0, np.uint8), np.zeros(0, np.int64))
    return Due(
        np.concatenate([part.row for part in parts]),
        np.concatenate([part.priority for part in parts]),
        np.concatenate([part.why for part in parts]),
        np.concatenate([part.site_row for part in parts]),
    )


def candidates(index: Columns, sites: Columns, *, now_s: int, plan: config.Plan, first_row: int) -> tuple[Due, dict[str, int]]:
    """The due rows of one partition that begins at `first_row`, and how many due rows must wait, by reason."""
    type_, flags, retry = index["type"], index["flags"], index["retry"]
    age_s = np.where(index["checked"] < now_s, now_s - index["checked"].astype(np.int64), 0)
    cycle_s = np.maximum(plan.refresh_s // np.maximum(index["frequency"], 1).astype(np.int64), 1)

    wanted = (type_ == RowType.UNGATHERED) | (type_ == RowType.GATHERED) | (type_ == RowType.ERROR)
    wanted &= ~with_flag(flags, Flag.ROBOTS)
    denied = wanted & (type_ == RowType.ERROR)
    denied &= (index["reason"] == Reason.ROBOTS_DENIED) | (index["reason"] == Reason.ROBOTS_UNREACHABLE)
    failed = (
        wanted & ~denied & ((type_ == RowType.ERROR) | ((type_ == RowType.GATHERED) & (retry > 0) & (retry < plan.max_retries)))
    )
    fine = wanted & (type_ == RowType.GATHERED) & ~failed
    due = fine & (age_s >= cycle_s)

    wait_s = np.int64(plan.retry_s) << np.clip(retry.astype(np.int64) - 1, 0, 32)
    class_ = np.zeros(len(type_), np.uint8)
    class_[failed & (age_s >= wait_s) & (retry < plan.max_retries)] = CLASS_RETRY
    class_[denied] = CLASS_RETRY  # its site decides below
    class_[due] = CLASS_DUE
    class_[wanted & (type_ == RowType.UNGATHERED)] = CLASS_NEW
    class_[due & (index["frequency"] > 1)] = CLASS_FREQUENT
    class_[fine & (2 * age_s >= 3 * cycle_s)] = CLASS_OVERDUE
    class_[wanted & with_flag(flags, Flag.REFRESH)] = CLASS_FORCED

    rows = np.flatnonzero(class_)
    site_row = find_sites(sites["site"], index["site"][rows])
    rows, site_row = rows[site_row >= 0], site_row[site_row >= 0]
    asked_since = sites["robots_checked"][site_row] > index["checked"][rows]
    stale = ~denied[rows] | (class_[rows] == CLASS_FORCED) | asked_since | (age_s[rows] >= plan.refresh_s)
    rows, site_row = rows[stale], site_row[stale]
    counts = {}
    for reason, waits in _waiting_sites(sites, now_s).items():
        later = waits[site_row]
        counts[reason] = int(np.count_nonzero(later))
        rows, site_row = rows[~later], site_row[~later]

    age = np.where(index["checked"][rows] > 0, np.minimum(AGE_STEPS * age_s[rows] // cycle_s[rows], 255), 0).astype(np.uint32)
    class_ = class_[rows]
    priority: U32 = class_.astype(np.uint32) << np.uint32(24) | index["weight"][rows].astype(np.uint32) << np.uint32(8) | age
    return Due((rows + first_row).astype(np.uint32), priority, WHY_OF_CLASS[class_], site_row), counts


WHY_OF_CLASS = np.zeros(CLASS_ROBOTS + 1, np.uint8)
WHY_OF_CLASS[CLASS_FORCED] = Why.FORCED
WHY_OF_CLASS[CLASS_OVERDUE] = Why.OVERDUE
WHY_OF_CLASS[CLASS_FREQUENT] = WHY_OF_CLASS[CLASS_DUE] = Why.DUE
WHY_OF_CLASS[CLASS_NEW] = Why.NEW
WHY_OF_CLASS[CLASS_RETRY] = Why.RETRY
WHY_OF_CLASS[CLASS_ROBOTS] = Why.ROBOTS


def _waiting_sites(sites: Columns, now_s: int) -> dict[str, Bools]:
    """Sites that cannot be asked in this reap; no site is in two of them."""
    no_address = unresolved(sites["qkey"]) & (sites["qkey_next"] > now_s)
    silent = (sites["robots_since"] > 0) & (sites["robots_next"] > now_s)
    return {"address does not resolve": no_address, "robots unreachable": silent & ~no_address}


def keep_best(due: Due, servers: Servers, max_pages: int) -> tuple[Due, dict[str, int]]:
    """Without the rows that no plan can contain, whatever rows are still to come; best first."""
    order = np.argsort(_rank_key(due))
    due = due.take(order)
    before, cost = _contacts_before(due, servers)
    room = servers.quota[servers.of_site[due.site_row]]
    fits = before < room
    used = np.where(fits, np.minimum(cost, room - before), 0)
    inside = np.cumsum(used) - used < max_pages
    idle = room == 0
    counts = {
        "server waits beyond the reap": int(np.count_nonzero(idle)),
        "over the server's quota": int(np.count_nonzero(~fits & ~idle)),
        "over the limit of the plan": int(np.count_nonzero(fits & ~inside)),
    }
    return due.take(fits & inside), counts


def choose(due: Due, servers: Servers, max_pages: int) -> Chosen:
    """The plan, from all candidates or from those that `keep_best` left."""
    due, counts = keep_best(due, servers, max_pages)
    before, cost = _contacts_before(due, servers)
    room = servers.quota[servers.of_site[due.site_row]]
    used = np.minimum(cost, room - before)
    total = np.cumsum(used)
    robots = cost == 2  # its first contact is the robots.txt: something of it fits, or the row would not be here
    page = (used == cost) & (total <= max_pages)
    counts["over the server's quota"] += int(np.count_nonzero(used < cost))
    counts["over the limit of the plan"] += int(np.count_nonzero((used == cost) & (total > max_pages)))
    weight = due.priority[robots] >> 8 & 0xFFFF
    return Chosen(due.take(page), due.site_row[robots], (np.uint32(CLASS_ROBOTS) << 24 | weight << 8).astype(np.uint32), counts)


def _rank_key(due: Due) -> np.typing.NDArray[np.uint64]:
    return (~due.priority).astype(np.uint64) << np.uint64(32) | due.row


def _contacts_before(due: Due, servers: Servers) -> tuple[I64, I64]:
    """For rows that stand best first: the contacts its server makes before each, and its own: 2 if it brings the robots.txt."""
    by_site = np.argsort(due.site_row, kind="stable")
    first_of_site = np.zeros(len(due), np.bool_)
    first_of_site[by_site] = run_starts(due.site_row[by_site])
    cost = 1 + (first_of_site & servers.needs_robots[due.site_row]).astype(np.int64)
    server = servers.of_site[due.site_row]
    by_server = np.argsort(server, kind="stable")
    running = np.cumsum(cost[by_server]) - cost[by_server]
    starts = run_starts(server[by_server])
    running -= np.maximum.accumulate(np.where(starts, running, 0))
    before = np.zeros(len(due), np.int64)
    before[by_server] = running
    return before, cost
