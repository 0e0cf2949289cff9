"""The addresses of a state, with what politeness and experience say of each. Tables are read a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from shepherd.formats import kinds
from shepherd.report.one_row import values

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, Array
    from shepherd.store.state.directory import State

STEP_ROWS: Final = 1 << 17
SORTS: Final = {
    "pages": "documents",
    "sites": "",
    "slowest": "avg_ms",
    "errors": "errors",
    "fetches": "fetches",
    "delay": "delay_ms",
    "next": "next_ms",
}
DELAYS_MS: Final = (1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000)  # between the classes of `spread`


def largest(state: State, sort: str, limit: int, addresses: tuple[int, ...] = (), backing_off: bool = False) -> I64:
    """Rows of the server table."""
    import numpy as np

    from shepherd.arrays.largest import Largest

    sites = _sites(state) if not SORTS[sort] else None
    best = Largest(limit)
    for start in range(0, state.servers.rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.servers.rows)
        keep = np.ones(stop - start, np.bool_)
        if addresses:
            keep &= np.isin(state.servers["qkey"][start:stop], np.array(addresses, np.uint64))
        if backing_off:
            keep &= state.servers["backoff"][start:stop] > 0
        measure: Array = sites[start:stop] if sites is not None else state.servers[SORTS[sort]][start:stop]
        rows = np.flatnonzero(keep)
        best = best.with_more(rows + start, measure[rows])
    return best.rows


def _sites(state: State) -> I64:
    """How many sites each server has."""
    import numpy as np

    from shepherd.arrays.keys import find_servers

    qkeys = state.servers["qkey"][0 : state.servers.rows]
    counts = np.zeros(len(qkeys), np.int64)
    for start in range(0, state.sites.rows, STEP_ROWS):
        place = find_servers(qkeys, state.sites["qkey"][start : min(start + STEP_ROWS, state.sites.rows)])
        counts += np.bincount(place[place >= 0], minlength=len(qkeys))
    return counts


def asks_of(state: State, qkeys: list[int]) -> dict[int, dict[str, Any]]:
    """For each of these servers that one of its sites asks for patience: the site that asks for most, and what it asks for.

    `until` is given where it asked to be left alone until a time that had not come when the state was closed.
    """
    import numpy as np

    asks: dict[int, tuple[int, int, int]] = {}
    for start in range(0, state.sites.rows if qkeys else 0, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.sites.rows)
        part = state.sites.slice(start, stop, ("qkey", "crawl_delay_ms", "pause_end"))
        until = np.where(part["pause_end"] > state.control.now, part["pause_end"], 0)
        asking = (until > 0) | (part["crawl_delay_ms"] > 0)
        for row in np.flatnonzero(asking & np.isin(part["qkey"], np.array(qkeys, np.uint64))).tolist():
            qkey, ask = int(part["qkey"][row]), (int(until[row]), int(part["crawl_delay_ms"][row]), start + row)
            asks[qkey] = max(ask, asks.get(qkey, ask))
    return {
        qkey: {
            "site": state.site_name(row),
            "crawl_delay_ms": kinds.KNOWN_MS.json(crawl_delay_ms),
            "until": kinds.TIME_S.json(until_s),
        }
        for qkey, (until_s, crawl_delay_ms, row) in asks.items()
    }


def as_objects(state: State, rows: I64) -> Iterator[dict[str, Any]]:
    sites = _sites(state) if len(rows) else rows
    asks = asks_of(state, state.servers["qkey"].take(rows).tolist())
    for row in rows.tolist():
        server = values(state.servers, row)
        assert server is not None
        yield {
            "address": kinds.QUEUE_KEY.json(server["qkey"]),
            "sites": int(sites[row]),
            "pages": server["documents"],
            "fetches": server["fetches"],
            "errors": server["errors"],
            "average_ms": kinds.KNOWN_MS.json(server["avg_ms"]),
            "delay_ms": server["delay_ms"],
            "backoff": server["backoff"],
            "slots": server["slots"],
            "group": kinds.GROUP.json(server["group"]),
            "next_contact": kinds.TIME_MS.json(server["next_ms"]),
            "asks": asks.get(server["qkey"]),
        }


def spread(state: State) -> dict[str, Any]:
    """How many servers there are by the delay that holds for them now, and by what it is multiplied with since they failed."""
    import numpy as np

    from shepherd.politeness.delays import waits_ms

    delays, backing = (np.zeros(len(DELAYS_MS) + 1, np.int64) for _ in range(2))
    backoffs = np.zeros(256, np.int64)
    for start in range(0, state.servers.rows, STEP_ROWS):
        part = state.servers.slice(start, min(start + STEP_ROWS, state.servers.rows), ("delay_ms", "backoff"))
        waits = waits_ms(part["delay_ms"], part["backoff"])
        place = np.searchsorted(np.array(DELAYS_MS), waits, side="right")
        delays += np.bincount(place, minlength=len(delays))
        backing += np.bincount(place[part["backoff"] > 0], minlength=len(delays))
        backoffs += np.bincount(part["backoff"], minlength=len(backoffs))
    edges = zip((0, *DELAYS_MS), (*DELAYS_MS, None), delays.tolist(), backing.tolist(), strict=True)
    return {
        "servers": state.servers.rows,
        "backing_off": int(backing.sum()),
        "delays": [
            {"from_ms": least, "below_ms": most, "servers": count, "backing_off": slowed} for least, most, count, slowed in edges
        ],
        "backoffs": [{"times": 1 << times, "servers": int(backoffs[times])} for times in np.flatnonzero(backoffs).tolist()],
    }
