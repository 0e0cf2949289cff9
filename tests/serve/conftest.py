"""One server for all tests of a module that do not change its database or its settings; and a place for those that sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import disks
from tests.pasture import fill
from tests.serve.serving import Serving, flock, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("serve")
    fill(home, flock())
    with serving(home) as one:
        yield one


@pytest.fixture
def home() -> Iterator[Path]:
    with disks.workplace() as path:
        yield path
