"""kill -9 of `shepherd run`, and of the programs it runs, at any moment: the next start continues by itself, nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.report import logbook
from shepherd.store.disk import locks, names
from tests.crash.tally import Tally
from tests.support.daemons import Daemon, running, settings
from tests.support.toy_farm import Farm, farm
from tests.support.waiting import PATIENCE_S, children, wait_until

pytestmark = pytest.mark.waits

STEPS = ("shep-merge", "shep-select", "shep-record", "shep-plan", "shep-reap", "shep-cork")
LATER_S = (0.0, 0.1, 0.3, 0.6)  # after a program was started: in its start, in its work, behind its end

# By default: in the first step, in the only one that is no batch, and in the last.
FEW = [("shep-merge", 0.1, "program"), ("shep-reap", 0.3, "master"), ("shep-cork", 0.0, "program")]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory, gathered_farm: Path) -> Iterator[Farm]:
    """A database that has pages to gather."""
    with farm(tmp_path_factory.mktemp("farm"), gathered_farm / "gathered") as one:
        yield one


def points(everything: bool) -> list[tuple[str, float, str]]:
    found = [(step, later_s, victim) for step in STEPS for later_s in LATER_S for victim in ("master", "program")]
    return found if everything else FEW


def test_next_start_continues_after_a_killed_master_or_program(
    grown: Farm, tmp_path: Path, crash_sweep: bool, tally: Tally
) -> None:
    for number, (step, later_s, victim) in enumerate(points(crash_sweep)):
        one = grown.copy(tmp_path / f"db{number}")
        cf = settings(one, tmp_path / f"cf{number}", "retries = 0\n", reap_s=2)
        one.must("shep", "insert", f"http://127.0.0.1:9/{number}")  # so that a merge comes first
        with running(one, cf) as daemon:
            seen = daemon.wait_for("begin", step=step)
            time.sleep(later_s)
            hit = kill(daemon, victim)
            daemon.process.wait(PATIENCE_S)
        assert daemon.process.returncode in ((-signal.SIGKILL,) if victim == "master" else (0, 137)) or not hit
        before = one.database.closed().index.rows
        wrong = continued(one, cf, number)
        rows = one.database.closed().index.rows
        wrong += [f"{rows} rows, but there were {before}"] * (rows < before)
        tally.point(f"{victim} killed {later_s} s after {step} began", wrong, vacuous=not hit or seen == 0)
    assert grown.violations() == []
    tally.close()


def kill(daemon: Daemon, victim: str) -> bool:
    """kill -9 of the master or of the program that it runs, or runs next; whether there was one."""
    pid = daemon.process.pid
    found = [pid] if victim == "master" else children(pid)
    os.kill(found[0] if found else pid, signal.SIGKILL)
    return bool(found)


def continued(one: Farm, cf: Path, number: int) -> list[str]:
    """What is wrong after the next start, which may have to wait for a program that the killed master had started."""
    log = one.db.parent / f"{one.db.name}.log"
    old = len(log.read_text().splitlines())
    with running(one, cf) as daemon:
        seen = daemon.wait_for("start", old)
        seen = daemon.wait_for("cycle", seen, status=0)
        status = daemon.end()
    wrong = [f"exit status {status}"] * (status != 0)
    checked = one.run("shep-check")
    wrong += [checked.stdout] * (checked.returncode != 0)
    listed = one.must("shep", "list", "--site", "127.0.0.1:9").count(f"http://127.0.0.1:9/{number}\n")
    wrong += [f"what was inserted is there {listed} times"] * (listed != 1)
    wrong += ["now.json is left"] * bool(logbook.now(one.db / "log"))
    torn = [line for line in (one.db / "log" / logbook.CYCLES).read_text().splitlines() if not json.loads(line)["steps"]]
    return wrong + torn


def child_of(daemon: Daemon, program: str) -> int:
    """The pid of this program, as soon as the master runs it: its event in the log may be read too late."""
    found: list[int] = []

    def is_found() -> bool:
        with contextlib.suppress(OSError):  # it has just ended
            every = children(daemon.process.pid)
            found[:] = [pid for pid in every if program.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return bool(found)

    wait_until(is_found)
    return found[0]


def test_next_master_waits_for_the_orphan_of_a_killed_one(grown: Farm, tmp_path: Path) -> None:
    """A batch program continues without its master: the next one waits for it, and status shows it."""
    one = grown.copy(tmp_path / "db")
    cf = settings(one, tmp_path / "cf")
    with running(one, cf) as daemon:
        child = child_of(daemon, "shep-plan")
        os.kill(child, signal.SIGSTOP)
        daemon.process.kill()
        daemon.process.wait()
    try:
        assert locks.is_held(one.db / names.LOCK)
        assert "(that process itself has ended)" in one.must("shepherd", "status").splitlines()[0]
        assert one.run("shepherd", "cycle").returncode == 3
        with running(one, cf) as daemon:
            daemon.wait_for("wait")
            os.kill(child, signal.SIGCONT)
            seen = daemon.wait_for("start", len(daemon.events()) - 1)
            daemon.wait_for("begin", seen, step="shep-reap")  # the orphan has made the plan
            assert daemon.end() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGCONT)
    one.must("shep-check")
