"""A mirror is pointed at a database that is no mirror: whatever that has, nothing of it is noted as received or deleted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.errors import Corruption, UsageError
from shepherd.store.state.database import Database
from tests.store.mirror.received import Folder, advance, bring, way
from tests.store.mirror.test_mirror import arguments
from tests.support.programs import call
from tests.support.segment_states import Sheep, faults, fill
from tests.support.serving import Serving, serving
from tests.support.toy_farm import contents

FLOCK = [Sheep(f"http://a.example/{n}", now=b"body %d" % n * 30) for n in range(8)]


@pytest.fixture
def source(home: Path) -> Iterator[Serving]:
    db = fill(home / "source", FLOCK).path
    advance(db, 7)
    with serving(home / "source") as one:
        yield one


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--adopt",), ("--adopt", "--dry-run"), ("--verify",)])
def test_source_cannot_mirror_into_its_own_database(source: Serving, more: tuple[str, ...]) -> None:
    db = source.home / "db"
    had = contents(db / "state")
    done = call("shep-mirror", *arguments(source, db, "--keep", "1"), *more)
    assert done.returncode == 2, done.stderr
    assert "give --db another directory" in done.stderr
    assert contents(db / "state") == had and not (db / "mirror").exists()


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--adopt",)])
def test_mirror_that_is_served_cannot_mirror_itself(source: Serving, home: Path, more: tuple[str, ...]) -> None:
    """Its note says that all of it came from elsewhere; so it did, but not from here."""
    bring(Folder(source.home / "db"), home / "middle" / "db")
    advance(source.home / "db", 8)
    bring(Folder(source.home / "db"), home / "middle" / "db")
    had = contents(home / "middle" / "db" / "state")
    with serving(home / "middle") as middle:
        done = call("shep-mirror", *arguments(middle, home / "middle" / "db"), *more)
    assert done.returncode == 2 and "serves this very database" in done.stderr
    assert contents(home / "middle" / "db" / "state") == had


def test_copy_is_a_mirror_only_after_adopt(source: Serving, home: Path) -> None:
    shutil.copytree(source.home / "db", home / "copy")
    had = contents(home / "copy" / "state")
    done = call("shep-mirror", *arguments(source, home / "copy"))
    assert done.returncode == 2 and "--adopt" in done.stderr
    would = call("shep-mirror", *arguments(source, home / "copy"), "--adopt", "--dry-run")
    assert would.returncode == 0 and not (home / "copy" / "mirror").exists()
    assert contents(home / "copy" / "state") == had
    assert call("shep-mirror", *arguments(source, home / "copy", "--keep", "1"), "--adopt").returncode == 0
    assert [name.number for name in Database(home / "copy").states()] == [3]
    advance(source.home / "db", 9)
    assert call("shep-mirror", *arguments(source, home / "copy")).returncode == 0  # it is a mirror from then on
    assert faults(Database(home / "copy")) == []


def test_database_with_states_of_its_own_is_not_adopted(source: Serving, home: Path) -> None:
    shutil.copytree(source.home / "db", home / "copy")
    advance(home / "copy", 40)
    advance(source.home / "db", 41)  # a state of the same number
    had = contents(home / "copy" / "state")
    with pytest.raises(UsageError, match="made here"):
        bring(Folder(source.home / "db"), home / "copy", way(adopt=True))
    assert contents(home / "copy" / "state") == had


def test_state_without_control_is_corruption_and_stays_noted(source: Serving, home: Path) -> None:
    bring(Folder(source.home / "db"), home / "mirror")
    (home / "mirror/state/000003/control").unlink()
    with pytest.raises(Corruption, match="control: the file is missing"):
        bring(Folder(source.home / "db"), home / "mirror")
    assert "3" in json.loads((home / "mirror/mirror").read_text())["states"]
