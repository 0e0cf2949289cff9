"""Golden databases of every older format version: upgraded, they say what they said, whatever the upgrade was interrupted by."""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import OldFormat, UsageError
from shepherd.formats import tables
from shepherd.formats.check import check64
from shepherd.formats.tables import FORMAT_VERSION, NO_LIMIT
from shepherd.store.check import check, upgrade
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from tests.crash.dying import killed_after
from tests.support import sampling
from tests.support.programs import call
from tests.support.toy_farm import contents

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
NAMES = tuple(f"v{version}-{phase}" for version in (1, 2, 3) for phase in ("closed", "merged", "reap"))
SPELLINGS = {"never": "-", "found by a link": "link"}  # of older versions, and what they are today
NOW = 1_900_000_000
SAMPLE_STEP = 41


def unpack(name: str, home: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(home, filter="tar")
    return home / "db"


def program(*command: str) -> subprocess.CompletedProcess[str]:
    return call(*command)


def cells(table: str) -> list[list[str]]:
    """The rows of `shep list`, in today's spelling, whatever the widths of their columns."""
    rows = [re.split(r"  +", line) for line in table.splitlines()]
    return [[SPELLINGS.get(cell, cell) for cell in row] for row in rows]


def run_upgrade(db: Path) -> list[upgrade.UpgradeStep]:
    with Database(db).writing("test", tidy=False) as writer:
        return upgrade.upgrade(writer, NOW)


@pytest.mark.parametrize("name", NAMES)
def test_upgraded_database_lists_the_same_as_before(name: str, tmp_path: Path) -> None:
    db = unpack(name, tmp_path)
    assert program("shep-upgrade", "--db", str(db)).returncode == 0
    with lzma.open(GOLDEN / f"{name}.list.xz", "rt", encoding="utf-8") as expected:
        assert cells(program("shep", "list", "--db", str(db), "--limit", "100000").stdout) == cells(expected.read())
    assert [fault for fault in check.walk(Database(db)) if not fault.note] == []
    assert program("shep-upgrade", "--db", str(db)).returncode == 4


def test_new_columns_have_their_defaults(tmp_path: Path) -> None:
    db = unpack("v1-closed", tmp_path)
    run_upgrade(db)
    state = Database(db).closed()
    assert state.sites.rows and state.servers.rows
    for path, default in {path: value for added in upgrade.ADDED.values() for path, value in added.items()}.items():
        table, _, name = path.partition("/")
        column = {"index": state.index, "sites": state.sites, "servers": state.servers}[table][name]
        assert np.array_equal(column[0 : len(column)], np.full(len(column), default, tables.TABLES[table][name])), path
    assert upgrade.ADDED[2]["sites/fresh_limit"] == NO_LIMIT


def test_added_columns_are_those_of_the_format() -> None:
    every = {f"{table}/{name}" for table, columns in tables.TABLES.items() for name in columns}
    assert all(set(added) <= every for added in upgrade.ADDED.values())
    assert sorted(upgrade.ADDED) == list(range(2, FORMAT_VERSION + 1))


def test_killed_reap_loses_only_its_tail_by_the_upgrade(tmp_path: Path) -> None:
    db = unpack("v1-reap", tmp_path)
    path = db / "state" / "000009.reap" / "harvest" / "reap"
    point = harvest.inspect(path).checkpoint
    assert point.sequence > 0
    run_upgrade(db)
    (copied,) = Database(db).furthest().harvests()
    assert harvest.inspect(copied).checkpoint == point
    assert not harvest.inspect(copied).ended
    harvest.verify(copied)
    harvest.Harvest(copied, 1 << 20).end(NOW * 1000)  # it can be gone on with


def test_waiting_request_is_kept_and_applied_once(tmp_path: Path) -> None:
    for name, waiting in (("v1-closed", 1), ("v1-merged", 0)):
        db = Database(unpack(name, tmp_path / name))
        run_upgrade(db.path)
        assert len(db.inbox.items()) == 1
        assert len(db.inbox.waiting(db.furthest().control.applied)) == waiting


@pytest.mark.parametrize("name", NAMES)
def test_upgrade_killed_at_any_call_is_finished_by_the_next(name: str, tmp_path: Path) -> None:
    base = unpack(name, tmp_path / "base")
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    run_upgrade(whole)
    expected = _published(whole)
    step = sampling.step(SAMPLE_STEP)
    call = sampling.first(step, name)
    while True:
        db = tmp_path / str(call)
        shutil.copytree(base, db)
        if not killed_after(call, partial(run_upgrade, db)):
            break
        run_upgrade(db)
        assert _published(db) == expected, call
        shutil.rmtree(db)
        call += step
    assert call > 2 * SAMPLE_STEP  # else nothing was interrupted


def _published(db: Path) -> dict[str, bytes]:
    """All that stands in db/state, but for lock files."""
    return {path: data for path, data in contents(db / "state").items() if Path(path).name != names.LOCK}


def test_old_state_that_somebody_reads_is_kept(tmp_path: Path) -> None:
    db = unpack("v1-closed", tmp_path)
    lease = {"state": 6, "owner": "x", "purpose": "y", "pid": 1, "expires": NOW + 100}
    (db / "lease" / "1790000000000-h-1-1.lease").write_text(str(lease).replace("'", '"'))
    run_upgrade(db)
    assert [str(name) for name in Database(db).states()] == ["000006", "000008"]
    assert [fault for fault in check.walk(Database(db)) if not fault.note] == []


def test_upgrade_changes_nothing_of_a_database_that_is_not_old(tmp_path: Path) -> None:
    db = unpack("v1-closed", tmp_path)
    run_upgrade(db)
    with Database(db).writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, "closed"), NOW)
        builder.keep(path for path in parent.control.files if path != names.REPORT)
        writer.publish(builder, {})
    before = _published(db)
    assert run_upgrade(db) == []
    assert _published(db) == before


def test_database_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    db = unpack("v1-closed", tmp_path)
    for control in db.glob("state/*/control"):
        control.chmod(0o644)
        body = control.read_bytes().replace(b"shepherd-control 1", b"shepherd-control 99", 1).rpartition(b"check ")[0]
        control.write_bytes(body + f"check {check64(body):016x}\n".encode())
    before = _published(db)
    with pytest.raises(UsageError, match="use a newer Shepherd"):
        run_upgrade(db)
    with pytest.raises(UsageError, match="use a newer Shepherd"):
        upgrade.survey(Database(db))
    assert _published(db) == before


def test_program_that_meets_an_old_database_says_what_to_do(tmp_path: Path) -> None:
    db = unpack("v1-closed", tmp_path)
    for command in (("shep", "stats"), ("shep-plan",), ("shep-check",), ("shep-dump", "index"), ("shep-recover",)):
        done = program(*command, "--db", str(db))
        assert (done.returncode, "shep-upgrade" in done.stderr) == (2, True), (command, done.stderr)
    with pytest.raises(OldFormat):
        Database(db).furthest()
