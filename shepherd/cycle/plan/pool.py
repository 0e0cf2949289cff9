"""Chooses the plan among all that is due: best first, as far as each server and the whole plan have room.

A pool takes in what is due, partition by partition. When it is too full, `fold` drops rows that no plan can contain, whatever is
still to come: those behind as many better rows of their server as that has time for, and those behind as many better rows as the
plan has room for. Of both it remembers the priority that had to be beaten, so that most later rows are dropped at the door; rows
come in the order of the index, so one that only equals it stands behind. Memory is thus bounded by the plan, also where a few
servers hold most of the best rows. Folding counts pages alone: robots files can only make the room smaller. `choose` counts all.

A site without a fresh robots.txt costs its server one contact more, for that file; the pages stand behind it in the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import by_key, run_ranks, run_starts
from shepherd.cycle.plan.rules import CLASS_ROBOTS, Due, join
from shepherd.formats.tables import I64, U8, U32, Bools, Deferred
from shepherd.politeness.quota import I32, Servers

LEAST_ROWS = 1_000_000  # a pool this small is not worth folding
NOTHING_BEATS = 0xFFFFFFFF


@dataclass(frozen=True)
class Pool:
    """What may still be planned, in the order of the index, and the priorities that a row must beat: of all, and by server."""

    parts: tuple[Due, ...] = ()
    bar: int = -1
    bars: U32 | None = None  # None = no server has been full yet

    def __len__(self) -> int:
        return sum(map(len, self.parts))


@dataclass(frozen=True)
class PlannedRows:
    """The plan's pages, best first, and the sites whose robots.txt is planned before them, with its priority."""

    pages: Due
    robots_site_row: U32
    robots_priority: U32


def add(pool: Pool, due: Due, servers: Servers, most: int, limit: int = LEAST_ROWS) -> Pool:
    """The pool with the due rows of the next partition, folded if it has become larger than `limit` and twice the plan."""
    if pool.bar >= 0:
        due = due.take(due.priority > pool.bar)
    fits = servers.shut.take(due.site_row) == 0
    if pool.bars is not None:
        fits &= due.priority > pool.bars.take(servers.of_site.take(due.site_row))
    due = due.take(fits)
    grown = Pool((*pool.parts, due), pool.bar, pool.bars)
    return fold(grown, servers, most) if len(grown) > max(2 * most, limit) else grown


def fold(pool: Pool, servers: Servers, most: int) -> Pool:
    """Without the rows that cannot be planned: at most `most` are left."""
    due = _within_slow_sites(join(list(pool.parts)), servers)
    server = servers.of_site.take(due.site_row)
    full = np.bincount(server, minlength=len(servers.quota)) > servers.quota
    crowded = np.flatnonzero(full.take(server))
    bars, bar = pool.bars, pool.bar
    if len(crowded):
        bars = np.zeros(len(servers.quota), np.uint32) if bars is None else bars.copy()
        order = crowded.take(best_first(due.priority.take(crowded)))
        order = order.take(by_key(_renumbered(full, server.take(order))))
        of_it = server.take(order)
        rank, room = run_ranks(run_starts(of_it)), servers.quota.take(of_it)
        last = order.compress(rank == room - 1)
        bars[server.take(last)] = due.priority.take(last)
        fits = np.ones(len(due), np.bool_)
        fits[order.compress(rank >= room)] = False
        due = due.take(fits)
    if len(due) > most:
        due, bar = _best(due, most)
    return Pool((due,), bar, bars)


def _within_slow_sites(due: Due, servers: Servers) -> Due:
    """Of sites with a quota of their own the best rows, as many as it has."""
    if not len(servers.slow_site):
        return due
    place = np.minimum(np.searchsorted(servers.slow_site, due.site_row), len(servers.slow_site) - 1)
    slow = np.flatnonzero(servers.slow_site[place] == due.site_row)
    slow = slow.take(best_first(due.priority.take(slow)))
    slow = slow.take(by_key(due.site_row.take(slow)))
    rank = run_ranks(run_starts(due.site_row.take(slow)))
    fits = np.ones(len(due), np.bool_)
    fits[slow.compress(rank >= servers.slow_quota.take(place.take(slow)))] = False
    return due.take(fits)


def _best(due: Due, most: int) -> tuple[Due, int]:
    """The best so many, in the order of the index, and the priority of the worst of them."""
    if not most:
        return join([]), NOTHING_BEATS
    bar = np.partition(due.priority, len(due) - most)[len(due) - most]
    above, equal = due.priority > bar, np.flatnonzero(due.priority == bar)
    above[equal[: most - np.count_nonzero(above)]] = True
    return due.take(above), int(bar)


