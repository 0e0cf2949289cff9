"""The list of clients: while several change it at once, and where it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.serve import tokens
from tests.support.programs import ROOT, call
from tests.support.waiting import PATIENCE_S

MANY = """
import sys
from shepherd.cli.serve import command
for number in range(12):
    command.main(["token", *{words}, "--cf", sys.argv[1]], standalone_mode=False)
"""
ADD = '("add", f"{name}-{{number}}", "--role", "read")'
REMOVE = '("remove", f"{name}-{{number}}")'


def at_once(cf: Path, *scripts: str) -> None:
    """Programs of their own, each with many changes, and all of them end well."""
    running = [subprocess.Popen([sys.executable, "-c", script, str(cf)], cwd=ROOT, stdout=subprocess.PIPE) for script in scripts]
    ended = [(process.communicate(timeout=PATIENCE_S), process.returncode)[1] for process in running]
    assert ended == [0] * len(scripts)


def script(words: str, name: str) -> str:
    return MANY.format(words=words.format(name=name))


def test_simultaneous_changes_of_clients_lose_none(tmp_path: Path) -> None:
    at_once(tmp_path, *(script(ADD, name) for name in ("a", "b", "c", "d")))
    there = {client.name for client in tokens.read(tmp_path / "tokens")}
    assert there == {f"{name}-{number}" for name in "abcd" for number in range(12)}
    at_once(tmp_path, script(REMOVE, "a"), script(REMOVE, "b"), script(ADD, "e"))
    there = {client.name for client in tokens.read(tmp_path / "tokens")}
    assert there == {f"{name}-{number}" for name in "cde" for number in range(12)}


@pytest.mark.parametrize("words", [("add", "x", "--role", "read"), ("list",), ("remove", "x")], ids=lambda words: words[0])
def test_missing_directory_of_the_clients_is_a_usage_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    cf = tmp_path / "missing"
    done = call("shep-serve", "token", *words, "--cf", str(cf))
    assert done.returncode == 2 and f"{cf}: " in done.stderr and "shep-init" in done.stderr and "disk" not in done.stderr
    assert not cf.exists()


def test_missing_role_is_reported_without_escapes(tmp_path: Path) -> None:
    done = call("shep-serve", "token", "add", "x", "--cf", str(tmp_path))
    assert done.returncode == 2 and "Choose from: read, feedback, mirror, admin (" in done.stderr and "\\" not in done.stderr
