"""What is due, and how urgent: which rows the next reap should gather.

`due_rows` looks at one partition. `pool` chooses among what is due, `politeness/quota` says how much a server has time for.

The priority of a row is one number: its class, then its weight, then its age; rows of equal priority stand in the order of their
footprints, which is that of the index, so there are no ties. A page is due once in a refresh cycle, an important one or one that
changes 2 or 4 times, and its site may multiply that. Its age is made up to a quarter of a reap more than it is, always the same
for the same footprint: so pages that were once gathered together drift apart. A page that was modified, as its site says, is due
as early as any page of that site can be, but stands with what is ordinarily due: a site that lies gains no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import run_starts, with_flag
from shepherd.arrays.lookup import Lookup
from shepherd.filters import ignore_robots
from shepherd.formats.tables import I64, U8, U16, U32, U64, Bools, Columns, Flag, Reason, RowType, Why
from shepherd.politeness.delays import believable_s

CLASS_ROBOTS = 15
CLASS_FORCED = 7
CLASS_OVERDUE = 6  # one and a half cycles old
CLASS_FREQUENT = 5  # due, and more than once in a cycle
CLASS_INITIAL = 4  # new, and inserted by an operator
CLASS_NEW = 3
CLASS_DUE = 2
CLASS_RETRY = 1
AGE_STEPS = 8  # of the age bucket in one cycle
MOST_TIMES = 4  # in one refresh cycle, before the site's own boost
MOST_WEIGHT = 65_535
MOST_WAIT_S = 1 << 62
MIX = np.uint64(0x9E3779B97F4A7C15)  # an odd number with no pattern: its products have well mixed high bits
HALF = np.uint64(32)

# As bytes: with a member of an enumeration numpy compares at a tenth of the speed.
UNGATHERED, GATHERED, ERROR = (np.uint8(type_) for type_ in (RowType.UNGATHERED, RowType.GATHERED, RowType.ERROR))
ROBOTS_DENIED, ROBOTS_UNREACHABLE = np.uint8(Reason.ROBOTS_DENIED), np.uint8(Reason.ROBOTS_UNREACHABLE)
GUARD = np.uint8(Reason.GUARD)

WHY_OF_CLASS = np.full(CLASS_ROBOTS + 1, Why.ANTICIPATED, np.uint8)  # of class 0, see cycle/plan/anticipation
WHY_OF_CLASS[CLASS_FORCED] = Why.FORCED
WHY_OF_CLASS[CLASS_OVERDUE] = Why.OVERDUE
WHY_OF_CLASS[CLASS_FREQUENT] = WHY_OF_CLASS[CLASS_DUE] = Why.DUE
WHY_OF_CLASS[CLASS_INITIAL] = WHY_OF_CLASS[CLASS_NEW] = Why.NEW
WHY_OF_CLASS[CLASS_RETRY] = Why.RETRY
WHY_OF_CLASS[CLASS_ROBOTS] = Why.ROBOTS


@dataclass(frozen=True)
class Due:
    """Rows that may be planned, in the order of the index: 12 bytes each, whatever the index holds."""

    row: U32  # of the whole index
    priority: U32
    site_row: U32  # of the sites table

    def take(self, rows: I64 | Bools) -> Due:
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        return Due(self.row.take(rows), self.priority.take(rows), self.site_row.take(rows))

    def __len__(self) -> int:
        return len(self.row)


def join(parts: list[Due]) -> Due:
    if not parts:
        return Due(*(np.zeros(0, np.uint32) for _ in range(3)))
    return Due(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "priority", "site_row")))


@dataclass(frozen=True)
class Favours:
    """The most that the filter does for any site: where that is nothing, no row need look it up."""

    boost: int = 255
    bonus: bool = True

    @staticmethod
    def of(sites: Columns) -> Favours:
        return Favours(max(int(sites["refresh_boost"].max(initial=0)), 1), bool(sites["queue_bonus"].any()))


ANY = Favours()


def due_rows(
    index: Columns,
    sites: Columns,
    favours: Favours = ANY,
    lookup: Lookup | None = None,
    *,
    now_s: int,
    plan: config.Plan,
    first_row: int,
    allowed_since: int = 0,
) -> Due:
    """The due rows of one partition that begins at `first_row`; whether they can be asked is not looked at. What the guard has
    refused before `allowed_since` is due at once.

    `favours` and `lookup` are of the sites: made once for all partitions, they save time.
    """
    rows = _ripe(index, now_s, plan, favours.boost)
    site_row = _site_rows(lookup or Lookup(sites["site"]), index["site"].take(rows))
    if (site_row < 0).any():
        rows, site_row = rows.compress(site_row >= 0), site_row.compress(site_row >= 0)
    part = {name: index[name].take(rows) for name in ("path", "site", "type", "flags", "reason", "retry", "checked", "weight")}
    age_s = _age(part["checked"], now_s)
    times = _times(index["frequency"].take(rows), part["weight"], plan)
    if favours.boost > 1:
        times = times * np.maximum(sites["refresh_boost"].take(site_row), 1)
    cycle_s = _cycles(plan).take(times)
    fine, failed, denied = _fortunes(part, plan)
    seen_s = age_s + fine * _jitter(part["path"], part["site"], cycle_s, plan)

    due = fine & (seen_s >= cycle_s)
    modified = fine & with_flag(part["flags"], Flag.MODIFIED)
    early = np.flatnonzero(modified)
    modified[early] = _would_be_due(part, early, age_s, sites["refresh_boost"].take(site_row.take(early)), plan)
    new = part["type"] == UNGATHERED
    refused = np.flatnonzero(denied)
    refused_at = site_row.take(refused)
    asked_since = sites["robots_checked"].take(refused_at) > part["checked"].take(refused)
    asked_since |= ignore_robots(sites["policy"].take(refused_at))  # since a line of the filter says so
    again = failed & (age_s >= _waits(plan).take(part["retry"]))
    again[refused] = asked_since | (age_s.take(refused) >= plan.refresh_s)
    if allowed_since:
        again |= (part["type"] == ERROR) & (part["reason"] == GUARD) & (part["checked"] <= allowed_since)
    class_ = _best_class(
        (CLASS_RETRY, again),
        (CLASS_DUE, due | modified),
        (CLASS_NEW, new),
        (CLASS_INITIAL, new & with_flag(part["flags"], Flag.INITIAL)),
        (CLASS_FREQUENT, due & (times > 1)),
        (CLASS_OVERDUE, fine & (2 * seen_s >= 3 * cycle_s)),
        (CLASS_FORCED, with_flag(part["flags"], Flag.REFRESH)),
    )

    keep = np.flatnonzero(class_)
    weight = part["weight"].take(keep).astype(np.int64)
    if favours.bonus:
        weight = np.clip(weight + sites["queue_bonus"].take(site_row.take(keep)), 0, MOST_WEIGHT)
    was_checked = part["checked"].take(keep) > 0
    age = was_checked * np.minimum(AGE_STEPS * seen_s.take(keep) // cycle_s.take(keep), 255)
    priority = class_.take(keep).astype(np.int64) << 24 | weight << 8 | age
    row = rows.take(keep) + first_row
    return Due(row.astype(np.uint32), priority.astype(np.uint32), site_row.take(keep).astype(np.uint32))


def _would_be_due(part: Columns, rows: I64, age_s: I64, boost: U8, plan: config.Plan) -> Bools:
    """Whether some rows are so old that a page of their site which changes all the time would be due."""
    cycle_s = _cycles(plan).take(MOST_TIMES * np.maximum(boost, 1).astype(np.int64))
    jitter_s = _jitter(part["path"].take(rows), part["site"].take(rows), cycle_s, plan)
    return np.asarray(age_s.take(rows) + jitter_s >= cycle_s)


def _ripe(index: Columns, now_s: int, plan: config.Plan, most_boost: int) -> I64:
    """Pages that are not asleep, but for those that no site could make due yet."""
    type_, flags = index["type"], index["flags"]
    page = (type_ >= UNGATHERED) & (type_ <= ERROR) & ~with_flag(flags, Flag.ROBOTS)
    settled = (type_ == GATHERED) & (index["retry"] == 0) & ~with_flag(flags, Flag.REFRESH)
    rows = np.flatnonzero(page & settled)
    shortest_s = _cycles(plan)[::most_boost][: MOST_TIMES + 1]
    since = now_s - (shortest_s - np.minimum(shortest_s, plan.reap_s) // 4)  # what was checked later is too young
    times = _times(index["frequency"].take(rows), index["weight"].take(rows), plan)
    modified = with_flag(flags, Flag.MODIFIED)
    if modified.any():
        times[modified.take(rows)] = MOST_TIMES
    page[rows] = believable_s(index["checked"].take(rows), now_s) <= since.take(times)
    return np.flatnonzero(page)


def _best_class(*classes: tuple[int, Bools]) -> U8:
    """The best class that each row is of, or 0."""
    best = np.zeros(len(classes[0][1]), np.uint8)
    for class_, rows in classes:
        np.maximum(best, rows.view(np.uint8) * np.uint8(class_), out=best)
    return best


def _fortunes(part: Columns, plan: config.Plan) -> tuple[Bools, Bools, Bools]:
    """Gathered and well; failed, and to be tried again; refused by robots.txt."""
    error, retry = part["type"] == ERROR, part["retry"]
    denied = error & ((part["reason"] == ROBOTS_DENIED) | (part["reason"] == ROBOTS_UNREACHABLE))
    gathered = part["type"] == GATHERED
    failed = ((error & ~denied) | (gathered & (retry > 0))) & (retry < plan.max_retries)
    return gathered & ~failed, failed, denied


def _age(checked: U32, now_s: int) -> I64:
    """Of what was checked in the future none; far in the future, a clock was wrong, and it was never checked."""
    return np.asarray(np.maximum(now_s - believable_s(checked, now_s).astype(np.int64), 0), np.int64)


def _times(frequency: U8, weight: U16, plan: config.Plan) -> I64:
    """How often a page is gathered in one refresh cycle, if its site has nothing to say."""
    important = (weight > plan.important_weight).view(np.uint8)
    times: U8 = np.minimum(np.clip(frequency, 1, MOST_TIMES) << important, MOST_TIMES)
    return times.astype(np.int64)


def _cycles(plan: config.Plan) -> I64:
    """How long a cycle is, by how many there are in a refresh cycle."""
    return np.asarray(np.maximum(plan.refresh_s // np.maximum(np.arange(MOST_TIMES * 255 + 1), 1), 1), np.int64)


def _waits(plan: config.Plan) -> I64:
    """How long an error waits, by its failures in a row."""
    return np.array([min(plan.retry_s << max(retry - 1, 0), MOST_WAIT_S) for retry in range(256)], np.int64)


def _jitter(path: U64, site: U64, cycle_s: I64, plan: config.Plan) -> I64:
    """Up to a quarter of the reap, or of the cycle where that is shorter; by the footprint."""
    most = np.minimum(np.minimum(cycle_s, plan.reap_s) // 4, (1 << 31) - 1).astype(np.uint64) + np.uint64(1)
    mixed: U64 = ((path ^ site) * MIX) >> HALF
    return np.asarray(mixed * most >> HALF, np.int64)


def _site_rows(lookup: Lookup, queries: U64) -> I64:
    """For each query its row, or -1. Neighbours are often of one site."""
    starts = run_starts(queries)
    return lookup.find(queries.compress(starts)).take(np.cumsum(starts) - 1)
