"""The dispatcher: gives what the groups say is ready to the reapers, and what they answer to the harvest.

Read `politeness.groups.engine`, then `items`, `sites`, `admission`, `outcome` and `exchanges` first. A server is contacted only
under a lease of its group, and the group is released when the answer is in. Everything that was learnt is journalled; what was
not journalled before a crash is simply done again.

One task, that of `run`, decides everything, a turn at a time: what has arrived, what the groups must know of it, what they give.
It alone calls the groups, which may be far away; what arrives meanwhile only queues for its next turn. So there are no locks, and
a site does not change between the lease of its group and the request.

`reap` drives it with a plan. Another program makes a Dispatcher on any closed state (for its sites, servers and key), with a
writer of its own (a `ledger.HarvestWriter`), groups of its own, a clock, a fleet, whose reapers are told `reap.hello`, and the
sources of what it wants fetched (`source.py`); and has `run(seconds, stay=True)` run as a task. While that runs it awaits
`checkpoint_soon()` where somebody waits until an answer is durable, and calls `stop`, then `end`.
tests/dispatch/test_dispatcher.py does all this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from shepherd.config import Config
from shepherd.dispatch.admission import Admission
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.exchanges import Exchanges
from shepherd.dispatch.fleet import Events, Fleet
from shepherd.dispatch.group_calls import MOST_ENTRIES, GroupCalls
from shepherd.dispatch.items import Item, Items, ItemState, request
from shepherd.dispatch.ledger import HarvestWriter, Ledger
from shepherd.dispatch.look_ups import LookUps
from shepherd.dispatch.outcome import Outcomes
from shepherd.dispatch.reapers import Reaper
from shepherd.dispatch.sites import SiteBook, Stage
from shepherd.dispatch.source import MOST_UNSETTLED, SourceCounts, SourceDesk, WorkSource
from shepherd.dispatch.statistics import ReapStatistics
from shepherd.dispatch.verify import MAX_VALID_S, PendingRequest, Verifier
from shepherd.dispatch.waiters import Waiter, Waiters
from shepherd.filters import Filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import NO_ROW, Kind, Reason
from shepherd.politeness.groups.engine import FetchLease, Groups
from shepherd.politeness.server_limits import ServerLimits
from shepherd.politeness.shared_contacts import SharedContacts
from shepherd.politeness.site_pauses import site_pauses
from shepherd.rate import ReapLimits
from shepherd.store.state.contact_notes import Notes
from shepherd.store.state.directory import State
from shepherd.urls import parse
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.dispatch")
TICK_MS: Final = 500
SECOND_MS: Final = 1_000
MOST_WORK_MS: Final = 300_000  # on a page, after the deadline of its exchange, waiting for others included


class Dispatcher:
    def __init__(
        self,
        state: State,
        harvest: HarvestWriter,
        groups: Groups,
        config: Config,
        filters: Filter,
        fleet: Fleet,
        clock_ms: Callable[[], int],
        sources: Sequence[WorkSource],
        shared: SharedContacts | None = None,
    ) -> None:
        now_ms = clock_ms()
        self._harvest, self._groups, self._fleet, self._clock = harvest, groups, fleet, clock_ms
        self.contributions = Contributions(harvest.contribute, filters.version)
        self.tally = ReapStatistics(now_ms)
        self._ledger = Ledger(harvest, self.contributions, self.tally.count, self._on_settled)
        self._prints = state.prints
        self._items = Items(state)
        self._sources = list(enumerate(sources, 1))
        self._counts = [SourceCounts(0, 0)] * (len(self._sources) + 1)
        self._book = SiteBook(state, config.politeness, filters, now_ms // 1000)
        pauses, unsure_ms = site_pauses(state, now_ms, config.politeness), state.control.unsure
        self._server_limits = ServerLimits(state.servers, pauses, unsure_ms, now_ms, config.politeness, self._book)
        self._calls = GroupCalls(groups, self._items, self._server_limits, clock_ms)
        self._admission = Admission(
            self._book, self._items, self._calls, self._server_limits, self._ledger, self._prints, clock_ms
        )
        outcomes = Outcomes(self._book, self._items, self._admission, self._ledger, self._prints, clock_ms)
        verifier = Verifier(state.control.key, state.number, filters.version, config.fetch, self.contributions)
        self._limits = ReapLimits(config.reap.pages_per_s, config.reap.bytes_per_s, config.reap.connections, now_ms)
        self._timeout_ms, self._checkpoint_ms = round(config.fetch.timeout_s * 1000), round(config.reap.checkpoint_s * 1000)
        self._exchanges = Exchanges(
            groups,
            self._calls,
            self._server_limits,
            verifier,
            outcomes,
            self._limits,
            fleet,
            clock_ms,
            shared,
            lambda: bool(self._stopping),
        )
        self._look_ups = LookUps(config.reap.lookups_per_s, config.reap.lookups_per_domain, fleet.needs_dns, now_ms)
        self._end_ms = self._point_ms = self._second_ms = 0
        self._stay, self._stopping, self._times_known = False, "", True
        self._news = asyncio.Event()  # something has arrived since the turn began
        self._waiters = Waiters()
        self.items_left = 0  # taken from the sources, but not reached

    # --- for those who drive it ---------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Hand out nothing more; `run` returns when what is in flight has been answered."""
        self._stopping = self._stopping or why
        self._wake()

    def counts(self, source: WorkSource) -> SourceCounts:
        """How far it is with what a source gave. What a plan entered at once is not counted as taken."""
        return next(self._counts[number] for number, other in self._sources if other is source)

    def checkpoint_soon(self) -> Awaitable[None]:
        """Done when all that was answered up to now is durable; cancelled when `run` or `end` fails, because it may never be.

        Any number may wait for the same checkpoint.
        """
        self._wake()
        return self._waiters.add()

    async def run(self, seconds: float, *, stay: bool = False) -> str:
        """Work until all is done (or, with `stay`, wait for more), the time is over or `stop` is called; why it ended."""
        self._stay = stay
        try:
            return await self._run(seconds)
        except BaseException:
            self._waiters.fail()
            raise

    async def _run(self, seconds: float) -> str:
        try:
            await self._connect(seconds)
            await self._load()
            now = self._clock()
            self._end_ms, self._point_ms = now + round(seconds * 1000), now + self._checkpoint_ms
            while not (why := await self._turn()):
                await self._sleep()
            self.items_left = await self._count_left()
            return why
        finally:
            await self._fleet.close()

    async def _turn(self) -> str:
        """Take in what has arrived, hand out what may be asked; why there is nothing more to do, or ""."""
        self._news.clear()
        now, awaiting = self._clock(), self._waiters.now()
        self._fleet.check()
        if now >= self._end_ms and not self._stopping:
            self.stop("its time is over")
        if not self._stopping:
            self._take_items(now)
        self._take_resolved()
        await self._exchanges.handle()
        if now >= self._point_ms or awaiting:
            self._checkpoint(awaiting)
        if now >= self._second_ms:
            await self._every_second(now)
        await self._hand_out()
        return await self._why_done()

    async def _count_left(self) -> int:
        """What was taken from the sources, but not reached."""
        await self._calls.flush()
        waiting = sum(site.waiting for site in self._book.all())
        return (await self._groups.count()).queued + waiting - self._items.replaced

    def _checkpoint(self, awaiting: list[Waiter]) -> None:
        """Make all durable that was handled; `awaiting` are those who asked before it was."""
        self.contributions.flush()
        self._harvest.checkpoint(self._clock())
        self._point_ms = self._clock() + self._checkpoint_ms
        self._waiters.release(awaiting)

    def end(self) -> None:
        try:
            self.contributions.flush()
            self._harvest.end(self._clock())
        except BaseException:
            self._waiters.fail()
            raise
        self._waiters.end()

    def heed(self, notes: Notes) -> None:
        """Servers that were asked outside any reap wait their delay, too; to be told before it runs."""
        self._server_limits.add_manual_contacts(notes)

    def forget_times(self) -> None:
        """Nobody knows how long ago servers were asked: the clock was set. To be told before it runs."""
        self._times_known = False

    # --- the run ------------------------------------------------------------------------------------------------------

    async def _connect(self, seconds: float) -> None:
        """Until a reaper is up; without one, until somebody wants a stop or the time is over. The reap's own time begins then."""
        loop = asyncio.get_running_loop()
        starting = loop.create_task(self._fleet.start(Events(self._on_message, self._on_lost, self._on_killed, self._wake)))
        starting.add_done_callback(lambda _: self._wake())
        alarm = loop.call_later(seconds, self.stop, "its time is over")
        try:
            while not starting.done() and not self._stopping:
                await self._news.wait()
                self._news.clear()
            if not self._stopping:
                await starting
        finally:
            alarm.cancel()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def _load(self) -> None:
        journalled = self._harvest.journalled()
        if self._harvest.resumed or not self._times_known:
            self._server_limits.replay(journalled)
            self._ledger.resumed(self._clock())
        for number, source in self._sources:
            source.open(SourceDesk(number, self._prints, self._wake, journalled, self._book, self._items))
        for count, site in enumerate(list(self._book.all())):
            self._admission.advance(site)
            if count % MOST_ENTRIES == 0:
                await self._calls.flush()

    async def _every_second(self, now: int) -> None:
        self._second_ms = now + SECOND_MS
        await self._exchanges.expire(now)
        self._expire_look_ups(now)
        self.tally.sample(now, await self._groups.active())

    def _take_items(self, now: int) -> None:
        """What the sources have, unless they have given very much already."""
        for number, source in self._sources:
            items, items_settled = self._counts[number]
            for item in source.take(MOST_UNSETTLED - (items - items_settled), now):
                self._enter(number, source, item)

    def _enter(self, number: int, source: WorkSource, item: Item) -> None:
        site = self._book.get(item.site)
        if site is None and not item.url and source.takes_back(item):  # a row of a site that the state does not know
            return
        if site is None:
            site = self._book.enter(item.site, item.norm, parse(item.url).site)
        if site.stage == Stage.SHUT and source.takes_back(item):
            return
        if item.plan_row != NO_ROW:
            self._items.move(item.plan_row, ItemState.REPLACED)
        self._count(number, more_items=1)
        self._admission.wait(self._items.add(item._replace(source=number)), site)

    def _count(self, number: int, more_items: int = 0, more_settled: int = 0) -> None:
        counts = self._counts[number]
        self._counts[number] = SourceCounts(counts.items + more_items, counts.settled + more_settled)

    def _on_settled(self, item: Item, record: Entry) -> None:
        self._items.move(item.number, ItemState.SETTLED)
        if item.source:
            self._sources[item.source - 1][1].settled(item, record)
        if item.number >= self._items.rows:
            self._count(item.source, more_settled=1)

    async def _why_done(self) -> str:
        """Why there is nothing more to wait for, or "". What only a later reap could ask is not waited for."""
        if len(self._exchanges) or self._look_ups.has_answers or (self._look_ups.under_way and not self._stopping):
            return ""
        if self._stopping:
            return self._stopping
        if self._admission.to_look_up or self._look_ups.waiting or self._stay:
            return ""
        ready_ms = await self._groups.next_time()
        if self._news.is_set() or (ready_ms is not None and ready_ms <= self._end_ms):
            return ""
        return "what is left must wait longer than the reap" if (await self._groups.count()).queued else "the plan is done"

    def _on_lost(self, reaper: Reaper) -> None:
        """What it was fetching stays leased, and so its servers stay busy, until the deadlines have passed; look-ups need not."""
        self._look_ups.reaper_lost(reaper.outstanding)

    def _on_killed(self, home: str, tokens: frozenset[int]) -> None:
        """Workers have died at these pages, whose exchanges were over. Each is asked for once more, to be parsed alone."""
        for token in tokens:
            self._exchanges.on_death(token, home)
        self._wake()

    def _wake(self) -> None:
        self._news.set()

    async def _sleep(self) -> None:
        """Until an answer comes, a group becomes ready, or the clock wants a look."""
        wait_ms = TICK_MS
        if self._room():
            ready, now = await self._groups.next_time(), self._clock()
            if ready is not None:
                wait_ms = min(TICK_MS, max(1, ready - now, self._limits.wait_ms(now)))
            if self._fleet.free > 0 and (look_up_ms := self._look_ups.wait_ms(now)) is not None:
                wait_ms = min(wait_ms, max(1, look_up_ms))
        alarm = asyncio.get_running_loop().call_later(wait_ms / 1000, self._wake)
        await self._news.wait()
        alarm.cancel()

    # --- handing out --------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """How many requests may be handed out, as far as reapers and connections go."""
        return 0 if self._stopping else self._limits.room(len(self._exchanges), self._fleet.free)

    async def _hand_out(self) -> None:
        """Tell the groups what was learnt, and send what they give for it."""
        while True:
            await self._calls.flush()
            now = self._clock()
            self._ask_for_addresses(now)
            most = min(self._room(), self._limits.affordable(now))
            leases = await self._groups.take(most, now) if most > 0 else []
            for lease in leases:
                self._send(lease, now)
            if not leases or len(leases) < most:
                await self._calls.flush()  # of leases that could not be used
                return

    def _ask_for_addresses(self, now: int) -> None:
        self._look_ups.add(self._admission.take_wanted())
        while (free := self._fleet.free) > 0 and not self._stopping:
            for token, site in (begun := self._look_ups.take(free, now)):
                self._fleet.freest().ask(token, wire.Resolve(token, site.site, site.name))
            for site in (refused := self._look_ups.take_refused()):
                self._admission.looked_up(site, "", 0, Reason.LOOK_UPS, 0, 0)
            if not begun and not refused:
                return

    def _send(self, lease: FetchLease, now: int) -> None:
        """Use a lease, or give it back if that cannot be done any more. `now` is when it was asked for."""
        item, site = self._items.get(lease.item), self._admission.site(lease.site)
        if self._items.skip_replaced(lease.item):
            self._calls.return_lease(lease.token)
            return
        self._items.move(lease.item, ItemState.IN_FLIGHT)
        is_moved = not site.address or site.queue != lease.group  # it is being looked up anew
        can_ask = not (is_moved or self._stopping) and self._fleet.free > 0
        wait_ms = self._exchanges.wait_ms(lease, site.qkey, now) if can_ask else 0
        if wait_ms:
            self._server_limits.hold(lease.group, now + wait_ms)
        if wait_ms or not can_ask:
            self._calls.return_lease(lease.token)
            self._admission.queue_again(item)
            return
        if item.source:
            self._sources[item.source - 1][1].handed_out(item, now)
        reaper = self._fleet.for_server(site.qkey)
        messages: list[wire.Message] = []
        if item.kind == Kind.PAGE and reaper.number not in site.reapers_with_rules:
            messages.append(wire.Robots(site.site, *self._book.rules(site)))
            site.reapers_with_rules |= {reaper.number}
        elif item.kind == Kind.ROBOTS:  # the reaper will go by what it fetches
            self._admission.site(item.site).reapers_with_rules -= {reaper.number}
        text, reuse = self._items.text(item), self._server_limits.may_reuse(lease.group)
        messages.append(request(item, text, site, lease.token, now, self._timeout_ms, reuse))
        self._exchanges.begin(lease.token, PendingRequest(item, site.qkey, lease.group, text.url, now, reaper.home))
        self._limits.charge_page(now)
        reaper.ask(lease.token, *messages)

    def _expire_look_ups(self, now: int) -> None:
        """Look-ups that nobody answered in time."""
        for token, site in self._look_ups.expire(now):
            self._fleet.forget(token)
            self._admission.not_looked_up(site)

    # --- what arrives -------------------------------------------------------------------------------------------------

    def _on_message(self, reaper: Reaper, message: wire.Message) -> None:
        """Queue it for the next turn."""
        self._wake()
        if isinstance(message, wire.Working):
            self._wait_on(reaper, message)
        elif not isinstance(message, wire.Resolved | wire.FetchResult) or not reaper.is_answer(message.token):
            reaper.report_unrequested(message)
        elif isinstance(message, wire.FetchResult):
            self._exchanges.on_reply(reaper, message)
        else:
            self._look_ups.on_answer(message, reaper.number)

    def _wait_on(self, reaper: Reaper, message: wire.Working) -> None:
        """Its server has answered, and stays busy until we know what; but no reaper can keep it so for ever."""
        request = self._exchanges.get(message.token)
        if request is not None and reaper.has(message.token):
            latest_ms = request.sent_ms + self._timeout_ms + MOST_WORK_MS
            self._exchanges.extend(message.token, min(self._clock() + message.more_ms, latest_ms))

    def _take_resolved(self) -> None:
        for site, message, reaper in self._look_ups.take_answers():
            reason = Reason(message.reason) if message.reason in (Reason.NONE, Reason.GUARD, Reason.LOOKUP) else Reason.NO_ADDRESS
            valid_s = min(message.valid_s, MAX_VALID_S)
            self._admission.looked_up(site, message.address, message.qkey, reason, valid_s, reaper)
