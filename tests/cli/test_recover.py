"""shep-recover as its user sees it: what it says before, what it says after, and where else it may look."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from shepherd.store.disk import names
from shepherd.store.state import database
from tests.crash.mending import flip
from tests.support.page_states import Herd
from tests.support.programs import call
from tests.support.toy_farm import contents


def recover(herd: Herd, *arguments: str) -> tuple[int, str, str]:
    ended = call("shep-recover", "--quiet", *arguments, SHEPHERD_DB=str(herd.db), SHEPHERD_CF=str(herd.cf))
    return ended.returncode, ended.stdout, ended.stderr


def segment(herd: Herd) -> Path:
    return herd.db / "state/000002/objects" / names.segment(1)


def test_loss_is_said_before_it_happens(own_herd: Herd) -> None:
    segment(own_herd).unlink()
    before = contents(own_herd.db / "state")
    status, told, _errors = recover(own_herd, "--dry-run")
    assert status == 0 and contents(own_herd.db / "state") == before
    lines = told.splitlines()
    assert lines[0].startswith("would make 000003 from what is left of 000002 and of 000001: ")
    losses = {"  rows: 10 lost with their buckets", "  segments: 1 missing"}
    assert losses <= set(lines)
    status, told, _errors = recover(own_herd)
    lines = told.splitlines()
    assert status == 0
    assert losses <= set(lines[: lines.index("done: made 000003 from what is left of 000002 and of 000001")])
    assert lines[0].startswith("will make 000003")


def test_lost_file_is_put_back_from_a_mirror(own_herd: Herd, tmp_path: Path) -> None:
    shutil.copytree(own_herd.db, tmp_path / "mirror")
    before = contents(own_herd.db / "state")
    segment(own_herd).unlink()
    flip(own_herd.db / "state/000002/control")
    status, told, _errors = recover(own_herd, "--mirror", str(tmp_path / "mirror"), "--json")
    steps = [json.loads(line) for line in told.splitlines()]
    assert status == 0 and contents(own_herd.db / "state") == before
    assert [(step["done"], step["lost"]) for step in steps] == [(False, ""), (False, ""), (True, ""), (True, "")]
    assert all(str(tmp_path / "mirror") in step["what"] for step in steps)


def test_mirror_of_another_database_is_refused(own_herd: Herd, tmp_path: Path) -> None:
    database.create(tmp_path / "other", bytes(16), own_herd.now, 0)
    segment(own_herd).unlink()
    status, _told, errors = recover(own_herd, "--mirror", str(tmp_path / "other"))
    assert status == 2
    assert "no mirror of" in errors and "have another key" in errors
