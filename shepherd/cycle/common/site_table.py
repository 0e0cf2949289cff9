"""The site table as one piece in memory, and the rows of sites that are new in it.

That no two names share a footprint is seen to by merge (cycle/merge/contributions): what other phases add came in by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import site_counts
from shepherd.filters import Filter, SiteSettings
from shepherd.formats.tables import NO_LIMIT, NO_OID, QKEY_NONE, SITES, U64, Array, Bools, Columns, empty
from shepherd.store.state.directory import Builder, State

NAMED = ("site", "norm", "name")  # these change only when a site is added or dropped
FILTERED = tuple(field.name for field in dataclasses.fields(SiteSettings))  # these change with the filter


@dataclass(frozen=True)
class Sites:
    """All columns, and the names in row order."""

    columns: dict[str, Array]
    names: list[bytes]

    def __len__(self) -> int:
        return len(self.names)


class SiteCounter:
    """Counts rows and gathered documents of each site, partition by partition."""

    def __init__(self, site: U64) -> None:
        self._site = site
        self.documents = np.zeros(len(site), np.int64)
        self._gathered = np.zeros(len(site), np.int64)

    def add(self, rows: Columns) -> None:
        documents, gathered = site_counts(self._site, rows)
        self.documents += documents
        self._gathered += gathered

    def columns(self) -> dict[str, Array]:
        counts = {"documents": self.documents, "gathered": self._gathered}
        return {name: values.astype(SITES[name]) for name, values in counts.items()}


def read_sites(state: State) -> Sites:
    rows = state.sites.rows
    return Sites(state.sites.slice(0, rows), state.site_names(0, rows))


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


def add_sites(sites: Sites, site: U64, norm: U64, names: Sequence[bytes], filters: Filter) -> Sites:
    """The table with new sites in their places: none of them is in it, and each comes once."""
    if not len(site):
        return sites
    added = site_rows(site, norm) | settings_of(names, filters)
    order = np.argsort(np.concatenate([sites.columns["site"], site]), kind="stable")
    columns = {name: np.concatenate([sites.columns[name], added[name]])[order] for name in SITES}
    all_names = [*sites.names, *names]
    return Sites(columns, [all_names[i] for i in order.tolist()])


def settings_of(names: Iterable[bytes], filters: Filter, qkey: U64 | None = None) -> dict[str, Array]:
    """What the filter says of each site, as columns; with its queue key also by address ranges.

    Sites of which the same lines speak share one class, so the cost is a few lookups a site, and nothing without such lines.
    """
    classes = filters.site_classes(names, qkey)
    settings = {column: np.array([getattr(s, column) for s in classes.settings], SITES[column]) for column in FILTERED}
    return {column: values[classes.codes] for column, values in settings.items()}


def keep_sites(sites: Sites, mask: Bools) -> Sites:
    """The table without the rows that are not in the mask."""
    columns = {name: values[mask] for name, values in sites.columns.items()}
    return Sites(columns, [name for name, keep in zip(sites.names, mask.tolist(), strict=True) if keep])


def write_sites(builder: Builder, sites: Sites) -> None:
    """The whole table."""
    ends = np.cumsum([len(name) for name in sites.names], dtype=np.uint64)
    builder.write_table("sites", {**sites.columns, "name": ends})
    builder.write_site_names([b"".join(sites.names)])
