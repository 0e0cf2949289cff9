"""What a journal changes in the table of sites, worked out for those sites alone that it speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shepherd.arrays import keys, patch
from shepherd.arrays import site_counts as sitecounts
from shepherd.arrays.partitions import partitions
from shepherd.arrays.patch import AddedRows, Patch, TableChanges
from shepherd.cycle.common.site_table import settings_of, site_rows
from shepherd.cycle.cork.rules import Effects
from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats.tables import I64, SITES, U64, Array, Bools, Columns, Kind, Records, in_bucket
from shepherd.politeness import contacts
from shepherd.politeness.tenants import PausedSites
from shepherd.store.disk import names
from shepherd.store.state.columns import Table
from shepherd.store.state.directory import Builder, State
from shepherd.urls import parse

CHANGED = (*contacts.SITE_CHANGED, "documents", "gathered")
READ = ("site", "delay_ms", *CHANGED)
PIECE = 1 << 22


@dataclass(frozen=True)
class TouchedSites:
    """The sites that a journal speaks of, sorted by site: their rows in the table, -1 for new ones; and the names of these."""

    row: I64
    columns: Mapping[str, Array]
    new: Mapping[str, Array]  # all columns of the new ones
    names: Sequence[bytes]

    def with_columns(self, columns: Columns) -> TouchedSites:
        return TouchedSites(self.row, {**self.columns, **columns}, self.new, self.names)

    @property
    def is_old(self) -> Bools:
        return np.asarray(self.row >= 0)


def touched_sites(state: State, journal: Records, since: int, url_of: Callable[[int], str], filters: Filter) -> TouchedSites:
    """Those of the records, and those that pages moved to: the name of a new one stands in the bucket of a page that did.

    And those that a wrong clock has put off: nothing that is stored was said later than `since`.
    """
    old_sites = state.sites["site"][0 : state.sites.rows]
    moved = (journal["answered"] != journal["site"]) & (journal["kind"] == Kind.PAGE) & in_bucket(journal["oid"])
    answered = np.ascontiguousarray(journal["answered"][moved])
    strange = keys.find_sites(old_sites, answered) < 0
    new_site, first = _first_of_each(answered[strange])
    named = [parse(url_of(oid)) for oid in journal["oid"][moved][strange][first].tolist()]
    if [state.prints.half(url.site) for url in named] != new_site.tolist():
        raise Corruption("a record says that a page answered at another site than its bucket does")
    new_names = [url.site.encode("ascii") for url in named]
    new_norm = np.array([state.prints.norm(url.site) for url in named], np.uint64)
    new = site_rows(new_site, new_norm) | settings_of(new_names, filters)

    asking = np.ascontiguousarray(journal["answered"][journal["retry_after_s"] > 0])  # wherever the page was to be
    pauses = PausedSites.of(state.sites.slice(0, state.sites.rows, ("pause_s", "pause_end")), since * 1000, 0)
    put_off = old_sites[pauses.rows[pauses.anew]]
    site = keys.distinct(np.concatenate([np.ascontiguousarray(journal["site"]), answered, asking, put_off]))
    row = keys.find_sites(old_sites, site)
    is_new = keys.find_sites(new_site, site) >= 0
    there = (row >= 0) | is_new
    row, is_new = row[there], is_new[there]
    columns = {}
    for name in READ:
        columns[name] = np.empty(len(row), SITES[name])
        columns[name][~is_new] = state.sites[name].take(row[~is_new])
        columns[name][is_new] = new[name]
    columns |= contacts.believable_sites(columns, since)
    return TouchedSites(row, columns, new, new_names)


def _first_of_each(site: U64) -> tuple[U64, I64]:
    """The different sites, sorted, and where each is first."""
    order = np.argsort(site, kind="stable")
    starts = keys.run_starts(site[order])
    return site[order][starts], order[starts]


def same_robots(touched: TouchedSites, effects: Effects) -> TouchedSites:
    """A robots file that came again as it was: the site points at the bucket that its row has kept."""
    row = keys.find_sites(touched.columns["site"], effects.robots["site"])
    oid = touched.columns["robots_oid"].copy()
    is_copy = oid[row] == effects.robots["came"]
    oid[row[is_copy]] = effects.robots["stays"][is_copy]
    return touched.with_columns({"robots_oid": oid})


def with_counts(touched: TouchedSites, effects: Effects) -> TouchedSites:
    """With the rows that moved and the documents that came and went."""
    site, before, after = touched.columns["site"], effects.site_before, effects.site
    moved = before != after
    other = moved | (effects.was_gathered != effects.is_gathered)  # of all the rest a site loses as much as it gains
    gained = sitecounts.changed(site, before[moved], after[moved])
    gathered = sitecounts.changed(site, before[other & effects.was_gathered], after[other & effects.is_gathered])
    return touched.with_columns(
        {
            "documents": (touched.columns["documents"] + gained).astype(SITES["documents"]),
            "gathered": (touched.columns["gathered"] + gathered).astype(SITES["gathered"]),
        }
    )


def site_changes(state: State, touched: TouchedSites) -> TableChanges:
    """Of the old rows the columns that differ, and the new rows in their places."""
    is_old = touched.is_old
    old = patch.only_changed(state.sites, Patch(touched.row[is_old], {n: touched.columns[n][is_old] for n in CHANGED}))
    if not len(touched.names):
        return TableChanges(old)
    new = {**touched.new, **{name: values[~is_old] for name, values in touched.columns.items()}}
    places = np.searchsorted(state.sites["site"][0 : state.sites.rows], new["site"]).astype(np.int64)
    return TableChanges(old, AddedRows(places, new))


def write_sites(builder: Builder, state: State, touched: TouchedSites, changes: TableChanges, step: int) -> None:
    if not len(touched.names):
        patch.write(builder, "sites", state.sites, changes, step)
        builder.keep([f"sites/{names.NAMES}"])
        return
    lengths = np.array([len(name) for name in touched.names], np.uint64)
    places = changes.added.places
    ends = _old_ends(state, places) + np.cumsum(lengths)
    new = AddedRows(places, {**changes.added.columns, "name": ends})
    writer = builder.table("sites")
    for start, stop in partitions(state.sites.rows, step):
        columns = {n: patch.values(state.sites, TableChanges(changes.patch, new), n, start, stop) for n in SITES if n != "name"}
        writer.append({**columns, "name": _shifted(state.sites, new, lengths, start, stop)})
    builder.finish_table(writer)
    builder.write_site_names(_spliced(state, places, touched.names, step))


def _old_ends(state: State, places: I64) -> U64:
    """How many bytes of old names stand before each place."""
    ends = np.zeros(len(places), np.uint64)
    ends[places > 0] = state.sites["name"].take(places[places > 0] - 1)
    return ends


def _shifted(table: Table, new: AddedRows, lengths: U64, start: int, stop: int) -> Array:
    """The ends of names, each moved by the new names before it."""
    before = np.concatenate([np.zeros(1, np.uint64), np.cumsum(lengths)])
    moved = table["name"][start:stop] + before[np.searchsorted(new.places, np.arange(start, stop), side="right")]
    first, last = np.searchsorted(new.places, [start, stop]).tolist()
    last = len(new.places) if stop == table.rows else last
    return np.insert(moved, new.places[first:last] - start, new.columns["name"][first:last])


def _spliced(state: State, places: I64, new_names: Sequence[bytes], step: int) -> Iterator[bytes]:
    """The text of all names, in pieces that are worth writing."""
    buffer, row = bytearray(), 0
    for place, name in zip([*places.tolist(), state.sites.rows], [*new_names, b""], strict=True):
        for start in range(row, place, step):
            buffer += state.names_between(start, min(start + step, place)).data.tobytes()
            if len(buffer) > PIECE:
                yield bytes(buffer)
                buffer.clear()
        buffer += name
        row = place
    yield bytes(buffer)
