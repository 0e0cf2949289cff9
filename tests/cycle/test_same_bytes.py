"""Every batch phase makes the same bytes without the wide instructions that numpy finds on this machine.

numpy chooses between its loops and sorts at run time, by what the processor has. A phase that leaned on the order of equal keys,
or summed floats, would make other bytes on another machine; here the choices are taken away, and a chain of programs run again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.store.state.database import Database
from tests.support import many_rows

CHAIN = ("cork", "merge", "equiv", "select", "record", "feedback", "cleanup", "plan")
# What numpy would choose between at run time, as far as this machine has it and nobody has disabled it.
FEATURES = "from numpy._core import _multiarray_umath as m; print(*(f for f in m.__cpu_dispatch__ if m.__cpu_features__[f]))"


def python(*words: str, features: str = "") -> str:
    env = {**os.environ, "NPY_DISABLE_CPU_FEATURES": features}
    done = subprocess.run([sys.executable, *words], cwd=many_rows.ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode} {done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return many_rows.make(tmp_path_factory.mktemp("home"))


def states_of(home: Path, features: str) -> Iterator[tuple[str, str, str]]:
    """Phase, file and SHA-256 of all that every program of the chain makes."""
    for name in CHAIN:
        words = ["--db", str(home / "db"), "--cf", str(home / "cf"), "--now", str(many_rows.NOW), "--quiet"]
        force = ["--force"] if name == "select" else []  # weights are made up, and the brake would be right to stop it
        python("-m", "shepherd.cli", f"shep-{name}", *words, *force, features=features)
        made = Database(home / "db").furthest().path
        for file in sorted(path for path in made.rglob("*") if path.is_file()):
            yield name, str(file.relative_to(made)), hashlib.sha256(file.read_bytes()).hexdigest()


def test_phase_makes_the_same_bytes_without_the_wide_instructions_of_the_machine(home: Path, tmp_path: Path) -> None:
    features = python("-c", FEATURES)
    if not features:
        pytest.skip("numpy has nothing to choose between on this machine")
    assert python("-c", FEATURES, features=features) == "", "they cannot be disabled: nothing would be tested"
    whole, narrow = (shutil.copytree(home, tmp_path / name, symlinks=True) for name in ("whole", "narrow"))
    expected = list(states_of(whole, ""))
    assert {phase for phase, _file, _digest in expected} == set(CHAIN)
    assert list(states_of(narrow, features)) == expected
