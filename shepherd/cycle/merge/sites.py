"""The site table after a merge: exactly the sites that have rows, with what was known of them.

It is made range by range from the tallies of the index: a site that is in none has lost its last row. A new one gets the name
that came with its URLs, and what the filter says of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.column_spill import ColumnSpill
from shepherd.arrays.distinct_urls import take
from shepherd.arrays.keys import find_sites
from shepherd.arrays.partitions import rows_before
from shepherd.arrays.pool import ordered
from shepherd.cycle.common.site_table import settings_of, site_rows
from shepherd.cycle.merge.contributions import new_names
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


class SiteMerge:
    """Makes the site table of a merge from the tallies of its index and the names of new sites, by the same borders."""

    def __init__(
        self, parent: State, tallies: ColumnSpill, named: ColumnSpill, borders: U64, filters: Filter, inserted: U64
    ) -> None:
        self._parent, self._tallies, self._named, self._filters = parent, tallies, named, filters
        self._filter_changed = parent.control.filter != filters.version
        self._inserted = inserted
        self._cuts = rows_before(parent.sites["site"][0 : parent.sites.rows], borders)

    def write(self, builder: Builder, jobs: int) -> dict[str, int]:
        """Write the table; how many sites there are, new ones and dropped ones."""
        table, end, sites, new = builder.table("sites"), 0, 0, 0
        names = builder.site_names()
        for range_ in ordered(self._range, range(len(self._tallies)), jobs):
            ends = end + np.cumsum(range_.lengths)
            table.append({**range_.columns, "name": ends.astype(np.uint64)})
            names.append(range_.names)
            end += len(range_.names)
            sites, new = sites + len(ends), new + range_.new
        builder.finish_table(table)
        builder.finish_site_names(names)
        return {"sites": sites, "new sites": new, "dropped sites": self._parent.sites.rows + new - sites}

    def _range(self, part: int) -> SiteRange:
        tallies = self._tallies.read(part)
        tallies = take(tallies, np.argsort(tallies["site"], kind="stable"))
        start, stop = int(self._cuts[part]), int(self._cuts[part + 1])
        row = find_sites(self._parent.sites["site"][start:stop], tallies["site"])
        new = np.flatnonzero(row < 0)
        columns = self._columns(start, stop, row)
        for name, values in site_rows(tallies["site"][new], tallies["norm"][new]).items():
            columns[name][new] = values
        columns |= {name: tallies[name] for name in ("site", "norm", "documents", "gathered")}
        names = self._names(part, start, stop, tallies["site"], row, new)
        self._judge(columns, names, new)
        del columns["name"]
        return SiteRange(columns, names.lengths, names.data, len(new))

    def _columns(self, start: int, stop: int, row: I64) -> dict[str, Array]:
        """The columns of the rows that are known; whatever for the others."""
        old = self._parent.sites.slice(start, stop)
        if start == stop:
            return {name: np.zeros(len(row), values.dtype) for name, values in old.items()}
        return {name: values.take(row, mode="clip") for name, values in old.items()}

    def _names(self, part: int, start: int, stop: int, site: U64, row: I64, new: I64) -> Texts:
        old, fresh = self._parent.names_between(start, stop), new_names(self._named, part)
        place = find_sites(fresh.site, site[new])
        if (place < 0).any():
            raise Corruption(f"site {int(site[new[place < 0][0]]):016x} has URLs, but no name", self._parent.path)
        source = row.copy()
        source[new] = len(old) + place
        return Texts.join([old, fresh.names.texts()]).take(source)

    def _judge(self, columns: dict[str, Array], names: Texts, new: I64) -> None:
        """What the filter says of new sites, or of all if it has changed; and whom an operator wants looked up at once."""
        rows = np.arange(len(names)) if self._filter_changed else new
        for name, values in settings_of(names.take(rows).tolist(), self._filters, columns["qkey"][rows]).items():
            columns[name][rows] = values
        again = (find_sites(self._inserted, columns["site"]) >= 0) & unresolved(columns["qkey"])
        columns["qkey_next"][again] = 0
