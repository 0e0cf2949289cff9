"""What plan decides, case by case; test_properties.py has its laws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shepherd import config
from shepherd.cycle.plan import pool as planpool
from shepherd.cycle.plan import records as planrecords
from shepherd.cycle.plan import rules as plan
from shepherd.cycle.plan.pool import PlannedRows
from shepherd.formats.tables import (
    INDEX,
    NO_LIMIT,
    PLAN,
    SERVERS,
    SITES,
    Array,
    Deferred,
    Flag,
    RowType,
    Why,
    empty,
    qkey_unresolved,
)
from shepherd.politeness.quota import Servers, most_contacts, servers_of

NOW_S = 10_000_000
DAY_S = 86_400
CYCLE = config.Plan(reap_s=3_600, refresh_s=30 * DAY_S, retry_s=DAY_S)
ADDRESS = 4 << 56 | 1
QUARTER_S = CYCLE.reap_s // 4  # of a reap: the most that a footprint adds to an age


def make_sites(count: int = 1, **values: int) -> dict[str, Array]:
    sites = empty(SITES, count)
    sites["site"] = np.arange(9, 9 + count, dtype=np.uint64)
    defaults = {"qkey": ADDRESS, "delay_ms": NO_LIMIT, "robots_checked": NOW_S - 5, "robots_next": NOW_S + DAY_S}
    for name, value in (defaults | values).items():
        sites[name][:] = value
    return sites


def make_server(**values: int) -> dict[str, Array]:
    table = empty(SERVERS, 1)
    for name, value in ({"qkey": ADDRESS, "slots": 1, "delay_ms": 10_000} | values).items():
        table[name][0] = value
    return table


def make_index(count: int, **values: int) -> dict[str, Array]:
    index = empty(INDEX, count)
    index["path"] = np.arange(count, dtype=np.uint64)
    for name, value in ({"site": 9, "type": RowType.UNGATHERED, "frequency": 1} | values).items():
        index[name][:] = value
    return index


def servers(sites: dict[str, Array], table: dict[str, Array] | None = None, **more: Any) -> Servers:
    return servers_of(sites, table or empty(SERVERS), now_s=NOW_S, plan=CYCLE, politeness=config.Politeness(), **more)


def due(index: dict[str, Array], sites: dict[str, Array]) -> plan.Due:
    return plan.due_rows(index, sites, now_s=NOW_S, plan=CYCLE, first_row=0)


def choose(index: dict[str, Array], sites: dict[str, Array], found: Servers, most: int = 100) -> tuple[PlannedRows, list[int]]:
    """What is chosen, and the column `deferred`."""
    rows, first = len(index["norm"]), due(index, sites)
    chosen = planpool.choose(planpool.add(planpool.Pool(), first, found, most), found, most)
    verdict = planpool.verdicts(found, planpool.contacts_of(chosen, found))
    marks = planpool.Marks.of(first, first_row=0, rows=rows)
    column = planpool.deferred(marks, verdict, np.sort(chosen.pages.row), first_row=0, rows=rows)
    return chosen, column.tolist()


def whys(index: dict[str, Array], sites: dict[str, Array]) -> list[Why]:
    return [Why(why) for why in plan.WHY_OF_CLASS[due(index, sites).priority >> 24]]


# --- servers


@pytest.mark.parametrize(("asked_in", "reason"), [("delay_ms", Deferred.SERVER_QUOTA), ("crawl_delay_ms", Deferred.SITE_WAITS)])
def test_a_delay_of_a_day_is_one_page_a_day_and_not_a_dropped_host(asked_in: str, reason: Deferred) -> None:
    sites = make_sites(**{asked_in: DAY_S * 1000})
    chosen, deferred = choose(make_index(5), sites, servers(sites))
    assert len(chosen.pages) == 1
    assert deferred == [Deferred.NOT] + 4 * [reason]


@pytest.mark.parametrize("limit", [0, 1_000])
def test_a_site_with_a_long_crawl_delay_takes_no_time_of_its_neighbours(limit: int) -> None:
    """Its pages are the best of the server, and could not be asked for in this reap."""
    sites = make_sites(2)
    sites["crawl_delay_ms"][0] = 4_000_000_000
    index = make_index(800)
    index["site"][:400], index["weight"][:400], index["weight"][400:] = sites["site"][0], 60_000, 1_000
    index["site"][400:] = sites["site"][1]
    found, pool = servers(sites, make_server()), planpool.Pool()
    for part in np.array_split(np.arange(800), 4):
        rows = plan.due_rows({n: c[part] for n, c in index.items()}, sites, now_s=NOW_S, plan=CYCLE, first_row=int(part[0]))
        pool = planpool.add(pool, rows, found, 1_000, limit)
    of_site = np.bincount(planpool.choose(pool, found, 1_000).pages.site_row, minlength=2)
    assert of_site.tolist() == [1, found.quota[0] - 1] and found.quota[0] == 360


def test_a_paused_site_waits_and_its_neighbours_do_not() -> None:
    sites = make_sites(2)
    sites["pause_s"][0], sites["pause_end"][0] = 7_200, NOW_S + 3_600
    found = servers(sites, make_server())
    assert found.shut.tolist() == [Deferred.SITE_WAITS, Deferred.NOT] and found.quota[0] == 360
    sites["pause_end"][0] = NOW_S + 3_599
    assert servers(sites, make_server()).shut.tolist() == 2 * [Deferred.NOT]


def test_few_strange_ports_of_a_host_and_of_a_server_are_planned_and_others_the_next_time() -> None:
    sites = make_sites(8)
    sites["robots_next"][:] = np.arange(8)[::-1]  # who waits longest comes first
    strange = np.arange(1, 8), np.array([5, 5, 5, 6, 6, 7, 7], np.uint64)
    found = servers(sites, make_server(), strange=strange)
    assert np.flatnonzero(found.shut == Deferred.NOT).tolist() == [0, 6, 7]
    sites["qkey"][1:] = [qkey_unresolved(n) for n in range(7)]
    found = servers(sites, make_server(), strange=strange)
    assert np.flatnonzero(found.shut == Deferred.NOT).tolist() == [0, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("ahead_s", [2 * 3_600, 30 * DAY_S, 28_000 * DAY_S])
def test_moments_that_a_wrong_clock_has_stored_silence_nobody(ahead_s: int) -> None:
    late = NOW_S + ahead_s
    for values in ({"type": RowType.GATHERED}, {"type": RowType.GATHERED, "retry": 1}, {"type": RowType.ERROR, "retry": 1}):
        assert len(due(make_index(1, checked=late, **values), make_sites())) == 1, values
    sites = make_sites(robots_checked=late, robots_next=late + DAY_S, robots_since=late)
    assert servers(sites).shut.tolist() == [Deferred.NOT] and servers(sites).needs_robots.all()
    assert servers(make_sites(qkey=qkey_unresolved(9), qkey_next=late + DAY_S)).shut.tolist() == [Deferred.NOT]
    for delay_ms, quota in ((10_000, 359), (7_200_000, 1)):  # a wait longer than a reap has to begin in one
        assert servers(make_sites(), make_server(delay_ms=delay_ms, next_ms=(late + 7_200) * 1000)).quota[0] == quota
    paused = make_sites(pause_s=7_200, pause_end=late + 7_200)
    assert servers(paused, make_server()).shut.tolist() == [Deferred.NOT]
    assert servers(make_sites(delay_ms=7_200_000), unsure_ms=late * 1000).quota.tolist() == [1]


def test_a_pause_that_sites_of_two_owners_ask_for_holds_their_server() -> None:
    sites = make_sites(3)
    sites["pause_s"][:], sites["pause_end"][:] = 1_900, (NOW_S + 1_800, NOW_S + 900, 0)  # one alone holds it for a minute
    for owners, quota in (([1, 1, 2], 360), ([1, 2, 2], 270)):
        of_rows = np.array(owners, np.uint64)
        assert servers(sites, make_server(), owners=of_rows.take).quota[0] == quota


@pytest.mark.parametrize(("wait_s", "planned"), [(0, 1), (3_599, 1), (3_600, 0), (DAY_S, 0)])
def test_a_page_a_day_is_planned_in_the_reap_in_which_its_server_is_ready(wait_s: int, planned: int) -> None:
    sites, table = make_sites(), make_server(delay_ms=DAY_S * 1000, next_ms=(NOW_S + wait_s) * 1000)
    chosen, _ = choose(make_index(5), sites, servers(sites, table))
    assert len(chosen.pages) == planned


def test_a_server_that_waits_beyond_the_reap_gets_nothing() -> None:
    sites, table = make_sites(), make_server(delay_ms=3_600_000, next_ms=(NOW_S + 3_600) * 1000)
    chosen, deferred = choose(make_index(5), sites, servers(sites, table))
    assert len(chosen.pages) == len(chosen.robots_site_row) == 0
    assert deferred == 5 * [Deferred.SERVER_WAITS]


def test_a_server_that_waits_half_of_the_reap_gets_half_as_much() -> None:
    sites = make_sites()
    for wait_s, quota in ((0, 2), (1_800, 1)):
        assert servers(sites, make_server(delay_ms=1_800_000, next_ms=(NOW_S + wait_s) * 1000)).quota[0] == quota


def test_after_a_reap_that_was_cut_off_every_server_waits_its_delay_first() -> None:
    day = make_sites(delay_ms=DAY_S * 1000)
    for unsure_s, quota in ((NOW_S - DAY_S, 1), (NOW_S - 10, 0), (NOW_S + 10, 0)):
        assert servers(day, unsure_ms=unsure_s * 1000).quota.tolist() == [quota]


def test_download_time_slots_and_back_off_make_the_quota() -> None:
    sites = make_sites(8)
    quotas = [
        servers(sites, make_server(**values)).quota[0]
        for values in ({"avg_ms": 2_000}, {"slots": 4}, {"backoff": 2}, {"slots": 1_000}, {"delay_ms": 0, "avg_ms": 0})
    ]
    assert quotas == [300, 4 * 360, 90, 8 * 360, 3_600_000]


def test_hosts_that_share_a_group_are_one_server() -> None:
    sites = make_sites(4, group=77)
    sites["qkey"] = np.array([ADDRESS, ADDRESS + 1, qkey_unresolved(11), ADDRESS + 9], np.uint64)
    sites["group"][3] = 0
    found = servers(sites, make_server(delay_ms=60_000))
    assert len(set(found.of_site[:3].tolist())) == 1
    assert found.quota[found.of_site].tolist() == [60, 60, 60, 360]
    assert found.name(int(found.of_site[0])) == "group 000000000000004d"


def test_group_of_addresses_includes_the_sites_on_them() -> None:
    sites = make_sites(2)
    sites["qkey"][1] = ADDRESS + 1
    table = {name: np.repeat(column, 2) for name, column in make_server(group=5).items()}
    table["qkey"][1], table["delay_ms"][1] = ADDRESS + 1, 20_000
    found = servers(sites, table)
    assert found.of_site[0] == found.of_site[1] >= 2
    assert found.quota[found.of_site].tolist() == [180, 180]


def test_a_site_without_address_is_its_own_server() -> None:
    sites = make_sites(2, qkey_checked=5)
    sites["qkey"][:] = qkey_unresolved(9)  # 24 bits, which strangers may share
    found = servers(sites)
    assert found.of_site[0] != found.of_site[1]
    assert [found.name(int(number)) for number in found.of_site] == ["site 0000000000000009", "site 000000000000000a"]


# --- robots files


def test_pages_of_a_site_without_robots_file_stand_behind_it() -> None:
    sites = make_sites(robots_checked=0)
    chosen, _ = choose(make_index(5), sites, servers(sites))
    assert len(chosen.pages) == 5
    assert (chosen.robots_priority > chosen.pages.priority.max()).all() and len(chosen.robots_priority) == 1


def test_robots_file_of_a_site_without_queue_key_is_planned_too() -> None:
    sites = make_sites(qkey=qkey_unresolved(9))
    chosen, _ = choose(make_index(5), sites, servers(sites))
    assert (len(chosen.robots_site_row), len(chosen.pages)) == (1, 5)


def test_the_last_contact_of_a_quota_goes_to_the_robots_file() -> None:
    sites = make_sites(robots_checked=0, delay_ms=DAY_S * 1000)
    chosen, deferred = choose(make_index(5), sites, servers(sites))
    assert (len(chosen.robots_site_row), len(chosen.pages)) == (1, 0)
    assert deferred == 5 * [Deferred.SERVER_QUOTA]


def test_the_last_place_of_a_plan_goes_to_the_robots_file() -> None:
    sites = make_sites(robots_checked=0)
    chosen, deferred = choose(make_index(2), sites, servers(sites), most=1)
    assert (len(chosen.robots_site_row), len(chosen.pages)) == (1, 0)
    assert deferred == 2 * [Deferred.PLAN_FULL]


# --- what is due


def test_retries_wait_twice_as_long_each_time_and_then_end() -> None:
    sites = make_sites()
    for retry, wait in ((1, DAY_S), (2, 2 * DAY_S), (3, 4 * DAY_S)):
        row = {"type": RowType.ERROR, "retry": retry}
        assert len(due(make_index(1, checked=NOW_S - wait, **row), sites)) == 1
        assert len(due(make_index(1, checked=NOW_S - wait + 1, **row), sites)) == 0
    assert len(due(make_index(1, type=RowType.ERROR, retry=4, checked=1), sites)) == 0


def test_a_row_checked_in_the_future_is_young_and_not_very_old() -> None:
    assert len(due(make_index(1, type=RowType.GATHERED, checked=NOW_S + 5), make_sites())) == 0


@pytest.mark.parametrize(
    ("row", "boost", "times"),
    [
        ({}, 0, 1),
        ({"frequency": 0}, 1, 1),
        ({"frequency": 2}, 0, 2),
        ({"frequency": 4}, 0, 4),
        ({"weight": 50_001}, 0, 2),
        ({"weight": 50_000}, 0, 1),
        ({"weight": 50_001, "frequency": 2}, 0, 4),
        ({"weight": 50_001, "frequency": 4}, 0, 4),
        ({}, 3, 3),
        ({"weight": 60_000, "frequency": 4}, 10, 40),
    ],
)
def test_important_and_changing_pages_are_due_more_often(row: dict[str, int], boost: int, times: int) -> None:
    sites, cycle_s = make_sites(refresh_boost=boost), 30 * DAY_S // times
    row = {"type": RowType.GATHERED} | row
    assert len(due(make_index(1, checked=NOW_S - cycle_s, **row), sites)) == 1
    assert len(due(make_index(1, checked=NOW_S - cycle_s + QUARTER_S + 1, **row), sites)) == 0


def test_pages_gathered_together_do_not_come_due_together() -> None:
    index = make_index(1_000, type=RowType.GATHERED, checked=NOW_S - 30 * DAY_S + QUARTER_S // 2)
    assert 400 < len(due(index, make_sites())) < 600
    older = index | {"checked": index["checked"] - np.uint32(QUARTER_S // 2)}
    assert len(due(older, make_sites())) == 1_000


def test_classes_come_in_their_order_whatever_the_weight() -> None:
    sites, day = make_sites(), NOW_S - 31 * DAY_S
    rows: list[dict[str, int]] = [
        {"type": RowType.GATHERED, "flags": Flag.REFRESH, "checked": NOW_S - 1},
        {"type": RowType.GATHERED, "checked": NOW_S - 45 * DAY_S},
        {"type": RowType.GATHERED, "checked": NOW_S - 16 * DAY_S, "frequency": 2},
        {"flags": Flag.INITIAL},
        {},
        {"type": RowType.GATHERED, "checked": day},
        {"type": RowType.ERROR, "retry": 1, "checked": day},
    ]
    priorities = [int(due(make_index(1, **{"weight": 100 * n} | row), sites).priority[0]) for n, row in enumerate(rows)]
    assert priorities == sorted(priorities, reverse=True)
    assert [whys(make_index(1, **row), sites)[0] for row in rows] == [
        *(Why.FORCED, Why.OVERDUE, Why.DUE, Why.NEW, Why.NEW, Why.DUE, Why.RETRY),
    ]


@pytest.mark.parametrize(("bonus", "weight"), [(0, 40_000), (500, 40_500), (-500, 39_500), (32_767, 65_535), (-32_768, 7_232)])
def test_the_queue_bonus_of_a_site_moves_its_pages(bonus: int, weight: int) -> None:
    priority = int(due(make_index(1, weight=40_000), make_sites(queue_bonus=bonus)).priority[0])
    assert priority >> 8 & 0xFFFF == weight


def test_rows_of_an_unknown_site_and_empty_tables_are_not_due() -> None:
    assert len(due(make_index(3), empty(SITES))) == 0
    found = servers(empty(SITES))
    assert len(planpool.choose(planpool.Pool(), found, 10).pages) == 0


# --- the choice


def test_a_server_with_most_of_the_best_rows_does_not_fill_the_pool() -> None:
    """Its rows are all better than the rest, and come to a hundred times its quota: memory holds what may be planned."""
    sites = make_sites(2, delay_ms=600_000)
    sites["qkey"][1] = ADDRESS + 1
    found, pool, most = servers(sites), planpool.Pool(), 10
    for first in range(0, 600, 20):
        index = make_index(20, weight=60_000)
        index["site"][-1], index["weight"][-1] = 10, first
        rows = plan.due_rows(index, sites, now_s=NOW_S, plan=CYCLE, first_row=first)
        pool = planpool.add(pool, rows, found, most, limit=25)
        assert len(pool) <= 25
    chosen = planpool.choose(pool, found, most)
    assert chosen.pages.row.tolist() == [0, 1, 2, 3, 4, 5, 599, 579, 559, 539]


def test_more_room_than_rows_plans_them_all_in_their_classes() -> None:
    index = make_index(6)
    index["flags"][2] = Flag.REFRESH
    index["type"][4], index["checked"][4] = RowType.GATHERED, 1
    chosen, deferred = choose(index, make_sites(), servers(make_sites()), most=1_000)
    assert chosen.pages.row.tolist() == [2, 4, 0, 1, 3, 5]
    assert deferred == 6 * [Deferred.NOT]


def test_ties_at_the_limit_go_to_the_first_footprints_and_not_one_too_many() -> None:
    sites = make_sites()
    for limit in (0, 1_000):
        pool, found = planpool.Pool(), servers(sites)
        for first in range(0, 50, 5):
            rows = plan.due_rows(make_index(5), sites, now_s=NOW_S, plan=CYCLE, first_row=first)
            pool = planpool.add(pool, rows, found, 7, limit)
        assert planpool.choose(pool, found, 7).pages.row.tolist() == list(range(7))


def test_what_earlier_reaps_managed_limits_the_plan() -> None:
    assert most_contacts(CYCLE, 0) == CYCLE.max_pages
    assert most_contacts(CYCLE, 100_000) == 2 * 360_000
    assert most_contacts(CYCLE, 10**9) == CYCLE.max_pages
    assert most_contacts(CYCLE, 1) == 1_000


# --- the report


def test_report_says_when_the_last_server_is_done() -> None:
    sites = make_sites(12, robots_checked=0)
    sites["qkey"] = ADDRESS + np.arange(12, dtype=np.uint64)
    table = make_server(delay_ms=20_000, avg_ms=1_500, next_ms=NOW_S * 1000 + 5_000)
    index = make_index(12)
    index["site"] = np.arange(9, 21, dtype=np.uint64)
    found = servers(sites, table)
    chosen, deferred = choose(index, sites, found)
    contacts = planpool.contacts_of(chosen, found)
    counts = np.bincount(deferred, minlength=max(Deferred) + 1)
    report = planrecords.report(np.zeros(0, PLAN), contacts, counts, found, CYCLE, 100)
    assert (report["servers"], report["expected_s"]) == (12, 28)  # 5 + 1.5 for robots.txt + 20 + 1.5 for the page
    latest = report["latest"]
    assert isinstance(latest, list)
    assert latest[0] == {"server": "0.0.0.1", "contacts": 2, "expected_s": 28} and len(latest) == 10
    assert latest[1] == {"server": "0.0.0.2", "contacts": 2, "expected_s": 10}
    assert report["utilisation_permille"] == (11 * 20_000 + 43_000) * 1000 // (12 * 3_600_000)
