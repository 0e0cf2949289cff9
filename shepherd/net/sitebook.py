"""What a reap knows about each site: where it is, what its robots.txt says, and which of its pages wait for that.

A site goes NEW -> RESOLVING -> ASKING -> OPEN, or ends as SHUT with the reason why its pages cannot be asked for. Pages are given
to the groups only when it is OPEN.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from enum import Enum

from shepherd.config import Politeness
from shepherd.filters import Filter
from shepherd.formats.tables import CONTRIB_BIT, NO_LIMIT, NO_OID, QKEY_IPV4, Reason, is_resolved
from shepherd.store import lookup
from shepherd.store.state import State


class Stage(Enum):
    NEW = 1
    RESOLVING = 2
    ASKING = 3
    OPEN = 4
    SHUT = 5


@dataclass
class Site:
    site: int
    norm: int
    name: str
    qkey: int = 0
    address: str = ""
    stage: Stage = Stage.NEW
    reason: Reason = Reason.NONE  # why it is SHUT
    delay_ms: int = 0  # filter or default
    crawl_delay_ms: int = 0
    rules_known: bool = False
    rules: bytes = b""
    rules_status: int = 0
    robots_oid: int = NO_OID  # of a stored robots.txt that is still fresh
    told: set[int] = field(default_factory=set)  # reapers that have its rules
    waiting: list[int] = field(default_factory=list)  # items that wait for it to open
    hops: list[int] = field(default_factory=list)  # robots files of other sites that wait for its address only
    robots_item: int = -1  # its robots.txt, where it is planned and not yet with the groups
    lookups: int = 0  # of its address, that nobody answered
    failures: int = 0  # connections in a row

    def take_waiting(self) -> list[int]:
        waiting, self.waiting = self.waiting, []
        return waiting

    def take_hops(self) -> list[int]:
        hops, self.hops = self.hops, []
        return hops

    def take_robots(self) -> list[int]:
        taken, self.robots_item = self.robots_item, -1
        return [taken] if taken >= 0 else []

    @property
    def wait_ms(self) -> int:
        return max(self.delay_ms, self.crawl_delay_ms)


class SiteBook:
    """Sites by footprint: those of the state when first asked for, and those that only a redirect named."""

    def __init__(self, state: State, politeness: Politeness, filters: Filter, now_s: int) -> None:
        self._state, self._filters, self._now_s = state, filters, now_s
        self._default_ms = round(politeness.delay_s * 1000)
        self._sites: dict[int, Site] = {}

    def all(self) -> list[Site]:
        return list(self._sites.values())

    def get(self, site: int) -> Site | None:
        """A site of the state, or one that was entered."""
        if site not in self._sites:
            row = lookup.site_row(self._state, site)
            if row is None:
                return None
            self._sites[site] = self._read(row)
        return self._sites[site]

    def enter(self, site: int, norm: int, name: str) -> Site:
        """A site that is not in the state yet."""
        found = self.get(site)
        if found is None:
            delay_ms = self._delay_ms(self._filters.site_settings(name).delay_ms)
            found = self._sites[site] = Site(site, norm, name, delay_ms=delay_ms)
        return found

    def _delay_ms(self, of_filter: int) -> int:
        return self._default_ms if of_filter == NO_LIMIT else of_filter

    def recall_rules(self, site: Site) -> bool:
        """Read its stored robots.txt. One that was only a redirect must be asked for again: its target may say something else."""
        if not 200 <= site.rules_status < 300 or site.rules:
            return True
        if site.robots_oid >= CONTRIB_BIT:
            return False
        stored = self._state.objects.get(site.robots_oid)
        site.rules = stored.body()
        return "E" not in stored.attributes

    def _read(self, row: int) -> Site:
        table = self._state.sites
        found = Site(
            site=table["site"].at(row),
            norm=table["norm"].at(row),
            name=self._state.site_name(row),
            qkey=table["qkey"].at(row),
            delay_ms=self._delay_ms(table["delay_ms"].at(row)),
            crawl_delay_ms=table["crawl_delay_ms"].at(row),
        )
        if is_resolved(found.qkey) and table["qkey_next"].at(row) > self._now_s:
            found.address = address_of(found.qkey)
        if table["robots_next"].at(row) > self._now_s:
            if table["robots_since"].at(row):
                found.stage, found.reason = Stage.SHUT, Reason.ROBOTS_UNREACHABLE
            elif table["robots_checked"].at(row) and table["robots_status"].at(row):
                found.rules_known = True
                found.rules_status = table["robots_status"].at(row)
                found.robots_oid = table["robots_oid"].at(row)
        return found


def address_of(qkey: int) -> str:
    """An IPv4 queue key is its own address; an IPv6 one must be looked up again."""
    return socket.inet_ntoa(struct.pack(">I", qkey & 0xFFFFFFFF)) if qkey >> 56 == QKEY_IPV4 else ""
