"""When a master cleans up by itself: the decision over what was measured, and what is measured on real states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shepherd.config import Cleanup, Config
from shepherd.cycle.cleanup import drive as cleanup
from shepherd.cycle.cork import drive as cork
from shepherd.cycle.plan import drive as plan
from shepherd.master import cleanup_due
from shepherd.master.cleanup_due import CleanupFacts, reason
from shepherd.master.cycle_table import CLEANUP
from shepherd.report import logbook
from shepherd.store.state.database import Database
from tests.crash import cycle_steps

NOW = 1_800_000_000
SETTINGS = Cleanup(size_bytes=1_000, garbage=20, every_s=1_000, pause_s=100)


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (CleanupFacts(NOW, NOW - 500, size=900, needed=800, freed=100), ""),
        (CleanupFacts(NOW, NOW - 500, size=1_001, needed=900, freed=50), "cleanup.size_bytes"),
        (CleanupFacts(NOW, NOW - 500, size=1_200, needed=1_100, freed=0), "cleanup.size_bytes"),  # bodies can be dropped
        (CleanupFacts(NOW, NOW - 500, size=1_001, needed=900, freed=0), ""),  # nothing could be freed
        (CleanupFacts(NOW, NOW - 500, size=900, needed=500, freed=181), "cleanup.garbage"),
        (CleanupFacts(NOW, NOW - 500, size=900, needed=500, freed=180), ""),
        (CleanupFacts(NOW, NOW - 1_000, size=900, needed=800, freed=0), "cleanup.every_s"),
        (CleanupFacts(NOW, NOW - 999, size=0, needed=0, freed=0), ""),
        (CleanupFacts(NOW, NOW - 99, size=5_000, needed=100, freed=4_900), ""),  # too soon
        (CleanupFacts(NOW, NOW + 999_999, size=5_000, needed=100, freed=4_900), ""),  # the clock was set back
    ],
)
def test_reason_for_a_cleanup(facts: CleanupFacts, word: str) -> None:
    told = reason(facts, SETTINGS)
    assert word in told and bool(word) == bool(told)


def test_reason_that_is_switched_off_does_not_count() -> None:
    never = Cleanup(size_bytes=0, garbage=0, every_s=0, pause_s=0)
    assert reason(CleanupFacts(NOW, 1, size=10**9, needed=1, freed=10**9), never) == ""


def test_garbage_is_measured_as_a_cleanup_frees_it(tmp_path: Path) -> None:
    """Pages that were gathered twice leave their first buckets behind; what a cleanup frees is what was foretold."""
    db = tmp_path / "db"
    cycle_steps.grow(db, "drop more")
    config = cycle_steps.config(db)
    for number in range(1, 4):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cycle_steps, "NOW", cycle_steps.NOW + number * 100 * 86_400)
            for step in (cycle_steps.phase(plan.run), cycle_steps.harvesting(2, end=True), cycle_steps.phase(cork.run)):
                step(db, lambda _line: None)
    facts = cleanup_due.measure(Database(db), config, NOW, 0)
    assert 0 < facts.needed < facts.size
    assert facts.freed > 0
    with Database(db).writing("a test") as writer:
        state = cleanup.run(writer, config, NOW, lambda _rows: None)
    assert state.report()["bytes"] == facts.size - facts.freed
    assert cleanup_due.measure(Database(db), config, NOW, 0).freed == 0


def test_first_cleanup_is_due_every_s_after_the_first_cycle(tmp_path: Path) -> None:
    db = tmp_path / "db"
    cycle_steps.grow(db, "plan")
    config = Config(cleanup=Cleanup(every_s=1_000, pause_s=100))

    def due(now: int) -> str:
        return cleanup_due.due(Database(db), config, now, CLEANUP)

    assert due(NOW) == ""  # nobody knows since when
    log = db / "log" / logbook.CYCLES
    log.write_text(json.dumps({"start": NOW - 2_000, "steps": []}) + "\n")
    assert "cleanup.every_s" in due(NOW)
    log.write_text(log.read_text() + json.dumps({"start": NOW - 50, "steps": [{"step": CLEANUP, "status": 4}]}) + "\n")
    assert due(NOW) == ""  # it was tried, and found nothing
    assert "cleanup.every_s" in due(NOW + 1_000)


def test_torn_and_foreign_lines_do_not_hide_the_cycles_behind_them(tmp_path: Path) -> None:
    assert logbook.cycles(tmp_path) == [] and logbook.first_start(tmp_path) == 0
    (tmp_path / logbook.CYCLES).write_bytes(b'{"start": 1, "st\n[]\n{"start": 2, "steps": []}\n\xff\n{"start": 3, "steps": []}')
    assert [entry["start"] for entry in logbook.cycles(tmp_path)] == [2, 3]
    assert logbook.first_start(tmp_path) == 0
    long = json.dumps({"start": 4, "steps": [], "report": "x" * 700_000})
    (tmp_path / logbook.CYCLES).write_text(f"{long}\n" * 3)
    assert [entry["start"] for entry in logbook.cycles(tmp_path)] == [4]  # the last MiB, and no line that is cut
    assert logbook.first_start(tmp_path) == 4
