"""What can be said of a row within its own partition: the weight that is compared, and what its own site leaves it.

A partition never cuts a normalised site, so the limits of sites are settled here; only the rows of sites above a limit are
sorted. What must be known of all partitions together (how many rows each server and section has) is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shepherd import config
from shepherd.arrays.keys import by_key, distinct, find_sites, run_ranks, run_starts, with_flag
from shepherd.arrays.rows import THIN_BYTES
from shepherd.cycle.select.placement import (
    EXEMPTED,
    FRESH,
    SITE_HARD,
    SITE_SOFT,
    Place,
    is_out,
    mark,
    over_soft,
    sleeps,
    stays,
)
from shepherd.cycle.select.server_capacity import NO_SERVER
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
from shepherd.formats.vocabulary import SACRED
from shepherd.sections import NAMES as SECTION_NAMES

OF_INDEX = ("norm", "site", "oid", "digest", "type", "reason", "flags", "weight", "section", "gathered", "size")
OF_PLACES = ("norm", "oid", "digest", "type", "reason", "flags")
OF_COST = ("digest", "flags", "gathered", "oid", "size")
SETTINGS = {"soft_limit": NO_LIMIT, "hard_limit": NO_LIMIT, "fresh_limit": NO_LIMIT, "select_bonus": 0}  # with what no site says
EXEMPT = int(Flag.INITIAL | Flag.PINNED | Flag.EQUIV)
SECTIONS = 256
NEAR = 4  # sites of one norm that are looked at one by one


@dataclass(frozen=True)
class SurveyedRows:
    """Of each row, and of each site that has rows in the partition."""

    key: U16  # the weight that is compared
    place: U8
    site: Array  # its number within the partition; a wide one is put aside and read again for every limit, so it is narrow
    server: Array  # i32, by number of the site


@dataclass(frozen=True)
class SpaceCounts:
    """Bytes that are taken whatever select decides: by exempt pages, and by all that is no page's body; and what bodies take."""

    exempt: int = 0
    aside: int = 0  # robots files, and the thin buckets that pages have without a body
    gathered: int = 0
    pages: int = 0  # that are gathered

    def plus(self, other: SpaceCounts) -> SpaceCounts:
        return SpaceCounts(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def mean(self) -> int:
        return -(-self.gathered // max(self.pages, 1))


@dataclass(frozen=True)
class LimitCounts:
    """Rows that limits count, as three lines: those that stay, those that sleep, those that are exempt."""

    by_server: Sequence[tuple[Array, I64]]  # servers, each perhaps more than once, and how many rows they have
    section: I64
    rows: I64
    bytes_: SpaceCounts


# --- keys -------------------------------------------------------------------------------------------------------


def was_gathered(index: Columns) -> Bools:
    """What we hold, or have followed: it costs nothing to keep. Whether it sleeps now makes no difference, so that select
    alone never changes the weight that it compares.
    """
    has_content = (index["digest"] != 0) | with_flag(index["flags"], Flag.REDIRECT)
    return np.asarray(has_content & (index["gathered"] > 0) & in_bucket(index["oid"]))


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


def survey(index: Columns, sites: Columns, select: config.Select, sections: config.SectionBonus) -> SurveyedRows:
    """`sites` are those of the partition, sorted by norm, with the settings that any site has."""
    new_norm = run_starts(index["norm"])
    new_site = new_norm | run_starts(index["site"])
    first, run_first = np.flatnonzero(new_norm), np.flatnonzero(new_site)
    near = _first_sites(sites["norm"], index["norm"].take(first)).take(np.cumsum(new_norm.take(run_first)) - 1)
    number = _number_sites(sites["site"], near, index["site"].take(run_first))
    most = int(number.max(initial=0))
    site = number.astype(np.min_scalar_type(most)).take(np.cumsum(new_site, dtype=np.int32) - 1)
    strange = max(most + 1 - len(sites["site"]), 0)
    bonus: Array | int = 0
    if "select_bonus" in sites:
        bonus = np.append(sites["select_bonus"], np.zeros(strange, np.int16)).take(site)
    key = keys(index, bonus, select, sections)
    server = np.append(sites["server"], np.full(strange, NO_SERVER, np.int32))
    place = _places(index, sites, first, key, None, select)
    return SurveyedRows(key, place, site, server)


def _first_sites(norm: U64, queries: U64) -> I64:
    """Where the sites of each norm begin. Usually there are rows of every site: then nothing has to be looked for."""
    first = np.flatnonzero(run_starts(norm))
    return first if np.array_equal(norm.take(first), queries) else np.searchsorted(norm, queries).astype(np.int64)


def _number_sites(site_column: U64, near: I64, site: U64) -> I64:
    """The number of each site: its row among the known ones, or one behind these. Most are `near`, or a few rows further on."""
    if not len(site_column):
        return find_sites(distinct(site), site)
    last = len(site_column) - 1
    row = np.minimum(near, last)
    rest = np.flatnonzero(site_column.take(row) != site)
    for _ in range(NEAR - 1):
        row[rest] = np.minimum(row.take(rest) + 1, last)
        rest = rest.compress(site_column.take(row.take(rest)) != site.take(rest))
    if len(rest):
        by_site = np.argsort(site_column)
        row[rest] = np.append(by_site, -1).take(find_sites(site_column.take(by_site), site.take(rest)))
    strange = np.flatnonzero(row < 0)
    if len(strange):
        row[strange] = len(site_column) + find_sites(distinct(site.take(strange)), site.take(strange))
    return row


def _places(index: Columns, sites: Columns, first: I64, key: U16, hard_place: U8 | None, select: config.Select) -> U8:
    """`first` are the first rows of the norms. What hard limits rejected (`hard_place`) takes no room below soft ones."""
    flags, type_ = index["flags"], index["type"]
    exempt, robots = with_flag(flags, EXEMPT), with_flag(flags, Flag.ROBOTS)
    is_forgotten = type_ == np.uint8(RowType.FORGOTTEN)
    place: U8 = np.maximum(mark(exempt, Place.EXEMPT) | mark(robots & ~exempt, Place.ROBOTS), mark(is_forgotten, Place.FORGOTTEN))
    place[_unreferenced(index)] = Place.UNREFERENCED
    soft, hard, fresh = site_limits(sites, index["norm"].take(first), select)
    place[beyond(first, place <= EXEMPTED, exempt, key, hard)] = SITE_HARD
    if hard_place is not None:
        place = np.maximum(place, hard_place * is_out(hard_place))  # what is out is the largest
    place[beyond(first, place <= EXEMPTED, exempt, key, soft)] = SITE_SOFT
    slept = (type_ == np.uint8(RowType.SLEEPING)) & (index["reason"] == np.uint8(Reason.FRESH))
    new = in_contrib(index["oid"]) | slept
    place[beyond(first, (place <= EXEMPTED) & new, exempt, key, fresh)] = FRESH
    return place


def _unreferenced(index: Columns) -> I64:
    """Pages that nothing links to any more, of which there is no content, or by now only an error."""
    rows = np.flatnonzero(with_flag(index["flags"], Flag.UNREFERENCED) & ~with_flag(index["flags"], SACRED))
    type_, digest = index["type"].take(rows), index["digest"].take(rows)
    open_ = np.isin(type_, (RowType.UNGATHERED, RowType.SLEEPING)) & (digest == 0)
    return rows.compress(open_ | (type_ == RowType.ERROR))


def unsettled(norm: U64, place: U8, hard_place: U8) -> I64:
    """The rows of norms in which hard limits of servers and sections have struck rows that may have taken room below a soft
    limit of the site, while others were over that limit.
    """
    freed, waiting = np.flatnonzero(is_out(hard_place) & ~is_out(place)), np.flatnonzero(over_soft(hard_place))
    if not len(freed) or not len(waiting):
        return np.zeros(0, np.int64)
    number = np.cumsum(run_starts(norm))
    both = np.zeros((2, int(number[-1]) + 1), np.bool_)
    both[0, number.take(freed)] = both[1, number.take(waiting)] = True
    return np.flatnonzero((both[0] & both[1]).take(number))


def settle_again(index: Columns, sites: Columns, key: U16, hard_place: U8, select: config.Select) -> U8:
    """The places of unsettled rows, which `index` holds alone."""
    return _places(index, sites, np.flatnonzero(run_starts(index["norm"])), key, hard_place, select)


def site_limits(sites: Columns, norm: U64, select: config.Select) -> tuple[I64, I64, I64]:
    """Soft, hard and fresh limit of each norm: a normalised site may have as much as the most favoured of its sites."""
    defaults = (select.site_soft, max(select.site_hard, select.site_soft), select.fresh)
    if not {"soft_limit", "hard_limit", "fresh_limit"} & sites.keys():
        same = [np.full(len(norm), default, np.int64) for default in defaults]
        return same[0], same[1], same[2]
    soft = _or_default(sites, "soft_limit", select.site_soft)
    hard = np.maximum(_or_default(sites, "hard_limit", select.site_hard), soft)
    fresh = _or_default(sites, "fresh_limit", select.fresh)
    first = np.flatnonzero(run_starts(sites["norm"]))
    row = find_sites(sites["norm"][first], norm)
    limits = zip((soft, hard, fresh), defaults, strict=True)
    most = [np.append(np.maximum.reduceat(own, first) if len(first) else own, default) for own, default in limits]
    return most[0][row], most[1][row], most[2][row]


def _or_default(sites: Columns, name: str, default: int) -> I64:
    limit = sites.get(name)
    if limit is None:
        return np.full(len(sites["norm"]), default, np.int64)
    return np.where(limit == NO_LIMIT, default, limit.astype(np.int64))


def beyond(first: I64, members: Bools, ahead: Bools, key: U16, limit: I64) -> I64:
    """The members that do not fit into the limit of their group, in which those `ahead` come first, then the best, then the
    first. Groups are consecutive rows, from `first` on. Those ahead are never among the result, but take their room.
    """
    size = np.diff(np.append(first, len(members)))
    large = np.flatnonzero(size > limit)
    if not len(large):
        return large
    size, room = size[large], limit[large]
    group = np.repeat(np.arange(len(large)), size)
    rows = np.repeat(first[large] - (np.cumsum(size) - size), size) + np.arange(len(group))
    inside = members.take(rows)
    crowded = np.bincount(group.compress(inside), minlength=len(large)) > room
    inside &= crowded.take(group)
    rows, group = rows.compress(inside), group.compress(inside)
    order = np.argsort(65_535 - key.take(rows), kind="stable")
    order = order.take(by_key((group << 1 | ~ahead.take(rows)).take(order).astype(np.uint32)))
    rows, group = rows.take(order), group.take(order)
    over = run_ranks(run_starts(group)) >= room.take(group)
    return rows.compress(over & ~ahead.take(rows))


def count(index: Columns, surveyed: SurveyedRows, by_section: bool, bytes_: SpaceCounts) -> LimitCounts:
    """What must be known of all partitions together; without `by_section` no section has a limit."""
    lines = (stays(surveyed.place), sleeps(surveyed.place), surveyed.place == EXEMPTED)
    by_server = _by_server(lines, surveyed)
    section = np.zeros((len(lines), SECTIONS), np.int64)
    if by_section:
        section += np.stack([np.bincount(index["section"].compress(line), minlength=SECTIONS) for line in lines])
    rows = np.array([np.count_nonzero(line) for line in lines], np.int64)
    return LimitCounts(by_server, section, rows, bytes_)


def space_counts(index: Columns, surveyed: SurveyedRows, select: config.Select) -> SpaceCounts:
    """What is forgotten takes its bytes until the next merge: so a second select counts as the first one."""
    exempt, robots, gathered = with_flag(index["flags"], EXEMPT), with_flag(index["flags"], Flag.ROBOTS), was_gathered(index)
    is_aside, is_page = in_bucket(index["oid"]) & ~exempt & (robots | ~gathered), gathered & ~robots
    thin_bytes = int(np.count_nonzero(is_page & ~exempt)) * THIN_BYTES  # of those that may come to sleep
    exempt_bytes = int(cost(index, np.flatnonzero(surveyed.place == EXEMPTED), select).sum())
    aside, bodies = (int(index["size"][rows].sum(dtype=np.int64)) for rows in (is_aside, is_page))
    return SpaceCounts(exempt_bytes, aside + thin_bytes, bodies, int(np.count_nonzero(is_page)))


def _by_server(lines: Sequence[Bools], surveyed: SurveyedRows) -> list[tuple[Array, I64]]:
    """For each line the servers of the sites that have such rows, and how many each site has. No row is in two lines."""
    line_of = sum((mark(line, number) for number, line in enumerate(lines, 1)), np.zeros(len(surveyed.site), np.uint8))
    which = surveyed.site.astype(np.int64) << 2 | line_of  # so that one count does for all of them
    counts = np.bincount(which, minlength=len(surveyed.server) << 2).reshape(-1, 4)
    by_line = [counts[:, number] for number in range(1, len(lines) + 1)]
    return [(surveyed.server.compress(count > 0), count.compress(count > 0)) for count in by_line]


def recount(section: U8 | None, surveyed: SurveyedRows, place: U8) -> LimitCounts:
    """How the counts change when rows get new places; exempt ones stay what they are. None: no section has a limit."""
    rows = np.flatnonzero(surveyed.place != place)
    server = surveyed.server.take(surveyed.site.take(rows))
    before, after = surveyed.place.take(rows), place.take(rows)
    by_server, by_section, total = [(server[:0], rows[:0])] * 3, np.zeros((3, SECTIONS), np.int64), np.zeros(3, np.int64)
    for line, are in enumerate((stays, sleeps)):
        change = are(after).astype(np.int64) - are(before)
        changed = np.flatnonzero(change)
        by_server[line] = server.take(changed), change.take(changed)
        total[line] = change.sum()
        if section is not None:
            np.add.at(by_section[line], section.take(rows), change)
    return LimitCounts(by_server, by_section, total, SpaceCounts())
