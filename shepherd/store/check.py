"""One walk over a database that names every fault: used by shep-check to tell, and by shep-recover to decide.

Full: every byte against its checksum, then the cross-references. Quick: names, lengths and controls only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shepherd.errors import Corruption, OldFormat, RecoveryNeeded, UsageError
from shepherd.formats import contrib, tables
from shepherd.formats.check import check64
from shepherd.formats.control import FileEntry
from shepherd.formats.frame import Frame, FrameKind
from shepherd.store import harvest, logs, names
from shepherd.store.columns import Column
from shepherd.store.database import Database
from shepherd.store.references import Fault, fault_of, walk_references
from shepherd.store.state import State
from shepherd.urls import KEY_BYTES

__all__ = ["Fault", "size", "walk", "walk_state"]

Tick: TypeAlias = Callable[[int], object]  # told how many bytes have been read
# Device, inode, length and checksum of the files found sound: states share most of them, and each is read once in a walk.
# The checksum is part of it, because another state's control may expect another one of the same file.
Sound: TypeAlias = set[tuple[int, int, int, int]]


def walk(database: Database, quick: bool = False, tick: Tick = lambda n: None) -> Iterator[Fault]:
    """Every fault of the whole database."""
    _refuse_old(database)
    yield from _strangers(database)
    if not database.states():
        yield Fault(database.states_path, None, "no state is there; copy the database back from a mirror")
    sound: Sound = set()
    for name in database.states():
        path = database.states_path / str(name)
        if path.is_file():
            continue  # a stranger
        try:
            faults = list(_walk_state(path, quick, tick, sound))
        except FileNotFoundError:
            if path.exists():
                raise
            continue
        if path.exists():  # else it was superseded and deleted while we looked, and whatever was found was its end
            yield from faults


def _refuse_old(database: Database) -> None:
    """Of an old format nothing can be said; single old states that readers still lease are only mentioned."""
    with contextlib.suppress(Corruption, RecoveryNeeded, OSError):
        database.furthest()


def walk_state(path: Path, quick: bool = False, tick: Tick = lambda n: None) -> Iterator[Fault]:
    """Every fault of one finished directory."""
    yield from _walk_state(path, quick, tick, set())


def size(database: Database) -> int:
    """How many bytes a full walk goes over: for its progress bar."""
    paths = (database.states_path / str(name) for name in database.states())
    return sum(entry.stat().st_size for path in paths for entry in path.rglob("*") if entry.is_file())


# --- around the states ------------------------------------------------------------------------------------------


def _strangers(database: Database) -> Iterator[Fault]:
    for entry in sorted(os.listdir(database.path)):
        if entry not in names.TOP and entry != ".gitignore":
            yield Fault(database.path / entry, None, "not a name of ours; left alone", note=True)
    for entry in sorted(os.listdir(database.states_path)):
        path = database.states_path / entry
        if names.is_leftover(entry):
            yield Fault(path, None, "left by a killed program; the next one removes it", note=True)
        elif names.parse_state(entry) is None:
            yield Fault(path, None, "not a name of ours; left alone", note=True)
        elif path.is_file():
            yield Fault(path, None, "a file, where a state is a directory; move it away", note=True)
    readable = {f"{lease.name}.lease" for lease in database.leases.all()}
    for directory, suffix in ((database.inbox.directory, "req"), (database.leases.directory, "lease")):
        for entry in sorted(os.listdir(directory)) if directory.is_dir() else ():
            item = names.parse_item(entry)
            if entry.startswith(".") or entry == names.LOCK:
                continue
            if item is None or item[1] != suffix:
                yield Fault(directory / entry, None, "not a name of ours; left alone", note=True)
            elif suffix == "lease" and entry not in readable and (directory / entry).exists():
                yield Fault(directory / entry, None, "cannot be read as a lease; it holds nothing", note=True)


# --- one state --------------------------------------------------------------------------------------------------


def _walk_state(path: Path, quick: bool, tick: Tick, sound: Sound) -> Iterator[Fault]:
    if path.is_file():
        yield Fault(path, None, "a file, where a state is a directory; move it away")
        return
    try:
        state = State(path)
    except OldFormat as error:
        yield Fault(path, None, str(error).partition(": ")[2], note=True)
        return
    except (Corruption, UsageError) as error:
        yield fault_of(path / names.CONTROL, error)
        return
    faults = [*_control(state), *_files(state, quick, tick, sound)]
    if not faults and not quick:
        faults = [*_logs(state), *walk_references(state)]
    yield from faults
    for one in state.harvests():
        yield from _harvest(one, quick)


def _control(state: State) -> Iterator[Fault]:
    """Control names every column, all of a table of the same number of rows; its next numbers are free; it has a key."""
    files, control = state.control.files, state.path / names.CONTROL
    for table, dtypes in tables.TABLES.items():
        rows: dict[str, int] = {}
        for name, dtype in dtypes.items():
            if f"{table}/{name}" in files:
                rows[name] = files[f"{table}/{name}"].length // np.dtype(dtype).itemsize
            else:
                yield Fault(state.path / table / name, None, "the column is not in control")
        first = next(iter(rows.values()), 0)
        for name, count in rows.items():
            if count != first:
                yield Fault(state.path / table / name, None, f"{count} rows, where the table has {first}")
    if f"sites/{names.NAMES}" not in files:
        yield Fault(state.path / "sites" / names.NAMES, None, "not in control")
    for kind, numbers, free in (
        ("segment", state.segments(), state.control.segments),
        (names.CONTRIB, state.numbered(names.CONTRIB), state.control.contribs),
        (names.JOURNAL, state.numbered(names.JOURNAL), state.control.contribs),
    ):
        if numbers and numbers[-1] >= free:
            yield Fault(control, None, f"calls number {free} free, but has {kind} {numbers[-1]}")
    if len(state.control.key) != KEY_BYTES:
        yield Fault(control, None, f"its key has {len(state.control.key)} bytes instead of {KEY_BYTES}")


def _files(state: State, quick: bool, tick: Tick, sound: Sound) -> Iterator[Fault]:
    """Exactly the files that control names, each of its length and checksum."""
    files = state.control.files
    expected = {names.CONTROL, *files, *(p + names.CHECK for p in files if p.partition("/")[0] in tables.TABLES)}
    for directory, _, entries in os.walk(state.path):
        inside = os.path.relpath(directory, state.path)
        if inside.partition("/")[0] == names.HARVESTS:
            continue
        for found in entries:
            relative = os.path.normpath(f"{inside}/{found}")
            if relative not in expected:
                yield Fault(state.path / relative, None, "not named in control")
    for path, entry in files.items():
        file = state.path / path
        if not names.known_in_state(path):
            yield Fault(file, None, "control names a file that no state has")
        elif not file.exists():
            yield Fault(file, None, "missing")
        elif file.stat().st_size != entry.length:
            yield Fault(file, min(file.stat().st_size, entry.length), f"{file.stat().st_size} bytes instead of {entry.length}")
        else:
            yield from _bytes(state, path, entry, quick, sound)
            tick(entry.length)


def _bytes(state: State, path: str, entry: FileEntry, quick: bool, sound: Sound) -> Iterator[Fault]:
    """One file against its checksum, unless another state has shown it to be sound."""
    found = (state.path / path).stat()
    key = (found.st_dev, found.st_ino, entry.length, entry.check)
    skip = quick or key in sound
    if path.partition("/")[0] in tables.TABLES:
        faults = list(_column(state, path, skip))
    elif not skip and check64(logs.mapped(state.path / path)) != entry.check:
        faults = list(_damaged(state, path))
    else:
        faults = []
    if not faults and not quick:
        sound.add(key)
    yield from faults


def _column(state: State, path: str, skip: bool) -> Iterator[Fault]:
    """Length and block table always; the blocks themselves unless they may be skipped."""
    table, _, name = path.partition("/")
    dtype = tables.TABLES[table].get(name, "u1")
    try:
        column = Column(state.path / path, dtype, state.control.files[path])
    except Corruption as error:
        yield fault_of(state.path, error)
        return
    for offset in () if skip else column.bad_blocks():
        yield Fault(state.path / path, offset, "the block is damaged")


def _damaged(state: State, path: str) -> Iterator[Fault]:
    """The file's checksum fails: find the record that is to blame."""
    file = state.path / path
    try:
        if path.startswith(f"{names.OBJECTS}/"):
            number = names.parse_segment(path.partition("/")[2])
            assert number is not None
            for oid, _header in state.objects.scan(number):
                state.objects.get(oid)
        elif path != names.REPORT:
            for _frame in logs.read_frames(file):
                pass
        yield Fault(file, None, "the checksum of the file fails")
    except Corruption as error:
        yield fault_of(file, error)


