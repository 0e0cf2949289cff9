"""kill -9 of the dispatcher in mid-reap: nothing checkpointed is lost, nobody is asked too early, nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shepherd import config
from shepherd.dispatch import reap
from shepherd.formats.tables import Kind, Records, Result, RowType
from shepherd.store.disk import names
from shepherd.store.state import harvest, lookup
from tests.crash import strace
from tests.crash.nursery import nursery
from tests.crash.strace import Call
from tests.crash.tally import Tally
from tests.support import sampling
from tests.support.toy_farm import ROOT, Farm, farm
from tests.support.waiting import PATIENCE_S, descendants, wait_until, wait_until_gone

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, gathered_farm: Path) -> Iterator[Farm]:
    """A database with a plan of some hundred pages."""
    with farm(tmp_path_factory.mktemp("farm"), gathered_farm / "planned") as one:
        yield one


def harvest_path(one: Farm) -> Path:
    return one.database.furthest().path / names.HARVESTS / "reap"


def checkpointed(one: Farm) -> Records:
    """What is in the journal up to the last checkpoint: rolling back is what every later program would do first."""
    path = harvest_path(one)
    found = harvest.inspect(path)
    assert not found.ended
    assert found.checkpoint.sequence > 0, "killed before the first checkpoint: nothing was tested"
    harvest.rollback(path)
    return harvest.read_journal(path)


def stored_pages(records: Records) -> Records:
    stored: Records = records[(records["result"] == Result.STORED) & (records["kind"] == Kind.PAGE)]
    return stored


def assert_all_there(one: Farm, records: Records) -> None:
    """Every page that was stored before the kill is gathered, and its bucket is the one that was stored."""
    state = one.database.closed()
    stored = stored_pages(records)
    assert len(stored), "no page was checkpointed: nothing was tested"
    for record in stored:
        rows = lookup.rows_of(state, int(record["norm"]), int(record["path"]))
        there = [row for row in rows if state.index["digest"].value(row) == int(record["digest"])]
        assert there
        assert state.index["type"].value(there[0]) == RowType.GATHERED
        assert state.objects.get(state.index["oid"].value(there[0])).header.path == int(record["path"])


@pytest.mark.parametrize("point", ["sync:reap/journal", "write:reap/checkpoints", "sync:reap/checkpoints"])
def test_dispatcher_killed_at_a_checkpoint_loses_nothing_before_it(planned: Farm, point: str, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    for number in (4, 8, 16, 32):  # checkpoints come by the clock: on a busy machine the first ones may have no page
        one.killed("shep-reap", f"{point}:{number}=kill")
        records = checkpointed(one)
        if len(stored_pages(records)):
            break
    one.cycle()
    assert_all_there(one, records)
    one.must("shep-check")
    assert one.violations() == []


def test_killed_dispatcher_leaves_nothing_in_the_temporary_directory(
    planned: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose path may also be longer than the name of a socket."""
    temporary = tmp_path / ("x" * 200)
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    one = planned.copy(tmp_path / "db")
    one.killed("shep-reap", "sync:reap/checkpoints:2=kill")
    assert list(temporary.iterdir()) == []
    one.must("shep-reap")
    assert list(temporary.iterdir()) == []


def test_dispatcher_struck_at_a_system_call_loses_nothing_before_it(planned: Farm, tmp_path: Path, tally: Tally) -> None:
    """No two reaps make the same calls, so a point is the n-th sync or write, whichever file of the harvest it meets."""
    strace.need()
    points = [(name, n, fault) for name in ("fsync", "pwrite64") for n in range(16, 32) for fault in strace.FAULTS]
    with nursery(tmp_path) as children:
        for syscall, ordinal, fault in sampling.sample(points, 2, "calls of a reap"):
            one = planned.copy(tmp_path / f"{syscall}-{ordinal}-{fault}")
            environment = {"SHEPHERD_DB": str(one.db), "SHEPHERD_CF": str(one.home / "cf")}
            child = children.start("shep-reap", "--quiet", **environment)  # it comes to the call, however slow the machine
            outcome = strace.inject(child, tmp_path / "log", Call(syscall, ordinal, (), "", ""), fault)
            [struck] = [call for call in outcome.calls if (call.syscall, call.ordinal) == (syscall, ordinal)]
            records = checkpointed(one)
            for program in (("shep-recover",), ("shep-reap", "--seconds", "0.5"), ("shep-cork",), ("shep-check",)):
                one.must(*program)
            assert_all_there(one, records)
            good = outcome.ended.status == strace.FAULTS[fault]
            tally.point(f"{fault} at {struck}", [] if good else [f"{outcome.ended}"], vacuous=not struck.of(one.db))
    assert planned.violations() == []
    tally.close()


