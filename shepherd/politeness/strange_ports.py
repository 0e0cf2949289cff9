"""Ports that have not answered yet, other than 80 and 443: any page can name as many of a server as it likes.

A connection that fails says of such a port that it is closed, and nothing of its server: it does not count for the back-off of
the group. Its robots.txt does not go before the pages of others, and a plan asks for a few of them only, of a host and of a
server. A site on such a port is strange until its robots.txt was answered.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shepherd.arrays.partitions import partitions
from shepherd.formats.check import check64
from shepherd.formats.tables import I64, U64
from shepherd.store.state.directory import State

USUAL: Final = ("80", "443")  # those of the schemes are not even in a name
STEP: Final = 500_000  # sites looked at together
COLON: Final = ord(":")


def has_unusual_port(site: str) -> bool:
    """Of `scheme://host[:port]`."""
    port = site.rpartition(":")[2]
    return port.isdigit() and port not in USUAL


def strange_sites(state: State) -> tuple[I64, U64]:
    """The rows of the strange sites of a state, and their hosts as numbers."""
    rows: list[int] = []
    hosts: list[int] = []
    for start, stop in partitions(state.sites.rows, STEP):
        silent = state.sites["robots_checked"][start:stop] == 0
        if not silent.any():
            continue
        names = state.names_between(start, stop)
        colons = np.concatenate([np.zeros(1, np.int64), np.cumsum(names.data == COLON, dtype=np.int64)])
        several = colons[names.ends] - colons[names.starts] > 1
        for row in (np.flatnonzero(silent & several) + start).tolist():
            name = state.site_name(row)
            if has_unusual_port(name):
                rows.append(row)
                hosts.append(check64(name.rpartition(":")[0].partition("://")[2].encode()))
    return np.array(rows, np.int64), np.array(hosts, np.uint64)
