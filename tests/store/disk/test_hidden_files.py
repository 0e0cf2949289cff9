"""File systems that hide what is deleted while it is open: a directory of such files waits for the next start; nobody fails."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.errors import IoFailed
from shepherd.store.check import check
from shepherd.store.disk import fsio
from shepherd.store.disk.names import StateName
from shepherd.store.disk.ops import Ops
from shepherd.store.state import database
from shepherd.store.state.database import Database
from tests.support.programs import call
from tests.support.sound import KEY, NOW
from tests.support.waiting import PATIENCE_S, wait_until

HIDDEN = (".nfs0000000001a2b3c400000001", ".fuse_hidden0000000200000001")


class HidingOps(Ops):
    """Of each directory the last file that is deleted stays under a name of the system's, as if somebody had it mapped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def unlink(self, path: Path) -> None:
        if path.name == self._name:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        hidden_file = path.with_name(self._name)
        hidden_file.unlink(missing_ok=True)
        os.rename(path, hidden_file)


@pytest.fixture(params=HIDDEN)
def hiding(request: pytest.FixtureRequest) -> Iterator[None]:
    before = fsio.use(HidingOps(request.param))
    try:
        yield
    finally:
        fsio.use(before)


def supersede(db: Database) -> None:
    """A state that is unfinished, and one that was made from it, so that it goes."""
    for phase in ("merged", "selected"):
        with db.writing("test") as writer:
            parent = writer.furthest()
            number = parent.number + (phase == "merged")
            builder = writer.build(parent, StateName(number, phase), NOW)
            builder.keep(path for path in parent.control.files if path != "report.json")
            writer.publish(builder, {"phase": "test"})


def test_directory_of_hidden_files_is_left_for_the_next_start(tmp_path: Path, hiding: None) -> None:
    database.create(tmp_path / "db", KEY, NOW, 0)
    db = Database(tmp_path / "db")
    supersede(db)
    left = db.states_path / "000002.merged.gone"
    assert left.is_dir() and [str(name) for name in db.states()] == ["000001", "000002.selected"]
    assert [fault for fault in check.walk(db) if not fault.note] == []
    with db.writing("test"):
        assert left.is_dir()  # whoever holds them may still run
    before = fsio.use(Ops())
    with db.writing("test"):
        assert not left.exists()
    fsio.use(before)


def test_file_that_nobody_has_deleted_is_an_error(tmp_path: Path, hiding: None) -> None:
    directory = tmp_path / "000002.gone"
    (directory / "index").mkdir(parents=True)
    (directory / "index" / "oid").touch()

    class Adding(HidingOps):
        def rmdir(self, path: Path) -> None:
            (directory / "index" / "somebody's").touch()
            super().rmdir(path)

    fsio.use(Adding(HIDDEN[0]))
    with pytest.raises(IoFailed, match="not empty"):
        fsio.remove_tree(directory)


@pytest.fixture
def fuse(tmp_path: Path) -> Iterator[Path]:
    """A directory through bindfs."""
    if not shutil.which("bindfs") or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("bindfs and /dev/fuse are not there (on Debian: apt install bindfs)")
    below, mount = tmp_path / "below", tmp_path / "mount"
    below.mkdir()
    mount.mkdir()
    done = subprocess.run(["bindfs", str(below), str(mount)], capture_output=True, check=False, timeout=PATIENCE_S)
    if done.returncode:
        pytest.skip("FUSE may not mount here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], capture_output=True, check=False)


def test_phases_run_on_fuse(fuse: Path, tmp_path: Path) -> None:
    """Each of them deletes the directory that it has just read, and has mapped."""
    db, cf = fuse / "db", str(tmp_path / "cf")
    call_all = [("shep-init",), ("shep", "insert", "http://a.example/"), ("shep-merge",), ("shep-select",), ("shep-record",)]
    for program, *arguments in call_all:
        done = call(program, *arguments, SHEPHERD_DB=str(db), SHEPHERD_CF=cf)
        assert done.returncode == 0, f"{program}: {done.stderr}"

    def is_tidy() -> bool:  # when a program has ended, FUSE lets go of what it had mapped a moment later
        with Database(db).writing("test"):
            return sorted(os.listdir(db / "state")) == ["000001", "000002"]

    wait_until(is_tidy, "what was hidden stays")
    assert call("shep-check", SHEPHERD_DB=str(db), SHEPHERD_CF=cf).returncode == 0
