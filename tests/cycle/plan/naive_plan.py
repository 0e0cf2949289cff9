"""Plan as a walk over plain dictionaries, best row first: what the columns must agree with."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from shepherd.config import Plan, Politeness
from shepherd.formats.tables import NO_LIMIT, Deferred, Flag, Reason, RowType, Why
from tests.support.random_rows import Row

Server = tuple[str, int]


@dataclass(frozen=True)
class World:
    index: list[Row]
    sites: list[Row]
    servers: list[Row]
    now_s: int
    plan: Plan
    politeness: Politeness
    unsure_ms: int
    most: int


@dataclass(frozen=True)
class Naive:
    """(row, or -1 for a robots file; priority; why; site), best first; the column `deferred`; the contacts of each server."""

    chosen: list[tuple[int, int, Why, int]]
    deferred: list[int]
    contacts: dict[Server, int]
    quota: dict[Server, int]


def naive_plan(world: World) -> Naive:
    by_site = {site["site"]: site for site in world.sites}
    quota = quotas(world)
    deferred, due = [0] * len(world.index), []
    for number, row in enumerate(world.index):
        site = by_site[row["site"]]
        if (found := classified(row, site, world)) is not None:
            deferred[number] = waits(site, quota[server_of(site, world)], world)
            if not deferred[number]:
                due.append((-found[0], number, found[1], site))
    pages: dict[int, int] = defaultdict(int)
    contacts: dict[Server, int] = defaultdict(int)
    total, asked, chosen, left = 0, set(), [], []
    for negated, number, why, site in sorted(due, key=lambda entry: entry[:2]):
        server, priority = server_of(site, world), -negated
        pages[site["site"]] += 1
        if pages[site["site"]] > most_of_a_site(site, world):
            left.append((number, site))
            continue
        stale = site["robots_checked"] == 0 or site["robots_next"] <= world.now_s or nowhere(site)
        wanted = [(number, priority, why)]
        if stale and site["site"] not in asked:
            wanted.insert(0, (-1, 15 << 24 | (priority >> 8 & 0xFFFF) << 8, Why.ROBOTS))
        for one in wanted:
            if contacts[server] < quota[server] and total < world.most:
                contacts[server] += 1
                total += 1
                chosen.append((*one, site["site"]))
                asked.add(site["site"])
            elif one[0] >= 0:
                left.append((number, site))
    for number, site in left:
        server = server_of(site, world)
        deferred[number] = Deferred.SERVER_QUOTA if contacts[server] == quota[server] else Deferred.PLAN_FULL
        if is_slow(site, world):
            deferred[number] = Deferred.SITE_WAITS
    return Naive(sorted(chosen, key=lambda entry: (-entry[1], entry[0], entry[3])), deferred, contacts, quota)


def classified(row: Row, site: Row, world: World) -> tuple[int, Why] | None:
    """Priority and reason of a row that is due."""
    plan, age = world.plan, max(world.now_s - row["checked"], 0)
    times = min(max(row["frequency"], 1) * (2 if row["weight"] > plan.important_weight else 1), 4) * max(site["refresh_boost"], 1)
    cycle = max(plan.refresh_s // times, 1)
    mixed = (row["path"] ^ row["site"]) * 0x9E3779B97F4A7C15 % 2**64 // 2**32
    ripe = age + mixed * (min(cycle, plan.reap_s) // 4 + 1) // 2**32

    def priority(class_: int, why: Why, age: int = age) -> tuple[int, Why]:
        weight = min(max(row["weight"] + site["queue_bonus"], 0), 65_535)
        return class_ << 24 | weight << 8 | (min(8 * age // cycle, 255) if row["checked"] else 0), why

    if row["flags"] & Flag.ROBOTS or row["type"] in (RowType.SLEEPING, RowType.FORGOTTEN):
        return None
    denied = row["type"] == RowType.ERROR and row["reason"] in (Reason.ROBOTS_DENIED, Reason.ROBOTS_UNREACHABLE)
    failed = not denied and (
        row["type"] == RowType.ERROR or (row["type"] == RowType.GATHERED and 0 < row["retry"] < plan.max_retries)
    )
    well = row["type"] == RowType.GATHERED and not failed
    if row["flags"] & Flag.REFRESH:
        return priority(7, Why.FORCED, ripe if well else age)
    if row["type"] == RowType.UNGATHERED:
        return priority(4 if row["flags"] & Flag.INITIAL else 3, Why.NEW)
    if denied:
        return priority(1, Why.RETRY) if site["robots_checked"] > row["checked"] or age >= plan.refresh_s else None
    if failed:
        wait = plan.retry_s * 2 ** max(row["retry"] - 1, 0)
        return priority(1, Why.RETRY) if age >= wait and row["retry"] < plan.max_retries else None
    if ripe >= 1.5 * cycle:
        return priority(6, Why.OVERDUE, ripe)
    if ripe >= cycle:
        return priority(5 if times > 1 else 2, Why.DUE, ripe)
    shortest = max(plan.refresh_s // (4 * max(site["refresh_boost"], 1)), 1)
    if row["flags"] & Flag.MODIFIED and age + mixed * (min(shortest, plan.reap_s) // 4 + 1) // 2**32 >= shortest:
        return priority(2, Why.DUE, ripe)
    return None


def waits(site: Row, quota: int, world: World) -> int:
    now_s = world.now_s
    if nowhere(site) and site["qkey_next"] > now_s:
        return Deferred.NO_ADDRESS
    if site["robots_since"] and site["robots_next"] > now_s:
        return Deferred.ROBOTS_UNREACHABLE
    if not quota:
        return Deferred.SERVER_WAITS
    anew = site["pause_end"] > now_s + site["pause_s"] + 60
    paused_s = min(site["pause_end"] - now_s, site["pause_s"])
    return Deferred.SITE_WAITS if paused_s >= world.plan.reap_s and not anew else Deferred.NOT


def is_slow(site: Row, world: World) -> bool:
    return site["crawl_delay_ms"] > world.politeness.neighbours_s * 1000


def most_of_a_site(site: Row, world: World) -> int:
    """Pages of a site that asks for more than its neighbours need to heed; of any other, all."""
    if not is_slow(site, world):
        return len(world.index)
    default = round(world.politeness.delay_s * 1000)
    delay = max(default if site["delay_ms"] == NO_LIMIT else site["delay_ms"], site["crawl_delay_ms"])
    start = max(min(world.unsure_ms, world.now_s * 1000) + delay - world.now_s * 1000, 0) if world.unsure_ms else 0
    return max((world.plan.reap_s * 1000 - start) // (delay + site["avg_ms"]), 1)


def nowhere(site: Row) -> bool:
    return site["qkey"] >> 56 == 0x7F


def server_of(site: Row, world: World) -> Server:
    """A group, an address, or the site itself."""
    group = site["group"] or next((row["group"] for row in world.servers if row["qkey"] == site["qkey"]), 0)
    if group:
        return "group", group
    return ("site", site["site"]) if nowhere(site) else ("address", site["qkey"])


def quotas(world: World) -> dict[Server, int]:
    members = defaultdict(list)
    for site in world.sites:
        members[server_of(site, world)].append(site)
    return {server: _quota(server, sites, world) for server, sites in members.items()}


def _quota(server: Server, sites: list[Row], world: World) -> int:
    now_ms = world.now_s * 1000
    unsure_ms = min(world.unsure_ms, now_ms)
    known = [row for row in world.servers if any(row["qkey"] == site["qkey"] for site in sites)]
    delays, starts, averages, slots = [], [0], [], []
    for row in known:
        delay = row["delay_ms"] << row["backoff"]
        delays.append(delay)
        averages.append(row["avg_ms"])
        slots.append(max(row["slots"], 1))
        starts.append(min(row["next_ms"] - now_ms, delay))
        starts.append(unsure_ms + delay - now_ms)
    for site in sites:
        asked_s = min(site["pause_end"] - site["pause_s"], world.now_s) + min(site["pause_s"], world.politeness.neighbours_s)
        starts.append(asked_s * 1000 - now_ms if site["pause_end"] > world.now_s else 0)
    asking = [site for site in world.sites if server == ("address", site["qkey"])] or sites  # grouped or not, they are there
    for site in asking if server[0] != "address" or not known else []:  # the table knows better
        delay = round(world.politeness.delay_s * 1000) if site["delay_ms"] == NO_LIMIT else site["delay_ms"]
        bound = world.politeness.neighbours_s * 1000
        delay = max(delay, site["crawl_delay_ms"] if server[0] == "site" else min(site["crawl_delay_ms"], bound))
        delays.append(delay)
        starts.append(unsure_ms + delay - now_ms)
        if all(row["qkey"] != site["qkey"] for row in known):
            averages.append(site["avg_ms"])
    room_ms = world.plan.reap_s * 1000 - max(starts)
    if room_ms <= 0:  # a wait that a wrong clock has stored begins anew, and a plan lets it begin
        anew = server[0] == "address" and any(
            row["next_ms"] > now_ms + (row["delay_ms"] << row["backoff"]) + 60_000 for row in known
        )
        return int(anew or world.unsure_ms > now_ms + 60_000)
    most = min(min(slots, default=1), len(sites))
    return max(room_ms * most // max(max(delays) + max(averages), 1), 1)
