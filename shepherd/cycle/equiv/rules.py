"""Normalised sites beyond the implicit rule, as footprints: what cf/url-equiv makes of the norms that reapers compute.

When the table changes, the rows of the sites that it concerns get another norm and stand elsewhere in the index; what are now
several rows of one document become one, as in a merge. And which normalised sites look like one: the same root page, then the
same pages under the same paths. Equal root pages alone prove little, for a thousand parked domains have
one; they only say which sites are worth comparing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.distinct_urls import Paths, take
from shepherd.arrays.keys import find_sites, lower_bound, run_starts, with_flag
from shepherd.arrays.one_row import drop_equivalents, interleave
from shepherd.arrays.tally import SiteTally, tally
from shepherd.formats.tables import I64, U64, Array, Bools, Columns, Flag, RowType

KEY = ("norm", "path", "site")


@dataclass(frozen=True)
class RejoinedRows:
    """The rows of a partition, the sites it had and has, and the buckets of the rows that others stand for now."""

    columns: Mapping[str, Array]
    before: SiteTally
    after: SiteTally
    joined: U64


def rejoin(index: Columns, leaving: I64, coming: Columns, paths: Paths, firsts: U64, *, state: int) -> RejoinedRows:
    """A partition of whole normalised sites without the rows `leaving`, and with rows, in order, that come from elsewhere."""
    stay = np.ones(len(index["norm"]), np.bool_)
    stay[leaving] = False
    rows = np.flatnonzero(stay)
    before = lower_bound(*(index[name][rows] for name in KEY), *(coming[name] for name in KEY))
    columns = interleave(index, rows, coming, before)
    survivors = drop_equivalents(columns, np.ones(len(columns["norm"]), np.bool_), paths, firsts)
    columns["flags"][survivors.heir], columns["weight"][survivors.heir] = survivors.flags, survivors.weight
    columns["touched"][survivors.heir] = state
    dropped = np.ones(len(columns["norm"]), np.bool_)
    dropped[survivors.row] = False
    rows_left = take(columns, survivors.row)
    return RejoinedRows(rows_left, tally(index), tally(rows_left), columns["oid"][dropped])


# --- how alike two sites are --------------------------------------------------------------------------------------


MOST_ALIKE: Final = 50  # more sites with one root page than this are a host's default page, not mirrors
NEAR_BITS: Final = 3  # simhashes that differ in no more than this are of nearly the same text


@dataclass(frozen=True)
class Agreement:
    """What two sites have in common: paths gathered on both, and on how many of them the pages are equal."""

    common: int
    equal: int


def has_page(rows: Columns) -> Bools:
    """Gathered pages with a body to compare; redirects and robots files have none."""
    page = (rows["type"] == RowType.GATHERED) & (rows["digest"] != 0)
    return np.asarray(page & ~with_flag(rows["flags"], int(Flag.ROBOTS | Flag.REDIRECT)))


def alike(norm: U64, digest: U64) -> list[U64]:
    """Groups of norms whose root pages have one digest, each norm once, the groups and their norms in order."""
    order = np.lexsort((norm, digest))
    norm, digest = norm[order], digest[order]
    once = run_starts(digest, norm)
    norm, digest = norm[once], digest[once]
    first = np.flatnonzero(run_starts(digest))
    groups = [group for group in np.split(norm, first[1:]) if 1 < len(group) <= MOST_ALIKE]
    return sorted(groups, key=lambda group: int(group[0]))


def pages_of(columns: Columns) -> tuple[U64, U64]:
    """Path and digest of the pages of a normalised site, each path once; they stand in the order of their paths."""
    page = has_page(columns)
    path, digest = columns["path"][page], columns["digest"][page]
    first = run_starts(path)
    return path[first], digest[first]


def agreement(some: Columns, others: Columns) -> Agreement:
    """Of the rows of two normalised sites."""
    (path, digest), (other_path, other_digest) = pages_of(some), pages_of(others)
    place = find_sites(other_path, path)
    common = place >= 0
    return Agreement(int(np.count_nonzero(common)), int(np.count_nonzero(digest[common] == other_digest[place[common]])))


def near(some: int, other: int) -> bool:
    """Whether two simhashes are of nearly the same text."""
    return (some ^ other).bit_count() <= NEAR_BITS
