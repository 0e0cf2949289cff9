"""What operators asked of URLs that are known: delete, refresh, set.

Of two edits that contradict each other the one that was asked for later holds. An edit of a URL that nobody knows changes
nothing, and is counted; but a purge always finds a row, because it comes with a contribution of its URL.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from shepherd.formats.tables import Array, Flag, Reason, Records, RowType, in_contrib

EDIT: Final = np.dtype(
    [("norm", "<u8"), ("path", "<u8"), ("site", "<u8"), ("time", "<u4"), ("value", "<u2"), ("op", "u1"), ("spare", "u1")]
)


class Op(IntEnum):
    DELETE = 1
    PURGE = 2  # delete, and let no byte of it stay
    REFRESH = 3
    WEIGHT = 4
    SECTION = 5
    FREQUENCY = 6
    PINNED = 7


GONE: Final = {Op.DELETE: Reason.DELETED, Op.PURGE: Reason.PURGED}
VALUES: Final = {Op.WEIGHT: "weight", Op.SECTION: "section", Op.FREQUENCY: "frequency"}


def apply(columns: dict[str, Array], row: Array, edits: Records, *, state: int) -> dict[str, int]:
    """Carry out edits of rows (-1: not known) in columns that are the caller's own; how many there were of each kind."""
    counts = {f"{op.name.lower()} requests": int(np.count_nonzero(edits["op"] == op)) for op in Op}
    known = row >= 0
    edits, row = edits[known], row[known]
    unheard = (edits["op"] == Op.PURGE) & in_contrib(columns["oid"][row])
    for op in Op:
        mine = edits["op"] == op
        _apply(columns, op, row[mine], edits[mine])
    columns["touched"][row] = state
    told = {"requests of unknown URLs": ~known, "purged before they were known": unheard}
    return counts | {what: int(np.count_nonzero(mask)) for what, mask in told.items()}


def _apply(columns: dict[str, Array], op: Op, row: Array, edits: Records) -> None:
    if op in GONE:
        row = row[columns["reason"][row] != Reason.PURGED] if op == Op.DELETE else row  # which says more
        columns["type"][row] = RowType.FORGOTTEN
        columns["reason"][row] = GONE[op]
        columns["flags"][row] &= np.uint16(0xFFFF ^ (Flag.REFRESH | Flag.INITIAL | Flag.PINNED))
    elif op == Op.REFRESH:
        row = row[columns["checked"][row] < edits["time"]]  # what was checked since has had its refresh
        columns["flags"][row] |= np.uint16(Flag.REFRESH)
    elif op == Op.PINNED:
        pinned = np.where(edits["value"] > 0, np.uint16(Flag.PINNED), np.uint16(0))
        columns["flags"][row] = columns["flags"][row] & np.uint16(0xFFFF ^ Flag.PINNED) | pinned
    else:
        columns[VALUES[op]][row] = edits["value"]
