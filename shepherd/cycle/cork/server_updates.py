"""What a journal changes in the table of servers, for those alone that it speaks of, or whose sites want something else now."""

from __future__ import annotations

import numpy as np

from shepherd.arrays import keys, patch
from shepherd.arrays.partitions import partitions
from shepherd.arrays.patch import Added, Changes, Patch
from shepherd.config import Config
from shepherd.formats.tables import SERVERS, U64, Records
from shepherd.politeness import contacts
from shepherd.politeness.contacts import Claims
from shepherd.store.state.directory import State

CLAIMING = ("qkey", "delay_ms", "crawl_delay_ms", "slots", "group")


def server_changes(state: State, sites: Changes, journal: Records, config: Config) -> Changes:
    """`sites` is what becomes of the site table: the delay of a server is the longest that one of its sites wants."""
    known = state.servers["qkey"][0 : state.servers.rows]
    claimed = _claims(state, sites, config)
    contact = contacts.server_contacts(journal)
    qkeys = keys.distinct(np.ascontiguousarray(contact["qkey"]))
    new = keys.distinct(np.concatenate([_missing(known, claimed.qkey), _missing(known, qkeys)]))
    old_ms = state.servers["delay_ms"][0 : state.servers.rows]
    differs = contacts.server_delays(known, old_ms, claimed) != old_ms
    for name, wanted in contacts.settings(known, claimed, config.politeness).items():
        differs |= wanted != state.servers[name][0 : state.servers.rows]
    other = known[np.flatnonzero(differs)]
    touched = keys.distinct(np.concatenate([qkeys, new, other]))
    row = keys.find_sites(known, touched)
    old = row >= 0
    columns = contacts.new_servers(touched, config.politeness)
    for name in SERVERS:
        columns[name][old] = state.servers[name].take(row[old])
    columns["delay_ms"] = contacts.server_delays(touched, columns["delay_ms"], claimed)
    columns |= contacts.settings(touched, claimed, config.politeness)
    columns |= contacts.apply_contacts(columns, contact, config.politeness)
    changed = Patch(row[old], {name: columns[name][old] for name in contacts.SERVER_CHANGED})
    places = np.searchsorted(known, touched[~old]).astype(np.int64)
    added = Added(places, {name: values[~old] for name, values in columns.items()})
    return Changes(patch.only_changed(state.servers, changed), added)


def _claims(state: State, sites: Changes, config: Config) -> Claims:
    """Of all sites, a partition at a time; a site that is new has no address yet."""
    known = Changes(sites.patch)
    parts = []
    for start, stop in partitions(state.sites.rows, config.store.partition_rows):
        columns = {name: patch.values(state.sites, known, name, start, stop) for name in CLAIMING}
        parts.append(contacts.claims(columns, config.politeness))
    return contacts.join_claims(parts, config.politeness)


def _missing(known: U64, qkeys: U64) -> U64:
    return qkeys[keys.find_sites(known, qkeys) < 0]
