"""shep-keys: what it prints of files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.programs import call


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for arguments in (
        ("init", "ca"),
        ("issue", "ca", "reaper", "r1", "--host", "127.0.0.1"),
        ("issue", "ca", "dispatcher", "d1"),
    ):
        assert call("shep-keys", *arguments, cwd=tmp_path).returncode == 0
    (tmp_path / "notes").write_text("no key at all")
    return tmp_path


def test_file_without_a_certificate_does_not_hide_those_behind_it(home: Path) -> None:
    files = ("ca/r1.pem", "notes", "ca/authority.key", "nowhere", "ca/d1.pem")
    done = call("shep-keys", "show", *files, cwd=home)
    assert done.returncode == 2
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["ca/r1.pem", "ca/d1.pem"]
    told = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in told] == ["notes", "ca/authority.key", "nowhere", "shep-keys"]
    assert told[0] == "notes: there is no certificate in it; shep-keys makes such files"
    assert told[2:] == [
        "nowhere: cannot be read: No such file or directory",
        "shep-keys: 3 of 5 files cannot be shown, for the reasons above",
    ]
    lines = [json.loads(line) for line in call("shep-keys", "show", "--json", *files, cwd=home).stdout.splitlines()]
    assert ["error" in line for line in lines] == [False, True, True, True, False]


def test_host_of_a_dispatcher_is_refused(home: Path) -> None:
    done = call("shep-keys", "issue", "ca", "dispatcher", "d2", "--host", "192.0.2.1", cwd=home)
    assert (done.returncode, "--host is for a reaper" in done.stderr) == (2, True), done.stderr
    assert not (home / "ca" / "d2.pem").exists()
