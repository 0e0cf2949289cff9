"""A disk that says it has written what it has not: the program finds out, or shep-check does, and nobody uses what is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from shepherd.errors import Corruption, IoFailed
from shepherd.store.check import check
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash import cycle_steps, judge, strace
from tests.crash.bench import Bench
from tests.crash.nursery import ROOT
from tests.crash.tally import Tally
from tests.support import sampling

SAMPLE = 6
NOTICED = (Corruption.exit_status, IoFailed.exit_status)  # in a file of the database, in one that is only put aside
NOW = ("--now", str(cycle_steps.NOW))
LIARS = [
    ("merge", ("shep-merge", *NOW)),
    ("record", ("shep-record", *NOW)),
    ("cork", ("shep-cork", *NOW)),
    ("harvest", ("small", "harvest")),
]


@pytest.mark.parametrize(("before", "argv"), LIARS, ids=[before for before, _argv in LIARS])
def test_write_that_never_reached_the_disk_is_noticed(bench: Bench, before: str, argv: tuple[str, ...], tally: Tally) -> None:
    bench.prepare(lambda db: cycle_steps.grow(db, before))
    bench.reset()
    writes = [call for call in bench.trace(*argv) if call.syscall == "pwrite64" and call.of(bench.db)]
    writes = [call for call in writes if not call.paths[0].endswith(f"/{names.LOCK}")]  # its text only informs
    for point in sampling.sample(writes, SAMPLE, before):
        bench.reset()
        outcome = bench.strike(point, f"retval={point.length}", *argv)
        noticed = outcome.ended.status in NOTICED or any(not fault.note for fault in check.walk(Database(bench.db)))
        tally.point(point, [] if noticed else [f"nobody noticed: {outcome.ended}"], vacuous=not outcome.met)
    tally.close()


def test_program_that_was_started_the_usual_way_is_killed_before_its_commit(bench: Bench) -> None:
    """The other tests fork their programs from one that has all imports; this one is what a user has."""
    bench.prepare(lambda db: cycle_steps.grow(db, "merge"))
    bench.reset()
    command = [sys.executable, "-B", "-m", "shepherd.cli", "shep-merge", *NOW]  # -B: or the compiler renames files, too
    tracer = ["strace", "-y", "-o", str(bench.home / "log"), "--inject=rename:signal=KILL:when=1"]
    done = subprocess.run(
        [*tracer, *command], cwd=ROOT, env={**os.environ, **bench.environment}, capture_output=True, check=False
    )
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    [killed] = [call for call in strace.parse(bench.home / "log") if call.syscall == "rename"]
    assert killed.paths == (str(bench.db / "state/000002.tmp"), str(bench.db / "state/000002.merged"))
    assert killed.result == "?"
    assert sorted(path.name for path in (bench.db / "state").iterdir()) == ["000001", "000002.tmp"]
    assert bench.run("shep-merge", *NOW).status == 0
    assert judge.untidy(bench.db) == []
