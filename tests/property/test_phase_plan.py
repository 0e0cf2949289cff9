"""Plan against plain dictionaries, and its laws."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd import config
from shepherd.formats.tables import INDEX, NO_LIMIT, SERVERS, SITES, Flag, Kind, Reason, RowType, Why
from shepherd.phases import plan, planrecords
from shepherd.phases.quota import Servers, servers_of
from tests.property.phase_rows import ROBOTS_PATH, Row, columns, index_rows, same_columns, server_rows, site_rows

NOW_S = 100_000
PLAN = config.Plan(reap_s=60, refresh_s=1_000, retry_s=200, max_retries=4, max_pages=1_000)
POLITENESS = config.Politeness(delay_s=10.0)
MAX_PAGES = st.sampled_from([0, 1, 2, 3, 5, 1_000])


def naive_class(row: Row, site: Row) -> tuple[int, Why] | None:
    age, cycle = max(NOW_S - row["checked"], 0), PLAN.refresh_s // row["frequency"]
    if row["flags"] & Flag.ROBOTS or row["type"] in (RowType.SLEEPING, RowType.FORGOTTEN):
        return None
    if row["flags"] & Flag.REFRESH:
        return 7, Why.FORCED
    if row["type"] == RowType.UNGATHERED:
        return 3, Why.NEW
    if row["type"] == RowType.ERROR and row["reason"] in (Reason.ROBOTS_DENIED, Reason.ROBOTS_UNREACHABLE):
        return (1, Why.RETRY) if site["robots_checked"] > row["checked"] or age >= PLAN.refresh_s else None
    if row["type"] == RowType.ERROR or 0 < row["retry"] < PLAN.max_retries:
        wait = PLAN.retry_s * 2 ** max(row["retry"] - 1, 0)
        return (1, Why.RETRY) if age >= wait and row["retry"] < PLAN.max_retries else None
    if age >= 1.5 * cycle:
        return 5, Why.OVERDUE
    if age >= cycle:
        return (4, Why.DUE) if row["frequency"] > 1 else (2, Why.DUE)
    return None


def naive_priority(row: Row, class_: int) -> int:
    age, cycle = max(NOW_S - row["checked"], 0), PLAN.refresh_s // row["frequency"]
    return class_ << 24 | row["weight"] << 8 | (min(8 * age // cycle, 255) if row["checked"] else 0)


def naive_quota(sites: list[Row], servers: list[Row]) -> dict[int, int]:
    """By server: its address, or the site where there is none."""
    quota: dict[int, int] = {}
    for server, members in groups_of(sites).items():
        known = [row for row in servers if row["qkey"] == server]
        delays = [10_000 if row["delay_ms"] == NO_LIMIT else row["delay_ms"] for row in members]
        delay = max(max(delay, row["crawl_delay_ms"]) for delay, row in zip(delays, members, strict=True))
        average, slots, next_ms = max(row["avg_ms"] for row in members), 1, 0
        if known:
            delay, average = known[0]["delay_ms"] << known[0]["backoff"], known[0]["avg_ms"]
            slots, next_ms = known[0]["slots"], known[0]["next_ms"]
        quota[server] = max(1, PLAN.reap_s * 1000 * slots // max(delay + average, 1))
        if next_ms >= (NOW_S + PLAN.reap_s) * 1000:
            quota[server] = 0
    return quota


def server_of(site: Row) -> int:
    return site["site"] if site["qkey"] >> 56 == 0x7F else site["qkey"]


def groups_of(sites: list[Row]) -> dict[int, list[Row]]:
    members = defaultdict(list)
    for site in sites:
        members[server_of(site)].append(site)
    return members


def naive_plan(index: list[Row], sites: list[Row], servers: list[Row], max_pages: int) -> list[tuple[int, int, int]]:
    """(row or -1 for a robots file, priority, site), best first."""
    by_site = {site["site"]: site for site in sites}
    due = []
    for number, row in enumerate(index):
        site = by_site[row["site"]]
        found = naive_class(row, site)
        silent = site["robots_since"] and site["robots_next"] > NOW_S
        nowhere = site["qkey"] >> 56 == 0x7F and site["qkey_next"] > NOW_S
        if found and not silent and not nowhere:
            due.append((-naive_priority(row, found[0]), number, site))
    left, total = naive_quota(sites, servers), max_pages
    chosen, asked = [], set()
    for negated, number, site in sorted(due, key=lambda entry: entry[:2]):
        server = server_of(site)
        if not left[server] or not total:
            continue
        stale = site["robots_checked"] == 0 or site["robots_next"] <= NOW_S
        if stale and site["site"] not in asked:
            asked.add(site["site"])
            chosen.append((-1, 15 << 24 | (-negated >> 8 & 0xFFFF) << 8, site["site"]))
            left[server] -= 1
            total -= 1
        if left[server] and total:
            chosen.append((number, -negated, site["site"]))
            left[server] -= 1
            total -= 1
    return sorted(chosen, key=lambda entry: (-entry[1], entry[0], entry[2]))


def run(
    index: list[Row], sites: list[Row], servers: list[Row], max_pages: int, cut: int, fold: bool
) -> tuple[plan.Chosen, Servers]:
    site_columns = columns(SITES, sites)
    found = servers_of(site_columns, columns(SERVERS, servers), now_s=NOW_S, plan=PLAN, politeness=POLITENESS)
    pool = plan.join([])
    for first in range(0, max(len(index), 1), cut):
        part = columns(INDEX, index[first : first + cut])
        due, _ = plan.candidates(part, site_columns, now_s=NOW_S, plan=PLAN, first_row=first)
        pool = plan.join([pool, due])
        if fold:
            pool, _ = plan.keep_best(pool, found, max_pages)
    return plan.choose(pool, found, max_pages), found


@given(index_rows(), site_rows(), server_rows(), MAX_PAGES, st.integers(1, 30), st.booleans())
def test_plan_is_what_a_greedy_walk_takes(
    index: list[Row], sites: list[Row], servers: list[Row], max_pages: int, cut: int, fold: bool
) -> None:
    chosen, _ = run(index, sites, servers, max_pages, cut, fold)
    site_names = [row["site"] for row in sites]
    pages = zip(chosen.pages.row.tolist(), chosen.pages.priority.tolist(), chosen.pages.site_row.tolist(), strict=True)
    got = [(row, priority, site_names[site_row]) for row, priority, site_row in pages]
    robots = zip(chosen.robots_priority.tolist(), chosen.robots_site_row.tolist(), strict=True)
    got += [(-1, priority, site_names[site_row]) for priority, site_row in robots]
    expected = naive_plan(index, sites, servers, max_pages)
    assert sorted(got, key=lambda entry: (-entry[1], entry[0], entry[2])) == expected


@given(index_rows(), site_rows(), server_rows(), MAX_PAGES, st.integers(1, 30))
def test_no_server_exceeds_its_quota_and_the_plan_not_its_limit(
    index: list[Row], sites: list[Row], servers: list[Row], max_pages: int, cut: int
) -> None:
    chosen, found = run(index, sites, servers, max_pages, cut, fold=True)
    contacts = np.bincount(
        found.of_site[np.concatenate([chosen.pages.site_row, chosen.robots_site_row])], minlength=len(found.quota)
    )
    assert (contacts <= found.quota).all()
    assert contacts.sum() <= max_pages


@given(index_rows(), site_rows(), server_rows(), st.integers(1, 30))
def test_records_carry_what_the_dispatcher_needs(index: list[Row], sites: list[Row], servers: list[Row], cut: int) -> None:
    chosen, _ = run(index, sites, servers, 1_000, cut, fold=False)
    site_columns = columns(SITES, sites)
    parts = []
    for first in range(0, max(len(index), 1), cut):
        part = columns(INDEX, index[first : first + cut])
        parts.append(planrecords.page_records(part, site_columns, chosen, first_row=first))
        parts.append(planrecords.robots_records(part, site_columns, chosen, robots_path=ROBOTS_PATH, first_row=first))
    records = planrecords.best_first(parts)
    assert records["priority"].tolist() == sorted(records["priority"].tolist(), reverse=True)
    by_site = {row["site"]: row for row in sites}
    for record in records:
        row = index[record["row"]]
        for name in ("norm", "path", "site", "oid", "digest", "weight", "flags", "section"):
            assert record[name] == row[name]
        assert record["qkey"] == by_site[row["site"]]["qkey"]
        assert (record["kind"] == Kind.ROBOTS) == (row["path"] == ROBOTS_PATH) == (record["why"] == Why.ROBOTS)
    assert len(records[records["kind"] == Kind.PAGE]) == len(chosen.pages)


@given(index_rows(min_size=1), site_rows())
def test_every_due_row_is_planned_or_counted_as_deferred(index: list[Row], sites: list[Row]) -> None:
    site_columns, part = columns(SITES, sites), columns(INDEX, index)
    before = {name: column.copy() for name, column in part.items()}
    due, waiting = plan.candidates(part, site_columns, now_s=NOW_S, plan=PLAN, first_row=0)
    found = servers_of(site_columns, columns(SERVERS, []), now_s=NOW_S, plan=replace(PLAN, reap_s=1), politeness=POLITENESS)
    chosen = plan.choose(due, found, 3)
    by_site = {row["site"]: row for row in sites}
    total = sum(naive_class(row, by_site[row["site"]]) is not None for row in index)
    assert len(chosen.pages) + sum(chosen.deferred.values()) + sum(waiting.values()) == total
    assert same_columns(part, before)
