"""The directory of a mirror: a database all of whose states came from elsewhere. mirror_note.py knows which did.

In all else a mirror is like any other database: readers, shep-check and shep-recover need not know. Once somebody has made a
state in it, it is a database of its own, and nothing is received into it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shepherd.errors import CHECK_LISTS, Corruption, UsageError
from shepherd.formats.check import check64
from shepherd.store.disk import fsio, names, opening
from shepherd.store.disk.names import StateName
from shepherd.store.disk.probe import probe
from shepherd.store.state import mirror_note
from shepherd.store.state.database import Database, refuse_foreign

_ADVICE: Final = "to mirror the source again give --db another directory; this one is a database of its own now"
_COPY: Final = "to mirror into a copy of the source's database, say --adopt; for anything else give --db another directory"


def open_existing(path: Path) -> Database | None:
    """The database at `path`, or None where one may be made."""
    _refuse_links(path)
    if (path / names.STATES).is_dir():
        return Database(path)
    refuse_foreign(path)
    return None


def create(path: Path) -> Database:
    """The database at `path`; if none is there, one without any state, which comes last, so that half made is not made."""
    database = open_existing(path)
    if database is None:
        probe(path)
        fsio.close_to_others(path)
        for directory in (names.INBOX, names.LEASES, names.LOGS, names.STATES):
            fsio.make_directory(path / directory)
        database = Database(path)
    return database


def _refuse_links(path: Path) -> None:
    """UsageError where a mirror would write and delete behind a link. `path` itself may be one: it is what the operator named."""
    for name in (names.STATES, names.INBOX, names.LEASES, names.LOGS):
        if (path / name).is_symlink():
            raise UsageError(
                f"{path / name}: a link, and a mirror has only directories of its own; "
                "remove it, or give --db a directory on the disk that it leads to"
            )


def control_of(database: Database, name: StateName) -> bytes:
    """The control file of a state, as it is."""
    path = database.states_path / str(name) / names.CONTROL
    try:
        return opening.read_file(path)
    except FileNotFoundError:
        raise Corruption("the file is missing", path, advice=CHECK_LISTS) from None


def unknown(database: Database) -> list[StateName]:
    """The closed states that are not noted as received: made here, or copied here by hand. A directory that is not closed is
    somebody's work, and refused."""
    checks, states = mirror_note.read_note(database.path), []
    for name in database.states():
        if not fsio.is_directory(database.states_path / str(name)):
            raise UsageError(f"{database.states_path / str(name)}: a link, where a mirror has a state; remove it")
        if not name.closed:
            raise UsageError(f"{database.states_path / str(name)}: this database gathers by itself; {_ADVICE}")
        if checks.get(name.number) != check64(control_of(database, name)):
            states.append(name)
    return states


def not_received(database: Database, name: StateName) -> UsageError:
    """What is to be said of an unknown state where nobody has said that it is a copy."""
    where = database.states_path / str(name)
    return UsageError(f"{where}: no mirror has received this state, it was made here or copied here by hand; {_COPY}")


def is_served_by(database: Database, lease: str) -> bool:
    """Whether a lease that a server has given is one of ours: then it serves this very directory."""
    return database.leases.find(lease) is not None


def made_here(database: Database, name: StateName) -> UsageError:
    """What is to be said of an unknown state that the source does not have either."""
    return UsageError(f"{database.states_path / str(name)}: the source does not have this state, it was made here; {_ADVICE}")
