"""What tables, segments and contributions of one state say of each other; read after `check` found every byte as written.

Invariant: reads only, and whatever is wrong comes out as a Fault, never as an exception.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.errors import Corruption, ShepherdError
from shepherd.formats import bucket, tables
from shepherd.formats.tables import I64, NO_OID, QKEY_NONE, U64, Array, Bools, Flag, Reason, RowType
from shepherd.store import logs, names
from shepherd.store.state import State
from shepherd.urls import Footprints, norm_of

STEP_ROWS: Final = 500_000
MOST_TOLD: Final = 10  # of one kind in one step: a table that is wrong throughout is told of, not listed
_TYPES: Final = tuple(map(int, RowType))
_REASONS: Final = tuple(map(int, Reason))
_PLACE: Final = re.compile(r"(?P<file>/[^\s:]+)?(?: at (?P<offset>[0-9]+))?:? (?P<what>.*)", re.DOTALL)
_BUCKET: Final = np.dtype(
    [("oid", "<u8"), ("site", "<u8"), ("path", "<u8"), ("length", "<u8"), ("attributes", "<u4"), ("type", "u1")]
)


@dataclass(frozen=True)
class Fault:
    """Something that is not as it must be. A note is worth mentioning but harms nothing."""

    path: Path
    offset: int | None
    what: str
    note: bool = False

    def __str__(self) -> str:
        place = str(self.path) if self.offset is None else f"{self.path} at {self.offset}"
        return f"{place}: {self.what}"


def fault_of(path: Path, error: ShepherdError) -> Fault:
    """An error as a fault, of the file and offset that it names if they are those of `path` or inside it."""
    text = str(error)
    match = _PLACE.fullmatch(text, len(str(path))) if text.startswith(str(path)) else None
    if match is None:
        return Fault(path, None, text)
    offset = None if match["offset"] is None else int(match["offset"])
    return Fault(Path(f"{path}{match['file'] or ''}"), offset, match["what"])


def walk_references(state: State) -> Iterator[Fault]:
    """Every reference that does not hold. What one part trips over does not keep the others from being looked at."""
    parts: tuple[Callable[[State], Iterator[Fault]], ...] = (_sites, _servers, _index, _buckets, _bare_rows, _contributions)
    for part in parts:
        try:
            yield from part(state)
        except Corruption as error:
            yield fault_of(state.path, error)


def _told(path: Path, bad: Bools, width: int, what: str, first_row: int = 0, note: bool = False) -> Iterator[Fault]:
    """A fault for each row of a column where `bad` is true, up to the most that is told."""
    for row in np.flatnonzero(bad)[:MOST_TOLD].tolist():
        yield Fault(path, (first_row + row) * width, what, note)


# --- sites and servers ------------------------------------------------------------------------------------------


def _sites(state: State) -> Iterator[Fault]:
    path, rows = state.path / "sites", state.sites.rows
    prints = Footprints(state.control.key)
    keys, norm, ends = (state.sites[name][0:rows] for name in ("site", "norm", "name"))
    yield from _told(path / "site", keys[1:] <= keys[:-1], 8, "rows are not in order", first_row=1)
    stored = state.control.files[f"sites/{names.NAMES}"].length
    begins = np.concatenate([np.zeros(1, np.uint64), ends[:-1]])[:rows]
    wrong = (ends < begins) | (ends > np.uint64(stored))
    if rows:
        wrong[-1] |= int(ends[-1]) != stored
    yield from _told(path / "name", wrong, 8, f"its name does not end within the {stored} bytes of names, or not where it must")
    if wrong.any():
        return
    for start in range(0, rows, STEP_ROWS):
        stop = min(start + STEP_ROWS, rows)
        sites, norms = keys[start:stop].tolist(), norm[start:stop].tolist()
        for row, name in enumerate(state.site_names(start, stop)):
            text = name.decode("ascii", "replace")
            if prints.half(text) != sites[row] or "://" not in text:
                yield Fault(path / "site", (start + row) * 8, f"is not the footprint of {text}")
            elif prints.half(norm_of(text)) != norms[row]:
                yield Fault(path / "norm", (start + row) * 8, f"is not the footprint of the normalised site of {text}")


def _servers(state: State) -> Iterator[Fault]:
    """In order; and in a closed state every address that a site has is there, because cork enters them all."""
    known = state.servers["qkey"][0 : state.servers.rows]
    yield from _told(state.path / "servers/qkey", known[1:] <= known[:-1], 8, "rows are not in order", first_row=1)
    if state.name.closed:
        qkey = state.sites["qkey"][0 : state.sites.rows]
        lost = (qkey >> np.uint64(56) != QKEY_NONE) & ~np.isin(qkey, known)
        yield from _told(state.path / "sites/qkey", lost, 8, "its queue key is not in the server table")


# --- the index --------------------------------------------------------------------------------------------------


def _index(state: State) -> Iterator[Fault]:
    """Row order; vocabularies; every row's site is known, has the row's norm, and counts the row."""
    path = state.path / "index"
    known = state.sites["site"][0 : state.sites.rows]
    norms = state.sites["norm"][0 : state.sites.rows]
    root = np.uint64(Footprints(state.control.key).half("/"))
    documents, gathered = np.zeros(len(known), np.int64), np.zeros(len(known), np.int64)
    for start in range(0, state.index.rows, STEP_ROWS):
        stop, lead = min(start + STEP_ROWS, state.index.rows), min(start, 1)  # each row is compared with the one before it
        part = state.index.slice(start - lead, stop, ("norm", "path", "site", "type", "reason", "flags"))
        yield from _order(path, part, root, start - lead)
        part = {name: values[lead:] for name, values in part.items()}
        yield from _told(path / "type", ~np.isin(part["type"], _TYPES), 1, "no row is of this type", start)
        yield from _told(path / "reason", ~np.isin(part["reason"], _REASONS), 1, "there is no such reason", start)
        at, found = _find(known, part["site"])
        yield from _told(path / "site", ~found, 8, "its site is not in the site table", start)
        wrong = np.zeros(len(found), np.bool_)
        wrong[found] = norms[at[found]] != part["norm"][found]
        yield from _told(path / "norm", wrong, 8, "differs from the norm of its site", start)
        documents += np.bincount(at[found], minlength=len(known))
        found &= (part["type"] == RowType.GATHERED) & ~_robots(part["flags"])
        gathered += np.bincount(at[found], minlength=len(known))
    yield from _counts(state, documents, gathered)


def _order(path: Path, part: dict[str, Array], root: np.uint64, first_row: int) -> Iterator[Fault]:
    norm, paths, site, robots = part["norm"], part["path"], part["site"], _robots(part["flags"])
    same_norm = norm[1:] == norm[:-1]
    same = same_norm & (paths[1:] == paths[:-1])
    rises = (norm[1:] > norm[:-1]) | (same_norm & (paths[1:] > paths[:-1])) | (same & (site[1:] > site[:-1]))
    yield from _told(path / "norm", ~rises, 8, "row is not in order", first_row + 1)
    twice = same & rises & (paths[1:] != root) & ~(robots[1:] & robots[:-1])
    yield from _told(path / "path", twice, 8, "another row has the same norm and path", first_row + 1)


def _counts(state: State, documents: I64, gathered: I64) -> Iterator[Fault]:
    counts = {"documents": documents, "gathered": gathered}
    if state.name.phase == "selected":  # select changes types, and leaves the counting to record
        del counts["gathered"]
    for name, count in counts.items():
        told = state.sites[name][0 : state.sites.rows]
        yield from _told(state.path / "sites" / name, told != count, 4, "differs from a count of the rows of the site")
    if state.name.closed:
        merged = state.control.parent.endswith(".selected")  # before that a page may have moved to the site and away again
        yield from _told(state.path / "sites/site", documents == 0, 8, "the site has no rows", note=not merged)


def _robots(flags: Array) -> Bools:
    return np.asarray((flags & np.uint16(Flag.ROBOTS)) != 0)


def _find(known: Array, wanted: Array) -> tuple[I64, Bools]:
    """Where each wanted value stands in a sorted array, and whether it does."""
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1).astype(np.int64)
    return at, np.asarray(known[at] == wanted)


def _bare_rows(state: State) -> Iterator[Fault]:
    """In a closed state every row that is not forgotten has its bucket; before record, new ones still point into contrib."""
    if not state.name.closed:
        return
    for start in range(0, state.index.rows, STEP_ROWS):
        part = state.index.slice(start, min(start + STEP_ROWS, state.index.rows), ("type", "oid"))
        bare = (part["type"] != RowType.FORGOTTEN) & ~tables.in_bucket(part["oid"])
        yield from _told(state.path / "index/oid", bare, 8, "the row has no bucket", start)


# --- buckets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pointers:
    """The rows of a table that point at buckets, in the order of their oids."""

    path: Path  # of the column
    rows: I64
    oids: U64

    def into(self, segment: int) -> _Pointers:
        first, last = np.searchsorted(self.oids, np.array([segment << 32, segment + 1 << 32], np.uint64)).tolist()
        return _Pointers(self.path, self.rows[first:last], self.oids[first:last])

    def told(self, bad: Bools, what: str, column: str = "", width: int = 8) -> Iterator[Fault]:
        """A fault of their column, or of another one of the same table, for each where `bad` is true."""
        for row in self.rows[bad][:MOST_TOLD].tolist():
            yield Fault(self.path.with_name(column or self.path.name), row * width, what)


def _buckets(state: State) -> Iterator[Fault]:
    """Every row but forgotten ones points at a bucket with its footprint, and no two at the same; every robots file is one."""
    index, sites = _pointers(state, "index", "oid"), _pointers(state, "sites", "robots_oid")
    robots_oid = state.sites["robots_oid"][0 : state.sites.rows]
    nowhere = ~tables.in_bucket(robots_oid) & (robots_oid != np.uint64(NO_OID))
    yield from _told(sites.path, nowhere, 8, "is not the oid of a bucket")
    twice = np.zeros(len(index.oids), np.bool_)
    twice[1:] = index.oids[1:] == index.oids[:-1]
    yield from index.told(twice, "its bucket is claimed by another row too")
    for number in state.segments():
        yield from _segment(state, number, index.into(number), sites.into(number))
    have = np.array(state.segments(), np.uint64)
    for one in (index, sites):
        yield from one.told(~np.isin(one.oids >> np.uint64(32), have), "points into a segment that is not there")


def _pointers(state: State, table: str, column: str) -> _Pointers:
    of = {"index": state.index, "sites": state.sites}[table]
    rows, oids = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    for start in range(0, of.rows, STEP_ROWS):
        oid = of[column][start : start + STEP_ROWS]
        found = np.flatnonzero(tables.in_bucket(oid))
        rows.append(found + start)
        oids.append(oid[found])
    row, oid = np.concatenate(rows), np.concatenate(oids)
    order = np.argsort(oid, kind="stable")
    return _Pointers(state.path / table / column, row[order], oid[order])


def _segment(state: State, number: int, index: _Pointers, sites: _Pointers) -> Iterator[Fault]:
    """The buckets of one segment, against what points into it."""
    scan = state.objects.scan(number)
    found = np.fromiter(((oid, h.site, h.path, h.length, h.attribute_bytes, h.type) for oid, h in scan), _BUCKET)
    if not len(found):
        for one in (index, sites):
            yield from one.told(np.ones(len(one.rows), np.bool_), "points into an empty segment")
        return
    yield from sites.told(~_find(found["oid"], sites.oids)[1], "no bucket begins there")
    at, good = _find(found["oid"], index.oids)
    here, there = state.index.take(index.rows, ("site", "path", "size", "digest")), found[at]
    good &= (there["site"] == here["site"]) & (there["path"] == here["path"])
    yield from index.told(~good, "no bucket with the row's footprint begins there")
    yield from index.told(good & (there["length"] != here["size"]), "differs from the length of its bucket", "size", width=4)
    good &= here["digest"] != 0
    good[good] = _digests(state, number, there[good]) != here["digest"][good]
    yield from index.told(good, "differs from the digest in its bucket", "digest")


def _digests(state: State, number: int, buckets: Array) -> U64:
    """The first 8 bytes of attribute D of each of these buckets, 0 without one: all attributes are walked side by side.

    Those of text, which older gatherers left, are read one by one.
    """
    digests = np.zeros(len(buckets), np.uint64)
    old = np.isin(buckets["type"], bucket.TEXT_TYPES)
    for place in np.flatnonzero(old).tolist():
        text = state.objects.head(int(buckets["oid"][place])).attributes.get("D", b"")
        digests[place] = int.from_bytes(text[:8], "little")
    data = np.frombuffer(logs.mapped(state.path / names.OBJECTS / names.segment(number)), np.uint8)
    at = (buckets["oid"] & np.uint64(0xFFFFFFFF)).astype(np.int64) + bucket.HEADER_BYTES
    end = at + buckets["attributes"]
    left = np.flatnonzero(~old & (at + 5 <= end))
    while len(left):
        letter = at[left] + 4 + _numbers(data, at[left], "<u4").astype(np.int64)
        whole = letter < end[left]
        left, letter = left[whole], letter[whole]
        found = (data[letter] == ord("D")) & (letter - at[left] >= 12)
        digests[left[found]] = _numbers(data, at[left[found]] + 4, "<u8")
        left, letter = left[~found], letter[~found]
        at[left] = letter + 1
        left = left[at[left] + 5 <= end[left]]
    return digests


def _numbers(data: Array, at: I64, dtype: str) -> Array:
    """The numbers at some offsets, aligned or not."""
    width = np.dtype(dtype).itemsize
    return np.ascontiguousarray(data[at[:, None] + np.arange(width)]).view(dtype)[:, 0]


# --- contributions ----------------------------------------------------------------------------------------------


def _contributions(state: State) -> Iterator[Fault]:
    """Until record, rows point at contributions that are there."""
    if state.name.closed:
        return
    records = {number: sum(map(len, state.contribs(number, with_texts=False))) for number in state.numbered(names.CONTRIB)}
    for start in range(0, state.index.rows, STEP_ROWS):
        oid = state.index["oid"][start : start + STEP_ROWS]
        lost = tables.in_contrib(oid)
        for number, count in records.items():
            first, last = (np.uint64(tables.contrib_oid(number, ordinal)) for ordinal in (0, count))
            lost &= (oid < first) | (oid >= last)
        yield from _told(state.path / "index/oid", lost, 8, "points at a contribution that is not there", start)
