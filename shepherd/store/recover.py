"""What shep-recover does, and nothing that needs a person to decide (docs/recovery.md).

Leftovers of killed phases go; a killed reap is rolled back to its newest checkpoint that checks; an unfinished directory that is
damaged goes if what it was built from is whole, for then its phase simply runs again. Closed states are never written.
Safe to kill anywhere; a second run finds nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import Corruption, RecoveryNeeded
from shepherd.store import check, harvest, names
from shepherd.store.database import Database, Writer
from shepherd.store.names import StateName


@dataclass(frozen=True)
class Step:
    """One thing that was done, or would be."""

    what: str
    lost: str = ""  # what the step gives up, in words


def survey(database: Database) -> list[Step]:
    """What `recover` would do now. Reads only."""
    damaged = list(_damaged(database))
    left = [name for name in database.states() if name not in [name for name, _step in damaged]]
    return [*_leftovers(database), *(step for _name, step in damaged), *_superseded(left), *_harvests(database, left[-1])]


def recover(writer: Writer) -> list[Step]:
    """Mend what can be mended, under a lock that has tidied nothing yet; the steps that were taken."""
    steps = survey(writer.database)
    for name, _step in list(_damaged(writer.database)):
        writer.delete(name)
    writer.tidy()
    for path in writer.furthest().harvests():
        if not harvest.inspect(path).ended:
            harvest.rollback(path, accept_loss=True)
    return steps


def _leftovers(database: Database) -> Iterator[Step]:
    for entry in sorted(os.listdir(database.states_path)):
        if names.is_leftover(entry):
            yield Step(f"remove {entry}, left by a killed program")


def _superseded(found: list[StateName]) -> Iterator[Step]:
    for name in found[:-1]:
        if not name.closed:
            yield Step(f"remove {name}: {found[-1]} was made from it")


def _damaged(database: Database) -> Iterator[tuple[StateName, Step]]:
    """Damaged unfinished directories, the furthest first, down to the first one that is whole."""
    found = database.states()
    if not found:
        raise RecoveryNeeded(f"{database.states_path}: no state is there; copy one back from a mirror")
    for place, name in reversed(list(enumerate(found))):
        path = database.states_path / str(name)
        faults = [fault for fault in check.walk_state(path) if not fault.note]
        if not faults:
            return
        if name.closed or not place or _has_harvest(path):
            raise Corruption(f"{faults[0]}; {name} cannot be made again from an older state: copy it back from a mirror")
        yield name, Step(f"remove {name}: {faults[0]}", f"nothing: its phase runs again from {found[place - 1]}")


def _has_harvest(path: Path) -> bool:
    return (path / names.HARVESTS).is_dir() and any((path / names.HARVESTS).iterdir())


def _harvests(database: Database, name: StateName) -> Iterator[Step]:
    for path in database.open(name).harvests():
        found = harvest.inspect(path)
        excess = 0 if found.ended else _bytes(path) - _kept_bytes(found)
        if found.damage or excess > 0:
            why = f" ({found.damage})" if found.damage else ""
            back = f"roll {name}/{path.name} back to checkpoint {found.checkpoint.sequence}{why}"
            yield Step(back, f"{max(excess, 0)} bytes written since")


def _kept_bytes(found: harvest.Found) -> int:
    point = found.checkpoint
    return found.log_bytes + point.journal.length + point.contrib.length + sum(s.length for s in point.segments)


def _bytes(path: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.name != names.LOCK)
