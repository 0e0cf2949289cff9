"""What can be said of a row within its own partition: the weight that is compared, and what its own site leaves it.

A partition never cuts a normalised site, so the limits of sites are settled here; only the rows of sites above a limit are
sorted. What must be known of all partitions together (how many rows each server and section has) is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from shepherd import config
from shepherd.formats.tables import (
    I64,
    NO_LIMIT,
    U8,
    U16,
    U64,
    Array,
    Bools,
    Columns,
    Flag,
    Reason,
    RowType,
    in_bucket,
    in_contrib,
)
from shepherd.phases.keys import distinct, find_sites, run_ranks, run_starts, with_flag
from shepherd.phases.serverlimits import NO_SERVER
from shepherd.sections import NAMES as SECTION_NAMES

OF_INDEX = ("norm", "site", "oid", "digest", "type", "reason", "flags", "weight", "section", "gathered", "size")
OF_COST = ("digest", "flags", "gathered", "oid", "size")
OF_SITES = ("site", "norm", "server", "soft_limit", "hard_limit", "fresh_limit", "select_bonus")
EXEMPT = int(Flag.INITIAL | Flag.PINNED | Flag.EQUIV)
SECTIONS = 256


class Place(IntEnum):
    """Where a row stands. First those that no limit strikes, then those that sleep, then those that are forgotten."""

    STAY = 0
    EXEMPT = 1  # stays whatever its weight, and takes its room before all others
    ROBOTS = 2  # stays if another row of its site does, and takes no room
    GONE = 3  # forgotten before
    SITE_SOFT = 4
    FRESH = 5
    SERVER_SOFT = 6
    SECTION_SOFT = 7
    SPACE = 8
    BELOW_BAR = 9
    SITE_HARD = 10
    SERVER_HARD = 11
    SECTION_HARD = 12
    BELOW_SLEEP = 13


def sleeps(place: U8) -> Bools:
    return np.asarray((place >= Place.SITE_SOFT) & (place <= Place.BELOW_BAR))


def over_soft(place: U8) -> Bools:
    """Struck by the limits that are settled here."""
    return np.asarray((place == Place.SITE_SOFT) | (place == Place.FRESH))


def is_out(place: U8) -> Bools:
    return np.asarray(place >= Place.SITE_HARD)


@dataclass(frozen=True)
class Surveyed:
    """Of each row, and of each run of rows with the same site."""

    key: U16  # the weight that is compared
    place: U8
    run_rows: Array  # u32
    run_site: Array  # u32: number of its site within the partition; equal sites have equal numbers
    run_server: Array  # i32


@dataclass(frozen=True)
class Counts:
    """Rows that limits count, as three lines: those that no hard limit has struck, those that stay, those that are exempt."""

    server: I64  # by run
    section: I64
    exempt_bytes: int


# --- keys -------------------------------------------------------------------------------------------------------


def was_gathered(index: Columns) -> Bools:
    """What we hold, or have followed: it costs nothing to keep. Whether it sleeps now makes no difference, so that select
    alone never changes the weight that it compares.
    """
    told = (index["digest"] != 0) | with_flag(index["flags"], Flag.REDIRECT)
    return np.asarray(told & (index["gathered"] > 0) & in_bucket(index["oid"]))


def keys(index: Columns, bonus: Array | int, select: config.Select, sections: config.SectionBonus) -> U16:
    """Weight, with the bonus of the site, the bonus of the section, and a bonus for what was gathered; from 0 to 65535."""
    key = index["weight"].astype(np.int32)
    key += bonus
    if select.hysteresis:
        key += was_gathered(index) * np.int32(select.hysteresis)
    of_section = np.zeros(SECTIONS, np.int32)
    for name, number in SECTION_NAMES.items():
        of_section[number] = getattr(sections, name)
    if of_section.any():
        key += of_section[index["section"]]
    return np.clip(key, 0, 65_535, out=key).astype(np.uint16)


def cost(index: Columns, rows: I64 | Bools, select: config.Select) -> I64:
    """Bytes that rows need: what they take now, or an estimate for what is not gathered yet."""
    some = {name: index[name][rows] for name in OF_COST}
    return np.where(was_gathered(some), some["size"].astype(np.int64), select.average_bytes)


# --- the survey -------------------------------------------------------------------------------------------------


def survey(
    index: Columns, sites: Columns, struck: U8 | None, select: config.Select, sections: config.SectionBonus
) -> tuple[Surveyed, Counts]:
    """`sites` are those of the partition, sorted by norm. `struck` are the places after the hard limits of servers and sections,
    if any of these has struck: what is out takes no room below the soft limits.
    """
    runs = run_starts(index["norm"], index["site"])
    run_first = np.flatnonzero(runs)
    run_rows = np.diff(np.append(run_first, len(runs)))
    run_site, site_row = _number_sites(sites, index["norm"][run_first], index["site"][run_first])
    bonus = np.append(sites["select_bonus"], np.int16(0))[site_row]
    key = keys(index, np.repeat(bonus.astype(np.int32), run_rows) if bonus.any() else 0, select, sections)
    server = np.append(sites["server"], np.int32(NO_SERVER))[site_row]
    place = _places(index, sites, key, struck, select)
    surveyed = Surveyed(key, place, run_rows.astype(np.uint32), run_site.astype(np.uint32), server)
    return surveyed, count(index, place, surveyed.run_rows, select)


def _number_sites(sites: Columns, norm: U64, site: U64) -> tuple[I64, I64]:
    """For each run the number of its site, and its row in `sites` or -1. Most norms have one site: that is tried first."""
    row = np.searchsorted(sites["norm"], norm).astype(np.int64)
    known = np.append(sites["site"], np.uint64(0))[row] == site
    known &= row < len(sites["norm"])
    rest = np.flatnonzero(~known)
    if len(rest):
        by_site = np.argsort(sites["site"])
        found = find_sites(sites["site"][by_site], site[rest])
        row[rest] = np.append(by_site, -1)[found]
    number, strange = row.copy(), np.flatnonzero(row < 0)
    if len(strange):
        number[strange] = len(sites["norm"]) + find_sites(distinct(site[strange]), site[strange])
    return number, row


def _places(index: Columns, sites: Columns, key: U16, struck: U8 | None, select: config.Select) -> U8:
    flags, type_ = index["flags"], index["type"]
    exempt, robots, gone = with_flag(flags, EXEMPT), with_flag(flags, Flag.ROBOTS), type_ == RowType.FORGOTTEN
    place = exempt.astype(np.uint8)  # Place.EXEMPT is 1
    np.putmask(place, robots & ~exempt, Place.ROBOTS)
    np.putmask(place, gone, Place.GONE)
    first = np.flatnonzero(run_starts(index["norm"]))
    soft, hard, fresh = _limits(sites, index["norm"][first], select)
    place[beyond(first, place <= Place.EXEMPT, exempt, key, hard)] = Place.SITE_HARD
    if struck is not None:
        place = np.where(is_out(struck), struck, place)
    place[beyond(first, place <= Place.EXEMPT, exempt, key, soft)] = Place.SITE_SOFT
    new = in_contrib(index["oid"]) | ((type_ == RowType.SLEEPING) & (index["reason"] == Reason.FRESH))
    place[beyond(first, (place <= Place.EXEMPT) & new, exempt, key, fresh)] = Place.FRESH
    return place


def _limits(sites: Columns, norm: U64, select: config.Select) -> tuple[I64, I64, I64]:
    """Soft, hard and fresh limit of each norm: a normalised site may have as much as the most favoured of its sites."""
    defaults = (select.site_soft, max(select.site_hard, select.site_soft), select.fresh)
    if all((sites[name] == NO_LIMIT).all() for name in ("soft_limit", "hard_limit", "fresh_limit")):
        same = [np.full(len(norm), default, np.int64) for default in defaults]
        return same[0], same[1], same[2]
    soft = _or_default(sites["soft_limit"], select.site_soft)
    hard = np.maximum(_or_default(sites["hard_limit"], select.site_hard), soft)
    fresh = _or_default(sites["fresh_limit"], select.fresh)
    first = np.flatnonzero(run_starts(sites["norm"]))
    found = find_sites(sites["norm"][first], norm)
    limits = zip((soft, hard, fresh), defaults, strict=True)
    most = [np.append(np.maximum.reduceat(own, first) if len(first) else own, default) for own, default in limits]
    return most[0][found], most[1][found], most[2][found]


def _or_default(limit: Array, default: int) -> I64:
    return np.where(limit == NO_LIMIT, default, limit.astype(np.int64))


def beyond(first: I64, members: Bools, ahead: Bools, key: U16, limit: I64) -> I64:
    """The members that do not fit into the limit of their group, in which those `ahead` come first, then the best, then the
    first. Groups are consecutive rows, from `first` on. Those ahead are never told, but take their room.
    """
    size = np.diff(np.append(first, len(members)))
    large = np.flatnonzero(size > limit)
    if not len(large):
        return large
    size, room = size[large], limit[large]
    group = np.repeat(np.arange(len(large)), size)
    rows = np.repeat(first[large] - (np.cumsum(size) - size), size) + np.arange(len(group))
    inside = members[rows]
    crowded = np.bincount(group[inside], minlength=len(large)) > room
    inside &= crowded[group]
    rows, group = rows[inside], group[inside]
    order = _best_first(group, ~ahead[rows], 65_535 - key[rows])
    rows, group = rows[order], group[order]
    over = run_ranks(run_starts(group)) >= room[group]
    return rows[over & ~ahead[rows]]


def _best_first(group: I64, behind: Bools, worse: Array) -> I64:
    """The order by group, then those not behind, then the best, then the first: sorted as one number where that has the bits."""
    bits = max(len(group) - 1, 0).bit_length()
    if not len(group) or bits + 17 + int(group[-1]).bit_length() > 63:
        return np.lexsort((worse, behind, group)).astype(np.int64)
    joined = (group << 17 | behind.astype(np.int64) << 16 | worse) << bits | np.arange(len(group))
    return np.sort(joined) & ((1 << bits) - 1)


def count(index: Columns, place: U8, run_rows: Array, select: config.Select) -> Counts:
    """What must be known of all partitions together."""
    run_first = np.cumsum(run_rows, dtype=np.int64) - run_rows
    exempt = place == Place.EXEMPT
    living = (place == Place.STAY) | sleeps(place)
    server = np.stack([_by_run(mask, run_first) for mask in (living, place == Place.STAY, exempt)])
    joint = np.bincount(index["section"].astype(np.uint16) << np.uint16(4) | place, minlength=SECTIONS << 4).reshape(SECTIONS, 16)
    asleep = joint[:, Place.SITE_SOFT : Place.BELOW_BAR + 1].sum(axis=1)
    section = np.stack([joint[:, Place.STAY] + asleep, joint[:, Place.STAY], joint[:, Place.EXEMPT]])
    return Counts(server, section, int(cost(index, exempt, select).sum()) if select.space_bytes else 0)


def _by_run(mask: Bools, run_first: I64) -> I64:
    """How many rows of each run: from running totals, which are faster here than a reduction by runs."""
    total = np.cumsum(mask, dtype=np.int32)
    before = np.append(total, 0)[run_first - 1]  # before the first row, at -1, is 0
    return np.diff(np.append(before, total[-1:])).astype(np.int64)
