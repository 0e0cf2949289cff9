"""A full or failing disk: its own exit status, an intact last state, and the same command works once the disk does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.toy_farm import NOW, Farm, contents, farm


@pytest.fixture(scope="module")
def inserted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm(tmp_path_factory.mktemp("farm")) as one:
        yield one


POINTS = [
    "write:index/norm",
    "sync:index/norm",
    "write:000002.tmp/control",
    "sync:000002.tmp",
    "rename:000002.tmp",
    "mkdir:000002.tmp",
    "mkdir:000002.scratch",
    "create:000002.scratch/00000001",
    "write:000002.scratch/00000001",
]


@pytest.mark.parametrize(("fault", "status"), [("enospc", 12), ("eio", 13)])
def test_failing_disk_stops_merge_with_its_own_status_and_costs_nothing(
    inserted: Farm, tmp_path: Path, fault: str, status: int
) -> None:
    undisturbed = inserted.copy(tmp_path / "undisturbed")
    undisturbed.must("shep-merge", "--now", str(NOW))
    for number, point in enumerate(POINTS):
        one = inserted.copy(tmp_path / str(number))
        done = one.run("shep-merge", fail=f"{point}:1={fault}")
        assert done.returncode == status, (point, done.stderr)
        assert done.stderr.count("\n") == 1  # one sentence
        assert os.listdir(one.db / "state") == ["000001"]  # and nothing is left of what it had begun
        one.must("shep-merge", "--now", str(NOW))
        assert contents(one.db / "state" / "000002.merged") == contents(undisturbed.db / "state" / "000002.merged")


def test_short_write_is_completed(inserted: Farm, tmp_path: Path) -> None:
    one = inserted.copy(tmp_path / "db")
    assert one.run("shep-merge", fail="write:index/norm:1=short").returncode == 0
    one.must("shep-check")


def test_reap_on_a_full_disk_keeps_what_was_checkpointed(inserted: Farm, tmp_path: Path) -> None:
    one = inserted.copy(tmp_path / "db")
    for program in ("shep-merge", "shep-select", "shep-record", "shep-plan"):
        one.must(program)
    done = one.run("shep-reap", fail="sync:reap/journal:1=enospc")
    assert done.returncode == 12, done.stderr
    one.cycle()
    one.must("shep-check")
    assert one.violations() == []
