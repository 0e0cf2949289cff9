"""The crontab line, the systemd unit and the logrotate file of docs/operations.md: as written there, but for the place."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from shepherd.report import logbook
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PLACE = "/srv/shepherd"
PLAIN = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/", "SHELL": "/bin/sh"}  # what cron gives a command


def sample(language: str) -> str:
    """The one block of this language."""
    [text] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert isinstance(text, str)
    return text


def need(program: str) -> None:
    if shutil.which(program, path=PLAIN["PATH"]) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A tree as /srv/shepherd might be, with one page to gather that no server has."""
    home = tmp_path / "srv"
    home.mkdir()
    (home / "bin").symlink_to(ROOT / "bin")
    assert call("shep-init", "--db", str(home / "db"), "--cf", str(home / "cf")).returncode == 0
    settings = '[identity]\ncontact = "me@example.org"\n[network]\nallow = ["127.0.0.0/8"]\n[politeness]\ndelay_s = 0.1\n'
    (home / "cf" / "shepherd.toml").write_text(settings)
    assert call("shep", "scope", "add", "--cf", str(home / "cf"), "127.0.0.1:9").returncode == 0
    assert call("shep", "insert", "--db", str(home / "db"), "http://127.0.0.1:9/").returncode == 0
    return home


def test_crontab_line_works_and_prints_nothing(place: Path) -> None:
    """What it prints would be mailed with every cycle; a percent sign would end the command."""
    [line] = sample("crontab").splitlines()
    assert "%" not in line
    command = line.split(maxsplit=5)[5].replace(PLACE, str(place))
    assert re.fullmatch(r"([0-9*/,-]+ ){5}", " ".join(line.split()[:5]) + " ")
    done = subprocess.run(["sh", "-c", command], env=PLAIN, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    [cycle] = logbook.cycles(place / "db" / "log")
    assert [step["step"] for step in cycle["steps"]][:4] == ["shep-merge", "shep-select", "shep-record", "shep-plan"]
    again = subprocess.run(["sh", "-c", command], env=PLAIN, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (again.returncode, again.stdout, again.stderr) == (4, "", "")  # nothing is due


def test_unit_is_accepted_by_systemd(place: Path) -> None:
    need("systemd-analyze")
    unit = place / "shepherd.service"
    unit.write_text(sample("systemd").replace(PLACE, str(place)))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_service_is_started_reloaded_rotated_and_stopped(place: Path, tmp_path: Path) -> None:
    need("logrotate")
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[method-assign,assignment]  # as configparser's own documentation has it
    unit.read_string(sample("systemd").replace(PLACE, str(place)))
    service = unit["Service"]
    environment = {**PLAIN, "MAINPID": ""}
    process = subprocess.Popen(shlex.split(service["ExecStart"]), cwd=service["WorkingDirectory"], env=environment)
    try:
        log = place / "shepherd.log"
        wait_until(lambda: "event=pause" in text_of(log))
        reload_ = service["ExecReload"].replace("$MAINPID", str(process.pid))
        subprocess.run(shlex.split(reload_), check=True)
        wait_until(lambda: "event=reload" in text_of(log))
        wait_until(lambda: text_of(log).count("event=pause") == 2)
        rotate(sample("logrotate").replace(PLACE, str(place)), tmp_path)
        wait_until(lambda: "event=reload" in text_of(log))  # in the new file
        assert text_of(place / "shepherd.log.1").count("event=reload") == 1
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert text_of(log).splitlines()[-1].split()[2:4] == ["event=stop", "status=0"]
    finally:
        process.kill()
        process.wait()


def test_rotation_while_nothing_runs_signals_no_stranger(place: Path, tmp_path: Path) -> None:
    """db/lock still names a process, but its number may be somebody else's by now: here it is that of a `sleep`."""
    need("logrotate")
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (place / "db" / "lock").write_text(f"shepherd run, pid {stranger.pid} on here".ljust(200))
        (place / "shepherd.log").write_text("something\n")
        rotate(sample("logrotate").replace(PLACE, str(place)), tmp_path)
        assert (place / "shepherd.log.1").exists()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def rotate(text: str, tmp_path: Path) -> None:
    path = tmp_path / "rotate.conf"
    path.write_text(text)
    path.chmod(0o644)
    command = ["logrotate", "--force", "--state", str(tmp_path / "rotated"), str(path)]
    done = subprocess.run(command, env={**os.environ, **PLAIN}, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""
