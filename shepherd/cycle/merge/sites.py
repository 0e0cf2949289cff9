"""The site table after a merge: exactly the sites that have rows, with what was known of them.

It is made range by range from the tallies of the index: a site that is in none has lost its last row. A new one gets the name
that came with its URLs, and what the filter says of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from shepherd.arrays.column_spill import SpilledRows
from shepherd.arrays.distinct_urls import take
from shepherd.arrays.keys import find_sites
from shepherd.arrays.partitions import rows_before
from shepherd.arrays.pool import ordered, tasks
from shepherd.cycle.common.site_table import settings_of, site_rows
from shepherd.cycle.merge.contributions import SiteNames, new_names
from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats.tables import I64, U8, U64, Array
from shepherd.formats.texts import Texts
from shepherd.politeness.quota import unresolved
from shepherd.store.state.directory import Builder, State

TALLIED: Final = {"site": "<u8", "norm": "<u8", "documents": "<u4", "gathered": "<u4"}


@dataclass(frozen=True)
class SiteRange:
    """The sites of one range; `columns` lack `name`, which counts from the first range on."""

    columns: dict[str, Array]
    lengths: I64
    names: U8
    new: int


@dataclass(frozen=True)
class SiteMerge:
    """What the work on every range needs: the tallies of the new index, and the names of new sites, by the same borders."""

    tallies: SpilledRows
    named: SpilledRows
    filters: Filter
    asked_for: U64  # the sites that an operator has inserted URLs of, or wants refreshed


def write_sites(builder: Builder, parent: State, merge: SiteMerge, borders: U64, jobs: int) -> dict[str, int]:
    """Write the site table of a merge; how many sites there are, new ones and dropped ones."""
    table, end, sites, new = builder.table("sites"), 0, 0, 0
    names = builder.site_names()
    ranges = pairwise(rows_before(parent.sites["site"][0 : parent.sites.rows], borders).tolist())
    for range_ in ordered(tasks(_range, parent, merge, enumerate(ranges)), jobs):
        ends = end + np.cumsum(range_.lengths)
        table.append({**range_.columns, "name": ends.astype(np.uint64)})
        names.append(range_.names)
        end += len(range_.names)
        sites, new = sites + len(ends), new + range_.new
    builder.finish_table(table)
    builder.finish_site_names(names)
    return {"sites": sites, "new sites": new, "dropped sites": parent.sites.rows + new - sites}


def _range(parent: State, merge: SiteMerge, part: tuple[int, tuple[int, int]]) -> SiteRange:
    number, (start, stop) = part
    tallies = merge.tallies.read(number)
    tallies = take(tallies, np.argsort(tallies["site"], kind="stable"))
    row = find_sites(parent.sites["site"][start:stop], tallies["site"])
    new = np.flatnonzero(row < 0)
    columns = _columns(parent, start, stop, row)
    for name, values in site_rows(tallies["site"][new], tallies["norm"][new]).items():
        columns[name][new] = values
    columns |= {name: tallies[name] for name in ("site", "norm", "documents", "gathered")}
    names = _names(parent, start, stop, new_names(merge.named, number), tallies["site"], row, new)
    _judge(columns, names, new, merge, parent)
    del columns["name"]
    return SiteRange(columns, names.lengths, names.data, len(new))


def _columns(parent: State, start: int, stop: int, row: I64) -> dict[str, Array]:
    """The columns of the rows that are known; whatever for the others."""
    old = parent.sites.slice(start, stop)
    if start == stop:
        return {name: np.zeros(len(row), values.dtype) for name, values in old.items()}
    return {name: values.take(row, mode="clip") for name, values in old.items()}


def _names(parent: State, start: int, stop: int, fresh: SiteNames, site: U64, row: I64, new: I64) -> Texts:
    old = parent.names_between(start, stop)
    place = find_sites(fresh.site, site[new])
    if (place < 0).any():
        raise Corruption(f"site {int(site[new[place < 0][0]]):016x} has URLs, but no name", parent.path)
    source = row.copy()
    source[new] = len(old) + place
    return Texts.join([old, fresh.names.texts()]).take(source)


def _judge(columns: dict[str, Array], names: Texts, new: I64, merge: SiteMerge, parent: State) -> None:
    """What the filter says of new sites, or of all if it has changed; and whom an operator wants looked up at once."""
    rows = np.arange(len(names)) if parent.control.filter != merge.filters.version else new
    for name, values in settings_of(names.take(rows).tolist(), merge.filters, columns["qkey"][rows]).items():
        columns[name][rows] = values
    again = (find_sites(merge.asked_for, columns["site"]) >= 0) & unresolved(columns["qkey"])
    columns["qkey_next"][again] = 0
