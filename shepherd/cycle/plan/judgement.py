"""What the filter in force says of the rows that a plan would take: what it rejects now is not asked for now.

Rows were judged by the filter that was in force when they came, and a cleanup judges all of them again, but it may be days away.
So a plan judges what it takes, by the texts in the buckets, and then takes the next best rows, as often as that changes anything.
Where the last cleanup has judged everything by this very filter there is nothing to judge, and no text is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.pool import ordered, tasks
from shepherd.cycle.cleanup.report import last_full_cleanup
from shepherd.cycle.plan.pool import PlannedRows
from shepherd.cycle.plan.rules import Due
from shepherd.errors import Corruption
from shepherd.filters import Filter
from shepherd.formats.tables import I64, U32, Bools, in_bucket
from shepherd.readers.search import urls_of
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State

MOST_ROUNDS: Final = 20  # of choosing: where nine rows of ten are rejected, 88 % of the plan are full then
ROWS: Final = 1 << 17  # whose texts are in memory at a time
STEP: Final = 1 << 16  # names of sites, likewise


def filter_to_judge_by(database: Database, state: State, filters: Filter) -> Filter | None:
    """The filter in force; None where all rows are known to have been judged by it."""
    return None if last_full_cleanup(database, state.control.cleaned).filter == filters.version else filters


@dataclass(frozen=True)
class Refusals:
    """What a plan must not take: rows, sorted, and sites that lie outside the scope with all that they have."""

    rows: U32
    sites: Bools | None = None  # by row of the sites table; None = none lies outside

    def drop_from(self, due: Due) -> Due:
        """What may be taken."""
        if self.sites is not None:
            due = due.take(~self.sites.take(due.site_row))
        if len(self.rows):
            place = np.searchsorted(self.rows, due.row)
            due = due.take(self.rows.take(place, mode="clip") != due.row)
        return due

    def with_rows(self, rows: U32) -> Refusals:
        return Refusals(np.union1d(self.rows, rows), self.sites)


NOTHING: Final = Refusals(np.zeros(0, np.uint32))


def outside(state: State, filters: Filter) -> Refusals:
    """The sites that no `only` line has: they need no text."""
    scope = filters.scope
    if scope is None:
        return NOTHING
    sites = np.zeros(state.sites.rows, np.bool_)
    for start in range(0, len(sites), STEP):
        names = state.site_names(start, min(start + STEP, len(sites)))
        sites[start : start + len(names)] = [scope.paths_at(name.decode("ascii")) == () for name in names]
    return Refusals(NOTHING.rows, sites)


def rejected(state: State, filters: Filter, rows: U32, jobs: int) -> U32:
    """Those of the rows, which are sorted, that the filter rejects."""
    parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
    masks = list(ordered(tasks(_judge, state, filters, parts), jobs))
    return rows.compress(np.concatenate(masks)) if masks else rows


def _judge(state: State, filters: Filter, rows: U32) -> Bools:
    texts = _texts(state, rows.astype(np.int64))
    return np.fromiter((text is not None and filters.clean(text.decode("ascii")) is None for text in texts), np.bool_, len(rows))


def _texts(state: State, rows: I64) -> Iterator[bytes | None]:
    try:
        yield from urls_of(state, rows)
    except Corruption:
        for row in rows.tolist():  # each alone: a damaged one says nothing, and a reap reports it
            yield _text(state, row)


def _text(state: State, row: int) -> bytes | None:
    oid = state.index["oid"].value(row)
    try:
        return state.objects.head(oid).url.encode() if in_bucket(np.array([oid], np.uint64))[0] else None
    except Corruption:
        return None


def without(planned: PlannedRows, rows: U32) -> PlannedRows:
    """A plan without these rows, and without the robots files that only they need."""
    pages = planned.pages.take(~np.isin(planned.pages.row, rows))
    needed = np.isin(planned.robots_site_row, pages.site_row)
    return PlannedRows(pages, planned.robots_site_row.compress(needed), planned.robots_priority.compress(needed))
