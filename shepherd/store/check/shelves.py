"""What is kept of deleted states in db/log: the journals, which the audit of politeness believes, and the keys that readers had.

Each is checked against its own control, as the state was. Nothing can make it again, and nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from shepherd.errors import Corruption, IoFailed, OldFormat
from shepherd.store.check import files as check_files
from shepherd.store.check.bad_sectors import past_bad_sectors, unread_places
from shepherd.store.check.faults import Fault, fault_of
from shepherd.store.check.files import Sound
from shepherd.store.disk import names
from shepherd.store.state import journals, keys
from shepherd.store.state.directory import State
from shepherd.store.state.kept_files import Shelf

SHELVES: Final = ((journals.SHELF, "audits do without it"), (keys.SHELF, "who comes back to that state reads everything"))


def walk_shelves(logs: Path, quick: bool, sound: Sound) -> Iterator[Fault]:
    """Every fault of what is kept; each says what to do, because shep-recover does not."""
    for shelf, loss in SHELVES:
        for name in shelf.numbers(logs):
            directory = logs / shelf.name / str(name)
            faults = list(_of_one(shelf, directory, quick, sound))
            if directory.exists():  # else it was trimmed while we looked
                yield from (replace(fault, what=f"{fault.what}; remove {directory}: {loss}") for fault in faults)


def _of_one(shelf: Shelf, directory: Path, quick: bool, sound: Sound) -> Iterator[Fault]:
    try:
        state = State(directory)
    except Corruption as error:
        yield fault_of(directory / names.CONTROL, error)
        return
    except IoFailed as error:
        yield from unread_places(directory / names.CONTROL, error)
        return
    except OldFormat:
        return  # whoever upgrades lets go of it
    kept_files = [path for path in shelf.files(state) if path in state.control.files]
    faults: list[Fault] = []
    for path in kept_files:
        entry = state.control.files[path]
        faults += past_bad_sectors(directory / path, check_files.walk_file(state, path, entry, quick, sound))
    yield from faults
    if not faults and not quick:
        yield from past_bad_sectors(directory, check_files.walk_logs(state, kept_files))
