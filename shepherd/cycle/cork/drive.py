"""Drives cork: takes harvests into the tables and closes a state.

It leads from N.reap to N, with every harvest of that reap and those in the inbox; or, where only harvests in the inbox wait,
from a closed N to N+1. Rows, sites and servers that no record speaks of are read and copied, or linked, and never computed.
Notes of contacts that wait in the inbox are taken along, but no state is made for them alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shepherd.arrays import keys, patch
from shepherd.arrays.distinct_urls import Paths, find_known
from shepherd.arrays.partitions import Tick, no_progress, partitions
from shepherd.arrays.patch import AddedRows, Patch, TableChanges, TableRewriter
from shepherd.arrays.pool import ordered, tasks
from shepherd.config import Config
from shepherd.cycle.common.turn import not_now
from shepherd.cycle.cork import harvests
from shepherd.cycle.cork import rules as cork
from shepherd.cycle.cork import site_updates as siteupdates
from shepherd.cycle.cork.harvests import HarvestSource
from shepherd.cycle.cork.rules import Effects, SettledRows, outcomes
from shepherd.cycle.cork.site_updates import TouchedSites
from shepherd.errors import NothingToDo
from shepherd.filters import load_filter
from shepherd.formats.control import CLOSED
from shepherd.formats.tables import JOURNAL, SERVERS, U64, Array, Columns, Records, Result
from shepherd.politeness import contacts
from shepherd.politeness.contacts import ServerClaims
from shepherd.politeness.site_pauses import owners_in
from shepherd.politeness.strange_ports import has_unusual_port
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import contact_notes as contactnotes
from shepherd.store.state.database import Writer
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.inbox import HARVEST
from shepherd.urls import Footprints

READ = ("norm", "path", *cork.CHANGED)


def run(writer: Writer, config: Config, now: int, tick: Tick, jobs: int = 1) -> State:
    state = writer.furthest()
    sources, refused = _harvests(writer, state, now)
    notes = contactnotes.waiting(writer.database.inbox, state.control.applied)
    journal = harvests.journal(sources, notes.records)
    since = min(state.control.now, now)  # what is stored is from before this, and what it says of later times from a wrong clock
    number = state.number + 1 if state.name.closed else state.number
    builder = writer.build(state, StateName(number, CLOSED), now)
    try:
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        harvests.adopt(builder, sources, journal.records)
        builder.change(applied=(*builder.control.applied, *notes.items))
        builder.change(speed=contacts.speed(state.control.speed, keys.pick(journal.records, journal.own)))
        counts = _apply(builder, state, sources, harvests.believable(journal.records, now), since, config, tick, jobs)
        report: dict[str, Any] = {"phase": "cork", "harvests": len(sources), "journal": len(journal.records), "settled": counts}
        report |= outcomes(journal.records)
        extras = {"contact notes": len(notes.items), "refused notes": notes.refused, "refused harvests": refused}
        return writer.publish(builder, report | {name: what for name, what in extras.items() if what})
    finally:
        builder.close()
        harvests.clear_copies(sources)


def _harvests(writer: Writer, state: State, now: int) -> tuple[list[HarvestSource], dict[str, str]]:
    if state.name.phase not in ("reap", CLOSED):
        raise not_now(state, "nothing has been reaped")
    items = writer.database.inbox.waiting(state.control.applied, HARVEST)
    if state.name.closed and not items:
        raise not_now(state, "nothing has been reaped, no harvest waits in the inbox")
    own = harvests.own(state.harvests())
    if not own and not state.name.closed:
        raise NothingToDo(f"{state.name} has no harvest yet; run shep-reap")
    new_name = None if writer.is_dry_run else lambda: writer.database.new_item_name(now * 1000)
    foreign, refused = harvests.foreign(items, Footprints(state.control.key), new_name)
    if not own and not foreign:
        raise harvests.nothing_taken(writer.database.inbox.directory, refused)
    return harvests.number_segments([*own, *foreign], state.control.segments), refused


def _apply(
    builder: Builder,
    state: State,
    sources: Sequence[HarvestSource],
    journal: Records,
    since: int,
    config: Config,
    tick: Tick,
    jobs: int,
) -> dict[str, int]:
    touched, effects, index = _settled(builder, state, sources, journal, since, config, tick, jobs)
    strange, site = _moved(state, effects.strange)
    if len(strange):
        index.discard()
        journal = cork.readdressed(journal, strange, site)
        touched, effects, index = _settled(builder, state, sources, journal, since, config, no_progress, jobs)
    index.finish()
    step = config.store.partition_rows
    sites = siteupdates.site_changes(state, touched)
    siteupdates.write_sites(builder, state, touched, sites, step)
    patch.write(builder, "servers", state.servers, server_changes(state, sites, journal, since, config), step)
    return {name: count for name, count in effects.counts.items() if count}


def _settled(
    builder: Builder,
    state: State,
    sources: Sequence[HarvestSource],
    journal: Records,
    since: int,
    config: Config,
    tick: Tick,
    jobs: int,
) -> tuple[TouchedSites, Effects, TableRewriter]:
    """The sites that a journal speaks of as they will be, what its records did, and the index that they change."""
    url_of, opened = harvests.urls_of(sources)
    with opened:
        touched = siteupdates.touched_sites(state, journal, since, url_of, load_filter(config.filter_path))
    settled = cork.newest(journal)
    touched = touched.with_columns(contacts.apply_sites(touched.columns, journal, settled, config.politeness))
    index = TableRewriter(builder, "index", state.index, config.store.partition_rows)
    effects = _settle(index, state, settled, touched.columns, builder.name.number, builder.control.now, config, tick, jobs)
    return siteupdates.with_counts(siteupdates.same_robots(touched, effects), effects), effects, index


def _moved(state: State, strange: Records) -> tuple[Records, U64]:
    """Of pages that have no row under their site: those whose document has one, under an equivalent site; and that site.

    A harvest from elsewhere may have been planned before a page moved. Robots files and root pages are of one site each.
    """
    paths = Paths.of(state.prints)
    strange = keys.pick(strange, ~paths.special(np.ascontiguousarray(strange["path"])))
    if not len(strange):
        return strange, np.zeros(0, np.uint64)
    index = {name: state.index[name][0 : state.index.rows] for name in ("norm", "path", "site")}
    row, _place = find_known(index, {name: np.ascontiguousarray(strange[name]) for name in index}, paths)
    return keys.pick(strange, row >= 0), index["site"][row[row >= 0]]


@dataclass(frozen=True)
class PartRecords:
    start: int
    stop: int
    records: Records


@dataclass(frozen=True)
class _Pass:
    """What the work on every partition needs."""

    sites: Columns
    number: int  # of the state that is made
    now: int
    config: Config


def _settle(
    written: TableRewriter,
    state: State,
    settled: Records,
    sites: Columns,
    number: int,
    now: int,
    config: Config,
    tick: Tick,
    jobs: int,
) -> Effects:
    """Settle and write the rows of the index: partitions that no record falls into are copied, if at all."""
    parts = [part for part in _parts(state, settled, config.store.partition_rows) if len(part.records)]
    effects, rows_done = [], 0
    work = tasks(_apply_part, state, _Pass(sites, number, now, config), parts)
    for part, corked in zip(parts, ordered(work, jobs), strict=True):
        changed = {name: corked.columns[name] for name in cork.CHANGED if name in corked.changed}
        written.put(part.start, part.stop, Patch(corked.rows + part.start, changed))
        effects.append(corked.effects)
        tick(part.stop - rows_done)
        rows_done = part.stop
    tick(state.index.rows - rows_done)
    return _joined(effects)


def _apply_part(state: State, shared: _Pass, part: PartRecords) -> SettledRows:
    index, config = state.index.slice(part.start, part.stop, READ), shared.config
    return cork.apply_index(
        index,
        part.records,
        shared.sites,
        state=shared.number,
        now_s=shared.now,
        plan=config.plan,
        politeness=config.politeness,
    )


def _parts(state: State, settled: Records, step: int) -> Iterator[PartRecords]:
    """The records (sorted as the index is) that fall into each partition; those before the first row go to the first."""
    ranges = list(partitions(state.index.rows, step))
    record_keys = [np.ascontiguousarray(settled[name]) for name in ("norm", "path", "site")]
    starts = np.array([start for start, _stop in ranges[1:]], np.int64)
    row_keys = [state.index[name].take(starts) for name in ("norm", "path", "site")]
    cuts = keys.lower_bound(*record_keys, *row_keys).tolist()
    for (start, stop), first, last in zip(ranges, [0, *cuts], [*cuts, len(settled)], strict=True):
        yield PartRecords(start, stop, settled[first:last])


def _joined(all_effects: Sequence[Effects]) -> Effects:
    def whole(parts: list[Array], dtype: str) -> Array:
        return np.concatenate([np.zeros(0, dtype), *parts])

    counts = Counter[str]()
    for effects in all_effects:
        counts.update(effects.counts)
    return Effects(
        site_before=whole([effects.site_before for effects in all_effects], "<u8"),
        site=whole([effects.site for effects in all_effects], "<u8"),
        was_gathered=whole([effects.was_gathered for effects in all_effects], "?"),
        is_gathered=whole([effects.is_gathered for effects in all_effects], "?"),
        robots={name: whole([effects.robots[name] for effects in all_effects], "<u8") for name in ("site", "came", "stays")},
        strange=np.concatenate([np.zeros(0, JOURNAL), *(effects.strange for effects in all_effects)]),
        counts=counts,
    )


# --- the table of servers -----------------------------------------------------------------------------------------


CLAIMING = ("qkey", "delay_ms", "crawl_delay_ms", "slots", "group")


def server_changes(state: State, sites: TableChanges, journal: Records, since: int, config: Config) -> TableChanges:
    """Of the servers that a journal speaks of, whose sites want something else now, or that a wrong clock has put off.

    `sites` are the changes of the site table: the delay of a server is the longest that one of its sites wants.
    """
    old_qkeys = state.servers["qkey"][0 : state.servers.rows]
    claimed = _claims(state, sites, config)
    contact = contacts.server_contacts(journal)
    qkeys = keys.distinct(np.ascontiguousarray(contact["qkey"]))
    new = keys.distinct(np.concatenate([_missing(old_qkeys, claimed.qkey), _missing(old_qkeys, qkeys)]))
    old_ms = state.servers["delay_ms"][0 : state.servers.rows]
    differs = contacts.server_delays(old_qkeys, old_ms, claimed) != old_ms
    for name, values in contacts.settings(old_qkeys, claimed, config.politeness).items():
        differs |= values != state.servers[name][0 : state.servers.rows]
    next_ms = contacts.believable_next_ms(state.servers.slice(0, state.servers.rows, contacts.WAITING), since)
    differs |= next_ms != state.servers["next_ms"][0 : state.servers.rows]
    other = old_qkeys[np.flatnonzero(differs)]
    touched = keys.distinct(np.concatenate([qkeys, new, other]))
    row = keys.find_sites(old_qkeys, touched)
    old = row >= 0
    columns = contacts.new_servers(touched, config.politeness)
    for name in SERVERS:
        columns[name][old] = state.servers[name].take(row[old])
    columns["next_ms"][old] = next_ms[row[old]]
    columns["delay_ms"] = contacts.server_delays(touched, columns["delay_ms"], claimed)
    columns |= contacts.settings(touched, claimed, config.politeness)
    columns |= contacts.apply_contacts(columns, contact, config.politeness, _strange(state, contact))
    changed = Patch(row[old], {name: columns[name][old] for name in contacts.SERVER_CHANGED})
    places = np.searchsorted(old_qkeys, touched[~old]).astype(np.int64)
    added = AddedRows(places, {name: values[~old] for name, values in columns.items()})
    return TableChanges(patch.only_changed(state.servers, changed), added)


def _strange(state: State, contact: Records) -> U64:
    """Of the sites of contacts that failed, those on ports that never answered, neither before nor now; sorted."""
    failed = contact["result"] == Result.CONNECTION
    silent = np.setdiff1d(contact["answered"][failed], contact["answered"][~failed])
    row = keys.find_sites(state.sites["site"][0 : state.sites.rows], silent)
    silent, row = silent[row >= 0], row[row >= 0]
    never = state.sites["robots_checked"].take(row) == 0
    unusual = [bool(new) and has_unusual_port(state.site_name(place)) for place, new in zip(row.tolist(), never, strict=True)]
    return silent[np.array(unusual, np.bool_)]


def _claims(state: State, sites: TableChanges, config: Config) -> ServerClaims:
    """Of all sites, a partition at a time; a site that is new has no address yet."""
    old_sites, owners = TableChanges(sites.patch), owners_in(state)
    parts = []
    for start, stop in partitions(state.sites.rows, config.store.partition_rows):
        columns = {name: patch.values(state.sites, old_sites, name, start, stop) for name in CLAIMING}
        parts.append(contacts.claims(columns, config.politeness, partial(owners, start)))
    return contacts.join_claims(parts, config.politeness)


def _missing(old_qkeys: U64, qkeys: U64) -> U64:
    return qkeys[keys.find_sites(old_qkeys, qkeys) < 0]
