"""Databases for the tests of cleanup: documents with the buckets that they had before, in segments that a few of them fill.

A Sheep is one document as a person would describe it; `fill` makes a closed state of many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shepherd.config import Cleanup, Config, Store
from shepherd.errors import NothingToDo
from shepherd.formats import bucket
from shepherd.formats.tables import NO_OID, Flag, Reason, RowType
from shepherd.store.check import check
from shepherd.store.state.database import Database
from shepherd.store.state.directory import Builder, State
from shepherd.urls import parse
from tests.worlds import NOW, PRINTS, UNLIMITED, create, next_state, write_world

THIN, TOMBSTONE, NOTHING = "thin", "tombstone", "nothing"


@dataclass(frozen=True)
class Sheep:
    """`now` is its body, or what stands in the place of one; `before` are bodies that it had, oldest first."""

    url: str
    type: RowType = RowType.GATHERED
    reason: Reason = Reason.GATHERED
    now: bytes | str = b"a body"
    before: tuple[bytes, ...] = ()
    flags: int = 0
    weight: int = 100
    section: int = 0
    row: bool = True  # else only its buckets are left

    @property
    def key(self) -> tuple[int, int, int]:
        return PRINTS.of(parse(self.url))


def config(directory: Path, segment_bytes: int = 1500, step: int = 3, **keys: int) -> Config:
    cleanup = Cleanup(**({"reserve_bytes": 0} | keys))
    return Config(directory=directory, store=Store(segment_bytes=segment_bytes, partition_rows=step), cleanup=cleanup)


def fill(path: Path, flock: Sequence[Sheep], segment_bytes: int = 1500, cleaned: int = 0, rule: str = "") -> Database:
    """The database path/db, with the flock in closed state 2, and the filter path/cf/filter."""
    db = create(path, rule)
    with next_state(db, now=NOW - 9) as builder:
        builder.change(cleaned=cleaned)
        publish(builder, flock, segment_bytes)
    return db


def publish(builder: Builder, flock: Sequence[Sheep], segment_bytes: int) -> None:
    """Each document's bodies one after the other: so every segment has something that is needed, and something that is not."""
    segments = builder.segment_writer(segment_bytes)
    rows = []
    for one in flock:
        for age in range(len(one.before), 0, -1):
            segments.append(_body(one, one.before[-age], NOW - 100 - age))
        data = _current(one)
        oid = segments.append(data) if data else NO_OID
        rows += [_row(one, oid, len(data))] if one.row else []
    builder.finish_segments(segments)
    write_world(builder, rows, _sites(flock, rows))


def _current(one: Sheep) -> bytes:
    _norm, path, site = one.key
    if one.now == NOTHING:
        return b""
    if one.now == THIN:
        return bucket.thin(site, path, (NOW - 50) * 1000, 2, one.url)
    if one.now == TOMBSTONE:
        return bucket.tombstone(site, path, (NOW - 50) * 1000, 2, one.url, "a test")
    assert isinstance(one.now, bytes)
    return _body(one, one.now, NOW - 60)


def _body(one: Sheep, body: bytes, time: int) -> bytes:
    _norm, path, site = one.key
    attributes = [("U", one.url.encode()), ("S", b"HTTP/1.1 200 OK"), ("D", hashlib.sha256(body).digest())]
    codec, stored = bucket.compress(body, "lz4")
    return bucket.pack(
        site=site, path=path, time_ms=time * 1000, state=2, attributes=attributes, body=stored, codec=codec, plain_bytes=len(body)
    )


def _row(one: Sheep, oid: int, size: int) -> dict[str, int]:
    norm, path, site = one.key
    row = {"norm": norm, "path": path, "site": site, "oid": oid, "size": size, "type": one.type, "reason": one.reason}
    row |= {"flags": one.flags, "weight": one.weight, "section": one.section, "touched": 2, "frequency": 1, "status": 200}
    if isinstance(one.now, bytes):
        row |= {"digest": int.from_bytes(hashlib.sha256(one.now).digest()[:8], "little")}
        row |= dict.fromkeys(("gathered", "checked", "changed"), NOW - 60)
    return row


def _sites(flock: Sequence[Sheep], rows: Sequence[dict[str, int]]) -> dict[str, dict[str, int]]:
    """Every site of a row; its robots file is the row's, if that has a body."""
    sites = {}
    for name in {parse(one.url).site for one in flock if one.row}:
        mine = [row for row in rows if row["site"] == PRINTS.half(name)]
        robots = [row["oid"] for row in mine if row["flags"] & Flag.ROBOTS and row.get("digest")]
        gathered = sum(row["type"] == RowType.GATHERED and not row["flags"] & Flag.ROBOTS for row in mine)
        counts = {"documents": len(mine), "gathered": gathered, "robots_oid": robots[0] if robots else NO_OID}
        sites[name] = UNLIMITED | counts | {"norm": mine[0]["norm"]}
    return sites


# --- what came of it --------------------------------------------------------------------------------------------


def clean(db: Database, settings: Config, now: int = NOW, jobs: int = 1, everything: bool = False) -> State | None:
    """The state that a cleanup ends with; None if there was nothing to do."""
    from shepherd.cycle.cleanup import drive as cleanup

    with db.writing("test") as writer:
        try:
            return cleanup.run(writer, settings, now, lambda _rows: None, jobs, everything=everything)
        except NothingToDo:
            return None


def documents(state: State) -> dict[str, tuple[object, ...]]:
    """Every gathered document: what a reader can ask of it, but for the place where it stands."""
    found = dict[str, tuple[object, ...]]()
    for one in state.documents():
        bucket_ = one.bucket
        columns = {name: value for name, value in one.columns.items() if name != "oid"}
        found[one.url] = (columns, bucket_.header, bucket_.attributes, bucket_.stored, one.body())
    return found


def rows(state: State) -> dict[tuple[int, int, int], dict[str, int]]:
    """Every row of the index, by footprint."""
    columns = state.index.slice(0, state.index.rows)
    told = [{name: int(column[row]) for name, column in columns.items()} for row in range(state.index.rows)]
    return {(row["norm"], row["path"], row["site"]): row for row in told}


def faults(db: Database) -> list[str]:
    return [str(fault) for fault in check.walk(db) if not fault.note]


def waste(state: State) -> dict[int, tuple[int, int]]:
    """Of each segment its length and how much of it rows and sites need, counted bucket by bucket."""
    needed = set(state.index["oid"][0 : state.index.rows].tolist()) | set(
        state.sites["robots_oid"][0 : state.sites.rows].tolist()
    )
    found = {}
    for number in state.segments():
        buckets = list(state.objects.scan(number))
        used = sum(header.length for oid, header in buckets if oid in needed)
        found[number] = (sum(header.length for _oid, header in buckets), used)
    return found
