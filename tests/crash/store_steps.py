"""A little database that is sound in every way `check` looks at: documents in, tables and buckets out.

What cork and record do, at the size of a crash test: each document is a bucket, a journal record and an index row.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shepherd.filters import parse_filter
from shepherd.formats import bucket, contrib, tables
from shepherd.formats.contrib import Block
from shepherd.formats.control import CLOSED
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, Array, Reason, Result, RowType
from shepherd.store.disk import fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database, harvest
from shepherd.store.state.database import Database, Writer
from shepherd.store.state.directory import Builder, State
from shepherd.store.state.harvest import Harvest
from shepherd.store.state.inserts import InsertDraft
from shepherd.urls import parse
from tests.worlds import KEY, NOW, PRINTS, write_world

SITES = ("http://a.example", "http://b.example")
SEGMENT_BYTES = 700  # so that a few documents already fill a segment
DEAD_PID = 4_194_305  # above any pid that Linux gives


def create(path: Path) -> Database:
    database.create(path, KEY, NOW, 0)
    return Database(path)


def item_name(number: int) -> str:
    """Of an inbox item or lease, by a process of this machine that is no more."""
    return names.item(NOW * 1000 + number, socket.gethostname(), DEAD_PID, number)


def insert(db: Database, name: str, documents: Iterable[int]) -> None:
    """Leave URLs in the inbox, as contributions."""
    with InsertDraft(db.inbox.directory, name, db.key(), parse_filter(""), "me") as draft:
        for url in (parse(url_of(number)) for number in documents):
            draft.add(url.site, url.href, weight=40_000)
        draft.keep()


# --- documents --------------------------------------------------------------------------------------------------


def url_of(number: int) -> str:
    return f"{SITES[number % len(SITES)]}/{number}"


def body_of(number: int, version: int = 0) -> bytes:
    return f"document {number}, version {version}: ".encode() * (number % 7 + 1)


def bucket_of(number: int, body: bytes, state: int) -> bytes:
    url = url_of(number)
    _, path, site = PRINTS.of(parse(url))
    attributes = [("U", url.encode()), ("D", hashlib.sha256(body).digest())]
    return bucket.pack(site=site, path=path, time_ms=NOW * 1000, state=state, attributes=attributes, body=body)


def record_of(number: int, body: bytes, oid: int, size: int) -> bytes:
    row = np.zeros(1, JOURNAL)
    row["norm"], row["path"], row["site"] = PRINTS.of(parse(url_of(number)))
    row["answered"], row["oid"], row["stored_bytes"], row["result"] = row["site"], oid, size, Result.STORED
    row["digest"] = int.from_bytes(hashlib.sha256(body).digest()[:8], "little")
    return row.tobytes()


def block_of(number: int) -> bytes:
    """One contribution."""
    norm, path, site = (np.array([half], np.uint64) for half in PRINTS.of(parse(url_of(number) + "/link")))
    u4, u2, u1 = np.zeros(1, np.uint32), np.zeros(1, np.uint16), np.zeros(1, np.uint8)
    name = SITES[number % len(SITES)].encode()
    text = f"/{number}/link".encode()
    return contrib.encode(Block(norm, path, site, u4, u4, u2, u2, u1, [text], site, norm, [name], site, path, 0))


def gather(written: Harvest, numbers: Iterable[int], state: int, version: int = 0) -> None:
    """Put documents into a harvest: bucket, journal record and a contribution each."""
    for number in numbers:
        data = bucket_of(number, body_of(number, version), state)
        written.journal(record_of(number, body_of(number, version), written.store(data), len(data)))
        written.contribute(1, block_of(number))


# --- states -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a document is stored."""

    oid: int
    size: int
    digest: int


def places(state: State) -> dict[tuple[int, int, int], Place]:
    """Every row of the index, by footprint."""
    wanted = ("norm", "path", "site", "oid", "size", "digest")
    rows = zip(*(state.index[name][0 : state.index.rows].tolist() for name in wanted), strict=True)
    return {(norm, path, site): Place(oid, size, digest) for norm, path, site, oid, size, digest in rows}


