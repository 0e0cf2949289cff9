"""shep-export into a directory in which somebody else has put links: nothing outside it is written or removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.export_pages import WARES, export
from tests.support.page_states import Herd, make_herd
from tests.support.programs import call
from tests.support.toy_farm import contents

STEM = "shepherd-000002"
FILE = f"{STEM}-00000.jsonl"


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    return make_herd(tmp_path_factory.mktemp("herd"), WARES, (), ())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "victim" / "000001").mkdir(parents=True)
    (tmp_path / "victim" / "000001" / "control").write_text("mine")
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def is_untouched(out: Path) -> bool:
    """All that is beside the directory of the export."""
    kept = contents(out.parent / "victim") == {"000001/control": b"mine"}
    return kept and (out.parent / "precious").read_text() == "mine" and not (out.parent / "nowhere").exists()


def is_whole(out: Path, name: str) -> bool:
    """Its files and its manifest, and nothing that is a link."""
    found = [out / name, out / f"{STEM}.json"]
    return all(path.exists() for path in found) and not any(path.is_symlink() for path in out.iterdir())


def test_lock_of_an_export_does_not_follow_a_link(herd: Herd, out: Path) -> None:
    lock = out / f".{STEM}.lock"
    lock.symlink_to(out.parent / "precious")
    done = export(herd, out, "--format", "jsonl", status=2)
    assert f"{lock}: a link".encode() in done.stderr
    assert (out.parent / "precious").read_text() == "mine"
    assert [path.name for path in out.iterdir()] == [lock.name]


@pytest.mark.parametrize("place", ["lock", "lease/lock"])
def test_lock_of_a_database_does_not_follow_a_link(tmp_path: Path, out: Path, place: str) -> None:
    own = make_herd(tmp_path / "herd", WARES[:1], (), ())
    (own.db / place).unlink(missing_ok=True)
    (own.db / place).symlink_to(out.parent / "precious")
    if place == "lock":
        done = call("shep-merge", "--db", str(own.db), "--cf", str(own.cf))
        assert done.returncode == 2 and f"{own.db / place}: a link" in done.stderr
    else:
        told = export(own, out, "--format", "jsonl").stderr
        assert b": a link" in told and b"reads without a lease" in told
    assert (out.parent / "precious").read_text() == "mine"


@pytest.mark.parametrize("name", [FILE, f".{FILE}.tmp", f"{STEM}.json", f".{STEM}.json.tmp"])
@pytest.mark.parametrize("to", ["precious", "victim", "nowhere"])
def test_file_of_an_export_does_not_follow_a_link(herd: Herd, out: Path, name: str, to: str) -> None:
    link = out / name
    link.symlink_to(out.parent / to)
    if name == f"{STEM}.json":  # what says what may be replaced must be a file
        assert b"not the manifest" in export(herd, out, "--format", "jsonl", status=2).stderr
        link.unlink()
    export(herd, out, "--format", "jsonl")
    assert is_untouched(out) and is_whole(out, FILE)


@pytest.mark.parametrize("name", [STEM, f".{STEM}.tmp", f".{STEM}.gone"])
@pytest.mark.parametrize("to", ["precious", "victim", "nowhere"])
def test_tree_of_an_export_does_not_follow_a_link(herd: Herd, out: Path, name: str, to: str) -> None:
    if name != STEM:  # one that is to be replaced
        (out / STEM).mkdir()
        (out / STEM / "old").touch()
    (out / name).symlink_to(out.parent / to)
    export(herd, out, "--format", "files")
    assert is_untouched(out) and is_whole(out, STEM) and not (out / STEM / "old").exists()


def test_manifest_behind_a_link_is_refused(herd: Herd, out: Path) -> None:
    (out.parent / "other").mkdir()
    export(herd, out.parent / "other", "--format", "jsonl")
    (out / f"{STEM}.json").symlink_to(out.parent / "other" / f"{STEM}.json")
    (out / FILE).write_text("mine")
    done = export(herd, out, "--format", "jsonl", "--overwrite", status=2)
    assert b"not the manifest of an export; move it away" in done.stderr
    assert (out / FILE).read_text() == "mine" and is_whole(out.parent / "other", FILE)


def test_directory_of_an_export_may_be_a_link(herd: Herd, out: Path) -> None:
    """What the operator names is followed; a link to nothing is reported as what it is."""
    (out.parent / "link").symlink_to(out)
    export(herd, out.parent / "link", "--format", "jsonl")
    assert is_whole(out, FILE)
    (out.parent / "broken").symlink_to(out.parent / "nowhere")
    assert b"broken: not a directory" in export(herd, out.parent / "broken", "--format", "jsonl", status=2).stderr
    assert is_untouched(out)


@pytest.mark.parametrize("place", ["cursors", "cursors/feed"])
def test_cursor_does_not_follow_a_link(herd: Herd, out: Path, place: str) -> None:
    link = herd.db / "log" / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(out.parent / "victim")
    try:
        done = export(herd, out, "--format", "jsonl", "--cursor", "feed", status=2)
        assert f"{link}: a link".encode() in done.stderr
    finally:
        link.unlink()
    assert is_untouched(out)
