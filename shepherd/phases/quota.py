"""How many contacts a server has time for in one reap, and which sites need their robots.txt first.

A site whose address is not known is its own server: nothing is known that it could share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.formats.tables import I64, NO_LIMIT, QKEY_NONE, U64, Bools, Columns
from shepherd.phases.keys import distinct, find_sites


@dataclass(frozen=True)
class Servers:
    """By row of the sites table: its server (a number below len(quota)) and whether robots.txt must be asked first."""

    of_site: I64
    needs_robots: Bools
    quota: I64


def unresolved(qkey: U64) -> Bools:
    return np.asarray(qkey >> np.uint64(56) == QKEY_NONE)


def site_delay_ms(sites: Columns, politeness: config.Politeness) -> I64:
    """What a site asks for: the filter's delay, or the default where no line speaks of it, and at least its Crawl-delay."""
    default_ms = round(politeness.delay_s * 1000)
    filtered = np.where(sites["delay_ms"] == NO_LIMIT, default_ms, sites["delay_ms"].astype(np.int64))
    return np.maximum(filtered, sites["crawl_delay_ms"].astype(np.int64))


def servers_of(sites: Columns, servers: Columns, *, now_s: int, plan: config.Plan, politeness: config.Politeness) -> Servers:
    """Servers of the table keep their number, then come addresses without a row, then the sites without an address."""
    lonely = unresolved(sites["qkey"])
    of_site = find_sites(servers["qkey"], sites["qkey"])
    fresh = ~lonely & (of_site < 0)
    addresses = distinct(sites["qkey"][fresh])
    known = len(servers["qkey"])
    of_site[fresh] = known + find_sites(addresses, sites["qkey"][fresh])
    of_site[lonely] = known + len(addresses) + np.arange(np.count_nonzero(lonely))

    total = known + len(addresses) + int(np.count_nonzero(lonely))
    delay_ms, avg_ms = np.zeros(total, np.int64), np.zeros(total, np.int64)
    np.maximum.at(delay_ms, of_site, site_delay_ms(sites, politeness))
    np.maximum.at(avg_ms, of_site, sites["avg_ms"].astype(np.int64))
    slots, next_ms = np.ones(total, np.int64), np.zeros(total, np.int64)
    delay_ms[:known] = servers["delay_ms"].astype(np.int64) << servers["backoff"].astype(np.int64)
    avg_ms[:known] = servers["avg_ms"]
    slots[:known] = servers["slots"]
    # A clock that was once ahead must not keep a server waiting: no stored time counts for more than this.
    longest_ms = now_s * 1000 + np.maximum(delay_ms[:known], config.MAX_RETRY_AFTER_S * 1000)
    next_ms[:known] = np.minimum(servers["next_ms"], longest_ms)

    reap_ms = plan.reap_s * 1000
    quota = np.maximum(reap_ms * slots // np.maximum(delay_ms + avg_ms, 1), 1)
    quota[next_ms >= now_s * 1000 + reap_ms] = 0
    needs_robots = (sites["robots_checked"] == 0) | (sites["robots_next"] <= now_s)
    return Servers(of_site, needs_robots, quota)
