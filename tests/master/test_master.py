"""What the master sees in a database, and the master itself with programs that are really run, stopped and killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shepherd import family
from shepherd.config import Config
from shepherd.console import phase as programs
from shepherd.errors import Locked
from shepherd.filters import load_filter
from shepherd.master import cycle_table as cycle
from shepherd.master.children import STOPS, Signals
from shepherd.master.cycle_run import CycleOptions, CycleRun
from shepherd.master.cycle_table import CORK, MERGE, PLAN, RECORD, SELECT, CyclePosition
from shepherd.report import logbook
from shepherd.store.disk import fsio, locks, names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from tests.support import harvests
from tests.support.harvests import Page
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S, wait_until_heeded
from tests.worlds import write_open_filter

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_790_000_000


def shepherd(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A program run for real."""
    return call(*arguments)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """An empty database with a configuration of its own, which programs take."""
    own_cf = tmp_path / "db" / "cf"
    own_cf.mkdir(parents=True)
    write_open_filter(own_cf)
    database.create(tmp_path / "db", bytes(16), NOW, load_filter(own_cf / "filter").version)
    return tmp_path / "db"


def build(db: Path, phase: str) -> None:
    """The next directory, made of the newest closed state as it is."""
    with Database(db).writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, StateName(parent.number + 1, phase), NOW)
        for table in ("index", "sites", "servers"):
            builder.keep_table(table)
        if phase == "reap":
            builder.write(names.PLAN, b"")
        writer.publish(builder, {"phase": phase})


# --- what stands there ------------------------------------------------------------------------------------------


def look(db: Path) -> CyclePosition:
    return cycle.look(Database(db), Config(directory=db / "cf"))


def test_changed_filter_is_seen(db: Path, tmp_path: Path) -> None:
    (tmp_path / "filter").write_text("reject ext zip\n")
    assert cycle.look(Database(db), Config(directory=tmp_path)).waiting


def test_changed_equivalences_are_seen(db: Path, tmp_path: Path) -> None:
    shutil.copy(db / "cf" / "filter", tmp_path / "filter")
    assert not cycle.look(Database(db), Config(directory=tmp_path)).waiting
    (tmp_path / "url-equiv").write_text("a.example b.example\n")
    found = cycle.look(Database(db), Config(directory=tmp_path))
    assert found.waiting
    assert found.unequal


def test_request_in_the_inbox_is_seen(db: Path) -> None:
    assert look(db) == CyclePosition("000001", "closed")
    Database(db).inbox.drop("1790000000000-host-1-1", [{"op": "insert", "url": "http://a.example/"}])
    assert look(db) == CyclePosition("000001", "closed", waiting=True, has_requests=True)


def test_harvest_without_its_end_is_not_done(db: Path) -> None:
    build(db, "reap")
    assert not look(db).harvested
    directory = db / names.STATES / "000002.reap" / names.HARVESTS
    fsio.make_directory(directory)
    harvest = Harvest(directory / "reap", 1 << 20)
    harvest.checkpoint(NOW * 1000)
    assert not look(db).harvested
    harvest.end(NOW * 1000)
    assert look(db) == CyclePosition("000002.reap", "reap", harvested=True)


# --- the master -------------------------------------------------------------------------------------------------


def leave_harvest(db: Path, name: str, key: bytes = bytes(16)) -> None:
    """A harvest of one unknown page, and of a link on it."""
    source = harvests.harvest(db.parent / name, [Page("http://a.example/x", "a body")], {"http://b.example/": 9}, key=key)
    Database(db).inbox.drop_harvest(name, source)


def test_cycle_corks_a_harvest_of_the_inbox_when_nothing_is_due(db: Path) -> None:
    leave_harvest(db, "1790000000000-host-1-1")
    assert look(db) == CyclePosition("000001", "closed", harvests=True)
    done = shepherd("shepherd", "cycle", "--db", str(db))
    assert done.returncode == 0, done.stderr
    steps = json.loads((db / names.LOGS / logbook.CYCLES).read_text())["steps"]
    assert [step["step"] for step in steps] == [PLAN, CORK, MERGE, SELECT, RECORD]
    assert Database(db).inbox.all_items() == []
    assert Database(db).closed().sites.rows == 1


def test_harvest_that_is_refused_is_reported_and_does_not_fail_the_cycle(db: Path) -> None:
    leave_harvest(db, "1790000000000-host-1-1", key=bytes(range(16)))
    done = shepherd("shepherd", "cycle", "--quiet", "--db", str(db))
    assert done.returncode == 4
    assert "1790000000000-host-1-1.harvest: it was made for another database" in done.stderr
    leave_harvest(db, "1790000000000-host-1-2")
    done = shepherd("shepherd", "cycle", "--quiet", "--db", str(db))
    assert done.returncode == 0
    assert "1 harvest refused, the first: 1790000000000-host-1-1.harvest: it was made for another database" in done.stderr


def test_torn_line_of_the_log_stays_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "cycles.jsonl"
    programs.append_line(path, {"n": 1})
    with path.open("a") as file:
        file.write('{"n": 2, "ste')
    programs.append_line(path, {"n": 3})
    lines = path.read_text().splitlines()
    assert [json.loads(lines[0]), json.loads(lines[2])] == [{"n": 1}, {"n": 3}]


def test_second_master_is_locked_out(db: Path) -> None:
    held = locks.lock(db / names.LOCK, "another master")
    done = shepherd("shepherd", "cycle", "--db", str(db))
    held.release()
    assert done.returncode == 3
    assert "another master" in done.stderr


