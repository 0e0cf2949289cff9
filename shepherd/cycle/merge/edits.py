"""What operators asked of URLs that are known: delete, refresh, set.

Of two edits that contradict each other the one that was asked for later holds. An edit of an unknown URL changes
nothing, and is counted; but a purge always finds a row, because it comes with a contribution of its URL.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from shepherd.formats.tables import Array, Flag, Reason, Records, RowType, in_contrib
from shepherd.politeness.delays import believable_s

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


REMOVALS: Final = {Op.DELETE: Reason.DELETED, Op.PURGE: Reason.PURGED}
VALUES: Final = {Op.WEIGHT: "weight", Op.SECTION: "section", Op.FREQUENCY: "frequency"}
IN_VAIN: Final = {Reason.DELETED: "requests of deleted URLs", Reason.PURGED: "requests of purged URLs"}


def apply(columns: dict[str, Array], row: Array, edits: Records, *, state: int, now_s: int) -> dict[str, int]:
    """Carry out edits of rows (-1: not known) in columns that are the caller's own; how many there were of each kind.

    What is taken away, before or now, gets no other edit: a flag on it would only show when it came back.
    """
    counts = {f"{op.name.lower()} requests": int(np.count_nonzero(edits["op"] == op)) for op in Op}
    is_known = row >= 0
    edits, row = edits[is_known], row[is_known]
    masks = {"requests of unknown URLs": ~is_known}
    masks["purged before they were known"] = (edits["op"] == Op.PURGE) & in_contrib(columns["oid"][row])
    for op in REMOVALS:
        _take_away(columns, op, row[edits["op"] == op], state)
    other = ~np.isin(edits["op"], list(REMOVALS))
    edits, row = edits[other], row[other]
    is_forgotten = columns["type"][row] == RowType.FORGOTTEN
    masks |= {what: is_forgotten & (columns["reason"][row] == reason) for reason, what in IN_VAIN.items()}
    edits, row = edits[~is_forgotten], row[~is_forgotten]
    for op in Op:
        mine = edits["op"] == op
        _change(columns, op, row[mine], edits[mine], now_s)
    columns["touched"][row] = state
    return counts | {what: int(np.count_nonzero(mask)) for what, mask in masks.items()}


def _take_away(columns: dict[str, Array], op: Op, row: Array, state: int) -> None:
    if op == Op.DELETE:
        row = row[(columns["type"][row] != RowType.FORGOTTEN) | (columns["reason"][row] != Reason.PURGED)]  # which says more
    columns["type"][row] = RowType.FORGOTTEN
    columns["reason"][row] = REMOVALS[op]
    columns["flags"][row] &= np.uint16(0xFFFF ^ (Flag.REFRESH | Flag.INITIAL | Flag.PINNED | Flag.MODIFIED))
    columns["touched"][row] = state


def _change(columns: dict[str, Array], op: Op, row: Array, edits: Records, now_s: int) -> None:
    if op == Op.REFRESH:
        checked = believable_s(columns["checked"][row], now_s)
        row = row[checked <= edits["time"]]  # what was checked in a later second has had its refresh
        columns["flags"][row] |= np.uint16(Flag.REFRESH)
    elif op == Op.PINNED:
        pinned = np.where(edits["value"] > 0, np.uint16(Flag.PINNED), np.uint16(0))
        columns["flags"][row] = columns["flags"][row] & np.uint16(0xFFFF ^ Flag.PINNED) | pinned
    elif op in VALUES:
        columns[VALUES[op]][row] = edits["value"]
