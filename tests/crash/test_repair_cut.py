"""The power fails while damaged files are put back: what stands then is mended by the next recovery, to the byte.

Two segments are behind each other's names, and no other state has them: each is the only copy of the other.
"""

from __future__ import annotations

from pathlib import Path

from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash import store_steps, sweep
from tests.crash.oracle import recover_once
from tests.crash.replay import Distinct, Stage, cuts
from tests.crash.tally import Tally
from tests.crash.workloads import STATES, Workload
from tests.support import sampling
from tests.support.toy_farm import contents
from tests.worlds import NOW

SAMPLE_STEP = 5


def one_state(path: Path) -> Path:
    """A database of one state, with two segments at least."""
    db = store_steps.create(path / "db")
    with db.writing("test") as writer:
        store_steps.publish_with(writer, range(6))
        writer.prune(1, NOW)
    return path / STATES / str(db.furthest().name)


def swapped(path: Path) -> None:
    state = one_state(path)
    first, second, *_rest = sorted((state / names.OBJECTS).iterdir())
    aside = path / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def repair(stage: Stage) -> None:
    recover_once(stage.path / "db")
    stage.settle()


def test_power_cut_while_files_are_put_back_costs_nothing(memory: Path, tally: Tally) -> None:
    one_state(memory / "whole")
    expected = contents(memory / "whole" / STATES)
    run = sweep.record(Workload(swapped, repair, sound=False), memory)
    points = list(Distinct(alike=1)(cuts(run, 0, sampling.step(SAMPLE_STEP))))
    assert len(points) > 2
    for cut in points:
        with sweep.disk_of(cut.tree, memory) as path:
            found = contents(path / STATES)
            with Database(path / "db").writing("test", tidy=False) as writer:
                writer.remove_leftovers()  # as every program does that takes the lock
            recover_once(path / "db")
            good = contents(path / STATES) == expected and not any(not fault.note for fault in check.walk(Database(path / "db")))
            tally.point(cut, [] if good else [f"not as it was: {sorted(found)}"])
    tally.close()
