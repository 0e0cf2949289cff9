"""Fixtures that tests of several rooms share: databases of known content, a server of one, and a place for what syncs a lot."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import disks
from tests.support import shared
from tests.support.page_states import ROOT, Herd, Run, make_herd
from tests.support.programs import call_bytes
from tests.support.segment_states import fill
from tests.support.serving import Serving, flock, serving
from tests.support.toy_farm import gather_for_all


@pytest.fixture(scope="session")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    """PAGES in state 2; state 1 is empty. In contrib waits http://a.example/linked. For tests that change nothing."""
    return make_herd(tmp_path_factory.mktemp("herd"))


@pytest.fixture
def own_herd(tmp_path: Path) -> Herd:
    """The same, for a test that drops requests."""
    return make_herd(tmp_path)


@pytest.fixture
def shep() -> Run:
    """shep(herd, "list", ...) runs the program as a user would, with --db and --cf from the environment."""

    def run(herd: Herd, *args: str | bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        environment = os.environ | {"SHEPHERD_DB": str(herd.db), "SHEPHERD_CF": str(herd.cf), "PYTHONPATH": str(ROOT)}
        return call_bytes(["shep", *map(os.fsdecode, args)], Path.cwd(), environment, stdin)

    return run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("serve")
    fill(home, flock())
    with serving(home) as one:
        yield one


@pytest.fixture(scope="session")
def gathered_farm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Databases that have gathered the toy web of tests/support/toy_farm.py, made once in a run."""
    return shared.once(shared.place_of_run(tmp_path_factory), "gathered_farm", gather_for_all)


@pytest.fixture
def home() -> Iterator[Path]:
    with disks.workplace() as path:
        yield path
