"""The admission: whatever is planned is settled, also where nobody can be asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shepherd.config import Config, Politeness
from shepherd.cycle.cork import rules as cork
from shepherd.dispatch.admission import Admission
from shepherd.dispatch.contribute import Contributions
from shepherd.dispatch.group_calls import GroupCalls
from shepherd.dispatch.items import Item, Items, ItemState
from shepherd.dispatch.ledger import Ledger
from shepherd.dispatch.plan_source import PlanSource
from shepherd.dispatch.sites import Site, SiteBook, Stage
from shepherd.dispatch.source import SourceDesk
from shepherd.filters import load_filter, parse_filter
from shepherd.formats.tables import JOURNAL, NO_OID, NO_ROW, JournalFlag, Kind, Reason, Records, Result
from shepherd.politeness import contacts
from shepherd.politeness.groups.memory import MemoryGroups
from shepherd.politeness.server_limits import ServerLimits
from shepherd.robots import ABSENT
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from shepherd.urls import Footprints, qkey_of_address
from tests.crash import cycle_steps
from tests.support.groups import OneByOne, at_once

NOW_MS = cycle_steps.NOW * 1000
SETTLED = ItemState.SETTLED


def admission_of(
    state: State, harvest: Harvest, plan: Records, groups: OneByOne | None = None, filter_text: str = ""
) -> tuple[Admission, SiteBook]:
    """An admission before which all sites of a plan stand."""
    filters = load_filter(Config(directory=cycle_steps.cf_of(state.path.parents[1])).filter_path)
    filters = parse_filter(filter_text) if filter_text else filters
    groups = groups or OneByOne(MemoryGroups(lease_ms=1000, delay_ms=1000))
    book = SiteBook(state, Politeness(), filters, cycle_steps.NOW)
    server_limits = ServerLimits(state.servers, (), 0, NOW_MS, Politeness(max_backoff=8), book)
    contributions, prints = Contributions(harvest.contribute, filters.version), Footprints(state.control.key)
    items = Items(state)
    ledger = Ledger(harvest, contributions, lambda _record, _name: None, lambda item, _record: items.move(item.number, SETTLED))
    calls = GroupCalls(groups.engine, items, server_limits, lambda: NOW_MS)
    admission = Admission(book, items, calls, server_limits, ledger, prints, lambda: NOW_MS)
    PlanSource(plan).open(SourceDesk(1, prints, lambda: None, np.zeros(0, JOURNAL), book, items))
    for site in book.all():
        admission.advance(site)
    return admission, book


def flush(admission: Admission) -> None:
    """Tell the groups, as the dispatcher does in every turn."""
    at_once(admission._calls.flush())


@pytest.mark.parametrize("kinds", [(Kind.ROBOTS,), (Kind.ROBOTS, Kind.PAGE)])
@pytest.mark.parametrize(("reason", "result"), [(Reason.GUARD, Result.HARD), (Reason.NO_ADDRESS, Result.SOFT)])
def test_planned_rows_of_a_site_without_an_address_are_settled(
    state: State, harvest: Harvest, reason: Reason, result: Result, kinds: tuple[Kind, ...]
) -> None:
    plan = state.plan()
    plan = plan[np.isin(plan["kind"], kinds)]
    admission, book = admission_of(state, harvest, plan)
    assert len(plan) > 1
    for site in book.all():
        admission.looked_up(site, "", 0, reason, 60, 0)
    flush(admission)
    harvest.checkpoint(NOW_MS)
    settled = harvest.journalled()
    settled = settled[settled["kind"] != Kind.QKEY]
    assert sorted(settled["plan_row"].tolist()) == list(range(len(plan)))
    assert {*settled["result"].tolist()} == {result}
    assert {*settled["reason"].tolist()} == {reason}


@pytest.mark.parametrize("address", ["junk", "192.0.2.7\n", "fe80::1%\n", "x" * 65_536, "192.0.2.8"])
def test_false_address_shuts_its_site(state: State, harvest: Harvest, address: str) -> None:
    """A reaper that was taken over answers so; the reap goes on without the site."""
    admission, book = admission_of(state, harvest, state.plan())
    for site in book.all():
        admission.looked_up(site, address, qkey_of_address("192.0.2.7"), Reason.NONE, 60, 0)
        assert (site.stage, site.reason, site.address) == (Stage.SHUT, Reason.NO_ADDRESS, "")


def test_robots_file_that_was_handed_out_is_not_settled_by_a_lookup(state: State, harvest: Harvest) -> None:
    plan, groups = state.plan(), OneByOne(MemoryGroups(lease_ms=1000, delay_ms=1000))
    admission, book = admission_of(state, harvest, plan[plan["kind"] == Kind.ROBOTS], groups)
    for number, site in enumerate(list(book.all())):
        address = f"127.0.0.{number + 1}"
        admission.looked_up(site, address, qkey_of_address(address), Reason.NONE, 60, 0)
        flush(admission)
        lease = groups.next(NOW_MS)
        assert lease is not None
        admission._items.move(lease.item, ItemState.IN_FLIGHT)
        admission.look_up_again(site)
        admission.looked_up(site, "", 0, Reason.GUARD, 60, 0)
    flush(admission)
    harvest.checkpoint(NOW_MS)
    assert {*harvest.journalled()["kind"].tolist()} == {Kind.QKEY}  # its answer is still to come


def test_pages_of_a_site_that_loses_its_address_are_settled(state: State, harvest: Harvest) -> None:
    """They were with the groups already when its name ceased to resolve: they are settled, not left behind."""
    plan, groups = state.plan(), OneByOne(MemoryGroups(lease_ms=1000, delay_ms=1000))
    admission, book = admission_of(state, harvest, plan, groups)
    for site in list(book.all()):
        admission.looked_up(site, "127.0.0.7", qkey_of_address("127.0.0.7"), Reason.NONE, 60, 0)
        admission.robots_known(site, b"", 404)
        flush(admission)
        admission.look_up_again(site)
        admission.looked_up(site, "", 0, Reason.NO_ADDRESS, 60, 0)
    flush(admission)
    harvest.checkpoint(NOW_MS)
    settled = harvest.journalled()
    pages = settled[settled["kind"] == Kind.PAGE]
    assert sorted(pages["plan_row"].tolist()) == np.flatnonzero(plan["kind"] == Kind.PAGE).tolist()
    assert {*pages["reason"].tolist()} == {Reason.NO_ADDRESS}
    assert groups.count().queued == 0


IGNORED_RANGE = "set robots ignore address 127.0.0.0/24\n"


class SitesWith:
    """A site table, but in some columns every row has the same."""

    def __init__(self, table: Any, values: dict[str, int]) -> None:
        self._table, self._values, self.rows = table, values, table.rows

    def __getitem__(self, name: str) -> Any:
        return np.full(self.rows, self._values[name], np.uint64) if name in self._values else self._table[name]


def locate(admission: Admission, site: Site, address: str) -> None:
    admission.looked_up(site, address, qkey_of_address(address), Reason.NONE, 60, 0)


def test_unreachable_robots_file_is_ignored_only_at_the_address_that_a_line_names(state: State, harvest: Harvest) -> None:
    """Elsewhere it is asked for again."""
    admission, book = admission_of(state, harvest, state.plan(), filter_text=IGNORED_RANGE)
    site = next(one for one in book.all() if one.waiting)
    locate(admission, site, "127.0.0.7")
    admission.robots_known(site, b"", 0)
    flush(admission)
    assert (site.stage, book.rules(site)[0]) == (Stage.OPEN, ABSENT)
    site.reapers_with_rules = frozenset({1})
    admission.look_up_again(site)
    site.park(admission._items.add(Item(Kind.PAGE, site.norm, 5, site.site, site.site, site.site, f"{site.name}/x")).number)
    locate(admission, site, "127.0.9.7")
    assert (site.stage, book.rules(site)[0]) == (Stage.ASKING, 0)
    assert not site.reapers_with_rules, "they have others than those that hold here"
    admission.robots_known(site, b"", 0)
    assert (site.stage, site.reason) == (Stage.SHUT, Reason.ROBOTS_UNREACHABLE)


def test_stored_unreachable_robots_file_is_ignored_only_at_the_address_that_a_line_names(
    state: State, harvest: Harvest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state has an address that the line names, but it has to be looked up again."""
    stored = {"qkey": qkey_of_address("127.0.0.7"), "qkey_next": 0, "robots_since": 1, "robots_next": cycle_steps.NOW + 1000}
    monkeypatch.setattr(state, "sites", SitesWith(state.sites, stored))
    plan = state.plan()
    admission, book = admission_of(state, harvest, plan[plan["kind"] == Kind.PAGE], filter_text=IGNORED_RANGE)
    one, other = [site for site in book.all() if site.waiting][:2]
    locate(admission, one, "127.0.0.7")
    assert one.stage is Stage.OPEN
    locate(admission, other, "127.0.9.7")
    assert other.stage is Stage.ASKING


