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
from shepherd.formats.tables import Array, Columns, Flag, RowType

READ: Final = ("norm", "path", "site", "type", "weight", "flags", "touched")
CHANGED: Final = ("weight", "flags", "touched")


@dataclass(frozen=True)
class UpdatedRows:
    columns: Mapping[str, Array]
    counts: Mapping[str, int]


def apply(index: Columns, uploads: Columns, paths: Paths, *, state: int) -> UpdatedRows:
    """One partition. `uploads` has norm, path, site, weight and flags of feedback, in the order in which it was given.

    Of two that speak of the same document the later one holds. Errors have no weight, but an end: nothing links to them any more.
    What is forgotten hears nothing.
    """
    row, _place = find_known(index, uploads, paths)
    has_row = row >= 0
    type_ = np.full(len(row), RowType.FORGOTTEN, np.uint8)
    type_[has_row] = index["type"][row[has_row]]
    speaks = with_flag(uploads["flags"], FeedbackFlag.UNREFERENCED | FeedbackFlag.REFERENCED)
    applies = np.isin(type_, IN_USE) | ((type_ == RowType.ERROR) & speaks)
    row, type_ = row[applies], type_[applies]
    columns = {name: index[name].copy() for name in CHANGED}
    upload_flags, weight = uploads["flags"][applies], uploads["weight"][applies]
    has_weight = with_flag(upload_flags, FeedbackFlag.WEIGHT) & (type_ != RowType.ERROR)
    columns["weight"][row[has_weight]] = weight[has_weight]
    has_reference = speaks[applies]
    is_unreferenced = with_flag(upload_flags, FeedbackFlag.UNREFERENCED)[has_reference]
    flags = columns["flags"][row[has_reference]] & np.uint16(0xFFFF ^ Flag.UNREFERENCED)
    columns["flags"][row[has_reference]] = flags | np.where(is_unreferenced, np.uint16(Flag.UNREFERENCED), np.uint16(0))
    changed = (columns["weight"] != index["weight"]) | (columns["flags"] != index["flags"])
    columns["touched"][changed] = state
    counts = {
        "heard": int(np.count_nonzero(applies)),
        "changed rows": int(np.count_nonzero(changed)),
        "of errors or forgotten rows": int(np.count_nonzero(has_row & ~applies)),
        "of unknown URLs": int(np.count_nonzero(~has_row)),
    }
    return UpdatedRows(columns, counts)
