"""What the dispatcher does with outcomes that settle nothing, or not only their own page."""

from __future__ import annotations

import logging

import pytest

from shepherd.dispatch.admission import Admission
from shepherd.dispatch.items import Item, ItemState
from shepherd.dispatch.outcome import Outcomes
from shepherd.dispatch.sites import Site, SiteBook
from shepherd.dispatch.verify import Answer
from shepherd.formats.journal import Entry
from shepherd.formats.tables import JournalFlag, Kind, Reason, Result
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from shepherd.urls import Footprints, qkey_of_address
from tests.dispatch.test_admission import NOW_MS, admission_of, flush
from tests.support.groups import OneByOne

REAPER = 7


def opened(state: State, harvest: Harvest) -> tuple[Outcomes, Admission, SiteBook, OneByOne]:
    """Outcomes behind an admission at which every site of the plan is open."""
    groups = OneByOne(MemoryGroups(lease_ms=1000, delay_ms=1000))
    admission, book = admission_of(state, harvest, state.plan(), groups)
    for site in list(book.all()):
        admission.looked_up(site, "127.0.0.7", qkey_of_address("127.0.0.7"), Reason.NONE, 60, 0)
        admission.robots_known(site, b"", 404)
    flush(admission)
    outcomes = Outcomes(book, admission._items, admission, admission._ledger, Footprints(state.control.key), lambda: NOW_MS)
    return outcomes, admission, book, groups


def page(site: Site, **changes: int) -> Item:
    return Item(Kind.PAGE, site.norm, 5, site.site, site.site, site.site, f"{site.name}/x", **changes)  # type: ignore[arg-type]


def settles(outcomes: Outcomes, item: Item, one: Answer) -> bool:
    """Whether this answer settles an item that is in flight."""
    items = outcomes._items
    item = items.add(item)
    items.move(item.number, ItemState.QUEUED)
    items.move(item.number, ItemState.IN_FLIGHT)
    outcomes.answered(item, one, outcomes.case_of(item, one, is_ending=False))
    return items.state(item.number) is ItemState.SETTLED


def answer(site: Site, result: Result, reason: Reason, flags: int = 0, status: int = 0) -> Answer:
    entry = Entry(site.norm, 5, site.site, site.site, site.qkey, kind=Kind.PAGE, reaper=REAPER, flags=flags, status=status)
    return Answer(entry._replace(result=result, reason=reason), b"", None, "", b"", 0)


@pytest.mark.parametrize("attempts", [0, 1])
def test_reaper_that_has_forgotten_the_rules_gets_them_again(state: State, harvest: Harvest, attempts: int) -> None:
    outcomes, _admission, book, _groups = opened(state, harvest)
    site = next(iter(book.all()))
    site.reapers_with_rules = frozenset({REAPER, REAPER + 1})
    settled = settles(outcomes, page(site, attempts=attempts), answer(site, Result.SOFT, Reason.ROBOTS_UNREACHABLE))
    assert site.reapers_with_rules == {REAPER + 1}
    assert settled == bool(attempts)


def test_dropped_pages_of_a_site_are_reported_only_if_there_are_any(
    state: State, harvest: Harvest, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes, admission, book, groups = opened(state, harvest)
    site = next(iter(book.all()))
    failed = answer(site, Result.SITE, Reason.CONNECTION, int(JournalFlag.CONTACTED))
    with caplog.at_level(logging.INFO, "shepherd.dispatch"):
        before = groups.count().queued
        assert settles(outcomes, page(site), failed)
        flush(admission)
        assert "are not fetched" in caplog.text and groups.count().queued < before
        caplog.clear()
        assert settles(outcomes, page(site), failed)
        flush(admission)
    assert "are not fetched" not in caplog.text


def test_robots_file_whose_address_is_gone_is_asked_for_once(state: State, harvest: Harvest) -> None:
    """The new address may be known before the groups give the item out again."""
    groups = OneByOne(MemoryGroups(lease_ms=100_000, delay_ms=1000))
    admission, book = admission_of(state, harvest, state.plan(), groups)
    outcomes = Outcomes(book, admission._items, admission, admission._ledger, Footprints(state.control.key), lambda: NOW_MS)
    site = next(one for one in book.all() if one.waiting and one.robots_item >= 0)
    admission.looked_up(site, "127.0.0.7", qkey_of_address("127.0.0.7"), Reason.NONE, 60, 0)
    flush(admission)
    lease = groups.next(NOW_MS)
    assert lease is not None
    robots = admission._items.get(lease.item)
    admission._items.move(lease.item, ItemState.IN_FLIGHT)
    groups.release(lease.token, NOW_MS, contacted=False)
    gone = answer(site, Result.SOFT, Reason.NO_ADDRESS)
    outcomes.answered(robots, gone, outcomes.case_of(robots, gone, is_ending=False))
    flush(admission)
    admission.looked_up(site, "127.0.0.8", qkey_of_address("127.0.0.8"), Reason.NONE, 60, 0)
    flush(admission)
    assert groups.count_group(site.queue).queued == groups.count().queued == 1
    lease = groups.next(NOW_MS)
    assert lease is not None and lease.item == robots.number
