"""Puts damaged files of finished directories back, where their bytes still stand somewhere (copies.py).

A file that is put back has exactly the bytes that the control of its directory names: so a closed state is again what it was, and
keeps its number, its leases, and whatever was built on it. Every sound copy first gets a name of its own, beside the file that it
is for, durably; only then they are renamed into their places, one by one: of files that somebody swapped each is the only copy of
the other. Killed anywhere, the next repair finds these names, and continues. A copy on the same file system is a hard link, which
needs no room.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from shepherd.errors import Corruption, IoFailed, NoSpace
from shepherd.formats.checkpoint import Checkpoint
from shepherd.formats.control import Control
from shepherd.formats.tables import TABLES
from shepherd.store.check import salvage
from shepherd.store.check.copies import Copies, block_table, column_has_bytes, has_bytes, has_mark
from shepherd.store.check.faults import Fault
from shepherd.store.check.files import newest_point
from shepherd.store.disk import fsio, names, opening
from shepherd.store.state import harvest
from shepherd.store.state.database import Database

_CONTROL_OF: Final = "index/oid"  # tells whether a control that was found elsewhere is of this directory

Faults: TypeAlias = Mapping[Path, Sequence[Fault]]  # by directory


@dataclass(frozen=True)
class Replacement:
    """A damaged or missing file, and where its bytes stand."""

    path: Path
    source: Path
    is_appended: bool = False  # of a harvest, which may go on


def staged(database: Database) -> list[Path]:
    """Sound copies that a killed repair had not put into their places."""
    return sorted(path for path in opening.files_below(database.states_path) if names.is_staged(path.name))


def copies_for(database: Database, mirrors: Sequence[Database]) -> Copies:
    """All places where a file of this database may stand once more."""
    own = (database.states_path, database.inbox.directory, database.log_path)
    return Copies([*own, *(mirror.states_path for mirror in mirrors)])


def plan(faults: Faults, copies: Copies) -> list[Replacement]:
    """What can be put back of the directories with faults."""
    return [file for directory, of_directory in faults.items() if of_directory for file in _of_directory(directory, copies)]


def plan_harvests(directories: Iterable[Path], copies: Copies) -> list[Replacement]:
    """What can be put back of the harvests in these directories: what the newest checkpoint calls durable, and that itself."""
    return [file for path in _harvests(directories) for file in _of_harvest(path, copies)]


def has_lost_log(directories: Iterable[Path], copies: Copies) -> bool:
    """Whether a harvest has no checkpoint, but one of it stands elsewhere. Without that it looks as if it had just begun."""
    bare = (path for path in _harvests(directories) if _point(path) is None and not _is_empty(path / names.CHECKPOINTS))
    return any(_is_of(path, point) for path in bare for _log, point in copies.checkpoint_logs())


def _harvests(directories: Iterable[Path]) -> Iterator[Path]:
    inside = (directory / names.HARVESTS for directory in directories)
    return (path for root in inside if root.is_dir() for path in sorted(root.iterdir()) if names.is_harvest(path.name))


def _point(harvest_path: Path) -> Checkpoint | None:
    try:
        return newest_point(harvest_path / names.CHECKPOINTS)
    except Corruption:
        return None


def _is_empty(log: Path) -> bool:
    return log.is_file() and not log.stat().st_size


def _of_harvest(harvest_path: Path, copies: Copies) -> Iterator[Replacement]:
    log, point = harvest_path / names.CHECKPOINTS, _point(harvest_path)
    if point is None:
        elsewhere = next((pair for pair in copies.checkpoint_logs() if _is_of(harvest_path, pair[1])), None)
        if elsewhere is None:
            return
        source, point = elsewhere
        yield Replacement(log, source, is_appended=True)
    for name, mark in harvest.files_of(point):
        if mark.length and not has_mark(harvest_path / name, mark) and (place := copies.of_mark(mark)) is not None:
            yield Replacement(harvest_path / name, place, is_appended=True)


def _is_of(harvest_path: Path, point: Checkpoint) -> bool:
    """Whether a checkpoint that stands elsewhere is of this harvest: it knows a file of it."""
    return any(mark.length and has_mark(harvest_path / name, mark) for name, mark in harvest.files_of(point))


def remaining(faults: Sequence[Fault], replacements: Sequence[Replacement]) -> list[Fault]:
    """The faults of one directory that stay when all this is put back."""
    whole = {file.path for file in replacements}
    whole |= {path.with_name(path.name.removesuffix(names.CHECK)) for path in whole}
    return [fault for fault in faults if fault.path not in whole]


def _of_directory(directory: Path, copies: Copies) -> Iterator[Replacement]:
    control = salvage.own_control(directory)
    if control is None:
        control, source = _lost_control(directory, copies)
        if control is None or source is None:
            return
        yield Replacement(directory / names.CONTROL, source)
    for path, entry in control.files.items():
        if not names.known_in_state(path) or has_bytes(directory, path, entry):
            continue
        if path.partition("/")[0] not in TABLES:
            if (source := copies.of_file(entry.length, entry.check)) is not None:
                yield Replacement(directory / path, source)
            continue
        table = block_table(directory, path, entry)
        if table is None:
            table = copies.table_of(entry)
            source = copies.of_file(len(table), entry.check) if table is not None else None
            if table is None or source is None:
                continue
            yield Replacement(directory / f"{path}{names.CHECK}", source)
        if not column_has_bytes(directory / path, entry, table) and (source := copies.of_column(entry.length, table)) is not None:
            yield Replacement(directory / path, source)


def _lost_control(directory: Path, copies: Copies) -> tuple[Control | None, Path | None]:
    """A control of this very directory that stands elsewhere: under another name, in the log, or in a mirror."""
    name = names.parse_state(directory.name)
    for path, control in copies.controls():
        if name is None or (control.state, control.phase) != (name.number, name.phase):
            continue
        entry = control.files.get(_CONTROL_OF)
        if entry is not None and block_table(directory, _CONTROL_OF, entry) is not None:
            return control, path
    return None, None


def carry_out(database: Database, replacements: Sequence[Replacement]) -> None:
    """Put everything back. What is staged already is there to be found, and goes when all is in its place."""
    for file in replacements:
        _stage(file, is_ours=file.source.is_relative_to(database.path))
    for directory in sorted({file.path.parent for file in replacements}):
        fsio.sync_directory(directory)
    for file in replacements:
        fsio.rename(_place(file), file.path)


def discard_staged(database: Database) -> None:
    """Remove the staged copies: every file that they were for is whole."""
    for path in staged(database):
        fsio.unlink(path)


def _stage(file: Replacement, is_ours: bool) -> None:
    """A link; a copy of what stands in a mirror, which would else share its bytes, and of a harvest, which may still grow."""
    place = _place(file)
    if place == file.source:
        return
    if not place.parent.is_dir():
        fsio.make_directory(place.parent)
    fsio.unlink(place)  # of a repair that was killed while it copied
    if is_ours and not file.is_appended and not file.source.stat().st_mode & 0o222:
        with contextlib.suppress(IoFailed):
            fsio.link(file.source, place)
            return
    try:
        fsio.copy_file(file.source, place, file.is_appended)
    except (NoSpace, IoFailed, Corruption):
        fsio.unlink(place)
        raise


def _place(file: Replacement) -> Path:
    return file.path.with_name(names.staged(file.path.name))
