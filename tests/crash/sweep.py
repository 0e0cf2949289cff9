"""Runs a workload, cuts the power everywhere, and asks the oracle: the part that all tests of the replay share."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.crash.model import Tree, write_tree
from tests.crash.oracle import Facts, observe, violations
from tests.crash.replay import Cut, Run, Stage
from tests.crash.tally import Tally
from tests.crash.workloads import Workload, carry_on

T = TypeVar("T")


@contextmanager
def disk_of(tree: Tree, memory: Path) -> Iterator[Path]:
    """The directory that a tree describes, for as long as the block runs."""
    path = memory / "disk"
    write_tree(tree, path)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def record(workload: Workload, memory: Path) -> Run:
    """The workload's run, undisturbed."""
    path = memory / "stage"
    path.mkdir()
    try:
        workload.prepare(path)
        return Stage(path).play(workload.play)
    finally:
        shutil.rmtree(path)


def restart(workload: Workload, run: Run, kill: int, memory: Path, with_recover: bool) -> tuple[Run, Facts]:
    """The run killed at a place in its log and what the next program did about it; and what was there in the end."""
    with disk_of(run.killed_at(kill), memory) as path:
        known, *_after = run.around(run.era(kill))
        both = run.then(kill, Stage(path, known).play(carry_on(workload, with_recover)))
        return both, observe(path / "db")


def first_violation(run: Run, cut: Cut, memory: Path) -> str | None:
    with disk_of(cut.tree, memory) as path:
        return next(violations(path / "db", *run.around(cut.era)), None)


def spread(points: Sequence[T], most: int) -> list[T]:
    """At most so many of them, evenly from the first to the last."""
    if len(points) <= most:
        return list(points)
    return [points[n * (len(points) - 1) // (most - 1)] for n in range(most)]


def judge_all(run: Run, found: Iterable[Cut], memory: Path, tally: Tally, note: str = "") -> None:
    for cut in found:
        complaint = first_violation(run, cut, memory)
        at = f" ({run.log[cut.position - 1]})" if cut.position else ""
        tally.point(f"{note}{cut}{at}", [complaint] if complaint else [])
