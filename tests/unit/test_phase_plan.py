from __future__ import annotations

import numpy as np

from shepherd import config
from shepherd.formats.tables import INDEX, NO_LIMIT, PLAN, SERVERS, SITES, Array, RowType, Why, empty
from shepherd.phases import plan
from shepherd.phases.planrecords import best_first
from shepherd.phases.quota import Servers, servers_of

NOW_S = 10_000_000
DAY_S = 86_400
CYCLE = config.Plan(reap_s=3_600, refresh_s=30 * DAY_S, retry_s=DAY_S)


def make_site(**values: int) -> dict[str, Array]:
    sites = empty(SITES, 1)
    defaults = {"site": 9, "qkey": 4 << 56 | 1, "delay_ms": NO_LIMIT, "robots_checked": NOW_S - 5, "robots_next": NOW_S + DAY_S}
    for name, value in (defaults | values).items():
        sites[name][0] = value
    return sites


def make_index(count: int, **values: int) -> dict[str, Array]:
    index = empty(INDEX, count)
    index["path"] = np.arange(count, dtype=np.uint64)
    for name, value in ({"site": 9, "type": RowType.UNGATHERED, "frequency": 1} | values).items():
        index[name][:] = value
    return index


def servers(sites: dict[str, Array], table: dict[str, Array] | None = None) -> Servers:
    return servers_of(sites, table or empty(SERVERS), now_s=NOW_S, plan=CYCLE, politeness=config.Politeness())


def due(index: dict[str, Array], sites: dict[str, Array]) -> plan.Due:
    return plan.candidates(index, sites, now_s=NOW_S, plan=CYCLE, first_row=0)[0]


def test_a_crawl_delay_of_a_day_is_one_page_a_day_and_not_a_dropped_host() -> None:
    sites = make_site(crawl_delay_ms=DAY_S * 1000)
    chosen = plan.choose(due(make_index(5), sites), servers(sites), 100)
    assert len(chosen.pages) == 1
    assert chosen.deferred["over the server's quota"] == 4


def test_a_server_that_waits_beyond_the_reap_gets_nothing() -> None:
    sites, table = make_site(), empty(SERVERS, 1)
    table["qkey"][0], table["slots"][0], table["next_ms"][0] = 4 << 56 | 1, 1, (NOW_S + 3_600) * 1000
    chosen = plan.choose(due(make_index(5), sites), servers(sites, table), 100)
    assert len(chosen.pages) == len(chosen.robots_site_row) == 0
    assert chosen.deferred["server waits beyond the reap"] == 5


def test_pages_of_a_site_without_robots_file_stand_behind_it() -> None:
    sites = make_site(robots_checked=0)
    chosen = plan.choose(due(make_index(5), sites), servers(sites), 100)
    assert len(chosen.pages) == 5
    assert (chosen.robots_priority > chosen.pages.priority.max()).all() and len(chosen.robots_priority) == 1


def test_the_last_contact_of_a_quota_goes_to_the_robots_file() -> None:
    sites = make_site(robots_checked=0, crawl_delay_ms=DAY_S * 1000)
    chosen = plan.choose(due(make_index(5), sites), servers(sites), 100)
    assert (len(chosen.robots_site_row), len(chosen.pages)) == (1, 0)


def test_retries_wait_twice_as_long_each_time_and_then_end() -> None:
    sites = make_site()
    for retry, wait in ((1, DAY_S), (2, 2 * DAY_S), (3, 4 * DAY_S)):
        row = {"type": RowType.ERROR, "retry": retry}
        assert len(due(make_index(1, checked=NOW_S - wait, **row), sites)) == 1
        assert len(due(make_index(1, checked=NOW_S - wait + 1, **row), sites)) == 0
    assert len(due(make_index(1, type=RowType.ERROR, retry=4, checked=1), sites)) == 0


def test_a_row_checked_in_the_future_is_young_and_not_very_old() -> None:
    assert len(due(make_index(1, type=RowType.GATHERED, checked=NOW_S + 5), make_site())) == 0


def test_the_class_outweighs_any_weight() -> None:
    sites = make_site()
    new = due(make_index(1, weight=0), sites)
    refresh = due(make_index(1, weight=65_535, type=RowType.GATHERED, checked=NOW_S - 31 * DAY_S), sites)
    assert new.priority[0] > refresh.priority[0]
    assert (new.why[0], refresh.why[0]) == (Why.NEW, Why.DUE)


def test_rows_of_an_unknown_site_and_empty_tables_are_no_candidates() -> None:
    assert len(due(make_index(3), empty(SITES))) == 0
    assert len(plan.choose(plan.join([]), servers(empty(SITES)), 10).pages) == 0
    assert best_first([]).dtype == PLAN
