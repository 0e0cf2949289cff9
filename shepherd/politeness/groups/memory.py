"""The host groups of one dispatcher, in memory: heaps of integers, no object per item.

Read `shepherd.politeness.groups.engine` first, then `queues`. Three kinds of heap, all lazy: an entry is only a hint to look, and
is dropped when it is no longer the one that its site or group remembers.
  `_Group.candidates`  sites of the group with something to give, best first; its own delay and hold are judged when it comes up
  `_ready`             groups whose slot, delay and hold allow a fetch, by their best candidate
  `_waiting`           times at which a group or a site must be looked at again
Invariant: a site that has something to give is busy, or a candidate of its group, or has a look scheduled; a group that has a
candidate and a free slot is in `_ready` or has a look scheduled.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from shepherd.errors import ShepherdError
from shepherd.politeness.delays import wait_ms
from shepherd.politeness.groups.engine import (
    MAX_ITEM,
    MAX_PRIORITY,
    MAX_SOURCE,
    Change,
    Extension,
    FetchEnd,
    FetchLease,
    QueueCounts,
    QueueEntry,
    Setting,
)
from shepherd.politeness.groups.queues import QueueNodes, SiteQueue

NEVER: Final = -(1 << 62)  # the end of a fetch that never was: any delay has passed since
NONE: Final = -1
LOOK: Final = -2  # a site that is no candidate, because a look is scheduled
NUMBER_BITS: Final = 32
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
GROUP_BIT: Final = 1 << NUMBER_BITS  # in `_waiting`: look at a group, not at a site
TIME_SHIFT: Final = NUMBER_BITS + 1
FRESH_SLOT: Final = (NEVER,)


class _Group:
    __slots__ = (
        "candidates",
        "delay_ms",
        "entry",
        "free",
        "hold_ms",
        "in_flight",
        "key",
        "level",
        "look_ms",
        "number",
        "queued",
        "spare",
    )

    def __init__(self, key: int, number: int, delay_ms: int) -> None:
        self.key = key
        self.number = number
        self.delay_ms = delay_ms
        self.level = 0
        self.free: tuple[int, ...] = FRESH_SLOT  # ends of the last fetches of the free slots, oldest first
        self.spare = 0  # slots that were taken away; their waits still count, should they be given back
        self.hold_ms = 0
        self.in_flight = 0
        self.queued = 0
        self.candidates: list[int] = []  # key of the site's best item << 32 | number of the site
        self.entry = NONE  # what it has in `_ready`
        self.look_ms = NONE  # the look it has in `_waiting`


class _Site(SiteQueue):
    __slots__ = ("busy", "delay_ms", "end_ms", "entry", "group", "key", "number")

    def __init__(self, key: int, number: int, group: _Group, delay_ms: int) -> None:
        super().__init__()
        self.key = key
        self.number = number
        self.group = group
        self.delay_ms = delay_ms
        self.end_ms = NEVER
        self.busy = False
        self.entry = NONE  # what it has in its group's candidates, or LOOK


class _LeaseRecord(NamedTuple):
    lease: FetchLease
    source: int
    site: _Site
    group: _Group
    slot_end_ms: int  # of the slot it took


class MemoryGroups:
    """Groups in the memory of one process, of which no call ever suspends; not thread-safe."""

    def __init__(self, *, lease_ms: int, delay_ms: int, site_delay_ms: int | None = None) -> None:
        """`delay_ms` is that of a group nobody set one for, `site_delay_ms` (the same if not given) that of a site."""
        self._lease_ms = lease_ms
        self._delay_ms = delay_ms
        self._site_delay_ms = delay_ms if site_delay_ms is None else site_delay_ms
        self._group_of: dict[int, _Group] = {}
        self._site_of: dict[int, _Site] = {}
        self._groups: list[_Group] = []
        self._sites: list[_Site] = []
        self._early_delays: dict[int, int] = {}  # of sites that have no item yet
        self._site_holds: dict[int, int] = {}  # of the few sites that asked for one
        self._nodes = QueueNodes()
        self._ready: list[int] = []
        self._waiting: list[int] = []
        self._leases: dict[int, _LeaseRecord] = {}
        self._last_token = 0
        self._now_ms = 0
        self._active = 0  # groups with anything queued or in flight
        self._queued: list[int] = [0] * (MAX_SOURCE + 1)
        self._in_flight: list[int] = [0] * (MAX_SOURCE + 1)

    # --- what the dispatcher does for every fetch ------------------------------------------------------------------

    async def add_many(self, entries: Sequence[QueueEntry]) -> None:
        for item, _group, _site, priority, _not_before_ms, source in entries:
            if item >> 32 or priority >> 32 or source >> 8:
                raise ShepherdError(
                    f"item {item}, priority {priority} or source {source} does not fit: they have 32, 32 and 8 bits"
                )
        for item, group_key, site_key, priority, not_before_ms, source in entries:
            site = self._site_of.get(site_key)
            if site is None:
                site = self._new_site(site_key, self._group(group_key))
            key = (MAX_PRIORITY - priority) << 32 | item
            self._count_queued(site.group, 1)
            self._queued[source] += 1
            if not_before_ms > self._now_ms:
                self._nodes.add_later(site, key, source, not_before_ms)
                heappush(self._waiting, not_before_ms << TIME_SHIFT | site.number)
                continue
            self._nodes.add(site, key, source)
            if self._place_site(site):
                self._place_group(site.group)

    async def take(self, most: int, now_ms: int) -> list[FetchLease]:
        self._now_ms = now_ms
        due = (now_ms + 1) << TIME_SHIFT
        waiting = self._waiting
        while waiting and waiting[0] < due:
            self._look(heappop(waiting))
        leases: list[FetchLease] = []
        ready = self._ready
        while ready and len(leases) < most:
            entry = heappop(ready)
            group = self._groups[entry & NUMBER_MASK]
            if group.entry != entry:
                continue
            group.entry = NONE
            site = self._best_site(group)
            if site is not None and site.entry ^ entry < GROUP_BIT:  # still the same item
                leases.append(self._serve(group, site))
            else:
                self._place_group(group)
        return leases

    async def release_many(self, ends: Sequence[FetchEnd], now_ms: int) -> list[bool]:
        return [self._release(end, now_ms) for end in ends]

    def _release(self, end: FetchEnd, now_ms: int) -> bool:
        token, contacted, delay_ms = end
        record = self._leases.get(token)
        if record is None or record.lease.expires_ms <= now_ms:
            return False
        self._now_ms = now_ms
        del self._leases[token]
        if delay_ms is not None:
            record.group.hold_ms = max(record.group.hold_ms, now_ms + delay_ms)
        self._give_back(record, now_ms if contacted else None)
        return True

    async def extend_many(self, extensions: Sequence[Extension]) -> list[bool]:
        return [self._extend(token, until_ms) for token, until_ms in extensions]

    def _extend(self, token: int, until_ms: int) -> bool:
        record = self._leases.get(token)
        if record is None:
            return False
        if until_ms > record.lease.expires_ms:
            self._leases[token] = record._replace(lease=record.lease._replace(expires_ms=until_ms))
        return True

    async def expire(self, now_ms: int) -> list[FetchLease]:
        expired = [record for record in self._leases.values() if record.lease.expires_ms <= now_ms]
        for record in expired:
            del self._leases[record.lease.token]
            self._give_back(record, now_ms)
        return [record.lease for record in expired]

    async def next_time(self) -> int | None:
        if self._ready:
            return 0
        return self._waiting[0] >> TIME_SHIFT if self._waiting else None

    # --- politeness -------------------------------------------------------------------------------------------------

    async def change(self, changes: Sequence[Change]) -> None:
        for setting, key, value in changes:
            if setting == Setting.GROUP_OF_SITE:
                self._move_site(key, value)
            elif setting == Setting.DELAY_OF_SITE:
                self._set_site_delay(key, value)
            elif setting == Setting.HOLD_OF_SITE:
                self._site_holds[key] = max(value, self._site_holds.get(key, NEVER))  # judged when it comes up
            else:
                self._set(self._group(key), setting, value)

    def _set(self, group: _Group, setting: Setting, value: int) -> None:
        if setting == Setting.DELAY:
            group.delay_ms = value
        elif setting == Setting.SLOTS:
            ever = len(group.free) + group.in_flight
            group.free = (NEVER,) * (value - ever) + group.free
            group.spare = max(ever - value, 0)
        elif setting == Setting.HOLD:
            group.hold_ms = max(group.hold_ms, value)
        else:
            group.level = value
        self._place_group(group)

    def _set_site_delay(self, key: int, delay_ms: int) -> None:
        site = self._site_of.get(key)
        if site is None:
            self._early_delays[key] = delay_ms
            return
        site.delay_ms = delay_ms
        if site.entry == LOOK:
            site.entry = NONE
            self._place_site(site)
            self._place_group(site.group)

    def _move_site(self, key: int, to_group: int) -> None:
        site = self._site_of.get(key)
        if site is None or site.group.key == to_group:
            return
        queued = self._nodes.length(site)
        self._count_queued(site.group, -queued)
        site.group = self._group(to_group)
        self._count_queued(site.group, queued)
        site.entry = NONE
        self._place_site(site)
        self._place_group(site.group)

    async def drop_sites(self, sites: Sequence[int]) -> list[list[int]]:
        return [self._drop_site(site) for site in sites]

    def _drop_site(self, site: int) -> list[int]:
        dropped = self._site_of.get(site)
        if dropped is None:
            return []
        items = self._nodes.drain(dropped)
        for _, source in items:
            self._queued[source] -= 1
        self._count_queued(dropped.group, -len(items))
        dropped.entry = NONE
        return [key & MAX_ITEM for key, _ in items]

    # --- counters ---------------------------------------------------------------------------------------------------

    async def count(self) -> QueueCounts:
        return QueueCounts(sum(self._queued), sum(self._in_flight))

    async def count_group(self, group: int) -> QueueCounts:
        known_group = self._group_of.get(group)
        return QueueCounts(0, 0) if known_group is None else QueueCounts(known_group.queued, known_group.in_flight)

    async def count_source(self, source: int) -> QueueCounts:
        return QueueCounts(self._queued[source], self._in_flight[source])

    async def active(self) -> int:
        return self._active

    def _count_queued(self, group: _Group, more: int) -> None:
        before = group.queued or group.in_flight
        group.queued += more
        if bool(before) != bool(group.queued or group.in_flight):
            self._active += 1 if more > 0 else -1

    # --- the heaps --------------------------------------------------------------------------------------------------

    def _group(self, key: int) -> _Group:
        group = self._group_of.get(key)
        if group is None:
            group = self._group_of[key] = _Group(key, len(self._groups), self._delay_ms)
            self._groups.append(group)
        return group

    def _new_site(self, key: int, group: _Group) -> _Site:
        site = self._site_of[key] = _Site(key, len(self._sites), group, self._early_delays.pop(key, self._site_delay_ms))
        self._sites.append(site)
        return site

    def _look(self, entry: int) -> None:
        number = entry & NUMBER_MASK
        if entry & GROUP_BIT:
            group = self._groups[number]
            if group.look_ms == entry >> TIME_SHIFT:
                group.look_ms = NONE
                self._place_group(group)
            return
        site = self._sites[number]
        if site.later:
            self._nodes.promote(site, self._now_ms)
        if site.entry == LOOK:
            site.entry = NONE
        if self._place_site(site):
            self._place_group(site.group)

    def _place_site(self, site: _Site) -> bool:
        """Make a site with something to give a candidate; True if its group must be placed again."""
        if site.busy or site.entry == LOOK:
            return False
        key = self._nodes.best_key(site)
        if key is None:
            return False
        entry = key << NUMBER_BITS | site.number
        if entry == site.entry:
            return False
        site.entry = entry
        heappush(site.group.candidates, entry)
        return True

    def _place_group(self, group: _Group) -> None:
        """Put a group where it belongs: among the ready ones, or to be looked at when its wait is over, or nowhere."""
        if len(group.free) <= group.spare or not group.candidates:
            group.entry = NONE
            return
        wake_ms = group.free[group.spare] + wait_ms(group.delay_ms, group.level)  # of those allowed, the longest waits stay
        if wake_ms < group.hold_ms:
            wake_ms = group.hold_ms
        if wake_ms <= self._now_ms:
            entry = group.candidates[0] >> NUMBER_BITS << NUMBER_BITS | group.number
            if entry != group.entry:
                group.entry = entry
                heappush(self._ready, entry)
            return
        group.entry = NONE
        if group.look_ms == NONE or wake_ms < group.look_ms:
            group.look_ms = wake_ms
            heappush(self._waiting, wake_ms << TIME_SHIFT | GROUP_BIT | group.number)

    def _best_site(self, group: _Group) -> _Site | None:
        """The best candidate whose own delay has passed; those whose delay has not are looked at later."""
        candidates = group.candidates
        while candidates:
            entry = candidates[0]
            site = self._sites[entry & NUMBER_MASK]
            if site.entry == entry and site.group is group:
                wake_ms = max(site.end_ms + site.delay_ms, self._site_holds.get(site.key, NEVER))
                if wake_ms <= self._now_ms:
                    return site
                site.entry = LOOK
                heappush(self._waiting, wake_ms << TIME_SHIFT | site.number)
            heappop(candidates)
        return None

    def _serve(self, group: _Group, site: _Site) -> FetchLease:
        heappop(group.candidates)
        site.entry = NONE
        site.busy = True
        key, source = self._nodes.take(site)
        slot_end_ms = group.free[0]
        group.free = group.free[1:]
        group.queued -= 1
        group.in_flight += 1
        self._queued[source] -= 1
        self._in_flight[source] += 1
        if group.free:
            self._place_group(group)
        self._last_token = token = self._last_token + 1
        lease = FetchLease(token, key & MAX_ITEM, group.key, site.key, self._now_ms + self._lease_ms)
        self._leases[token] = _LeaseRecord(lease, source, site, group, slot_end_ms)
        return lease

    def _give_back(self, record: _LeaseRecord, end_ms: int | None) -> None:
        """Free site and slot; `end_ms` None = nobody was contacted, so both are as they were before the lease."""
        group, site = record.group, record.site
        group.in_flight -= 1
        if not group.in_flight and not group.queued:
            self._active -= 1
        self._in_flight[record.source] -= 1
        slot_end_ms = record.slot_end_ms if end_ms is None else end_ms
        group.free = tuple(sorted((*group.free, slot_end_ms))) if group.free else (slot_end_ms,)
        site.busy = False
        if end_ms is not None:
            site.end_ms = end_ms
        if self._place_site(site) and site.group is not group:
            self._place_group(site.group)
        self._place_group(group)
