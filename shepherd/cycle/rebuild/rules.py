"""An index made again from what is left: what still checks of it, what the buckets say, and what an older state knew.

For each value of each row the first of these that has it decides:
1. the damaged index itself, where the block checks;
2. for what a bucket tells (digest, size, times ...): the bucket of the row;
3. the older state: everything if it has the same bucket, else only what no bucket tells (weight, flags, frequency ...);
4. the value that says least, counted as not known.
A row whose bucket is gone takes the newest older bucket of the same document; without one, even its URL is lost, and so is it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays.distinct_urls import Paths, take
from shepherd.arrays.keys import NOT_FOUND, find_rows, find_sites, run_ends, run_starts, with_flag
from shepherd.arrays.rows import BODY_FLAGS
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.facts import BODY_DAMAGED, PURGED, REDIRECT
from shepherd.formats.tables import (
    I64,
    INDEX,
    NO_OID,
    U64,
    Array,
    Bools,
    Columns,
    Flag,
    Reason,
    RowType,
    empty,
    in_bucket,
)

KEYS: Final = ("norm", "path", "site")
OF_BUCKET: Final = ("oid", "digest", "type", "reason", "status", "gathered", "checked", "changed", "download_ms", "size")
OF_INDEX: Final = ("flags", "weight", "section", "frequency", "retry", "deferred", "touched")


@dataclass(frozen=True)
class DamagedRows:
    """Rows of the damaged index: its columns, and for each column in which rows it may be believed."""

    columns: Columns
    valid: Mapping[str, Bools]


@dataclass(frozen=True)
class RestoredRows:
    columns: dict[str, Array]
    counts: dict[str, int]  # what was taken from where, by column; and rows that are lost


def newest(facts: Array, paths: Paths) -> I64:
    """Where the newest fact of each document stands, in the order of the index; robots files and root pages by their sites.

    Keys are compared as columns and records left where they are: to move them around took most of the time of a rebuild.
    """
    norm, path, site = (np.ascontiguousarray(facts[name]) for name in KEYS)
    own = np.where(paths.special(path), site, np.uint64(0))
    purged = with_flag(facts["flags"], PURGED)  # whatever came later: that was for ever
    order = np.lexsort((facts["oid"], facts["time_ms"], facts["state"], purged, own, path, norm))
    best = order[np.flatnonzero(run_ends(run_starts(norm[order], path[order], own[order])))]
    return best[np.lexsort((site[best], path[best], norm[best]))]


def rows_of_buckets(facts: Array, best: I64) -> DamagedRows:
    """The rows that the buckets alone make: keys and nothing else."""
    columns = empty(INDEX, len(best)) | {name: np.ascontiguousarray(facts[name])[best] for name in KEYS}
    nowhere = np.zeros(len(best), np.bool_)
    return DamagedRows(columns, {name: nowhere for name in INDEX if name not in KEYS})


def restore(
    damaged: DamagedRows, facts: Array, best: I64, older: Columns, paths: Paths, *, state: int, weight: int
) -> RestoredRows:
    """One partition. `facts` are those of its buckets, `best` the `newest`, `older` the rows of the older state (maybe none)."""
    keys = {name: damaged.columns[name] for name in KEYS}
    has_oid = damaged.valid["oid"]
    own = np.where(has_oid, _by_oid(facts, damaged.columns["oid"]), NOT_FOUND)
    own = np.where(_agrees(damaged, facts, own), own, NOT_FOUND)
    bare = has_oid & ~in_bucket(damaged.columns["oid"])  # a forgotten row, or one that never had a bucket
    fact_row = np.where((own >= 0) | bare, own, _by_document(facts, best, keys, paths))
    # The row still has the bucket that it had, maybe at another place.
    same = (own >= 0) | (~bare & _looks_the_same(damaged, facts, fact_row))
    alive = (fact_row >= 0) | bare
    rows = _rows(take(keys, alive), facts, fact_row[alive], paths, weight)
    counts: dict[str, int] = {"rows: lost with their buckets": int(np.count_nonzero(~alive))}

    valid = {name: mask[alive] for name, mask in damaged.valid.items()}
    for name in OF_BUCKET:
        valid[name] = valid[name] & ((own >= 0) | bare if name == "oid" else same | bare)[alive]
    values = take(damaged.columns, alive)
    older_row = find_rows(*(older[name] for name in KEYS), *(rows[name] for name in KEYS))
    older_row = np.where(older_row >= 0, older_row, _moved(older, rows, paths))
    for name in (*OF_BUCKET, *OF_INDEX):
        column, column_counts = _filled(rows, name, values[name], valid[name], older, older_row)
        rows, counts = rows | {name: column}, counts | column_counts
    return RestoredRows(
        _settle(rows, valid, facts, fact_row[alive], state), {name: count for name, count in counts.items() if count}
    )


def _rows(keys: dict[str, Array], facts: Array, fact_row: I64, paths: Paths, weight: int) -> dict[str, Array]:
    """Rows by their buckets alone."""
    rows = empty(INDEX, len(fact_row)) | keys
    has_bucket, fact = fact_row >= 0, facts[np.maximum(fact_row, 0)] if len(facts) else np.zeros(len(fact_row), facts.dtype)
    rows["oid"] = np.where(has_bucket, fact["oid"], np.uint64(NO_OID))
    rows["site"] = np.where(has_bucket, fact["site"], rows["site"])  # an older bucket may be of the site it had moved from
    for name in ("digest", "status", "download_ms", "size"):
        rows[name] = np.where(has_bucket, fact[name], 0).astype(INDEX[name])
    flags, seconds = fact["flags"], np.clip(fact["time_ms"] // 1000, 0, 0xFFFFFFFF)
    thin, deleted = with_flag(flags, BucketFlag.THIN), with_flag(flags, BucketFlag.TOMBSTONE)
    gathered = has_bucket & ~thin & ~deleted
    for name in ("gathered", "checked", "changed"):
        rows[name] = np.where(gathered, seconds, 0).astype(np.uint32)
    redirect = gathered & with_flag(flags, REDIRECT)
    rows["type"][:] = RowType.UNGATHERED
    rows["reason"][:] = Reason.LINK
    for mask, type_, reason in (
        (gathered, RowType.GATHERED, Reason.GATHERED),
        (redirect, RowType.GATHERED, Reason.REDIRECT),
        (deleted | ~has_bucket, RowType.FORGOTTEN, Reason.DELETED),
        (has_bucket & with_flag(flags, PURGED), RowType.FORGOTTEN, Reason.PURGED),
    ):
        rows["type"][mask], rows["reason"][mask] = type_, reason
    for mask, flag in (
        (rows["path"] == np.uint64(paths.robots), Flag.ROBOTS),
        (rows["path"] == np.uint64(paths.root), Flag.EQUIV),
        (redirect, Flag.REDIRECT),
        (gathered & with_flag(flags, BucketFlag.TRUNCATED), Flag.TRUNCATED),
    ):
        rows["flags"] |= np.where(mask, np.uint16(flag), np.uint16(0))
    rows["weight"][:] = weight
    rows["frequency"][:] = 1
    return rows


def _agrees(damaged: DamagedRows, facts: Array, fact_row: I64) -> Bools:
    """Whether the bucket at a row's oid is the row's: of its document, and with its size and digest, as far as these are known.

    It is not where somebody has put another segment in the place of the right one.
    """
    if not len(facts):
        return np.zeros(len(fact_row), np.bool_)
    columns, valid, fact = damaged.columns, damaged.valid, facts[np.maximum(fact_row, 0)]
    agrees = (fact["path"] == columns["path"]) & (fact["site"] == columns["site"])
    whole = ~with_flag(fact["flags"], BODY_DAMAGED)
    agrees &= ~(whole & valid["size"]) | (fact["size"] == columns["size"])
    agrees &= ~(whole & valid["digest"] & (columns["digest"] != 0)) | (fact["digest"] == columns["digest"])
    return np.asarray(agrees)


def _looks_the_same(damaged: DamagedRows, facts: Array, fact_row: I64) -> Bools:
    """Whether a row whose oid is lost has size and digest of the bucket that was found for it."""
    if not len(facts):
        return np.zeros(len(fact_row), np.bool_)
    place, alike = np.maximum(fact_row, 0), fact_row >= 0
    for name in ("size", "digest"):
        alike &= damaged.valid[name] & (damaged.columns[name] == facts[name][place])
    return np.asarray(alike)


def _by_oid(facts: Array, oids: U64) -> I64:
    """For each oid its fact, or -1."""
    order = np.argsort(facts["oid"], kind="stable")
    place = find_sites(np.ascontiguousarray(facts["oid"][order]), oids)
    return np.where(place >= 0, order[np.maximum(place, 0)] if len(order) else NOT_FOUND, NOT_FOUND)


def _by_document(facts: Array, best: I64, keys: Columns, paths: Paths) -> I64:
    """For each row the newest fact of its document, or -1."""
    norm, path, site = (np.ascontiguousarray(facts[name])[best] for name in KEYS)
    own = np.where(paths.special(path), site, np.uint64(0))
    order = np.lexsort((own, path, norm))
    row_site = np.where(paths.special(keys["path"]), keys["site"], np.uint64(0))
    place = find_rows(norm[order], path[order], own[order], keys["norm"], keys["path"], row_site)
    return np.where(place >= 0, best[order][np.maximum(place, 0)] if len(best) else NOT_FOUND, NOT_FOUND)


def _moved(older: Columns, rows: Columns, paths: Paths) -> I64:
    """The older row of the same document on another site; a page may have moved since."""
    first = run_starts(older["norm"], older["path"])
    candidates = np.flatnonzero(first & ~paths.special(older["path"]))
    nowhere = np.zeros(len(candidates), np.uint64)
    place = find_rows(
        older["norm"][candidates], older["path"][candidates], nowhere, rows["norm"], rows["path"], np.zeros_like(rows["path"])
    )
    return np.where(place >= 0, candidates[np.maximum(place, 0)] if len(candidates) else NOT_FOUND, NOT_FOUND)


def _filled(
    rows: Columns, name: str, values: Array, valid: Bools, older: Columns, older_row: I64
) -> tuple[Array, dict[str, int]]:
    """One column by the order of the module's docstring, and how much of it had to be looked for elsewhere."""
    column, usable = rows[name], np.zeros(len(valid), np.bool_)
    if len(older["oid"]):
        there, place = older_row >= 0, np.maximum(older_row, 0)
        same_bucket = there & (older["oid"][place] == rows["oid"])
        usable = same_bucket if name in OF_BUCKET else there
        older_values = older[name][place]
        if name == "flags":  # what a body says of itself belongs to that body
            mask = np.uint16(BODY_FLAGS)
            older_values = np.where(same_bucket, older_values, (older_values & ~mask) | (column & mask))
        column = np.where(usable, older_values, column)
    column = np.where(valid, values, column).astype(INDEX[name])
    else_ = "from buckets" if name in OF_BUCKET else "not known"
    from_older, elsewhere = (int(np.count_nonzero(~valid & mask)) for mask in (usable, ~usable))
    return column, {f"{name}: from the older state": from_older, f"{name}: {else_}": elsewhere}


