"""A harvest in the inbox is taken exactly once, wherever the program that takes it is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shepherd.store.check import check
from shepherd.store.state.database import Database
from tests.crash import cycle_steps
from tests.crash.workloads import FOREIGN, WORKLOADS
from tests.support import sampling
from tests.support.harvests import files

BIN = Path(__file__).resolve().parents[2] / "bin"
BEFORE = ("chmod:.harvest/seg.00000001", "link:000003.tmp/objects/00000002", "write:000003.tmp/control", "rename:000003.tmp")
AFTER = ("unlink:.harvest/checkpoints", "unlink:.harvest/seg.00000001", "rmdir:.harvest")


def program(name: str, db: Path, fail: str = "") -> int:
    options = ["--db", str(db), "--cf", str(cycle_steps.cf_of(db)), "--now", str(cycle_steps.NOW), "--quiet"]
    env = {**os.environ, "SHEPHERD_FAIL": fail}
    return subprocess.run([BIN / name, *options], env=env, capture_output=True, check=False).returncode


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed state, and a harvest that waits in its inbox."""
    path = tmp_path_factory.mktemp("stage")
    WORKLOADS["inbox harvest"].prepare(path)
    Database(path / "db").inbox.drop_harvest(FOREIGN, path / "source")
    return path


@pytest.fixture(scope="module")
def expected(stage: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    db = shutil.copytree(stage, tmp_path_factory.mktemp("whole") / "stage") / "db"
    assert program("shep-cork", db) == 0
    return files(db / "state" / "000003")


@pytest.mark.parametrize("point", sampling.of_the_day([*BEFORE, *AFTER], 3, "killed cork"))
def test_killed_cork_has_applied_the_harvest_once_or_not_at_all(
    stage: Path, expected: dict[str, bytes], tmp_path: Path, point: str
) -> None:
    db = shutil.copytree(stage, tmp_path / "stage") / "db"
    assert program("shep-cork", db, f"{point}:1=kill") == -9
    assert program("shep-cork", db) == (0 if point in BEFORE else 4)
    assert files(db / "state" / "000003") == expected
    assert [name.number for name in Database(db).states()] == [1, 2, 3]
    assert os.listdir(db / "inbox") == []
    assert [fault for fault in check.walk(Database(db)) if not fault.note] == []
    assert program("shep-cork", db) == 4
