"""shep audit politeness, run as a user runs it: over real reaps and a fetch, and over a journal with contacts too close."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from shepherd.formats.tables import JournalFlag
from shepherd.store.disk import names, opening
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from tests.crash.test_politeness import Garden, garden, pages
from tests.support.harvests import NOW, Page, begin, reap, run
from tests.support.origin import Answer, ok
from tests.support.page_states import Herd, Run, objects, stdout_of
from tests.support.programs import call
from tests.support.unfinished_states import GONE, NEW, START_MS, journal_record, start_reap
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.waits

CONTACTED = int(JournalFlag.CONTACTED)
CLOCKS_MS = 20  # the clocks of two reapers agree about as well, however long their first exchanges took on a busy machine


def audit(one: Garden, *args: str, status: int = 0) -> dict[str, Any]:
    with one.start("shep", "audit", "politeness", "--json", *args) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, f"{process.returncode}: {output}{errors}"
    found: dict[str, Any] = json.loads(output) if output else {}
    return found


def test_reaps_and_a_fetch_between_them_pass(tmp_path: Path) -> None:
    routes: dict[str, Answer] = {**pages("a.example", 3), **pages("b.example", 2)}
    routes["b.example/robots.txt"] = ok(b"User-agent: *\nCrawl-delay: 1\n")
    with garden(tmp_path, routes, delay_s=0.3) as one:
        one.cycle_to_plan(*(f"http://a.example/{n}" for n in range(2)), "http://b.example/0")
        assert audit(one, status=4) == {}
        one.must("shep-reap", "--seconds", "15")
        running = audit(one)  # the journal of a harvest that no cork has taken
        assert (running["contacts"], running["violations"]) == (len(one.origin.spans), [])
        one.must("shep", "fetch", "--wait", "http://a.example/2")
        one.must("shep-cork", "-q")
        found = audit(one)
        assert (found["contacts"], found["servers"], found["violation_count"]) == (len(one.origin.spans), 1, 0)
        (server,) = found["tightest"]
        assert server["server"] == "127.0.4.1" and server["to_spare_ms"] >= -CLOCKS_MS
        assert server["smallest_gap_ms"] <= min(one.origin.gaps_s()) * 1000 + CLOCKS_MS  # what the origin saw is no closer


def sin(herd: Herd, *contacts: bytes) -> None:
    """A harvest beside that of start_reap, with these contacts."""
    path = start_reap(herd).parent / "other"
    harvest = Harvest(path, 1 << 20)
    for one in contacts:
        harvest.journal(one)
    harvest.checkpoint(START_MS + 99_000)
    harvest.close()
    assert opening.read_file(path / names.CHECKPOINTS)


def test_contact_of_another_reaper_that_is_too_close_is_named(own_herd: Herd, shep: Run) -> None:
    near = {"start_ms": START_MS + 5_000, "end_ms": START_MS + 5_010}
    sin(own_herd, journal_record(GONE, flags=CONTACTED, **near))
    answer = shep(own_herd, "audit", "politeness", "--json")
    (found,) = objects(answer, 30)
    assert found["violation_count"] == 2  # the server, and the site
    server, site = found["violations"]
    assert (server["what"], server["server"], server["gap_ms"], server["needed_ms"]) == ("delay", "127.0.0.7", 4_930, 10_000)
    assert site["what"] == "site"
    assert server["after"]["start"] == "2026-09-21T14:13:25.005Z"
    text = shep(own_herd, "audit", "politeness")
    assert text.returncode == 30 and b"came too soon" in text.stderr
    shown = text.stdout.decode()
    assert "violation (delay): 127.0.0.7: 4930 ms, where 10000 ms were due" in shown
    assert server["before"]["footprint"] in shown and server["after"]["footprint"] in shown


def test_contact_that_keeps_its_distance_is_no_violation(own_herd: Herd, shep: Run) -> None:
    far = {"start_ms": START_MS + 10_070, "end_ms": START_MS + 10_080}
    sin(own_herd, journal_record(NEW, flags=CONTACTED, **far))
    assert "2 contacts with 1 server" in stdout_of(shep(own_herd, "audit", "politeness"))


def test_help_says_that_all_closed_states_are_read(own_herd: Herd, shep: Run) -> None:
    text = " ".join(stdout_of(shep(own_herd, "audit", "politeness", "--help")).split())
    assert "[default: all closed states]" in text and "the newest" not in text


def test_old_state_beside_newer_kept_journals_stands_in_its_place(tmp_path: Path) -> None:
    """A reader leases the oldest state, and the one after it is deleted: no clock was set back."""
    db = begin(tmp_path / "db", ("http://a.example/",))
    with contextlib.ExitStack() as leases:
        for cycle in range(3):
            now = NOW + cycle * 40 * 86_400
            reap(db, ("reap", [Page("http://a.example/", at=now + 1)], {}), end=now + 9, now=now)
            state = run(db, "cork", now=now)
            if not cycle:
                leases.enter_context(Database(db).reading("a reader", now * 1000, state.number))
        with Database(db).writing("a test") as writer:
            assert len(writer.prune(1, NOW, keep_journals=9)) > 1
        found = call("shep", "audit", "politeness", "--json", "--db", str(db), "--cf", str(db.parent / "cf"))
    assert found.returncode == 0 and "judged by itself" not in found.stderr, found.stderr
    assert json.loads(found.stdout)["contacts"] == 3
