"""What select knows of every row: the survey of all partitions, put aside, and the places after the limits settled so far.

Both stand in scratch files, and are read partition by partition, in whatever process needs them: so memory does not grow with the
index. What is asked of a partition is plain data, too: the rules below are module functions or frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shepherd import config
from shepherd.arrays import thresholds
from shepherd.arrays.grouping import ByKey, Grouping, OneGroup, behind, members
from shepherd.arrays.pool import ordered, tasks
from shepherd.arrays.spill import SealedSpill, Spill
from shepherd.arrays.thresholds import CounterTally, Members, Search, Window
from shepherd.cycle.select import survey
from shepherd.cycle.select.rules import CrowdedGroups, has_space_limit
from shepherd.cycle.select.site_settings import SitesOf
from shepherd.cycle.select.survey import SECTIONS, LimitCounts, SpaceCounts, SurveyedRows
from shepherd.formats.tables import I64, U8, Bools, Columns
from shepherd.store.state.directory import State

Range = tuple[int, int]


@dataclass(frozen=True)
class Totals:
    """survey.LimitCounts of all partitions, and its three lines; the servers by row of their table, and one more for none."""

    server: I64
    section: I64
    rows: I64
    bytes_: SpaceCounts

    @staticmethod
    def nothing(servers: int) -> Totals:
        lines = np.zeros((3, servers + 1), np.int64), np.zeros((3, SECTIONS), np.int64), np.zeros(3, np.int64)
        return Totals(*lines, SpaceCounts())

    def plus(self, parts: Iterable[LimitCounts]) -> Totals:
        server, section, rows, bytes_ = self.server.copy(), self.section.copy(), self.rows.copy(), self.bytes_
        for counts in parts:
            for line, (which, count) in zip(server, counts.by_server, strict=True):
                np.add.at(line, which, count)
            section += counts.section
            rows += counts.rows
            bytes_ = bytes_.plus(counts.bytes_)
        return Totals(server, section, rows, bytes_)


@dataclass(frozen=True)
class PlacedRows:
    """All rows with their places so far, for any process that can open the scratch files. Partitions go by their number."""

    ranges: Sequence[Range]
    bits: int
    settings: config.Select
    sites: SitesOf
    surveys: SealedSpill
    places: SealedSpill

    def surveyed(self, part: int) -> SurveyedRows:
        return SurveyedRows(**self.surveys[part])

    def place(self, part: int) -> U8:
        """Where the rows of a partition stand, after all that is settled."""
        place: U8 = self.places[part]["place"]
        return place

    def behind(self, part: int, candidates: Bools, grouping: Grouping, bars: I64) -> Bools:
        """Which candidates are not before the bars that `find_bars` has found."""
        return behind(candidates, self.surveyed(part).key, self.ranges[part][0], grouping, bars, self.bits)


# What is asked of a partition, by its number.
Candidates: TypeAlias = Callable[[PlacedRows, int], Bools]
GroupingOf: TypeAlias = Callable[[State, PlacedRows, int], Grouping]
Cost: TypeAlias = Callable[[State, PlacedRows, int, I64], I64]
PlaceRule: TypeAlias = Callable[[State, PlacedRows, int], U8]


@dataclass(frozen=True)
class ByGroups:
    """The rows of a partition by their servers or sections."""

    groups: CrowdedGroups
    by_server: bool

    def __call__(self, state: State, rows: PlacedRows, part: int) -> Grouping:
        if not self.by_server:
            return ByKey(self.groups.number, state.index["section"][slice(*rows.ranges[part])])
        surveyed = rows.surveyed(part)
        return ByKey(self.groups.number.take(surveyed.server), surveyed.site)


def one_group(_state: State, _rows: PlacedRows, _part: int) -> Grouping:
    return OneGroup()


@dataclass(frozen=True)
class Contest:
    """Which rows compete for the room of which groups, and what each needs of it: 1 without a `cost`."""

    candidates: Candidates
    grouping: GroupingOf = one_group
    cost: Cost | None = None

    def members(self, state: State, rows: PlacedRows, part: int, window: Window) -> Members:
        key, first_row = rows.surveyed(part).key, rows.ranges[part][0]
        candidates, grouping = self.candidates(rows, part), self.grouping(state, rows, part)
        row, competing = members(candidates, key, first_row, grouping, window)
        return competing if self.cost is None else replace(competing, amount=self.cost(state, rows, part, row))


class SelectPasses:
    """`survey` comes first, then limits: `find_bars` and `settle` in turn."""

    def __init__(
        self,
        state: State,
        settings: config.Config,
        ranges: Sequence[Range],
        sites: SitesOf,
        new_spill: Callable[[], Spill],
        jobs: int,
    ) -> None:
        self.state, self.jobs = state, jobs
        self._settings, self._ranges, self._sites, self._new_spill = settings, ranges, sites, new_spill
        self._by_section = any(vars(settings.sections).values())
        self._start = np.array([start for start, _ in ranges], np.int64)
        self._stop = np.array([stop for _, stop in ranges], np.int64)
        self._rows: PlacedRows | None = None

    @property
    def rows(self) -> PlacedRows:
        assert self._rows is not None, "no survey yet"
        return self._rows

    def survey(self) -> Totals:
        """Go over all rows, and put the survey aside."""
        select, bonus = self._settings.select, self._settings.section_bonus
        by_space = has_space_limit(self._settings)
        needs_column = {"size": by_space, "section": self._by_section or any(vars(bonus).values())}
        columns = tuple(name for name in survey.OF_INDEX if needs_column.get(name, True))
        shared = _SurveyPass(self._sites, columns, select, bonus, self._by_section, by_space)
        work = tasks(_survey_part, self.state, shared, enumerate(self._ranges))
        spill = self._new_spill()
        totals = Totals.nothing(self.state.servers.rows).plus(_put_aside(spill, ordered(work, self.jobs)))
        surveys, bits = spill.seal(), thresholds.row_bits(self.state.index.rows)
        # An estimate below what pages take would let in what a cleanup then drops, again and again.
        estimate = max(select.average_bytes, totals.bytes_.mean)
        self._rows = PlacedRows(self._ranges, bits, replace(select, average_bytes=estimate), self._sites, surveys, surveys)
        return totals

    def settle(self, rule: PlaceRule) -> None:
        """New places for all rows."""
        spill = self._new_spill()
        for place in ordered(tasks(_place_part, self.state, (self.rows, rule), range(len(self._ranges))), self.jobs):
            spill.add({"place": place})
        self._rows = replace(self.rows, places=spill.seal())

    def settle_hard(self, rule: PlaceRule, totals: Totals) -> Totals:
        """The same for hard limits: what they strike takes no room below the soft limits of sites. Gives the totals then."""
        spill = self._new_spill()
        work = tasks(_place_hard, self.state, (self.rows, rule, self._by_section), range(len(self._ranges)))
        totals = totals.plus(_put_aside(spill, ordered(work, self.jobs)))
        self._rows = replace(self.rows, places=spill.seal())
        return totals

    def find_bars(self, room: I64, contest: Contest) -> I64:
        """For each group the place of the first candidate that does not fit."""
        bits = self.rows.bits
        search = thresholds.begin(room, bits)
        while not search.is_done:
            shared = _SearchPass(self.rows, contest, search, thresholds.window(search, bits))
            parts = np.flatnonzero(thresholds.must_be_read(search, bits, self._start, self._stop)).tolist()
            if search.few and contest.cost is None:
                numbers = list(ordered(tasks(_collect, self.state, shared, parts), self.jobs))
                search = thresholds.finish(search, np.concatenate(numbers))
                break
            total = np.zeros(search.counters, np.int64)
            for tally in ordered(tasks(_tally, self.state, shared, parts), self.jobs):
                total[tally.counter] += tally.amount
            search = thresholds.narrow(search, total)
        return search.bars


def _put_aside(spill: Spill, parts: Iterable[tuple[Columns, LimitCounts]]) -> Iterator[LimitCounts]:
    """The counts of the partitions, whose arrays are put aside as they come."""
    for arrays, counts in parts:
        spill.add(arrays)
        yield counts


# --- the work on one partition -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _SurveyPass:
    sites: SitesOf
    columns: Sequence[str]
    select: config.Select
    bonus: config.SectionBonus
    by_section: bool
    by_space: bool


def _survey_part(state: State, shared: _SurveyPass, part: tuple[int, Range]) -> tuple[Columns, LimitCounts]:
    number, rows = part
    index = state.index.slice(*rows, shared.columns)
    surveyed = survey.survey(index, shared.sites[number], shared.select, shared.bonus)
    bytes_ = survey.space_counts(index, surveyed, shared.select) if shared.by_space else SpaceCounts()
    return vars(surveyed), survey.count(index, surveyed, shared.by_section, bytes_)


def _place_part(state: State, shared: tuple[PlacedRows, PlaceRule], part: int) -> U8:
    rows, rule = shared
    return rule(state, rows, part)


def _place_hard(state: State, shared: tuple[PlacedRows, PlaceRule, bool], part: int) -> tuple[Columns, LimitCounts]:
    rows, rule, by_section = shared
    surveyed = rows.surveyed(part)
    place = _settle_sites(state, rows, part, surveyed, rule(state, rows, part))
    section = state.index["section"][slice(*rows.ranges[part])] if by_section else None
    return {"place": place}, survey.recount(section, surveyed, place)


def _settle_sites(state: State, rows: PlacedRows, part: int, surveyed: SurveyedRows, hard_places: U8) -> U8:
    """The places after the soft limits of sites, where some rows that these had counted are struck."""
    norm = state.index["norm"][slice(*rows.ranges[part])]
    unsettled = survey.unsettled(norm, surveyed.place, hard_places)
    if not len(unsettled):
        return hard_places
    index = state.index.slice(*rows.ranges[part], survey.OF_PLACES)
    some = {name: column.take(unsettled) for name, column in index.items()}
    key = surveyed.key.take(unsettled)
    place = hard_places.copy()
    place[unsettled] = survey.settle_again(some, rows.sites[part], key, hard_places.take(unsettled), rows.settings)
    return place


@dataclass(frozen=True)
class _SearchPass:
    rows: PlacedRows
    contest: Contest
    search: Search
    window: Window


def _collect(state: State, shared: _SearchPass, part: int) -> I64:
    competing = shared.contest.members(state, shared.rows, part, shared.window)
    return thresholds.collect(shared.search, competing, shared.rows.bits)


def _tally(state: State, shared: _SearchPass, part: int) -> CounterTally:
    competing = shared.contest.members(state, shared.rows, part, shared.window)
    return thresholds.tally(shared.search, competing, shared.rows.bits)
