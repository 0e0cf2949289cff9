"""shep-select, run as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shepherd.formats.tables import INDEX, SERVERS, SITES, RowType, empty
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from tests.support.programs import call

ROWS = 40


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A database where 40 gathered pages of two sites have just been merged, and limits that leave 10 of them."""
    database = Database.create(tmp_path / "db", bytes(16), 1)
    index = empty(INDEX, ROWS)
    index["norm"][:] = [1] * 20 + [2] * 20
    index["path"][:] = range(ROWS)
    index["site"][:] = index["norm"]
    index["weight"][:] = range(ROWS)
    index["type"][:], index["digest"][:], index["gathered"][:] = RowType.GATHERED, 7, 9
    with database.writing("test") as writer:
        builder = writer.build(writer.furthest(), StateName(2, "merged"), 1)
        builder.write_table("index", index)
        builder.write_table("sites", empty(SITES))
        builder.write_site_names([])
        builder.write_table("servers", empty(SERVERS))
        writer.publish(builder, {"phase": "merge"})
    (tmp_path / "cf").mkdir()
    (tmp_path / "cf" / "shepherd.toml").write_text(
        "[select]\ngathered = 10\nsleeping = 20\nmost_lost_floor = 5\n[store]\npartition_rows = 20\n"
    )
    return tmp_path


def files(place: Path, db: str = "db") -> dict[str, bytes]:
    root = place / db / "state"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_brake_stops_and_force_continues(place: Path) -> None:
    before = files(place)
    stopped = call("shep-select", "--now", "5", cwd=place)
    assert stopped.returncode == 2
    assert "30 of 40 gathered documents would be lost" in stopped.stderr
    assert "--force" in stopped.stderr
    assert {name: data for name, data in files(place).items() if ".tmp/" not in name} == before
    assert call("shep-select", "--now", "5", "--force", cwd=place).returncode == 0
    assert Database(place / "db").states()[-1] == StateName(2, "selected")


def test_dry_run_reports_the_reasons_and_leaves_nothing(place: Path) -> None:
    before = files(place)
    told = call("shep-select", "--now", "5", "--dry-run", "--json", cwd=place)
    assert told.returncode == 0
    report = json.loads(told.stdout)["report"]
    assert report["asleep by reason"] == {"below-bar": 20}
    assert report["forgotten by reason"] == {"below-sleep": 10}
    assert report["stopped by most_lost"] == 1
    assert files(place) == before


def test_several_processes_make_the_same_bytes(place: Path) -> None:
    shutil.copytree(place / "db", place / "other")
    assert call("shep-select", "--now", "5", "--force", cwd=place).returncode == 0
    assert call("shep-select", "--now", "5", "--force", "--jobs", "3", "--db", "other", cwd=place).returncode == 0
    assert files(place) == files(place, "other")
