"""Keeps the groups' delays in step with what is known of servers: from the last state, and from what this reap learns.

The delay of a server is the largest that any of its sites asks for. After a reap that was cut off nobody knows when a server was
last contacted, so every server waits its full delay from the moment that the reap was resumed: in that run, and, because cork
writes the moment into the state (`unsure`), in the next reap too.
"""

from __future__ import annotations

import numpy as np

from shepherd.config import MAX_RETRY_AFTER_S
from shepherd.formats.tables import JournalFlag, Records, Result
from shepherd.groups.engine import Groups
from shepherd.net.sitebook import Site
from shepherd.store.columns import Table

REUSE_DELAY_MS = 2_000  # a kept connection may be resent on silently by libcurl: only where that is harmless
SLOW_DOWN = (429, 503)


class Manners:
    def __init__(self, groups: Groups, servers: Table, unsure_ms: int, start_ms: int, max_backoff: int) -> None:
        self._groups, self._start_ms, self._max_backoff = groups, start_ms, max_backoff
        self._servers = servers
        self._unsure_ms = min(unsure_ms, start_ms)  # a clock that was once ahead must not keep everybody waiting
        self._qkeys = servers["qkey"][0 : servers.rows]
        self._delay_ms: dict[int, int] = {}
        self._level: dict[int, int] = {}

    def recall(self, journalled: Records) -> None:
        """An interrupted run of this reap has contacted servers, the last of them nobody knows when."""
        self._unsure_ms = self._start_ms
        for record in journalled[np.flatnonzero(journalled["flags"] & JournalFlag.CONTACTED)]:
            qkey = int(record["qkey"])
            self._level[qkey] = self._next_level(qkey, record)
            if record["retry_after_s"]:
                wait_s = min(int(record["retry_after_s"]), MAX_RETRY_AFTER_S)
                self._groups.hold(qkey, min(int(record["end_ms"]), self._start_ms) + wait_s * 1000)

    def meet(self, site: Site) -> None:
        """A site is on this server: the server waits at least as long as the site asks."""
        if site.qkey not in self._delay_ms:
            self._introduce(site.qkey, site.wait_ms)
        self._groups.set_site_delay(site.site, site.wait_ms)
        if site.wait_ms > self._delay_ms[site.qkey]:
            self._set(site.qkey, site.wait_ms)

    def _introduce(self, qkey: int, delay_ms: int) -> None:
        row = int(np.searchsorted(self._qkeys, np.uint64(qkey)))
        known = row < len(self._qkeys) and int(self._qkeys[row]) == qkey
        if known:
            delay_ms = max(delay_ms, self._servers["delay_ms"].at(row))
            self._groups.set_slots(qkey, max(1, self._servers["slots"].at(row)))
            self._level.setdefault(qkey, self._servers["backoff"].at(row))
        self._groups.back_off(qkey, self._level.setdefault(qkey, 0))
        self._set(qkey, delay_ms)
        wait_ms = delay_ms << self._level[qkey]
        self._groups.hold(qkey, self._unsure_ms + wait_ms)
        if known:  # a clock that was once ahead must not keep a server waiting: no stored time counts for more than this
            longest_ms = self._start_ms + max(wait_ms, MAX_RETRY_AFTER_S * 1000)
            self._groups.hold(qkey, min(self._servers["next_ms"].at(row), longest_ms))

    def _set(self, qkey: int, delay_ms: int) -> None:
        self._delay_ms[qkey] = delay_ms
        self._groups.set_delay(qkey, delay_ms)

    def may_reuse(self, qkey: int) -> bool:
        return self._delay_ms[qkey] <= REUSE_DELAY_MS

    def heard(self, qkey: int, record: Records) -> int | None:
        """Adapt to an answer: how long (ms) the whole group must now wait at least, if the server said so."""
        if not int(record["flags"][0]) & JournalFlag.CONTACTED:
            return None
        level = self._next_level(qkey, record[0])
        if level != self._level.get(qkey, 0):
            self._level[qkey] = level
            self._groups.back_off(qkey, level)
        return min(int(record["retry_after_s"][0]), MAX_RETRY_AFTER_S) * 1000 or None

    def _next_level(self, qkey: int, record: np.void) -> int:
        """One step more after a failure that a pause may mend, none after anything else."""
        slow_down = record["result"] == Result.CONNECTION or int(record["status"]) in SLOW_DOWN
        return min(self._level.get(qkey, 0) + 1, self._max_backoff) if slow_down else 0
