"""Makes the places of a database fit for shep-recover: what is odd there goes aside, and wrong modes are mended.

Odd files go to db/aside, under names that say where they stood. Invariant: nothing of them is deleted, and a second run finds
nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from shepherd.store.check import odd_files
from shepherd.store.check.odd_files import OddFile
from shepherd.store.check.recover import RecoveryStep
from shepherd.store.disk import fsio, locks, names
from shepherd.store.state import seals
from shepherd.store.state.database import Writer


def describe(db: Path) -> list[RecoveryStep]:
    """What `clear` would do."""
    steps = [RecoveryStep(f"move {odd}, to {names.ASIDE}/{_name(odd)}") for odd in odd_files.survey(db)]
    wrong = list(seals.broken(db))
    return steps + _modes("restore", db, wrong)


def clear_lock(db: Path) -> list[RecoveryStep]:
    """The same for the lock alone, before it is taken. Of those who find it odd at the same time only one moves it."""
    steps = _modes("restored", db, seals.restore(db, seals.of_lock(db)))
    if odd_files.lock(db):
        with locks.turn(db):
            steps += _move_aside(db, odd_files.lock(db))
    return steps


def clear(writer: Writer) -> list[RecoveryStep]:
    """Move what is odd out of the way, make again the directories that were in its place, and restore modes; what was done."""
    db = writer.database.path
    return _modes("restored", db, writer.restore_seals()) + _move_aside(db, odd_files.survey(db))


def _modes(verb: str, db: Path, wrong: list[seals.BrokenSeal]) -> list[RecoveryStep]:
    if not wrong:
        return []
    what = f"{verb} the modes of {len(wrong)} files and directories, which a copy may lose: {wrong[0].path.relative_to(db)}"
    return [RecoveryStep(what + (" and others" if len(wrong) > 1 else ""))]


def _move_aside(db: Path, odd_ones: Iterable[OddFile]) -> list[RecoveryStep]:
    steps = []
    for odd in odd_ones:
        source, target = db / odd.place, _free(db / names.ASIDE / _name(odd))
        fsio.make_directory(db / names.ASIDE)
        fsio.rename(source, target)
        fsio.sync_directory(source.parent)
        if odd.place in odd_files.DIRECTORIES:
            fsio.make_directory(source)
        steps.append(RecoveryStep(f"moved {odd}, to {target.relative_to(db)}"))
    return steps


def _name(odd: OddFile) -> str:
    return odd.place.replace("/", "-")


def _free(path: Path) -> Path:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free