HOLDER = """
import subprocess, sys
from pathlib import Path
from shepherd.store.disk import locks
lock = locks.lock(Path(sys.argv[1]), "a master")
child = subprocess.Popen(["sleep", "60"], pass_fds=(lock.fd,), stdout=subprocess.DEVNULL)
print(child.pid)
"""


def test_lock_that_outlives_its_taker_names_no_process_that_has_ended(db: Path) -> None:
    path = db / names.LOCK
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", HOLDER, str(path)], env=env, stdout=subprocess.PIPE, check=True)
    try:
        with pytest.raises(
            Locked, match=r"held by a program that a master, pid \d+ on .+ has started \(that process itself has ended\)"
        ):
            locks.lock(path, "test")
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


def test_refused_requests_are_reported_although_the_merge_is_quiet(db: Path) -> None:
    Database(db).inbox.drop("1790000000000-host-1-1", [{"op": "insert", "url": "http://x y/"}, {"op": "fly"}])
    done = shepherd("shepherd", "cycle", "--quiet", "--db", str(db))
    assert done.returncode == 0
    assert done.stderr.startswith("2 requests refused, the first: 1790000000000-host-1-1.req line 1: control character or blank")


def test_empty_database_is_nothing_to_do(db: Path) -> None:
    done = shepherd("shepherd", "cycle", "--db", str(db))
    assert (done.returncode, done.stdout) == (4, "")
    assert not (db / names.LOGS / logbook.CYCLES).exists()


def test_failed_program_stops_the_cycle_with_its_status(db: Path) -> None:
    """shep-select finds a merged directory whose index is gone."""
    build(db, "merged")
    column = db / names.STATES / "000002.merged" / "index" / "norm"
    fsio.unlink(column)
    done = shepherd("shepherd", "cycle", "--db", str(db))
    assert done.returncode in (10, 11)
    assert "shep-select ended with exit status" in done.stderr
    assert "continues from 000002.merged" in done.stderr
    line = json.loads((db / names.LOGS / logbook.CYCLES).read_text())
    assert (line["status"], line["state"], line["steps"][-1]["step"]) == (done.returncode, "000002.merged", SELECT)


def test_merge_that_is_killed_for_memory_says_what_to_set(db: Path) -> None:
    """Whoever is killed cannot say why: its parent does."""
    Database(db).inbox.drop("1790000000000-host-1-1", [{"op": "insert", "url": "http://a.example/"}])
    done = call("shepherd", "cycle", "--db", str(db), SHEPHERD_FAIL="create:000002.tmp/control:1=kill")
    assert done.returncode == 137
    assert "shep-merge was killed (exit status 137), most likely because memory ran short" in done.stderr
    assert "lower store.partition_rows" in done.stderr and "continues from 000001" in done.stderr


def test_program_that_changes_nothing_stops_the_cycle(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`true` says that it was done."""
    build(db, "merged")
    monkeypatch.setattr(family, "command", lambda *_words: ["true"])
    config = Config(directory=db / "cf")
    with Database(db).writing("a test") as writer:
        held = os.open(db / names.LOCK, os.O_RDWR)
        cycle = CycleRun(writer, CycleOptions(config, Unsignalled(), held, lambda: None))
        assert cycle.run() == 1
        os.close(held)
    assert "shep-select said that it was done, but nothing has changed: this is a bug" in cycle.message
    assert cycle.failed == SELECT


class Unsignalled(Signals):
    """The signals of the process that runs the tests stay what they are."""

    def __init__(self) -> None:
        before = {number: signal.getsignal(number) for number in STOPS}
        super().__init__()
        for number, handler in before.items():
            signal.signal(number, handler)


PARENT = """
import signal, sys
from shepherd.master.children import Signals
signals = Signals()
print("ready", flush=True)
status = signals.run("shep-toyweb", ["--dir", sys.argv[1], "--sites", "50", "--base", sys.argv[2]], {0})
print(status, signals.stopping(), signals.killing(), flush=True)
"""


def start(tmp_path: Path, base: str, how: str) -> subprocess.Popen[str]:
    """A parent with a long-running program of ours as its child, when the child is up."""
    command = [sys.executable, "-c", PARENT.replace("{0}", how), str(tmp_path), base]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    assert "start at" in parent.stdout.readline()
    return parent


def test_interrupted_group_does_not_kill_the_child_before_its_parent_decides(tmp_path: Path) -> None:
    parent = start(tmp_path, "127.77.1.0", "on_soft=None")
    os.killpg(parent.pid, signal.SIGINT)
    time.sleep(0.3)
    wait_until_heeded(parent.pid)
    assert parent.poll() is None
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.communicate(timeout=PATIENCE_S)[0] == "137 True True\n"


def test_first_signal_ends_a_child_that_can_be_cut_short(tmp_path: Path) -> None:
    parent = start(tmp_path, "127.77.2.0", "on_soft=signal.SIGTERM")
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.communicate(timeout=PATIENCE_S)[0] == "0 True False\n"


def test_killed_parent_does_not_leave_its_child_for_ever(tmp_path: Path) -> None:
    parent = start(tmp_path, "127.77.3.0", "dies_with_us=True")
    parent.kill()
    # The child holds the other end of stdout: reading ends when it, too, is gone.
    assert parent.communicate(timeout=PATIENCE_S)[0] == ""


def test_deleted_log_does_not_stop_the_cycle(db: Path) -> None:
    """db/README.md says that log/ may be deleted."""
    shutil.rmtree(db / names.LOGS)
    Database(db).inbox.drop("1790000000000-host-1-1", [{"op": "fly"}])
    done = shepherd("shepherd", "cycle", "--db", str(db))
    assert done.returncode == 0, done.stderr
    assert (db / names.LOGS / logbook.CYCLES).exists()
