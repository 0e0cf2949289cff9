"""What is set before numpy is imported, and where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shepherd.console import machine

ZEN4 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu avx512f avx512dq\n"
PROGRAM = """
import sys
from shepherd.cli.phases import {name}
from shepherd.console import machine
tune, seen = machine.tune, []
machine.tune = lambda: (seen.append("numpy" in sys.modules), tune())
sys.argv = ["shep-{name}", "--db", "nowhere"]
try:
    {name}.main()
except SystemExit:
    assert seen == [False], seen
"""


@pytest.fixture
def features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.FEATURES, "")  # so that it is put back as it was
    monkeypatch.delenv(machine.FEATURES)


@pytest.mark.parametrize(
    ("text", "narrow"),
    [
        (ZEN4, True),
        (ZEN4.replace("AuthenticAMD", "GenuineIntel"), False),
        (ZEN4.replace(": 25", ": 26"), False),
        (ZEN4.replace("avx512f", "avx2"), False),
    ],
)
def test_only_a_processor_that_sorts_badly_is_restricted(features: None, tmp_path: Path, text: str, narrow: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    machine._sort_narrowly(tmp_path / "cpuinfo")
    assert (os.environ.get(machine.FEATURES) == machine.AVX512) is narrow


def test_setting_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(ZEN4)
    monkeypatch.setenv(machine.FEATURES, "")
    machine._sort_narrowly(tmp_path / "cpuinfo")
    assert os.environ[machine.FEATURES] == ""


def test_system_without_cpuinfo_is_not_restricted(features: None, tmp_path: Path) -> None:
    machine._sort_narrowly(tmp_path / "none")
    assert machine.FEATURES not in os.environ


@pytest.mark.parametrize("name", ["plan", "cork", "merge", "equiv", "select", "record", "cleanup", "feedback"])
def test_sorting_is_set_before_numpy_is_imported(tmp_path: Path, name: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(name=name)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
