"""shep-plan and shep-select rehearsed by another configuration beside the present one: nothing changes; the numbers add up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import Flag, RowType
from shepherd.store.state.database import Database
from tests.support.page_states import Herd, Page, make_herd
from tests.support.programs import call
from tests.worlds import NOW

LATER = 40 * 86_400


@pytest.fixture
def flock(tmp_path: Path) -> Herd:
    """Ten new pages of different weights on one site, and its robots file."""
    robots = Page("http://a.example/robots.txt", columns={"flags": Flag.ROBOTS})
    return make_herd(tmp_path, [robots, *(Page(f"http://a.example/{n}", columns={"weight": 100 * n}) for n in range(10))], (), ())


def cf(herd: Herd, name: str, text: str) -> Path:
    directory = herd.cf.parent / name
    directory.mkdir()
    (directory / "shepherd.toml").write_text(text)
    return directory


def rehearse(program: str, herd: Herd, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """In a directory whose cf is the herd's, so that this is the present configuration."""
    now = str(NOW + LATER)
    told = call(program, "--db", str(herd.db), "--now", now, "--dry-run", *map(str, arguments), cwd=herd.cf.parent)
    assert (told.returncode, told.stderr) == (0, ""), told
    return told


def written(herd: Herd) -> dict[Path, tuple[bytes, int]]:
    """All that a program could have changed: every file but the one by which readers take turns at the leases."""
    files = (path for path in herd.db.rglob("*") if path.is_file() and path != herd.db / "lease" / "lock")
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def compared(program: str, herd: Herd, one: Path, other: Path) -> Mapping[str, Any]:
    before = written(herd)
    told: Mapping[str, Any] = json.loads(rehearse(program, herd, "--cf", one, "--versus", other, "--json").stdout)
    assert written(herd) == before
    assert (told["dry_run"], told["versus"]["cf"]) == (True, str(other))
    for side, report in ((one, told["report"]), (other, told["versus"]["report"])):
        assert json.loads(rehearse(program, herd, "--cf", side, "--json").stdout)["report"] == report
    return told


def test_select_reports_what_each_type_becomes(flock: Herd) -> None:
    small = cf(flock, "small", "[select]\nsite_soft = 6\nsite_hard = 8\n")
    told = compared("shep-select", flock, small, flock.cf)
    assert told["report"]["types now"] == {one.name.lower(): 11 if one == RowType.UNGATHERED else 0 for one in RowType}
    assert told["report"]["types then"]["ungathered"] == 7
    assert told["report"]["changes"] == {"ungathered -> sleeping": 2, "ungathered -> forgotten": 2}
    assert told["report"]["forgotten by reason"] == {"site-hard": 2}
    assert told["versus"]["report"]["changes"] == {}
    difference = told["versus"]["difference"]
    assert (difference["stay"], difference["types then: sleeping"], difference["types now: ungathered"]) == (-4, 2, 0)


def test_plan_reports_what_would_be_left_out(flock: Herd) -> None:
    small = cf(flock, "small", "[plan]\nmax_pages = 4\n")
    told = compared("shep-plan", flock, small, flock.cf)
    assert (told["report"]["room"], told["report"]["planned"]) == (4, 4)
    assert told["report"]["deferred"] == {"plan-full": 7}
    assert told["versus"]["report"]["planned_by"] == {"new": 10, "robots": 1}
    assert told["versus"]["difference"]["planned_by: new"] == -7
    assert told["versus"]["difference"]["deferred: plan-full"] == 7


def test_table_for_a_person(flock: Herd) -> None:
    cf(flock, "small", "[plan]\nmax_pages = 4\n")
    lines = rehearse("shep-plan", flock, "--cf", "small").stdout.splitlines()
    assert lines[0] == "shep-plan: would make 000003.reap by small, beside cf"
    assert lines[1].split() == ["by", "--cf", "by", "--versus", "difference"]
    rows = {line[:52].rstrip(): line[52:].split() for line in lines[2:]}
    assert (rows["planned"], rows["planned_by: new"]) == (["4", "11", "-7"], ["3", "10", "-7"])
    assert rows["planned_by: robots"] == ["1", "1"]
    alone = rehearse("shep-plan", flock, "--cf", flock.cf).stdout.splitlines()
    assert alone[0] == "shep-plan: would make 000003.reap"
    assert {line[:52].rstrip(): line[52:].split() for line in alone[1:]}["planned"] == ["11"]


