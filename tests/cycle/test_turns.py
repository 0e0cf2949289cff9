"""The programs of the cycle as an operator meets them: out of turn, with bad input, and interrupted."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.config import Config
from shepherd.console import phase
from shepherd.cycle.plan import drive as plan
from shepherd.store.disk import names
from shepherd.store.state.database import Database
from shepherd.store.state.harvest import Harvest
from tests.crash import cycle_steps
from tests.support import harvests
from tests.support.harvests import begin, run
from tests.support.page_states import ROOT, Herd
from tests.support.programs import call
from tests.support.toy_farm import contents
from tests.support.waiting import PATIENCE_S

PROGRAMS = ("plan", "cork", "merge", "equiv", "select", "record", "cleanup", "feedback")
FOLLOWING = {"merge": "shep-equiv or shep-select comes next", "select": "shep-record comes next", "plan": "shep-reap comes next"}


def say(program: str, db: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call(f"shep-{program}", "--db", str(db), "--cf", str(cycle_steps.cf_of(db)), "--now", str(cycle_steps.NOW), *arguments)


@pytest.mark.parametrize(("made", "takers"), [("merge", {"select"}), ("select", {"record"}), ("plan", set())])
def test_program_out_of_its_turn_says_whose_turn_it_is(tmp_path: Path, made: str, takers: set[str]) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    cycle_steps.dropping(5, ("http://b.example/",))(db, lambda _line: None)
    run(db, *{"merge": ("merge",), "select": ("merge", "select"), "plan": ("plan",)}[made])
    newest = str(Database(db).furthest().name)
    for program in PROGRAMS:
        if program in takers or (program, made) in (("equiv", "merge"), ("cork", "plan")):
            continue
        done = say(program, db)
        assert done.returncode == 4, program
        assert f"the newest state is {newest}: {FOLLOWING[made]}" in done.stderr


def test_first_bad_line_and_first_bad_upload_have_words_of_their_own(own_herd: Herd) -> None:
    inbox = own_herd.store.inbox
    inbox.drop_feedback("1790000000000-host-1-1", b"SHF1 is how a frame begins")
    inbox.drop_feedback("1790000000000-host-1-2", b"http://a.example/ 70000\nhttp://a.example/ 7\n")
    done = call("shep-feedback", "--db", str(own_herd.db), "--cf", str(own_herd.cf), "--now", str(own_herd.now))
    upload, line = done.stderr.splitlines()[:2]
    assert "1 upload refused, the first: " in upload and "is damaged" in upload
    assert "1 line refused, the first: " in line and "70000" in line


def test_unended_harvest_in_the_inbox_does_not_send_an_operator_to_shep_reap(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    harvest = Harvest(db / names.INBOX / f"{cycle_steps.ITEM.format(3)}.harvest", 1 << 20)
    harvest.checkpoint(cycle_steps.NOW * 1000)
    harvest.close()
    done = say("cork", db)
    assert done.returncode == 4  # nobody has damaged anything
    assert f"no harvest can be taken in yet: {db / names.INBOX / cycle_steps.ITEM.format(3)}.harvest: " in done.stderr
    assert "it has not ended: whoever left it must finish it" in done.stderr
    assert "shep-reap" not in done.stderr
    assert "it has not ended; no cork takes it in" in call("shep-check", "--db", str(db)).stdout


def test_damaged_harvest_behind_one_that_has_not_ended_is_corruption(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    harvest = Harvest(db / names.INBOX / f"{cycle_steps.ITEM.format(3)}.harvest", 1 << 20)
    harvest.checkpoint(cycle_steps.NOW * 1000)
    harvest.close()
    source = harvests.harvest(tmp_path / "theirs", [harvests.Page("http://a.example/", "good")])
    segment = Database(db).inbox.drop_harvest(cycle_steps.ITEM.format(4), source) / "seg.00000001"
    segment.write_bytes(segment.read_bytes().replace(b"good", b"evil"))
    done = say("cork", db)
    assert done.returncode == 11
    assert f"{segment.parent.name}" in done.stderr and "move it away" in done.stderr


def test_plan_on_a_reap_that_has_ended_sends_an_operator_to_shep_cork(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    harvests.reap(db, ("reap", [harvests.Page("http://a.example/", "x")], {}))
    done = say("plan", db)
    assert done.returncode == 4
    assert f"the newest state is {Database(db).furthest().name}: shep-cork comes next" in done.stderr


def test_dry_run_on_a_closed_state_names_the_directory_that_would_be_made(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    (cycle_steps.cf_of(db) / "url-equiv").write_text("a.example b.example\n")
    assert str(Database(db).furthest().name) == "000002"
    for program, made in (("select", "000003.selected"), ("equiv", "000003.equiv")):
        assert f"would make {made}" in say(program, db, "--dry-run").stdout


def test_select_that_skips_equiv_warns(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    cycle_steps.dropping(5, ("http://b.example/",))(db, lambda _line: None)
    run(db, "merge")
    assert "shep-equiv" not in say("select", db, "--dry-run").stderr
    (cycle_steps.cf_of(db) / "url-equiv").write_text("a.example b.example\n")
    done = say("select", db)
    assert done.returncode == 0
    assert "url-equiv has changed" in done.stderr and "shep-equiv" in done.stderr


def test_setting_of_another_kind_is_reported_in_plain_words(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    (cycle_steps.cf_of(db) / "shepherd.toml").write_text('[plan]\nreap_s = "long"\n')
    done = say("plan", db)
    assert done.returncode == 2
    assert "[plan] reap_s: must be a whole number, not 'long'" in done.stderr


def test_dry_run_needs_no_database_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a read-only disk, or in another user's database; the tests may run as root, who may write anywhere."""
    db = begin(tmp_path / "db", ["http://a.example/"])
    before = contents(db)
    really = os.open

    def refuse(path: Path | str, flags: int, mode: int = 0o777, **more: int | None) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT) and Path(path).is_relative_to(db):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return really(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    config = Config(directory=cycle_steps.cf_of(db))
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        phase.run("shep-plan", plan.run, phase.PhaseOptions(db, config, cycle_steps.NOW, 1, dry_run=True, as_json=True))
    monkeypatch.undo()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the phase has changed it
    assert json.loads(told.getvalue())["report"]["pages"] == 1
    assert contents(db) == before


def test_missing_column_is_reported_as_damage(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    column = db / names.STATES / "000002" / "index" / "download_ms"
    column.unlink()
    done = say("plan", db)
    assert done.returncode == 11
    assert f"{column}: the file is missing; shep-check lists all damage" in done.stderr


def test_missing_inbox_is_reported_as_damage(tmp_path: Path) -> None:
    db = begin(tmp_path / "db", ["http://a.example/"])
    (db / names.INBOX).rmdir()
    done = say("merge", db)
    assert done.returncode == 11
    assert "make it again with mkdir" in done.stderr


@pytest.mark.parametrize(("number", "status", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")])
def test_signal_leaves_nothing_half_made(tmp_path: Path, number: signal.Signals, status: int, word: str) -> None:
    """A merge says that it has begun to write, and sleeps. Before that its directory may be there, but is nobody's yet."""
    db = begin(tmp_path / "db", ["http://a.example/"])
    cycle_steps.dropping(5, ("http://b.example/",))(db, lambda _line: None)
    program = subprocess.Popen(
        [sys.executable, "-c", SLOW, "--db", str(db), "--cf", str(cycle_steps.cf_of(db))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    assert (db / names.STATES / "000003.tmp").exists()
    program.send_signal(number)
    _out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, err) == (status, f"shep-merge: {word}\n")
    assert sorted(os.listdir(db / names.STATES)) == ["000001", "000002"]


SLOW = """
import sys, time
from shepherd.cycle.merge import drive as merge
from shepherd.cli.phases.merge import main
merge._merge = lambda *arguments: print("begun", flush=True) or time.sleep(60)
sys.argv[0] = "shep-merge"
main()
"""
