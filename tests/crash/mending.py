"""A database to damage and to mend: the golden one, brought two states on: 8, made by cork, and 9, made by record."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from shepherd.config import Config
from shepherd.cycle.merge import drive as merge
from shepherd.cycle.rebuild import recover
from shepherd.cycle.record import drive as record
from shepherd.cycle.select import drive as select
from shepherd.formats import bucket, tables
from shepherd.formats.frame import FrameKind
from shepherd.formats.tables import INDEX, Array
from shepherd.store.check import check, places
from shepherd.store.check.recover import RecoveryStep
from shepherd.store.disk import names
from shepherd.store.state import harvest
from shepherd.store.state.database import Database
from shepherd.store.state.directory import State
from tests.crash.test_upgrade import run_upgrade, unpack
from tests.support.toy_farm import contents

NOW = 1_900_000_000
CONFIG = Config(directory=Path(__file__).resolve().parents[2] / "cf")
UNTOUCHED = [name for name in INDEX if name != "touched"]


def grow(directory: Path) -> Path:
    db = unpack("v1-closed", directory)
    run_upgrade(db)
    for phase in (merge, select, record):
        with Database(db).writing("test") as writer:
            phase.run(writer, CONFIG, NOW, lambda rows: None)
    assert [str(name) for name in Database(db).states()] == ["000008", "000009"]
    return db


def copy(db: Path, to: Path) -> Path:
    """The same database elsewhere, its hardlinks kept: damage is shared as on a real disk."""
    seen: dict[int, Path] = {}
    for path in sorted(db.rglob("*")):
        target = to / path.relative_to(db)
        if path.is_dir():
            target.mkdir(parents=True)
        elif path.stat().st_ino in seen:
            target.hardlink_to(seen[path.stat().st_ino])
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            seen[path.stat().st_ino] = target
    return to


def reap(db: Path) -> Path:
    """The same database with a reap under way on state 9: two pages are planned, and there is one checkpoint."""
    database = Database(db)
    with database.writing("test") as writer:
        parent = writer.furthest()
        builder = writer.build(parent, names.StateName(10, "reap"), NOW)
        builder.keep(p for p in parent.control.files if p != names.REPORT)
        builder.write_records(names.PLAN, FrameKind.PLAN, np.zeros(2, tables.PLAN))
        path = writer.publish(builder, {"phase": "plan"}).path / names.HARVESTS
        path.mkdir()
    written = harvest.Harvest(path / "reap", 1 << 20)
    stored = bucket.thin(1, 2, 3, 10, "http://a.example/")
    record_ = np.zeros(1, tables.JOURNAL)
    record_["oid"] = written.store(stored)
    written.journal(record_.tobytes())
    written.checkpoint(NOW * 1000)
    written.close()
    return db


def mend(db: Path, deep: bool = True) -> list[RecoveryStep]:
    """What shep-recover does."""
    steps = places.clear_lock(db)
    with Database(db).writing("test", tidy=False) as writer:
        steps += places.clear(writer)
        return steps + recover.recover(writer, recover.Recovery(CONFIG, NOW, lambda count: None), deep)


def mended(db: Path) -> tuple[State, str]:
    """The new state, which must be sound, and all that was printed; a second run must find nothing."""
    told = "\n".join(f"{step.what} {step.loss} {' '.join(step.details)}" for step in mend(db))
    assert [str(fault) for fault in check.walk(Database(db)) if not fault.note] == []
    before = contents(db / "state")
    assert mend(db) == []
    assert contents(db / "state") == before
    return Database(db).closed(), told


def flip(path: Path, at: int | float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[at if isinstance(at, int) else int(len(data) * at)] ^= 16
    write(path, bytes(data))


def write(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def rows(state: State) -> dict[str, Array]:
    return {name: column.copy() for name, column in state.index.slice(0, state.index.rows).items()}


def differing(before: dict[str, Array], after: dict[str, Array]) -> list[str]:
    return [name for name in UNTOUCHED if not np.array_equal(before[name], after[name])]
