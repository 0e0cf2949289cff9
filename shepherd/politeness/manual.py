"""When a server may be asked outside a reap, and the notes that say so to everybody else (store/state/contact_notes).

For the holder of the lock: no reap runs. What is known is put together as cork would: the servers table, the harvests that no
cork has taken yet, the notes that wait, and what the site itself asks for. Invariant: there is a durable note of a contact
before the server sees anything of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shepherd.clock import ClockReading, end_of
from shepherd.config import Config
from shepherd.formats.frame import FrameKind
from shepherd.formats.journal import Entry
from shepherd.formats.tables import I64, JOURNAL, NO_OID, NO_ROW, SERVERS, U64, Array, Kind, Reason, Records, Result
from shepherd.politeness import contacts, delays
from shepherd.politeness.shared_contacts import SharedContacts
from shepherd.politeness.site_pauses import site_pauses
from shepherd.politeness.tenants import Accord
from shepherd.store.disk import names
from shepherd.store.state import clock_note, harvest, logs, lookup
from shepherd.store.state import contact_notes as contactnotes
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State

_FIELDS_OF_RECORD: Final = (
    "status",
    "download_ms",
    "wire_bytes",
    "body_bytes",
    "result",
    "reason",
    "retry_after_s",
    "crawl_delay_ms",
)


@dataclass(frozen=True)
class Destination:
    """Where a request goes: a queue key, the group that the filter puts it into (0 = none), and what holds for its site."""

    qkey: int
    group: int
    delay_ms: int
    crawl_delay_ms: int = 0
    site: int = 0

    @property
    def wait_ms(self) -> int:
        """What the site asks for itself."""
        return max(self.delay_ms, self.crawl_delay_ms)


@dataclass(frozen=True)
class Readiness:
    """From when on a server may be asked, and the delay that holds for it, back-off included."""

    at_ms: int
    delay_ms: int
    unsure: bool  # nobody knows when it was last asked


class ManualContacts:
    """Made by whoever holds the lock, when it has been taken."""

    def __init__(
        self,
        database: Database,
        state: State,
        config: Config,
        clock_ms: Callable[[], int],
        reading: ClockReading,
        shared: SharedContacts | None = None,
    ) -> None:
        self._inbox, self._state, self._politeness, self._clock = database.inbox, state, config.politeness, clock_ms
        self._shared = shared
        self._new_name = database.new_item_name
        self._since_ms = clock_ms()  # nobody else has asked anyone from here on
        self._clock_set = bool(reading.set_by_ms(clock_note.read_note(database.log_path)))
        self._timeout_ms = round(config.fetch.timeout_s * 1000)

    # --- when -------------------------------------------------------------------------------------------------------

    def ready(self, server: Destination) -> Readiness:
        now_ms, state = self._clock(), self._state
        known_qkeys: U64 = state.servers["qkey"][0 : state.servers.rows]
        rows = self._rows(known_qkeys, server)
        notes = contactnotes.waiting(self._inbox, state.control.applied)
        group = self._group(server)
        qkeys_of_notes = notes.records["qkey"][notes.records["group"] == np.uint64(group)] if group else notes.records["qkey"][:0]
        qkeys = np.unique(np.concatenate([known_qkeys[rows], qkeys_of_notes, np.array([server.qkey], np.uint64)]))
        columns = contacts.new_servers(qkeys, self._politeness)
        for name in SERVERS:
            columns[name][np.searchsorted(qkeys, known_qkeys[rows])] = state.servers[name].take(rows)
        records = self._records(qkeys, notes.records)
        bound_ms = delays.neighbours_ms(self._politeness)
        crawl_ms = min(int(records["crawl_delay_ms"].max(initial=0)), bound_ms)  # of robots files that no table has yet
        asked_ms = max(server.delay_ms, min(server.crawl_delay_ms, bound_ms), crawl_ms)
        delay_ms = max(asked_ms, int(columns["delay_ms"].max()) if len(rows) else 0)
        columns["delay_ms"][:] = delay_ms
        cut_off = self._clock_set or bool(notes.refused) or any(not harvest.inspect(path).ended for path in state.harvests())
        columns |= contacts.apply_contacts(columns, contacts.server_contacts(records), self._politeness)
        wait_ms = delays.wait_ms(delay_ms, int(columns["backoff"].max()))
        unsure_ms = self._since_ms if cut_off else min(state.control.unsure, now_ms)
        next_ms = delays.first_contact_ms(int(columns["next_ms"].max()), wait_ms, unsure_ms, now_ms)
        asking = records[contacts.contacts(records) & (records["retry_after_s"] > 0)]
        asked_until_ms = asking["end_ms"] + np.minimum(delays.retry_afters_ms(asking["retry_after_s"]), bound_ms)
        own_ms = self._end_of_pause_ms(server, records, unsure_ms, now_ms)
        first_ms = max(next_ms, own_ms, *asked_until_ms.tolist(), *self._pauses_ms(qkeys, now_ms))
        return Readiness(first_ms, max(wait_ms, server.wait_ms), cut_off)

    def _pauses_ms(self, qkeys: U64, now_ms: int) -> list[int]:
        """Until when servers are left alone because a site of theirs has asked for it, or sites of two owners have."""
        pauses = [pause for pause in site_pauses(self._state, now_ms, self._politeness) if pause.qkey in qkeys.tolist()]
        demands = Accord()
        for pause in pauses:
            demands.add(pause.owner, pause.until_ms)
        return [demands.value, *(pause.shared_ms for pause in pauses)]

    def _end_of_pause_ms(self, server: Destination, records: Records, unsure_ms: int, now_ms: int) -> int:
        """Until when the site itself is left alone, by the table and by what no table has yet."""
        pauses = [unsure_ms + server.wait_ms if unsure_ms else 0]
        row = lookup.site_row(self._state, server.site)
        if row is not None:
            pause_s, pause_end = (self._state.sites[name].take(np.array([row])) for name in ("pause_s", "pause_end"))
            pauses += delays.pauses_ms(pause_s, pause_end, now_ms).tolist()
        own = records[(records["answered"] == np.uint64(server.site)) & contacts.contacts(records)]
        pauses += (own["end_ms"] + np.maximum(delays.retry_afters_ms(own["retry_after_s"]), server.wait_ms)).tolist()
        return max(pauses)

    def _rows(self, known_qkeys: U64, server: Destination) -> I64:
        """The servers whose contacts count: the one that is meant, and all of its group."""
        same = known_qkeys == np.uint64(server.qkey)
        group = self._group(server)
        if not group:
            return np.flatnonzero(same)
        groups: Array = self._state.servers["group"][0 : self._state.servers.rows]
        return np.flatnonzero(same | (groups == np.uint64(group)))

    def _group(self, server: Destination) -> int:
        """The group of its site, else of its server; 0 = none."""
        row = lookup.server_row(self._state, server.qkey)
        return server.group or (self._state.servers["group"].value(row) if row is not None else 0)

    def _records(self, qkeys: U64, notes: Records) -> Records:
        """Records of these servers that the table of servers does not know of yet; notes of before a reap come first."""
        parts = [notes]
        for path in self._state.harvests():
            length = harvest.inspect(path).checkpoint.journal.length
            if length:
                parts += logs.records(path / names.JOURNAL, FrameKind.JOURNAL, JOURNAL, length)
        of_servers = [records[np.isin(records["qkey"], qkeys)] for records in parts]
        joined = np.concatenate(of_servers)
        return joined[np.argsort(joined["end_ms"], kind="stable")]

    def claim(self, server: Destination, ready: Readiness) -> Readiness:
        """A server that may be asked now, unless another database of this machine needs it: then it may be later."""
        wait_ms = self._shared.take(server.qkey, ready.delay_ms, self._timeout_ms) if self._shared is not None else 0
        return replace(ready, at_ms=self._clock() + wait_ms) if wait_ms else ready

    # --- notes ------------------------------------------------------------------------------------------------------

    def begin(self, server: Destination, kind: Kind, prints: tuple[int, int, int], delay_ms: int) -> Contact:
        """A contact is about to be made; from now on nobody asks the server until its deadline and delay have passed."""
        now_ms = self._clock()
        if self._shared is not None:  # from here on the deadline counts
            self._shared.extend(server.qkey, self._timeout_ms)
        note = np.zeros(1, JOURNAL)
        note["norm"], note["path"], note["site"] = prints
        note["answered"], note["qkey"], note["kind"] = prints[2], server.qkey, kind
        note["oid"], note["plan_row"], note["group"] = NO_OID, NO_ROW, self._group(server)
        note["start_ms"], note["end_ms"] = now_ms, now_ms + self._timeout_ms
        note["result"], note["reason"] = Result.SOFT, Reason.REAPER_LOST
        note["retry_after_s"] = delays.as_retry_after_s(server.crawl_delay_ms)
        name = self._new_name(now_ms)
        contactnotes.leave(self._inbox, name, note)
        return Contact(name, note, now_ms + self._timeout_ms, delay_ms)

    def end(self, contact: Contact, record: Entry) -> None:
        """It has been answered: what really was takes the place of what could have been."""
        if self._shared is not None:
            retry_after_ms = delays.retry_after_ms(record.retry_after_s)
            self._shared.end(int(contact.note["qkey"][0]), record.contacted, max(contact.delay_ms, retry_after_ms))
        if not record.contacted:
            contactnotes.withdraw(self._inbox, contact.name)
            return
        note = contact.note.copy()
        for name in _FIELDS_OF_RECORD:
            note[name] = getattr(record, name)
        retry_s = max(record.retry_after_s, delays.as_retry_after_s(record.crawl_delay_ms))
        note["retry_after_s"] = max(retry_s, int(contact.note["retry_after_s"][0]))
        note["end_ms"] = max(end_of(self._clock()), int(note["start_ms"][0]))
        contactnotes.leave(self._inbox, contact.name, note)


@dataclass(frozen=True)
class Contact:
    """A contact under way: the note that stands for it, and when it must be over."""

    name: str
    note: Records
    deadline_ms: int
    delay_ms: int  # that the server is left alone for when it is over
