"""The power is cut at every call of a prune that keeps journals: each is in its state or kept, and whole; none is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shepherd.errors import ShepherdError
from shepherd.store.disk import names
from shepherd.store.state import journals
from shepherd.store.state.database import Database
from tests.crash import sweep
from tests.crash.oracle import violations
from tests.crash.replay import Distinct, Stage, cuts
from tests.crash.tally import Tally
from tests.crash.workloads import Workload
from tests.store.state.test_journals import add, make

STATES = 4  # 2 to 5, each with a journal of as many records as its number
KEPT = 2
DISKS = 9  # that are judged by default


def _states(path: Path) -> None:
    make(path / "db", STATES)


def _prune(stage: Stage) -> None:
    _pruned(stage.path / "db")
    stage.settle()


def _pruned(path: Path) -> None:
    with Database(path).writing("test") as writer:
        writer.prune(1, 99, KEPT)


def _complaints(path: Path) -> Iterator[str]:
    """What is wrong with the journals of a disk that a cut has left, and with what the next prune makes of it."""
    found = Database(path)
    kept = journals.numbers(found.log_path)
    there = {name.number for name in found.states()}
    for number in range(2, 2 + STATES):
        newer = [name for name in kept if name.number > number]
        if number not in there | {name.number for name in kept} and len(newer) < KEPT:
            yield f"the journal of {number} is lost"
    for name in kept:
        try:
            state = journals.open_state(found.log_path, name)
            if len(state.journal(name.number)) != name.number or state.servers.rows or state.sites["qkey"][0:0].size:
                yield f"the journal of {name} is another one"
        except (ShepherdError, OSError) as error:
            yield f"the journal of {name} cannot be read: {error}"
    with found.writing("test") as writer:  # whoever keeps the next one removes what is half made or half deleted
        add(writer, STATES + 2)
    _pruned(path)
    root = found.log_path / journals.SHELF.name
    last = [names.parse_state(entry) for entry in sorted(os.listdir(root))]
    if [name.number if name else None for name in last] != [STATES, STATES + 1]:
        yield f"the next prune leaves {sorted(os.listdir(root))}"


def test_power_cut_during_a_prune_that_keeps_journals_loses_none_and_leaves_none_torn(
    memory: Path, tally: Tally, crash_sweep: bool
) -> None:
    run = sweep.record(Workload(_states, _prune), memory)
    distinct = Distinct(alike=25 if crash_sweep else 1)
    found = cuts(run, 0, 1, hidden_every=41) if crash_sweep else cuts(run, 0, 5)
    disks = distinct(found) if crash_sweep else sweep.spread(list(distinct(found)), DISKS)
    for cut in disks:
        with sweep.disk_of(cut.tree, memory) as path:
            complaints = [*_complaints(path / "db")]
        with sweep.disk_of(cut.tree, memory) as path:
            complaints += list(violations(path / "db", *run.around(cut.era)))[:1]
        tally.point(str(cut), complaints)
    print(f"{len(run.log)} calls, {distinct.possible} cuts, {distinct.distinct} different disks, {tally.n} judged")
    assert distinct.distinct >= 20, f"there are only {distinct.distinct} disks to judge"
    tally.close()
