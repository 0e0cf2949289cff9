"""Cork as a whole: which harvests it applies, what it makes of buckets, sites and servers, and its laws."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import Corruption, NothingToDo, UsageError
from shepherd.formats import bucket
from shepherd.formats.tables import Reason, Result, RowType
from shepherd.politeness import contacts
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state import inbox
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.dry_run import DryRun
from shepherd.store.state.harvest import Harvest
from tests.support import harvests
from tests.support.harvests import NOW, Page, begin, files, harvest, reap, rows, run

A, ONE, B = "http://a.example/", "http://a.example/one", "http://b.example/two"
ITEM = "1790000000000-elsewhere-7-{}"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return begin(tmp_path / "db", (A, ONE, B))


def drop(db: Path, number: int, source: Path) -> Path:
    return Database(db).inbox.drop_harvest(ITEM.format(number), source)


def sound(db: Path) -> bool:
    return [fault for fault in check.walk(Database(db)) if not fault.note] == []


def bodies(state: State) -> dict[str, bytes]:
    return {document.url: document.body() for document in state.documents()}


# --- what a record does to a row ----------------------------------------------------------------------------------


def test_equal_digest_keeps_the_bucket_that_is_there(db: Path) -> None:
    reap(db, ("reap", [Page(ONE, "same"), Page(A, "old")], {}))
    before = rows(run(db, "cork"), "oid", "size", "gathered", "changed")
    later = NOW + 40 * 86_400
    reap(db, ("reap", [Page(ONE, "same", at=later), Page(A, "new", at=later)], {}), end=later, now=later - 9)
    state = run(db, "cork", now=later)
    after = rows(state, "oid", "size", "gathered", "changed")
    assert after[ONE] == before[ONE]
    assert after[A] != before[A]
    assert rows(state, "checked", "reason", "type")[ONE] == (later, Reason.UNCHANGED, RowType.GATHERED)
    assert state.report()["settled"]["same body"] == 1
    assert bodies(state) == {ONE: b"same", A: b"new"}
    assert sound(db)


def test_robots_file_that_came_again_is_the_one_bucket_of_row_and_site(db: Path) -> None:
    robots = "http://a.example/robots.txt"
    reap(db, ("reap", [Page(robots, "User-agent: *")], {}))
    first = rows(run(db, "cork"), "oid")[robots][0]
    later = NOW + 40 * 86_400
    reap(db, ("reap", [Page(robots, "User-agent: *", at=later)], {}), end=later, now=later - 9)
    state = run(db, "cork", now=later)
    sites = dict(
        zip(state.site_names(0, state.sites.rows), state.sites["robots_oid"][0 : state.sites.rows].tolist(), strict=True)
    )
    assert rows(state, "oid")[robots][0] == first == sites[b"http://a.example"]
    assert state.sites["robots_checked"][0 : state.sites.rows].max() == later


def test_page_that_moved_to_an_unknown_site_adds_it(db: Path) -> None:
    moved = [Page(ONE, "1", answered="https://www.a.example/one"), Page(B, "2", answered="https://b.example/two")]
    reap(db, ("reap", moved, {"http://a.example/y": 4}))
    state = run(db, "cork", partition_rows=1)
    known = state.site_names(0, state.sites.rows)
    assert {b"http://a.example", b"https://www.a.example", b"https://b.example"} <= set(known)
    counts = {name: state.sites["documents"].value(row) for row, name in enumerate(known)}
    assert counts == {b"http://a.example": 2, b"http://b.example": 1, b"https://www.a.example": 1, b"https://b.example": 1}
    assert sound(db)
    run(db, "merge", "select", "record")
    assert sound(db)


def test_servers_agree_with_the_dense_computation(db: Path) -> None:
    pages = [Page(A, "a"), Page(ONE, result=Result.CONNECTION, status=0, at=NOW + 3), Page(B, result=Result.SOFT, status=503)]
    for turn in range(2):  # first the servers are new, then they are known
        now = NOW + turn * 40 * 86_400
        later = [dataclasses.replace(page, at=page.at + now - NOW) for page in pages]
        reap(db, ("reap", later, {}), now=now, end=now + 9)
        parent = Database(db).furthest()
        before = {name: np.array(values) for name, values in parent.servers.slice(0, parent.servers.rows).items()}
        state = run(db, "cork", now=now, partition_rows=1)
        journal, sites = state.journal(state.numbered("journal")[0]), state.sites.slice(0, state.sites.rows)
        expected = contacts.apply_servers(before, sites, journal, harvests.Config().politeness)
        for name, values in expected.items():
            assert state.servers[name][0 : state.servers.rows].tolist() == values.tolist(), (turn, name)
        assert state.servers.rows > 0


# --- which harvests -----------------------------------------------------------------------------------------------


def test_harvests_of_the_inbox_are_merged_with_those_of_the_reap(db: Path, tmp_path: Path) -> None:
    drop(
        db,
        1,
        harvest(tmp_path / "theirs", [Page(B, "theirs", at=NOW + 2), Page(ONE, "theirs", at=NOW + 2)], {"http://c.example/": 9}),
    )
    reap(db, ("reap", [Page(A, "ours"), Page(ONE, "ours", at=NOW + 3)], {}), end=NOW + 10)
    state = run(db, "cork")
    assert bodies(state) == {A: b"ours", ONE: b"ours", B: b"theirs"}  # what ended later is newer
    assert state.report()["harvests"] == 2
    assert state.control.applied == (ITEM.format(1),)
    assert Database(db).inbox.all_items() == []
    assert sound(db)
    assert "http://c.example/" in rows(run(db, "merge", "select", "record"), "oid")


def test_between_harvests_the_end_decides_then_the_name_and_within_one_the_position(db: Path, tmp_path: Path) -> None:
    drop(
        db,
        2,
        harvest(
            tmp_path / "2", [Page(A, "2", at=NOW + 1), Page(B, "first", at=NOW + 5), Page(B, "last", at=NOW + 4)], end=NOW + 8
        ),
    )
    drop(db, 1, harvest(tmp_path / "1", [Page(A, "1", at=NOW + 3)], end=NOW + 8))
    drop(db, 3, harvest(tmp_path / "3", [Page(ONE, "older", at=NOW + 3)], end=NOW + 7))
    drop(db, 4, harvest(tmp_path / "4", [Page(ONE, "newer", at=NOW + 2)], end=NOW + 9))
    assert bodies(run(db, "cork")) == {A: b"2", ONE: b"newer", B: b"last"}


def test_inbox_alone_makes_the_next_closed_state(db: Path, tmp_path: Path) -> None:
    before = Database(db).furthest()
    drop(db, 1, harvest(tmp_path / "theirs", [Page(A, "theirs")]))
    state = run(db, "cork")
    assert (state.number, state.name.closed, state.control.parent) == (before.number + 1, True, str(before.name))
    assert bodies(state) == {A: b"theirs"}
    with pytest.raises(NothingToDo):
        run(db, "cork")
    assert sound(db)


def test_cork_of_cork_changes_nothing(db: Path, tmp_path: Path) -> None:
    pages = [Page(A, "a"), Page(ONE, "1", at=NOW + 2), Page(B, result=Result.DENIED)]
    source = harvest(tmp_path / "theirs", pages)
    drop(db, 1, source)
    once = run(db, "cork")
    drop(db, 2, source)
    twice = run(db, "cork")
    for name in set(harvests.tables.INDEX) - {"touched"}:
        assert once.index[name][0:99].tolist() == twice.index[name][0:99].tolist(), name
    assert sound(db)


def test_reap_without_a_harvest_is_not_closed_because_the_inbox_has_one(db: Path, tmp_path: Path) -> None:
    drop(db, 1, harvest(tmp_path / "theirs", [Page(A, "theirs")]))
    run(db, "plan")
    with pytest.raises(NothingToDo, match="no harvest yet"):
        run(db, "cork")


def test_harvest_that_is_damaged_or_for_another_database_is_refused_and_delays_no_other(db: Path, tmp_path: Path) -> None:
    good = harvest(tmp_path / "good", [Page(A, "good")])
    damaged = drop(db, 1, good) / "seg.00000001"
    damaged.write_bytes(damaged.read_bytes().replace(b"good", b"evil"))
    stranger = Database(db).inbox.directory / f"{ITEM.format(2)}.harvest"
    shutil.copytree(harvest(tmp_path / "stranger", [Page(A, "x")], key=bytes(16)), stranger)
    with pytest.raises(Corruption, match="move it away"):
        run(db, "cork")
    reap(db, ("reap", [Page(B, "ours")], {}))
    state = run(db, "cork")
    assert bodies(state) == {B: b"ours"}
    refused = state.report()["refused harvests"]
    assert sorted(refused) == [ITEM.format(1), ITEM.format(2)]
    assert "another database" in refused[ITEM.format(2)]
    assert len(Database(db).inbox.items(inbox.HARVEST)) == 2
    assert any("seg.00000001" in str(fault.path) for fault in check.walk(Database(db)))


def test_newest_record_counts_for_a_page_that_has_moved_meanwhile(db: Path, tmp_path: Path) -> None:
    """A harvest from elsewhere was planned before the page moved to its equivalent."""
    moved = "http://www.a.example/one"
    drop(db, 1, harvest(tmp_path / "1", [Page(ONE, "x", NOW + 10, answered=moved)]))
    assert bodies(run(db, "cork")) == {moved: b"x"}
    pages = [Page(ONE, "older", NOW + 40), Page(moved, "z", NOW + 45), Page(ONE, "y", NOW + 50)]
    drop(db, 2, harvest(tmp_path / "2", pages, end=NOW + 60))
    state = run(db, "cork", partition_rows=1)
    assert sound(db)
    assert bodies(state) == {ONE: b"y"}


def test_only_a_harvest_that_has_ended_can_be_dropped(db: Path, tmp_path: Path) -> None:
    Harvest(tmp_path / "open", 1000).close()
    with pytest.raises(UsageError, match="ended"):
        drop(db, 1, tmp_path / "open")
    assert Database(db).inbox.all_items() == []


def test_journal_that_points_beyond_its_segments_is_refused(db: Path, tmp_path: Path) -> None:
    source = harvest(tmp_path / "theirs", [Page(A, "x" * 600), Page(B, "y" * 600)])
    assert (source / "seg.00000002").exists()
    target = Database(db).inbox.directory / f"{ITEM.format(1)}.harvest"
    shutil.copytree(source, target)
    other = harvest(tmp_path / "short", [Page(A, "x")])
    for name in (names.CHECKPOINTS, "seg.00000001", names.CONTRIB):
        shutil.copy(other / name, target / name)
    with pytest.raises(Corruption):
        run(db, "cork")


def test_harvest_with_a_bucket_without_a_valid_url_is_refused(db: Path, tmp_path: Path) -> None:
    data = bucket.pack(site=1, path=2, time_ms=3, state=1, attributes=[("U", b"not a URL")])
    written = Harvest(tmp_path / "theirs", 1000)
    written.store(data)
    written.end(NOW * 1000)
    drop(db, 1, tmp_path / "theirs")
    with pytest.raises(Corruption, match=r"\.harvest: the URL of its first bucket cannot be read: .+; move it away"):
        run(db, "cork")


def test_malformed_harvest_with_valid_checksums_is_refused(db: Path, tmp_path: Path) -> None:
    """A thin bucket with a body: no Shepherd writes one, but anybody can compute its checksum."""
    url = harvests.parse(A)
    _norm, path, site = harvests.PRINTS.of(url)
    thin = bucket.BucketFlag.THIN
    attributes = [("U", url.href.encode())]
    data = bucket.pack(site=site, path=path, time_ms=3, state=1, attributes=attributes, body=b"x", flags=thin)
    written = Harvest(tmp_path / "theirs", 1000)
    written.store(bucket.pack(site=site, path=path, time_ms=3, state=1, attributes=attributes))
    written.store(data)
    written.end(NOW * 1000)
    drop(db, 1, tmp_path / "theirs")
    with pytest.raises(Corruption, match="no bucket header; move it away"):
        run(db, "cork")


# --- jobs, partitions, rehearsals ---------------------------------------------------------------------------------


def twins(db: Path, tmp_path: Path, **how: int) -> dict[str, bytes]:
    copy = tmp_path / "-".join(f"{key}{value}" for key, value in how.items()) / "db"
    shutil.copytree(db, copy)
    shutil.copytree(db.parent / "cf", copy.parent / "cf")
    return files(run(copy, "cork", **how).path)


def test_jobs_and_partitions_do_not_change_the_state(db: Path, tmp_path: Path) -> None:
    pages = [Page(A, "a"), Page(ONE, "1", answered="https://www.a.example/one"), Page(B, result=Result.SOFT, status=503)]
    reap(db, ("reap", [*pages, Page("http://b.example/robots.txt", "User-agent: *")], {"http://c.example/x": 5}))
    expected = twins(db, tmp_path, jobs=1)
    assert twins(db, tmp_path, jobs=3, partition_rows=1) == expected
    assert twins(db, tmp_path, jobs=1, partition_rows=2) == expected


def test_dry_run_reports_what_cork_would_do_and_keeps_the_harvest(db: Path) -> None:
    reap(db, ("reap", [Page(A, "a")], {}))
    before = files(db / "state")
    database = Database(db)
    told = harvests.cork.run(DryRun(database, database.furthest()), harvests.Config(), NOW, lambda _rows: None)
    assert files(db / "state") == before
    assert told.report() == run(db, "cork").report()


def test_columns_that_no_record_changes_are_linked(db: Path) -> None:
    reap(db, ("reap", [Page(A, "a")], {}))
    parent = Database(db).furthest()
    before = {name: (parent.path / name).stat().st_ino for name in parent.control.files if "/" in name}
    state = run(db, "cork")
    after = {name: (state.path / name).stat().st_ino for name in before}
    linked = {name for name in before if before[name] == after[name]}
    assert {"index/site", "index/weight", "sites/names", "sites/documents", "sites/crawl_delay_ms"} <= linked
    assert {"index/oid", "index/checked", "sites/gathered"}.isdisjoint(linked)


# --- the speed of a reap ------------------------------------------------------------------------------------------


def test_speed_is_computed_from_our_own_contacts(db: Path, tmp_path: Path) -> None:
    drop(db, 1, harvest(tmp_path / "theirs", [Page(B, str(n), at=NOW + n) for n in range(90)]))
    reap(db, ("reap", [Page(A, str(n), at=NOW + n) for n in range(21)], {}))
    assert run(db, "cork").control.speed == 21 * 1000 // 20
    reap(db, ("reap", [Page(A, str(n), at=NOW + 60 + n) for n in range(11)], {}), now=NOW + 40 * 86_400)
    assert run(db, "cork").control.speed == (3 * 1050 + 1100) // 4
    reap(db, ("reap", [Page(A, "too few", at=NOW + 90)], {}), now=NOW + 80 * 86_400)
    assert run(db, "cork").control.speed == 1062


def test_report_of_a_closed_state_lists_statuses_and_classes_of_errors(db: Path) -> None:
    pages = [Page(A, "a"), Page(ONE, result=Result.CONNECTION, status=0), Page(B, result=Result.SOFT, status=503)]
    reap(db, ("reap", pages, {}))
    report = run(db, "cork").report()
    assert report["statuses"] == {"none": 1, "200": 1, "503": 1}
    assert report["errors"] == {"none": 2}  # these harvests give no reasons