def documents(state: State) -> dict[str, bytes]:
    """URL and body of every document."""
    found = (state.objects.get(place.oid) for place in places(state).values())
    return {one.url: one.body() for one in found}


def write_tables(builder: Builder, rows: Mapping[tuple[int, int, int], Place]) -> None:
    """Index, sites and names for these documents, beside the servers that there are; every other column says nothing."""
    said = {"type": RowType.GATHERED, "reason": Reason.GATHERED, "frequency": 1}
    pages = [{"norm": norm, "path": path, "site": site} | vars(place) | said for (norm, path, site), place in rows.items()]
    counts = Counter(page["site"] for page in pages)
    sites = {name: dict.fromkeys(("documents", "gathered"), counts[PRINTS.half(name)]) for name in SITES}
    write_world(builder, pages, {name: row for name, row in sites.items() if row["documents"]}, None)


def successor(writer: Writer, phase: str = CLOSED, number: int | None = None, **control: object) -> Builder:
    """A directory after the furthest; nothing is in it yet."""
    parent = writer.furthest()
    builder = writer.build(parent, StateName(parent.number + 1 if number is None else number, phase), NOW)
    builder.change(**control)
    return builder


def publish_with(writer: Writer, numbers: Iterable[int]) -> State:
    """A closed state with further documents in segments of its own, its servers and old segments linked."""
    builder = successor(writer)
    try:
        rows = places(writer.furthest())
        segments = builder.segment_writer(SEGMENT_BYTES)
        for one in numbers:
            body = body_of(one)
            data = bucket_of(one, body, builder.control.state)
            digest = int.from_bytes(hashlib.sha256(body).digest()[:8], "little")
            rows[PRINTS.of(parse(url_of(one)))] = Place(segments.append(data), len(data), digest)
        builder.keep_objects()
        builder.finish_segments(segments)
        builder.keep_table("servers")
        builder.keep_logs(names.CONTRIB)
        write_tables(builder, rows)
        return writer.publish(builder, {"phase": "test"})
    finally:
        builder.close()


def publish_changed(writer: Writer, weight: int, phase: str = CLOSED, number: int | None = None, **control: object) -> State:
    """A successor that differs in one column; all else is linked."""
    builder = successor(writer, phase, number, **control)
    try:
        for table in tables.TABLES:
            builder.keep_table(table, ["weight"] if table == "index" else [])
        builder.write_table("index", {"weight": _filled(writer.furthest(), weight)})
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        return writer.publish(builder, {"phase": "test"})
    finally:
        builder.close()


def _filled(state: State, weight: int) -> Array:
    return np.full(state.index.rows, weight, tables.INDEX["weight"])


def publish_plan(writer: Writer) -> Path:
    """N.reap with an empty plan; where its harvest will be."""
    builder = successor(writer, "reap")
    try:
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        builder.write_records(names.PLAN, FrameKind.PLAN, np.zeros(0, tables.PLAN))
        path = writer.publish(builder, {"phase": "plan"}).path / names.HARVESTS
    finally:
        builder.close()
    fsio.make_directory(path)
    return path / "reap"


def cork(writer: Writer) -> State:
    """Close N.reap: the documents of its harvest, which has ended, become rows."""
    parent = writer.furthest()
    (path,) = parent.harvests()
    point = harvest.inspect(path).checkpoint
    harvest.confirm_end(path)
    builder = successor(writer, number=parent.number)
    try:
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        rows, first = places(parent), builder.control.segments
        for one in harvest.read_journal(path):
            oid = int(one["oid"]) + (first - 1 << 32)
            key = (int(one["norm"]), int(one["path"]), int(one["site"]))
            rows[key] = Place(oid, int(one["stored_bytes"]), int(one["digest"]))
        for local in range(1, len(point.segments) + 1):
            source = path / names.local_segment(local)
            builder.adopt(f"{names.OBJECTS}/{names.segment(first + local - 1)}", source)
        if point.contrib.length:
            builder.adopt(names.contrib(builder.control.contribs), path / names.CONTRIB)
        builder.change(segments=first + len(point.segments), contribs=builder.control.contribs + 1)
        builder.keep_table("servers")
        write_tables(builder, rows)
        return writer.publish(builder, {"phase": "cork"})
    finally:
        builder.close()
