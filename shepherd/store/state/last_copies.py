"""What keeps a state from being deleted: it has a file that a state that stays names, and has no more.

Files are shared by hard links, so a state that has lost one may find its bytes in an older state only. Whoever deletes states
asks here first; shep-recover puts back what was lost, and then the older state may go.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from shepherd.errors import Corruption, UsageError
from shepherd.formats import tables
from shepherd.formats.check import BLOCK
from shepherd.formats.control import FileEntry
from shepherd.store.disk import names, opening
from shepherd.store.state import logs
from shepherd.store.state.directory import State


def needed_by(doomed: Path, staying: Iterable[State]) -> Path | None:
    """The first file of a state that stays which may have its last copy in the doomed directory."""
    entries = _entries(doomed)
    for state in staying:
        for path, entry in state.control.files.items():
            for name, length in _files(path, entry):
                copy = _status(doomed / name)
                if copy is None or copy.st_size != length or entries.get(path, entry) != entry:
                    continue
                if not _is_there(state.path / name, path, entry, length, copy, is_same=path in entries):
                    return state.path / name
    return None


def _is_there(file: Path, path: str, entry: FileEntry, length: int, copy: os.stat_result, is_same: bool) -> bool:
    """Whether a file is as long as it must be; and, of a segment that is no link of the copy, whole."""
    own = _status(file)
    if own is None or own.st_size != length:
        return False
    if (own.st_dev, own.st_ino) == (copy.st_dev, copy.st_ino) or not is_same or not path.startswith(f"{names.OBJECTS}/"):
        return True
    return logs.entry_of(file) == entry  # a database that was copied without its links; once for each state of the copy


def _entries(directory: Path) -> dict[str, FileEntry]:
    """What its control names; nothing if that cannot be read: then names and lengths alone decide."""
    try:
        return State(directory).control.files
    except (Corruption, UsageError):
        return {}


def _files(path: str, entry: FileEntry) -> Iterator[tuple[str, int]]:
    yield path, entry.length
    if path.partition("/")[0] in tables.TABLES:
        yield f"{path}{names.CHECK}", -(-entry.length // BLOCK) * 8


def _status(file: Path) -> os.stat_result | None:
    """None where nothing is; a disk that does not say is IoFailed: nothing is deleted on its word."""
    with opening.reading(file), contextlib.suppress(FileNotFoundError):
        return file.lstat()
    return None