def _logs(state: State) -> Iterator[Fault]:
    """Plan and journals are of whole records, contributions of blocks that expand."""
    paths = [path for path in state.control.files if path == names.PLAN or names.parse_numbered(path) is not None]
    for path in paths:
        try:
            frames = logs.read_frames(state.path / path)
            if path == names.PLAN:
                _exhaust(logs.records_of(frames, FrameKind.PLAN, tables.PLAN))
            elif path.startswith(names.JOURNAL):
                _exhaust(logs.records_of(frames, FrameKind.JOURNAL, tables.JOURNAL))
            else:
                for one in frames:
                    yield from _contrib_block(state.path / path, one)
        except Corruption as error:
            yield fault_of(state.path / path, error)


def _exhaust(records: Iterator[object]) -> None:
    for _one in records:
        pass


def _contrib_block(path: Path, one: Frame) -> Iterator[Fault]:
    if one.kind != FrameKind.CONTRIB:
        yield Fault(path, one.offset, "not a contrib block")
        return
    try:
        contrib.decode(one.payload)
    except Corruption as error:
        yield Fault(path, one.offset, str(error))


def _harvest(path: Path, quick: bool) -> Iterator[Fault]:
    try:
        found = harvest.inspect(path)
    except Corruption as error:
        yield fault_of(path, error)
        return
    if found.damage:
        yield Fault(path, None, found.damage)
    elif not quick:
        try:
            harvest.verify(path)
        except Corruption as error:
            yield fault_of(path, error)
    if not found.ended:
        yield Fault(path, None, "the reap has not ended; shep-reap goes on from its last checkpoint", note=True)
