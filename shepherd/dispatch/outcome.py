"""What becomes of an answer that holds: it settles its item, or the item is asked for again, here or where it leads.

Soft errors are left for a later reap, unless the server says: come back soon. Hard errors are recorded. What more pages of the
site would meet too, as connections that fail or a server that asks us to slow down again and again, drops the rest of the site
for this reap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from shepherd.dispatch.admission import Admission
from shepherd.dispatch.items import MAX_MOVES, MAX_ROBOTS_HOPS, Item, Items
from shepherd.dispatch.ledger import Ledger
from shepherd.dispatch.sites import Site, SiteBook, Stage
from shepherd.dispatch.verify import Answer
from shepherd.errors import BadUrl
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.politeness.delays import is_slow_down
from shepherd.robots import ABSENT
from shepherd.urls import Footprints, parse

LOG = logging.getLogger("shepherd.dispatch")
SITE_FAILURES: Final = 3  # in a row, and the rest of the site is given up for this reap
NOBODY_ASKED: Final = (Reason.NO_ADDRESS, Reason.DEADLINE)
SOON_MS: Final = 60_000  # a Retry-After within this is waited for in the same reap


class Answers:
    def __init__(
        self, book: SiteBook, items: Items, admission: Admission, ledger: Ledger, prints: Footprints, clock_ms: Callable[[], int]
    ) -> None:
        self._book, self._items, self._admission, self._ledger = book, items, admission, ledger
        self._prints, self._clock = prints, clock_ms
        self._root = prints.half("/")

    def take(self, item: Item, answer: Answer, ending: bool) -> bool:
        """Settle an item, or ask for it again; if so (False), it is still to come. When the reap is `ending` all is settled."""
        if not ending and self._ask_again(item, answer):
            return False
        if item.kind == Kind.ROBOTS:
            return self._robots(item, answer)
        return self._page(item, answer)

    def _name(self, item: Item) -> str:
        return self._admission.site(item.contact).name

    def _ask_again(self, item: Item, answer: Answer) -> bool:
        """Once more in this reap, where nobody was asked yet, a kept connection had died, or the server said: come back soon."""
        if answer.stale and not item.fresh:  # no attempt of the server's: only the connection was old
            self._ledger.hop(item, answer, self._name(item))
            self._admission.again(item._replace(fresh=True))
            return True
        site = self._admission.site(item.contact)
        forgotten = answer.reason == Reason.ROBOTS_UNREACHABLE and not answer.contacted
        if forgotten:
            site.told -= {answer.record.reaper}  # it must be told the rules before its next request, whatever this one comes to
        if item.attempts:
            return False
        wait_ms = 0
        if answer.reason == Reason.SERVER_ERROR and item.kind == Kind.PAGE:
            wait_ms = answer.record.retry_after_s * 1000
            if not 0 < wait_ms <= SOON_MS:
                return False
        elif answer.contacted or not (site.stage == Stage.OPEN if forgotten else answer.reason in NOBODY_ASKED):
            return False
        self._ledger.hop(item, answer, site.name)
        if answer.reason == Reason.NO_ADDRESS and site.address:
            site.address = ""
        self._admission.again(item._replace(attempts=1), self._clock() + wait_ms)
        if not site.address:
            self._admission.look_up_again(site)
        return True

    # --- robots files -------------------------------------------------------------------------------------------------

    def _robots(self, item: Item, answer: Answer) -> bool:
        site, status = self._admission.site(item.site), answer.rules_status
        if answer.result == Result.REDIRECT:
            target = self.site_of(answer.location) if item.hops < MAX_ROBOTS_HOPS else None
            if target is not None:
                self._ledger.hop(item, answer, self._name(item))
                first = item.first_hop or answer.bucket
                hop = item._replace(contact=target.site, url=answer.location, hops=item.hops + 1, digest=0, first_hop=first)
                self._admission.add_hop(hop, target)
                return False
            status = ABSENT
            answer = replace(answer, record=answer.record._replace(status=ABSENT))
        if item.first_hop:
            answer = self._as_redirect(item, answer)
        self._ledger.settle(item, answer, self._name(item))
        if status and answer.result != Result.REDIRECT:
            site.told |= {answer.record.reaper}
        site.crawl_delay_ms = answer.record.crawl_delay_ms
        self._admission.robots_known(site, answer.rules, status)
        return True

    def _as_redirect(self, item: Item, answer: Answer) -> Answer:
        """The row keeps the redirect, not what is behind it: that is asked for again in the next reap."""
        record = answer.record._replace(digest=0)
        if answer.result != Result.STORED:
            return replace(answer, record=record, bucket=b"")
        if self._items.is_same_redirect(item):
            record = record._replace(result=Result.UNCHANGED, reason=Reason.UNCHANGED)
            return replace(answer, record=record, bucket=b"")
        return replace(answer, record=record, bucket=item.first_hop)

    # --- pages --------------------------------------------------------------------------------------------------------

    def _page(self, item: Item, answer: Answer) -> bool:
        if answer.result == Result.REDIRECT and self._is_move(item, answer.location):
            return self._move(item, answer)
        site = self._admission.site(item.contact)
        self._ledger.settle(item, answer, site.name)
        if answer.contacted:  # what nobody was asked for says nothing of the site
            site.failures = site.failures + 1 if is_slow_down(answer.result, answer.record.status) else 0
        if site.failures >= SITE_FAILURES or answer.result == Result.SITE:
            dropped = self._admission.drop(site, answer.reason)
            if dropped:
                LOG.info("%s: every page fails alike (%s); %d more are not asked for", site.name, answer.reason.name, dropped)
        return True

    def _is_move(self, item: Item, location: str) -> bool:
        """Whether a redirect leads to the URL's own equivalent. Root pages never move: every site has its own."""
        try:
            return item.path != self._root and self._prints.of(parse(location))[:2] == (item.norm, item.path)
        except BadUrl:
            return False

    def _move(self, item: Item, answer: Answer) -> bool:
        """A page that answers at its own equivalent is asked for there, in this reap; one that only moves on is an error."""
        target = self.site_of(answer.location)
        if item.hops >= MAX_MOVES or target is None or target.site == item.site:
            record = answer.record._replace(result=Result.HARD, reason=Reason.MOVES)
            self._ledger.settle(item, replace(answer, record=record, bucket=b"", links=None), self._name(item))
            return True
        self._ledger.hop(item, answer, self._name(item))
        moved = item._replace(site=target.site, contact=target.site, url=answer.location, oid=0, hops=item.hops + 1)
        self._admission.add(moved, target)
        return False

    def site_of(self, location: str) -> Site | None:
        """The site of a URL, entered into the book; None if it leads nowhere we could go."""
        try:
            url = parse(location)
        except BadUrl:
            return None
        norm, _path, site = self._prints.of(url)
        return self._book.enter(site, norm, url.site)
