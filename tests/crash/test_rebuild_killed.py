"""A recovery that makes a state again, disturbed: by kills, by a harvest that stands on the state, by a disk that forgets."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from shepherd.errors import Corruption
from shepherd.store.check import check
from shepherd.store.disk.names import StateName
from shepherd.store.state import harvest
from shepherd.store.state.database import Database, Writer
from tests.crash.dying import killed_after
from tests.crash.mending import NOW, copy, flip, mend, reap, write
from tests.support import sampling
from tests.support.toy_farm import contents

SAMPLE_STEP = 89


@pytest.fixture
def reaping(base: Path, tmp_path: Path) -> Iterator[Path]:
    """A reap under way on state 9, with one checkpoint."""
    yield reap(copy(base, tmp_path / "db"))


def test_harvest_survives_the_state_it_stands_on(reaping: Path) -> None:
    flip(reaping / "state" / "000009" / "index" / "weight")  # hardlinked: 10.reap has the same damage
    mend(reaping)
    assert [str(name) for name in Database(reaping).states()] == ["000008", "000011", "000012.reap"]
    (path,) = Database(reaping).furthest().harvests()
    assert len(harvest.read_journal(path)) == 1
    assert not harvest.inspect(path).ended
    assert [fault for fault in check.walk(Database(reaping)) if not fault.note] == []
    assert mend(reaping) == []


def interrupted(base: Path, tmp_path: Path, step: int, damage: Callable[[Path], None]) -> Iterator[tuple[int, Path]]:
    """The database after a recovery that was killed at a call and then run again, call by call."""
    call = sampling.first(step, str(base.name))
    while True:
        db = copy(base, tmp_path / str(call))
        damage(db)
        if not killed_after(call, partial(mend, db)):
            break
        yield call, db
        shutil.rmtree(db)
        call += step
    assert call > 2 * step


def test_recovery_killed_at_any_call_is_finished_by_the_next(base: Path, tmp_path: Path) -> None:
    def damage(db: Path) -> None:
        flip(db / "state" / "000009" / "index" / "weight")

    whole = copy(base, tmp_path / "whole")
    damage(whole)
    mend(whole)
    expected = contents(whole / "state")
    for call, db in interrupted(base, tmp_path, sampling.step(SAMPLE_STEP), damage):
        mend(db)
        assert contents(db / "state") == expected, call


def test_recovery_of_a_reap_killed_at_any_call_keeps_the_harvest(reaping: Path, tmp_path: Path) -> None:
    def damage(db: Path) -> None:
        flip(db / "state" / "000009" / "index" / "weight")

    for call, db in interrupted(reaping, tmp_path / "x", sampling.step(SAMPLE_STEP), damage):
        mend(db)
        (path,) = Database(db).furthest().harvests()
        assert len(harvest.read_journal(path)) == 1, call
        assert [fault for fault in check.walk(Database(db)) if not fault.note] == [], call


def test_closed_state_that_is_leased_survives_a_recovery(db: Path) -> None:
    flip(db / "state" / "000009" / "index" / "weight")
    Database(db).lease(9, "x", "y", NOW * 1000, 100)
    mend(db)
    assert "000009" in [str(name) for name in Database(db).states()]


def test_recovery_stops_on_a_disk_that_loses_what_was_just_written(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new state checks as long as it is in memory, and no more when the damaged one has gone."""
    really, made = Writer.drop_snapshots, list[str]()

    def lose(writer: Writer, gone: list[StateName]) -> None:
        newest = writer.database.states()[-1]
        made.append(str(newest))
        assert len(made) == 1, "it has begun again"
        write(db / "state" / str(newest) / "index" / "weight", b"")
        really(writer, gone)

    flip(db / "state" / "000009" / "index" / "weight")
    monkeypatch.setattr(Writer, "drop_snapshots", lose)
    with pytest.raises(Corruption, match=r"000010 was made and checked just now, and has a fault: .*index/weight.* use a mirror"):
        mend(db)
    assert [str(name) for name in Database(db).states()] == ["000008", "000010"]
