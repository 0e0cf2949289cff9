"""Record as a whole: which rows get which bucket, and that neither jobs, partitions nor rounds show."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from shepherd.cycle.record import drive as record
from shepherd.cycle.record import thin_buckets as bodiless
from shepherd.errors import Corruption
from shepherd.formats.bucket import BucketFlag
from shepherd.formats.tables import NO_OID, Array, Flag, Reason, RowType, contrib_oid, in_contrib, qkey_unresolved
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.dry_run import DryRun
from tests.crash import cycle_steps
from tests.support import harvests
from tests.support.harvests import NOW, Page, begin, files, reap, rows, run

A, ONE, B = "http://a.example/", "http://a.example/one", "http://b.example/two"
LINKS = {f"http://{host}.example/{path}": 100 + path for host in "acde" for path in range(9)}
DAY = 86_400


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Selected, with three dozen new URLs and three new sites."""
    begin(tmp_path / "db", (A, ONE, B))
    reap(tmp_path / "db", ("reap", [Page(A, "a"), Page(ONE, "1")], LINKS))
    run(tmp_path / "db", "cork", "merge", "select")
    return tmp_path / "db"


def sound(db: Path) -> bool:
    return [fault for fault in check.walk(Database(db)) if not fault.note] == []


def forget(db: Path, urls: dict[str, Reason]) -> None:
    """What a merge of delete requests would have left: these rows forgotten."""
    state = Database(db).furthest()
    columns = {name: np.array(state.index[name][0 : state.index.rows]) for name in ("type", "reason", "touched")}
    for url, reason in urls.items():
        key = harvests.PRINTS.of(harvests.parse(url))
        here = [tuple(state.index[name].value(row) for name in ("norm", "path", "site")) for row in range(state.index.rows)]
        row = here.index(key)
        columns["type"][row], columns["reason"][row], columns["touched"][row] = RowType.FORGOTTEN, reason, state.number
    publish_again(db, "index", columns)


def publish_again(db: Path, changed: str, columns: dict[str, Array]) -> None:
    """The selected state once more, with other columns in one table."""
    with Database(db).writing("a test") as writer:
        state = writer.furthest()
        shutil.move(state.path, db / "aside")
        state = State(shutil.copytree(db / "aside", db / "parent" / str(state.name)))
        builder = writer.build(state, StateName(state.number, "selected"), NOW)
        builder.keep_objects()
        builder.keep_logs(names.CONTRIB)
        for table in {"index", "sites", "servers"} - {changed}:
            builder.keep_table(table)
        builder.keep_table(changed, columns)
        builder.write_table(changed, columns)
        builder.publish({"phase": "test"})
    shutil.rmtree(db / "parent")
    shutil.rmtree(db / "aside")


def twin(db: Path, place: Path, **how: int) -> dict[str, bytes]:
    shutil.copytree(db, place / "db")
    shutil.copytree(db.parent / "cf", place / "cf")
    return files(run(place / "db", "record", **how).path)


def test_every_new_url_gets_a_thin_bucket_with_its_text(db: Path) -> None:
    state = run(db, "record")
    known = rows(state, "type", "size")
    assert set(LINKS) <= set(known)
    assert {f"http://{host}.example/robots.txt" for host in "abcde"} <= set(known)
    for row in range(state.index.rows):
        head = state.objects.get(state.index["oid"].value(row))
        assert head.header.length == state.index["size"].value(row)
        gathered = state.index["type"].value(row) == RowType.GATHERED
        assert gathered or (head.header.flags, head.header.time_ms) == (BucketFlag.THIN, NOW * 1000)
    assert state.report()["recorded"] == len(LINKS) + 3
    assert state.numbered(names.CONTRIB) == []
    assert sound(db)


