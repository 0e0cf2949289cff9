"""Commands of the operator's own, run for real: their arguments, what they inherit, and when they are killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shepherd import config
from shepherd.console import phase
from shepherd.master.hooks import HookRunner
from shepherd.store.disk import locks
from tests.support.waiting import wait_until_gone

ENVIRONMENT = {"SHEPHERD_DB": "/d", "SHEPHERD_CF": "/c"}


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_hook_gets_what_happens_as_arguments_and_environment(tmp_path: Path) -> None:
    note = script(tmp_path / "note it", f'echo "$@" >> {tmp_path}/args; env | grep ^SHEPHERD_ | sort >> {tmp_path}/env')
    command = f"'{note}' 'two words' ; rm"  # no shell: the semicolon is a word
    hooks = HookRunner(config.Hooks(before=command, after=command, on_error=command), ENVIRONMENT)
    assert hooks.before("shep-merge", "000004") == ""
    assert hooks.after("shep-merge", "000005.merged", 0) == ""
    assert hooks.on_error("shep-merge", 13, "the disk $(failed)\nlook at it") == ""
    assert (tmp_path / "args").read_text().splitlines() == [
        "two words ; rm shep-merge 000004",
        "two words ; rm shep-merge 000005.merged 0",
        "two words ; rm shep-merge 13 the disk $(failed)",
        "look at it",
    ]
    told = (tmp_path / "env").read_text()
    for line in ("HOOK=before", "HOOK=after", "HOOK=on_error", "STATE=000005.merged", "STATUS=13", "STEP=shep-merge", "DB=/d"):
        assert f"SHEPHERD_{line}\n" in told
    assert "SHEPHERD_MESSAGE=the disk $(failed)\n" in told


def test_hook_that_fails_is_reported(tmp_path: Path) -> None:
    bad = str(script(tmp_path / "bad", "exit 7"))
    assert HookRunner(config.Hooks(before=bad), ENVIRONMENT).before("a", "b") == f"hooks.before ended with exit status 7: {bad}"
    missing = HookRunner(config.Hooks(after="/no/such/program"), ENVIRONMENT).after("a", "b", 0)
    assert missing == "hooks.after could not be run: /no/such/program: No such file or directory"
    assert HookRunner(config.Hooks(), ENVIRONMENT).before("a", "b") == ""


def test_hook_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    slow = str(script(tmp_path / "slow", f"sleep 600 & echo $! > {tmp_path}/pid; wait"))
    fault = HookRunner(config.Hooks(before=slow, timeout_s=1.0), ENVIRONMENT).before("a", "b")
    assert fault == f"hooks.before was killed after 1 s: {slow}"
    pid = int((tmp_path / "pid").read_text())
    wait_until_gone([pid])


def test_hook_does_not_inherit_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if its descriptor is inheritable."""
    held = locks.lock(tmp_path / "lock", "a test")
    os.set_inheritable(held.fd, True)
    monkeypatch.setenv(phase.LOCK_FD, str(held.fd))
    look = str(
        script(tmp_path / "look", f'ls -l /proc/self/fd > {tmp_path}/fds; echo "[${{{phase.LOCK_FD}-none}}]" >> {tmp_path}/fds')
    )
    assert HookRunner(config.Hooks(before=look), ENVIRONMENT).before("a", "b") == ""
    held.release()
    text = (tmp_path / "fds").read_text()
    assert str(tmp_path / "lock") not in text
    assert "[none]" in text


def test_output_of_a_hook_is_logged(tmp_path: Path) -> None:
    heard = list[tuple[str, str]]()
    loud = str(script(tmp_path / "loud", "echo to stdout; echo to stderr >&2"))
    HookRunner(config.Hooks(after=loud), ENVIRONMENT, lambda *line: heard.append(line)).after("a", "b", 0)
    assert heard == [("hooks.after", "to stdout"), ("hooks.after", "to stderr")]
