"""What a plan anticipates, against a walk over plain dictionaries: behind all that is due, and within what is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from shepherd.arrays.lookup import Lookup
from shepherd.cycle.plan import anticipation as anticipate
from shepherd.cycle.plan import pool as planpool
from shepherd.cycle.plan import rules as plan
from shepherd.formats.tables import INDEX, SITES, Deferred, Flag, RowType, Why
from tests.cycle.plan.naive_plan import World, classified, most_of_a_site, naive_plan, nowhere, server_of, waits
from tests.cycle.plan.test_properties import NOW_S, PLAN, Made, make, worlds
from tests.support.random_rows import columns, index_rows

EARLY = (30, 60)  # percent: with the second, what is nearly due is more than one and a half of the shorter cycles old


@st.composite
def early_worlds(draw: st.DrawFn) -> World:
    """Most pages are well and near the end of their cycle, and most sites may be asked: else hardly anything is anticipated."""
    world = replace(draw(worlds()), index=draw(index_rows(min_size=8)))
    for row in world.index:
        if draw(st.integers(0, 3)):
            row.update(type=RowType.GATHERED, retry=0, flags=row["flags"] & int(Flag.ROBOTS | Flag.EQUIV))
            times = min(row["frequency"] << (row["weight"] > PLAN.important_weight), 4)
            row["checked"] = NOW_S - draw(st.integers(350, 1_050)) // times
    for site in world.sites:
        if draw(st.integers(0, 3)):
            site.update(qkey_next=0, robots_since=0, refresh_boost=0, group=0)
    early = replace(PLAN, anticipate=draw(st.sampled_from(EARLY)))
    return replace(world, plan=early, most=draw(st.sampled_from([3, 5, 9, 1_000])))


def due_now(world: World) -> list[bool]:
    by_site = {site["site"]: site for site in world.sites}
    return [classified(row, by_site[row["site"]], world) is not None for row in world.index]


def naive(world: World) -> list[tuple[int, int]]:
    """(row, priority) of what is anticipated, best first."""
    due, told = naive_plan(world), due_now(world)
    by_site = {site["site"]: site for site in world.sites}
    contacts, room = dict(due.contacts), world.most - sum(due.contacts.values())
    asked = {site for row, _priority, why, site in due.chosen if why == Why.ROBOTS}
    shorter = replace(world, plan=replace(PLAN, refresh_s=PLAN.refresh_s * (100 - world.plan.anticipate) // 100))
    found = []
    for number, row in enumerate(world.index):
        site = by_site[row["site"]]
        early = classified(row, site, shorter)
        open_ = not waits(site, due.quota[server_of(site, world)], world)
        if early is not None and early[1] in (Why.DUE, Why.OVERDUE) and not told[number] and open_:
            found.append((-(early[0] & 0xFFFFFF), number, site))
    chosen = []
    pages = Counter(site for row, _priority, _why, site in due.chosen if row >= 0)
    for negated, number, site in sorted(found, key=lambda entry: entry[:2]):
        server = server_of(site, world)
        pages[site["site"]] += 1
        if pages[site["site"]] > most_of_a_site(site, world):
            continue
        stale = site["robots_checked"] == 0 or site["robots_next"] <= world.now_s or nowhere(site)
        for what in ["robots"] * (stale and site["site"] not in asked) + ["page"]:
            if contacts.get(server, 0) < due.quota[server] and room > 0:
                contacts[server] = contacts.get(server, 0) + 1
                room -= 1
                asked.add(site["site"])
                chosen += [(number, -negated)] if what == "page" else []
    return chosen


def more_of(world: World, made: Made, cut: int) -> planpool.PlannedRows:
    sites, told = columns(SITES, world.sites), np.array(due_now(world), np.uint8)
    contacts = planpool.contacts_of(made.chosen, made.servers)
    servers, room = anticipate.room_left(made.servers, made.chosen, contacts), world.most - int(contacts.sum())
    pool = planpool.Pool()
    for first in range(0, max(len(world.index), 1), cut):
        part = columns(INDEX, world.index[first : first + cut])
        how = plan.Favours.of(sites), Lookup(sites["site"])
        due = told[first : first + cut]
        early = anticipate.anticipated_rows(part, sites, *how, due, now_s=NOW_S, plan=world.plan, first_row=first)
        pool = planpool.add(pool, early, servers, room, limit=0)
    return planpool.choose(pool, servers, room)


@given(early_worlds(), st.integers(1, 9))
def test_anticipated_rows_are_those_of_a_walk(world: World, cut: int) -> None:
    made = make(world, cut)
    more = more_of(world, made, cut)
    assert list(zip(more.pages.row.tolist(), more.pages.priority.tolist(), strict=True)) == naive(world)


@given(early_worlds(), st.integers(1, 9))
def test_anticipated_rows_keep_the_quotas_and_come_behind_what_is_due(world: World, cut: int) -> None:
    made = make(world, cut)
    assume(Deferred.PLAN_FULL not in made.deferred.tolist())
    whole = anticipate.with_more(made.chosen, more_of(world, made, cut))
    contacts = planpool.contacts_of(whole, made.servers)
    assert (contacts <= made.servers.quota).all()
    assert contacts.sum() <= world.most
    assert whole.pages.row[: len(made.chosen.pages)].tolist() == made.chosen.pages.row.tolist()
    assert sorted(whole.pages.priority.tolist(), reverse=True) == whole.pages.priority.tolist()
    assert len(set(whole.robots_site_row.tolist())) == len(whole.robots_site_row)
    told = due_now(world)
    for row, priority in zip(whole.pages.row.tolist(), whole.pages.priority.tolist(), strict=True):
        assert (plan.WHY_OF_CLASS[priority >> 24] == Why.ANTICIPATED) == (not told[row])
