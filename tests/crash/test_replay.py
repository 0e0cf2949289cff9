"""The power is cut at every call of every operation of the store, and the disk forgets what it may: nothing acknowledged is lost.

By default a part of the disks that replay.py finds possible, from the first to the last; all of them with `bin/test --crash`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.crash import sweep
from tests.crash.replay import Distinct, cuts
from tests.crash.tally import Tally
from tests.crash.workloads import PHASES, WORKLOADS, Workload
from tests.support import sampling

Cutter: TypeAlias = Callable[[Workload, int, int], None]
DISKS = 9  # by default, of one workload; or a quarter of them, if that is more


@pytest.fixture
def cut_everywhere(memory: Path, tally: Tally, crash_sweep: bool) -> Cutter:
    """A function of a workload: by default some disks, taken from those with every step-th of the partial losses, of which there
    must be `least`."""

    def play_and_cut(workload: Workload, step: int, least: int) -> None:
        run = sweep.record(workload, memory)
        start = 0 if workload.sound else run.settled[1][0]
        distinct = Distinct(alike=25 if crash_sweep else 1)
        found = cuts(run, start, 1, hidden_every=41) if crash_sweep else cuts(run, start, step)
        if crash_sweep:  # so many that they are not kept
            sweep.judge_all(run, distinct(found), memory, tally)
        else:
            disks = list(distinct(found))
            sweep.judge_all(run, sweep.spread(disks, max(DISKS, len(disks) // 4)), memory, tally)
        print(f"{len(run.log)} calls, {distinct.possible} cuts, {distinct.distinct} different disks, {tally.n} judged")
        assert distinct.distinct >= least, f"there are only {distinct.distinct} disks to judge"
        tally.close()

    return play_and_cut


def test_power_cut_during_init_leaves_a_whole_database_or_none(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["init"], 5, 8)


def test_power_cut_during_publish_leaves_the_old_state_or_the_new_one(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["publish"], 5, 8)


@pytest.mark.parametrize("phase", sampling.of_the_day(PHASES, 5, "power cut during a phase"))
def test_power_cut_during_a_phase_leaves_what_was_before_it_or_what_it_makes(phase: str, cut_everywhere: Cutter) -> None:
    cut_everywhere(PHASES[phase], 9, 3)


def test_power_cut_during_a_harvest_costs_nothing_that_a_checkpoint_acknowledged(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["harvest"], 40, 50)


def test_power_cut_during_cork_leaves_the_harvest_or_the_state_made_from_it(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["cork"], 5, 8)


def test_power_cut_after_a_killed_reap_was_resumed_does_not_bring_its_tail_back(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["resume"], 3, 10)


def test_power_cut_during_recover_leaves_what_recover_mends(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["recover"], 3, 8)


def test_power_cut_after_recover_does_not_bring_the_damage_back(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["recover from damage"], 1, 1)


def test_power_cut_while_states_are_pruned_leaves_each_whole_or_gone(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["prune"], 5, 8)


def test_power_cut_costs_no_lease_and_no_state_that_is_leased(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["lease"], 5, 8)


def test_power_cut_neither_loses_a_request_nor_applies_it_twice(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["inbox"], 5, 8)


def test_power_cut_leaves_a_mirror_with_the_state_it_had_or_the_one_it_received(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["mirror"], 15, 8)


def test_power_cut_neither_loses_a_dropped_harvest_nor_applies_it_twice(cut_everywhere: Cutter) -> None:
    cut_everywhere(WORKLOADS["inbox harvest"], 15, 8)
