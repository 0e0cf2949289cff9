"""What select knows of every row: the survey of all partitions, put aside, and the places after the limits found so far.

Both stand in files without a name, and are read partition by partition, in whatever process needs them: so memory does not grow
with the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shepherd.arrays import thresholds as bars
from shepherd.arrays.grouping import By, Grouping, behind, members
from shepherd.arrays.pool import ordered
from shepherd.arrays.spill import Aside
from shepherd.config import Config
from shepherd.cycle.select import survey
from shepherd.cycle.select.rules import Groups
from shepherd.cycle.select.site_settings import SitesOf
from shepherd.cycle.select.survey import SECTIONS, Counts, Surveyed
from shepherd.formats.tables import I64, U8, Bools, Columns
from shepherd.store.state.directory import State

Cost: TypeAlias = Callable[[int, I64], I64] | None


@dataclass(frozen=True)
class Totals:
    """survey.Counts of all partitions, and its three lines; the servers by row of their table, and one more for none."""

    server: I64
    section: I64
    rows: I64
    exempt_bytes: int

    @staticmethod
    def nothing(servers: int) -> Totals:
        return Totals(np.zeros((3, servers + 1), np.int64), np.zeros((3, SECTIONS), np.int64), np.zeros(3, np.int64), 0)

    def plus(self, parts: Iterable[Counts]) -> Totals:
        server, section, rows, exempt_bytes = self.server.copy(), self.section.copy(), self.rows.copy(), self.exempt_bytes
        for counts in parts:
            for line, (which, count) in zip(server, counts.by_server, strict=True):
                np.add.at(line, which, count)
            section += counts.section
            rows += counts.rows
            exempt_bytes += counts.exempt_bytes
        return Totals(server, section, rows, exempt_bytes)


class Board:
    """`survey` comes first, then limits: `find_bars` and `settle` in turn. Partitions go by their number."""

    def __init__(
        self, state: State, config: Config, ranges: Sequence[tuple[int, int]], sites: SitesOf, new: Callable[[], Aside], jobs: int
    ) -> None:
        """`new` gives us places to put things aside."""
        self.state, self.ranges, self.bits = state, ranges, bars.row_bits(state.index.rows)
        self._config, self._sites, self._new, self._jobs = config, sites, new, jobs
        self._by_section = any(vars(config.sections).values())
        self._start = np.array([start for start, _ in ranges], np.int64)
        self._stop = np.array([stop for _, stop in ranges], np.int64)
        self._surveys = self._places = new()

    def survey(self) -> Totals:
        """Go over all rows, and put aside what is found."""
        select, bonus = self._config.select, self._config.section_bonus
        wanted = {"size": bool(select.space_bytes), "section": self._by_section or any(vars(bonus).values())}
        columns = [name for name in survey.OF_INDEX if wanted.get(name, True)]

        def one(part: int) -> tuple[Columns, Counts]:
            index = self.state.index.slice(*self.ranges[part], columns)
            found = survey.survey(index, self._sites[part], select, bonus)
            return vars(found), survey.count(index, found, select, self._by_section)

        aside = self._new()
        totals = Totals.nothing(self.state.servers.rows).plus(_kept(aside, ordered(one, range(len(self.ranges)), self._jobs)))
        aside.seal()
        self._surveys = self._places = aside
        return totals

    def surveyed(self, part: int) -> Surveyed:
        return Surveyed(**self._surveys[part])

    def place(self, part: int) -> U8:
        """Where the rows of a partition stand, after all that is settled."""
        found: U8 = self._places[part]["place"]
        return found

    def settle(self, places: Callable[[int], U8]) -> None:
        """New places for all rows."""
        aside = self._new()
        for place in ordered(places, range(len(self.ranges)), self._jobs):
            aside.add({"place": place})
        aside.seal()
        self._places = aside

    def settle_hard(self, places: Callable[[int], U8], totals: Totals) -> Totals:
        """The same for hard limits: what they strike takes no room below the soft limits of sites. Gives the totals then."""

        def one(part: int) -> tuple[Columns, Counts]:
            found = self.surveyed(part)
            place = self._settle_sites(part, found, places(part))
            section = self.state.index["section"][slice(*self.ranges[part])] if self._by_section else None
            return {"place": place}, survey.recount(section, found, place)

        aside = self._new()
        totals = totals.plus(_kept(aside, ordered(one, range(len(self.ranges)), self._jobs)))
        aside.seal()
        self._places = aside
        return totals

    def _settle_sites(self, part: int, found: Surveyed, struck: U8) -> U8:
        """The places after the soft limits of sites, where some rows that these had counted are struck."""
        norm = self.state.index["norm"][slice(*self.ranges[part])]
        rows = survey.unsettled(norm, found.place, struck)
        if not len(rows):
            return struck
        index = self.state.index.slice(*self.ranges[part], survey.OF_PLACES)
        some = {name: column.take(rows) for name, column in index.items()}
        place = struck.copy()
        place[rows] = survey.settle_again(some, self._sites[part], found.key.take(rows), struck.take(rows), self._config.select)
        return place

    def grouping(self, part: int, groups: Groups, by_server: bool) -> Grouping:
        """The rows of a partition by their servers or sections."""
        if not by_server:
            return By(groups.number, self.state.index["section"][slice(*self.ranges[part])])
        found = self.surveyed(part)
        return By(groups.number.take(found.server), found.site)

    def find_bars(
        self, room: I64, candidates: Callable[[int], Bools], grouping: Callable[[int], Grouping], cost: Cost = None
    ) -> I64:
        """For each group the place of the first candidate that does not fit. `cost` is what rows of a partition need."""
        search = bars.begin(room, self.bits)
        while not search.done:
            window = bars.window(search, self.bits)

            def found(part: int, window: bars.Window = window) -> bars.Members:
                key, first = self.surveyed(part).key, self.ranges[part][0]
                rows, here = members(candidates(part), key, first, grouping(part), window)
                return here if cost is None else replace(here, amount=cost(part, rows))

            def collected(part: int, now: bars.Search = search) -> I64:
                return bars.collect(now, found(part), self.bits)

            def tallied(part: int, now: bars.Search = search) -> bars.Tally:
                return bars.tally(now, found(part), self.bits)

            parts = np.flatnonzero(bars.wanted(search, self.bits, self._start, self._stop)).tolist()
            if search.few and cost is None:
                search = bars.finish(search, np.concatenate(list(ordered(collected, parts, self._jobs))))
                break
            total = np.zeros(search.counters, np.int64)
            for tally in ordered(tallied, parts, self._jobs):
                total[tally.counter] += tally.amount
            search = bars.narrow(search, total)
        return search.bars

    def behind(self, part: int, candidates: Bools, grouping: Grouping, found: I64) -> Bools:
        """Which candidates are not before the bars that `find_bars` found."""
        return behind(candidates, self.surveyed(part).key, self.ranges[part][0], grouping, found, self.bits)


def _kept(aside: Aside, parts: Iterable[tuple[Columns, Counts]]) -> Iterator[Counts]:
    """The counts of the partitions, whose arrays are put aside as they come."""
    for arrays, counts in parts:
        aside.add(arrays)
        yield counts
