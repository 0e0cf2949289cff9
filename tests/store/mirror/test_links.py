"""A mirror in whose directory somebody has put links: nothing outside it is written, removed, or used as a part of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shepherd.console import phase
from shepherd.errors import Corruption, UsageError
from shepherd.store.state.database import Database
from tests.crash import disks
from tests.store.mirror.received import Folder, advance, bring, way
from tests.support.segment_states import Sheep, faults, fill
from tests.support.toy_farm import contents

FLOCK = [Sheep(f"http://a.example/{n}", now=b"body %d" % n * 30, before=(b"old" * 50,)) for n in range(12)]
SEGMENT = "objects/00000001"


@pytest.fixture
def home() -> Iterator[Path]:
    """With a directory of somebody else, in which there are also names as a mirror has them."""
    with disks.workplace() as path:
        for name in ("thesis.txt", "00000001", "norm", "control", "000001/control", "000001.tmp/control", "objects/00000001"):
            file = path / "victim" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("mine")
        yield path


@pytest.fixture
def source(home: Path) -> Path:
    return fill(home / "home", FLOCK).path


def skeleton(db: Path) -> Path:
    for name in ("state", "inbox", "lease", "log"):
        (db / name).mkdir(parents=True)
    return db


def links(db: Path) -> list[str]:
    found = (Path(where) / name for where, directories, files in os.walk(db) for name in (*directories, *files))
    return [str(path) for path in found if path.is_symlink()]


def is_mirrored(source: Path, db: Path) -> bool:
    whole = contents(Database(db).closed().path) == contents(Database(source).closed().path)
    return whole and not links(db) and faults(Database(db)) == []


@pytest.mark.parametrize(
    "place",
    ["000002.tmp", "000001.tmp", "000002.tmp/objects", "000002.tmp/index", "000001.tmp/objects", "000001.gone"]
    + [f"000002.tmp/{name}" for name in (SEGMENT, "index/norm", "index/norm.check", "report.json", "control", "more")],
)
@pytest.mark.parametrize("to", ["victim", "victim/thesis.txt", "nowhere"])
def test_received_state_does_not_follow_a_link(source: Path, home: Path, place: str, to: str) -> None:
    link = skeleton(home / "mirror") / "state" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(home / to)
    had = contents(home / "victim")
    bring(Folder(source), home / "mirror")
    assert contents(home / "victim") == had and not (home / "nowhere").exists()
    assert is_mirrored(source, home / "mirror")


def test_link_to_a_local_file_is_replaced_by_the_file(source: Path, home: Path) -> None:
    """The link would lead to nothing when the older state is deleted."""
    bring(Folder(source), home / "mirror")
    advance(source, 7)
    link = home / "mirror/state/000003.tmp/index/norm"
    link.parent.mkdir(parents=True)
    link.symlink_to(home / "mirror/state/000002/index/norm")
    bring(Folder(source), home / "mirror", way(keep=1))
    assert is_mirrored(source, home / "mirror")


def test_no_file_is_linked_from_behind_a_link_in_an_older_state(source: Path, home: Path) -> None:
    bring(Folder(source), home / "mirror")
    objects = home / "mirror/state/000002/objects"
    objects.rename(home / "elsewhere")
    objects.symlink_to(home / "elsewhere")
    had = contents(home / "elsewhere")
    with pytest.raises(Corruption, match="--verify"):
        bring(Folder(source), home / "mirror")
    advance(source, 7)
    bring(Folder(source), home / "mirror", way(keep=1))
    assert is_mirrored(source, home / "mirror")
    assert contents(home / "elsewhere") == had
    assert not os.path.samefile(home / "elsewhere/00000001", home / "mirror/state/000003" / SEGMENT)


@pytest.mark.parametrize("to", ["victim", "nowhere"])
def test_link_in_the_place_of_a_state_is_not_followed(source: Path, home: Path, to: str) -> None:
    link = skeleton(home / "mirror") / "state/000002"
    link.symlink_to(home / to)
    had = contents(home / "victim")
    if to == "victim":
        with pytest.raises(UsageError, match="000002: a link"):
            bring(Folder(source), home / "mirror")
        link.unlink()
    bring(Folder(source), home / "mirror")
    assert contents(home / "victim") == had and is_mirrored(source, home / "mirror")


@pytest.mark.parametrize("name", ["state", "inbox", "lease", "log"])
def test_link_in_the_place_of_a_directory_of_the_mirror_is_refused(source: Path, home: Path, name: str) -> None:
    (skeleton(home / "mirror") / name).rmdir()
    (home / "mirror" / name).symlink_to(home / "victim")
    had = contents(home / "victim")
    with pytest.raises(UsageError, match=f"{name}: a link"):
        bring(Folder(source), home / "mirror")
    assert contents(home / "victim") == had


def test_mirror_may_be_a_link_to_another_disk(source: Path, home: Path) -> None:
    """The directory that the operator names may be a link; what is in it is ours."""
    skeleton(home / "disk")
    (home / "mirror").symlink_to(home / "disk")
    bring(Folder(source), home / "mirror")
    assert is_mirrored(source, home / "disk")


def test_journals_do_not_follow_a_link(source: Path, home: Path) -> None:
    bring(Folder(source), home / "mirror")
    (home / "mirror/log/journal").symlink_to(home / "victim")
    had = contents(home / "victim")
    advance(source, 7)
    done = bring(Folder(source), home / "mirror", replace(way(keep=1), keep_journals=1))
    assert done.deleted == [2] and contents(home / "victim") == had


@pytest.mark.parametrize("name", ["mirror", ".mirror.tmp"])
def test_note_of_a_mirror_does_not_follow_a_link(source: Path, home: Path, name: str) -> None:
    link = skeleton(home / "mirror") / name
    link.symlink_to(home / "victim/thesis.txt")
    if name == "mirror":
        with pytest.raises(UsageError, match="mirror: a link"):
            bring(Folder(source), home / "mirror")
    else:
        bring(Folder(source), home / "mirror")
        assert is_mirrored(source, home / "mirror")
    assert (home / "victim/thesis.txt").read_text() == "mine"


def test_timing_does_not_follow_a_link(home: Path) -> None:
    (skeleton(home / "mirror") / "log/timings.jsonl").symlink_to(home / "victim/thesis.txt")
    with phase.timed(home / "mirror", "shep-mirror"):
        pass
    assert (home / "victim/thesis.txt").read_text() == "mine"
