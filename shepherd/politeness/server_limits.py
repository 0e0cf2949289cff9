"""Keeps the groups' delays in step with what is known of servers: from the last state, and from what this reap learns.

A group is what the filter puts under one name: a site by its own name, else by its server's address; a server that is in none is
a group by itself, under its queue key. So plan has it, too (`politeness/quota`). The delay of a group is the largest that any of
its sites or servers asks for, its slots are the fewest that one of its servers has, and a failure of one of them holds for all.
What a site says itself, by a Crawl-delay or a Retry-After, holds for that site, and for its group as far as `tenants` has it.
After a reap that was cut off nobody knows when a server was last contacted, so every group waits its
full delay from the moment that the reap was resumed: in that run, and, because cork writes the moment into the state (`unsure`),
in the next reap too. A note of a contact outside any reap (store/state/contact_notes) holds its group as if this reap had made
it.

The engine of the groups may be far away, so nothing is said to it here: what changed waits in `take_changes` for the dispatcher,
which passes it on before it releases or adds anything that it holds for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from shepherd.config import Politeness
from shepherd.filters.settings import GROUP_BIT
from shepherd.formats.journal import Entry
from shepherd.formats.tables import I64, JournalFlag, Records, Result
from shepherd.politeness import delays
from shepherd.politeness.groups.engine import Change, Setting
from shepherd.politeness.site_pauses import SitePause
from shepherd.politeness.tenants import Accord, owner_of
from shepherd.store.state.columns import Table
from shepherd.store.state.contact_notes import Notes


class AskedSites(Protocol):
    """What is known of any site that is asked."""

    def name_of(self, site: int) -> str:
        """`scheme://host[:port]`."""

    def is_strange(self, site: int) -> bool:
        """Whether it is on a port that has not answered yet (`strange_ports`)."""


class ServerLimits:
    def __init__(
        self,
        servers: Table,
        pauses: Sequence[SitePause],
        unsure_ms: int,
        start_ms: int,
        politeness: Politeness,
        sites: AskedSites,
    ) -> None:
        """`pauses` are those that hold at the start."""
        self._start_ms, self._max_backoff, self._sites = start_ms, politeness.max_backoff, sites
        self._bound_ms = delays.neighbours_ms(politeness)
        self._changes: list[Change] = []
        self._servers = servers
        self._unsure_ms = min(unsure_ms, start_ms)  # a clock that was once ahead must not keep everybody waiting
        self._qkeys = servers["qkey"][0 : servers.rows]
        self._delay_ms: dict[int, int] = {}  # by group, as all below
        self._level: dict[int, int] = {}
        self._slots: dict[int, int] = {}
        self._slow: dict[int, Accord] = {}  # Crawl-delays that are longer than a site may ask of others
        self._pauses: dict[int, Accord] = {}  # until when sites asked to be left alone
        self._attached: set[tuple[int, int]] = set()  # group and queue key
        self._level_of_server: dict[int, int] = {}  # of an interrupted run, by queue key
        self._hold_of_server: dict[int, int] = {}
        self._asked_ms: dict[int, int] = {}  # when a group, or a server, was last asked by hand
        self._hold_of_site: dict[int, int] = {}
        self._heard_of: set[int] = set()  # strange sites that have answered in this reap
        for pause in pauses:
            group = pause.group or self._group_of_server(pause.qkey) or pause.qkey
            self._pause(pause.site, group, pause.owner, pause.until_ms)
            self._hold_of_server[group] = max(pause.shared_ms, self._hold_of_server.get(group, 0))

    def take_changes(self) -> list[Change]:
        """What the engine has not been told yet, in order."""
        changes, self._changes = self._changes, []
        return changes

    def _change(self, setting: Setting, key: int, value: int) -> None:
        self._changes.append(Change(setting, key, value))

    def _hold(self, group: int, until_ms: int) -> None:
        if until_ms > self._start_ms:  # others are over
            self._change(Setting.HOLD, group, until_ms)

    def _pause(self, site: int, group: int, owner: str, until_ms: int) -> None:
        """A site has asked to be left alone: it is, and its group as far as another owner has asked for the same."""
        self._hold_of_site[site] = max(until_ms, self._hold_of_site.get(site, 0))
        self._pauses.setdefault(group, Accord()).add(owner, until_ms)

    def _said_before(self, record: np.void, group: int) -> None:
        """A contact of before this run: what its site asked for."""
        asked_ms = delays.retry_after_ms(int(record["retry_after_s"]))
        if asked_ms:
            end_ms, site = min(int(record["end_ms"]), self._start_ms), int(record["answered"])
            self._pause(site, group, owner_of(self._sites.name_of(site)), end_ms + asked_ms)
            until_ms = end_ms + min(asked_ms, self._bound_ms)
            self._hold_of_server[group] = max(until_ms, self._hold_of_server.get(group, 0))

    def add_manual_contacts(self, notes: Notes) -> None:
        """Servers that were asked by hand. Who left a note is done: we hold the lock. An unreadable one may be any server's."""
        if notes.refused:
            self._unsure_ms = self._start_ms
        for record in notes.records:
            end_ms = min(int(record["end_ms"]), self._start_ms)
            for key in {int(record["qkey"]), int(record["group"])} - {0}:  # the server, and its group if it has one
                level = self._level_of_server.get(key, self._stored_level(key))
                self._level_of_server[key] = self._next_level(
                    level, int(record["answered"]), int(record["result"]), int(record["status"])
                )
                self._asked_ms[key] = max(end_ms, self._asked_ms.get(key, 0))
                self._said_before(record, key)

    def _stored_level(self, qkey: int) -> int:
        rows = self._rows_of_server(qkey)
        return self._servers["backoff"].value(int(rows[0])) if len(rows) else 0

    def replay(self, journalled: Records) -> None:
        """An interrupted run of this reap has contacted servers, the last of them nobody knows when."""
        self._unsure_ms = self._start_ms
        for record in journalled[np.flatnonzero(journalled["flags"] & JournalFlag.CONTACTED)]:
            qkey = int(record["qkey"])
            level = self._level_of_server.get(qkey, self._stored_level(qkey))
            self._level_of_server[qkey] = self._next_level(
                level, int(record["answered"]), int(record["result"]), int(record["status"])
            )
            self._said_before(record, qkey)

    def attach_site(self, site: int, qkey: int, filter_group: int, delay_ms: int, crawl_delay_ms: int) -> int:
        """The group of a site whose address is known: it waits as long as the site may ask of it, and the site waits there."""
        group = filter_group or self._group_of_server(qkey) or qkey
        if group not in self._delay_ms:
            self._add_group(group)
        if (group, qkey) not in self._attached:
            self._attached.add((group, qkey))
            self._join(group, self._rows_of_server(qkey))
            self._apply_replay(group, qkey)
        self._change(Setting.GROUP_OF_SITE, site, group)
        self._change(Setting.DELAY_OF_SITE, site, max(delay_ms, crawl_delay_ms))
        shared_ms = max(delay_ms, min(crawl_delay_ms, self._bound_ms))
        if crawl_delay_ms > self._bound_ms:
            slow = self._slow.setdefault(group, Accord())
            slow.add(owner_of(self._sites.name_of(site)), crawl_delay_ms)
            shared_ms = max(shared_ms, slow.value)
            if self._unsure_ms:
                self._hold_site(site, self._unsure_ms + crawl_delay_ms)
        if shared_ms > self._delay_ms[group]:
            self._set(group, shared_ms)
        self._hold_site(site, self._hold_of_site.get(site, 0))
        return group

    def _hold_site(self, site: int, until_ms: int) -> None:
        if until_ms > self._start_ms:
            self._change(Setting.HOLD_OF_SITE, site, until_ms)

    def _group_of_server(self, qkey: int) -> int:
        rows = self._rows_of_server(qkey)
        return self._servers["group"].value(int(rows[0])) if len(rows) else 0

    def _rows_of_server(self, qkey: int) -> I64:
        row = int(np.searchsorted(self._qkeys, np.uint64(qkey)))
        return np.arange(row, row + (row < len(self._qkeys) and int(self._qkeys[row]) == qkey))

    def _add_group(self, group: int) -> None:
        """Everything that is known of a group, those of its servers included that have nothing to do in this reap."""
        self._level[group] = 0
        self._set(group, 0)
        if group & GROUP_BIT and self._servers.rows:
            self._join(group, np.flatnonzero(self._servers["group"][0 : self._servers.rows] == np.uint64(group)))
        self._apply_replay(group, group)

    def _join(self, group: int, rows: I64) -> None:
        """These servers are of the group. A stored time that a clock once ahead has left counts for no more than a wait."""
        if not len(rows):
            return
        slots, backoff, delay_ms, next_ms = (self._servers[n].take(rows) for n in ("slots", "backoff", "delay_ms", "next_ms"))
        fewest = max(int(slots.min()), 1)
        self._slots[group] = min(fewest, self._slots.get(group, fewest))
        self._change(Setting.SLOTS, group, self._slots[group])
        self._raise(group, int(backoff.max()))
        self._set(group, max(self._delay_ms[group], int(delay_ms.max())))
        self._hold(group, delays.credible_ms(int(next_ms.max()), self.wait_ms(group), self._start_ms))

    def _apply_replay(self, group: int, qkey: int) -> None:
        self._asked_ms[group] = max(self._asked_ms.get(group, 0), self._asked_ms.get(qkey, 0))
        self._hold_unsure(group)
        self._raise(group, self._level_of_server.get(qkey, 0))
        self._hold(group, self._hold_of_server.get(qkey, 0))
        if qkey in self._pauses:
            self._hold(group, self._pauses[qkey].value)

    def _raise(self, group: int, level: int) -> None:
        if level > self._level[group]:
            self._level[group] = level
            self._change(Setting.BACK_OFF, group, level)
            self._hold_unsure(group)

    def _set(self, group: int, delay_ms: int) -> None:
        self._delay_ms[group] = delay_ms
        self._change(Setting.DELAY, group, delay_ms)
        self._hold_unsure(group)

    def _hold_unsure(self, group: int) -> None:
        last_ms = max(self._unsure_ms, self._asked_ms.get(group, 0))
        self._hold(group, last_ms + self.wait_ms(group))

    def hold(self, group: int, until_ms: int) -> None:
        """Another database of this machine is asking a server of the group, or has just asked it."""
        self._change(Setting.HOLD, group, until_ms)

    def wait_ms(self, group: int) -> int:
        """How long it is left alone after a contact."""
        return delays.wait_ms(self._delay_ms[group], self._level[group])

    def may_reuse(self, group: int) -> bool:
        return delays.may_reuse(self._delay_ms[group])

    def after_answer(self, group: int, site: int, record: Entry) -> int | None:
        """Adapt to an answer of a site: how long (ms) the whole group must now wait at least, if the site said so."""
        if not record.contacted:
            return None
        level = self._next_level(self._level[group], site, record.result, record.status)
        if level != self._level[group]:
            self._level[group] = level
            self._change(Setting.BACK_OFF, group, level)
        asked_ms = delays.retry_after_ms(record.retry_after_s)
        if not asked_ms:
            return None
        self._pause(site, group, owner_of(self._sites.name_of(site)), record.end_ms + asked_ms)
        self._hold_site(site, self._hold_of_site[site])
        self._hold(group, self._pauses[group].value)
        return min(asked_ms, self._bound_ms)

    def _next_level(self, level: int, site: int, result: int, status: int) -> int:
        """A strange port that is closed changes nothing."""
        if site not in self._heard_of and self._sites.is_strange(site):
            if result == Result.CONNECTION:
                return level
            self._heard_of.add(site)
        return delays.next_level(level, delays.is_slow_down(result, status), self._max_backoff)