def _settle(rows: dict[str, Array], valid: Mapping[str, Bools], facts: Array, fact_row: I64, state: int) -> dict[str, Array]:
    """Rows whose body is lost are to be gathered again, and every row that had to be restored was touched."""
    settled = dict(rows)
    body_lost = np.zeros(len(fact_row), np.bool_)
    if len(facts):
        body_lost = (fact_row >= 0) & with_flag(facts["flags"][np.maximum(fact_row, 0)], BODY_DAMAGED)
    settled["size"] = np.where(body_lost, facts["size"][np.maximum(fact_row, 0)], rows["size"]) if len(facts) else rows["size"]
    for name in ("digest", "gathered", "changed"):
        settled[name] = np.where(body_lost, 0, settled[name]).astype(INDEX[name])
    again = body_lost & (settled["type"] == RowType.GATHERED)
    settled["type"] = np.where(again, np.uint8(RowType.UNGATHERED), settled["type"])
    settled["reason"] = np.where(again, np.uint8(Reason.BODY_LOST), settled["reason"])
    settled["flags"] = np.where(body_lost, settled["flags"] & np.uint16(0xFFFF ^ BODY_FLAGS), settled["flags"])
    whole = np.logical_and.reduce([valid[name] for name in (*OF_BUCKET, *OF_INDEX) if name != "touched"])
    settled["touched"] = np.where(whole & ~body_lost & valid["touched"], settled["touched"], np.uint32(state)).astype(np.uint32)
    return settled
