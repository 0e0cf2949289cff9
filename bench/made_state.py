"""Writes a made web as a state, through the store's own API: index, buckets if they are wanted, sites, servers, control.

Memory is bounded by the sites (about 90 bytes each, with those of made_web) and by one part of the index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_text
import numpy as np
import numpy.typing as npt
from made_rows import DAY, NOW, STATE, Urls, last_segment, make_rows, make_urls
from made_text import mix, uniform
from made_web import KEY, Web

from shepherd.formats import bucket, tables
from shepherd.formats.tables import NO_LIMIT, NO_OID, QKEY_NONE, Flag, RowType
from shepherd.store.disk.names import StateName
from shepherd.store.state.columns import TableWriter
from shepherd.store.state.database import Database
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.objects import SegmentWriter

Array = npt.NDArray[Any]

SEGMENT_BYTES = 1 << 30
SITE_STEP = 200_000


class Counts:
    """What the rows say of their sites, gathered while the index is written."""

    def __init__(self, sites: int) -> None:
        self.documents, self.gathered, self.wanted = (np.zeros(sites, np.uint32) for _ in range(3))
        self.robots_oid = np.full(sites, NO_OID, np.uint64)

    def add(self, web: Web, first: int, last: int, urls: Urls, rows: dict[str, Array]) -> None:
        begin, end = int(web.first_site[first]), int(web.first_site[last])
        here, robots = urls.site - begin, (rows["flags"] & np.uint16(Flag.ROBOTS)) != 0
        awake = rows["type"] == RowType.GATHERED
        fresh = rows["type"] == RowType.UNGATHERED
        for into, mask in ((self.documents, None), (self.gathered, awake & ~robots), (self.wanted, (awake | fresh) & ~robots)):
            into[begin:end] = np.bincount(here if mask is None else here[mask], minlength=end - begin)
        stored = robots & awake
        self.robots_oid[urls.site[stored]] = rows["oid"][stored]


def make_database(path: Path, web: Web, filter_version: int, body: int = 200) -> State:
    """A database whose second state is this web. With real footprints it has buckets, with bodies of about `body` bytes."""
    Database.create(path, KEY, NOW - DAY, filter_version)
    with Database(path).writing("makedb") as writer:
        builder = writer.build(writer.furthest(), StateName(STATE, "closed"), NOW)
        try:
            counts = _write_index(builder, web, body)
            write_sites(builder, web, counts)
            report = {"phase": "makedb", "rows": web.rows, "seed": web.seed, "buckets": web.real, "sites": len(web.site)}
            return writer.publish(builder, report)
        finally:
            builder.close()


def _write_index(builder: Builder, web: Web, body: int) -> Counts:
    counts = Counts(len(web.site))
    segments = builder.segment_writer(SEGMENT_BYTES)
    index = builder.table("index")
    for first, last in web.parts():
        urls = make_urls(web, first, last)
        rows = make_rows(web, first, last, urls)
        if web.real:
            rows |= _write_buckets(segments, web, urls, rows, body)
        index.append(rows)
        counts.add(web, first, last, urls, rows)
    builder.finish_table(index)
    builder.finish_segments(segments)
    if not web.real:
        builder.change(segments=last_segment(web) + 1)
    return counts


def _write_buckets(segments: SegmentWriter, web: Web, urls: Urls, rows: dict[str, Array], body: int) -> dict[str, Array]:
    """A bucket for each row that is not forgotten; where it is, its length, and the digest of its body."""
    changed = {name: rows[name].copy() for name in ("oid", "size", "digest")}
    there = np.flatnonzero(rows["oid"] != np.uint64(NO_OID))
    names = web.site_names(urls.site[there])
    table = {name: rows[name][there].tolist() for name in ("site", "path", "type", "gathered")}
    for i, row in enumerate(there.tolist()):
        url = names[i] + urls.text[row]
        if table["type"][i] == RowType.GATHERED:
            page = make_page(url, table["path"][i], body)
            data = page_bucket(table["site"][i], table["path"][i], table["gathered"][i] * 1000, STATE, url, page)
            changed["digest"][row] = digest_of(page)
        else:
            data = bucket.thin(table["site"][i], table["path"][i], NOW * 1000, STATE, url.decode())
        changed["oid"][row], changed["size"][row] = segments.append(data), len(data)
    return changed


def make_page(url: bytes, number: int, length: int) -> bytes:
    """A body unlike that of any other number."""
    head = b"<title>%s</title><p>%d " % (url, number)
    return head + b"wool " * (max(0, length - len(head)) // 5)


def digest_of(page: bytes) -> int:
    return int.from_bytes(hashlib.sha256(page).digest()[:8], "little")


def page_bucket(site: int, path: int, time_ms: int, state: int, url: bytes, page: bytes) -> bytes:
    """A page as a reap stores it, not compressed."""
    attributes = [
        ("U", url),
        ("S", b"HTTP/1.1 200 OK"),
        ("T", b"text/html"),
        ("C", b"utf-8"),
        ("D", hashlib.sha256(page).digest()),
        ("m", (120).to_bytes(4, "little")),
    ]
    return bucket.pack(site=site, path=path, time_ms=time_ms, state=state, attributes=attributes, body=page)


# --- sites and servers ------------------------------------------------------------------------------------------


def write_sites(builder: Builder, web: Web, counts: Counts) -> None:
    """Sites in the order of their footprints, and the servers that they are on."""
    keys, documents = np.zeros(len(web.site), np.uint64), np.zeros(len(web.site), np.uint32)
    table = builder.table("sites")
    builder.write_site_names(_write_rows(table, web, counts, keys, documents))
    builder.finish_table(table)
    resolved = keys >> np.uint64(56) != QKEY_NONE
    _write_servers(builder, keys[resolved], documents[resolved])


def _write_rows(table: TableWriter, web: Web, counts: Counts, keys: Array, documents: Array) -> Iterator[bytes]:
    """Append the rows, and give their names, some at a time; `keys` and `documents` are filled for the servers."""
    order, end = np.argsort(web.site), 0
    for start in range(0, len(order), SITE_STEP):
        sites = order[start : start + SITE_STEP]
        names = made_text.site_names(web.labels(web.norm_of_site(sites)), web.variant[sites])
        columns = _site_columns(web, sites, counts)
        columns["name"] = (names.ends + end).astype(np.uint64)
        end += len(names.bytes)
        table.append(columns)
        keys[start : start + len(sites)], documents[start : start + len(sites)] = columns["qkey"], counts.wanted[sites]
        yield names.bytes


def _site_columns(web: Web, sites: Array, counts: Counts) -> dict[str, Array]:
    """What is known of some sites, drawn from their footprints."""
    columns = tables.empty(tables.SITES, len(sites))
    site = web.site[sites]
    columns["site"], columns["norm"] = site, web.norm[web.norm_of_site(sites)]
    columns["qkey"], columns["robots_oid"] = web.qkeys(sites), counts.robots_oid[sites]
    columns["documents"], columns["gathered"] = counts.documents[sites], counts.gathered[sites]
    columns["avg_ms"] = 20 + mix(site, 20) % np.uint64(500)
    columns["qkey_checked"] = NOW - 3_600 - mix(site, 21) % np.uint64(2 * DAY)
    columns["qkey_next"] = columns["qkey_checked"] + DAY
    stored = columns["robots_oid"] != np.uint64(NO_OID)
    checked = NOW - 3_600 - mix(site, 22) % np.uint64(2 * DAY)
    columns["robots_checked"] = np.where(stored, checked, 0)
    columns["robots_next"] = np.where(stored, checked + np.uint64(DAY), 0)
    columns["robots_status"] = np.where(stored, 200, 0)
    columns["crawl_delay_ms"] = np.where(uniform(site, 23) < 0.02, 1_000 * (1 + mix(site, 24) % np.uint64(60)), 0)
    for name in ("delay_ms", "soft_limit", "hard_limit", "fresh_limit"):
        columns[name][:] = NO_LIMIT
    return columns


def _write_servers(builder: Builder, qkey: Array, documents: Array) -> None:
    known = np.sort(qkey)
    known = known[np.flatnonzero(np.diff(known, prepend=np.uint64(0)))]
    total = np.bincount(np.searchsorted(known, qkey), documents, len(known))
    columns = tables.empty(tables.SERVERS, len(known)) | {"qkey": known, "documents": total.astype(np.uint32)}
    columns["delay_ms"][:] = 10_000
    columns["slots"][:] = 1
    columns["avg_ms"] = (20 + mix(known, 30) % np.uint64(500)).astype(np.uint32)
    columns["fetches"] = (total * 2).astype(np.uint32)
    columns["errors"] = (total // 20).astype(np.uint32)
    columns["next_ms"][:] = (NOW - 3_600) * 1000
    builder.write_table("servers", columns)
