"""The site table as one piece in memory: a site is added here, by merge for a link and by cork for a page that moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import site_counts
from shepherd.cycle.common.new_sites import find_new_sites, site_rows
from shepherd.filters import Filter, SiteSettings
from shepherd.formats.check import check64
from shepherd.formats.tables import I64, SITES, U64, Array, Bools, Columns
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
        counted = {"documents": self.documents, "gathered": self._gathered}
        return {name: values.astype(SITES[name]) for name, values in counted.items()}


def read_sites(state: State) -> Sites:
    rows = state.sites.rows
    return Sites(state.sites.slice(0, rows), state.site_names(0, rows))


def add_sites(sites: Sites, site: U64, norm: U64, names: Sequence[bytes], filters: Filter) -> tuple[Sites, U64]:
    """The table with the new ones of these sites in their places; and the footprints of names refused.

    A name is refused when its 64 bits belong to another name: it is never merged with a stranger.
    """

    def checks_of(rows: I64) -> U64:
        return _checks([sites.names[row] for row in rows.tolist()])

    found = find_new_sites(sites.columns["site"], checks_of, site, _checks(names))
    refused = site[found.refused]
    if not len(found.new):
        return sites, refused
    new_names = [names[i] for i in found.new.tolist()]
    added = site_rows(site[found.new], norm[found.new]) | settings_of(new_names, filters)
    order = np.argsort(np.concatenate([sites.columns["site"], added["site"]]), kind="stable")
    columns = {name: np.concatenate([sites.columns[name], added[name]])[order] for name in SITES}
    all_names = [*sites.names, *new_names]
    return Sites(columns, [all_names[i] for i in order.tolist()]), refused


def _checks(names: Sequence[bytes]) -> U64:
    return np.array([check64(name) for name in names], np.uint64)


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
