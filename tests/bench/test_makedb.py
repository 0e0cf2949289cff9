"""bench/makedb: the same bytes for the same seed, databases that shep-check finds sound, and inputs that the programs take."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.store.state.database import Database
from tests.support.page_states import ROOT
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S

NOW = "1790003600"
INPUTS = ("--contributions", "1500", "--journal", "300", "--feedback", "40")


def make(db: Path, *arguments: str, rows: int = 2_000) -> None:
    command = [sys.executable, str(ROOT / "bench" / "makedb"), str(rows), str(db), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert f"--now {NOW}" in done.stdout


def contents(directory: Path) -> dict[str, str]:
    """The checksum of every file below a directory."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(program: str, db: Path) -> None:
    done = call(program, "--db", str(db), "--cf", str(ROOT / "cf"), "--now", NOW)
    assert done.returncode == 0, done.stderr


def check(db: Path) -> None:
    done = call("shep-check", "--db", str(db))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("buckets", [(), ("--buckets",)])
def test_same_seed_gives_the_same_bytes(tmp_path: Path, buckets: tuple[str, ...]) -> None:
    for name in ("one", "two"):
        make(tmp_path / name, *buckets, *INPUTS)
    make(tmp_path / "other", *buckets, *INPUTS, "--seed", "2")
    one, two, other = (contents(tmp_path / name / "state") for name in ("one", "two", "other"))
    assert one == two
    assert one["000003.reap/index/weight"] != other["000003.reap/index/weight"]
    assert (tmp_path / "one.feedback").read_bytes() == (tmp_path / "two.feedback").read_bytes()


def test_table_that_is_wrong_throughout_is_listed_row_by_row(tmp_path: Path) -> None:
    make(tmp_path / "db")
    done = call("shep-check", "--db", str(tmp_path / "db"))
    every = call("shep-check", "--db", str(tmp_path / "db"), "--all")
    assert (done.returncode, every.returncode) == (11, 11)
    assert done.stderr == every.stderr  # the total
    lines, rest = every.stdout.splitlines(), [line for line in done.stdout.splitlines() if " more like this: " in line]
    assert f"{len(lines):,} faults in " in done.stderr
    told = [line for line in done.stdout.splitlines() if line not in rest]
    assert sum(int(line.split(": ")[1].split()[0].replace(",", "")) for line in rest) + len(told) == len(lines)
    assert set(told) <= set(lines)
    sites = [line for line in told if "is not the footprint of http" in line]
    assert len(sites) == 20
    assert any("more like this: is not the footprint of its name" in line for line in rest)
    objects = [json.loads(line) for line in call("shep-check", "--db", str(tmp_path / "db"), "--json").stdout.splitlines()]
    assert sum(one["count"] for one in objects) == len(lines)


def test_inputs_can_be_added_later(tmp_path: Path) -> None:
    make(tmp_path / "one", "--contributions", "500")
    make(tmp_path / "two")
    make(tmp_path / "two", "--contributions", "500")
    assert contents(tmp_path / "one" / "state") == contents(tmp_path / "two" / "state")


def test_database_with_buckets_is_sound_after_every_program(tmp_path: Path) -> None:
    db = tmp_path / "db"
    make(db, "--buckets", *INPUTS)
    check(db)
    for program in ("shep-cork", "shep-merge", "shep-select", "shep-record", "shep-plan"):
        run(program, db)
        check(db)
    state = Database(db).closed(4)
    assert state.index.rows > 2_500
    assert len(Database(db).furthest().plan()) > 100


def test_programs_run_on_columns_alone(tmp_path: Path) -> None:
    db = tmp_path / "db"
    make(db, "--contributions", "2000", rows=20_000)
    for program in ("shep-merge", "shep-select", "shep-record", "shep-plan"):
        run(program, db)
    report = Database(db).closed(4).report()
    assert report["recorded"] > 700


def test_sites_and_servers_follow_zipf(tmp_path: Path) -> None:
    make(tmp_path / "db", rows=200_000)
    state = Database(tmp_path / "db").closed(2)
    documents = state.sites["documents"][0 : state.sites.rows]
    assert state.index.rows == documents.sum() == 200_000
    assert 19_000 < state.sites.rows < 21_000
    assert documents.max() > 1_000 and (documents < 10).mean() > 0.7
    assert state.servers["documents"][0 : state.servers.rows].max() > 2_000


def test_another_database_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "db")
    command = [sys.executable, str(ROOT / "bench" / "makedb"), "2000", str(tmp_path / "db"), "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and "was not made with these rows" in done.stderr


def test_look_makes_its_directory_and_refuses_another_database(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "look")]
    with subprocess.Popen([*command, "100000", str(tmp_path)], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline().startswith("100,000 rows, ")
        asking.terminate()  # how long answers take is for a bench
    done = subprocess.run([*command, "200000", str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and "name another" in done.stderr