def test_dispatcher_killed_at_any_time_leaves_no_process_and_can_be_resumed(planned: Farm, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    process = start_reap(one)
    wait_for_checkpoints(one, process, 2)
    children = descendants(process.pid)
    assert len(children) >= 2  # reapd and a worker
    process.kill()
    process.wait()
    wait_until_gone(children)
    records = checkpointed(one)
    assert one.run("shep-cork").returncode == 10  # the reap has not ended
    one.must("shepherd", "cycle", "--quiet")
    assert_all_there(one, records)
    one.must("shep-check")
    assert one.violations() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_dispatcher_asked_to_stop_ends_its_harvest_in_good_order(planned: Farm, number: int, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    process = start_reap(one)
    wait_for_checkpoints(one, process, 1)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0
    assert harvest.inspect(harvest_path(one)).ended
    one.must("shep-cork")
    one.must("shep-check")


def test_reap_ends_in_good_order_when_its_watch_fails(planned: Farm, tmp_path: Path) -> None:
    """Whoever shows the figures may fail; the disk would then fill up unseen. The harvest ends in good order all the same."""
    one = planned.copy(tmp_path / "db")
    path = harvest_path(one)
    path.parent.mkdir(exist_ok=True)

    class Watch:
        def resumed(self, settled: int) -> None: ...

        def settled(self, more: int) -> None: ...

        def show(self, figures: object) -> None:
            raise OSError(5, "the terminal is gone")

    settings = config.load(one.home / "cf")
    patient = replace(settings, politeness=replace(settings.politeness, delay_s=1.0))  # it would take longer than a second
    with pytest.raises(OSError, match="the terminal is gone"):
        reap.reap(one.database.furthest(), path, patient, 30, Watch())
    assert harvest.inspect(path).ended


def test_killed_worker_costs_only_a_retry(planned: Farm, tmp_path: Path) -> None:
    one = planned.copy(tmp_path / "db")
    (one.home / "cf" / "short").mkdir(exist_ok=True)
    text = (one.home / "cf" / "shepherd.toml").read_text().replace("../web", "../../web")
    text = text.replace("[fetch]\n", "[fetch]\ntimeout_s = 2\n")
    (one.home / "cf" / "short" / "shepherd.toml").write_text(text)
    (one.home / "cf" / "short" / "filter").write_text((one.home / "cf" / "filter").read_text())
    process = start_reap(one, "--cf", str(one.home / "cf" / "short"))
    wait_for_checkpoints(one, process, 1)
    reapd, worker = descendants(process.pid)[:2]
    assert reapd != worker
    os.kill(worker, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 0
    one.cycle()
    one.must("shep-check")
    assert one.violations() == []


def start_reap(one: Farm, *args: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SHEPHERD_DB": str(one.db), "SHEPHERD_CF": str(one.home / "cf")}
    command = [sys.executable, "-m", "shepherd.cli", "shep-reap", "--quiet", *args]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def wait_for_checkpoints(one: Farm, process: subprocess.Popen[bytes], count: int) -> None:
    path = harvest_path(one)

    def has_come() -> bool:
        assert process.poll() is None, "the reap ended before it could be disturbed"
        return harvest.inspect(path).checkpoint.sequence >= count

    wait_until(has_come, "no checkpoint came")
