"""What the tables and contributions of one state say of each other; read after `check_files` found every byte as written.

Invariant: reads only, and whatever is wrong comes out as a Fault, never as an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats import tables
from shepherd.formats.tables import I64, QKEY_NONE, Array, Bools, Flag, Reason, RowType
from shepherd.formats.vocabulary import RESERVED_REASONS
from shepherd.store.check.faults import MOST_LISTED, Fault, FaultLimiter, fault_of
from shepherd.store.disk import names
from shepherd.store.state.directory import State

STEP_ROWS: Final = 500_000
_TYPES: Final = tuple(map(int, RowType))
_REASONS: Final = (*map(int, Reason), *RESERVED_REASONS)


def walk_references(state: State, most: int | None = MOST_LISTED) -> Iterator[Fault]:
    """Every reference that does not hold. What one part trips over does not keep the others from being looked at."""
    limiter = FaultLimiter(most)
    parts: tuple[Callable[[State, FaultLimiter], Iterator[Fault]], ...] = (_sites, _servers, _index, _bare_rows, _contributions)
    for part in parts:
        try:
            yield from part(state, limiter)
        except Corruption as error:
            yield fault_of(state.path, error)
    yield from limiter.rest()


def _row_faults(
    limiter: FaultLimiter, path: Path, bad: Bools, width: int, what: str, first_row: int = 0, note: bool = False
) -> Iterator[Fault]:
    """A fault for each row of a column where `bad` is true."""
    return limiter.rows(path, np.flatnonzero(bad) + first_row, width, what, note)


# --- sites and servers ------------------------------------------------------------------------------------------


def _sites(state: State, limiter: FaultLimiter) -> Iterator[Fault]:
    path, rows = state.path / "sites", state.sites.rows
    prints = state.prints
    keys, norm, ends = (state.sites[name][0:rows] for name in ("site", "norm", "name"))
    yield from _row_faults(limiter, path / "site", keys[1:] <= keys[:-1], 8, "rows are not in order", first_row=1)
    stored = state.control.files[f"sites/{names.NAMES}"].length
    begins = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])[:rows]
    wrong = (ends < begins) | (ends > np.uint64(stored))
    if rows:
        wrong[-1] |= int(ends[-1]) != stored
    what = f"its name does not end within the {stored} bytes of names, or not where it must"
    yield from _row_faults(limiter, path / "name", wrong, 8, what)
    if wrong.any():
        return
    for start in range(0, rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, rows)
        sites, norms = keys[start:stop].tolist(), norm[start:stop].tolist()
        for row, name in enumerate(state.site_names(start, stop)):
            text = name.decode("ascii", "replace")
            if prints.half(text) != sites[row] or "://" not in text:
                fault = Fault(path / "site", (start + row) * 8, f"is not the footprint of {text}")
                yield from limiter.single(fault, "is not the footprint of its name")
            elif prints.norm(text) != norms[row]:
                fault = Fault(path / "norm", (start + row) * 8, f"is not the footprint of the normalised site of {text}")
                yield from limiter.single(fault, "is not the footprint of its normalised name")


def _servers(state: State, limiter: FaultLimiter) -> Iterator[Fault]:
    """In order; and in a closed state every address that a site has is there, because cork enters them all."""
    qkeys = state.servers["qkey"][0 : state.servers.rows]
    yield from _row_faults(limiter, state.path / "servers/qkey", qkeys[1:] <= qkeys[:-1], 8, "rows are not in order", first_row=1)
    if state.name.closed:
        qkey = state.sites["qkey"][0 : state.sites.rows]
        dangling = (qkey >> np.uint64(56) != QKEY_NONE) & ~np.isin(qkey, qkeys)
        yield from _row_faults(limiter, state.path / "sites/qkey", dangling, 8, "its queue key is not in the server table")


# --- the index --------------------------------------------------------------------------------------------------


def _index(state: State, limiter: FaultLimiter) -> Iterator[Fault]:
    """Row order; vocabularies; every row's site is known, has the row's norm, and counts the row."""
    path = state.path / "index"
    sites = state.sites["site"][0 : state.sites.rows]
    norms = state.sites["norm"][0 : state.sites.rows]
    root = np.uint64(state.prints.root)
    documents, gathered = np.zeros(len(sites), np.int64), np.zeros(len(sites), np.int64)
    for start in range(0, state.index.rows, STEP_ROWS):
        stop, lead = min(start + STEP_ROWS, state.index.rows), min(start, 1)  # each row is compared with the one before it
        part = state.index.slice(start - lead, stop, ("norm", "path", "site", "type", "reason", "flags"))
        yield from _order(limiter, path, part, root, start - lead)
        part = {name: values[lead:] for name, values in part.items()}
        yield from _row_faults(limiter, path / "type", ~np.isin(part["type"], _TYPES), 1, "no row is of this type", start)
        yield from _row_faults(limiter, path / "reason", ~np.isin(part["reason"], _REASONS), 1, "there is no such reason", start)
        site_rows, exists = _find(sites, part["site"])
        yield from _row_faults(limiter, path / "site", ~exists, 8, "its site is not in the site table", start)
        wrong = np.zeros(len(exists), np.bool_)
        wrong[exists] = norms[site_rows[exists]] != part["norm"][exists]
        yield from _row_faults(limiter, path / "norm", wrong, 8, "differs from the norm of its site", start)
        np.add.at(documents, site_rows[exists], 1)
        exists &= (part["type"] == RowType.GATHERED) & ~_robots(part["flags"])
        np.add.at(gathered, site_rows[exists], 1)
    yield from _counts(limiter, state, documents, gathered)


def _order(limiter: FaultLimiter, path: Path, part: dict[str, Array], root: np.uint64, first_row: int) -> Iterator[Fault]:
    norm, paths, site, robots = part["norm"], part["path"], part["site"], _robots(part["flags"])
    same_norm = norm[1:] == norm[:-1]
    same = same_norm & (paths[1:] == paths[:-1])
    rises = (norm[1:] > norm[:-1]) | (same_norm & (paths[1:] > paths[:-1])) | (same & (site[1:] > site[:-1]))
    yield from _row_faults(limiter, path / "norm", ~rises, 8, "row is not in order", first_row + 1)
    twice = same & rises & (paths[1:] != root) & ~(robots[1:] & robots[:-1])
    yield from _row_faults(limiter, path / "path", twice, 8, "another row has the same norm and path", first_row + 1)


def _counts(limiter: FaultLimiter, state: State, documents: I64, gathered: I64) -> Iterator[Fault]:
    counts = {"documents": documents, "gathered": gathered}
    if state.name.phase == "selected":  # select changes types, and leaves the counting to record
        del counts["gathered"]
    for name, count in counts.items():
        values = state.sites[name][0 : state.sites.rows]
        yield from _row_faults(
            limiter, state.path / "sites" / name, values != count, 4, "differs from a count of the rows of the site"
        )
    if state.name.closed:
        merged = state.control.parent.endswith(".selected")  # before that a page may have moved to the site and away again
        yield from _row_faults(limiter, state.path / "sites/site", documents == 0, 8, "the site has no rows", note=not merged)


def _robots(flags: Array) -> Bools:
    return np.asarray((flags & np.uint16(Flag.ROBOTS)) != 0)


def _find(keys: Array, values: Array) -> tuple[I64, Bools]:
    """Where each wanted value stands in a sorted array, and whether it does."""
    if not len(keys):
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    rows = np.minimum(np.searchsorted(keys, values), len(keys) - 1).astype(np.int64)
    return rows, np.asarray(keys[rows] == values)


def _bare_rows(state: State, limiter: FaultLimiter) -> Iterator[Fault]:
    """In a closed state every row that is not forgotten has its bucket; before record, new ones still point into contrib."""
    if not state.name.closed:
        return
    for start in range(0, state.index.rows, STEP_ROWS):
        part = state.index.slice(start, min(start + STEP_ROWS, state.index.rows), ("type", "oid"))
        bare = (part["type"] != RowType.FORGOTTEN) & ~tables.in_bucket(part["oid"])
        yield from _row_faults(limiter, state.path / "index/oid", bare, 8, "the row has no bucket", start)


# --- contributions ----------------------------------------------------------------------------------------------


def _contributions(state: State, limiter: FaultLimiter) -> Iterator[Fault]:
    """Until record, rows point at contributions that are there."""
    if state.name.closed:
        return
    records = {number: sum(map(len, state.contribs(number, with_texts=False))) for number in state.numbered(names.CONTRIB)}
    for start in range(0, state.index.rows, STEP_ROWS):
        oid = state.index["oid"][start : start + STEP_ROWS]
        dangling = tables.in_contrib(oid)
        for number, count in records.items():
            first, last = (np.uint64(tables.contrib_oid(number, ordinal)) for ordinal in (0, count))
            dangling &= (oid < first) | (oid >= last)
        yield from _row_faults(
            limiter, state.path / "index/oid", dangling, 8, "points at a contribution that is not there", start
        )
