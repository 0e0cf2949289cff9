"""Kill, EIO and ENOSPC at every system call that touches the database, in real processes: all of them with `bin/test --crash`.

A program that is struck leaves the database as if it had not run, or as if it had; it ends with the status of the fault and one
sentence; and what was acknowledged is there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.store.disk import names
from shepherd.store.state.database import Database
from tests.crash import cycle_steps, judge, strace
from tests.crash.bench import Bench
from tests.crash.judge import Facts
from tests.crash.judged import Judged, fingerprint
from tests.crash.strace import Call, Outcome
from tests.crash.tally import Tally
from tests.support import sampling

SAMPLE, SAMPLE_OF_ALL = 3, 8
PARTS = range(4 if sampling.IS_SWEEP else 1)  # of a full sweep, which takes many minutes
NOW = ("--now", str(cycle_steps.NOW))
# What it does not take to do the work: the line in a lock file that says who holds it, and logs.
NEEDLESS = (f"/{names.LOCK}", f"/{names.LOGS}", *(f"/{names.LOGS}/{log}.jsonl" for log in ("timings", "cleanups", "changes")))


@dataclass(frozen=True)
class Case:
    """A program, and the step of tests/crash/cycle_steps.py before which it is run."""

    before: str
    argv: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' '.join(word for word in self.argv if word not in NOW)} before {self.before or 'nothing'}"


BATCH = ("merge more", "equiv", "select", "record", "feedback", "plan", "cork", "cleanup")
PHASES = [Case(name, (f"shep-{name.split()[0]}", *NOW)) for name in BATCH]
STEPS = [Case(name, ("small", name)) for name in ("harvest", "harvest on", "lease", "prune")]
WRITERS = [*PHASES, *STEPS, Case("merge", ("shep", "insert", "http://inserted.example/"))]
READERS = [Case("cork", ("shep-check",)), Case("", ("shep", "list"))]


def chosen(points: list[tuple[Call, str]], everything: bool, part: int = 0) -> list[tuple[Call, str]]:
    assert len(points) > SAMPLE, "the trace shows no call on the database"
    return points[part :: len(PARTS)] if everything else sampling.sample(points, SAMPLE, f"strace {len(points)}", SAMPLE_OF_ALL)


def manners(point: Call, fault: str, outcome: Outcome) -> list[str]:
    """Complaints about how a struck program ended."""
    status, told = outcome.ended.status, outcome.ended.err
    if status == 0 and fault != "signal=KILL" and any(path.endswith(NEEDLESS) for path in point.paths):
        return []
    if fault == "error=EIO" and all(f"/{names.INBOX}/" in path for path in point.paths) and "it cannot be read" in told:
        return []  # an item of others that cannot be read is reported, and stays
    complaints = []
    if status != strace.FAULTS[fault]:
        complaints.append(f"status {status} instead of {strace.FAULTS[fault]}: {told}")
    elif fault != "signal=KILL" and (told.count("\n") != 1 or "Traceback" in told):
        complaints.append(f"not one sentence: {told!r}")
    if point.syscall == "fsync" and any(call.syscall == "fsync" and call.ordinal > point.ordinal for call in outcome.calls):
        complaints.append("it went on to sync after a sync had failed")
    return complaints


def sweep(bench: Bench, argv: tuple[str, ...], before: Facts, everything: bool, part: int, tally: Tally) -> None:
    bench.reset()
    points = strace.points(bench.trace(*argv), bench.db)
    cycle_steps.recovered(bench.db)
    after = judge.facts(bench.db)
    judged, is_phase = Judged(), argv[0].removeprefix("shep-") in cycle_steps.ALL
    for point, fault in chosen(points, everything, part):
        bench.reset()
        outcome = bench.strike(point, fault, *argv)
        how = cycle_steps.acknowledged(outcome.ended.out), outcome.ended.status == 0

        def ask(how: tuple[int, bool] = how) -> list[str]:
            found = judge.judge(bench.db, before, after, *how)
            return found or (again(bench, argv, after) if is_phase else [])

        complaints = manners(point, fault, outcome) + judged.complaints(bench.db, how, ask)
        tally.point(f"{fault} at {point}", complaints, vacuous=not outcome.met)
    print(f"{tally.n} points, {judged}")
    tally.close()


def again(bench: Bench, argv: tuple[str, ...], after: Facts) -> list[str]:
    """Complaints about a phase that is run again, after it was struck: it continues to the same bytes, or has nothing to do."""
    ended = bench.run(*argv)
    good = ended.status in (0, 4) and judge.facts(bench.db) == after
    return [] if good else [f"run again, it ends otherwise: {ended}"]


def test_call_on_a_file_without_a_name_is_recognised_in_another_run(tmp_path: Path) -> None:
    """A file that a phase puts something aside in has no name, and another number in each run."""
    for number in (20432126, 511):
        line = f'write(7</db/state/000002.tmp/#{number} (deleted)>, "x", 1) = 1\n'
        (tmp_path / str(number)).write_text(line)
    one, other = (strace.parse(tmp_path / str(number))[0] for number in (20432126, 511))
    assert one.paths == other.paths == ("/db/state/000002.tmp/#* (deleted)",)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("case", WRITERS, ids=str)
def test_program_struck_at_any_call_has_happened_or_not(
    bench: Bench, case: Case, part: int, crash_sweep: bool, tally: Tally
) -> None:
    bench.prepare(lambda db: cycle_steps.grow(db, case.before))
    bench.reset()
    sweep(bench, case.argv, judge.facts(bench.db), crash_sweep, part, tally)


def test_cleanup_stops_at_an_older_state_that_cannot_be_read(bench: Bench, tally: Tally) -> None:
    """It looks there for what leases pin: what it could not read must not count as nothing."""
    argv = ("shep-cleanup", *NOW)
    bench.prepare(lambda db: cycle_steps.grow(db, "cleanup"))
    bench.reset()
    older = f"{Database(bench.db).closed().path}/{names.CONTROL}"
    bench.reset()
    points = strace.points(bench.trace(*argv), bench.db)
    reads = [(point, fault) for point, fault in points if fault == "error=EIO" and older in point.paths]
    assert len(reads) > 4, "it is read at the beginning, and then again"
    for point, fault in reads:
        bench.reset()
        outcome = bench.strike(point, fault, *argv)
        tally.point(f"{fault} at {point}", manners(point, fault, outcome), vacuous=not outcome.met)
    tally.close()


@pytest.mark.parametrize("part", PARTS)
def test_recover_struck_at_any_call_can_be_run_again(bench: Bench, part: int, crash_sweep: bool, tally: Tally) -> None:
    bench.prepare(cycle_steps.break_down)
    bench.reset()
    assert len(cycle_steps.recovered(bench.db)) == 4
    sweep(bench, ("shep-recover",), judge.facts(bench.db), crash_sweep, part, tally)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("case", READERS, ids=str)
def test_reader_struck_at_any_call_says_so_and_harms_nothing(
    bench: Bench, case: Case, part: int, crash_sweep: bool, tally: Tally
) -> None:
    bench.prepare(lambda db: cycle_steps.grow(db, case.before))
    bench.reset()
    before, pristine = judge.facts(bench.db), fingerprint(bench.db)
    for point, fault in chosen(strace.points(bench.trace(*case.argv), bench.db), crash_sweep, part):
        bench.reset()
        outcome = bench.strike(point, fault, *case.argv)
        complaints = [] if reads_without_a_lease(point, fault, outcome) else manners(point, fault, outcome)
        if fingerprint(bench.db) != pristine and judge.facts(bench.db) != before:
            complaints.append("a reader has changed the database")
        tally.point(f"{fault} at {point}", complaints, vacuous=not outcome.met)
    tally.close()


def reads_without_a_lease(point: Call, fault: str, outcome: Outcome) -> bool:
    """A full disk keeps nobody from reading: the reader says that its state may go meanwhile."""
    leasing = all(f"/{names.LEASES}" in path for path in point.paths)
    return fault == "error=ENOSPC" and leasing and outcome.ended.status == 0 and "without a lease" in outcome.ended.err


@pytest.mark.parametrize("part", PARTS)
def test_init_struck_at_any_call_can_be_run_again(bench: Bench, part: int, crash_sweep: bool, tally: Tally) -> None:
    bench.prepare(cycle_steps.configure)
    points = strace.points(bench.trace("shep-init", *NOW), bench.db)
    judged = Judged()
    for point, fault in chosen(points, crash_sweep, part):
        shutil.rmtree(bench.db, ignore_errors=True)
        outcome = bench.strike(point, fault, "shep-init", *NOW)
        complaints = manners(point, fault, outcome)
        complaints += judged.complaints(bench.db, None, lambda: init_again(bench))
        tally.point(f"{fault} at {point}", complaints, vacuous=not outcome.met)
    print(f"{tally.n} points, {judged}")
    tally.close()


def init_again(bench: Bench) -> list[str]:
    made = (bench.db / names.STATES).exists()
    again = bench.run("shep-init", *NOW)
    good = again.status == (2 if made else 0)  # a database that is there is not made again
    return judge.untidy(bench.db) if good else [f"it cannot be run again: {again}"]
