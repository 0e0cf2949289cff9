"""What a server sees, judged from the history of its fetches alone: whatever the engine is asked in between.

This knows nothing of how the engine decides. A fetch may begin only while fewer than `slots` fetches of its group are under way
or ended less than a delay ago, and only when the last one of its site ended at least that site's delay ago.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shepherd.politeness.groups.engine import FetchLease, QueueCounts
from shepherd.politeness.groups.memory import MemoryGroups
from tests.support import sampling
from tests.support.groups import OneByOne, at_once

LEASE = 1_000
DELAY_OF_GROUP = {0: 100, 1: 40, 2: 0}
DELAY_OF_SITE = {10: 100, 11: 300, 12: 0, 13: 40}
WAITING_ROOM = 99  # the temporary group of sites that have no address yet
FOR_EVER = 1 << 40
LONG_AGO = -(1 << 40)
SITES = st.sampled_from(sorted(DELAY_OF_SITE))
GROUPS = st.sampled_from(sorted(DELAY_OF_GROUP))


@dataclass
class Fetch:
    lease: FetchLease
    source: int
    end_ms: int | None = None


@dataclass
class Server:
    slots: int = 1
    level: int = 0
    hold_ms: int = 0
    fetches: list[Fetch] = field(default_factory=list)


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms, self.items = 1_000, 0
        self.engine = OneByOne(MemoryGroups(lease_ms=LEASE, delay_ms=0))
        self.servers = {group: Server() for group in DELAY_OF_GROUP}
        for group, delay_ms in DELAY_OF_GROUP.items():
            self.engine.set_delay(group, delay_ms)
        for site, delay_ms in DELAY_OF_SITE.items():
            self.engine.set_site_delay(site, delay_ms)
        self.engine.hold(WAITING_ROOM, FOR_EVER)
        self.housed: set[int] = set()  # sites that have left the waiting room
        self.last_end_ms: dict[int, int] = {}
        self.queued: dict[int, tuple[int, int]] = {}  # site and source
        self.out: dict[int, Fetch] = {}
        self.served: Counter[int] = Counter()

    @rule(site=SITES, priority=st.integers(0, 3), source=st.integers(0, 2), wait=st.sampled_from([0, 0, 60]))
    def add(self, site: int, priority: int, source: int, wait: int) -> None:
        self.items += 1
        self.engine.add(self.items, WAITING_ROOM, site, priority, self.now_ms + wait if wait else 0, source)
        self.queued[self.items] = site, source

    @rule(site=SITES, group=GROUPS)
    def address_becomes_known(self, site: int, group: int) -> None:
        if any(queued == site for queued, _source in self.queued.values()) or site in self.housed:
            self.engine.move_site(site, group)
            self.housed.add(site)

    @rule(most=st.integers(1, 4))
    def hand_out(self, most: int) -> None:
        leases = at_once(self.engine.engine.take(most, self.now_ms))
        assert len(leases) <= most
        for lease in leases:
            assert lease.group != WAITING_ROOM and lease.site in self.housed
            self.judge(lease)
            site, source = self.queued.pop(lease.item)
            assert site == lease.site
            self.served[lease.item] += 1
            self.out[lease.token] = Fetch(lease, source)
            self.servers[lease.group].fetches.append(self.out[lease.token])

    def judge(self, lease: FetchLease) -> None:
        server, delay_ms = self.servers[lease.group], DELAY_OF_GROUP[lease.group] << self.servers[lease.group].level
        near = [one for one in server.fetches if one.end_ms is None or one.end_ms + delay_ms > self.now_ms]
        assert len(near) < server.slots, "more at a time than slots, or a slot that did not wait"
        assert server.hold_ms <= self.now_ms
        assert not any(one.lease.site == lease.site for one in self.out.values()), "two fetches of one site"
        assert self.last_end_ms.get(lease.site, LONG_AGO) + DELAY_OF_SITE[lease.site] <= self.now_ms, "a site that did not wait"

    def ended(self, token: int, contacted: bool) -> Fetch:
        fetch = self.out.pop(token)
        if contacted:
            fetch.end_ms = self.last_end_ms[fetch.lease.site] = self.now_ms
        else:
            self.servers[fetch.lease.group].fetches.remove(fetch)
        return fetch

    @precondition(lambda self: self.out)
    @rule(data=st.data(), contacted=st.booleans(), again=st.booleans(), retry_after_ms=st.sampled_from([None, None, 200]))
    def answer(self, data: st.DataObject, contacted: bool, again: bool, retry_after_ms: int | None) -> None:
        token = data.draw(st.sampled_from(sorted(self.out)))
        if not self.engine.release(token, self.now_ms, contacted=contacted, delay_ms=retry_after_ms):
            assert self.out[token].lease.expires_ms <= self.now_ms
            return
        fetch = self.ended(token, contacted)
        if retry_after_ms:
            server = self.servers[fetch.lease.group]
            server.hold_ms = max(server.hold_ms, self.now_ms + retry_after_ms)
        if again:
            self.engine.add(fetch.lease.item, WAITING_ROOM, fetch.lease.site, 0, source=fetch.source)
            self.queued[fetch.lease.item] = fetch.lease.site, fetch.source
            self.served[fetch.lease.item] -= 1

    @rule()
    def expire(self) -> None:
        for lease in self.engine.expire(self.now_ms):
            assert lease.expires_ms <= self.now_ms
            self.ended(lease.token, contacted=True)

    @rule(group=GROUPS, slots=st.integers(1, 4))
    def set_slots(self, group: int, slots: int) -> None:
        self.engine.set_slots(group, slots)
        self.servers[group].slots = slots

    @rule(group=GROUPS, level=st.integers(0, 2))
    def back_off(self, group: int, level: int) -> None:
        self.engine.back_off(group, level)
        self.servers[group].level = level

    @rule(site=SITES)
    def drop_site(self, site: int) -> None:
        dropped = self.engine.drop_site(site)
        assert sorted(dropped) == sorted(item for item, (queued, _source) in self.queued.items() if queued == site)
        for item in dropped:
            del self.queued[item]
            self.served[item] += 1

    @rule(step_ms=st.sampled_from([1, 20, 50, 110, 700]))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @invariant()
    def nothing_is_lost_and_nothing_served_twice(self) -> None:
        assert self.engine.count() == QueueCounts(len(self.queued), len(self.out))
        assert all(count <= 1 for count in self.served.values())
        for source in range(3):
            queued = sum(of == source for _site, of in self.queued.values())
            assert self.engine.count_source(source) == QueueCounts(queued, sum(one.source == source for one in self.out.values()))

    def teardown(self) -> None:
        """Everything comes out, and every counter is zero."""
        for site in DELAY_OF_SITE:
            self.address_becomes_known(site, 2)
        for _ in range(1_000):
            if not self.queued and not self.out:
                break
            self.hand_out(4)
            for token in list(self.out):
                if self.engine.release(token, self.now_ms):
                    self.ended(token, contacted=True)
            self.expire()
            self.now_ms += 500
        assert self.engine.count() == QueueCounts(0, 0), "something is stuck"
        assert set(range(1, self.items + 1)) == {item for item, count in self.served.items() if count == 1}
        for key in (*DELAY_OF_GROUP, WAITING_ROOM):
            assert self.engine.count_group(key) == QueueCounts(0, 0)
        for source in range(3):
            assert self.engine.count_source(source) == QueueCounts(0, 0)


History.TestCase.settings = settings(max_examples=sampling.examples(150), stateful_step_count=60, deadline=None)
TestHistory = History.TestCase
