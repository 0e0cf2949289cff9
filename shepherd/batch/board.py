"""What select knows of every row: the survey of all partitions, put aside, and the places after the limits found so far.

Only the survey is kept. Everything else is computed again from it, partition by partition, in whatever process needs it: so
memory does not grow with the index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shepherd.batch.aside import Aside
from shepherd.batch.pool import ordered
from shepherd.batch.sitesof import SitesOf
from shepherd.config import Config
from shepherd.formats.tables import I64, U8, Array
from shepherd.phases import bars, survey
from shepherd.phases.select import Groups, strike
from shepherd.phases.survey import SECTIONS, Counts, Place, Surveyed
from shepherd.store.state import State

# Rows of one partition: the group of each (None: all are of one), its place in the order of all rows, what it needs (None: 1).
Members: TypeAlias = tuple[Array | None, I64, I64 | None]


@dataclass(frozen=True)
class Strike:
    """The bars of groups that hold more than they may, and what becomes of the rows that are not before them."""

    groups: Groups
    bars: I64
    by_server: bool  # else by section
    place: Place


@dataclass(frozen=True)
class Totals:
    """survey.Counts of all partitions, the servers by row of their table."""

    server: I64
    section: I64
    exempt_bytes: int


class Board:
    """`survey` comes first; from then on partitions go by their number."""

    def __init__(
        self, state: State, config: Config, ranges: Sequence[tuple[int, int]], sites: SitesOf, scratch: Aside, jobs: int
    ) -> None:
        self.state, self.ranges = state, ranges
        self._config, self._sites, self._aside, self._jobs = config, sites, scratch, jobs
        self._bits = bars.row_bits(state.index.rows)
        self._start = np.array([start for start, _ in ranges], np.int64)
        self._stop = np.array([stop for _, stop in ranges], np.int64)

    def survey(self, struck: Callable[[int], U8] | None = None) -> Totals:
        """Go over all rows, and put aside what is found. `struck` gives the places that hard limits have left the rows."""
        config = self._config

        def one(part: int) -> tuple[Surveyed, Counts]:
            index = self.state.index.slice(*self.ranges[part], survey.OF_INDEX)
            out = struck(part) if struck is not None else None
            return survey.survey(index, self._sites[part], out, config.select, config.section_bonus)

        server = np.zeros((3, self.state.servers.rows + 1), np.int64)  # one more: the rows without a server
        section, exempt_bytes = np.zeros((3, SECTIONS), np.int64), 0
        for found, counts in ordered(one, range(len(self.ranges)), self._jobs):
            self._aside.add(vars(found))
            for line in range(3):
                np.add.at(server[line], found.run_server, counts.server[line])
            section += counts.section
            exempt_bytes += counts.exempt_bytes
        self._aside.seal()
        return Totals(server[:, :-1], section, exempt_bytes)

    def surveyed(self, part: int) -> Surveyed:
        return Surveyed(**self._aside[part])

    def order(self, part: int) -> I64:
        """The place of each row in the order of all rows."""
        return bars.places(self.surveyed(part).key, np.arange(*self.ranges[part], dtype=np.int64), self._bits)

    def group(self, part: int, groups: Groups, by_server: bool) -> Array:
        """The number of the group of each row, or -1."""
        if not by_server:
            return groups.number[self.state.index["section"][slice(*self.ranges[part])]]
        found = self.surveyed(part)
        return np.repeat(groups.number[found.run_server], found.run_rows)

    def strike(self, part: int, place: U8, strikes: Sequence[Strike]) -> U8:
        """The places after some limits, one after the other."""
        for one in strikes:
            place = strike(place, self.group(part, one.groups, one.by_server), self.order(part), one.bars, one.place)
        return place

    def find_bars(self, room: I64, members: Callable[[int], Members]) -> I64:
        """For each group the place of the first row that does not fit."""
        search = bars.begin(room, self._bits)
        while not search.done:
            total = np.zeros(search.counters, np.int64)
            parts = np.flatnonzero(bars.wanted(search, self._bits, self._start, self._stop)).tolist()
            now = search

            def one(part: int, now: bars.Search = now) -> bars.Tally:
                return bars.tally(now, *members(part))

            for tally in ordered(one, parts, self._jobs):
                total[tally.counter] += tally.amount
            search = bars.narrow(search, total)
        return search.bars
