"""The pool of plan with many rows, often folded, against a walk over one sorted list; few servers hold most of the best rows."""

from __future__ import annotations

import numpy as np
import pytest

from shepherd import config
from shepherd.cycle.plan import pool as planpool
from shepherd.cycle.plan.rules import CLASS_NEW, Due
from shepherd.formats.tables import NO_LIMIT, SERVERS, SITES, empty
from shepherd.politeness.quota import Servers, servers_of

NOW_S = 10_000_000
ROWS, SITE_ROWS, STEP = 200_000, 20_000, 9_999


def many(seed: int) -> tuple[Due, Servers]:
    """Every second row is of one of three servers, and weighs more than all others; weights are few, so ties are many."""
    rng = np.random.default_rng(seed)
    sites = empty(SITES, SITE_ROWS)
    sites["site"] = np.arange(SITE_ROWS, dtype=np.uint64)
    sites["qkey"] = np.uint64(4 << 56) | rng.integers(3, 2_000, SITE_ROWS, np.uint64)
    sites["qkey"][:9] = np.uint64(4 << 56) | np.arange(9, dtype=np.uint64) % np.uint64(3)
    sites["delay_ms"][:] = NO_LIMIT
    sites["robots_checked"] = rng.integers(0, 2, SITE_ROWS)
    sites["robots_next"][:] = NOW_S + 1
    servers = servers_of(sites, empty(SERVERS), now_s=NOW_S, plan=config.Plan(reap_s=400), politeness=config.Politeness())
    hot = rng.random(ROWS) < 0.5
    site_row = np.where(hot, rng.integers(0, 9, ROWS), rng.integers(9, SITE_ROWS, ROWS))
    weight = np.where(hot, 200, 100) + rng.integers(0, 50, ROWS)
    priority = CLASS_NEW << 24 | weight << 8
    return Due(np.arange(ROWS, dtype=np.uint32), priority.astype(np.uint32), site_row.astype(np.uint32)), servers


def greedy(due: Due, servers: Servers, most: int) -> tuple[list[int], set[int]]:
    """The rows of the pages, best first, and the sites whose robots.txt is asked for."""
    left, asked, pages = servers.quota.tolist(), set(), []
    server_of, needs = servers.of_site.tolist(), servers.needs_robots.tolist()
    ranked = sorted(zip((-due.priority.astype(np.int64)).tolist(), due.row.tolist(), due.site_row.tolist(), strict=True))
    for _priority, row, site in ranked:
        server = server_of[site]
        if needs[site] and site not in asked and left[server] and most:
            asked.add(site)
            left[server], most = left[server] - 1, most - 1
        if left[server] and most:
            pages.append(row)
            left[server], most = left[server] - 1, most - 1
    return pages, asked


@pytest.mark.parametrize("most", [1, 100, 5_000, 50_000, 10**6])
def test_folding_again_and_again_loses_nothing_that_a_plan_could_contain(most: int) -> None:
    due, servers = many(most)
    pool, limit = planpool.Pool(), STEP + 1
    for first in range(0, ROWS, STEP):
        part = due.take(np.arange(first, min(first + STEP, ROWS)))
        pool = planpool.add(pool, part, servers, most, limit)
        assert len(pool) <= max(2 * most, limit)
    chosen = planpool.choose(pool, servers, most)
    pages, asked = greedy(due, servers, most)
    assert chosen.pages.row.tolist() == pages
    assert set(chosen.robots_site_row.tolist()) == asked
    assert len(chosen.robots_site_row) == len(asked)
