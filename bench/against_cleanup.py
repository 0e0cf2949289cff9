"""Cleanup, by a walk over all segments before and after it: whatever a row needs is where the row says, byte for byte.

Two buckets are the same when their headers are: these hold the checks of attributes and body. Which URLs the filter rejects is
not judged here, only what becomes of their rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

import numpy as np
from against_engine import Array, Case, Columns, Verdict, columns

from shepherd.formats.tables import INDEX, NO_OID
from shepherd.store.state.directory import State

HEADER = struct.Struct("<4sBBHIIIIQQqQQ")
FIELDS = ("oid", "flags", "length", "site", "path", "head", "body")
BODILESS = ("oid", "digest", "gathered", "changed", "size", "flags", "touched")  # what loses its body has other values in these
FILTERED = ("type", "reason", "section", *BODILESS)
THIN = 1
STEP = 500_000


def judge(case: Case) -> Verdict:
    verdict = Verdict()
    old, new = columns(case.before, "index"), columns(case.after, "index")
    filtered = (new["reason"] == 14) & (old["reason"] != 14)
    forgotten = new["type"] == 5
    trimmed = (old["type"] == 1) & (old["digest"] != 0) & (old["gathered"] > 0) & ~filtered
    for name in INDEX:
        same = ~trimmed if name in BODILESS else np.ones(len(trimmed), bool)
        same &= ~filtered if name in FILTERED else True
        same &= ~forgotten if name in BODILESS else True
        same &= name != "oid"  # buckets are looked for below
        verdict.compare("rows", {name: np.where(same, old[name], new[name])}, {name: new[name]})
    bare = {"oid": np.uint64(NO_OID), "digest": np.uint64(0), "gathered": np.uint32(0), "size": np.uint32(0)}
    gone = np.flatnonzero(forgotten)
    verdict.compare(
        "forgotten rows", {n: np.full(len(gone), value) for n, value in bare.items()}, {n: new[n][gone] for n in bare}
    )
    before, after = buckets(case.before), buckets(case.after)
    living = np.flatnonzero(~forgotten & (new["oid"] != np.uint64(NO_OID)))
    verdict.compare("references", {name: new[name][living] for name in ("site", "path")}, _at(after, new["oid"][living]))
    kept = living[~trimmed[living]]
    verdict.compare("kept buckets", _at(before, old["oid"][kept]), _at(after, new["oid"][kept]))
    thin = living[trimmed[living]]
    verdict.compare("trimmed rows", {"flags": np.full(len(thin), THIN)}, _at(after, new["oid"][thin]))
    verdict.decided |= {
        "trimmed": len(thin),
        "filtered": int(np.count_nonzero(filtered)),
        "forgotten": int(np.count_nonzero(forgotten)),
        "buckets before": len(before["oid"]),
        "after": len(after["oid"]),
        "moved": int(np.count_nonzero(old["oid"][kept] != new["oid"][kept])),
        "MB before": int(before["length"].sum()) >> 20,
        "MB after": int(after["length"].sum()) >> 20,
    }
    return verdict


def _at(found: Columns, oid: Array) -> Columns:
    """The headers at some places, without the places; where there is none, all is 0."""
    at = np.minimum(np.searchsorted(found["oid"], oid), len(found["oid"]) - 1)
    there = found["oid"][at] == oid
    return {name: np.where(there, found[name][at], np.uint64(0)) for name in FIELDS if name != "oid"}


def buckets(state: State) -> Columns:
    """What stands in the header of every bucket of a state, in the order of their places."""
    parts = [np.zeros((0, len(FIELDS)), np.uint64)]
    for path in sorted((state.path / "objects").iterdir()):
        walk = _walk(path.read_bytes(), int(path.name) << 32)
        while rows := list(islice(walk, STEP)):
            parts.append(np.array(rows, np.uint64))
    table = np.concatenate(parts)
    return {name: np.ascontiguousarray(table[:, n]) for n, name in enumerate(FIELDS)}


def _walk(data: bytes, segment: int) -> Iterator[tuple[int, ...]]:
    """The buckets of a segment, as docs/formats.md has them."""
    at = 0
    while at < len(data):
        _magic, _type, _codec, flags, attributes, body, _size, _state, site, path, _ms, one, two = HEADER.unpack_from(data, at)
        length = 64 + attributes + body
        yield segment | at, flags, length, site, path, one, two
        at += length
