"""The memory engine against a model that looks at everything every time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shepherd.politeness.groups.engine import FetchEnd, FetchLease, QueueCounts, QueueEntry
from shepherd.politeness.groups.memory import MemoryGroups
from tests.support import sampling
from tests.support.groups import OneByOne, at_once

DELAY, LEASE, LONG_AGO = 100, 1_000, -(10**9)
GROUPS = st.integers(0, 2)
SITES = st.integers(10, 14)
WAITS = st.sampled_from([0, 0, 0, 50, 400])
DELAYS = st.sampled_from([0, 30, 100, 250])


@dataclass
class ModelGroup:
    delay_ms: int = DELAY
    level: int = 0
    slots: int = 1
    hold_ms: int = 0
    free: list[int] = field(default_factory=lambda: [LONG_AGO])  # of all slots it ever had
    in_flight: int = 0

    def ready(self, now_ms: int) -> bool:
        waiting = sum(end_ms + (self.delay_ms << self.level) > now_ms for end_ms in self.free)
        return self.in_flight + waiting < self.slots and self.hold_ms <= now_ms


@dataclass
class ModelSite:
    group: int
    delay_ms: int = DELAY
    hold_ms: int = 0
    end_ms: int = LONG_AGO
    busy: bool = False


@dataclass(frozen=True)
class Queued:
    item: int
    site: int
    priority: int
    not_before_ms: int
    source: int


@dataclass
class Out:
    queued: Queued
    group: int
    slot_end_ms: int
    expires_ms: int


class EngineAgainstModel(RuleBasedStateMachine):
    engine: OneByOne

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.groups: dict[int, ModelGroup] = {}
        self.sites: dict[int, ModelSite] = {}
        self.site_delays: dict[int, int] = {}
        self.site_holds: dict[int, int] = {}
        self.queue: list[Queued] = []
        self.out: dict[int, Out] = {}
        self.old_tokens: list[int] = []
        self.items = 0

    @initialize()
    def start(self) -> None:
        self.engine = OneByOne(MemoryGroups(lease_ms=LEASE, delay_ms=DELAY))

    def group(self, key: int) -> ModelGroup:
        return self.groups.setdefault(key, ModelGroup())

    @rule(wanted=st.lists(st.tuples(GROUPS, SITES, st.integers(0, 3), WAITS, st.integers(0, 2)), min_size=1, max_size=3))
    def add(self, wanted: list[tuple[int, int, int, int, int]]) -> None:
        entries = []
        for group, site, priority, wait, source in wanted:
            self.items += 1
            not_before_ms = self.now_ms + wait if wait else 0
            entries.append(QueueEntry(self.items, group, site, priority, not_before_ms, source))
            if site not in self.sites:
                self.sites[site] = ModelSite(group, self.site_delays.get(site, DELAY), self.site_holds.get(site, 0))
            self.group(self.sites[site].group)
            self.queue.append(Queued(self.items, site, priority, not_before_ms, source))
        at_once(self.engine.engine.add_many(entries))

    def best(self) -> Queued | None:
        eligible = [
            queued
            for queued in self.queue
            for site in [self.sites[queued.site]]
            if queued.not_before_ms <= self.now_ms
            and not site.busy
            and max(site.end_ms + site.delay_ms, site.hold_ms) <= self.now_ms
            and self.group(site.group).ready(self.now_ms)
        ]
        return min(eligible, key=lambda queued: (-queued.priority, queued.item), default=None)

    @rule(most=st.integers(0, 4))
    def take(self, most: int) -> None:
        """As if each of them had been asked for by itself."""
        leases = at_once(self.engine.engine.take(most, self.now_ms))
        for lease in leases:
            expected = self.best()
            assert expected is not None
            site = self.sites[expected.site]
            group = self.group(site.group)
            assert lease[1:] == (expected.item, site.group, expected.site, self.now_ms + LEASE)
            assert lease.token not in self.out and lease.token not in self.old_tokens
            self.queue.remove(expected)
            slot_end_ms = min(group.free)
            group.free.remove(slot_end_ms)
            group.in_flight += 1
            site.busy = True
            self.out[lease.token] = Out(expected, site.group, slot_end_ms, lease.expires_ms)
        assert len(leases) == most or (len(leases) < most and self.best() is None)

    def give_back(self, token: int, end_ms: int | None) -> Out:
        out = self.out.pop(token)
        self.old_tokens.append(token)
        group, site = self.group(out.group), self.sites[out.queued.site]
        group.in_flight -= 1
        group.free.append(out.slot_end_ms if end_ms is None else end_ms)
        site.busy = False
        site.end_ms = site.end_ms if end_ms is None else end_ms
        return out

    @precondition(lambda self: self.out)
    @rule(data=st.data(), contacted=st.booleans(), delay_ms=st.sampled_from([None, None, 0, 500]))
    def release(self, data: st.DataObject, contacted: bool, delay_ms: int | None) -> None:
        """Some at a time, old tokens and the same one twice among them."""
        tokens = data.draw(st.lists(st.sampled_from([*sorted(self.out), *self.old_tokens[-2:]]), min_size=1, max_size=4))
        ends = [FetchEnd(token, contacted, delay_ms) for token in tokens]
        accepted = at_once(self.engine.engine.release_many(ends, self.now_ms))
        for token, is_accepted in zip(tokens, accepted, strict=True):
            assert is_accepted == (token in self.out and self.out[token].expires_ms > self.now_ms)
            if is_accepted:
                out = self.give_back(token, self.now_ms if contacted else None)
                if delay_ms is not None:
                    group = self.group(out.group)
                    group.hold_ms = max(group.hold_ms, self.now_ms + delay_ms)

    @precondition(lambda self: self.old_tokens)
    @rule(data=st.data())
    def old_token_is_refused(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.old_tokens))
        assert not self.engine.release(token, self.now_ms)
        assert not self.engine.extend(token, self.now_ms + LEASE)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), wait=st.integers(0, 2 * LEASE))
    def extend(self, data: st.DataObject, wait: int) -> None:
        token = data.draw(st.sampled_from(sorted(self.out)))
        assert self.engine.extend(token, self.now_ms + wait)
        self.out[token].expires_ms = max(self.out[token].expires_ms, self.now_ms + wait)

    @rule()
    def expire(self) -> None:
        expected = sorted(token for token, out in self.out.items() if out.expires_ms <= self.now_ms)
        expired = self.engine.expire(self.now_ms)
        assert sorted(lease.token for lease in expired) == expected
        for lease in expired:
            out = self.give_back(lease.token, self.now_ms)
            assert lease == FetchLease(lease.token, out.queued.item, out.group, out.queued.site, out.expires_ms)

    @rule(group=GROUPS, delay_ms=DELAYS)
    def set_delay(self, group: int, delay_ms: int) -> None:
        self.engine.set_delay(group, delay_ms)
        self.group(group).delay_ms = delay_ms

    @rule(group=GROUPS, slots=st.integers(1, 3))
    def set_slots(self, group: int, slots: int) -> None:
        self.engine.set_slots(group, slots)
        changed = self.group(group)
        changed.slots = slots
        changed.free += [LONG_AGO] * (slots - changed.in_flight - len(changed.free))

    @rule(site=SITES, delay_ms=DELAYS)
    def set_site_delay(self, site: int, delay_ms: int) -> None:
        self.engine.set_site_delay(site, delay_ms)
        self.site_delays[site] = delay_ms
        if site in self.sites:
            self.sites[site].delay_ms = delay_ms

    @rule(group=GROUPS, wait=st.integers(0, 400))
    def hold(self, group: int, wait: int) -> None:
        self.engine.hold(group, self.now_ms + wait)
        self.group(group).hold_ms = max(self.group(group).hold_ms, self.now_ms + wait)

    @rule(site=SITES, wait=st.integers(0, 400))
    def hold_site(self, site: int, wait: int) -> None:
        self.engine.hold_site(site, self.now_ms + wait)
        self.site_holds[site] = max(self.site_holds.get(site, 0), self.now_ms + wait)
        if site in self.sites:
            self.sites[site].hold_ms = self.site_holds[site]

    @rule(group=GROUPS, level=st.integers(0, 3))
    def back_off(self, group: int, level: int) -> None:
        self.engine.back_off(group, level)
        self.group(group).level = level

    @rule(site=SITES, group=GROUPS)
    def move_site(self, site: int, group: int) -> None:
        self.engine.move_site(site, group)
        if site in self.sites:
            self.sites[site].group = group

    @rule(site=SITES)
    def drop_site(self, site: int) -> None:
        dropped = sorted(
            (queued for queued in self.queue if queued.site == site), key=lambda queued: (-queued.priority, queued.item)
        )
        assert self.engine.drop_site(site) == [queued.item for queued in dropped]
        self.queue = [queued for queued in self.queue if queued.site != site]

    @rule(step_ms=st.integers(1, 300))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule()
    def wait_for_the_engine(self) -> None:
        """No item becomes ready before the time the engine names."""
        named = self.engine.next_time()
        now_ms, last = self.now_ms, 10**7 if named is None else named - 1
        if last > now_ms:
            self.now_ms = last
            assert self.best() is None
        self.now_ms = now_ms if named is None else max(now_ms, named)

    @invariant()
    def counters_are_exact(self) -> None:
        assert self.engine.count() == QueueCounts(len(self.queue), len(self.out))
        busy = {self.sites[entry.site].group for entry in self.queue} | {out.group for out in self.out.values()}
        assert self.engine.active() == len(busy)
        for key in range(3):
            queued = sum(self.sites[entry.site].group == key for entry in self.queue)
            assert self.engine.count_group(key) == QueueCounts(queued, sum(out.group == key for out in self.out.values()))
            queued = sum(entry.source == key for entry in self.queue)
            assert self.engine.count_source(key) == QueueCounts(
                queued, sum(out.queued.source == key for out in self.out.values())
            )

    def teardown(self) -> None:
        """Whatever happened, what is queued comes out, once, and leaves nothing behind."""
        if not hasattr(self, "engine"):
            return
        rounds = 0
        while self.queue or self.out:
            self.take(4)
            for token in list(self.out):
                if self.engine.release(token, self.now_ms):
                    self.give_back(token, self.now_ms)
            self.expire()
            self.now_ms += 1_000
            rounds += 1
            assert rounds < 1_000, "something is stuck"
        assert self.engine.next(self.now_ms + 10**6) is None
        self.counters_are_exact()


EngineAgainstModel.TestCase.settings = settings(max_examples=sampling.examples(60), stateful_step_count=60, deadline=None)
TestEngineAgainstModel = EngineAgainstModel.TestCase
