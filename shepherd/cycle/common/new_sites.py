"""Which contributed sites are new, and which name only looks like a known site because its 64 bits are taken.

A site is never merged with another one that happens to have its footprint: the second name is refused and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import find_sites, run_starts
from shepherd.formats.tables import I64, NO_LIMIT, NO_OID, QKEY_NONE, SITES, U64, Array, empty


@dataclass(frozen=True)
class NewSites:
    """Positions in what was contributed: the new sites, one each, sorted by site; and names whose footprint is another's."""

    new: I64
    refused: I64


def find_new_sites(known: U64, checks_of: Callable[[I64], U64], site: U64, check: U64) -> NewSites:
    """`check` tells contributed names apart (a hash unlike the footprint), `checks_of` gives the same for rows of `known`.

    Of two new names with one footprint the one with the smaller check stays, in whatever order they came.
    """
    order = np.lexsort((check, site))
    site, check = site[order], check[order]
    pairs = np.flatnonzero(run_starts(site, check))
    site, check, order = site[pairs], check[pairs], order[pairs]
    row = find_sites(known, site)
    seen = np.flatnonzero(row >= 0)
    strangers = seen[checks_of(row[seen]) != check[seen]]
    fresh = np.flatnonzero(row < 0)
    first = run_starts(site[fresh])
    return NewSites(order[fresh[first]], np.sort(np.concatenate([order[strangers], order[fresh[~first]]])))


def site_rows(site: U64, norm: U64) -> dict[str, Array]:
    """The rows of new sites: nothing asked, nothing known, no filter line yet; the names are the caller's."""
    columns = empty(SITES, len(site))
    columns["site"] = site
    columns["norm"] = norm
    columns["qkey"] = np.uint64(QKEY_NONE << 56) | site & np.uint64(0xFFFFFF)
    columns["robots_oid"][:] = NO_OID
    for name in ("delay_ms", "soft_limit", "hard_limit", "fresh_limit"):
        columns[name][:] = NO_LIMIT
    return columns
