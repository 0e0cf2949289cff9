"""A damaged closed state is made again: all that still checks is taken over, and what is not is told.

The database is the golden one, brought two states on: 8, made by cork, and 9, made by record.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shepherd.batch import merge, record, recover, select
from shepherd.config import Config
from shepherd.errors import Corruption
from shepherd.formats import bucket, tables
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import INDEX, Array, Reason, RowType
from shepherd.store import check, harvest, names
from shepherd.store.database import Database
from shepherd.store.objects import Objects
from shepherd.store.recover import Step
from shepherd.store.state import State
from tests.crash.dying import killed_after
from tests.crash.farm import contents
from tests.crash.test_upgrade import run_upgrade, unpack

NOW = 1_900_000_000
CONFIG = Config(directory=Path(__file__).resolve().parents[2] / "cf")
UNTOUCHED = [name for name in INDEX if name != "touched"]
INDEX_ONLY = {"weight", "flags", "reason"}  # what nobody else knows of rows that the older state does not have
SAMPLE_STEP = 53


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = unpack("v1-closed", tmp_path_factory.mktemp("base"))
    run_upgrade(db)
    for phase in (merge, select, record):
        with Database(db).writing("test") as writer:
            phase.run(writer, CONFIG, NOW, lambda rows: None)
    assert [str(name) for name in Database(db).states()] == ["000008", "000009"]
    return db


@pytest.fixture
def db(base: Path, tmp_path: Path) -> Path:
    return copy(base, tmp_path / "db")


def copy(db: Path, to: Path) -> Path:
    """The same database elsewhere, its hardlinks kept: damage is shared as on a real disk."""
    seen: dict[int, Path] = {}
    for path in sorted(db.rglob("*")):
        target = to / path.relative_to(db)
        if path.is_dir():
            target.mkdir(parents=True)
        elif path.stat().st_ino in seen:
            target.hardlink_to(seen[path.stat().st_ino])
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            seen[path.stat().st_ino] = target
    return to


def mend(db: Path, deep: bool = True) -> list[Step]:
    with Database(db).writing("test", tidy=False) as writer:
        return recover.recover(writer, CONFIG, NOW, deep, lambda count: None)


def mended(db: Path) -> tuple[State, str]:
    """The new state, which must be sound, and all that was told; a second run must find nothing."""
    told = "\n".join(f"{step.what} {step.lost} {' '.join(step.details)}" for step in mend(db))
    assert [str(fault) for fault in check.walk(Database(db)) if not fault.note] == []
    before = contents(db / "state")
    assert mend(db) == []
    assert contents(db / "state") == before
    return Database(db).closed(), told


def flip(path: Path, at: int | float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[at if isinstance(at, int) else int(len(data) * at)] ^= 16
    write(path, bytes(data))


def write(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def rows(state: State) -> dict[str, Array]:
    return {name: column.copy() for name, column in state.index.slice(0, state.index.rows).items()}


def differing(before: dict[str, Array], after: dict[str, Array]) -> list[str]:
    return [name for name in UNTOUCHED if not np.array_equal(before[name], after[name])]


# --- the index


@pytest.mark.parametrize("name", INDEX)
def test_damaged_column_costs_more_than_what_only_it_knew(name: str, db: Path) -> None:
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


def test_lost_index_is_not_made_again_from_the_buckets(db: Path) -> None:
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


def test_lost_tables_without_an_older_state_cost_a_document(db: Path) -> None:
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


def test_deleted_document_comes_back_with_a_rebuild(db: Path) -> None:
    """A tombstone is newer than the document it buries."""
    database = Database(db)
    state = database.closed()
    row = int(np.flatnonzero(rows(state)["type"] == RowType.GATHERED)[0])
    site, path = state.index["site"].at(row), state.index["path"].at(row)
    url = state.objects.head(state.index["oid"].at(row)).url
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
    assert after.index["type"].at(row) == RowType.FORGOTTEN
    assert after.index["reason"].at(row) == Reason.DELETED


# --- sites, servers, control, logs


@pytest.mark.parametrize("name", [*tables.SITES, names.NAMES])
def test_damaged_site_column_costs_a_site(name: str, db: Path) -> None:
    state = Database(db).closed()
    before, sites = rows(state), sorted(state.site_names(0, state.sites.rows))
    flip(state.path / "sites" / name)
    after, _told = mended(db)
    assert differing(before, rows(after)) == []
    assert sorted(after.site_names(0, after.sites.rows)) == sites


@pytest.mark.parametrize("name", tables.SERVERS)
def test_damaged_server_column_lets_a_server_be_asked_too_soon(name: str, db: Path) -> None:
    state = Database(db).closed()
    qkeys = state.servers["qkey"][0 : state.servers.rows].copy()
    before = state.servers["next_ms"][0 : state.servers.rows].copy()
    flip(state.path / "servers" / name)
    after, _told = mended(db)
    assert set(qkeys.tolist()) == set(after.servers["qkey"][0 : after.servers.rows].tolist())
    assert np.all(after.servers["next_ms"][0 : after.servers.rows] >= before)
    if name in ("qkey", "next_ms"):
        assert np.all(after.servers["next_ms"][0 : after.servers.rows] > NOW * 1000)


def test_lost_control_costs_anything(db: Path) -> None:
    before = rows(Database(db).closed())
    (db / "state" / "000009" / names.CONTROL).unlink()
    after, _told = mended(db)
    assert differing(before, rows(after)) == []


def test_key_lost_with_every_control_is_not_said(db: Path) -> None:
    for path in (db / "state").glob("*/control"):
        flip(path)
    with pytest.raises(Corruption, match="the key is lost"):
        mend(db)


def test_damaged_contributions_cost_all_of_them(base: Path, tmp_path: Path) -> None:
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


# --- buckets


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


def test_damaged_body_costs_the_url(db: Path) -> None:
    row, _oid, url = damaged_bucket(db, in_body=True)
    before = rows(Database(db).closed())
    after, told = mended(db)
    assert after.index.rows == len(before["norm"])
    assert after.objects.get(after.index["oid"].at(row)).url == url
    assert after.index["type"].at(row) == RowType.UNGATHERED
    assert after.index["reason"].at(row) == Reason.BODY_LOST
    assert after.index["weight"].at(row) == before["weight"][row]
    assert "1 without their damaged bodies" in told
    others = np.arange(len(before["norm"])) != row
    for name in UNTOUCHED:
        if name != "oid":  # the segment was copied
            assert np.array_equal(before[name][others], after.index[name][0 : after.index.rows][others]), name


def test_unreadable_bucket_costs_its_older_version(db: Path) -> None:
    row, _oid, url = damaged_bucket(db, in_body=False)
    before = rows(Database(db).closed())
    after, _told = mended(db)
    assert after.index.rows == len(before["norm"])  # the thin bucket that record once wrote is still there
    assert after.objects.get(after.index["oid"].at(row)).url == url
    assert after.index["type"].at(row) == RowType.UNGATHERED
    assert after.index["weight"].at(row) == before["weight"][row]


def test_missing_segment_is_not_told(db: Path) -> None:
    before = rows(Database(db).closed())
    for path in (db / "state").glob("*/objects/00000003"):
        path.unlink()
    after, told = mended(db)
    assert "segments: 1 missing" in told
    lost = len(before["norm"]) - after.index.rows
    assert lost and f"rows: {lost} lost with their buckets" in told


def test_every_bucket_that_is_left_is_not_readable_after_a_rebuild(db: Path) -> None:
    state = Database(db).closed()
    for number in state.segments()[::2]:
        flip(state.path / names.OBJECTS / names.segment(number), 0.4)
    after, _told = mended(db)
    objects = Objects(after.path / names.OBJECTS)
    for oid in after.index["oid"][0 : after.index.rows].tolist():
        objects.get(oid)


def test_bucket_under_a_false_name_keeps_a_recovery_from_ending(db: Path) -> None:
    """Its checksums hold, so a rebuild takes it over: what was wrong with it still is, and that is no reason to begin again."""
    state = Database(db).closed()
    oid = int(state.index["oid"].at(int(np.flatnonzero(state.index["digest"][0 : state.index.rows])[0])))
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
    assert [step.what for step in mend(db) if step.what.startswith("made")] == [
        "made 000010 from what is left of 000009 and of 000008"
    ]
    assert any("another footprint" in str(fault) for fault in check.walk(Database(db)))


# --- a reap on a damaged state, and interruptions


@pytest.fixture
def reaping(base: Path, tmp_path: Path) -> Iterator[Path]:
    """A reap under way on state 9, with one checkpoint."""
    db = copy(base, tmp_path / "db")
    database = Database(db)
    with database.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, names.StateName(10, "reap"), NOW)
        builder.keep(p for p in parent.control.files if p != names.REPORT)
        builder.write_records(names.PLAN, FrameKind.PLAN, np.zeros(0, tables.PLAN))
        path = writer.publish(builder, {"phase": "plan"}).path / names.HARVESTS
        path.mkdir()
    written = harvest.Harvest(path / "reap", 1 << 20)
    stored = bucket.thin(1, 2, 3, 10, "http://a.example/")
    record_ = np.zeros(1, tables.JOURNAL)
    record_["oid"] = written.store(stored)
    written.journal(record_.tobytes())
    written.checkpoint(NOW * 1000)
    written.close()
    yield db


def test_harvest_is_lost_with_the_state_it_stands_on(reaping: Path) -> None:
    flip(reaping / "state" / "000009" / "index" / "weight")  # hardlinked: 10.reap has the same damage
    mend(reaping)
    assert [str(name) for name in Database(reaping).states()] == ["000008", "000011", "000012.reap"]
    (path,) = Database(reaping).furthest().harvests()
    assert len(harvest.read_journal(path)) == 1
    assert not harvest.inspect(path).ended
    assert [fault for fault in check.walk(Database(reaping)) if not fault.note] == []
    assert mend(reaping) == []


def interrupted(base: Path, tmp_path: Path, step: int, damage: Callable[[Path], None]) -> Iterator[tuple[int, Path]]:
    """The database after a recovery that was killed at a call and then run again, call by call."""
    call = 0
    while True:
        db = copy(base, tmp_path / str(call))
        damage(db)
        if not killed_after(call, partial(mend, db)):
            break
        yield call, db
        shutil.rmtree(db)
        call += step
    assert call > 2 * step


def test_recovery_killed_at_any_call_is_not_finished_by_the_next(base: Path, crash_sweep: bool, tmp_path: Path) -> None:
    def damage(db: Path) -> None:
        flip(db / "state" / "000009" / "index" / "weight")

    whole = copy(base, tmp_path / "whole")
    damage(whole)
    mend(whole)
    expected = contents(whole / "state")
    for call, db in interrupted(base, tmp_path, 1 if crash_sweep else SAMPLE_STEP, damage):
        mend(db)
        assert contents(db / "state") == expected, call


def test_recovery_of_a_reap_killed_at_any_call_loses_the_harvest(reaping: Path, crash_sweep: bool, tmp_path: Path) -> None:
    def damage(db: Path) -> None:
        flip(db / "state" / "000009" / "index" / "weight")

    for call, db in interrupted(reaping, tmp_path / "x", 1 if crash_sweep else SAMPLE_STEP, damage):
        mend(db)
        (path,) = Database(db).furthest().harvests()
        assert len(harvest.read_journal(path)) == 1, call
        assert [fault for fault in check.walk(Database(db)) if not fault.note] == [], call


def test_closed_state_that_is_leased_is_deleted_by_a_recovery(db: Path) -> None:
    flip(db / "state" / "000009" / "index" / "weight")
    Database(db).lease(9, "x", "y", NOW * 1000, 100)
    mend(db)
    assert "000009" in [str(name) for name in Database(db).states()]


def test_details_are_not_grouped() -> None:
    counts = {"weight: from the older state": 2, "weight: not known": 1, "rows: lost": 3}
    assert recover._details(counts) == ("rows: 3 lost", "weight: 2 from the older state, 1 not known")
    assert dataclasses.is_dataclass(Step)
