"""What would fall due next, for a plan that has room left when everything that is due is in it.

A page is anticipated when its age would do if every cycle were `plan.anticipate` percent shorter. It stands in a class below all
that is due, so nothing that is due gives way to it; and servers have for it what the due rows have left of their time. Errors
wait as long as they must: a retry is never anticipated. Read cycle/plan/rules and cycle/plan/pool first.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from shepherd import config
from shepherd.arrays.lookup import Lookup
from shepherd.cycle.plan.pool import PlannedRows
from shepherd.cycle.plan.rules import CLASS_DUE, CLASS_FREQUENT, CLASS_OVERDUE, Due, Favours, due_rows, join
from shepherd.formats.tables import I64, U8, Columns
from shepherd.politeness.quota import Servers

# A page that is not due may well be one and a half times as old as a cycle that is much shorter.
OLD_ENOUGH = np.array([CLASS_DUE, CLASS_FREQUENT, CLASS_OVERDUE], np.uint32)
BELOW_CLASS = np.uint32((1 << 24) - 1)  # weight and age; class 0 is that of what is anticipated


def anticipated_rows(
    index: Columns,
    sites: Columns,
    favours: Favours,
    lookup: Lookup,
    due: U8,
    *,
    now_s: int,
    plan: config.Plan,
    first_row: int,
) -> Due:
    """Of one partition; `due` is 1 for the rows that are due now, planned or not."""
    shorter = dataclasses.replace(plan, refresh_s=plan.refresh_s * (100 - plan.anticipate) // 100)
    soon = due_rows(index, sites, favours, lookup, now_s=now_s, plan=shorter, first_row=first_row)
    class_ = soon.priority >> np.uint32(24)
    early = np.isin(class_, OLD_ENOUGH) & (due[soon.row - np.uint32(first_row)] == 0)
    soon = soon.take(np.flatnonzero(early))
    return Due(soon.row, soon.priority & BELOW_CLASS, soon.site_row)


def room_left(servers: Servers, planned: PlannedRows, contacts: I64) -> Servers:
    """The servers and slow sites with what is left of their quotas, and of the robots files that are still to be fetched."""
    needs = servers.needs_robots.copy()
    needs[planned.robots_site_row] = False
    quota_left = (servers.quota - contacts).astype(servers.quota.dtype)
    pages = np.bincount(planned.pages.site_row, minlength=len(servers.of_site))[servers.slow_site]
    slow_left = np.maximum(servers.slow_quota - pages, 0).astype(servers.slow_quota.dtype)
    return dataclasses.replace(servers, quota=quota_left, slow_quota=slow_left, needs_robots=needs)


def with_more(planned: PlannedRows, more: PlannedRows) -> PlannedRows:
    """The plan with what is anticipated behind it."""
    return PlannedRows(
        join([planned.pages, more.pages]),
        np.concatenate([planned.robots_site_row, more.robots_site_row]),
        np.concatenate([planned.robots_priority, more.robots_priority]),
    )
