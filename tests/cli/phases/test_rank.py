"""shep-rank as an operator and a master run it: links become weights of the index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shepherd.filters import load_filter
from shepherd.formats.tables import Flag
from shepherd.report import logbook
from shepherd.store.check import check
from shepherd.store.disk import locks, names
from shepherd.store.state import database, lookup
from shepherd.store.state.database import Database
from shepherd.urls import parse
from tests.cycle.rank.test_rank import herd_of, known, page
from tests.support import harvests, programs
from tests.support.page_states import Herd
from tests.worlds import NOW

ROOT = Path(__file__).resolve().parents[3]
HUB, LEAF, OTHER, KNOWN, ROBOTS = (f"http://a.example/{name}" for name in ("hub", "leaf", "other", "known", "robots.txt"))
URLS = (HUB, LEAF, OTHER, KNOWN)
MEAN = 40_000 - 4 * 2_048


@pytest.fixture
def herd(tmp_path: Path) -> Herd:
    """Three pages and a URL that is merely known; all but one link to the hub."""
    robots = page(ROBOTS, flags=Flag.ROBOTS, weight=5)
    return herd_of(
        tmp_path,
        [page(HUB, LEAF, KNOWN), page(LEAF, HUB), page(OTHER, HUB, flags=Flag.INITIAL, weight=50_000), known(KNOWN), robots],
    )


def run(herd: Herd, program: str, *arguments: str, status: int = 0) -> str:
    done = programs.call(program, "--db", str(herd.db), "--cf", str(herd.cf), *arguments)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def weights(herd: Herd, *urls: str) -> list[int]:
    state = Database(herd.db).furthest()
    rows = [lookup.rows_of(state, *state.prints.of(parse(url))[:2])[0] for url in urls]
    return [state.index["weight"].value(row) for row in rows]


def uploads(herd: Herd) -> list[Path]:
    return sorted((herd.db / "inbox").iterdir())


def test_links_become_weights(herd: Herd) -> None:
    told = json.loads(run(herd, "shep-rank", "--json"))
    assert [path.name for path in uploads(herd)] == [f"{told['item']}.feedback"]
    assert (told["report"]["documents"], told["report"]["links"], told["report"]["changed"]) == (4, 4, 3)
    assert [one["url"] for one in told["report"]["top"]][:3] == [HUB, *sorted((LEAF, KNOWN))]
    report = json.loads(run(herd, "shep-feedback", "--json"))["report"]
    assert (report["heard"], report["changed rows"], report["of unknown URLs"]) == (3, 3, 0)
    hub, leaf, other, merely_known = weights(herd, *URLS)
    assert hub > MEAN > 0 and hub > leaf == merely_known
    assert other == 50_000  # an operator inserted it
    assert weights(herd, ROBOTS) == [5]
    assert {one["weight"] for one in told["report"]["top"]} >= {hub, leaf}
    assert [fault for fault in check.walk(Database(herd.db)) if not fault.note] == []
    run(herd, "shep-rank", status=4)  # all of them have it now
    assert uploads(herd) == []


def test_same_state_gives_the_same_bytes(herd: Herd) -> None:
    run(herd, "shep-rank")
    (herd.cf / "shepherd.toml").write_text("[store]\npartition_rows = 1\n")
    run(herd, "shep-rank")
    first, second = (path.read_bytes() for path in uploads(herd))
    assert first == second
    run(herd, "shep-rank", "--damping", "0.5")
    assert uploads(herd)[2].read_bytes() != first


def test_dry_run_prints_the_report_and_leaves_nothing(herd: Herd) -> None:
    text = run(herd, "shep-rank", "--dry-run", "--limit", "1")
    assert uploads(herd) == []
    assert list((herd.db / "log").iterdir()) == []
    assert "4 documents and 4 links of state 000002" in text
    assert text.count("http://") == 1
    report = json.loads(run(herd, "shep-rank", "--dry-run", "--json"))["report"]
    assert sum(report["weights"]) == 4
    (best,) = [one for one in report["top"] if one["url"] == HUB]
    assert best["weight_now"] == 1 and best["weight"] > MEAN
    assert f"{best['weight']}    1  {HUB}" in text


def test_ranking_does_not_wait_for_a_writer(herd: Herd) -> None:
    """No lock is needed, and the lease goes with the program."""
    held = locks.lock(herd.db / names.LOCK, "a master")
    run(herd, "shep-rank")
    held.release()
    assert Database(herd.db).leases.all() == []
    assert "no closed state 9" in run(herd, "shep-rank", "--state", "9", status=2)
    assert "no document" in run(herd, "shep-rank", "--state", "1", status=4)


def test_too_few_iterations_are_reported(herd: Herd) -> None:
    assert "still moved" in run(herd, "shep-rank", "--iterations", "1", "--dry-run", "-q")
    assert "still moved" not in run(herd, "shep-rank", "--dry-run", "-q")
    run(herd, "shep-rank", "--damping", "1", status=2)


def test_link_to_an_equivalent_site_leads_to_its_class(tmp_path: Path) -> None:
    """Links in buckets go by the implicit rule alone: the classes of url-equiv are brought to them."""
    there = "http://b.example/there"
    herd = herd_of(tmp_path, [page(HUB, there), known(there), known(KNOWN)])
    (herd.cf / "url-equiv").write_text("a.example b.example\n")
    for program in ("shep-merge", "shep-equiv", "shep-select", "shep-record"):
        run(herd, program, "--now", str(NOW))
    report = json.loads(run(herd, "shep-rank", "--json"))["report"]
    assert (report["links"], report["unknown"]) == (1, 0)
    assert report["top"][0]["url"] == there


# --- by a master ------------------------------------------------------------------------------------------------


@pytest.fixture
def master(tmp_path: Path) -> Herd:
    """A database in whose inbox a harvest waits, so that a cycle has something to do, and needs no network for it."""
    db, cf = tmp_path / "db", tmp_path / "cf"
    cf.mkdir()
    (cf / "filter").write_text("default accept\n")
    database.create(db, bytes(16), NOW, load_filter(cf / "filter").version)
    leave_harvest(db, 1)
    return Herd(db, cf, NOW)


def leave_harvest(db: Path, number: int) -> None:
    name = f"1790000000000-host-1-{number}"
    pages = [harvests.Page("http://a.example/x", "a body")]
    source = harvests.harvest(db.parent / name, pages, {f"http://b.example/{number}": 9}, key=bytes(16))
    Database(db).inbox.drop_harvest(name, source)


def settings(master: Herd, every: int) -> None:
    """A hook writes down each failure."""
    script = master.cf / "told.sh"
    script.write_text(f'#!/bin/sh\necho "$1 $2" >> {master.cf}/told\n')
    script.chmod(0o755)
    (master.cf / "shepherd.toml").write_text(f'[master]\nrank_every = {every}\n[hooks]\non_error = "{script}"\n')


def steps(master: Herd) -> list[list[str]]:
    lines = (master.db / names.LOGS / logbook.CYCLES).read_text().splitlines()
    return [[step["step"].removeprefix("shep-") for step in json.loads(line)["steps"]] for line in lines]


def test_master_ranks_after_the_cycle(master: Herd) -> None:
    settings(master, 1)
    done = programs.call("shepherd", "cycle", "--db", str(master.db), "--cf", str(master.cf))
    assert done.returncode == 0, done.stderr
    assert steps(master) == [["plan", "cork", "merge", "select", "record", "rank"]]
    assert len(uploads(master)) == 1
    run(master, "shep-feedback")
    assert weights(master, "http://b.example/1") == [MEAN]


@pytest.mark.parametrize(
    ("every", "before", "ranked"),
    [
        (0, [["plan"]] * 9, False),
        (3, [["plan"]], False),
        (3, [["plan"]] * 2, True),
        (3, [["plan", "rank"], ["plan"]], False),
        (3, [["rank"], ["plan"], ["plan"]], True),
        (1, [["rank"]], True),
    ],
)
def test_ranking_is_due_after_its_number_of_cycles(master: Herd, every: int, before: list[list[str]], ranked: bool) -> None:
    log = master.db / names.LOGS
    log.mkdir(exist_ok=True)
    lines = [{"start": NOW, "steps": [{"step": f"shep-{step}", "status": 0} for step in cycle]} for cycle in before]
    (log / logbook.CYCLES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    least = max(every - 1, 0)
    assert (every > 0 and logbook.cycles_since(log, "shep-rank", least) >= least) is ranked


def test_ranking_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    cut = {"start": NOW, "steps": [{"step": "shep-rank", "status": 143}]}
    (tmp_path / logbook.CYCLES).write_text(json.dumps(cut) + "\n")
    assert logbook.cycles_since(tmp_path, "shep-rank", 9) == 1


@pytest.mark.parametrize(
    ("before", "status"), [("exit 1", 5), ("echo nonsense >> $SHEPHERD_CF/filter", 2)], ids=["refused by a hook", "failed"]
)
def test_failed_ranking_is_reported_and_the_cycle_continues(master: Herd, before: str, status: int) -> None:
    settings(master, 1)
    with (master.cf / "shepherd.toml").open("a") as file:
        for name, command in (("before", before), ("after", ": > $SHEPHERD_CF/filter")):
            script = master.cf / name
            script.write_text(f'#!/bin/sh\ntest "$1" != shep-rank || {command}\n')
            script.chmod(0o755)
            file.write(f'{name} = "{script}"\n')
    done = programs.call("shepherd", "cycle", "--quiet", "--db", str(master.db), "--cf", str(master.cf))
    assert done.returncode == 0, done.stderr
    assert steps(master)[-1][-1] == "rank"
    assert uploads(master) == []
    assert (master.cf / "told").read_text() == f"shep-rank {status}\n"
    assert "the cycle continues without its weights" in done.stderr
