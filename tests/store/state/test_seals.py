"""Modes that a copy has lost: they are named, the next writer or shep-recover restores them, and nothing else is needed."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database, seals
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from tests.support.programs import call
from tests.support.sound import KEY, NOW, content, publish


@pytest.fixture
def db(tmp_path: Path) -> Database:
    """Two closed states that share files, copied without hard links and modes."""
    original = tmp_path / "original"
    database.create(original, KEY, NOW, 0)
    publish(Database(original), content())
    grown(Database(original))
    copy = Path(shutil.copytree(original, tmp_path / "db", copy_function=shutil.copyfile))
    for path in copy.rglob("*"):
        path.chmod(0o755)
    return Database(copy)


def grown(db: Database) -> None:
    """One more state, with all files of the one before."""
    with db.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "closed"), NOW)
        builder.keep(path for path in parent.control.files if path != names.REPORT)
        writer.publish(builder, {"phase": "test"})


def modes(db: Database) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in db.states_path.rglob("*") if path.is_file()}


def test_copy_without_seals_is_named_and_harms_nothing(db: Database) -> None:
    (fault,) = list(check.walk(db))
    files = sum(path.is_file() for path in db.states_path.rglob("*"))
    assert fault.note and "it can be written, as after a copy" in fault.what and fault.count == files
    assert modes(db) == {0o755}


def test_next_writer_seals_a_copy_and_builds_on_it(db: Database) -> None:
    grown(db)
    assert modes(db) == {0o444} and list(seals.broken(db.path)) == []
    assert list(check.walk(db)) == []


def test_recover_seals_a_copy_and_says_so(db: Database) -> None:
    dry = call("shep-recover", "--db", str(db.path), "--dry-run")
    assert dry.returncode == 0 and "would restore the modes of" in dry.stdout and modes(db) == {0o755}
    done = call("shep-recover", "--db", str(db.path))
    assert done.returncode == 0 and "restored the modes of" in done.stdout and modes(db) == {0o444}
    again = call("shep-recover", "--db", str(db.path))
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.parametrize("place", ["index/oid", "control", "index", ""])
def test_what_is_closed_to_its_owner_is_opened_again(db: Database, place: str) -> None:
    grown(db)
    path = db.closed().path / place
    path.chmod(0)
    faults = [fault for fault in check.walk(db, quick=True) if not fault.note and fault.what.startswith(seals.CLOSED_TO_OWNER)]
    assert [str(fault.path).endswith(place) for fault in faults] == [True]
    with db.writing("test"):
        pass
    assert list(seals.broken(db.path)) == [] and os.stat(path).st_mode & 0o400


def test_lock_that_is_closed_to_its_owner_is_opened_by_recover(db: Database) -> None:
    for lock in (db.path / "lock", db.path / "lease" / "lock"):
        lock.touch()
        lock.chmod(0)
    assert call("shep-recover", "--db", str(db.path)).returncode == 0
    assert all(stat.S_IMODE(os.stat(db.path / lock).st_mode) == 0o600 for lock in ("lock", "lease/lock"))


def test_harvest_that_is_written_keeps_its_modes(tmp_path: Path) -> None:
    harvest = tmp_path / "state" / "000001.reap" / names.HARVESTS / "reap"
    harvest.mkdir(parents=True)
    for name, mode in (("journal", 0o644), ("seg.00000001", 0o444), ("contrib", 0o044)):
        (harvest / name).touch()
        (harvest / name).chmod(mode)
    assert [(seal.path.name, seal.mode) for seal in seals.broken(tmp_path)] == [("contrib", 0o644)]


def test_states_says_what_a_copy_without_hard_links_costs(db: Database, tmp_path: Path) -> None:
    told = call("shep", "states", "--db", str(db.path)).stdout
    assert "of it are there more than once: a copy of the database lost its hard links" in told
    assert "more than once" not in call("shep", "states", "--db", str(tmp_path / "original")).stdout


def test_harvest_that_continues_is_writable_again(tmp_path: Path) -> None:
    """As where another, sealed file was put in the place of its journal."""
    path = tmp_path / "reap"
    harvest = Harvest(path, 1 << 20)
    harvest.checkpoint(NOW)
    harvest.close()
    for file in path.iterdir():
        file.chmod(0o444)
    Harvest(path, 1 << 20).close()
    assert all(file.stat().st_mode & 0o600 == 0o600 for file in path.iterdir() if file.name != names.LOCK)
