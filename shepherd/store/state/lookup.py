"""Point queries: the rows of one URL, site or server, found by bisection over the mapped columns.

Invariant: only the blocks that a bisection touches are read and verified, so the cost hardly grows with the database. For many
keys at once, joining sorted arrays is cheaper.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from shepherd.store.state.columns import Column
from shepherd.store.state.directory import State


def rows_of_norm(state: State, norm: int) -> range:
    """The rows of a normalised site."""
    return _equal(state.index["norm"], norm, range(state.index.rows))


def rows_of(state: State, norm: int, path: int) -> range:
    """The rows of a document: more than one only where several equivalent sites have the same robots file or root page."""
    return _equal(state.index["path"], path, rows_of_norm(state, norm))


def row_of(state: State, norm: int, path: int, site: int) -> int | None:
    """The row of a document on one site and no other."""
    return _only(_equal(state.index["site"], site, rows_of(state, norm, path)))


def site_row(state: State, site: int) -> int | None:
    """The row of the site table, by the site's footprint."""
    return _only(_equal(state.sites["site"], site, range(state.sites.rows)))


def server_row(state: State, qkey: int) -> int | None:
    """The row of the server table, by queue key."""
    return _only(_equal(state.servers["qkey"], qkey, range(state.servers.rows)))


def _equal(column: Column, value: int, within: range) -> range:
    """The rows within `within`, where the column ascends, that hold the value."""
    first = bisect_left(within, value, key=column.value)
    return within[first : bisect_right(within, value, lo=first, key=column.value)]


def _only(rows: range) -> int | None:
    return rows.start if rows else None
