"""What a killed program has written and not synced looks durable to the next one: one test for each time somebody built on that.

test_restart.py finds the same by trying every call; here the one call that mattered has a name.
"""

from __future__ import annotations

from pathlib import Path

from shepherd.dispatch import reap
from shepherd.store.state.database import Database
from tests.crash import store_steps, sweep
from tests.crash.record import Recorder, recording
from tests.crash.replay import Distinct, cuts_after_kill
from tests.crash.workloads import WORKLOADS


def broken(name: str, site: str, path: str, memory: Path) -> list[str]:
    """What a power cut breaks after a workload was killed right before its last sync of `path` in `site`, and then carried on."""
    run = sweep.record(WORKLOADS[name], memory)
    kill = max(place for place in run.syncs() if (run.log[place].site, run.log[place].path) == (site, path))
    both, _end = sweep.restart(WORKLOADS[name], run, kill, memory, with_recover=False)
    found = (sweep.first_violation(both, cut, memory) for cut in Distinct(alike=1)(cuts_after_kill(both, kill)))
    return [complaint for complaint in found if complaint]


def test_pruning_that_was_killed_and_tidied_away_leaves_no_half_state_under_its_old_name(memory: Path) -> None:
    assert broken("prune", "Writer.prune", "db/state", memory) == []


def test_checkpointed_harvest_lasts_although_its_maker_was_killed(memory: Path) -> None:
    assert broken("harvest", "Harvest.__init__", "db/state/000003.reap/harvest", memory) == []


def test_end_of_a_reap_lasts_before_cork_seals_its_files(memory: Path) -> None:
    path = "db/state/000003.reap/harvest/reap/checkpoints"
    assert broken("harvest and cork", "Harvest._write_point", path, memory) == []


def test_database_lasts_although_the_first_init_was_killed_when_it_had_made_the_directory(memory: Path) -> None:
    assert broken("init", "_settle", ".", memory) == []


def test_database_lasts_although_init_was_killed_when_all_was_done(memory: Path) -> None:
    assert broken("init", "create", "db", memory) == []


def test_file_of_a_mirror_lasts_although_the_transfer_was_killed_when_it_had_sealed_it(memory: Path) -> None:
    for file in ("index/weight", "index/weight.check", "objects/00000004"):
        site = "StateTransfer.put_table" if file.endswith("check") else "FileTransfer.is_complete"
        assert broken("mirror", site, f"db/state/000004.tmp/{file}", memory) == []


def test_directory_of_all_harvests_is_durable_although_its_maker_was_killed(memory: Path) -> None:
    db = store_steps.create(memory / "db")
    with db.writing("test") as writer:
        home = store_steps.publish_plan(writer).parent
    home.rmdir()
    home.mkdir()  # by a program that was killed before it synced anything
    with recording(Recorder(memory)) as recorder:
        reap.harvest_path(Database(memory / "db").furthest())
    assert [(call.op, call.path) for call in recorder.log] == [("sync", "db/state/000002.reap")]
