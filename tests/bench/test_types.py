"""The programs under bench/ have no suffix, so mypy passes them by; yet names change under them as under everybody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
OPTIONS = ("--config-file", os.devnull, "--scripts-are-modules", "--ignore-missing-imports", "--follow-imports=silent")


def test_programs_of_bench_use_what_exists() -> None:
    programs = [str(path) for path in sorted(BENCH.iterdir()) if path.is_file() and not path.suffix]
    assert programs
    command = [sys.executable, "-m", "mypy", *OPTIONS, "--cache-dir", str(ROOT / ".mypy_cache" / "bench"), *programs]
    checked = subprocess.run(command, cwd=ROOT, env=os.environ | {"MYPYPATH": str(BENCH)}, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
