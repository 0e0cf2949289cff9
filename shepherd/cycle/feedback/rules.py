"""What an indexer's feedback changes in the index: weights, and whether anything still links to a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.distinct_urls import Paths, find_known
from shepherd.arrays.keys import with_flag
from shepherd.arrays.rows import IN_USE
from shepherd.formats.feedback import FeedbackFlag
from shepherd.formats.tables import Array, Columns, Flag

READ: Final = ("norm", "path", "site", "type", "weight", "flags", "touched")
CHANGED: Final = ("weight", "flags", "touched")


@dataclass(frozen=True)
class Heard:
    columns: Mapping[str, Array]
    counts: Mapping[str, int]


def apply(index: Columns, said: Columns, paths: Paths, *, state: int) -> Heard:
    """One partition. `said` has norm, path, site, weight and flags of feedback, in the order in which it was given.

    Of two that speak of the same document the later one holds. Errors and what is forgotten have no rank.
    """
    row, _place = find_known(index, said, paths)
    known = row >= 0
    heard = known.copy()
    heard[known] = np.isin(index["type"][row[known]], IN_USE)
    row = row[heard]
    columns = {name: index[name].copy() for name in CHANGED}
    told, weight = said["flags"][heard], said["weight"][heard]
    given = with_flag(told, FeedbackFlag.WEIGHT)
    columns["weight"][row[given]] = weight[given]
    about = with_flag(told, FeedbackFlag.UNREFERENCED | FeedbackFlag.REFERENCED)
    lost = with_flag(told, FeedbackFlag.UNREFERENCED)[about]
    flags = columns["flags"][row[about]] & np.uint16(0xFFFF ^ Flag.UNREFERENCED)
    columns["flags"][row[about]] = flags | np.where(lost, np.uint16(Flag.UNREFERENCED), np.uint16(0))
    changed = (columns["weight"] != index["weight"]) | (columns["flags"] != index["flags"])
    columns["touched"][changed] = state
    counts = {
        "heard": int(np.count_nonzero(heard)),
        "changed rows": int(np.count_nonzero(changed)),
        "of errors or forgotten rows": int(np.count_nonzero(known & ~heard)),
        "of unknown URLs": int(np.count_nonzero(~known)),
    }
    return Heard(columns, counts)
