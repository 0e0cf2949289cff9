"""Databases for bench/store: the rows of bench/makedb, none with a bucket, beside as many segments as are asked for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
from made_rows import NOW, make_rows, make_urls
from made_state import Counts, write_sites
from made_web import KEY, make_web
from measure import rss_anon_mb

from shepherd.formats import bucket, tables
from shepherd.formats.bucket import Codec
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.urls import Footprints, parse

__all__ = ["KEY", "NOW", "drop_caches", "make_bucket", "make_state", "rss_anon_mb"]

PER_SITE = 100
Array = npt.NDArray[Any]


def make_bucket(prints: Footprints, number: int, body: bytes, state: int = 1) -> bytes:
    """A page as a reap stores it."""
    url = parse(f"http://s{number // PER_SITE}.example/page/{number}")
    _norm, path, site = prints.of(url)
    attributes = [
        ("U", url.href.encode()),
        ("S", b"HTTP/1.1 200 OK"),
        ("H", b'Content-Type: text/html\r\nETag: "12345678"\r\nServer: nginx\r\nDate: Tue, 17 Nov 2026 00:00:00 GMT\r\n'),
        ("T", b"text/html"),
        ("C", b"utf-8"),
        ("D", number.to_bytes(32, "little")),
        ("t", b"A page about wool, number %d" % number),
        ("A", b"192.0.2.1"),
        ("m", (120).to_bytes(4, "little")),
    ]
    return bucket.pack(
        site=site, path=path, time_ms=NOW * 1000 + number, state=state, attributes=attributes, body=body, codec=Codec.LZ4,
        plain_bytes=len(body),
    )  # fmt: skip


def make_state(path: Path, rows: int, segments: int, segment: bytes = b"", extra: dict[str, int] | None = None) -> State:
    """A database with one closed state beyond the empty one: so many rows, so many segments of these bytes.

    `extra` are values of one more row, put where it belongs: for a query by URL.
    """
    database.create(path, KEY, NOW, 0)
    with Database(path).writing("bench") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(2, "closed"), NOW)
        segment_writer = builder.segment_writer(max(len(segment), 1))
        for _ in range(segments):
            segment_writer.append(segment or bucket.thin(1, 2, 3, 1, "http://a.example/"))
        builder.finish_segments(segment_writer)
        web = make_web(rows, 1, real=False)
        counts, index = Counts(len(web.site)), builder.table("index")
        for first, last in web.parts():
            urls = make_urls(web, first, last)
            part = _forgotten(make_rows(web, first, last, urls))
            counts.add(web, first, last, urls, part)
            index.append(part if extra is None else _with_row(part, extra))
        builder.finish_table(index)
        write_sites(builder, web, counts)
        return writer.publish(builder, {"phase": "bench"})


def _forgotten(part: dict[str, Array]) -> dict[str, Array]:
    """The same rows without buckets."""
    rows = len(part["oid"])
    return part | {"oid": np.full(rows, tables.NO_OID, np.uint64), "type": np.full(rows, tables.RowType.FORGOTTEN, np.uint8)}


def _with_row(part: dict[str, Array], row: dict[str, int]) -> dict[str, Array]:
    first, last = int(part["norm"][0]), int(part["norm"][-1])
    if not first <= row["norm"] <= last:
        return part
    at = int(np.searchsorted(part["norm"], np.uint64(row["norm"])))
    return {name: np.insert(column, at, np.array(row.get(name, 0), column.dtype)) for name, column in part.items()}


def drop_caches(path: Path) -> None:
    """The file is read from the disk again next time; for cold figures."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
