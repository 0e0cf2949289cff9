"""The dispatcher: gives what the groups say is ready to the reapers, and what they answer to the harvest.

Read `groups.engine`, `sitebook`, `gate` and `items` first. One event loop; every step runs to its end, so there are no locks. A
server is contacted only under a lease of its group, and the group is released when the answer is in. Everything that was learnt
is journalled; what was not journalled before a crash is simply done again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from shepherd.config import Config
from shepherd.errors import BadUrl, Corruption
from shepherd.filters import Filter
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.groups.engine import Groups, Lease
from shepherd.net import wire
from shepherd.net.clock import end_of
from shepherd.net.fleet import Events, Fleet
from shepherd.net.gate import Gate
from shepherd.net.items import MAX_MOVES, MAX_ROBOTS_HOPS, Item, Items, request
from shepherd.net.ledger import Ledger
from shepherd.net.manners import Manners
from shepherd.net.reapers import Reaper
from shepherd.net.resume import enter_plan
from shepherd.net.robots import ABSENT
from shepherd.net.sitebook import Site, SiteBook, Stage
from shepherd.net.verify import Answer, checked
from shepherd.store.harvest import Harvest
from shepherd.store.state import State
from shepherd.urls import parse

LOG = logging.getLogger("shepherd.dispatch")
TICK_S: Final = 0.5
SITE_FAILURES: Final = 3  # connections in a row, and the rest of the site is given up for this reap
SOON_MS: Final = 60_000  # a Retry-After within this is waited for in the same reap
LOOK_UP_MS: Final = 60_000
LOOK_UP_BIT: Final = 1 << 62  # of tokens that are not leases


@dataclass(frozen=True)
class Asked:
    """A request under way."""

    number: int
    item: Item
    qkey: int


@dataclass(frozen=True)
class LookUp:
    """A look-up under way; nobody is contacted for it, so it has no lease."""

    site: Site
    deadline_ms: int


class Dispatcher:
    def __init__(
        self,
        state: State,
        harvest: Harvest,
        groups: Groups,
        config: Config,
        filters: Filter,
        fleet: Fleet,
        clock_ms: Callable[[], int],
        watch: Callable[[int], object] = lambda answers: None,
    ) -> None:
        self._harvest, self._groups, self._config, self._clock, self._watch = harvest, groups, config, clock_ms, watch
        self.ledger = Ledger(harvest, filters.version)
        self._prints = state.prints
        self._root = self._prints.half("/")
        self._plan = state.plan()
        self._items = Items(state, self._plan)
        self._book = SiteBook(state, config.politeness, filters, clock_ms() // 1000)
        self._manners = Manners(groups, state.servers, state.control.unsure, clock_ms(), config.politeness.max_backoff)
        self._gate = Gate(self._book, self._items, groups, self._manners, self.ledger, self._prints, clock_ms, watch)
        self._timeout_ms = round(config.fetch.timeout_s * 1000)
        self._fleet = fleet
        self._asked: dict[int, Asked] = {}  # by lease token
        self._looking_up: dict[int, LookUp] = {}
        self._last_look_up = LOOK_UP_BIT
        self._end_ms = 0
        self._stopping = ""
        self._wake = asyncio.Event()
        self.left = 0  # planned, but not reached

    # --- the run ----------------------------------------------------------------------------------------------------

    def stop(self, why: str) -> None:
        """Hand out nothing more; `run` returns when what is in flight has been answered."""
        self._stopping = self._stopping or why
        self._wake.set()

    async def run(self, seconds: float) -> str:
        """Work until the plan is done or the time is over; why it ended."""
        try:
            await self._fleet.start(Events(self._handle, self._lost, self._killed, self._wake.set))
            self._load()
            self._end_ms = self._clock() + round(seconds * 1000)
            next_point = self._clock() + self._checkpoint_ms
            while True:
                now = self._clock()
                self._fleet.check()
                if now >= self._end_ms and not self._stopping:
                    self.stop("its time is over")
                if now >= next_point:
                    self.checkpoint()
                    next_point = now + self._checkpoint_ms
                self._expire(now)
                self._pump(now)
                if why := self._why_done():
                    return why
                await self._sleep()
        finally:
            self.left = self._groups.count().queued + sum(len(site.waiting) for site in self._book.all())
            await self._fleet.close()

    def _load(self) -> None:
        journalled = self._harvest.journalled()
        if self._harvest.resumed:
            self._manners.recall(journalled)
            self.ledger.resumed(self._clock())
        enter_plan(self._book, self._plan, journalled)
        for site in self._book.all():
            self._gate.advance(site)

    def _why_done(self) -> str:
        """Why there is nothing more to wait for, or "". What only a later reap could ask is not waited for."""
        if self._asked or (self._looking_up and not self._stopping):
            return ""
        if self._stopping:
            return self._stopping
        if self._gate.to_look_up:
            return ""
        ready_ms = self._groups.next_time()
        if ready_ms is not None and ready_ms <= self._end_ms:
            return ""
        return "what is left must wait longer than the reap" if self._groups.count().queued else "the plan is done"

    def _lost(self, reaper: Reaper) -> None:
        """What it was fetching stays leased, and so its servers stay busy, until the deadlines have passed; look-ups need not."""
        for token in reaper.outstanding & self._looking_up.keys():
            self._gate.to_look_up.append(self._looking_up.pop(token).site)

    def _killed(self, tokens: frozenset[int]) -> None:
        """Workers have died at these pages, whose exchanges were over. Each is asked for once more, to be parsed alone."""
        for token in tokens & self._asked.keys():
            asked, now = self._asked.pop(token), self._clock()
            LOG.warning("%s: a worker died at this page", self._items.text(asked.item).url)
            self._groups.release(token, end_of(now))
            if asked.item.alone:
                self._gate.fail(asked.number, Result.HARD, Reason.PARSER, asked.qkey, contacted=True)
                continue
            self.ledger.lost(asked.item, asked.qkey, now)
            self._items.done(asked.number)
            self._gate.again(replace(asked.item, attempts=1, alone=True))

    @property
    def _checkpoint_ms(self) -> int:
        return round(self._config.reap.checkpoint_s * 1000)

    def checkpoint(self) -> None:
        self.ledger.contributions.flush()
        self._harvest.checkpoint(self._clock())

    def end(self) -> None:
        self.ledger.contributions.flush()
        self._harvest.end(self._clock())

    async def _sleep(self) -> None:
        """Until an answer comes, a group becomes ready, or the clock wants a look."""
        ready = self._groups.next_time()
        wait = TICK_S
        if ready is not None and not self._stopping and self._fleet.free > 0:
            wait = min(TICK_S, max(0.001, (ready - self._clock()) / 1000))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait)
        self._wake.clear()

    # --- handing out --------------------------------------------------------------------------------------------------

    def _pump(self, now: int) -> None:
        while self._gate.to_look_up and self._fleet.free > 0 and not self._stopping:
            self._look_up(self._gate.to_look_up.popleft(), now)
        while not self._stopping and self._fleet.free > 0 and (lease := self._groups.next(now)) is not None:
            self._hand_out(lease, now)

    def _look_up(self, site: Site, now: int) -> None:
        self._last_look_up += 1
        self._looking_up[self._last_look_up] = LookUp(site, now + LOOK_UP_MS)
        self._fleet.freest().ask(self._last_look_up, wire.Resolve(self._last_look_up, site.site, site.name))

    def _hand_out(self, lease: Lease, now: int) -> None:
        item, site = self._items.get(lease.item), self._gate.site(lease.site)
        if not site.address:  # it is being looked up anew
            self._groups.release(lease.token, now, contacted=False)
            self._gate.again(item)
            return
        reaper = self._fleet.for_server(site.qkey)
        messages: list[wire.Message] = []
        if item.kind == Kind.PAGE and reaper.number not in site.told:
            messages.append(wire.Robots(site.site, site.rules_status, site.rules))
            site.told.add(reaper.number)
        reuse = self._manners.may_reuse(site.qkey)
        messages.append(request(item, self._items.text(item), site, lease.token, now, self._timeout_ms, reuse))
        self._asked[lease.token] = Asked(lease.item, item, site.qkey)
        reaper.ask(lease.token, *messages)

    def _expire(self, now: int) -> None:
        """Requests that were never answered: once more, then it is the reaper that was lost. The server may have seen them."""
        for lease in self._groups.expire(now):
            if lease.token in self._asked:
                self._fleet.forget(lease.token)
                self._no_answer(self._asked.pop(lease.token))
        for token in [token for token, look_up in self._looking_up.items() if look_up.deadline_ms <= now]:
            self._fleet.forget(token)
            self._gate.not_looked_up(self._looking_up.pop(token).site)

    def _no_answer(self, asked: Asked) -> None:
        if asked.item.attempts:
            self._gate.fail(asked.number, Result.SOFT, Reason.REAPER_LOST, asked.qkey, contacted=True)
            return
        self.ledger.lost(asked.item, asked.qkey, self._clock())
        self._items.done(asked.number)
        self._gate.again(replace(asked.item, attempts=1))

    # --- answers ------------------------------------------------------------------------------------------------------

    def _handle(self, reaper: Reaper, message: wire.Message) -> None:
        self._wake.set()
        if not isinstance(message, wire.Resolved | wire.Result) or not reaper.is_answer(message.token):
            LOG.warning("reaper %d sent a %s that it was not asked for", reaper.number, type(message).__name__)
        elif isinstance(message, wire.Resolved) and message.token in self._looking_up:
            reason = Reason(message.reason) if message.reason in (Reason.NONE, Reason.GUARD, Reason.LOOKUP) else Reason.NO_ADDRESS
            site = self._looking_up.pop(message.token).site
            self._gate.looked_up(site, message.address, message.qkey, reason, message.valid_s, reaper.number)
        elif isinstance(message, wire.Result) and message.token in self._asked:
            self._answered(reaper, message.token, message)

    def _answered(self, reaper: Reaper, token: int, message: wire.Result) -> None:
        asked = self._asked.pop(token)
        try:
            answer = checked(message, asked.item, asked.qkey)
        except Corruption as error:
            LOG.warning("reaper %d sent an answer that does not hold: %s", reaper.number, error)
            self._groups.release(token, end_of(self._clock()))
            self._no_answer(asked)
            return
        delay_ms = self._manners.heard(asked.qkey, answer.record)
        self._groups.release(token, end_of(self._clock()), contacted=answer.contacted, delay_ms=delay_ms)
        self._items.done(asked.number)
        if self._ask_again(reaper, asked.item, answer):
            return
        self._watch(1)
        if asked.item.kind == Kind.ROBOTS:
            self._robots_answered(reaper, asked.item, answer)
        else:
            self._page_answered(reaper, asked.item, answer)

    def _ask_again(self, reaper: Reaper, item: Item, answer: Answer) -> bool:
        """Once more in this reap, where nobody was asked yet, a kept connection had died, or the server said: come back soon."""
        if self._stopping or item.attempts:
            return False
        if answer.stale and not item.fresh:  # no attempt of the server's: only the connection was old
            self.ledger.hop(item, answer, reaper.number)
            self._gate.again(replace(item, fresh=True))
            return True
        site = self._gate.site(item.contact)
        wait_ms = 0
        if answer.reason == Reason.SERVER_ERROR and item.kind == Kind.PAGE:
            wait_ms = int(answer.record["retry_after_s"][0]) * 1000
            if not 0 < wait_ms <= SOON_MS:
                return False
        elif answer.contacted:
            return False
        elif answer.reason == Reason.ROBOTS_UNREACHABLE and site.stage == Stage.OPEN:
            site.told.discard(reaper.number)  # it has forgotten the rules
        elif answer.reason not in (Reason.NO_ADDRESS, Reason.DEADLINE):
            return False
        self.ledger.hop(item, answer, reaper.number)
        if answer.reason == Reason.NO_ADDRESS and site.address:
            site.address = ""
        self._gate.again(replace(item, attempts=1), self._clock() + wait_ms)
        if not site.address:
            self._gate.look_up_again(site)
        return True

    def _robots_answered(self, reaper: Reaper, item: Item, answer: Answer) -> None:
        site, status = self._gate.site(item.site), answer.rules_status
        if answer.result == Result.REDIRECT:
            target = self._site_of(answer.location) if item.hops < MAX_ROBOTS_HOPS else None
            if target is not None:
                self.ledger.hop(item, answer, reaper.number)
                first = item.first_hop or answer.bucket
                hop = replace(item, contact=target.site, url=answer.location, hops=item.hops + 1, digest=0, first_hop=first)
                target.hops.append(self._items.add(hop))
                self._gate.advance(target)
                return
            status = ABSENT
            answer.record["status"] = ABSENT
        if item.first_hop:
            answer = self._as_redirect(item, answer)
        self.ledger.settle(item, answer, reaper.number)
        if status and answer.result != Result.REDIRECT:
            site.told.add(reaper.number)
        site.crawl_delay_ms = int(answer.record["crawl_delay_ms"][0])
        self._gate.robots_known(site, answer.rules, status)

    def _as_redirect(self, item: Item, answer: Answer) -> Answer:
        """The row keeps the redirect, not what is behind it: that is asked for again in the next reap."""
        answer.record["digest"] = 0
        if answer.result != Result.STORED:
            return replace(answer, bucket=b"")
        if self._items.is_same_redirect(item):
            answer.record["result"], answer.record["reason"] = Result.UNCHANGED, Reason.UNCHANGED
            return replace(answer, bucket=b"")
        return replace(answer, bucket=item.first_hop)

    def _page_answered(self, reaper: Reaper, item: Item, answer: Answer) -> None:
        if answer.result == Result.REDIRECT and self._is_move(item, answer.location):
            self._move(reaper, item, answer)
            return
        self.ledger.settle(item, answer, reaper.number)
        site = self._gate.site(item.contact)
        site.failures = site.failures + 1 if answer.result == Result.CONNECTION else 0
        if site.failures >= SITE_FAILURES or answer.result == Result.SITE:  # what fails is not the page's
            dropped = self._gate.drop(site, answer.reason)
            LOG.info("%s: its connections fail; %d more pages are not asked for in this reap", site.name, dropped)

    def _is_move(self, item: Item, location: str) -> bool:
        """Whether a redirect leads to the URL's own equivalent. Root pages never move: every site has its own."""
        try:
            return item.path != self._root and self._prints.of(parse(location))[:2] == (item.norm, item.path)
        except BadUrl:
            return False

    def _move(self, reaper: Reaper, item: Item, answer: Answer) -> None:
        """A page that answers at its own equivalent is asked for there, in this reap; one that only moves on is an error."""
        target = self._site_of(answer.location)
        if item.hops >= MAX_MOVES or target is None or target.site == item.site:
            answer.record["result"], answer.record["reason"] = Result.HARD, Reason.MOVES
            self.ledger.settle(item, replace(answer, bucket=b"", links=None), reaper.number)
            return
        self.ledger.hop(item, answer, reaper.number)
        moved = replace(item, site=target.site, contact=target.site, url=answer.location, oid=0, hops=item.hops + 1)
        target.waiting.append(self._items.add(moved))
        self._gate.advance(target)

    def _site_of(self, location: str) -> Site | None:
        """The site of a redirect's target, entered into the book; None if it leads nowhere we could go."""
        try:
            url = parse(location)
        except BadUrl:
            return None
        norm, _path, site = self._prints.of(url)
        return self._book.enter(site, norm, url.site)
