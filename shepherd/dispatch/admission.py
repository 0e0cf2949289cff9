"""Admission of a site's pages to the groups: they pass when its address and its robots.txt are known.

`advance` takes a site as far as it can go: look up its address, ask for its robots.txt, then give its pages to the groups; or,
where that cannot be, say so for each of them. Whoever learns something about a site says so here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from shepherd.dispatch.group_calls import GroupCalls
from shepherd.dispatch.items import Item, Items, ItemState
from shepherd.dispatch.ledger import Ledger
from shepherd.dispatch.sites import NOBODY, Site, SiteBook, Stage
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.politeness.groups.engine import MAX_PRIORITY
from shepherd.politeness.server_limits import ServerLimits
from shepherd.urls import ROBOTS_PATH, Footprints, is_address_of

LOG = logging.getLogger("shepherd.dispatch")
FIRST: Final = MAX_PRIORITY  # of robots files; no page gets as much
LAST: Final = 0
MOST_LOOKUPS: Final = 2


class Admission:
    def __init__(
        self,
        book: SiteBook,
        items: Items,
        calls: GroupCalls,
        server_limits: ServerLimits,
        ledger: Ledger,
        prints: Footprints,
        clock_ms: Callable[[], int],
    ) -> None:
        self._book, self._items, self._calls, self._server_limits, self._ledger = book, items, calls, server_limits, ledger
        self._robots_path = prints.robots
        self._clock = clock_ms
        self.to_look_up: list[Site] = []

    def site(self, footprint: int) -> Site:
        """A site that is in the book: something was entered for it."""
        site = self._book.get(footprint)
        assert site is not None
        return site

    def take_wanted(self) -> list[Site]:
        """The sites whose address is wanted, since this was asked last."""
        sites, self.to_look_up = self.to_look_up, []
        return sites

    def advance(self, site: Site) -> None:
        if site.address:
            site.queue = self._server_limits.attach_site(site.site, site.qkey, site.group, site.delay_ms, site.crawl_delay_ms)
            self._queue(site, site.take_hops(), FIRST, FIRST)
        if site.stage == Stage.SHUT:
            self._give_up(site)
        elif site.address:
            self._open(site)
        elif site.stage == Stage.NEW:
            site.stage = Stage.RESOLVING
            self.to_look_up.append(site)

    def _open(self, site: Site) -> None:
        """Give its pages to the groups, or ask for its robots.txt first."""
        if site.stage == Stage.OPEN or (site.rules_known and self._book.has_rules(site)):
            site.stage = Stage.OPEN
            self._queue(site, self._waiting(site))
        elif site.stage != Stage.ASKING and (site.waiting or site.robots_item >= 0):
            site.stage, planned = Stage.ASKING, site.take_robots()
            numbers = planned or [self._items.add(self._robots_item(site)).number]
            self._queue(site, numbers, *_bounds_of_robots(site))

    def _waiting(self, site: Site) -> list[int]:
        return [number for number in self._book.take_waiting(site) if not self._items.skip_replaced(number)]

    def _queue(
        self, site: Site, numbers: list[int], least: int = 0, most: int = MAX_PRIORITY - 1, not_before_ms: int = 0
    ) -> None:
        """Give items to the groups, with a priority between these; robots files come before all pages, if anybody is there."""
        self._calls.queue(site, numbers, least, most, not_before_ms)

    def _robots_item(self, site: Site) -> Item:
        url = site.name + ROBOTS_PATH
        return Item(Kind.ROBOTS, site.norm, self._robots_path, site.site, site.site, site.site, url=url)

    # --- items ------------------------------------------------------------------------------------------------------

    def wait(self, item: Item, site: Site) -> None:
        """A page that is wanted at a site, when that opens."""
        self._put_back(item)
        site.park(item.number)
        self.advance(site)

    def follow_robots(self, item: Item, target: Site) -> None:
        """A robots.txt that redirects is asked for at the target, whatever the rules of that one."""
        self._put_back(item)
        target.await_address(item.number)
        self.advance(target)

    def queue_again(self, item: Item, not_before_ms: int = 0) -> None:
        """An item that was in flight is asked for once more, at the site where it is asked for, when that can be asked."""
        self._put_back(item)
        site = self.site(item.contact)
        if site.address:
            bounds = (LAST, MAX_PRIORITY - 1) if item.kind == Kind.PAGE else _bounds_of_robots(site)
            self._queue(site, [item.number], *bounds, not_before_ms)
            return
        if item.kind == Kind.PAGE:
            site.park(item.number)
        elif item.site == site.site:
            site.robots_item = item.number
        else:
            site.await_address(item.number)
        if site.stage == Stage.SHUT:
            self._give_up(site)

    def _put_back(self, item: Item) -> None:
        """An item waits, as it is known now."""
        self._items.update(item)
        if self._items.state(item.number) is not ItemState.WAITING:
            self._items.move(item.number, ItemState.WAITING)

    def look_up_again(self, site: Site) -> None:
        """Its address is not what it was. Lines of the filter may have its pages judged otherwise at the new one."""
        site.address, site.stage, site.reapers_with_rules = "", Stage.NEW, NOBODY
        self.advance(site)

    # --- what is learnt about a site --------------------------------------------------------------------------------

    def looked_up(self, site: Site, address: str, qkey: int, reason: Reason, valid_s: int, reaper: int) -> None:
        """Where it is, or that it is nowhere. A queue key that is not that of the address is as good as none."""
        if reason == Reason.NONE and is_address_of(address, qkey):
            self._book.located(site, qkey, address)
        else:
            reason = reason or Reason.NO_ADDRESS
            site.stage, site.reason = Stage.SHUT, reason
        self._ledger.located(site, valid_s, reason, reaper, self._clock())
        self.advance(site)

    def not_looked_up(self, site: Site) -> None:
        """Nobody answered: once more, then it has no address in this reap."""
        site.lookups += 1
        if site.lookups < MOST_LOOKUPS:
            self.to_look_up.append(site)
        else:
            self.looked_up(site, "", 0, Reason.NO_ADDRESS, 0, 0)

    def robots_known(self, site: Site, rules: bytes, status: int) -> None:
        """What its robots.txt says; status 0 = it cannot be reached, so nothing is gathered, unless the filter ignores that."""
        site.rules_known, site.rules, site.rules_status, site.robots_item = True, rules, status, -1
        site.has_answered |= bool(status)
        is_open = status or self._book.ignores_robots(site)
        site.stage = Stage.OPEN if is_open else Stage.SHUT
        site.reason = Reason.NONE if is_open else Reason.ROBOTS_UNREACHABLE
        self.advance(site)

    # --- what cannot be asked for -----------------------------------------------------------------------------------

    def _give_up(self, site: Site) -> None:
        """Nothing more can be asked of it in this reap. What is in flight is still to be answered."""
        result = Result.HARD if site.reason == Reason.GUARD else Result.SOFT
        robots = site.take_robots()  # that were planned, and could not even be asked for
        self._fail_pages(site, result, site.reason, self._waiting(site))
        if site.queue and not site.address:
            site.queue = 0
            self._calls.drop(site, partial(self._fail_pages, site, result, site.reason))
        for number in robots:
            self._fail(self._items.get(number), result, site.reason, site.qkey)
        for number in site.take_hops():
            self.fail(self._items.get(number), Result.SOFT, site.reason, site.qkey)

    def _fail_pages(self, site: Site, result: Result, reason: Reason, numbers: Iterable[int]) -> None:
        """Items that were to be asked for at a site that is shut, hops of others among them."""
        for number in numbers:
            item = self._items.get(number)
            if item.site == site.site:
                self._fail(item, result, reason, site.qkey)
            else:
                self.fail(item, Result.SOFT, reason, site.qkey)

    def fail(self, item: Item, result: Result, reason: Reason, qkey: int, contacted: bool = False) -> None:
        """An item that will not be fetched in this reap any more. Without its robots.txt a site is shut."""
        self._fail(item, result, reason, qkey, contacted)
        if item.kind == Kind.ROBOTS:
            self.robots_known(self.site(item.site), b"", 0)

    def _fail(self, item: Item, result: Result, reason: Reason, qkey: int, contacted: bool = False) -> None:
        self._ledger.fail(item, result, reason, qkey, self._clock(), contacted)

    def drop(self, site: Site, reason: Reason) -> None:
        """Give up the rest of a site for this reap."""
        self._calls.drop(site, partial(self._give_up_rest, site, reason))

    def _give_up_rest(self, site: Site, reason: Reason, numbers: list[int]) -> None:
        for number in numbers:
            self.fail(self._items.get(number), Result.SITE, reason, site.qkey)
        if numbers:
            LOG.info("%s: every page fails alike (%s); %d more are not fetched", site.name, reason.name, len(numbers))


def _bounds_of_robots(site: Site) -> tuple[int, int]:
    """Between which priorities a robots.txt is asked for: before all pages, or behind them where perhaps nobody is there."""
    return (LAST, LAST) if site.is_strange else (FIRST, FIRST)
