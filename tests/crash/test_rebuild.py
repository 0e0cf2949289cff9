"""A damaged table of a closed state is made again: all that still checks is kept, and what is lost is reported."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from shepherd.cycle.rebuild import recover
from shepherd.errors import Corruption
from shepherd.formats import bucket, tables
from shepherd.formats.tables import INDEX, Reason, RowType
from shepherd.store.check.recover import RecoveryStep
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash.mending import NOW, copy, differing, flip, mend, mended, rows, write
from tests.support import sampling

INDEX_ONLY = {"weight", "flags", "reason"}  # what nobody else knows of rows that the older state does not have


# --- the index


@pytest.mark.parametrize("name", sampling.of_the_day(INDEX, 8, "columns of the index"))
def test_damaged_column_costs_only_what_it_alone_knew(name: str, db: Path) -> None:
    state = Database(db).closed()
    before = rows(state)
    flip(state.path / "index" / name)
    after, told = mended(db)
    lost = differing(before, rows(after))
    assert set(lost) <= {name} | (INDEX_ONLY if name in ("norm", "path", "site") else set())
    if lost:
        assert f"{lost[0]}: " in told
    if name == "weight":  # the older state knows the rows that it had
        older = Database(db).closed(8) if 8 in [n.number for n in Database(db).states()] else None
        assert older is not None
        assert "not known" in told and "from the older state" in told


def test_lost_index_is_made_again_from_the_buckets(db: Path) -> None:
    state = Database(db).closed()
    before = rows(state)
    for name in INDEX:
        (state.path / "index" / name).unlink()
    after, told = mended(db)
    found = rows(after)
    assert set(differing(before, found)) == INDEX_ONLY
    initial = (before["flags"] & tables.Flag.INITIAL) != 0
    for name in ("flags", "reason"):  # of the one URL that was inserted since the older state
        assert np.count_nonzero(before[name] != found[name]) == np.count_nonzero(initial & (before[name] != found[name])) == 1
    assert "rows: 213 by their buckets alone" in told
    assert "weight: 140 from the older state, 73 not known" in told


def test_lost_tables_without_an_older_state_cost_no_document(db: Path) -> None:
    database = Database(db)
    state = database.closed()
    before = rows(state)
    with database.writing("test") as writer:
        writer.prune(1, NOW)
    names_before = sorted(state.site_names(0, state.sites.rows))
    for table in tables.TABLES:
        shutil.rmtree(state.path / table)
    after, told = mended(db)
    found = rows(after)
    for name in ("norm", "path", "site", "oid", "digest", "size"):
        assert np.array_equal(before[name], found[name]), name
    gathered = before["type"] == RowType.GATHERED
    assert np.array_equal(before["gathered"][gathered], found["gathered"][gathered])
    assert sorted(after.site_names(0, after.sites.rows)) == names_before
    assert "weight: 213 not known" in told


def test_deleted_document_stays_deleted_after_a_rebuild(db: Path) -> None:
    """A tombstone is newer than the document it buries."""
    database = Database(db)
    state = database.closed()
    row = int(np.flatnonzero(rows(state)["type"] == RowType.GATHERED)[0])
    site, path = state.index["site"].value(row), state.index["path"].value(row)
    url = state.objects.head(state.index["oid"].value(row)).url
    stone = bucket.pack(
        site=site,
        path=path,
        time_ms=NOW * 1000,
        state=9,
        attributes=[("U", url.encode())],
        flags=bucket.BucketFlag.TOMBSTONE | bucket.BucketFlag.THIN,
    )
    with database.writing("test") as writer:
        builder = writer.build(state, names.StateName(10, "closed"), NOW)
        columns = {name: rows(state)[name] for name in ("oid", "type", "reason", "size", "digest")}
        builder.keep(p for p in state.control.files if p not in (names.REPORT, *(f"index/{name}" for name in columns)))
        segments = builder.segment_writer(1 << 20)
        columns["oid"][row] = segments.append(stone)
        builder.finish_segments(segments)
        for name, value in (("type", RowType.FORGOTTEN), ("reason", Reason.DELETED), ("size", len(stone)), ("digest", 0)):
            columns[name][row] = value
        builder.write_table("index", columns)
        writer.publish(builder, {"phase": "test"})
    shutil.rmtree(db / "state" / "000010" / "index")
    after, _told = mended(db)
    assert after.index["type"].value(row) == RowType.FORGOTTEN
    assert after.index["reason"].value(row) == Reason.DELETED


# --- sites, servers, control, logs


@pytest.mark.parametrize("name", sampling.of_the_day([*tables.SITES, names.NAMES], 10, "columns of the sites"))
def test_damaged_site_column_costs_no_site(name: str, db: Path) -> None:
    state = Database(db).closed()
    before, sites = rows(state), sorted(state.site_names(0, state.sites.rows))
    flip(state.path / "sites" / name)
    after, _told = mended(db)
    assert differing(before, rows(after)) == []
    assert sorted(after.site_names(0, after.sites.rows)) == sites


@pytest.mark.parametrize("name", tables.SERVERS)
def test_damaged_server_column_delays_every_server(name: str, db: Path) -> None:
    state = Database(db).closed()
    qkeys = state.servers["qkey"][0 : state.servers.rows].copy()
    before = state.servers["next_ms"][0 : state.servers.rows].copy()
    flip(state.path / "servers" / name)
    after, _told = mended(db)
    assert set(qkeys.tolist()) == set(after.servers["qkey"][0 : after.servers.rows].tolist())
    assert np.all(after.servers["next_ms"][0 : after.servers.rows] >= before)
    if name in ("qkey", "next_ms"):
        assert np.all(after.servers["next_ms"][0 : after.servers.rows] > NOW * 1000)


def test_column_with_a_tail_is_not_taken_over_with_it(db: Path) -> None:
    path = Database(db).closed().path / "servers" / "next_ms"
    whole = path.read_bytes()
    write(path, whole + b"a tail")
    after, _told = mended(db)
    assert (after.path / "servers" / "next_ms").read_bytes() == whole


def test_lost_control_costs_nothing(db: Path) -> None:
    before = rows(Database(db).closed())
    (db / "state" / "000009" / names.CONTROL).unlink()
    after, _told = mended(db)
    assert differing(before, rows(after)) == []


def test_key_lost_with_every_control_is_reported(db: Path) -> None:
    for path in (db / "state").glob("*/control"):
        flip(path)
    with pytest.raises(Corruption, match="the key is lost"):
        mend(db)


def test_damaged_contributions_cost_only_their_block(base: Path, tmp_path: Path) -> None:
    db = copy(base, tmp_path / "db")
    shutil.rmtree(db / "state" / "000009")  # so that 8, whose contributions wait, is the newest
    state = Database(db).closed()
    (number,) = state.numbered(names.CONTRIB)
    count = sum(map(len, state.contribs(number)))
    blocks = [len(block) for block in state.contribs(number)]
    flip(state.path / names.contrib(number), 40)  # in the first block
    after, told = mended(db)
    assert "contrib.0000000" in told
    left = sum(len(block) for n in after.numbered(names.CONTRIB) for block in after.contribs(n))
    assert left == count - blocks[0]


def test_details_are_grouped() -> None:
    counts = {"weight: from the older state": 2, "weight: not known": 1, "rows: lost": 3}
    assert recover._details(counts) == ("rows: 3 lost", "weight: 2 from the older state, 1 not known")
    assert dataclasses.is_dataclass(RecoveryStep)
