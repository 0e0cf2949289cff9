"""The sites of a state: which have most of something, their robots.txt, delay and address.

The table is read a part at a time, and the index not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shepherd.formats import kinds
from shepherd.report.one_row import Values, values

if TYPE_CHECKING:
    from shepherd.formats.tables import I64, Bools, Columns
    from shepherd.store.state.directory import State

STEP_ROWS: Final = 1 << 17
SORTS: Final = {
    "urls": "documents",
    "gathered": "gathered",
    "slowest": "avg_ms",
    "crawl-delay": "crawl_delay_ms",
    "moves": "moves",
}
ROBOTS: Final = ("answered", "absent", "unreachable", "not-asked", "ignored")


def largest(
    state: State, hosts: tuple[str, ...], server: int | None, glob: str | None, robots: str | None, column: str, limit: int
) -> I64:
    """Rows of the site table."""
    import numpy as np

    from shepherd.arrays.largest import Largest
    from shepherd.filters import patterns
    from shepherd.report.find import norm_of_host

    norms = np.array([norm_of_host(state, host) for host in hosts], np.uint64)
    matches = patterns.glob_matcher(glob) if glob is not None else None
    best = Largest(limit)
    for start in range(0, state.sites.rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, state.sites.rows)
        part = state.sites.slice(start, stop, ("norm", "qkey", *_ROBOTS_COLUMNS))
        keep = np.isin(part["norm"], norms) if hosts else np.ones(stop - start, np.bool_)
        if server is not None:
            keep &= part["qkey"] == np.uint64(server)
        if robots is not None:
            keep &= _robots_are(part, robots)
        rows = np.flatnonzero(keep) + start
        if matches is not None:
            names = state.names_at(rows).texts().tolist()
            rows = rows[np.fromiter(map(matches, names), np.bool_, len(names))]
        best = best.with_more(rows, state.sites[column].take(rows))
    return best.rows


_ROBOTS_COLUMNS: Final = ("robots_checked", "robots_since", "robots_status", "policy")


def _robots_are(part: Columns, word: str) -> Bools:
    """Which sites have a robots.txt of this kind; see `robots_word`."""
    import numpy as np

    from shepherd.filters import ignore_robots

    words = {name: part[name].astype(np.int64) for name in _ROBOTS_COLUMNS}
    ignored, unreachable = ignore_robots(part["policy"]), words["robots_since"] > 0
    has_answer = (words["robots_checked"] > 0) | (words["robots_status"] > 0)
    absent = (words["robots_status"] >= 400) & (words["robots_status"] < 500)
    states = {
        "ignored": ignored,
        "unreachable": unreachable & ~ignored,
        "not-asked": ~has_answer & ~unreachable & ~ignored,
        "absent": absent & has_answer & ~unreachable & ~ignored,
        "answered": ~absent & has_answer & ~unreachable & ~ignored,
    }
    return np.asarray(states[word])


def robots_word(site: Values) -> str:
    """How the robots.txt of a site stands: it answered, or with 4xx, which allows all; it is unreachable, so that nothing is
    gathered; it was never asked for; or the filter says to ignore it."""
    import numpy as np

    part = {name: np.array([site[name]]) for name in _ROBOTS_COLUMNS}
    return next(word for word in ROBOTS if _robots_are(part, word)[0])


def as_object(state: State, row: int) -> dict[str, Any]:
    """What is known of one site, by its row of the site table."""
    from shepherd.formats.tables import is_resolved
    from shepherd.politeness.delays import wait_ms
    from shepherd.store.state import lookup

    site = values(state.sites, row)
    assert site is not None
    name = state.site_name(row)
    scheme, _, host = name.partition("://")
    server = values(state.servers, lookup.server_row(state, site["qkey"]))
    return {
        "site": name,
        "scheme": scheme,
        "host": host,
        "urls": site["documents"],
        "robots": robots_word(site),
        "robots_status": kinds.STATUS.json(site["robots_status"]),
        "robots_checked": kinds.TIME_S.json(site["robots_checked"]),
        "robots_unreachable_since": kinds.TIME_S.json(site["robots_since"]),
        "crawl_delay_ms": kinds.KNOWN_MS.json(site["crawl_delay_ms"]),
        "filter_delay_ms": kinds.FILTER_MS.json(site["delay_ms"]),
        "server_delay_ms": wait_ms(server["delay_ms"], server["backoff"]) if server else None,
        "average_ms": kinds.KNOWN_MS.json(site["avg_ms"]),
        "address": kinds.QUEUE_KEY.json(site["qkey"]) if is_resolved(site["qkey"]) else None,
        "address_checked": kinds.TIME_S.json(site["qkey_checked"]),
    }


def totals(state: State) -> dict[str, int]:
    """URLs, and those gathered, over all sites, as the last record and cork counted them."""
    import numpy as np

    urls = gathered = 0
    for start in range(0, state.sites.rows, STEP_ROWS):
        part = state.sites.slice(start, min(start + STEP_ROWS, state.sites.rows), ("documents", "gathered"))
        urls += int(part["documents"].sum(dtype=np.int64))
        gathered += int(part["gathered"].sum(dtype=np.int64))
    return {"sites": state.sites.rows, "urls": urls, "gathered": gathered}
