"""A database that stands right before each batch phase, made once for all tests of a file; a quick directory; and the account of
a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash import bench as benches
from tests.crash import disks, mending
from tests.crash.bench import Bench
from tests.crash.tally import Tally
from tests.support.toy_farm import NOW, PHASES, Farm, farm


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with benches.bench() as one:
        yield one


@pytest.fixture
def memory() -> Iterator[Path]:
    with disks.workplace() as path:
        yield path


@pytest.fixture
def tally(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Tally:
    return Tally(record_property, request.node.name)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that stays as it is, to be copied and damaged."""
    return mending.grow(tmp_path_factory.mktemp("base"))


@pytest.fixture
def db(base: Path, tmp_path: Path) -> Path:
    """A copy of it, to damage and to mend."""
    return mending.copy(base, tmp_path / "db")


@pytest.fixture(scope="module")
def before_each(tmp_path_factory: pytest.TempPathFactory, gathered_farm: Path) -> Iterator[dict[str, Farm]]:
    """For each phase a database that stands right before it, after one cycle and in the midst of the second."""
    home = tmp_path_factory.mktemp("farm")
    with farm(home, gathered_farm / "gathered") as one:
        one.upload()
        one.equate()
        stages: dict[str, Farm] = {}
        for program in PHASES:
            stages[program] = one.copy(home / program)
            one.must(program, "--quiet", "--now", str(NOW))
            if program == "shep-plan":
                one.must("shep-reap", "--quiet")
        yield stages
