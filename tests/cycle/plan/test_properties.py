"""Plan against plain dictionaries, and its laws."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shepherd import config
from shepherd.cycle.plan import pool as planpool
from shepherd.cycle.plan import records as planrecords
from shepherd.cycle.plan import rules as plan
from shepherd.formats.tables import INDEX, SERVERS, SITES, U8, Deferred, Kind, Records, Why
from shepherd.formats.vocabulary import word
from shepherd.politeness.quota import Servers, most_contacts, servers_of
from tests.cycle.plan.naive_plan import World, naive_plan, server_of
from tests.support.random_rows import ROBOTS_PATH, columns, index_rows, same_columns, server_rows, site_rows

NOW_S = 100_000
PLAN = config.Plan(reap_s=60, refresh_s=1_000, retry_s=200, max_retries=4, important_weight=3)
POLITENESS = config.Politeness(delay_s=10.0)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    sites, servers = draw(site_rows()), draw(server_rows())
    for site in sites:
        site["group"] = draw(st.sampled_from([0, 0, 0, 7, 2**64 - 1]))
        site["refresh_boost"] = draw(st.sampled_from([0, 0, 1, 2, 255]))
        site["queue_bonus"] = draw(st.sampled_from([0, 0, 2, -3, 32_767, -32_768]))
    for server in servers:
        server["group"] = draw(st.sampled_from([0, 0, 7, 8]))
    unsure_ms = draw(st.sampled_from([0, 0, NOW_S * 1000 - 5_000, NOW_S * 1000 + 10**6]))
    most = draw(st.sampled_from([0, 1, 2, 3, 5, 1_000]))
    return World(draw(index_rows()), sites, servers, NOW_S, PLAN, POLITENESS, unsure_ms, most)


@dataclass(frozen=True)
class Made:
    chosen: planpool.PlannedRows
    records: Records
    deferred: U8
    servers: Servers


def make(world: World, cut: int, limit: int = 0) -> Made:
    """The plan in partitions of `cut` rows, from a pool that is folded beyond `limit` rows."""
    sites = columns(SITES, world.sites)
    servers = servers_of(
        sites, columns(SERVERS, world.servers), now_s=NOW_S, plan=PLAN, politeness=POLITENESS, unsure_ms=world.unsure_ms
    )
    parts = [(first, columns(INDEX, world.index[first : first + cut])) for first in range(0, max(len(world.index), 1), cut)]
    favours = plan.Favours.of(sites)
    pool, marks = planpool.Pool(), []
    for first, part in parts:
        due = plan.due_rows(part, sites, now_s=NOW_S, plan=PLAN, first_row=first, favours=favours)
        marks.append(planpool.Marks.of(due, first_row=first, rows=len(part["norm"])))
        pool = planpool.add(pool, due, servers, world.most, limit)
        assert len(pool) <= max(2 * world.most, limit)
    chosen = planpool.choose(pool, servers, world.most)
    files = planrecords.robots_files(sites, chosen)
    robots = [planrecords.find_robots(part, files, robots_path=ROBOTS_PATH, first_row=first) for first, part in parts]
    places = planrecords.places(plan.join(robots), chosen.pages)
    made = []
    for first, part in parts:
        mine = planrecords.part_of(places, first, len(part["norm"]))
        made.append((mine.place, planrecords.records(part, sites, mine.due, first_row=first)))
    verdict = planpool.verdicts(servers, planpool.contacts_of(chosen, servers))
    rows = np.sort(chosen.pages.row)
    column = [
        planpool.deferred(mark, verdict, rows, first_row=first, rows=len(part["norm"]))
        for (first, part), mark in zip(parts, marks, strict=True)
    ]
    return Made(chosen, planrecords.put_together(len(places.due), made), np.concatenate(column), servers)


def entries(made: Made, world: World) -> list[tuple[int, int, Why, int]]:
    """As the model tells them."""
    names = [site["site"] for site in world.sites]
    pages, chosen = made.chosen.pages, made.chosen
    got = [
        (row, priority, Why(plan.WHY_OF_CLASS[priority >> 24]), names[site_row])
        for row, priority, site_row in zip(pages.row.tolist(), pages.priority.tolist(), pages.site_row.tolist(), strict=True)
    ]
    robots = zip(chosen.robots_priority.tolist(), chosen.robots_site_row.tolist(), strict=True)
    got += [(-1, priority, Why.ROBOTS, names[site_row]) for priority, site_row in robots]
    return sorted(got, key=lambda entry: (-entry[1], entry[0], entry[3]))


@given(worlds(), st.integers(1, 30), st.sampled_from([0, 3, 1_000]))
def test_plan_agrees_with_a_greedy_walk(world: World, cut: int, limit: int) -> None:
    made, naive = make(world, cut, limit), naive_plan(world)
    assert entries(made, world) == naive.chosen
    assert made.deferred.tolist() == naive.deferred


@given(worlds(), st.integers(1, 30))
def test_no_server_exceeds_its_quota_and_the_plan_not_its_limit(world: World, cut: int) -> None:
    made, naive = make(world, cut), naive_plan(world)
    names = [server_of(site, world) for site in world.sites]
    contacts = Counter(names[row] for row in [*made.chosen.pages.site_row, *made.chosen.robots_site_row])
    assert all(count <= naive.quota[server] for server, count in contacts.items())
    assert contacts.total() <= world.most
    quota = {names[row]: int(made.servers.quota[server]) for row, server in enumerate(made.servers.of_site)}
    assert quota == naive.quota


@given(worlds(), st.integers(1, 30))
def test_plan_prefers_the_better_rows_of_a_server(world: World, cut: int) -> None:
    made = make(world, cut)
    sites = columns(SITES, world.sites)
    due = plan.due_rows(columns(INDEX, world.index), sites, now_s=NOW_S, plan=PLAN, first_row=0)
    planned = set(made.chosen.pages.row.tolist())
    worst: dict[int, tuple[int, int]] = {}
    best_left: dict[int, tuple[int, int]] = {}
    for row, priority, site_row in zip(due.row.tolist(), due.priority.tolist(), due.site_row.tolist(), strict=True):
        rank, server = (-priority, row), int(made.servers.of_site[site_row])
        if row in planned:
            worst[server] = max(worst.get(server, rank), rank)
        elif not made.servers.shut[site_row]:
            best_left[server] = min(best_left.get(server, rank), rank)
    assert all(worst[server] < best_left[server] for server in worst.keys() & best_left.keys())


@given(worlds(), st.integers(1, 30))
def test_records_carry_what_the_dispatcher_needs(world: World, cut: int) -> None:
    made = make(replace(world, most=1_000), cut)
    records = made.records
    ranks = list(zip((-records["priority"].astype(np.int64)).tolist(), records["row"].tolist(), strict=True))
    assert ranks == sorted(ranks)
    by_site = {row["site"]: row for row in world.sites}
    for record in records:
        row = world.index[record["row"]]
        for name in ("norm", "path", "site", "oid", "digest", "weight", "flags", "section"):
            assert record[name] == row[name]
        assert record["qkey"] == by_site[row["site"]]["qkey"]
        assert (record["kind"] == Kind.ROBOTS) == (row["path"] == ROBOTS_PATH) == (record["why"] == Why.ROBOTS)
    assert len(records[records["kind"] == Kind.PAGE]) == len(made.chosen.pages)
    has_file = {row["site"] for row in world.index if row["path"] == ROBOTS_PATH}
    asked = {world.sites[row]["site"] for row in made.chosen.robots_site_row}
    assert set(records["site"][records["kind"] == Kind.ROBOTS].tolist()) == has_file & asked


@given(worlds(), st.integers(1, 30))
def test_neither_partitions_nor_folding_change_the_plan(world: World, cut: int) -> None:
    made, whole = make(world, cut), make(world, 1_000, limit=1_000)
    assert made.records.tobytes() == whole.records.tobytes()
    assert made.deferred.tobytes() == whole.deferred.tobytes()


@given(worlds())
def test_report_counts_what_was_planned_and_what_was_not(world: World) -> None:
    made, naive = make(world, 7), naive_plan(world)
    counts = np.bincount(made.deferred, minlength=max(Deferred) + 1)
    contacts = planpool.contacts_of(made.chosen, made.servers)
    report = planrecords.report(made.records, contacts, counts, made.servers, PLAN, world.most)
    expected = Counter(word(Deferred(reason)) for reason in naive.deferred if reason)
    assert report["deferred"] == expected
    assert report["planned_by"] == Counter(word(Why(record["why"])) for record in made.records)
    assert report["servers"] == sum(count > 0 for count in naive.contacts.values())
    latest = report["latest"]
    assert isinstance(latest, list)
    assert Counter(entry["contacts"] for entry in latest) == Counter(count for count in naive.contacts.values() if count)
    assert report["expected_s"] == max((entry["expected_s"] for entry in latest), default=0)


@given(worlds())
def test_plan_does_not_change_its_arguments(world: World) -> None:
    index, sites, servers = columns(INDEX, world.index), columns(SITES, world.sites), columns(SERVERS, world.servers)
    before = [{name: column.copy() for name, column in table.items()} for table in (index, sites, servers)]
    for table in (index, sites, servers):
        for column in table.values():
            column.flags.writeable = False
    plan.due_rows(index, sites, now_s=NOW_S, plan=PLAN, first_row=0)
    servers_of(sites, servers, now_s=NOW_S, plan=PLAN, politeness=POLITENESS)
    assert all(same_columns(*pair) for pair in zip((index, sites, servers), before, strict=True))


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(0, 1_000), st.integers(0, 10**7))
def test_the_room_of_a_plan_is_never_more_than_its_limit(speed: int, reap_s: int, optimism: int, max_pages: int) -> None:
    most = most_contacts(config.Plan(reap_s=reap_s, optimism=optimism, max_pages=max_pages), speed)
    assert most <= max_pages
    if speed * reap_s * optimism >= max_pages * 100_000 or not speed:
        assert most == max_pages
    else:
        assert most <= max(speed * reap_s * optimism / 100_000, 1_000) or not optimism