def test_site_without_an_address_counts_as_one_whose_robots_file_is_unreachable(state: State) -> None:
    rows = state.sites.rows
    journal = np.zeros(2 * rows, JOURNAL)
    journal["site"] = np.repeat(state.sites["site"][0:rows], 2)
    journal["kind"] = np.tile([Kind.QKEY, Kind.ROBOTS], rows)
    journal["result"] = np.tile([Result.UNRESOLVED, Result.HARD], rows)
    journal["reason"], journal["oid"] = Reason.GUARD, NO_OID
    journal["start_ms"] = journal["end_ms"] = NOW_MS
    columns = contacts.apply_sites(state.sites.slice(0, rows), journal, cork.newest(journal), Politeness())
    assert columns["robots_since"].tolist() == [0] * rows
    assert (columns["qkey_next"] > cycle_steps.NOW).all()


def test_rows_that_an_interrupted_run_has_settled_are_counted_once(state: State) -> None:
    plan, filters = state.plan(), load_filter(Config(directory=cycle_steps.cf_of(state.path.parents[1])).filter_path)
    journalled = np.zeros(4, JOURNAL)
    journalled["plan_row"] = [0, 0, 1, NO_ROW]
    journalled["flags"][2] = JournalFlag.HOP
    book = SiteBook(state, Politeness(), filters, cycle_steps.NOW)
    resumed: list[int] = []
    source = PlanSource(plan, on_resumed=resumed.append)
    source.open(SourceDesk(1, state.prints, lambda: None, journalled, book, Items(state)))
    assert resumed == [1]
    assert sum(site.waiting + (site.robots_item >= 0) for site in book.all()) == len(plan) - 1
