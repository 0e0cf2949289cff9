"""Which rows are worth gathering, which are only remembered, which are forgotten.

`survey` decides what a row's own site leaves it, `arrays/thresholds` finds where the room of servers, sections and totals is
full; here is how much room there is, and which type and reason each row gets in the end. docs/cycle.md has the order in which
limits strike, and why a second select changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import run_starts, with_flag
from shepherd.arrays.rows import OF_BODY, has_body
from shepherd.cycle.select.placement import Place, is_out, sleeps
from shepherd.cycle.select.server_capacity import LONGEST_CYCLE_S
from shepherd.cycle.select.survey import SECTIONS
from shepherd.formats.tables import I64, U8, Array, Bools, Columns, Flag, Reason, RowType
from shepherd.formats.vocabulary import word
from shepherd.sections import NAMES as SECTION_NAMES

READ = ("type", "reason", "flags", "touched", "oid", "digest", "gathered")
CHANGED = ("type", "reason", "touched")

REASON_OF = np.zeros(len(Place), np.uint8)
REASON_OF[[Place.SITE_SOFT, Place.SITE_HARD]] = Reason.SITE_SOFT, Reason.SITE_HARD
REASON_OF[[Place.SERVER_SOFT, Place.SERVER_HARD]] = Reason.SERVER_SOFT, Reason.SERVER_HARD
REASON_OF[[Place.SECTION_SOFT, Place.SECTION_HARD]] = Reason.SECTION_SOFT, Reason.SECTION_HARD
REASON_OF[[Place.FRESH, Place.SPACE]] = Reason.FRESH, Reason.SPACE
REASON_OF[[Place.BELOW_BAR, Place.BELOW_SLEEP]] = Reason.BELOW_BAR, Reason.BELOW_SLEEP
REASON_OF[[Place.SITE_EMPTY, Place.UNREFERENCED]] = Reason.SITE_EMPTY, Reason.UNREFERENCED

TYPES = max(RowType) + 1

ROBOTS, FORGOTTEN = np.uint8(Place.ROBOTS), np.uint8(Place.FORGOTTEN)
TYPE_OF = np.zeros(len(Place), np.uint8)
TYPE_OF[Place.SITE_SOFT : Place.BELOW_BAR + 1] = RowType.SLEEPING
TYPE_OF[Place.SITE_HARD :] = RowType.FORGOTTEN


@dataclass(frozen=True)
class CrowdedGroups:
    """The servers or the sections that hold more than they may."""

    number: Array  # by server or section: its number among them, or -1; one more entry at the end, for none
    room: I64  # by that number

    def __len__(self) -> int:
        return len(self.room)


@dataclass(frozen=True)
class SelectedRows:
    columns: Mapping[str, Array]
    counts: Mapping[str, int]
    slept: Mapping[str, int]  # by reason
    forgotten: Mapping[str, int]  # by reason


def crowded(count: I64, limit: I64, exempt: I64) -> CrowdedGroups:
    """Which groups have too many rows, and how many of those that are not exempt they may keep."""
    over = np.flatnonzero(count > limit)
    number = np.full(len(count) + 1, -1, np.min_scalar_type(-len(over) - 1))
    number[over] = np.arange(len(over))
    return CrowdedGroups(number, np.maximum(limit - exempt, 0)[over])


def section_limits(sections: config.Sections, factor: int = 1) -> I64:
    limits = np.full(SECTIONS, config.MOST, np.int64)
    for name, number in SECTION_NAMES.items():
        if getattr(sections, name):
            limits[number] = getattr(sections, name) * factor
    return limits


def most_gathered(select: config.Select, plan: config.Plan, speed: int) -> int:
    """Of the limit on the number, and what earlier reaps say that a refresh cycle can gather: the smaller one."""
    if not speed or not plan.refresh_s or not select.optimism:
        return select.gathered
    return min(select.gathered, max(speed * min(plan.refresh_s, LONGEST_CYCLE_S) * select.optimism // 100_000, 1))


def has_space_limit(settings: config.Config) -> bool:
    return bool(settings.select.space_bytes or settings.cleanup.size_bytes)


def keep_robots(place: U8, site: Array) -> U8:
    """The robots file of a site that keeps nothing else goes, too."""
    robots = np.flatnonzero(place == ROBOTS)
    if not len(robots):
        return place
    others = (place != ROBOTS) & (place != FORGOTTEN) & ~is_out(place)
    first = np.flatnonzero(run_starts(site))  # neighbours are mostly of one site
    keeps_page = np.zeros(int(site.max()) + 1, np.bool_)
    keeps_page[site.take(first).compress(np.logical_or.reduceat(others, first))] = True
    result = place.copy()
    result[robots.compress(~keeps_page.take(site.take(robots)))] = Place.SITE_EMPTY
    return result


# --- the types of the rows -----------------------------------------------------------------------------------


def assign(index: Columns, place: U8, *, state: int) -> SelectedRows:
    """The columns that the places of the rows change."""
    awake, asleep, out = place <= ROBOTS, sleeps(place), is_out(place)
    is_rejected = asleep | out
    spared = (~is_rejected).view(np.uint8)
    type_ = TYPE_OF.take(place) + index["type"] * spared  # one of the two is 0: a choice of bytes, at half the price of np.where
    reason = REASON_OF.take(place) + index["reason"] * spared
    woken = np.flatnonzero(awake & (index["type"] == np.uint8(RowType.SLEEPING)))
    type_[woken], reason[woken] = _waking(index, woken)
    touched = index["touched"].copy()
    touched[np.flatnonzero((type_ != index["type"]) | (reason != index["reason"]))] = state
    pages = (index["type"] == np.uint8(RowType.GATHERED)) & ~with_flag(index["flags"], Flag.ROBOTS)
    counts = {
        "stay": _count(awake),
        "sleep": _count(asleep),
        "forgotten": _count(out),
        "woken": len(woken),
        "gathered": _count(pages),
        "gathered lost": _count(pages & is_rejected),
    }
    by_place = {p: _count(place == np.uint8(p)) for p in Place if p >= Place.SITE_SOFT}
    counts_by_place = {p: {_text(p): count} for p, count in by_place.items() if count}
    return SelectedRows(
        {"type": type_, "reason": reason, "touched": touched},
        counts,
        _joined(counts_by_place, Place.SITE_SOFT, Place.BELOW_BAR),
        _joined(counts_by_place, Place.SITE_HARD, Place.UNREFERENCED),
    )


def _waking(index: Columns, rows: I64) -> tuple[Array, Array]:
    """Type and reason of rows that slept and may be gathered."""
    body = has_body({name: index[name].take(rows) for name in OF_BODY})
    inserted = with_flag(index["flags"].take(rows), Flag.INITIAL)
    unknown = np.where(inserted, np.uint8(Reason.INSERTED), np.uint8(Reason.LINK))
    return (
        np.where(body, np.uint8(RowType.GATHERED), np.uint8(RowType.UNGATHERED)),
        np.where(body, np.uint8(Reason.GATHERED), unknown),
    )


def became(index: Columns, selected: SelectedRows) -> I64:
    """How many rows of each type get which."""
    pairs = index["type"].astype(np.int64) * TYPES + selected.columns["type"]
    return np.bincount(pairs, minlength=TYPES * TYPES).reshape(TYPES, TYPES)


def nothing_became() -> I64:
    return np.zeros((TYPES, TYPES), np.int64)


def types_report(became: I64) -> dict[str, dict[str, int]]:
    """In words: how many rows there are of each type, how many there would be, and what changes."""
    names = {type_: word(type_) for type_ in RowType}
    changes = {f"{names[a]} -> {names[b]}": int(became[a, b]) for a in RowType for b in RowType if a != b and became[a, b]}
    return {
        "types now": {names[type_]: int(became[type_].sum()) for type_ in RowType},
        "types then": {names[type_]: int(became[:, type_].sum()) for type_ in RowType},
        "changes": changes,
    }


def _count(rows: Bools) -> int:
    return int(np.count_nonzero(rows))


def _text(place: Place) -> str:
    return word(Reason(int(REASON_OF[place])))


def _joined(counts_by_place: Mapping[Place, Mapping[str, int]], first: Place, last: Place) -> dict[str, int]:
    return {text: count for place in counts_by_place if first <= place <= last for text, count in counts_by_place[place].items()}


def too_many_lost(lost_count: int, gathered: int, select: config.Select) -> bool:
    """Whether the brake must stop: more than its share of the gathered documents would go, and more than a handful."""
    return lost_count > select.most_lost_floor and lost_count * 100 > gathered * select.most_lost
