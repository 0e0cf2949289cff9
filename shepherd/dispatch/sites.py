"""What a reap knows about each site: where it is, what its robots.txt says, and which of its pages wait for that.

A site goes NEW -> RESOLVING -> ASKING -> OPEN, or ends as SHUT with the reason why its pages cannot be asked for. Pages are given
to the groups only when it is OPEN.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from shepherd.config import Politeness
from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats.tables import CONTRIB_BIT, I64, NO_OID, QKEY_IPV4, U32, U64, Reason, is_resolved
from shepherd.politeness.delays import default_delay_ms, is_to_come, longest_lookup_s, longest_robots_s, site_delay_ms
from shepherd.politeness.strange_ports import has_unusual_port
from shepherd.robots import ABSENT
from shepherd.store.state import lookup
from shepherd.store.state.directory import State

LOG = logging.getLogger("shepherd.dispatch")
LOAD_STEP: Final = 10_000  # sites read together
READ: Final = (
    *("site", "norm", "qkey", "group", "delay_ms", "crawl_delay_ms", "qkey_next"),
    *("robots_next", "robots_since", "robots_checked", "robots_status", "robots_oid"),
)


class Stage(Enum):
    NEW = 1
    RESOLVING = 2
    ASKING = 3
    OPEN = 4
    SHUT = 5


NOBODY: Final[frozenset[int]] = frozenset()


@dataclass(slots=True)
class Site:
    """Sites are many: what most of them never have is None, or one and the same empty object."""

    site: int
    norm: int
    name: str
    qkey: int = 0
    address: str = ""
    group: int = 0  # that the filter puts it into; 0 = none
    queue: int = 0  # the group that it is asked under; 0 = not known yet
    stage: Stage = Stage.NEW
    reason: Reason = Reason.NONE  # why it is SHUT
    delay_ms: int = 0  # filter or default
    crawl_delay_ms: int = 0
    rules_known: bool = False
    rules: bytes = b""
    rules_status: int = 0  # 0 = none: not known yet, or it cannot be reached
    robots_oid: int = NO_OID  # of a stored robots.txt that is still fresh
    reapers_with_rules: frozenset[int] = NOBODY  # reapers that have its rules
    first: int = 0  # its pages of the plan that wait for it to open: a part of the book's order
    last: int = 0
    parked: list[int] | None = None  # other items that wait for it to open
    hops: list[int] | None = None  # robots files of other sites that wait for its address only
    has_answered: bool = False  # its robots.txt, now or ever
    robots_item: int = -1  # its robots.txt, where it is planned and not yet with the groups
    lookups: int = 0  # of its address, that nobody answered
    failures: int = 0  # in a row, of a kind that more of its pages would meet too

    def park(self, number: int) -> None:
        """Let an item wait until the site opens."""
        if self.parked is None:
            self.parked = []
        self.parked.append(number)

    def await_address(self, number: int) -> None:
        """Let a robots file of another site wait for the address of this one."""
        if self.hops is None:
            self.hops = []
        self.hops.append(number)

    @property
    def waiting(self) -> int:
        """How many items wait for it to open."""
        return self.last - self.first + len(self.parked or ())

    def take_hops(self) -> list[int]:
        hops, self.hops = self.hops, None
        return hops or []

    def take_robots(self) -> list[int]:
        number, self.robots_item = self.robots_item, -1
        return [number] if number >= 0 else []

    @property
    def is_strange(self) -> bool:
        """Whether it is on a port of which nobody knows whether anything is there (politeness/strange_ports)."""
        return not self.has_answered and has_unusual_port(self.name)

    @property
    def wait_ms(self) -> int:
        return max(self.delay_ms, self.crawl_delay_ms)


class SiteBook:
    """Sites by footprint: those of the state when first asked for, and those that only a redirect or an addition named."""

    def __init__(self, state: State, politeness: Politeness, filters: Filter, now_s: int) -> None:
        self._state, self._filters, self._now_s = state, filters, now_s
        self._default_ms = default_delay_ms(politeness)
        self._lookup_s, self._robots_s = longest_lookup_s(politeness), longest_robots_s(politeness)
        self._sites: dict[int, Site] = {}
        self._reported: set[int] = set()  # whose robots.txt is ignored, as the log says
        self._order: U32 = np.zeros(0, np.uint32)

    def all(self) -> Iterable[Site]:
        return self._sites.values()

    def get(self, site: int) -> Site | None:
        """A site of the state, or one that was entered."""
        entry = self._sites.get(site)
        if entry is None:
            row = lookup.site_row(self._state, site)
            if row is None:
                return None
            (entry,) = self._read(np.array([row], np.int64))
            self._sites[site] = entry
        return entry

    def name_of(self, site: int) -> str:
        """ "" for one that is not known."""
        entry = self.get(site)
        return entry.name if entry is not None else ""

    def is_strange(self, site: int) -> bool:
        entry = self.get(site)
        return entry is not None and entry.is_strange

    def enter(self, site: int, norm: int, name: str) -> Site:
        """A site that is not in the state yet."""
        entry = self.get(site)
        if entry is None:
            settings = self._filters.site_settings(name)
            entry = self._sites[site] = Site(site, norm, name, group=settings.group, delay_ms=self._delay_ms(settings.delay_ms))
        return entry

    def enter_pages(self, numbers: U32, sites: U64) -> None:
        """Rows of a plan, best first, and their sites: they wait there for it to open. 4 bytes a row."""
        by_site = np.argsort(sites, kind="stable")
        self._order = numbers[by_site]
        distinct, firsts, counts = np.unique(sites[by_site], return_index=True, return_counts=True)
        for site, first, count in zip(self.load(distinct), firsts.tolist(), counts.tolist(), strict=True):
            site.first, site.last = first, first + count

    def load(self, footprints: U64) -> list[Site]:
        """Many sites of the state at once, by ascending footprint."""
        all_footprints = self._state.sites["site"][0 : self._state.sites.rows]
        rows = np.searchsorted(all_footprints, footprints)
        if len(footprints) and (
            not len(all_footprints) or (all_footprints[np.minimum(rows, len(all_footprints) - 1)] != footprints).any()
        ):
            raise Corruption("the plan has a row of a site that is not in the site table")
        for start in range(0, len(rows), LOAD_STEP):
            for site in self._read(rows[start : start + LOAD_STEP]):
                self._sites.setdefault(site.site, site)
        return [self._sites[footprint] for footprint in footprints.tolist()]

    def take_waiting(self, site: Site) -> list[int]:
        """All that waits for the site to open, which from now on does so no more."""
        planned: list[int] = self._order[site.first : site.last].tolist()
        parked, site.first, site.last, site.parked = site.parked or [], 0, 0, None
        return planned + parked

    def located(self, site: Site, qkey: int, address: str) -> None:
        """Its address is known: lines of the filter may speak of that, too."""
        settings = self._filters.site_settings(site.name, qkey)
        site.qkey, site.address, site.group, site.delay_ms = qkey, address, settings.group, self._delay_ms(settings.delay_ms)

    def _delay_ms(self, of_filter: int) -> int:
        return site_delay_ms(of_filter, 0, self._default_ms)

    def has_rules(self, site: Site) -> bool:
        """Whether what is known of its robots.txt can be used.

        A stored one that was only a redirect must be fetched again: its target may say something else. So must one that could
        not be reached, which was to be ignored at another address only.
        """
        if not site.rules_status:
            return self.ignores_robots(site)
        if not 200 <= site.rules_status < 300 or site.rules:
            return True
        return site.robots_oid < CONTRIB_BIT and "E" not in self._state.objects.head(site.robots_oid).attributes

    def ignores_robots(self, site: Site) -> bool:
        """Whether the filter has its pages gathered against its robots.txt."""
        return self._filters.robots_ignored_by(site.name, site.qkey) is not None

    def rules(self, site: Site) -> tuple[int, bytes]:
        """What its pages are judged by: status and body of its robots.txt, as this reap learnt it or, read now, as it is stored.

        Where the filter ignores that it is as if there were none, and the log says so once.
        """
        ignored = self._filters.robots_ignored_by(site.name, site.qkey)
        if ignored is not None:
            if site.site not in self._reported:
                self._reported.add(site.site)
                LOG.info("%s: robots.txt is ignored, as line %d of the filter says: %s", site.name, ignored.line, ignored.text)
            return ABSENT, b""
        stored = not site.rules and 200 <= site.rules_status < 300 and site.robots_oid < CONTRIB_BIT
        return site.rules_status, self._state.objects.get(site.robots_oid).body() if stored else site.rules

    def _read(self, rows: I64) -> Iterator[Site]:
        table, now_s = self._state.sites, self._now_s
        columns = (table[name].take(rows).tolist() for name in READ)
        for row, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            fields = dict(zip(READ, values, strict=True))
            entry = Site(
                fields["site"],
                fields["norm"],
                self._state.site_name(row),
                fields["qkey"],
                group=fields["group"],
                delay_ms=self._delay_ms(fields["delay_ms"]),
                crawl_delay_ms=fields["crawl_delay_ms"],
            )
            entry.has_answered = fields["robots_checked"] > 0
            if is_resolved(entry.qkey) and is_to_come(fields["qkey_next"], now_s, self._lookup_s):
                entry.address = address_of(entry.qkey)
            if is_to_come(fields["robots_next"], now_s, self._robots_s):
                if fields["robots_since"] and self.ignores_robots(entry):
                    entry.rules_known = True
                elif fields["robots_since"]:
                    entry.stage, entry.reason = Stage.SHUT, Reason.ROBOTS_UNREACHABLE
                elif fields["robots_checked"] and fields["robots_status"]:
                    entry.rules_known = True
                    entry.rules_status = fields["robots_status"]
                    entry.robots_oid = fields["robots_oid"]
            yield entry


def address_of(qkey: int) -> str:
    """An IPv4 queue key is its own address; an IPv6 one must be looked up again."""
    return socket.inet_ntoa(struct.pack(">I", qkey & 0xFFFFFFFF)) if qkey >> 56 == QKEY_IPV4 else ""