def test_jobs_partitions_units_and_rounds_do_not_change_the_state(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = twin(db, tmp_path / "1")
    assert twin(db, tmp_path / "2", jobs=3, partition_rows=5) == expected
    monkeypatch.setattr(bodiless, "UNIT_ROWS", 2)
    monkeypatch.setattr(bodiless, "NAMES_BYTES", 40)
    assert twin(db, tmp_path / "3", jobs=2) == expected
    monkeypatch.setattr(record, "ROUND_ROWS", 1)
    monkeypatch.setattr(
        record,
        "SOURCES",
        tuple(record.UrlSource(s.name, s.key, 1 if s.key == "oid" else 60, s.units) for s in record.SOURCES),
    )
    assert twin(db, tmp_path / "4", partition_rows=7) == expected


def test_filter_that_changed_since_is_applied_again(db: Path) -> None:
    (cycle_steps.cf_of(db) / "filter").write_text("reject prefix http://c.example/3\nreject host d.example\n")
    state = run(db, "record")
    left = rows(state, "type")
    assert "http://c.example/3" not in left and "http://c.example/4" in left
    assert not any("//d.example/" in url and "robots" not in url for url in left)
    refused = (state.index["reason"][0:999] == Reason.FILTER).nonzero()[0]
    assert len(refused) == 1 + 9 == state.report()["filtered"]
    assert (state.index["type"].take(refused) == RowType.FORGOTTEN).all()
    assert (state.index["oid"].take(refused) == np.uint64(NO_OID)).all()
    assert sound(db)


def test_deleted_rows_get_a_tombstone_wherever_their_url_stood(db: Path) -> None:
    gone = {A: Reason.DELETED, B: Reason.PURGED, "http://c.example/3": Reason.DELETED}
    forget(db, gone)
    state = run(db, "record")
    assert state.report()["tombstones"] == 3
    for url, reason in gone.items():
        row = next(row for row in range(state.index.rows) if _url(state, row) == url)
        found = state.objects.get(state.index["oid"].value(row), state.index["size"].value(row))
        assert found.header.flags == BucketFlag.THIN | BucketFlag.TOMBSTONE
        assert (
            found.attributes["P"] == {Reason.DELETED: b"deleted by an operator", Reason.PURGED: b"purged by an operator"}[reason]
        )
        assert (state.index["digest"].value(row), state.index["gathered"].value(row)) == (0, 0)
        assert (state.index["type"].value(row), state.index["reason"].value(row)) == (RowType.FORGOTTEN, reason)
    site = state.site_names(0, state.sites.rows).index(b"http://a.example")
    assert state.sites["gathered"].value(site) == 1
    assert sound(db)


def test_documents_of_a_server_are_counted(db: Path) -> None:
    """Gathered and ungathered ones of all its sites, without robots files and without what the filter refuses here."""
    (cycle_steps.cf_of(db) / "filter").write_text("reject prefix http://c.example/3\n")
    state = Database(db).furthest()
    qkeys = np.array(state.sites["qkey"][0 : state.sites.rows])
    texts = state.site_names(0, state.sites.rows)
    for name in (b"http://a.example", b"http://c.example"):
        qkeys[texts.index(name)] = state.servers["qkey"].value(0)
    publish_again(db, "sites", {"qkey": qkeys})
    state = run(db, "record")
    assert state.servers["documents"][0:9].tolist() == [2 + 9 + 9 - 1]
    assert sound(db)


def test_sleeping_url_that_the_filter_refuses_does_not_change_the_documents_of_its_server(db: Path) -> None:
    """It was never one of them, and a subtraction would go below zero."""
    (cycle_steps.cf_of(db) / "filter").write_text("reject prefix http://b.example/\nreject host c.example\n")
    state = Database(db).furthest()
    texts, qkeys = state.site_names(0, state.sites.rows), np.array(state.sites["qkey"][0 : state.sites.rows])
    qkeys[:] = [qkey_unresolved(n) for n in range(len(qkeys))]
    qkeys[texts.index(b"http://c.example")] = state.servers["qkey"].value(0)
    publish_again(db, "sites", {"qkey": qkeys})
    types = np.array(state.index["type"][0 : state.index.rows])
    types[state.index["site"][0 : state.index.rows] == np.uint64(harvests.PRINTS.half("http://c.example"))] = RowType.SLEEPING
    publish_again(db, "index", {"type": types})
    state = run(db, "record")
    assert state.report()["filtered"] == 9
    assert state.servers["documents"][0:9].tolist() == [0]
    assert sound(db)


def test_what_is_buried_is_not_buried_again(db: Path) -> None:
    forget(db, {A: Reason.DELETED})
    first = rows(run(db, "record"), "oid")[A]
    cycle_steps.dropping(5, ("http://e.example/new",))(db, lambda _line: None)
    run(db, "merge", "select")
    forget(db, {A: Reason.DELETED})  # somebody has touched the row again
    state = run(db, "record")
    assert rows(state, "oid")[A] == first
    assert state.report()["tombstones"] == 0


def test_row_that_an_equivalent_brings_back_has_a_bucket_of_its_own_site(db: Path) -> None:
    forget(db, {"http://c.example/3": Reason.DELETED})
    run(db, "record")
    cycle_steps.dropping(5, ("https://c.example/3",))(db, lambda _line: None)
    state = run(db, "merge", "select", "record")
    assert rows(state, "type")["http://c.example/3"] == (RowType.UNGATHERED,)
    assert sound(db)


def test_forgotten_rows_give_up_their_place_in_contrib(db: Path) -> None:
    forget(db, {"http://c.example/3": Reason.BELOW_SLEEP})
    state = run(db, "record")
    assert state.report()["given up"] == 1
    assert not in_contrib(state.index["oid"][0:999]).any()
    assert "http://c.example/3" not in rows(state, "oid")
    assert sound(db)


def test_failed_lookups_that_are_too_old_are_forgotten(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", (A, B))
    with Database(db).writing("a test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "selected"), NOW)
        builder.keep_objects()
        for table in ("index", "servers"):
            builder.keep_table(table)
        columns = {"qkey_checked": np.array([NOW - 31 * DAY, NOW - DAY], "<u4"), "qkey_next": np.array([NOW + 5, NOW + 6], "<u4")}
        builder.keep_table("sites", columns)
        builder.write_table("sites", columns)
        writer.publish(builder, {"phase": "test"})
    state = run(db, "record")
    assert state.report()["queue keys reset"] == 1
    assert state.sites["qkey_checked"][0:2].tolist() == [0, NOW - DAY]
    assert state.sites["qkey_next"][0:2].tolist() == [0, NOW + 6]


def test_columns_that_nothing_changes_are_linked(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", (A,))
    cycle_steps.dropping(7, (A,))(db, lambda _line: None)
    run(db, "merge", "select")
    parent = Database(db).furthest()
    before = {name: (parent.path / name).stat().st_ino for name in parent.control.files if "/" in name}
    state = run(db, "record")
    assert {name: (state.path / name).stat().st_ino for name in before} == before


def test_row_that_points_beyond_its_contributions_is_corruption(db: Path) -> None:
    state = Database(db).furthest()
    wanted = bodiless.RowsToRecord(
        np.array([0]), np.array([contrib_oid(1, 10**6)], np.uint64), np.zeros(1, np.uint64), np.zeros(1, np.uint8)
    )
    with pytest.raises(Corruption, match="not there"):
        bodiless.from_contrib(state, wanted)


def test_dry_run_reports_what_record_would_do(db: Path) -> None:
    before = files(db / "state")
    database = Database(db)
    told = record.run(
        DryRun(database, database.furthest()), harvests.Config(directory=cycle_steps.cf_of(db)), NOW, lambda _rows: None
    )
    assert files(db / "state") == before
    assert told.report() == run(db, "record").report()


def _url(state: State, row: int) -> str:
    oid = state.index["oid"].value(row)
    return state.objects.head(oid).url if oid != NO_OID else ""


def test_robots_row_of_a_new_site_has_its_thin_bucket(db: Path) -> None:
    state = run(db, "record")
    robots = rows(state, "flags")["http://c.example/robots.txt"][0]
    assert robots & Flag.ROBOTS
