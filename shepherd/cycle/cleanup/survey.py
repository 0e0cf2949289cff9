"""How full the segments of a state are, by its columns alone; and the rows that hold certain segments.

Memory is bounded by a partition, by one number a segment, and by one byte a site.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import distinct, find_sites, with_flag
from shepherd.arrays.partitions import Tick, partitions
from shepherd.arrays.pool import ordered, tasks
from shepherd.arrays.rows import THIN_BYTES
from shepherd.cycle.cleanup import rules as cleanup
from shepherd.cycle.cleanup.rules import Look, Wishes
from shepherd.cycle.cleanup.shakedown import Fill
from shepherd.errors import CHECK_LISTS, Corruption
from shepherd.formats.tables import I64, U64, Array, Bools, Flag, RowType, in_bucket
from shepherd.readers.segments import Claims
from shepherd.store.disk import names
from shepherd.store.state.directory import State


@dataclass(frozen=True)
class IndexWishes:
    """What is known of rows beyond their columns, for the whole index: `cleanup.Wishes` of any range of it."""

    rejected: Bools | None = None
    section: Array | None = None
    hollow: I64 | None = None
    settled: I64 | None = None

    def of(self, start: int, stop: int) -> Wishes:
        return Wishes(
            None if self.rejected is None else self.rejected[start:stop],
            None if self.section is None else self.section[start:stop],
            *(None if rows is None else _within(rows, start, stop) for rows in (self.hollow, self.settled)),
        )


def _within(rows: I64, start: int, stop: int) -> I64:
    first, last = np.searchsorted(rows, [start, stop]).tolist()
    return rows[first:last] - start


@dataclass(frozen=True)
class LonelyRobots:
    """Robots files that sites hold, though no row does: their buckets are needed, too."""

    oid: U64
    size: I64


@dataclass(frozen=True)
class SegmentSurvey:
    look: Look
    fill: Fill
    robots: LonelyRobots
    deleted: I64  # the rows of documents that an operator deleted

    @property
    def needed(self) -> int:
        """All bytes that are needed, with the thin buckets that trimmed rows will get."""
        return int(self.fill.bytes.sum()) + self.look.trims * THIN_BYTES


def survey(state: State, wishes: IndexWishes, step: int, jobs: int, tick: Tick = lambda rows: None) -> SegmentSurvey:
    """All rows, as if they were marked as `wishes` says. A row that points beyond its segment is Corruption."""
    lengths = segment_lengths(state)
    ranges = list(partitions(state.index.rows, step))
    work = tasks(_look, state, lengths, ((start, stop, wishes.of(start, stop)) for start, stop in ranges))
    total = cleanup.nothing(len(lengths))
    deleted: list[I64] = [np.zeros(0, np.int64)]
    site, robots_oid = (state.sites[name][0 : state.sites.rows] for name in ("site", "robots_oid"))
    has_row = np.zeros(len(site), np.bool_)
    for (start, stop), (look, rows, sites, oids) in zip(ranges, ordered(work, jobs), strict=True):
        total += look
        deleted.append(rows)
        place = find_sites(site, sites)
        has_row[place[place >= 0]] |= robots_oid[place[place >= 0]] == oids[place >= 0]
        tick(stop - start)
    robots = _lonely_robots(state, robots_oid, has_row)
    return SegmentSurvey(total, fill_of(total, robots, segment_lengths(state)), robots, np.concatenate(deleted))


def _look(state: State, lengths: I64, part: tuple[int, int, Wishes]) -> tuple[Look, I64, U64, U64]:
    """Of one partition: the look at it, the rows that an operator deleted, and the robots files with their sites."""
    start, stop, wishes = part
    index = state.index.slice(start, stop, (*cleanup.READ, "site"))
    _within_segments(state, index, lengths, start)
    robots = with_flag(index["flags"], Flag.ROBOTS) & in_bucket(index["oid"]) & (index["type"] != RowType.FORGOTTEN)
    deleted = (index["type"] == RowType.FORGOTTEN) & cleanup.is_deleted(index["reason"])
    look = cleanup.look(index, wishes, len(lengths))
    return look, np.flatnonzero(deleted) + start, index["site"][robots], index["oid"][robots]


def fill_by_columns(state: State, step: int) -> Fill:
    """How full the segments are, quickly: by what rows hold, whatever a cleanup would do to them first. Looks for no damage."""
    lengths = segment_lengths(state)
    rows, bytes_ = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    for start, stop in partitions(state.index.rows, step):
        index = state.index.slice(start, stop, ("oid", "size", "type", "reason"))
        needed = in_bucket(index["oid"]) & ~_stale(index) & (index["oid"] >> np.uint64(32) < len(lengths))
        segment = (index["oid"][needed] >> np.uint64(32)).astype(np.int64)
        rows += np.bincount(segment, minlength=len(lengths))
        bytes_ += np.bincount(segment, index["size"][needed], len(lengths)).astype(np.int64)
    number = np.flatnonzero(lengths >= 0)
    return Fill(number, lengths[number], rows[number], bytes_[number])


def segment_lengths(state: State) -> I64:
    """By number; -1 where there is no such segment."""
    lengths = np.full(state.control.segments, -1, np.int64)
    for number in state.segments():
        lengths[number] = state.control.files[f"{names.OBJECTS}/{names.segment(number)}"].length
    return lengths


def _within_segments(state: State, index: dict[str, Array], lengths: I64, start: int) -> None:
    rows = np.flatnonzero(in_bucket(index["oid"]))
    oid = index["oid"][rows]
    segment = (oid >> np.uint64(32)).astype(np.int64)
    end = (oid & np.uint64(0xFFFFFFFF)).astype(np.int64) + index["size"][rows]
    there = segment < len(lengths)
    wrong = ~there
    wrong[there] = (lengths[segment[there]] < 0) | (end[there] > lengths[segment[there]])
    if wrong.any():
        row = start + int(rows[np.argmax(wrong)])
        raise Corruption("points beyond its segment", state.path / "index" / "oid", row * 8, CHECK_LISTS)


def _lonely_robots(state: State, robots_oid: U64, has_row: Bools) -> LonelyRobots:
    oid = distinct(robots_oid[in_bucket(robots_oid) & ~has_row])
    return LonelyRobots(oid, np.array([state.objects.head(place).header.length for place in oid.tolist()], np.int64))


def fill_of(look: Look, robots: LonelyRobots, lengths: I64) -> Fill:
    """How full the segments are by what rows and sites hold; `lengths` by number, -1 for none."""
    number = np.flatnonzero(lengths >= 0)
    rows, bytes_ = look.rows.copy(), look.bytes.copy()
    segment = (robots.oid >> np.uint64(32)).astype(np.int64)
    np.add.at(rows, segment, 1)
    np.add.at(bytes_, segment, robots.size)
    return Fill(number, lengths[number], rows[number], bytes_[number])


# --- who holds a segment ----------------------------------------------------------------------------------------


def claims(state: State, segments: I64, robots: LonelyRobots, step: int) -> Claims:
    """Every needed bucket of these segments. Two rows that hold the same one are Corruption."""
    in_segments = np.zeros(state.control.segments, np.bool_)
    in_segments[segments] = True
    parts: list[tuple[Array, Array, Array]] = []
    for start, stop in partitions(state.index.rows, step):
        index = state.index.slice(start, stop, ("oid", "size", "type", "reason"))
        rows = np.flatnonzero(in_bucket(index["oid"]) & ~_stale(index))
        rows = rows[in_segments[(index["oid"][rows] >> np.uint64(32)).astype(np.int64)]]
        parts.append((index["oid"][rows], index["size"][rows], rows + start))
    lonely = in_segments[(robots.oid >> np.uint64(32)).astype(np.int64)]
    parts.append((robots.oid[lonely], robots.size[lonely], np.full(np.count_nonzero(lonely), -1)))
    oid, size, row = (np.concatenate([part[n] for part in parts]) for n in range(3))
    order = np.argsort(oid, kind="stable")
    oid, size, row = oid[order], size[order].astype(np.int64), row[order].astype(np.int64)
    twice = np.flatnonzero(oid[1:] == oid[:-1])
    if len(twice):
        where = state.path / "index" / "oid"
        raise Corruption("its bucket is claimed by another row too", where, int(row[twice[0] + 1]) * 8)
    return Claims(oid, size, row)


def _stale(index: dict[str, Array]) -> Bools:
    return np.asarray((index["type"] == RowType.FORGOTTEN) & ~cleanup.is_deleted(index["reason"]))


def groups(state: State, robots: LonelyRobots, rows: int, step: int) -> Iterator[I64]:
    """The numbers of all segments that `claims` finds something in, some at a time: at most so many buckets, or one segment.

    Counted anew, because a survey leaves out what rows are about to let go of.
    """
    counts = np.bincount((robots.oid >> np.uint64(32)).astype(np.int64), minlength=state.control.segments)
    for start, stop in partitions(state.index.rows, step):
        index = state.index.slice(start, stop, ("oid", "type", "reason"))
        oids = index["oid"][in_bucket(index["oid"]) & ~_stale(index)]
        counts += np.bincount((oids >> np.uint64(32)).astype(np.int64), minlength=len(counts))
    numbers: list[int] = []
    total = 0
    for number in np.flatnonzero(counts).tolist():
        if numbers and total + counts[number] > rows:
            yield np.array(numbers, np.int64)
            numbers, total = [], 0
        numbers.append(number)
        total += counts[number]
    if numbers:
        yield np.array(numbers, np.int64)
