"""shep-plan as a program: what it writes, what it only reports, and its message when there is nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import Deferred
from shepherd.store.state.database import Database
from tests.support.page_states import Herd, make_herd
from tests.support.unfinished_states import refusal, row_of, run
from tests.worlds import DAY

LATER = 40 * DAY


def plan(herd: Herd, *arguments: str, cf: Path | None = None, now: int = 0) -> dict[str, Any]:
    """What it says with --json."""
    done = run(herd.db, "shep-plan", "--json", "--cf", str(cf or herd.cf), "--now", str(now or herd.now), *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_report_lists_what_is_planned_what_is_deferred_and_when_it_ends(own_herd: Herd) -> None:
    report = plan(own_herd)["report"]
    latest = report.pop("latest")
    assert report == {
        "phase": "plan",
        "planned": 2,
        "pages": 1,
        "planned_by": {"new": 1, "robots": 1},
        "deferred": {"robots-unreachable": 1},
        "room": 5_000_000,
        "servers": 1,
        "expected_s": 20,  # of the minute that is stored the server waits ten seconds, its delay, and ten between the two
        "utilisation_permille": 5,
    }
    assert latest == [{"server": "127.0.0.7", "contacts": 2, "expected_s": 20}]
    shown = run(own_herd.db, "shep-dump", "plan", "--json")
    assert [json.loads(line)["why"] for line in shown.stdout.splitlines()] == ["robots", "new"]


def test_only_the_column_deferred_is_written_and_only_if_it_changes(own_herd: Herd) -> None:
    before = Database(own_herd.db).closed()
    plan(own_herd)
    after = Database(own_herd.db).furthest()
    for path in before.control.files:
        if path.partition("/")[0] in ("index", "sites", "servers"):
            same = (before.path / path).samefile(after.path / path)
            assert same == (path != "index/deferred"), path
    deferred = after.index["deferred"]
    assert deferred.value(row_of(after, "http://down.example/x")) == Deferred.ROBOTS_UNREACHABLE
    assert int(deferred[0 : after.index.rows].sum()) == Deferred.ROBOTS_UNREACHABLE


def test_a_column_that_stays_as_it_was_stays_the_same_file(own_herd: Herd) -> None:
    before = Database(own_herd.db).closed()
    plan(own_herd, now=own_herd.now + 700)  # by then robots.txt of the silent site may be asked for again
    after = Database(own_herd.db).furthest()
    assert (before.path / "index/deferred").samefile(after.path / "index/deferred")


def test_plan_rehearsed_with_another_configuration_changes_nothing(own_herd: Herd, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "shepherd.toml").write_text("[plan]\nmax_pages = 5\n")
    (own_herd.db / "lease" / "lock").touch()  # every reader leaves it
    before = sorted(own_herd.db.rglob("*"))
    told = plan(own_herd, "--dry-run", cf=other, now=own_herd.now + LATER)
    assert (told["dry_run"], told["state"], told["report"]["planned"], told["report"]["room"]) == (True, "000003.reap", 3, 5)
    assert told["report"]["deferred"] == {"plan-full": 5}
    assert sorted(own_herd.db.rglob("*")) == before
    assert plan(own_herd, now=own_herd.now + LATER)["report"]["planned"] == 7  # without the page that the filter rejects now


@pytest.mark.parametrize("partition_rows", [1, 4, 1_000])
def test_jobs_and_partitions_do_not_change_what_is_written(tmp_path: Path, partition_rows: int) -> None:
    made = []
    for name, jobs, rows in (("one", 1, 1_000), ("many", 3, partition_rows)):
        herd = make_herd(tmp_path / name)
        (herd.cf / "shepherd.toml").write_text(f"[plan]\nmax_pages = 5\n[store]\npartition_rows = {rows}\n")
        plan(herd, "--jobs", str(jobs), now=herd.now + LATER)
        state = Database(herd.db).furthest().path
        made.append({str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*") if path.is_file()})
    assert made[0] == made[1]
    assert {"plan", "index/deferred"} <= made[0].keys()


def test_nothing_to_plan_says_how_much_waits_and_for_what(own_herd: Herd, tmp_path: Path) -> None:
    cf = tmp_path / "short"
    cf.mkdir()
    (cf / "shepherd.toml").write_text("[plan]\nreap_s = 9\n")
    said = refusal(own_herd.db, "shep-plan", "--cf", str(cf), "--now", str(own_herd.now), status=4)
    assert said == ("shep-plan: nothing is due (1 robots-unreachable, 1 server-waits); insert URLs or come back later\n")
    assert [path.name for path in (own_herd.db / "state").iterdir() if path.suffix] == []