def choose(pool: Pool, servers: Servers, most: int) -> PlannedRows:
    """The plan."""
    due = join(list(fold(pool, servers, most).parts))
    due = due.take(best_first(due.priority))
    before, cost = _contacts_before(due, servers)
    room = servers.quota.take(servers.of_site.take(due.site_row))
    used = np.minimum(cost, np.maximum(room - before, 0))
    total = np.cumsum(used)
    robots = (cost == 2) & (used > 0) & (total - used < most)
    page = (used == cost) & (total <= most)
    weight = due.priority.compress(robots) >> np.uint32(8) & np.uint32(0xFFFF)
    priority: U32 = np.uint32(CLASS_ROBOTS << 24) | weight << np.uint32(8)
    return PlannedRows(due.take(page), due.site_row.compress(robots), priority)


def contacts_of(planned: PlannedRows, servers: Servers) -> I64:
    """How many contacts of the plan each server has."""
    site_row = np.concatenate([planned.pages.site_row, planned.robots_site_row])
    return np.bincount(servers.of_site.take(site_row), minlength=len(servers.quota))


def verdicts(servers: Servers, contacts: I64) -> U8:
    """For each site: why a row of it is left out although it is due. Full servers and slow sites would be so in larger plans."""
    full = contacts >= servers.quota
    reason = np.where(full, np.uint8(Deferred.SERVER_QUOTA), np.uint8(Deferred.PLAN_FULL)).take(servers.of_site)
    reason[servers.slow_site] = Deferred.SITE_WAITS
    return np.where(servers.shut > 0, servers.shut, reason)


@dataclass(frozen=True)
class Marks:
    """Which rows of a partition are due, and of which sites they are: a few bits a row, kept until the plan is made."""

    due: U8  # a bit for each row
    starts: U8  # a bit for each due row, set where its site is not that of the one before
    site_row: U32  # of each start

    @staticmethod
    def of(due: Due, *, first_row: int, rows: int) -> Marks:
        mask = np.zeros(rows, np.bool_)
        mask[due.row - np.uint32(first_row)] = True
        starts = run_starts(due.site_row)
        return Marks(np.packbits(mask), np.packbits(starts), due.site_row.compress(starts))


def deferred(marks: Marks, verdict: U8, planned: U32, *, first_row: int, rows: int) -> U8:
    """The column `deferred` of a partition. `planned` are the rows of all planned pages, sorted."""
    due = np.flatnonzero(np.unpackbits(marks.due, count=rows).view(np.bool_))
    run = np.cumsum(np.unpackbits(marks.starts, count=len(due)), dtype=np.int64) - 1
    column = np.zeros(rows, np.uint8)
    column[due] = verdict.take(marks.site_row).take(run)
    low, high = np.searchsorted(planned, np.array([first_row, first_row + rows], np.uint32))  # of its own type, or it is copied
    column[planned[low:high].astype(np.int64) - first_row] = Deferred.NOT
    return column


def _contacts_before(due: Due, servers: Servers) -> tuple[I64, I64]:
    """For rows that stand best first: the contacts its server makes before each, and its own: 2 if it brings the robots.txt.

    A server that has time for all of its rows need not put them in order: nothing counts as before them.
    """
    asks = np.flatnonzero(servers.needs_robots.take(due.site_row))
    by_site = asks.take(by_key(due.site_row.take(asks)))
    cost = np.ones(len(due), np.int64)
    cost[by_site.compress(run_starts(due.site_row.take(by_site)))] = 2
    server, before = servers.of_site.take(due.site_row), np.zeros(len(due), np.int64)
    full = np.bincount(server, cost, minlength=len(servers.quota)) > servers.quota
    tight = np.flatnonzero(full.take(server))
    by_server = tight.take(by_key(_renumbered(full, server.take(tight))))
    in_turn = cost.take(by_server)
    running = np.cumsum(in_turn) - in_turn
    before[by_server] = running - np.maximum.accumulate(running * run_starts(server.take(by_server)))
    return before, cost


def _renumbered(some: Bools, servers: I32) -> U32:
    """The numbers of some servers among these alone: usually they have only 16 bits then, and are sorted in half the time."""
    return np.cumsum(some, dtype=np.uint32).take(servers)


def best_first(priority: U32) -> I64:
    """The permutation that puts the largest first, and equal ones in their order."""
    return by_key(~priority)
