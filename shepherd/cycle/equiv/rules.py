"""Normalised sites beyond the implicit rule, as footprints: what cf/url-equiv makes of the norms that reapers compute.

When the table changes, the rows of the sites that it concerns get another norm and stand elsewhere in the index; what are now
several rows of one document become one, as in a merge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shepherd.arrays.distinct_urls import Paths, take
from shepherd.arrays.keys import lower_bound
from shepherd.arrays.one_row import drop_equivalents, interleave
from shepherd.arrays.tally import Tally, tally
from shepherd.formats.tables import I64, U64, Array, Columns

KEY = ("norm", "path", "site")


@dataclass(frozen=True)
class Rejoined:
    """The rows of a partition, the sites it had and has, and the buckets of the rows that others stand for now."""

    columns: Mapping[str, Array]
    before: Tally
    after: Tally
    joined: U64


def rejoin(index: Columns, gone: I64, coming: Columns, paths: Paths, *, state: int) -> Rejoined:
    """A partition of whole normalised sites without the rows `gone`, and with rows, in order, that come from elsewhere."""
    stay = np.ones(len(index["norm"]), np.bool_)
    stay[gone] = False
    rows = np.flatnonzero(stay)
    before = lower_bound(*(index[name][rows] for name in KEY), *(coming[name] for name in KEY))
    columns = interleave(index, rows, coming, before)
    kept = drop_equivalents(columns, np.ones(len(columns["norm"]), np.bool_), paths)
    columns["flags"][kept.heir], columns["weight"][kept.heir], columns["touched"][kept.heir] = kept.flags, kept.weight, state
    dropped = np.ones(len(columns["norm"]), np.bool_)
    dropped[kept.row] = False
    left = take(columns, kept.row)
    return Rejoined(left, tally(index), tally(left), columns["oid"][dropped])
