"""Damaged buckets of a closed state: each costs what only it held, and never its neighbours."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shepherd.formats import bucket, tables
from shepherd.formats.tables import Reason, RowType
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from shepherd.store.state.objects import Objects
from tests.crash.mending import UNTOUCHED, flip, mended, rows, write


def damaged_bucket(db: Path, in_body: bool) -> tuple[int, int, str]:
    """Damage the bucket of a gathered page that has a body; its row, its oid and its URL."""
    state = Database(db).closed()
    found = rows(state)
    pages = (found["type"] == RowType.GATHERED) & (found["digest"] != 0) & (found["flags"] & tables.Flag.ROBOTS == 0)
    row = int(np.flatnonzero(pages)[0])
    oid = int(found["oid"][row])
    stored = state.objects.get(oid)
    segment, offset = tables.split_oid(oid)
    at = offset + (stored.header.length - 1 if in_body else bucket.HEADER_BYTES + 6)
    flip(state.path / names.OBJECTS / names.segment(segment), at)
    return row, oid, stored.url


def test_damaged_body_does_not_cost_the_url(db: Path) -> None:
    row, _oid, url = damaged_bucket(db, in_body=True)
    before = rows(Database(db).closed())
    after, told = mended(db)
    assert after.index.rows == len(before["norm"])
    assert after.objects.get(after.index["oid"].value(row)).url == url
    assert after.index["type"].value(row) == RowType.UNGATHERED
    assert after.index["reason"].value(row) == Reason.BODY_LOST
    assert after.index["weight"].value(row) == before["weight"][row]
    assert "1 without their damaged bodies" in told
    others = np.arange(len(before["norm"])) != row
    for name in UNTOUCHED:
        if name != "oid":  # the segment was copied
            assert np.array_equal(before[name][others], after.index[name][0 : after.index.rows][others]), name


def test_unreadable_bucket_does_not_cost_its_older_version(db: Path) -> None:
    row, _oid, url = damaged_bucket(db, in_body=False)
    before = rows(Database(db).closed())
    after, _told = mended(db)
    assert after.index.rows == len(before["norm"])  # the thin bucket that record once wrote is still there
    assert after.objects.get(after.index["oid"].value(row)).url == url
    assert after.index["type"].value(row) == RowType.UNGATHERED
    assert after.index["weight"].value(row) == before["weight"][row]


def test_missing_segment_is_reported(db: Path) -> None:
    before = rows(Database(db).closed())
    for path in (db / "state").glob("*/objects/00000003"):
        path.unlink()
    after, told = mended(db)
    assert "segments: 1 missing" in told
    lost = len(before["norm"]) - after.index.rows
    assert lost and f"rows: {lost} lost with their buckets" in told


def test_every_bucket_that_is_left_is_readable_after_a_rebuild(db: Path) -> None:
    state = Database(db).closed()
    for number in state.segments()[::2]:
        flip(state.path / names.OBJECTS / names.segment(number), 0.4)
    after, _told = mended(db)
    objects = Objects(after.path / names.OBJECTS)
    for oid in after.index["oid"][0 : after.index.rows].tolist():
        objects.get(oid)


def test_bucket_under_a_false_name_is_not_taken(db: Path) -> None:
    """Its checksums hold, but the URL in it is not the row's: the row has the bucket that it had before."""
    state = Database(db).closed()
    row = int(np.flatnonzero(state.index["digest"][0 : state.index.rows])[0])
    oid = int(state.index["oid"].value(row))
    stored = state.objects.get(oid)
    attributes = {**stored.attributes, "U": stored.url[:-1].encode() + b"~"}
    head = stored.header
    data = bucket.pack(
        site=head.site, path=head.path, time_ms=head.time_ms, state=head.state, attributes=attributes.items(), body=stored.stored,
        codec=head.codec, plain_bytes=head.plain_bytes, flags=head.flags,
    )  # fmt: skip
    segment, offset = tables.split_oid(oid)
    path = state.path / names.OBJECTS / names.segment(segment)
    whole = path.read_bytes()
    write(path, whole[:offset] + data + whole[offset + len(data) :])
    assert path.stat().st_size == len(whole)
    after, told = mended(db)
    assert "made 000010 from what is left of 000009 and of 000008" in told
    assert "1 under a false name" in told
    assert after.objects.get(int(after.index["oid"].value(row))).url == stored.url
    assert after.index["type"].value(row) == RowType.UNGATHERED
