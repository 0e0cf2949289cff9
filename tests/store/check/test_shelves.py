"""What shep-check says of the journals and keys that are kept of deleted states."""

from __future__ import annotations

from pathlib import Path

import pytest

from shepherd.formats.frame import HEADER
from shepherd.formats.tables import JOURNAL
from shepherd.store.check import check
from shepherd.store.state import keys
from shepherd.store.state.database import Database
from tests.store.state.test_journals import make
from tests.support.odd_files import put
from tests.support.programs import call
from tests.support.sound import flip


@pytest.fixture
def db(tmp_path: Path) -> Database:
    """States 2 and 3 are deleted; their journals are kept, and the keys of 2."""
    made = make(tmp_path / "db", 3)
    keys.keep(made, made.closed(2), 1)
    with made.writing("test") as writer:
        assert writer.prune(1, 99, 2) == [1, 2, 3]
    return made


def faults(db: Database, quick: bool = False) -> list[str]:
    return [str(fault).replace(str(db.path), "db") for fault in check.walk(db, quick) if not fault.note]


def journal(db: Database, number: int) -> Path:
    return db.log_path / "journal" / f"{number:06d}" / f"journal.{number:08d}"


def test_sound_journals_have_no_fault(db: Database) -> None:
    assert faults(db) == faults(db, quick=True) == []


def test_flipped_bit_in_a_kept_journal_is_a_fault_that_says_what_to_do(db: Database) -> None:
    flip(journal(db, 3), HEADER.size + 9)
    advice = "remove db/log/journal/000003: audits do without it"
    assert faults(db) == [f"db/log/journal/000003/journal.00000003 at 0: no whole frame begins here; {advice}"]
    done = call("shep-check", "--db", str(db.path))
    assert done.returncode == 11 and "audits do without it" in done.stdout


def test_kept_journal_that_is_cut_at_a_frame_is_a_fault(db: Database) -> None:
    """Whoever reads it to its end finds nothing wrong."""
    path = journal(db, 2)
    path.chmod(0o644)
    path.write_bytes(b"")
    (fault,) = faults(db, quick=True)
    assert f"journal.00000002 at 0: 0 bytes instead of {HEADER.size + 2 * JOURNAL.itemsize}" in fault


@pytest.mark.parametrize("place", ["control", "servers/qkey", "sites/delay_ms.check", "journal.00000003"])
def test_kept_file_that_is_missing_or_odd_is_a_fault(db: Database, place: str) -> None:
    path = db.log_path / "journal" / "000003" / place
    path.unlink()
    assert any("missing" in fault and "000003" in fault for fault in faults(db))
    put(path, "a pipe")
    assert any("missing" in fault and "000003" in fault for fault in faults(db))


def test_damaged_keys_say_who_needs_them(db: Database) -> None:
    (db.log_path / "keys" / "000002" / "index" / "norm").unlink()
    (fault,) = faults(db)
    assert fault == (
        "db/log/keys/000002/index/norm: missing; remove db/log/keys/000002: who comes back to that state reads everything"
    )
