"""What tests of single parts of the dispatcher begin with: a planned state, and a harvest to write to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from shepherd.store.state.harvest import Harvest
from tests.crash import cycle_steps


@pytest.fixture
def state(tmp_path: Path) -> State:
    cycle_steps.grow(tmp_path / "db", "harvest")
    return Database(tmp_path / "db").furthest()


@pytest.fixture
def harvest(tmp_path: Path) -> Iterator[Harvest]:
    started = Harvest(tmp_path / "reap", 1 << 20)
    yield started
    started.close()
