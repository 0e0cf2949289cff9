"""How many contacts a server has time for in one reap, and which sites must wait or need their robots.txt first.

A server is whatever shares its politeness: an address, or all hosts and addresses that the filter has put into one group. A site
whose address is not known, and that is in no group, is its own server: nothing is known that it could share.

Servers are numbered: the rows of the servers table keep their number, then come addresses without a row, then groups, then the
sites without an address. There may be as many of these as sites, so only what plan needs at every row is kept for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shepherd import config
from shepherd.arrays.keys import distinct, find_servers, find_sites, run_ranks, run_starts
from shepherd.filters import ignore_robots
from shepherd.formats.tables import I64, QKEY_NONE, U8, U32, U64, Bools, Columns, Deferred, show_qkey
from shepherd.politeness import delays
from shepherd.politeness.tenants import Owners, PausedSites, common_demands, one_owner

STEP = 500_000  # sites or servers looked at together
LONGEST_MS = 1 << 46  # of a reap, so that slots times it fit into 64 bits
MOST_CONTACTS = (1 << 31) - 1
FIRST_NONE, LAST_NONE = np.uint64(QKEY_NONE << 56), np.uint64((QKEY_NONE + 1 << 56) - 1)
MOST_STRANGE = 2  # sites on ports that never answered, of one host and of one server
LEAST_PLAN = 1_000  # a speed that would allow less was measured on too little to be believed

I32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Timing:
    """Of some servers: what a contact takes, how many go on at a time, and how long from now the first must wait."""

    delay_ms: I64
    avg_ms: I64
    slots: I64
    start_ms: I64

    def take(self, rows: I64) -> Timing:
        return Timing(self.delay_ms[rows], self.avg_ms[rows], self.slots[rows], self.start_ms[rows])


@dataclass(frozen=True)
class Names:
    """What the servers are called that have no row in the table."""

    address: U64
    group: U64
    own: I64  # rows of the sites that are their own servers


@dataclass(frozen=True)
class Servers:
    """By row of the sites table: its server, whether robots.txt must be asked first, and why it cannot be asked at all.

    `quota` is by server. A site that asks for longer waits than its server has a quota of its own besides: its pages must not
    take the time of its neighbours, and then not be asked for.
    """

    of_site: I32
    needs_robots: Bools
    shut: U8  # a Deferred; 0 = open
    quota: I32
    slow_site: U32  # rows of the sites with a quota of their own, in order
    slow_quota: I32
    timing: _Clockwork

    def name(self, number: int) -> str:
        """An address, a group or a site."""
        names, rows_in_table = self.timing.names, len(self.timing.table.delay_ms)
        if number < rows_in_table:
            return show_qkey(int(self.timing.qkey[number]))
        if number < rows_in_table + len(names.address):
            return show_qkey(int(names.address[number - rows_in_table]))
        number -= rows_in_table + len(names.address)
        if number < len(names.group):
            return f"group {int(names.group[number]):016x}"
        return f"site {int(self.timing.sites['site'][names.own[number - len(names.group)]]):016x}"


@dataclass(frozen=True)
class _Clockwork:
    """Everything that the timing of any server can be told from."""

    qkey: U64
    table: _Table
    few: Timing  # of addresses without a row, then of groups
    names: Names
    sites: Columns
    politeness: config.Politeness
    now_ms: int
    unsure_ms: int
    quiet: I64  # servers that are left alone because their sites asked for it, in order
    quiet_ms: I64  # and how long

    @property
    def bound_ms(self) -> int:
        return delays.neighbours_ms(self.politeness)

    def of(self, numbers: I64) -> Timing:
        """The timing of these servers."""
        rows_in_table, few = len(self.table.delay_ms), len(self.few.slots)
        columns = [np.zeros(len(numbers), np.int64) for _ in range(4)]
        in_table = np.flatnonzero(numbers < rows_in_table)
        in_few = np.flatnonzero((numbers >= rows_in_table) & (numbers < rows_in_table + few))
        alone = np.flatnonzero(numbers >= rows_in_table + few)
        for positions, timing in (
            (in_table, self.table.timing(numbers[in_table], self)),
            (in_few, self.few.take(numbers[in_few] - rows_in_table)),
            (alone, _of_sites(self, self.names.own[numbers[alone] - rows_in_table - few])),
        ):
            for column, values in zip(columns, (timing.delay_ms, timing.avg_ms, timing.slots, timing.start_ms), strict=True):
                column[positions] = values
        if len(self.quiet):
            place = np.minimum(np.searchsorted(self.quiet, numbers), len(self.quiet) - 1)
            columns[3] = np.maximum(columns[3], np.where(self.quiet[place] == numbers, self.quiet_ms[place], 0))
        return Timing(*columns)


@dataclass(frozen=True)
class _Table:
    """The servers table, and how many sites each of its servers has: a site is asked one thing at a time."""

    delay_ms: npt.NDArray[np.uint32]
    backoff: U8
    avg_ms: npt.NDArray[np.uint32]
    slots: npt.NDArray[np.uint16]
    next_ms: I64

    def timing(self, rows: I64, clockwork: _Clockwork) -> Timing:
        waits_ms, now_ms = delays.waits_ms(self.delay_ms[rows], self.backoff[rows]), clockwork.now_ms
        stored_ms = np.maximum(self.next_ms[rows], 0)
        next_ms = delays.first_contacts_ms(stored_ms, waits_ms, clockwork.unsure_ms, now_ms)
        slots = np.maximum(self.slots[rows], 1).astype(np.int64)
        return Timing(waits_ms, self.avg_ms[rows].astype(np.int64), slots, np.maximum(next_ms - now_ms, 0))


def unresolved(qkey: U64) -> Bools:
    return np.asarray((qkey >= FIRST_NONE) & (qkey <= LAST_NONE))


def most_contacts(plan: config.Plan, speed: int) -> int:
    """Of one plan: what earlier reaps have managed in this time, `speed` in 1,000 s, with some optimism."""
    if not speed or not plan.optimism:
        return plan.max_pages
    return min(plan.max_pages, max(speed * plan.reap_s * plan.optimism // 100_000, LEAST_PLAN))


def servers_of(
    sites: Columns,
    servers: Columns,
    *,
    now_s: int,
    plan: config.Plan,
    politeness: config.Politeness,
    unsure_ms: int = 0,
    owners: Owners = one_owner,
    strange: tuple[I64, U64] = (np.zeros(0, np.int64), np.zeros(0, np.uint64)),
) -> Servers:
    """`unsure_ms`: up to this moment a server may have been contacted without our knowing, so each waits its delay from it.

    `owners` gives those of some rows of `sites`; `strange` are the rows on ports that never answered, and their hosts.
    """
    rows_in_table = len(servers["qkey"])
    of_site = _rows_of_addresses(servers["qkey"], sites["qkey"])
    fresh = np.flatnonzero((of_site < 0) & ~unresolved(sites["qkey"]))
    address = distinct(sites["qkey"][fresh])
    of_site[fresh] = rows_in_table + find_sites(address, sites["qkey"][fresh])
    grouped, group_of = _grouped(sites, servers, of_site)
    group = distinct(group_of)
    number = rows_in_table + len(address) + find_sites(group, group_of)

    alone = of_site < 0
    alone[grouped] = False
    own = np.flatnonzero(alone)
    nobody = Timing(*(np.zeros(0, np.int64) for _ in range(4)))
    names, now_ms = Names(address, group, own), now_s * 1000
    table = _Table(*(servers[name] for name in ("delay_ms", "backoff", "avg_ms", "slots", "next_ms")))
    nothing = np.zeros(0, np.int64)
    clockwork = _Clockwork(
        servers["qkey"], table, nobody, names, sites, politeness, now_ms, min(unsure_ms, now_ms), nothing, nothing
    )
    of_fresh = _joined(
        len(address), of_site[fresh] - rows_in_table, _of_neighbours(clockwork, fresh), np.zeros(len(fresh), np.bool_)
    )
    of_group = _joined(len(group), number - rows_in_table - len(address), *_members(clockwork, of_site, grouped))
    of_site[grouped] = number
    of_site[own] = rows_in_table + len(address) + len(group) + np.arange(len(own))
    few = Timing(*(np.concatenate(pair) for pair in zip(_columns(of_fresh), _columns(of_group), strict=True)))
    pauses = PausedSites.of(sites, now_ms, clockwork.bound_ms)
    server = of_site[pauses.rows].astype(np.int64)
    common = common_demands(server.astype(np.uint64), owners(pauses.rows), pauses.until_ms)
    askers = np.concatenate([server.astype(np.uint64), common[0]])
    quiet = distinct(askers)
    until_ms = np.full(len(quiet), now_ms)
    np.maximum.at(until_ms, np.searchsorted(quiet, askers), np.concatenate([pauses.shared_ms, common[1]]))
    clockwork = replace(
        clockwork, table=_with_busy_slots(table, of_site), few=few, quiet=quiet.astype(np.int64), quiet_ms=until_ms - now_ms
    )
    reap_ms = min(plan.reap_s * 1000, LONGEST_MS)
    quota = _quotas(clockwork, rows_in_table + len(few.slots) + len(own), reap_ms)
    quota[_waits_anew(clockwork, unsure_ms, len(quota)) & (quota == 0)] = 1
    needs_robots, shut = _site_facts(sites, quota, of_site, now_s, politeness)
    asleep = pauses.rows[(pauses.until_ms - now_ms >= reap_ms) & ~pauses.anew]
    shut[asleep] = np.where(shut[asleep] == Deferred.NOT, np.uint8(Deferred.SITE_WAITS), shut[asleep])
    shut[_too_many_strange(*strange, sites, of_site, shut)] = Deferred.SERVER_QUOTA
    return Servers(of_site, needs_robots, shut, quota, *_slow_sites(clockwork, reap_ms), clockwork)


def _waits_anew(clockwork: _Clockwork, unsure_ms: int, count: int) -> Bools:
    """Servers that a wrong clock has put off: they wait from now on. They are planned all the same, however long that is,
    because only what a reap leads to can write down when it began."""
    now_ms, table = clockwork.now_ms, clockwork.table
    anew = np.full(count, unsure_ms > now_ms + delays.AHEAD_S * 1000)
    waits_ms = delays.waits_ms(table.delay_ms, table.backoff)
    credible_ms = delays.credibles_ms(table.next_ms, waits_ms, now_ms)
    anew[: len(table.next_ms)] |= credible_ms + delays.AHEAD_S * 1000 < table.next_ms
    return anew


def _too_many_strange(rows: I64, hosts: U64, sites: Columns, of_site: I32, shut: U8) -> I64:
    """Of the strange sites that are open, all but a few of each host and server; who was put off longest ago comes first."""
    is_open = shut[rows] == Deferred.NOT
    rows, hosts = rows[is_open], hosts[is_open]
    keep = np.ones(len(rows), np.bool_)
    for of in (hosts, of_site[rows].astype(np.uint64)):
        order = np.lexsort((rows, sites["robots_next"][rows], ~keep, of))
        keep[order[run_ranks(run_starts(of[order])) >= MOST_STRANGE]] = False
    return rows[~keep]


def _slow_sites(clockwork: _Clockwork, reap_ms: int) -> tuple[U32, I32]:
    """The sites that ask for more than may be asked of their neighbours, and how many contacts fit for each."""
    rows = np.flatnonzero(clockwork.sites["crawl_delay_ms"] > clockwork.bound_ms)
    timing = _of_sites(clockwork, rows)
    fit = (reap_ms - np.minimum(timing.start_ms, reap_ms)) // np.maximum(timing.delay_ms + timing.avg_ms, 1)
    return rows.astype(np.uint32), np.clip(fit, 1, MOST_CONTACTS).astype(np.int32)


def _rows_of_addresses(qkey: U64, queries: U64) -> I32:
    """For each query its row of the servers table, or -1."""
    server_rows = np.empty(len(queries), np.int32)
    for start in range(0, len(queries), STEP):
        server_rows[start : start + STEP] = find_servers(qkey, queries[start : start + STEP])
    return server_rows


def _grouped(sites: Columns, servers: Columns, of_site: I32) -> tuple[I64, U64]:
    """The sites that are in a group, by name or because their server is, and that group."""
    group = sites["group"]
    if servers["group"].any():
        rows_known = np.flatnonzero((of_site >= 0) & (of_site < len(servers["qkey"])) & (group == 0))
        group = group.copy()
        group[rows_known] = servers["group"][of_site[rows_known]]
    rows = np.flatnonzero(group)
    return rows, group[rows]


def _of_sites(clockwork: _Clockwork, rows: I64) -> Timing:
    """Of servers of which nothing is known but one of their sites."""
    sites = {name: clockwork.sites[name][rows] for name in ("delay_ms", "crawl_delay_ms", "avg_ms")}
    delay_ms = delays.site_delays_ms(sites, delays.default_delay_ms(clockwork.politeness))
    never_asked = np.zeros(len(rows), np.int64)
    next_ms = delays.first_contacts_ms(never_asked, delay_ms, clockwork.unsure_ms, clockwork.now_ms)
    start_ms = np.maximum(next_ms - clockwork.now_ms, 0)
    return Timing(delay_ms, sites["avg_ms"].astype(np.int64), np.ones(len(rows), np.int64), start_ms)


def _of_neighbours(clockwork: _Clockwork, rows: I64) -> Timing:
    """The same of sites that share a server: as much as each may ask of it."""
    sites = {name: clockwork.sites[name] for name in ("delay_ms", "avg_ms")}
    crawl_delay_ms = np.minimum(clockwork.sites["crawl_delay_ms"], clockwork.bound_ms)
    return _of_sites(replace(clockwork, sites={**sites, "crawl_delay_ms": crawl_delay_ms}), rows)


def _members(clockwork: _Clockwork, of_site: I32, rows: I64) -> tuple[Timing, Bools]:
    """What each site brings into its group: its own demands and those of its server. True where that has a row in the table."""
    own, server = _of_neighbours(clockwork, rows), of_site[rows].astype(np.int64)
    is_in_table = (server >= 0) & (server < len(clockwork.table.delay_ms))
    there = clockwork.table.timing(np.where(is_in_table, server, 0)[is_in_table], clockwork)
    delay_ms, avg_ms, slots, start_ms = (column.copy() for column in _columns(own))
    delay_ms[is_in_table] = np.maximum(delay_ms[is_in_table], there.delay_ms)
    avg_ms[is_in_table], slots[is_in_table] = there.avg_ms, there.slots
    start_ms[is_in_table] = np.maximum(start_ms[is_in_table], there.start_ms)
    return Timing(delay_ms, avg_ms, slots, start_ms), is_in_table


def _joined(count: int, which: I64 | I32, members: Timing, is_in_table: Bools) -> Timing:
    """Of each of `count` servers: the slowest of what its members ask for; slots only where the table has some, else one."""
    columns = [np.zeros(count, np.int64) for _ in range(3)]
    for column, values in zip(columns, (members.delay_ms, members.avg_ms, members.start_ms), strict=True):
        np.maximum.at(column, which, values)
    slots = np.full(count, MOST_CONTACTS, np.int64)
    np.minimum.at(slots, which[is_in_table], members.slots[is_in_table])
    slots = np.minimum(np.where(slots == MOST_CONTACTS, 1, slots), np.bincount(which, minlength=count))
    return Timing(columns[0], columns[1], slots, columns[2])


def _columns(timing: Timing) -> tuple[I64, I64, I64, I64]:
    return timing.delay_ms, timing.avg_ms, timing.slots, timing.start_ms


def _with_busy_slots(table: _Table, of_site: I32) -> _Table:
    """With no more slots than sites to use them."""
    if not (table.slots > 1).any():
        return table
    sites = np.bincount(of_site[of_site < len(table.slots)], minlength=len(table.slots))
    slots = np.where(table.slots > 1, np.clip(sites, 1, table.slots), table.slots).astype(np.uint16)
    return _Table(table.delay_ms, table.backoff, table.avg_ms, slots, table.next_ms)


def _quotas(clockwork: _Clockwork, count: int, reap_ms: int) -> I32:
    """What fits between the first contact and the end of the reap, and at least one: a long delay is no reason to be dropped."""
    quota = np.zeros(count, np.int32)
    for start in range(0, count, STEP):
        stop = min(start + STEP, count)
        timing = clockwork.of(np.arange(start, stop, dtype=np.int64))
        room_ms = np.maximum(reap_ms - timing.start_ms, 0)
        fit = room_ms * timing.slots // np.maximum(timing.delay_ms + timing.avg_ms, 1)
        quota[start:stop] = np.where(room_ms > 0, np.clip(fit, 1, MOST_CONTACTS), 0)
    return quota


def _site_facts(sites: Columns, quota: I32, of_site: I32, now_s: int, politeness: config.Politeness) -> tuple[Bools, U8]:
    """Which sites need their robots.txt first, and which cannot be asked in this reap: the first reason that holds."""
    needs, shut = np.zeros(len(of_site), np.bool_), np.zeros(len(of_site), np.uint8)
    for start in range(0, len(of_site), STEP):
        part = slice(start, start + STEP)
        nowhere = unresolved(sites["qkey"][part])
        again = ~delays.are_to_come(sites["robots_next"][part], now_s, delays.longest_robots_s(politeness))
        needs[part] = (sites["robots_checked"][part] == 0) | again | nowhere
        reason = np.where(quota[of_site[part]] == 0, np.uint8(Deferred.SERVER_WAITS), np.uint8(Deferred.NOT))
        silent = (sites["robots_since"][part] > 0) & ~ignore_robots(sites["policy"][part])
        reason[silent & ~again] = Deferred.ROBOTS_UNREACHABLE
        later = delays.are_to_come(sites["qkey_next"][part], now_s, delays.longest_lookup_s(politeness))
        reason[nowhere & later] = Deferred.NO_ADDRESS
        shut[part] = reason
    return needs, shut