def test_another_configuration_is_compared_with_the_present_one(flock: Herd) -> None:
    small = cf(flock, "small", "[select]\nsite_soft = 6\nsite_hard = 8\n")
    told = json.loads(rehearse("shep-select", flock, "--cf", small, "--json").stdout)
    assert (told["versus"]["cf"], told["versus"]["difference"]["types then: forgotten"]) == ("cf", 2)
    arguments = ("--db", str(flock.db), "--dry-run", "--json", "--cf", str(small))
    named = call("shep-select", *arguments, cwd=flock.db, SHEPHERD_CF=str(flock.cf))
    assert json.loads(named.stdout)["versus"]["cf"] == str(flock.cf)
    assert "versus" not in json.loads(call("shep-select", *arguments, cwd=flock.db).stdout)  # no cf is there


def test_broken_present_configuration_is_only_a_warning(flock: Herd) -> None:
    small = cf(flock, "small", "[plan]\nmax_pages = 4\n")
    (flock.cf / "shepherd.toml").write_text("[plan]\nmax_page = 1\n")
    arguments = ("--db", str(flock.db), "--now", str(NOW + LATER), "--dry-run", "--json", "--cf", str(small))
    told = call("shep-plan", *arguments, cwd=flock.cf.parent)
    assert told.returncode == 0
    assert "max_page" in told.stderr and told.stderr.endswith("; so nothing is compared\n")
    assert (json.loads(told.stdout)["report"]["planned"], "versus" in json.loads(told.stdout)) == (4, False)


@pytest.mark.parametrize("program", ["shep-plan", "shep-select"])
def test_dry_run_neither_takes_nor_needs_the_lock(flock: Herd, program: str) -> None:
    arguments = ("--cf", str(flock.cf), "--json")
    free = rehearse(program, flock, *arguments).stdout
    before = written(flock)
    with Database(flock.db).writing("somebody else"):
        assert rehearse(program, flock, *arguments).stdout == free
    assert {path for path, found in written(flock).items() if before.get(path) != found} <= {flock.db / "lock"}
    after = written(flock)
    assert rehearse(program, flock, *arguments).stdout == free
    assert written(flock) == after


def test_nothing_due_by_one_of_them_is_a_column_of_zeros(flock: Herd) -> None:
    done = Page("http://a.example/done", RowType.GATHERED, columns={"checked": NOW, "gathered": NOW, "frequency": 1})
    herd = make_herd(flock.cf.parent / "done", [done], (), ())
    slow, slower = (cf(herd, name, f"[plan]\nrefresh_s = {days * 86_400}\n") for name, days in (("slow", 20), ("slower", 90)))
    told = json.loads(rehearse("shep-plan", herd, "--cf", slower, "--versus", slow, "--json").stdout)
    assert (told["report"], told["versus"]["report"]["pages"]) == ({}, 1)
    assert told["versus"]["difference"]["pages"] == -1
    done_ = call("shep-plan", "--db", str(herd.db), "--now", str(NOW), "--dry-run", "--cf", str(slow), "--versus", str(slower))
    assert (done_.returncode, done_.stdout) == (4, "")


@pytest.mark.parametrize("program", ["shep-plan", "shep-select"])
def test_versus_without_a_rehearsal_is_refused(flock: Herd, program: str) -> None:
    before = sorted(flock.db.rglob("*"))
    told = call(program, "--db", str(flock.db), "--cf", str(flock.cf), "--versus", str(flock.cf))
    assert (told.returncode, told.stderr) == (2, f"{program}: --versus only compares, so it needs --dry-run\n")
    assert call(program, "--db", str(flock.db), "--dry-run", "--versus", str(flock.cf / "none")).returncode == 2
    assert sorted(flock.db.rglob("*")) == before
