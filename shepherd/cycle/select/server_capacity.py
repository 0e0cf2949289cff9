"""How many documents a server can carry: what its delay lets us refresh in one refresh cycle.

Servers of one group share their politeness, so they share their limit: the first row of the group stands for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import find_servers, run_starts
from shepherd.formats.tables import I64, U64, Array, Columns

NO_SERVER = -1
LONGEST_CYCLE_S = 100 * 366 * config.DAY_S  # a longer one is as good as none, and would not fit the arithmetic


@dataclass(frozen=True)
class ServerCapacities:
    """By row of the servers table; rows that another one stands for have none."""

    qkey: U64
    leader: Array  # i32: the row that stands for it; one more entry at the end, for none
    soft: I64
    hard: I64


def server_limits(servers: Columns, select: config.Select, plan: config.Plan) -> ServerCapacities:
    """A failing server's longer delay passes, so back-offs do not count. Without a refresh cycle there is no limit."""
    delay_ms = servers["delay_ms"].astype(np.int64) + servers["avg_ms"]
    slots = np.maximum(servers["slots"].astype(np.int64), 1)
    leader = np.arange(len(slots) + 1, dtype=np.int32)
    leader[-1] = NO_SERVER
    rows = np.flatnonzero(servers["group"])
    if len(rows):
        rows = rows[np.argsort(servers["group"][rows], kind="stable")]
        first = np.flatnonzero(run_starts(servers["group"][rows]))
        leader[rows] = np.repeat(rows[first], np.diff(np.append(first, len(rows))))
        delay_ms[rows[first]] = np.maximum.reduceat(delay_ms[rows], first)
        slots[rows[first]] = np.maximum.reduceat(slots[rows], first)
    if not plan.refresh_s or not select.server_share:
        endless = np.full(len(slots), config.MOST, np.int64)
        return ServerCapacities(servers["qkey"], leader, endless, endless)
    fetches = np.minimum(min(plan.refresh_s, LONGEST_CYCLE_S) * 1000 * slots // np.maximum(delay_ms, 1), config.MOST)
    soft = np.maximum(fetches * select.server_share // 100, 1)
    return ServerCapacities(servers["qkey"], leader, soft, soft * select.hard_factor)


def server_of(limits: ServerCapacities, qkey: U64) -> Array:
    """The server of each site, or NO_SERVER: one whose address is not known, or was never asked, has no limit yet."""
    return limits.leader.take(find_servers(limits.qkey, qkey))
