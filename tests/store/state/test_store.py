"""The store on a real file system: what is written is what is read, and what is damaged is noticed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import Corruption, IoFailed, Locked, NoSpace, RecoveryNeeded, UsageError
from shepherd.formats import bucket, tables
from shepherd.formats.check import check64
from shepherd.formats.control import FileEntry
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, NO_OID
from shepherd.store.check import recover
from shepherd.store.disk import failpoints, fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database, harvest
from shepherd.store.state.columns import Column, ColumnWriter
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from shepherd.store.state.objects import Objects, SegmentWriter
from tests.support.odd_files import fail_to_open

KEY = bytes(range(16))
NOW = 1_790_000_000


@pytest.fixture
def db(tmp_path: Path) -> Database:
    database.create(tmp_path / "db", KEY, NOW, 0)
    return Database(tmp_path / "db")


def record(path: int = 2, **fields: int) -> bytes:
    row = np.zeros(1, JOURNAL)
    row["path"], row["oid"] = path, NO_OID
    for name, value in fields.items():
        row[name] = value
    return row.tobytes()


def thin(n: int) -> bytes:
    return bucket.thin(1, n, 1000, 1, f"http://a.example/{n}")


def reap_state(db: Database) -> Path:
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "reap"), NOW)
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.write_records(names.PLAN, FrameKind.PLAN, np.zeros(0, tables.PLAN))
        path = writer.publish(builder, {"phase": "plan"}).path
        fsio.make_directory(path / names.HARVESTS)
        return path


# --- columns


@pytest.mark.parametrize("sizes", [[0], [1], [7, 9], [131072], [131071, 2], [300_000, 1, 200_000]])
def test_column_reads_back_across_block_borders(tmp_path: Path, sizes: list[int]) -> None:
    parts = [np.arange(size, dtype="<u8") * 3 for size in sizes]
    writer = ColumnWriter(tmp_path / "c", "<u8")
    for part in parts:
        writer.append(part)
    column = Column(tmp_path / "c", "<u8", writer.finish())
    whole = np.concatenate(parts)
    assert np.array_equal(column[0 : len(column)], whole)
    if len(whole):
        assert column.value(len(whole) - 1) == whole[-1]
        assert np.array_equal(column.take(np.array([0, len(whole) - 1])), whole[[0, -1]])


def test_flipped_bit_in_a_column_is_noticed_only_where_it_is(tmp_path: Path) -> None:
    writer = ColumnWriter(tmp_path / "c", "<u8")
    writer.append(np.arange(400_000, dtype="<u8"))
    entry = writer.finish()
    flip(tmp_path / "c", 2_500_000)
    column = Column(tmp_path / "c", "<u8", entry)
    assert column.value(5) == 5
    with pytest.raises(Corruption, match="at 2097152"):
        column[300_000:320_000]
    assert list(column.bad_blocks()) == [2 << 20]


def test_damaged_block_table_is_noticed_at_once(tmp_path: Path) -> None:
    writer = ColumnWriter(tmp_path / "c", "<u4")
    writer.append(np.arange(10, dtype="<u4"))
    entry = writer.finish()
    flip(tmp_path / "c.check", 3)
    with pytest.raises(Corruption, match="block table"):
        Column(tmp_path / "c", "<u4", entry)


def test_truncated_and_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(Corruption, match="missing"):
        Column(tmp_path / "c", "<u4", FileEntry(8, 0))
    (tmp_path / "c").write_bytes(b"1234")
    with pytest.raises(Corruption, match="4 bytes instead of 8"):
        Column(tmp_path / "c", "<u4", FileEntry(8, 0))


def flip(path: Path, offset: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


# --- segments


def test_segments_roll_and_every_bucket_reads_back(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, names.segment, 7, 1000)
    oids = [writer.append(thin(n)) for n in range(50)]
    writer.sync()
    writer.close()
    assert writer.next > 8
    objects = Objects(tmp_path)
    assert [objects.get(oid).url for oid in oids] == [f"http://a.example/{n}" for n in range(50)]
    assert [oid for s in range(7, writer.next) for oid, _ in objects.scan(s)] == oids


def test_scan_and_get_read_large_buckets(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, names.segment, 1, 1 << 30)
    body = bytes(5_000_000)
    big = bucket.pack(site=1, path=2, time_ms=3, state=4, attributes=[("U", b"u" * 9000)], body=body)
    oids = [writer.append(x) for x in (thin(1), big, thin(2), big, thin(3))]
    writer.sync()
    objects = Objects(tmp_path)
    assert [oid for oid, _ in objects.scan(1)] == oids
    assert objects.get(oids[1]).body() == body
    assert objects.head(oids[3]).url == "u" * 9000


def test_closed_reader_keeps_no_segment_open(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, names.segment, 1, 1 << 20)
    oid = writer.append(thin(1))
    writer.sync()
    writer.close()
    before = sorted(os.listdir("/proc/self/fd"))
    objects = Objects(tmp_path)
    objects.get(oid)
    assert sorted(os.listdir("/proc/self/fd")) != before
    del objects
    assert sorted(os.listdir("/proc/self/fd")) == before


# --- harvest


def test_rollback_keeps_what_was_checkpointed_and_nothing_else(tmp_path: Path) -> None:
    one = Harvest(tmp_path / "h", 1 << 20)
    oid = one.store(thin(1))
    one.journal(record(1, oid=oid))
    one.checkpoint(1)
    one.store(thin(2))
    one.journal(record(2))
    one._flush_journal()
    one._segments.flush()
    one.close()
    again = Harvest(tmp_path / "h", 1 << 20)
    assert again.resumed
    assert again.journalled()["path"].tolist() == [1]
    assert again.objects.get(oid).url == "http://a.example/1"
    assert (tmp_path / "h" / "seg.00000001").stat().st_size == len(thin(1))
    again.close()


def test_harvest_continues_in_fresh_segments_and_ends(tmp_path: Path) -> None:
    one = Harvest(tmp_path / "h", 1 << 20)
    one.store(thin(1))
    one.checkpoint(1)
    one.close()
    two = Harvest(tmp_path / "h", 1 << 20)
    oid = two.store(thin(2))
    two.journal(record(2, oid=oid))
    assert tables.split_oid(oid)[0] == 2
    two.end(5)
    assert harvest.inspect(tmp_path / "h").ended
    with pytest.raises(ValueError, match="ended"):
        Harvest(tmp_path / "h", 1 << 20)


def two_checkpoints(path: Path) -> None:
    one = Harvest(path, 1 << 20)
    for n in (1, 2):
        one.journal(record(n))
        one.checkpoint(n)
    one.close()


def test_damaged_last_checkpoint_falls_back_one(tmp_path: Path) -> None:
    two_checkpoints(tmp_path / "h")
    log = tmp_path / "h" / "checkpoints"
    flip(log, log.stat().st_size - 1)
    again = Harvest(tmp_path / "h", 1 << 20)
    assert again.journalled()["path"].tolist() == [1]
    again.close()


@pytest.mark.parametrize(("name", "offset"), [("journal", 30), ("journal", 200), ("checkpoints", 30)])
def test_damage_below_a_checkpoint_is_no_torn_tail(tmp_path: Path, name: str, offset: int) -> None:
    two_checkpoints(tmp_path / "h")
    flip(tmp_path / "h" / name, offset)
    with pytest.raises(Corruption):
        harvest.verify(tmp_path / "h")
    with pytest.raises(RecoveryNeeded, match="shep-recover"):
        Harvest(tmp_path / "h", 1 << 20)
    harvest.rollback(tmp_path / "h", accept_loss=True)
    harvest.verify(tmp_path / "h")


@pytest.mark.parametrize("name", ["journal", "contrib", "checkpoints"])
def test_harvest_killed_while_it_was_made_begins_anew(tmp_path: Path, name: str) -> None:
    Harvest(tmp_path / "h", 1 << 20).close()
    (tmp_path / "h" / name).unlink()
    again = Harvest(tmp_path / "h", 1 << 20)
    again.journal(record(9))
    again.checkpoint(1)
    again.close()
    assert harvest.inspect(tmp_path / "h").checkpoint.sequence == 1


def test_checkpoint_tail_cut_at_every_byte_gives_the_one_before(tmp_path: Path) -> None:
    one = Harvest(tmp_path / "h", 1 << 20)
    one.journal(record(1))
    one.checkpoint(1)
    first = (tmp_path / "h" / "checkpoints").stat().st_size
    one.journal(record(2))
    one.checkpoint(2)
    one.close()
    log = tmp_path / "h" / "checkpoints"
    whole = log.read_bytes()
    for cut in range(first, len(whole)):
        for tail in (b"", bytes(len(whole) - cut), b"\xa5" * (len(whole) - cut)):
            if whole[:cut] + tail == whole:
                continue  # the record itself ends in zeros
            log.write_bytes(whole[:cut] + tail)
            assert harvest.inspect(tmp_path / "h").checkpoint.sequence == 1
    log.write_bytes(whole)
    assert harvest.inspect(tmp_path / "h").checkpoint.sequence == 2


# --- states


def test_second_writer_is_refused_and_learns_who_has_the_lock(db: Database) -> None:
    with db.writing("shep-plan"), pytest.raises(Locked, match=r"shep-plan, pid \d+"), db.writing("shep-cork"):
        pass


def test_abandoned_build_leaves_the_old_state_and_is_tidied(db: Database) -> None:
    with db.writing("test") as writer:
        writer.build(writer.furthest(), StateName(2, "merged"), NOW)
    assert (db.states_path / "000002.tmp").is_dir()
    assert str(db.furthest().name) == "000001"
    with db.writing("test"):
        pass
    assert sorted(p.name for p in db.states_path.iterdir()) == ["000001"]


def test_predecessor_goes_only_if_it_was_not_closed(db: Database) -> None:
    reap_state(db)
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number, "closed"), NOW)
        for table in tables.TABLES:
            builder.keep_table(table)
        writer.publish(builder, {})
    assert [str(n) for n in db.states()] == ["000001", "000002"]


def test_superseded_directory_of_a_killed_phase_is_removed(db: Database) -> None:
    path = reap_state(db)
    copy = path.with_name("000002")
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(2, "closed"), NOW)
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.publish({})  # killed before the predecessor was deleted
    assert path.exists()
    assert copy.exists()
    with db.writing("test"):
        pass
    assert [str(n) for n in db.states()] == ["000001", "000002"]


def test_half_dropped_item_is_removed_only_if_its_program_has_ended(db: Database) -> None:
    dead = 1 << 22  # no process can have this number
    for host, pid in ((socket.gethostname(), dead), (socket.gethostname(), os.getpid()), ("elsewhere", dead)):
        (db.inbox.directory / f".1790000000000-{host}-{pid}-1.req.tmp").write_text("{")
        (db.leases.directory / f".1790000000000-{host}-{pid}-1.lease.tmp").write_text("{")
        (db.inbox.directory / f".1790000000000-{host}-{pid}-1.scratch.tmp").mkdir()
    assert len(recover.survey(db).steps()) == 3
    with db.writing("test"):
        pass
    assert recover.survey(db).steps() == []
    assert len(list(db.inbox.directory.glob(".*.tmp"))) == 4
    assert len(list(db.leases.directory.glob(".*.tmp"))) == 2


def test_unreadable_lease_keeps_every_state(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    unreadable = db.leases.directory / "1790000000000-host-7-1.lease"
    unreadable.touch()
    fail_to_open(monkeypatch, unreadable)
    with db.writing("test") as writer, pytest.raises(IoFailed, match="lease: it cannot be read"):
        writer.prune(1, NOW)


def test_leased_state_survives_pruning_and_goes_when_the_lease_is_over(db: Database) -> None:
    for _ in range(3):
        with db.writing("test") as writer:
            parent = writer.furthest()
            builder = writer.build(parent, StateName(parent.number + 1, "closed"), NOW)
            for table in tables.TABLES:
                builder.keep_table(table)
            writer.publish(builder, {})
    lease = db.lease(1, "me", "test", NOW * 1000, 100)
    with db.writing("test") as writer:
        assert writer.prune(1, NOW + 50) == [2, 3]
        assert writer.prune(1, NOW + 101) == [1]
    assert lease.name not in {x.name for x in db.leases.all()}


def test_newest_closed_state_is_never_pruned(db: Database) -> None:
    with db.writing("test") as writer:
        assert writer.prune(0, NOW) == []


def test_sealed_file_is_never_appended_to(tmp_path: Path) -> None:
    fsio.write_file(tmp_path / "f", b"x")
    with pytest.raises(Corruption, match="not a file to append to"):
        fsio.AppendFile(tmp_path / "f", 1)
    (tmp_path / "g").write_bytes(b"x")
    with pytest.raises(Corruption, match="not sealed"):
        fsio.link(tmp_path / "g", tmp_path / "h")


def test_damaged_control_is_noticed_at_every_byte(db: Database) -> None:
    path = db.states_path / "000001" / "control"
    whole = path.read_bytes()
    path.chmod(0o644)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((Corruption, UsageError)):
            db.furthest()


def test_newer_format_version_is_refused_by_name(db: Database) -> None:
    path = db.states_path / "000001" / "control"
    path.chmod(0o644)
    body = path.read_bytes().replace(b"shepherd-control 4\n", b"shepherd-control 5\n").rpartition(b"check ")[0]
    path.write_bytes(body + f"check {check64(body):016x}\n".encode())
    with pytest.raises(UsageError, match="format version 5"):
        db.furthest()


def test_init_refuses_a_directory_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UsageError, match="precious"):
        database.create(tmp_path, KEY, NOW, 0)


def test_init_killed_half_way_can_be_run_again(tmp_path: Path) -> None:
    for leftover in ("inbox", "lease", ".state.tmp", ".probe-7"):
        (tmp_path / leftover).mkdir()
    database.create(tmp_path, KEY, NOW, 0)
    assert Database(tmp_path).closed().number == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inbox", "lease", "log", "state"]


def test_inbox_item_is_applied_once_even_if_its_file_could_not_be_removed(db: Database) -> None:
    name = db.new_item_name(NOW * 1000)
    db.inbox.drop(name, [{"op": "insert", "url": "http://a.example/"}])
    with db.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, "closed"), NOW)
        builder.change(applied=(name,))
        for table in tables.TABLES:
            builder.keep_table(table)
        builder.publish({})  # killed before the item was removed
    assert db.inbox.waiting(db.furthest().control.applied) == []
    with db.writing("test"):
        pass
    assert db.inbox.items() == []


@pytest.mark.parametrize("point", ["write:=enospc", "sync:=enospc", "sync:=eio", "rename:=eio"])
def test_file_that_could_not_be_put_in_place_leaves_nothing_beside_it(db: Database, point: str) -> None:
    before = fsio.use(failpoints.FailingOps(failpoints.parse_failpoint(point)))
    try:
        with pytest.raises((NoSpace, IoFailed)):
            db.inbox.drop("1790000000000-host-77-1", [{"op": "insert", "url": "http://a.example/"}])
    finally:
        fsio.use(before)
    assert list(db.inbox.directory.iterdir()) == []
