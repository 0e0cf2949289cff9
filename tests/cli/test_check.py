"""shep-check as an operator runs it: what it prints, its exit status, and what it does not touch."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.page_states import ROOT, Herd
from tests.support.programs import call
from tests.support.sound import flip
from tests.support.waiting import PATIENCE_S


def check(herd: Herd, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call("shep-check", "--db", str(herd.db), *arguments)


def test_sound_database_is_reported_as_sound(herd: Herd) -> None:
    done = check(herd)
    assert (done.returncode, done.stdout) == (0, "")
    assert "2 states, no fault" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--quick"], ["--state", "2"], ["--json"]])
def test_fault_is_named_on_stdout_with_exit_status_11(own_herd: Herd, arguments: list[str]) -> None:
    path = own_herd.db / "state/000002/index/norm"
    path.unlink()
    done = check(own_herd, *arguments)
    assert done.returncode == 11
    if "--json" in arguments:
        told = {"path": str(path), "offset": None, "what": "missing", "note": False, "unread": False, "count": 1}
        assert json.loads(done.stdout) == told
    else:
        assert done.stdout == f"{path}: missing\n"
    assert done.stderr == f"shep-check: 1 fault in {own_herd.db}; shep-recover --dry-run lists what can be mended\n"


def test_offset_of_a_fault_is_printed(own_herd: Herd) -> None:
    flip(own_herd.db / "state/000002/index/weight", 3)
    assert check(own_herd).stdout == f"{own_herd.db}/state/000002/index/weight at 0: the block is damaged\n"


def test_quick_look_does_not_read_what_is_in_a_column(own_herd: Herd) -> None:
    flip(own_herd.db / "state/000002/index/weight", 3)
    assert check(own_herd, "--quick").returncode == 0


def test_damage_to_another_state_is_not_reported(own_herd: Herd) -> None:
    (own_herd.db / "state/000001/report.json").unlink()
    assert check(own_herd, "--state", "2").returncode == 0
    assert check(own_herd, "--state", "000001").returncode == 11


def test_stranger_is_noted_and_no_fault(own_herd: Herd) -> None:
    (own_herd.db / "state" / "precious\x1b[2J").touch()
    done = check(own_herd)
    assert done.returncode == 0
    assert done.stdout == f"note: {own_herd.db}/state/precious\\x1b[2J: not a name of ours; left alone\n"


@pytest.mark.parametrize("given", ["7", "2.reap", "newest", ""])
def test_state_that_is_not_there_is_refused(herd: Herd, given: str) -> None:
    done = check(herd, "--state", given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"shep-check: no state {given}; there are 000001, 000002\n"


def test_bar_on_a_terminal_goes_from_nothing_to_all(herd: Herd) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    command = [sys.executable, "-m", "shepherd.cli", "shep-check", "--db", str(herd.db)]
    subprocess.run(command, cwd=ROOT, stderr=theirs, check=True, timeout=PATIENCE_S)
    shown = os.read(ours, 100_000)
    os.close(ours)
    os.close(theirs)
    assert b"checking:   0%" in shown


def test_nothing_is_changed(own_herd: Herd) -> None:
    before = snapshot(own_herd.db)
    check(own_herd)
    assert snapshot(own_herd.db) == before


def snapshot(path: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(path.rglob("*"))}
