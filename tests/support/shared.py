"""What takes long to make is made once in a run, by whichever of its processes needs it first: the others wait, and copy it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def place_of_run(factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this run share, and no other run."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def once(place: Path, name: str, make: Callable[[Path], object]) -> Path:
    """The directory of that name, as `make` has filled it. What was half made when its maker failed is made anew."""
    made = place / name
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            making = place / f"{name}.making"
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            make(making)
            making.rename(made)
    return made
