"""A kill, and then a power cut: what the next program makes of the kill must hold, and recover itself may be cut short.

After a kill the cache is still there, so what was never synced looks like all else; only a later power cut tells.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import pytest

from shepherd.store.disk import names
from tests.crash import sweep
from tests.crash.model import digest, read_tree
from tests.crash.oracle import Facts, observe, recover_once
from tests.crash.record import Recorder, recording
from tests.crash.replay import Cut, Distinct, Run, Stage, cuts, cuts_after_kill, out_of_sight
from tests.crash.sweep import disk_of
from tests.crash.tally import Tally
from tests.crash.workloads import WORKLOADS, carry_on
from tests.support import sampling

MOST_DISKS = 2  # by default, after one kill, the last one among them
RESTARTS = 4  # by default, of one workload: the first and the last kill among them, with and without recover
ALIKE = 10  # kills, in a full sweep, that differ only in what is out of sight
KILLS = 3  # by default, evenly spread; beside these, every place at which a name or a length has changed and is not synced yet
CUT_SHORT_STEP = {"publish": 6, "harvest": 30, "prune": 6, "inbox": 9, "recover": 7, "recover from damage": 3}
REPEATABLE = [name for name, workload in WORKLOADS.items() if workload.repeatable]


def kills(run: Run, every: bool) -> list[int]:
    changes, step = ("rename", "mkdir", "unlink", "truncate"), 1 if every else len(run.log) // KILLS
    before_sync = [place for place in run.syncs() if place and run.log[place - 1].op in changes]
    found = sorted({*range(step, len(run.log), step), *before_sync})
    return unlike(run, found) if every else found


def unlike(run: Run, places: list[int]) -> list[int]:
    """Of kills that differ only out of sight, some, evenly spread: whatever is there, the next program removes it as a whole."""
    groups: dict[tuple[int, bytes, bytes], list[int]] = defaultdict(list)
    for position, disk in run.disks():
        if position in places:
            kept, lost = (digest(disk.tree(everything_kept), out_of_sight) for everything_kept in (True, False))
            groups[run.era(position), kept, lost].append(position)
    return sorted(place for group in groups.values() for place in group[:: -(-len(group) // ALIKE)])


def around_the_end(run: Run) -> list[int]:
    """Where the harvest ends: it may look as if it had, to the cork that follows, and the disk know nothing of it."""
    last = max(place for place in run.syncs() if run.log[place].path.endswith(names.CHECKPOINTS))
    return [last, last + 1]


@pytest.mark.parametrize("name", sampling.of_the_day(WORKLOADS, 7, "power cut after a kill"))
def test_power_cut_after_a_kill_keeps_what_the_restarted_program_acknowledged(
    name: str, memory: Path, tally: Tally, crash_sweep: bool
) -> None:
    workload = WORKLOADS[name]
    run = sweep.record(workload, memory)
    places = kills(run, crash_sweep) if name != "harvest and cork" or crash_sweep else around_the_end(run)
    distinct = Distinct(alike=1)
    restarts = list(itertools.product(places, (True, False)))
    if not crash_sweep:
        kept = sweep.spread(places, RESTARTS)
        restarts = [(place, number % 2 == 0) for number, place in enumerate(kept)]
    for place, with_recover in restarts:
        both, end = sweep.restart(workload, run, place, memory, with_recover)
        if workload.repeatable:
            assert end.states == run.settled[-1][1].states, f"killed before {run.log[place]}, it ended otherwise"
        found = (cut for cut in cuts_after_kill(both, place) if workload.sound or cut.era)
        disks = list(distinct(found))
        step = 1 if crash_sweep else max(1, len(disks) // MOST_DISKS)
        sweep.judge_all(both, disks[::-step], memory, tally, f"killed before {run.log[place]}, then ")
    print(f"{len(places)} kills, {distinct.possible} cuts, {distinct.distinct} different disks, {tally.n} judged")
    tally.close()


@pytest.mark.parametrize("name", sampling.of_the_day(REPEATABLE, 5, "run again"))
def test_operation_cut_short_by_a_power_cut_and_run_again_makes_the_same_states(
    name: str, memory: Path, tally: Tally, crash_sweep: bool
) -> None:
    run = sweep.record(WORKLOADS[name], memory)
    found = list(Distinct(alike=1)(cuts(run, step=1 if crash_sweep else 9)))
    for cut in found[:: 1 if crash_sweep else max(1, len(found) // 3)]:
        with disk_of(cut.tree, memory) as path:
            Stage(path).play(carry_on(WORKLOADS[name], with_recover=True))
            same = observe(path / "db").states == run.settled[-1][1].states
        tally.point(cut, [] if same else ["it made other bytes"])
    tally.close()


@pytest.mark.parametrize("name", sampling.of_the_day(CUT_SHORT_STEP, 3, "recover cut short"))
def test_recover_cut_short_and_run_again_is_recover_run_once(name: str, memory: Path, tally: Tally, crash_sweep: bool) -> None:
    """I8, by kill and by power cut, on a sample of what a power cut during the workload leaves."""
    run = sweep.record(WORKLOADS[name], memory)
    found = list(Distinct(alike=1)(cuts(run, step=1 if crash_sweep else 5)))
    for cut in found[:: max(1, CUT_SHORT_STEP[name] // (3 if crash_sweep else 1))]:
        log, once = recorded_recover(cut, memory)
        if all(call.op == "sync" for call in log.log):
            continue
        for again in Distinct(alike=1)(cuts(log, step=1 if crash_sweep else 7)):
            with disk_of(again.tree, memory) as path:
                recover_once(path / "db")
                same = digest(read_tree(path)) == once
            tally.point(f"{cut}, then in recover {again}", [] if same else ["it is not as after one recover"])
    tally.close()


def recorded_recover(cut: Cut, memory: Path) -> tuple[Run, bytes]:
    """What recover does with a disk, and what is there afterwards."""
    with disk_of(cut.tree, memory) as path:
        base = read_tree(path)
        with recording(Recorder(path)) as recorder:
            recover_once(path / "db")
        return Run(base, tuple(recorder.log), ((0, Facts()),)), digest(read_tree(path))
