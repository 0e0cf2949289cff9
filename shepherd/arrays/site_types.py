"""How many pages of each type some sites have, and which sites have most errors. Robots files are no pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shepherd.arrays.keys import find_sites, run_starts, with_flag
from shepherd.arrays.largest import Largest
from shepherd.formats.tables import I64, U64, Bools, Columns, Flag, RowType

TYPES: Final = max(RowType) + 1
COLUMNS: Final = ("site", "type", "flags")
ERROR_COLUMNS: Final = ("site", "type", "flags", "reason")
UNCOUNTED_ROWS: Final = 1 << 20  # errors that are collected before they are counted
REASON_BITS: Final = 8


def types_of_sites(sites: U64, rows: Columns) -> I64:
    """By place of the site in `sites` (sorted, no two equal) and by type. Partitions add up."""
    place = find_sites(sites, rows["site"])
    is_page = (place >= 0) & ~with_flag(rows["flags"], Flag.ROBOTS)
    both = place[is_page] * TYPES + rows["type"][is_page]
    return np.bincount(both, minlength=len(sites) * TYPES).reshape(len(sites), TYPES)


@dataclass(frozen=True)
class FailingSite:
    """A site, by its place in the table of sites, with its errors and the reason that most of them have."""

    place: int
    errors: int
    mostly: int


def _nothing() -> I64:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Errors:
    """Errors by site and reason. `keys` are the pairs, each once, sorted, with their `counts`.

    `more` are not counted yet: at most `uncounted_rows` of them.
    """

    keys: I64 = field(default_factory=_nothing)
    counts: I64 = field(default_factory=_nothing)
    more: tuple[I64, ...] = ()
    uncounted_rows: int = UNCOUNTED_ROWS

    def with_more(self, sites: U64, rows: Columns) -> Errors:
        """Those of one more partition; `sites` is the column of the table of sites."""
        is_error = are_errors(rows)
        place = find_sites(sites, rows["site"][is_error])
        has_site = place >= 0  # a damaged index could have rows of no site
        keys = place[has_site] << REASON_BITS | rows["reason"][is_error][has_site]
        errors = Errors(self.keys, self.counts, (*self.more, keys), self.uncounted_rows)
        return errors if sum(map(len, errors.more)) < self.uncounted_rows else errors._with_all_counted()

    def most(self, limit: int) -> list[FailingSite]:
        """The sites with most errors, largest first; of equal ones the first in the table."""
        total = self._with_all_counted()
        first = np.flatnonzero(run_starts(total.keys >> REASON_BITS))
        if not len(first):
            return []
        best = Largest(limit).with_more(total.keys[first] >> REASON_BITS, np.add.reduceat(total.counts, first))
        places = zip(best.rows.tolist(), best.values.tolist(), strict=True)
        return [FailingSite(place, errors, total._mostly(place)) for place, errors in places]

    def _with_all_counted(self) -> Errors:
        more = np.concatenate((_nothing(), *self.more))
        keys = np.concatenate((self.keys, more))
        counts = np.concatenate((self.counts, np.ones(len(more), np.int64)))
        order = np.argsort(keys)
        first = np.flatnonzero(run_starts(keys[order]))
        if not len(first):
            return self
        return Errors(keys[order[first]], np.add.reduceat(counts[order], first), uncounted_rows=self.uncounted_rows)

    def _mostly(self, place: int) -> int:
        """The lowest of the most frequent reasons of a site."""
        start, stop = np.searchsorted(self.keys, [place << REASON_BITS, place + 1 << REASON_BITS]).tolist()
        return int(self.keys[start + int(self.counts[start:stop].argmax())]) & (1 << REASON_BITS) - 1


def are_errors(rows: Columns) -> Bools:
    return np.asarray((rows["type"] == np.uint8(RowType.ERROR)) & ~with_flag(rows["flags"], Flag.ROBOTS))
