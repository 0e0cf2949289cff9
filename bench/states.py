"""Databases for benchmarks, made through the store's own API: as many rows, segments and buckets as are asked for.

The keys are random, in order and reproducible; a site has about a hundred rows. Only what the benchmarks look at means anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt

from shepherd.formats import bucket, tables
from shepherd.formats.bucket import Codec
from shepherd.store import database
from shepherd.store.database import Database
from shepherd.store.names import StateName
from shepherd.store.state import State
from shepherd.urls import Footprints, parse

KEY = bytes(range(16))
NOW = 1_790_000_000
STEP = 1_000_000
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


def index_parts(rows: int, seed: int = 1) -> Iterator[dict[str, Array]]:
    """All columns of an index, some million rows at a time, in order."""
    parts = -(-rows // STEP)
    for part in range(parts):
        count = min(STEP, rows - part * STEP)
        rng = np.random.default_rng((seed, part))
        low, high = (1 << 64) * part // parts, (1 << 64) * (part + 1) // parts
        norms = np.sort(rng.integers(low, high - 1, max(1, count // PER_SITE), np.uint64))
        norm = np.sort(norms[rng.integers(0, len(norms), count)])
        path = rng.integers(0, 1 << 63, count, np.uint64)
        columns = tables.empty(tables.INDEX, count)
        columns["norm"], columns["path"], columns["site"] = norm, path[np.lexsort((path, norm))], norm ^ np.uint64(1)
        columns["oid"][:] = tables.NO_OID
        columns["type"][:] = tables.RowType.FORGOTTEN
        columns["weight"] = rng.integers(0, 65_536, count, np.uint16)
        yield columns


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
        index = builder.table("index")
        sites = [np.zeros(0, np.uint64)]
        for part in index_parts(rows):
            if extra is not None:
                part = _with_row(part, extra)
            index.append(part)
            sites.append(part["site"][np.flatnonzero(np.diff(part["site"], prepend=np.uint64(0)))])
        builder.finish_table(index)
        site = np.unique(np.concatenate(sites))
        columns = tables.empty(tables.SITES, len(site)) | {"site": site, "norm": site ^ np.uint64(1)}
        columns["name"] = np.arange(1, len(site) + 1, dtype=np.uint64) * 16
        builder.write_table("sites", columns)
        builder.write_site_names([b"http://s.example" * len(site)])
        builder.write_table("servers", tables.empty(tables.SERVERS))
        return writer.publish(builder, {"phase": "bench"})


def _with_row(part: dict[str, Array], row: dict[str, int]) -> dict[str, Array]:
    first, last = int(part["norm"][0]), int(part["norm"][-1])
    if not first <= row["norm"] <= last:
        return part
    at = int(np.searchsorted(part["norm"], np.uint64(row["norm"])))
    return {name: np.insert(column, at, np.array(row.get(name, 0), column.dtype)) for name, column in part.items()}


def rss_anon_mb(pid: int | str = "self") -> float:
    """Private memory of a process now, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


def drop_caches(path: Path) -> None:
    """The file is read from the disk again next time; for cold figures."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
