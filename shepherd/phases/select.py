"""Which rows are worth gathering, which are only remembered, which are forgotten.

Two passes over partitions that never cut a normalised site. The first ranks each site against its own limits and counts weights;
from the sums of these counts `bars` finds the weights at which the totals are full; the second passes judgement. Rows that equal
a bar are taken in the order of the index until the total is exact, so the answer does not depend on how the index was cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from shepherd import config
from shepherd.formats.tables import I64, NO_LIMIT, SACRED, U8, U64, Array, Bools, Columns, Flag, Reason, RowType
from shepherd.phases.cork import has_body
from shepherd.phases.keys import run_ranks, run_starts, with_flag

WEIGHTS = 65_536


class Place(IntEnum):
    """What a row's own site leaves it."""

    STAY = 0
    EXEMPT = 1  # stays whatever its weight
    OVER_SOFT = 2
    OVER_HARD = 3
    GONE = 4  # forgotten before


@dataclass(frozen=True)
class Limits:
    """Of each normalised site, sorted by norm."""

    norm: U64
    soft: I64
    hard: I64


@dataclass(frozen=True)
class Ranked:
    """The first pass over a partition; the counts of partitions add up."""

    place: U8
    stay: I64  # rows that may stay, by weight
    sleep: I64  # rows over their site's soft limit, by weight
    exempt: int


@dataclass(frozen=True)
class Bars:
    """Rows above a weight pass, rows below do not, and of those equal to it the first so many."""

    gather: int
    gather_ties: int
    sleep: int
    sleep_ties: int


@dataclass(frozen=True)
class Selected:
    columns: Mapping[str, Array]
    counts: Mapping[str, int]


def norm_limits(sites: Columns, select: config.Select) -> Limits:
    """A normalised site may have as much as the most favoured of its sites."""
    order = np.argsort(sites["norm"], kind="stable")
    norm = sites["norm"][order]
    first = np.flatnonzero(run_starts(norm))
    if not len(first):
        return Limits(norm, np.zeros(0, np.int64), np.zeros(0, np.int64))
    soft = _or_default(sites["soft_limit"][order], select.site_soft)
    hard = np.maximum(_or_default(sites["hard_limit"][order], select.site_hard), soft)
    return Limits(norm[first], np.maximum.reduceat(soft, first), np.maximum.reduceat(hard, first))


def _or_default(limit: Array, default: int) -> I64:
    return np.where(limit == NO_LIMIT, default, limit.astype(np.int64))


def rank_sites(index: Columns, limits: Limits, select: config.Select) -> Ranked:
    """Only the rows of sites above their limit are sorted: by exempt, weight, row."""
    exempt = with_flag(index["flags"], SACRED)
    gone = index["type"] == RowType.FORGOTTEN
    place = np.where(gone, np.uint8(Place.GONE), np.where(exempt, np.uint8(Place.EXEMPT), np.uint8(Place.STAY)))
    rows = np.flatnonzero(~gone)
    starts = run_starts(index["norm"][rows])
    first = np.flatnonzero(starts)
    soft, hard = _limits_of(limits, index["norm"][rows[first]], select)
    size = np.diff(np.append(first, len(rows)))
    over = np.repeat(size > soft, size)
    run = (np.cumsum(starts) - 1)[over]
    crowd = rows[over]
    order = np.lexsort((~index["weight"][crowd], ~exempt[crowd], run))
    crowd, run = crowd[order], run[order]
    rank = run_ranks(run_starts(run))
    common = ~exempt[crowd]
    place[crowd[common & (rank >= soft[run])]] = Place.OVER_SOFT
    place[crowd[common & (rank >= hard[run])]] = Place.OVER_HARD
    weight = index["weight"]
    return Ranked(
        place,
        np.bincount(weight[place == Place.STAY], minlength=WEIGHTS).astype(np.int64),
        np.bincount(weight[place == Place.OVER_SOFT], minlength=WEIGHTS).astype(np.int64),
        int(np.count_nonzero(place == Place.EXEMPT)),
    )


def _limits_of(limits: Limits, norm: U64, select: config.Select) -> tuple[I64, I64]:
    at = np.searchsorted(limits.norm, norm)
    soft, hard = np.append(limits.soft, select.site_soft), np.append(limits.hard, select.site_hard)
    known = at < len(limits.norm)
    known[known] = limits.norm[at[known]] == norm[known]
    at = np.where(known, at, len(limits.norm))
    return soft[at], hard[at]


