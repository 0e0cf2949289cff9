"""bench/phases: every program of a cycle is run on a made database, and a second call finds again what the first has made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.page_states import ROOT
from tests.support.waiting import PATIENCE_S


def phases(directory: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, str(ROOT / "bench" / "phases"), "3000", "--dir", str(directory), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == 3000
    return {line["phase"]: line for line in found["phases"]}


def test_every_phase_is_measured_and_one_can_be_repeated(tmp_path: Path) -> None:
    first = phases(tmp_path, "--heavy")
    assert {"cork", "merge", "select", "record", "plan", "heavy merge"} <= first.keys()
    assert all(line["read_mb"] > 0.03 and line["made_mb"] > 0 and line["rss_anon_mb"] > 1 for line in first.values())
    assert first["heavy merge"]["made_mb"] > first["merge"]["made_mb"] > first["select"]["made_mb"]
    again = phases(tmp_path, "--only", "merge")
    assert list(again) == ["merge"]
    assert [again["merge"][name] for name in ("read_mb", "made_mb")] == [first["merge"][name] for name in ("read_mb", "made_mb")]
