"""Carries out the fate of a request (read fate.py first): journals it, settles its item or queues it again, and teaches its site.

What more pages of a site would meet too, as connections that fail or a server that asks us to slow down again and again, drops
the rest of the site for this reap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from shepherd.dispatch import fate
from shepherd.dispatch.admission import Admission
from shepherd.dispatch.fate import FAILURES, FATES, Case, Lesson, Next, RecordForm, Redirect
from shepherd.dispatch.items import MAX_MOVES, MAX_ROBOTS_HOPS, Item, Items
from shepherd.dispatch.ledger import Ledger
from shepherd.dispatch.sites import Site, SiteBook, Stage
from shepherd.dispatch.verify import Answer, PendingRequest
from shepherd.errors import BadUrl
from shepherd.formats.tables import Kind, Reason, Result
from shepherd.politeness.delays import is_slow_down
from shepherd.robots import ABSENT
from shepherd.urls import Footprints, parse

SITE_FAILURES: Final = 3  # in a row, and the rest of the site is given up for this reap


class Outcomes:
    def __init__(
        self, book: SiteBook, items: Items, admission: Admission, ledger: Ledger, prints: Footprints, clock_ms: Callable[[], int]
    ) -> None:
        self._book, self._items, self._admission, self._ledger = book, items, admission, ledger
        self._prints, self._clock = prints, clock_ms
        self._root = prints.root

    # --- the case ---------------------------------------------------------------------------------------------------

    def case_of(self, item: Item, answer: Answer, is_ending: bool) -> Case:
        is_open = self._admission.site(item.contact).stage == Stage.OPEN
        return fate.case_of(item, answer, self._redirect_of(item, answer), site_is_open=is_open, is_ending=is_ending)

    def _redirect_of(self, item: Item, answer: Answer) -> Redirect:
        if answer.result != Result.REDIRECT:
            return Redirect.NOT_FOLLOWED
        try:
            norm, path, site = self._prints.of(parse(answer.location))
        except BadUrl:
            return Redirect.DEAD_END if item.kind == Kind.ROBOTS else Redirect.NOT_FOLLOWED
        if item.kind == Kind.ROBOTS:
            return Redirect.FOLLOWED if item.hops < MAX_ROBOTS_HOPS else Redirect.DEAD_END
        if item.path == self._root or (norm, path) != (item.norm, item.path):  # root pages never move: every site has its own
            return Redirect.NOT_FOLLOWED
        return Redirect.FOLLOWED if item.hops < MAX_MOVES and site != item.site else Redirect.DEAD_END

    # --- its fate ---------------------------------------------------------------------------------------------------

    def answered(self, item: Item, answer: Answer, case: Case) -> None:
        """Carry out the fate of a request with an answer that holds."""
        what, site = FATES[case], self._admission.site(item.contact)
        if what.journal is RecordForm.HOP:
            self._ledger.hop(item, answer, site.name)
        else:
            self._ledger.settle(item, self._final(item, answer, case), site.name)
        if what.site is Lesson.RULES_TO_SEND:
            site.reapers_with_rules -= {answer.record.reaper}
        elif what.site is Lesson.NEW_ADDRESS and site.address:  # first: its item waits for the new one
            self._admission.look_up_again(site)
        if what.item is Next.ELSEWHERE:
            self._send_on(item, answer)
        elif what.item is not Next.SETTLED:
            not_before_ms = self._clock() + answer.record.retry_after_s * 1000 if what.item is Next.AGAIN_LATER else 0
            self._admission.queue_again(_next_try(item, what.item), not_before_ms)
        self._teach(what.site, site, item, answer)

    def unanswered(self, request: PendingRequest, case: Case) -> None:
        """Carry out the fate of a request without an answer that holds; the server may have seen it."""
        item, what = request.item, FATES[case]
        if what.journal is RecordForm.HOP_WITH_CONTACT:
            self._ledger.record_loss(item, request.qkey, self._clock())
            self._admission.queue_again(_next_try(item, what.item))
        else:
            self._admission.fail(item, *FAILURES[case], request.qkey, contacted=True)

    def _final(self, item: Item, answer: Answer, case: Case) -> Answer:
        """The answer as it is recorded."""
        record = answer.record
        if case is Case.MOVES_ON:
            record = record._replace(result=Result.HARD, reason=Reason.MOVES)
            return replace(answer, record=record, bucket=b"", links=None)
        if case is Case.ROBOTS_LEADS_NOWHERE:
            answer = replace(answer, record=record._replace(status=ABSENT))
        return self._as_redirect(item, answer) if item.first_hop else answer

    def _as_redirect(self, item: Item, answer: Answer) -> Answer:
        """The row keeps the redirect, not what is behind it: that is fetched again in the next reap."""
        record = answer.record._replace(digest=0)
        if answer.result != Result.STORED:
            return replace(answer, record=record, bucket=b"")
        if self._items.is_same_redirect(item):
            record = record._replace(result=Result.UNCHANGED, reason=Reason.UNCHANGED)
            return replace(answer, record=record, bucket=b"")
        return replace(answer, record=record, bucket=item.first_hop)

    def _send_on(self, item: Item, answer: Answer) -> None:
        """To where it leads: a robots.txt stays the file of its own site, a page is from now on one of the other."""
        url = parse(answer.location)
        norm, _path, site = self._prints.of(url)
        target = self._book.enter(site, norm, url.site)
        item = item._replace(contact=site, url=answer.location, hops=item.hops + 1)
        if item.kind == Kind.ROBOTS:
            self._admission.follow_robots(item._replace(digest=0, first_hop=item.first_hop or answer.bucket), target)
        else:
            self._admission.wait(item._replace(site=site, oid=0), target)

    # --- what the site learns ---------------------------------------------------------------------------------------

    def _teach(self, lesson: Lesson, site: Site, item: Item, answer: Answer) -> None:
        if lesson in (Lesson.RULES, Lesson.NO_RULES):
            self._learn_rules(
                self._admission.site(item.site), answer, ABSENT if lesson is Lesson.NO_RULES else answer.rules_status
            )
        elif lesson is Lesson.HEALTH:
            self._judge_health(site, answer)

    def _learn_rules(self, site: Site, answer: Answer, status: int) -> None:
        if status and answer.result != Result.REDIRECT and not self._book.ignores_robots(site):
            site.reapers_with_rules |= {answer.record.reaper}
        site.crawl_delay_ms = answer.record.crawl_delay_ms
        self._admission.robots_known(site, answer.rules, status)

    def _judge_health(self, site: Site, answer: Answer) -> None:
        if answer.contacted:  # what nobody was asked for says nothing of the site
            site.failures = site.failures + 1 if is_slow_down(answer.result, answer.record.status) else 0
        if site.failures >= SITE_FAILURES or answer.result == Result.SITE:
            self._admission.drop(site, answer.reason)


def _next_try(item: Item, where: Next) -> Item:
    if where is Next.AGAIN_FRESH:
        return item._replace(fresh=True)
    return item._replace(attempts=1, alone=item.alone or where is Next.AGAIN_ALONE)
