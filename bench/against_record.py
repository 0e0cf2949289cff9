"""Record, by a walk over its new segments: every new URL that is wanted has a thin bucket of its own, with its URL, and no row
points into contrib any more.

The URL of a row is the name of its site and the text of its contribution; a robots file that nobody has asked for yet has its
site's name alone.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from against_engine import Array, Case, Columns, Verdict, columns

from shepherd.formats.tables import INDEX, NO_OID

CHANGED = ("oid", "size")
HEADER = struct.Struct("<4sBBHIIIIQQ")
HEADER_BYTES = 64
THIN = 1
IN_CONTRIB = np.uint64(1 << 63)


def judge(case: Case) -> Verdict:
    verdict = Verdict()
    old = columns(case.before, "index", ("norm", "path", "site", "type", "flags", *CHANGED))
    new = columns(case.after, "index", CHANGED)
    linked = (old["oid"] >= IN_CONTRIB) & (old["oid"] != np.uint64(NO_OID))
    forgotten = old["type"] == 5
    robots = (old["oid"] == np.uint64(NO_OID)) & (old["flags"] & 1 != 0) & ~forgotten
    wanted = (linked & ~forgotten) | robots
    same = {name: np.where(wanted, new[name], old[name]) for name in CHANGED}
    same["oid"][linked & forgotten] = NO_OID
    verdict.compare("rows", same, new)
    verdict.same("rows", case.before, case.after, "index", [name for name in INDEX if name not in CHANGED])
    _compare_buckets(verdict, case, old, new, wanted, robots)
    _compare_sites(verdict, case, old)
    verdict.decided |= {
        "new URLs": int(np.count_nonzero(linked & ~forgotten)),
        "forgotten before they had a bucket": int(np.count_nonzero(linked & forgotten)),
        "robots files": int(np.count_nonzero(robots)),
    }
    return verdict


def _compare_buckets(verdict: Verdict, case: Case, old: Columns, new: Columns, wanted: Array, robots: Array) -> None:
    """The buckets in the order of their places, and the rows in that order: one for one."""
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(new["oid"][rows])]
    before = {path.name for path in (case.before.path / "objects").iterdir()}
    made = sorted(path for path in (case.after.path / "objects").iterdir() if path.name not in before)
    found, urls = _buckets(made)
    want = {"oid": new["oid"][rows], "site": old["site"][rows], "path": old["path"][rows], "size": new["size"][rows]}
    verdict.compare("thin buckets", want | {"flags": np.full(len(rows), THIN, np.uint16)}, found)
    if len(urls) == len(rows):
        expected = _urls(case, old, rows, robots)
        wrong = [(a, b) for a, b in zip(urls, expected, strict=True) if a != b]
        verdict.differences += [f"{len(wrong)} URLs differ, for one {wrong[0]}"] if wrong else []
        verdict.compared["URLs"] = len(expected)
    left = list(case.after.path.glob("contrib.*"))
    verdict.differences += [f"{path.name} is left" for path in left]


def _buckets(segments: list[Path]) -> tuple[Columns, list[bytes]]:
    """Place, footprint, length and flags of each bucket, as docs/formats.md has them, and its first attribute, the URL."""
    fields: list[tuple[int, int, int, int, int]] = []
    urls = []
    for path in segments:
        data, at, segment = path.read_bytes(), 0, int(path.name) << 32
        while at < len(data):
            _magic, _type, _codec, flags, attributes, body, _decoded, _state, site, hashed = HEADER.unpack_from(data, at)
            length = HEADER_BYTES + attributes + body
            fields.append((segment | at, site, hashed, length, flags))
            text = at + HEADER_BYTES + 4
            urls.append(data[text : text + int.from_bytes(data[text - 4 : text], "little")])
            at += length
    table = np.array(fields, np.uint64).reshape(-1, 5)
    return {name: table[:, n] for n, name in enumerate(("oid", "site", "path", "size", "flags"))}, urls


def _urls(case: Case, old: Columns, rows: Array, robots: Array) -> list[bytes]:
    """What the buckets of these rows must say."""
    place = old["oid"][rows]
    order = np.argsort(place)
    urls: list[bytes] = [b""] * len(rows)
    for number in case.before.numbered("contrib"):
        first = 1 << 63 | number << 40
        for block in case.before.contribs(number, with_texts=True):
            low, high = np.searchsorted(place[order], np.array([first, first + len(block)], np.uint64))
            names = dict(zip(block.sites.tolist(), block.names, strict=True))
            for at in order[low:high].tolist():
                ordinal = int(place[at]) - first
                urls[at] = names[int(block.site[ordinal])] + block.texts[ordinal]
            first += len(block)
    site = columns(case.before, "sites", ("site",))["site"]
    for at in np.flatnonzero(robots[rows]).tolist():
        row = int(np.searchsorted(site, old["site"][rows[at]]))
        urls[at] = case.before.site_name(row).encode() + b"/robots.txt"
    return urls


def _compare_sites(verdict: Verdict, case: Case, old: Columns) -> None:
    """Select has changed types, so gathered documents are counted anew; else only addresses long looked up in vain change."""
    site = columns(case.before, "sites", ("site",))["site"]
    counted = old["site"][(old["type"] == 3) & (old["flags"] & 1 == 0)]
    gathered = np.bincount(np.searchsorted(site, counted), minlength=len(site))
    verdict.compare("sites", {"gathered": gathered}, columns(case.after, "sites", ("gathered",)))
    kept = ("site", "norm", "name", "robots_oid", "documents", "robots_checked", "robots_next", "crawl_delay_ms", "soft_limit")
    verdict.same("sites", case.before, case.after, "sites", kept)
