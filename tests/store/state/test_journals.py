"""Journals outlive their states by policy, and can be read as if the state were there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shepherd.errors import NoSpace
from shepherd.formats.control import CLOSED
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import JOURNAL, TABLES
from shepherd.store.disk import fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.state import database, journals
from shepherd.store.state.database import Database, Writer

KEY = bytes(range(16))


def make(path: Path, count: int) -> Database:
    """States 2 to count + 1, each with a journal of as many records as its number."""
    database.create(path, KEY, 1, 0)
    found = Database(path)
    with found.writing("test") as writer:
        for number in range(2, count + 2):
            add(writer, number)
    return found


def add(writer: Writer, number: int) -> None:
    builder = writer.build(writer.furthest(), StateName(number, CLOSED), number)
    builder.change(contribs=number + 1)
    for table in TABLES:
        builder.keep_table(table)
    builder.write_records(names.journal(number), FrameKind.JOURNAL, np.zeros(number, JOURNAL))
    writer.publish(builder, {"phase": "test"})


def numbers(found: Database) -> list[int]:
    return [name.number for name in journals.numbers(found.log_path)]


def test_journals_of_deleted_states_are_kept_the_newest_of_them(tmp_path: Path) -> None:
    found = make(tmp_path / "db", 6)
    with found.writing("test") as writer:
        assert writer.prune(2, 99, 3) == [1, 2, 3, 4, 5]
    assert numbers(found) == [3, 4, 5]
    state = journals.open_state(found.log_path, StateName(4, CLOSED))
    assert len(state.journal(4)) == 4 and state.servers.rows == 0 and state.sites["group"][0:0].size == 0
    with found.writing("test") as writer:
        writer.prune(1, 99, 1)
    assert numbers(found) == [6]


def test_no_journal_is_kept_by_default(tmp_path: Path) -> None:
    found = make(tmp_path / "db", 3)
    with found.writing("test") as writer:
        writer.prune(1, 99)
    assert numbers(found) == [] and not (found.log_path / "journal").exists()


def test_full_disk_does_not_keep_a_state_from_being_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = make(tmp_path / "db", 3)

    def full(_source: Path, target: Path) -> None:
        raise NoSpace(f"{target}: no space left")

    monkeypatch.setattr(fsio, "link", full)
    with found.writing("test") as writer:
        assert writer.prune(1, 99, 5) == [1, 2, 3]
    assert numbers(found) == []
    monkeypatch.undo()
    with found.writing("test") as writer:
        writer.prune(1, 99, 5)
    assert [name.number for name in found.states()] == [4]


def test_half_made_directory_of_a_killed_prune_is_removed(tmp_path: Path) -> None:
    found = make(tmp_path / "db", 3)
    half = found.log_path / "journal" / "000002.tmp"
    half.mkdir(parents=True)
    (half / "control").write_text("half")
    with found.writing("test") as writer:
        writer.prune(1, 99, 5)
    assert sorted(path.name for path in (found.log_path / "journal").iterdir()) == ["000002", "000003"]
