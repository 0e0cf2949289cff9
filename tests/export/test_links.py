"""shep-export into a directory in which somebody else has put links: nothing outside it is written or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Herd, make_herd
from tests.export.wares import WARES, export
from tests.programs import call

STEM = "shepherd-000002"


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    return make_herd(tmp_path_factory.mktemp("herd"), WARES, (), ())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_lock_of_an_export_is_written_where_a_link_leads(herd: Herd, out: Path) -> None:
    lock = out / f".{STEM}.lock"
    lock.symlink_to(out.parent / "precious")
    done = export(herd, out, "--format", "jsonl", status=2)
    assert f"{lock}: a link".encode() in done.stderr
    assert (out.parent / "precious").read_text() == "mine"
    assert [path.name for path in out.iterdir()] == [lock.name]


@pytest.mark.parametrize("place", ["lock", "lease/lock"])
def test_lock_of_a_database_is_written_where_a_link_leads(tmp_path: Path, out: Path, place: str) -> None:
    own = make_herd(tmp_path / "herd", WARES[:1], (), ())
    (own.db / place).unlink(missing_ok=True)
    (own.db / place).symlink_to(out.parent / "precious")
    if place == "lock":
        done = call("shep-merge", "--db", str(own.db), "--cf", str(own.cf))
        assert done.returncode == 2 and f"{own.db / place}: a link" in done.stderr
    else:
        assert b": a link" in export(own, out, "--format", "jsonl", status=2).stderr
    assert (out.parent / "precious").read_text() == "mine"