def bars(stay: I64, sleep: I64, exempt: int, select: config.Select) -> Bars:
    """From the summed counts of all partitions; rows that stay but do not pass compete for sleep with those over a soft limit."""
    gather, gather_ties = _bar(stay, max(select.gathered - exempt, 0))
    waiting = sleep + np.where(np.arange(WEIGHTS) < gather, stay, 0)
    if gather >= 0:
        waiting[gather] += stay[gather] - gather_ties
    return Bars(gather, gather_ties, *_bar(waiting, select.sleeping))


def _bar(counts: I64, room: int) -> tuple[int, int]:
    """The weight at which `room` is full, and how many of that weight still fit; -1 if all fit."""
    if int(counts.sum()) <= room:
        return -1, 0
    at_least = np.cumsum(counts[::-1])[::-1]
    bar = int(np.flatnonzero(at_least > room)[-1])
    return bar, room - int(at_least[bar] - counts[bar])


def ties_left(bars: Bars, ranked: Ranked) -> Bars:
    """The bars for the partition after this one: with the ties that this one does not use."""
    equal = int(ranked.stay[bars.gather]) if bars.gather >= 0 else 0
    passed = min(equal, bars.gather_ties)
    waiting = int(ranked.sleep[bars.sleep]) if bars.sleep >= 0 else 0
    if 0 <= bars.sleep < bars.gather:
        waiting += int(ranked.stay[bars.sleep])
    elif 0 <= bars.sleep == bars.gather:
        waiting += equal - passed
    return Bars(bars.gather, bars.gather_ties - passed, bars.sleep, bars.sleep_ties - min(waiting, bars.sleep_ties))


def assign(index: Columns, ranked: Ranked, bars: Bars, *, state: int) -> Selected:
    """The second pass: what each row becomes, and why."""
    place, weight = ranked.place, index["weight"].astype(np.int64)
    passes = (place == Place.STAY) & _over(weight, place == Place.STAY, bars.gather, bars.gather_ties)
    below = (place == Place.STAY) & ~passes
    competes = below | (place == Place.OVER_SOFT)
    sleeps = competes & _over(weight, competes, bars.sleep, bars.sleep_ties)
    out = (competes & ~sleeps) | (place == Place.OVER_HARD)
    awake = passes | (place == Place.EXEMPT)

    type_, reason = index["type"].copy(), index["reason"].copy()
    woken = awake & (type_ == RowType.SLEEPING)
    body = has_body(index, woken)
    inserted = with_flag(index["flags"][woken], Flag.INITIAL)
    type_[woken] = np.where(body, np.uint8(RowType.GATHERED), np.uint8(RowType.UNGATHERED))
    reason[woken] = np.where(
        body, np.uint8(Reason.GATHERED), np.where(inserted, np.uint8(Reason.INSERTED), np.uint8(Reason.LINK))
    )
    type_[sleeps] = RowType.SLEEPING
    reason[sleeps] = np.where(below[sleeps], np.uint8(Reason.BELOW_BAR), np.uint8(Reason.SITE_SOFT))
    type_[out] = RowType.FORGOTTEN
    reason[out] = np.where(place[out] == Place.OVER_HARD, np.uint8(Reason.SITE_HARD), np.uint8(Reason.BELOW_SLEEP))
    changed = (type_ != index["type"]) | (reason != index["reason"])
    touched = np.where(changed, np.uint32(state), index["touched"])
    counts = {
        "stay": int(np.count_nonzero(awake)),
        "sleep": int(np.count_nonzero(sleeps)),
        "forgotten": int(np.count_nonzero(out)),
        "gathered lost": int(np.count_nonzero(~awake & (index["type"] == RowType.GATHERED))),
        "woken": int(np.count_nonzero(woken)),
    }
    return Selected({"type": type_, "reason": reason, "touched": touched}, counts)


def _over(weight: I64, among: Bools, bar: int, ties: int) -> Bools:
    """Above the bar, or equal to it and among the first `ties` of those that compete."""
    equal = among & (weight == bar)
    return np.asarray((weight > bar) | (equal & (np.cumsum(equal) <= ties)))
