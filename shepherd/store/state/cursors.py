"""Cursors: how far an export has come that continues where it ended.

log/cursors/NAME/cursor.json names the state, and beside it are the keys of that state (as in keys.py), so that what is new can be
listed long after the state is deleted. A cursor moves when what was exported is durable, in this order: the keys of the new state
are put beside those of the old, then cursor.json is replaced, which is the commit, then the old keys go. Killed anywhere, the
cursor names a state whose keys are there, and the export is made again from that.

Cursors that the configuration names hold every closed state that they have not come to: so no body that a state had is dropped
before it was exported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shepherd.config.faults import CURSOR
from shepherd.errors import Corruption, UsageError
from shepherd.formats.control import CLOSED
from shepherd.store.disk import fsio, locks, names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.state import keys
from shepherd.store.state.directory import State
from shepherd.store.state.kept_files import Shelf

if TYPE_CHECKING:
    from shepherd.store.state.database import Database

DIRECTORY: Final = "cursors"  # in log/
FILE: Final = "cursor.json"


@dataclass(frozen=True)
class Cursor:
    """`choice` is what was exported of the state: what is new is listed of the same. `written` is as what, if that is known."""

    name: str
    state: int
    choice: dict[str, Any] = field(default_factory=dict)
    written: dict[str, Any] | None = None


def is_name(name: str) -> bool:
    return bool(CURSOR.fullmatch(name))


def no_name(name: str) -> str:
    """The message for a name that is not a cursor's."""
    return f"{name!r} is not a name for a cursor: use letters, digits, _ . and -"


def _path(logs: Path, name: str) -> Path:
    if not is_name(name):
        raise UsageError(no_name(name))
    return logs / DIRECTORY / name


def _shelf(name: str) -> Shelf:
    return Shelf(f"{DIRECTORY}/{name}", keys.compared_files)


def read(logs: Path, name: str) -> Cursor | None:
    """None where it never ended an export."""
    return read_file(_path(logs, name) / FILE, name)


def read_file(path: Path, name: str) -> Cursor | None:
    """One that stands wherever it stands."""
    try:
        fields = json.loads(opening.read_file(path))
        cursor = Cursor(name, fields["state"], fields["choice"], fields.get("written"))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        cursor = None
    if (
        cursor is None
        or type(cursor.state) is not int
        or not isinstance(cursor.choice, dict)
        or not isinstance(cursor.written, dict | None)
    ):
        raise Corruption("this is not a cursor; remove it, and the next export is complete", path)
    return cursor


def locked(logs: Path, name: str) -> locks.FileLock:
    """From the look at a cursor until it has moved: of two exports that continue from the same state one would be in vain."""
    path = _path(logs, name)
    for directory in (path.parent, path):
        if directory.is_symlink():
            raise UsageError(f"{directory}: a link; a cursor needs a directory of its own: put the one it leads to in its place")
        fsio.make_directory(directory)
    return locks.lock(path / names.LOCK, "shep-export")


def open_state(database: Database, cursor: Cursor) -> State:
    """The state of a cursor, or its keys."""
    name = StateName(cursor.state, CLOSED)
    shelf = _shelf(cursor.name)
    if name in shelf.numbers(database.log_path):
        return shelf.open_state(database.log_path, name)
    return keys.state_or_keys(database, cursor.state)


def advance(database: Database, cursor: Cursor, state: State) -> None:
    """Move a cursor to a state, which the caller has leased, and of which all that it is for is durable."""
    path, shelf = _path(database.log_path, cursor.name), _shelf(cursor.name)
    with database.leases.locked():
        fsio.make_directory(path.parent)
        fsio.make_directory(path)
        shelf.put(database.log_path, state)
        fields = {key: value for key, value in asdict(cursor).items() if key != "name"} | {"state": state.number}
        fsio.replace_file(path / FILE, json.dumps(fields, sort_keys=True).encode() + b"\n")
        shelf.trim(database.log_path, 1)


def behind(database: Database, cursors: Iterable[str]) -> set[int]:
    """The numbers of the closed states that some of these cursors have not come to."""
    come = [come_to(database.log_path, name) for name in cursors]
    if not come:
        return set()
    return {name.number for name in database.states() if name.closed and name.number > min(come)}


def come_to(logs: Path, name: str) -> int:
    """The state that a cursor has exported last: it holds those above it. One that cannot be read has come nowhere."""
    try:
        cursor = read(logs, name)
    except (Corruption, UsageError):
        return 0
    return cursor.state if cursor is not None else 0
