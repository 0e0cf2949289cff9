"""Group engines under test: one item a call for tests that think so, one that is far away, and one that is watched."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from shepherd.politeness.groups.engine import Change, Extension, FetchEnd, FetchLease, Groups, QueueCounts, QueueEntry, Setting

T = TypeVar("T")
PAUSES_S = (0, 0, 0.001, 0.002, 0.005)


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that does not suspend."""
    try:
        call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    call.close()
    raise AssertionError("the engine in memory has suspended")


class OneByOne:
    """An engine that never suspends, asked about one thing at a time."""

    def __init__(self, engine: Groups) -> None:
        self.engine = engine

    def add(self, item: int, group: int, site: int, priority: int, not_before_ms: int = 0, source: int = 0) -> None:
        at_once(self.engine.add_many([QueueEntry(item, group, site, priority, not_before_ms, source)]))

    def next(self, now_ms: int) -> FetchLease | None:
        return next(iter(at_once(self.engine.take(1, now_ms))), None)

    def next_time(self) -> int | None:
        return at_once(self.engine.next_time())

    def extend(self, token: int, until_ms: int) -> bool:
        (is_known,) = at_once(self.engine.extend_many([Extension(token, until_ms)]))
        return is_known

    def release(self, token: int, now_ms: int, *, contacted: bool = True, delay_ms: int | None = None) -> bool:
        (is_accepted,) = at_once(self.engine.release_many([FetchEnd(token, contacted, delay_ms)], now_ms))
        return is_accepted

    def expire(self, now_ms: int) -> list[FetchLease]:
        return at_once(self.engine.expire(now_ms))

    def set_delay(self, group: int, delay_ms: int) -> None:
        self._change(Setting.DELAY, group, delay_ms)

    def set_slots(self, group: int, slots: int) -> None:
        self._change(Setting.SLOTS, group, slots)

    def set_site_delay(self, site: int, delay_ms: int) -> None:
        self._change(Setting.DELAY_OF_SITE, site, delay_ms)

    def hold(self, group: int, until_ms: int) -> None:
        self._change(Setting.HOLD, group, until_ms)

    def hold_site(self, site: int, until_ms: int) -> None:
        self._change(Setting.HOLD_OF_SITE, site, until_ms)

    def back_off(self, group: int, level: int) -> None:
        self._change(Setting.BACK_OFF, group, level)

    def move_site(self, site: int, to_group: int) -> None:
        self._change(Setting.GROUP_OF_SITE, site, to_group)

    def _change(self, setting: Setting, key: int, value: int) -> None:
        at_once(self.engine.change([Change(setting, key, value)]))

    def drop_site(self, site: int) -> list[int]:
        (items,) = at_once(self.engine.drop_sites([site]))
        return items

    def count(self) -> QueueCounts:
        return at_once(self.engine.count())

    def count_group(self, group: int) -> QueueCounts:
        return at_once(self.engine.count_group(group))

    def count_source(self, source: int) -> QueueCounts:
        return at_once(self.engine.count_source(source))

    def active(self) -> int:
        return at_once(self.engine.active())


class FarGroups:
    """An engine behind a slow line: every call takes a while to get there, and its reply a while to come back.

    It also fails if a call begins while another is under way: calls could overtake each other on their way.
    """

    def __init__(self, engine: Groups, seed: int) -> None:
        self._engine, self._random = engine, random.Random(seed)
        self.calls = 0
        self._is_busy = False

    async def _far(self, call: Coroutine[Any, Any, T]) -> T:
        assert not self._is_busy, "a call while another is under way"
        self._is_busy = True
        self.calls += 1
        try:
            await asyncio.sleep(self._random.choice(PAUSES_S))
            result = await call
            await asyncio.sleep(self._random.choice(PAUSES_S))
        finally:
            self._is_busy = False
        return result

    async def change(self, changes: Sequence[Change]) -> None:
        await self._far(self._engine.change(changes))

    async def add_many(self, entries: Sequence[QueueEntry]) -> None:
        await self._far(self._engine.add_many(entries))

    async def take(self, most: int, now_ms: int) -> list[FetchLease]:
        return await self._far(self._engine.take(most, now_ms))

    async def next_time(self) -> int | None:
        return await self._far(self._engine.next_time())

    async def extend_many(self, extensions: Sequence[Extension]) -> list[bool]:
        return await self._far(self._engine.extend_many(extensions))

    async def release_many(self, ends: Sequence[FetchEnd], now_ms: int) -> list[bool]:
        return await self._far(self._engine.release_many(ends, now_ms))

    async def expire(self, now_ms: int) -> list[FetchLease]:
        return await self._far(self._engine.expire(now_ms))

    async def drop_sites(self, sites: Sequence[int]) -> list[list[int]]:
        return await self._far(self._engine.drop_sites(sites))

    async def count(self) -> QueueCounts:
        return await self._far(self._engine.count())

    async def count_group(self, group: int) -> QueueCounts:
        return await self._far(self._engine.count_group(group))

    async def count_source(self, source: int) -> QueueCounts:
        return await self._far(self._engine.count_source(source))

    async def active(self) -> int:
        return await self._far(self._engine.active())


class LogEntry(NamedTuple):
    call: str
    content: Any  # a change, an entry of the queue, a lease or its end


class WatchedGroups(FarGroups):
    """A far engine that writes down, in order, what it is told and what it gives.

    What is to happen while a call is under way a test sets as `on_take` or `on_release`: that is awaited once, when the engine
    has carried out the next call that leases or releases anything, and before its caller hears of it. Releases of the leases in
    `late` are refused, as of leases whose time has passed; the next `expire` gives these back.
    """

    def __init__(self, engine: Groups, seed: int) -> None:
        super().__init__(engine, seed)
        self.log: list[LogEntry] = []
        self.on_take: Callable[[], Awaitable[None]] | None = None
        self.on_release: Callable[[], Awaitable[None]] | None = None
        self.late: set[int] = set()  # tokens
        self._leases: dict[int, FetchLease] = {}
        self._refused: list[FetchLease] = []

    def logged(self, call: str) -> list[Any]:
        return [entry.content for entry in self.log if entry.call == call]

    def _note(self, call: str, contents: Sequence[object]) -> None:
        self.log += [LogEntry(call, content) for content in contents]

    async def change(self, changes: Sequence[Change]) -> None:
        self._note("change", changes)
        await super().change(changes)

    async def add_many(self, entries: Sequence[QueueEntry]) -> None:
        self._note("add", entries)
        await super().add_many(entries)

    async def take(self, most: int, now_ms: int) -> list[FetchLease]:
        leases = await super().take(most, now_ms)
        self._note("take", leases)
        self._leases.update((lease.token, lease) for lease in leases)
        if leases and self.on_take:
            hook, self.on_take = self.on_take, None
            await hook()
        return leases

    async def release_many(self, ends: Sequence[FetchEnd], now_ms: int) -> list[bool]:
        self._note("release", ends)
        in_time = [end for end in ends if end.token not in self.late]
        self._refused += [self._leases[end.token] for end in ends if end.token in self.late]
        accepted = dict(zip(in_time, await super().release_many(in_time, now_ms), strict=True))
        if self.on_release:
            hook, self.on_release = self.on_release, None
            await hook()
        return [accepted.get(end, False) for end in ends]

    async def expire(self, now_ms: int) -> list[FetchLease]:
        over, self._refused = self._refused, []
        await super().release_many([FetchEnd(lease.token) for lease in over], now_ms)
        leases = over + await super().expire(now_ms)
        self._note("expire", leases)
        return leases
