"""What the dispatcher has to say to the groups, collected until the next turn of its loop says it in few calls.

Everybody but the loop only collects, and never waits. `flush` alone calls the engine; what is collected while it does waits for
its next round. It says first what changed of delays and groups, so that this holds for whatever is added after it, then which
leases were not used, then what is queued and dropped, in the order in which that was collected. When it returns nothing is left
unsaid, so a `take` right after it knows everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from shepherd.dispatch.items import Items, ItemState
from shepherd.dispatch.sites import Site
from shepherd.politeness.groups.engine import FetchEnd, Groups, QueueEntry
from shepherd.politeness.server_limits import ServerLimits

MOST_ENTRIES: Final = 10_000  # in one call; of rows of a plan there are objects only so long

OnDropped = Callable[[list[int]], object]  # the items that were queued at a site, and are not any more


@dataclass(frozen=True, slots=True)
class _Batch:
    """Items of one site, by number. The numbers are all that is kept of them until they are sent."""

    group: int
    site: int
    numbers: Sequence[int]
    least: int  # priority that they have at least
    most: int
    not_before_ms: int


@dataclass(frozen=True, slots=True)
class _Drop:
    site: int
    on_dropped: OnDropped


class GroupCalls:
    def __init__(self, groups: Groups, items: Items, server_limits: ServerLimits, clock_ms: Callable[[], int]) -> None:
        self._groups, self._items, self._server_limits, self._clock = groups, items, server_limits, clock_ms
        self._work: list[_Batch | _Drop] = []
        self._unused: list[FetchEnd] = []

    def queue(self, site: Site, numbers: Sequence[int], least: int, most: int, not_before_ms: int = 0) -> None:
        """Items to be handed out when their site may be asked, each by its own priority as far as `least` and `most` let it."""
        for number in numbers:
            self._items.move(number, ItemState.QUEUED)
        if numbers:
            self._work.append(_Batch(site.queue, site.site, numbers, least, most, not_before_ms))

    def drop(self, site: Site, on_dropped: OnDropped) -> None:
        """Take back all that is queued at a site; `on_dropped` gets the items, but not those for which others stand."""
        self._work.append(_Drop(site.site, on_dropped))

    def return_lease(self, token: int) -> None:
        """A lease under which nobody was contacted."""
        self._unused.append(FetchEnd(token, contacted=False))

    async def flush(self) -> None:
        """Say all of it, and what comes of that."""
        while True:
            await self.flush_changes()
            if self._unused:
                unused, self._unused = self._unused, []
                await self._groups.release_many(unused, self._clock())
            elif self._work:
                work, self._work = self._work, []
                await self._carry_out(work)
            else:
                return

    async def flush_changes(self) -> None:
        """Only what changed of delays and groups: before leases end for which it holds."""
        if changes := self._server_limits.take_changes():
            await self._groups.change(changes)

    async def _carry_out(self, work: list[_Batch | _Drop]) -> None:
        for _type, run in groupby(work, type):
            batches = list(run)
            drops = [drop for drop in batches if isinstance(drop, _Drop)]
            if drops:
                dropped = await self._groups.drop_sites([drop.site for drop in drops])
                for drop, numbers in zip(drops, dropped, strict=True):
                    drop.on_dropped([number for number in numbers if not self._items.skip_replaced(number)])
            else:
                await self._add(batch for batch in batches if isinstance(batch, _Batch))

    async def _add(self, batches: Iterable[_Batch]) -> None:
        entries: list[QueueEntry] = []
        for batch in batches:
            for number in batch.numbers:
                priority, source = self._items.rank(number)
                priority = max(min(priority, batch.most), batch.least)
                entries.append(QueueEntry(number, batch.group, batch.site, priority, batch.not_before_ms, source))
                if len(entries) >= MOST_ENTRIES:
                    await self._groups.add_many(entries)
                    entries = []
        if entries:
            await self._groups.add_many(entries)
