"""Which rows get a bucket without a body, and the columns once the buckets are written.

New URLs that are wanted or remembered get a thin bucket, and so do robots files that nobody has asked for yet; what an operator
deleted gets a tombstone. After record no row points into contrib: what is wanted has a bucket, what is forgotten has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import with_flag
from shepherd.formats.tables import (
    I64,
    NO_OID,
    U8,
    U32,
    U64,
    Array,
    Bools,
    Columns,
    Flag,
    Reason,
    RowType,
    in_bucket,
    in_contrib,
)
from shepherd.politeness.quota import unresolved

READ = ("oid", "site", "type", "flags", "reason", "touched")


@dataclass(frozen=True)
class Needs:
    """Rows by where their URL stands: in contrib, in the name of their site, or in the bucket that they have."""

    contrib: Bools
    robots: Bools
    bucket: Bools


def may_need(index: Columns) -> Bools:
    """At least all rows that `needs` finds: without a bucket, or forgotten."""
    return np.asarray(~in_bucket(index["oid"]) | (index["type"] == RowType.FORGOTTEN))


def needs(index: Columns, *, state: int) -> Needs:
    """Who deletes a row marks it as touched in the same state: older ones have their tombstone."""
    oid, living = index["oid"], index["type"] != RowType.FORGOTTEN
    dead = is_dead(index) & (index["touched"] == state)
    robots = with_flag(index["flags"], Flag.ROBOTS) & (oid == np.uint64(NO_OID))
    return Needs(
        np.asarray((living | dead) & in_contrib(oid)),
        np.asarray((living | dead) & robots),
        np.asarray(dead & in_bucket(oid)),
    )


def is_dead(index: Columns) -> Bools:
    """What an operator deleted; the row stays, so that a link does not bring it back."""
    deleted = (index["reason"] == Reason.DELETED) | (index["reason"] == Reason.PURGED)
    return np.asarray((index["type"] == RowType.FORGOTTEN) & deleted)


def is_active(index: Columns) -> Bools:
    """Documents that are gathered or to be gathered: a server is asked for these, and for the robots files of its sites."""
    type_ = index["type"]
    return np.asarray(((type_ == RowType.GATHERED) | (type_ == RowType.UNGATHERED)) & ~with_flag(index["flags"], Flag.ROBOTS))


@dataclass(frozen=True)
class Placed:
    """Rows of a partition that have been dealt with, in order: their new buckets, NO_OID where the filter has refused them."""

    row: I64
    oid: U64
    size: U32
    dead: Bools  # it is a tombstone

    def part(self, first: int, last: int) -> Placed:
        return Placed(self.row[first:last], self.oid[first:last], self.size[first:last], self.dead[first:last])

    @property
    def refused(self) -> Bools:
        return np.asarray(self.oid == np.uint64(NO_OID))


def changed_columns(placed: int, refused: int, dead: int, given_up: int) -> list[str]:
    """The columns that so many rows change."""
    changed = []
    if placed or refused or given_up:
        changed.append("oid")
    if refused:
        changed += ["type", "reason"]
    if dead:
        changed += ["digest", "gathered"]
    if placed:
        changed.append("size")
    return [*changed, "touched"] if placed or refused else changed


def place(name: str, old: Array, type_: U8, placed: Placed, *, state: int) -> Array:
    """A column of a partition with what was placed; places in contrib that nothing needs any more are given up."""
    new, refused = old.copy(), placed.refused
    if name == "oid":
        new[in_contrib(new) & (type_ == RowType.FORGOTTEN)] = NO_OID
        new[placed.row] = placed.oid
    elif name == "size":
        new[placed.row] = placed.size
    elif name == "touched":
        new[placed.row] = state
    elif name in ("digest", "gathered"):
        new[placed.row[placed.dead]] = 0
    else:
        new[placed.row[refused]] = {"type": RowType.FORGOTTEN, "reason": Reason.FILTER}[name]
    return new


def too_old(sites: Columns, *, now_s: int, reset_s: int) -> Bools:
    """Sites whose address was last looked up in vain so long ago that this says nothing any more."""
    checked = sites["qkey_checked"].astype(np.int64)
    return np.asarray(unresolved(sites["qkey"]) & (checked > 0) & (checked + reset_s <= now_s))
