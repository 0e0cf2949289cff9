"""The dispatcher: gives what the groups say is ready to the reapers, and what they answer to the harvest.

Read `politeness.groups.engine`, then `items`, `sites`, `admission` and `outcome` first. One event loop; every step runs to its
end, so there are no locks. A server is contacted only under a lease of its group, and the group is released when the answer is
in. Everything that was learnt is journalled; what was not journalled before a crash is simply done again.

`reap` drives it with a plan. Another program needs no plan: it makes a Dispatcher on any closed state (for its sites, servers and
key), with a writer of its own (a `ledger.HarvestWriter`), groups that it may share with others, a clock and a fleet, whose
reapers are told `reap.hello`; and has `run(seconds, stay=True)` run as a task. While that runs it calls `add` with URLs, awaits
`checkpoint_soon()` where somebody waits until an answer is durable, and calls `stop`, then `end`. The writer's `journal` tells it
what came of each URL. tests/dispatch/test_dispatcher.py does all this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.clock import end_of
from shepherd.config import Config
from shepherd.dispatch import fate
from shepherd.dispatch.admission import Admission
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.fate import FATES, Case, Release
from shepherd.dispatch.fleet import Events, Fleet
from shepherd.dispatch.items import Item, Items, ItemState, request
from shepherd.dispatch.ledger import HarvestWriter, Ledger
from shepherd.dispatch.outcome import Outcomes
from shepherd.dispatch.reapers import Reaper
from shepherd.dispatch.refreshes import Refreshes
from shepherd.dispatch.resume import enter_plan
from shepherd.dispatch.sites import Site, SiteBook, Stage
from shepherd.dispatch.statistics import ReapStatistics
from shepherd.dispatch.verify import PendingRequest, Verifier
from shepherd.errors import BadUrl, Corruption
from shepherd.filters import Filter
from shepherd.formats.journal import Entry
from shepherd.formats.tables import NO_ROW, PLAN, Kind, Reason, Records
from shepherd.politeness.groups.engine import Groups, Lease
from shepherd.politeness.server_limits import ServerLimits
from shepherd.rate import ReapLimits
from shepherd.store.state.contact_notes import Notes
from shepherd.store.state.directory import State
from shepherd.urls import parse
from shepherd.wire import messages as wire

LOG = logging.getLogger("shepherd.dispatch")
TICK_MS: Final = 500
SECOND_MS: Final = 1_000
LOOK_MS: Final = 3_000  # from one look into the inbox to the next
LOOK_UP_MS: Final = 60_000
MOST_WORK_MS: Final = 300_000  # on a page, after the deadline of its exchange, waiting for others included
LOOK_UP_BIT: Final = 1 << 62  # of tokens that are not leases


@dataclass(frozen=True, slots=True)
class LookUp:
    """A look-up under way; nobody is contacted for it, so it has no lease."""

    site: Site
    deadline_ms: int


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
        *,
        plan: Records | None = None,
        watch: Callable[[int], object] = lambda answers: None,
        resumed: Callable[[int], object] = lambda settled: None,
    ) -> None:
        """`watch` is told how many more planned or added items are settled; `resumed`, at first, how many of the plan were."""
        now_ms = clock_ms()
        self._harvest, self._groups, self._fleet, self._clock, self._watch = harvest, groups, fleet, clock_ms, watch
        self._resumed = resumed
        self.contributions = Contributions(harvest.contribute, filters.version)
        self.tally = ReapStatistics(now_ms)
        self._ledger = Ledger(harvest, self.contributions, self._on_record, self._on_settled)
        self._prints = state.prints
        self._plan = np.zeros(0, PLAN) if plan is None else plan
        self._items = Items(state, self._plan)
        self.refreshes = Refreshes(state, self._plan, filters)
        self._book = SiteBook(state, config.politeness, filters, now_ms // 1000)
        self._server_limits = ServerLimits(groups, state.servers, state.control.unsure, now_ms, config.politeness.max_backoff)
        self._admission = Admission(self._book, self._items, groups, self._server_limits, self._ledger, self._prints, clock_ms)
        self._outcomes = Outcomes(self._book, self._items, self._admission, self._ledger, self._prints, clock_ms)
        key, limits = state.control.key, config.fetch
        self._verifier = Verifier(key, state.number, filters.version, limits, self.contributions)
        self._limits = ReapLimits(config.reap.pages_per_s, config.reap.bytes_per_s, config.reap.connections, now_ms)
        self._timeout_ms, self._checkpoint_ms = round(limits.timeout_s * 1000), round(config.reap.checkpoint_s * 1000)
        self._asked: dict[int, PendingRequest] = {}  # by lease token
        self._looking_up: dict[int, LookUp] = {}
        self._last_look_up = LOOK_UP_BIT
        self._end_ms = self._point_ms = self._second_ms = self._look_ms = 0
        self._stay = False
        self._stopping = ""
        self._sleeping: asyncio.Future[None] | None = None
        self._awaiting: list[asyncio.Future[None]] = []  # who wants a checkpoint
        self.left = 0  # planned or added, but not reached

    # --- for those who drive it ---------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Hand out nothing more; `run` returns when what is in flight has been answered."""
        self._stopping = self._stopping or why
        self._wake()

    def add(self, url: str, *, priority: int = 0, weight: int = 0, source: int = 0) -> None:
        """One more page to ask for, with its site's address and robots.txt first where they are not known; BadUrl if it is none.

        Of several adds of one URL each is asked for. `source` is whose counter of the groups it counts in.
        """
        parsed = parse(url)
        norm, path, site = self._prints.of(parsed)
        item = Item(Kind.PAGE, norm, path, site, site, site, parsed.href, weight=weight, priority=priority, source=source)
        self._admission.wait(self._items.add(item), self._book.enter(site, norm, parsed.site))
        self._wake()

    def checkpoint_soon(self) -> Awaitable[None]:
        """Done when all that was answered up to now is durable. Any number may wait for the same checkpoint."""
        point = asyncio.get_running_loop().create_future()
        self._awaiting.append(point)
        self._wake()
        return point

    async def run(self, seconds: float, *, stay: bool = False) -> str:
        """Work until all is done (or, with `stay`, wait for more), the time is over or `stop` is called; why it ended."""
        self._stay = stay
        try:
            await self._connect(seconds)
            self._load()
            now = self._clock()
            self._end_ms, self._point_ms = now + round(seconds * 1000), now + self._checkpoint_ms
            while True:
                now = self._clock()
                self._fleet.check()
                if now >= self._end_ms and not self._stopping:
                    self.stop("its time is over")
                if now >= self._point_ms or self._awaiting:
                    self.checkpoint()
                if now >= self._second_ms:
                    self._every_second(now)
                self._pump(now)
                if why := self._why_done():
                    return why
                await self._sleep(now)
        except BaseException:
            for point in self._awaiting:
                point.cancel()
            raise
        finally:
            waiting = sum(site.waiting for site in self._book.all())
            self.left = self._groups.count().queued + waiting - self._items.replaced
            await self._fleet.close()

    def checkpoint(self) -> None:
        self.contributions.flush()
        self._harvest.checkpoint(self._clock())
        self._point_ms = self._clock() + self._checkpoint_ms
        self._durable()

    def end(self) -> None:
        self.contributions.flush()
        self._harvest.end(self._clock())
        self._durable()

    def _durable(self) -> None:
        for point in self._awaiting:
            if not point.done():
                point.set_result(None)
        self._awaiting = []

    def heed(self, notes: Notes) -> None:
        """Servers that were asked outside any reap wait their delay, too; to be told before it runs."""
        self._server_limits.add_manual_contacts(notes)

    # --- the run ------------------------------------------------------------------------------------------------------

    async def _connect(self, seconds: float) -> None:
        """Until a reaper is up; without one, until somebody wants a stop or the time is over. The reap's own time begins then."""
        loop = asyncio.get_running_loop()
        starting = loop.create_task(self._fleet.start(Events(self._handle, self._lost, self._killed, self._wake)))
        starting.add_done_callback(lambda _: self._wake())
        alarm = loop.call_later(seconds, self.stop, "its time is over")
        try:
            while not starting.done() and not self._stopping:
                self._sleeping = loop.create_future()
                await self._sleeping
            if not self._stopping:
                await starting
        finally:
            alarm.cancel()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    def _load(self) -> None:
        journalled = self._harvest.journalled()
        if self._harvest.resumed:
            self._server_limits.replay(journalled)
            self._ledger.resumed(self._clock())
        self._resumed(enter_plan(self._book, self._items, self._plan, journalled))
        self.refreshes.resumed(journalled)
        for site in list(self._book.all()):
            self._admission.advance(site)

    def _every_second(self, now: int) -> None:
        self._second_ms = now + SECOND_MS
        self._expire(now)
        self.tally.sample(now, self._groups.active())
        if not self._stay and not self._stopping and now >= self._look_ms:
            self._refresh(now)

    def _refresh(self, now: int) -> None:
        """Take up what operators want again since the last look. A site that cannot be asked in this reap is left to the next."""
        items = self.refreshes.look(now)
        self._look_ms = now + (SECOND_MS if self.refreshes.more else LOOK_MS)
        for item in items:
            site = self._book.get(item.site)
            if site is None or site.stage == Stage.SHUT:
                self.refreshes.left(item)
                continue
            if item.plan_row != NO_ROW:
                self._items.move(item.plan_row, ItemState.REPLACED)
            self._admission.wait(self._items.add(item), site)

    def _on_record(self, entry: Entry, name: str) -> None:
        self.tally.count(entry, name)
        self.refreshes.settled(entry)

    def _on_settled(self, item: Item, _entry: Entry) -> None:
        self._items.move(item.number, ItemState.SETTLED)
        self._watch(1)

    def _why_done(self) -> str:
        """Why there is nothing more to wait for, or "". What only a later reap could ask is not waited for."""
        if self._asked or (self._looking_up and not self._stopping):
            return ""
        if self._stopping:
            return self._stopping
        if self._admission.to_look_up or self._stay:
            return ""
        ready_ms = self._groups.next_time()
        if ready_ms is not None and ready_ms <= self._end_ms:
            return ""
        return "what is left must wait longer than the reap" if self._groups.count().queued else "the plan is done"

    def _lost(self, reaper: Reaper) -> None:
        """What it was fetching stays leased, and so its servers stay busy, until the deadlines have passed; look-ups need not."""
        for token in reaper.outstanding & self._looking_up.keys():
            self._admission.to_look_up.append(self._looking_up.pop(token).site)

    def _killed(self, home: str, tokens: frozenset[int]) -> None:
        """Workers have died at these pages, whose exchanges were over. Each is asked for once more, to be parsed alone.

        A reaper is believed only about what it was asked itself: others may still be at their pages.
        """
        for token in [token for token in tokens & self._asked.keys() if self._asked[token].home == home]:
            request = self._asked[token]
            LOG.warning("%s: a worker of %s died at this page", request.url, home)
            self._end(token, fate.at_a_dead_worker(request.item))

    def _wake(self) -> None:
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)

    async def _sleep(self, now: int) -> None:
        """Until an answer comes, a group becomes ready, or the clock wants a look."""
        ready = self._groups.next_time()
        wait_ms = TICK_MS
        if ready is not None and not self._stopping and self._fleet.free > 0 and self._limits.room(len(self._asked)):
            wait_ms = min(TICK_MS, max(1, ready - now, self._limits.wait_ms(now)))
        loop = asyncio.get_running_loop()
        self._sleeping = loop.create_future()
        alarm = loop.call_later(wait_ms / 1000, self._wake)
        await self._sleeping
        alarm.cancel()

    # --- handing out --------------------------------------------------------------------------------------------------

    def _pump(self, now: int) -> None:
        while self._admission.to_look_up and self._fleet.free > 0 and not self._stopping:
            self._look_up(self._admission.to_look_up.popleft(), now)
        while not self._stopping and self._limits.room(len(self._asked)) and not self._limits.wait_ms(now):
            lease = self._groups.next(now) if self._fleet.free > 0 else None
            if lease is None:
                return
            self._hand_out(lease, now)

    def _look_up(self, site: Site, now: int) -> None:
        self._last_look_up += 1
        self._looking_up[self._last_look_up] = LookUp(site, now + LOOK_UP_MS)
        self._fleet.freest().ask(self._last_look_up, wire.Resolve(self._last_look_up, site.site, site.name))

    def _hand_out(self, lease: Lease, now: int) -> None:
        item, site = self._items.get(lease.item), self._admission.site(lease.site)
        if self._items.pass_over(lease.item):
            self._groups.release(lease.token, now, contacted=False)
            return
        self._items.move(lease.item, ItemState.IN_FLIGHT)
        self.refreshes.begun(item, now)
        if not site.address:  # it is being looked up anew
            self._groups.release(lease.token, now, contacted=False)
            self._admission.queue_again(item)
            return
        reaper = self._fleet.for_server(site.qkey)
        messages: list[wire.Message] = []
        if item.kind == Kind.PAGE and reaper.number not in site.reapers_with_rules:
            messages.append(wire.Robots(site.site, *self._book.rules(site)))
            site.reapers_with_rules |= {reaper.number}
        elif item.kind == Kind.ROBOTS:  # the reaper will go by what it fetches
            self._admission.site(item.site).reapers_with_rules -= {reaper.number}
        text, reuse = self._items.text(item), self._server_limits.may_reuse(lease.group)
        messages.append(request(item, text, site, lease.token, now, self._timeout_ms, reuse))
        self._asked[lease.token] = PendingRequest(item, site.qkey, lease.group, text.url, now, reaper.home)
        self._limits.charge_page(now)
        reaper.ask(lease.token, *messages)

    def _expire(self, now: int) -> None:
        """Requests and look-ups that nobody answered in time."""
        for lease in self._groups.expire(now):
            if lease.token in self._asked:
                self._fleet.forget(lease.token)
                self._end(lease.token, fate.unanswered(self._asked[lease.token].item))
        for token in [token for token, look_up in self._looking_up.items() if look_up.deadline_ms <= now]:
            self._fleet.forget(token)
            self._admission.not_looked_up(self._looking_up.pop(token).site)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _handle(self, reaper: Reaper, message: wire.Message) -> None:
        self._wake()
        if isinstance(message, wire.Working):
            self._wait_on(reaper, message)
        elif not isinstance(message, wire.Resolved | wire.FetchResult) or not reaper.is_answer(message.token):
            LOG.warning("reaper %d sent a %s that was not requested", reaper.number, type(message).__name__)
        elif isinstance(message, wire.Resolved) and message.token in self._looking_up:
            reason = Reason(message.reason) if message.reason in (Reason.NONE, Reason.GUARD, Reason.LOOKUP) else Reason.NO_ADDRESS
            site = self._looking_up.pop(message.token).site
            self._admission.looked_up(site, message.address, message.qkey, reason, message.valid_s, reaper.number)
        elif isinstance(message, wire.FetchResult) and message.token in self._asked:
            self._answered(reaper, message)

    def _wait_on(self, reaper: Reaper, message: wire.Working) -> None:
        """Its server has answered, and stays busy until we know what; but no reaper can keep it so for ever."""
        asked = self._asked.get(message.token)
        if asked is not None and reaper.has(message.token):
            latest_ms = asked.sent_ms + self._timeout_ms + MOST_WORK_MS
            self._groups.extend(message.token, min(self._clock() + message.more_ms, latest_ms))

    def _answered(self, reaper: Reaper, message: wire.FetchResult) -> None:
        token, request, now = message.token, self._asked[message.token], end_of(self._clock())
        try:
            answer = self._verifier.checked(message, request, reaper.number, now)
        except (Corruption, BadUrl) as error:
            LOG.warning("reaper %d sent an answer that does not hold: %s", reaper.number, error)
            self._end(token, fate.refused(request.item))
            return
        delay_ms = self._server_limits.after_answer(request.group, answer.record)
        if not self._groups.release(token, now, contacted=answer.contacted, delay_ms=delay_ms):
            return  # too late: its lease expires, and it is as if nobody had answered
        del self._asked[token]
        self._limits.charge_bytes(now, answer.record.wire_bytes)
        case = self._outcomes.case_of(request.item, answer, is_ending=bool(self._stopping))
        self._outcomes.answered(request.item, answer, case)

    def _end(self, token: int, case: Case) -> None:
        """A request that has no answer that holds. Where its lease is over, `_expire` ends it."""
        if FATES[case].group is Release.AS_CONTACTED and not self._groups.release(token, end_of(self._clock())):
            return
        self._outcomes.unanswered(self._asked.pop(token), case)
