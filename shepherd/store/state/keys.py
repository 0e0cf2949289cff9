"""Keys of states that readers have had: log/keys/N lists the documents that state N had, long after it is deleted.

An indexer that comes back asks what is new since state N. To answer, the keys and digests of N are enough; they are kept when the
state is first leased for that, by hard links (store/state/kept_files.py), and so cost nothing until the columns change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from shepherd.errors import NoSpace, UsageError
from shepherd.formats.control import CLOSED
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.directory import State
from shepherd.store.state.kept_files import Shelf

if TYPE_CHECKING:
    from shepherd.store.state.database import Database

_LOG: Final = logging.getLogger(__name__)
COLUMNS: Final = ("norm", "path", "site", "digest", "type", "flags", "weight", "section", "gathered")


def compared_files(state: State) -> Iterator[str]:
    """The files of a state by which another can be compared with it."""
    yield from (f"index/{column}" for column in COLUMNS)
    if names.EQUIV in state.control.files:
        yield names.EQUIV


SHELF: Final = Shelf("keys", compared_files)


def keep(database: Database, state: State, most: int) -> None:
    """Remember the keys of a state that the caller has leased, and of all that are remembered the newest `most`.

    On a full disk, or where a link is in their place, they are not: whoever reads the state gets it all the same, and reads
    everything the next time.
    """
    with database.leases.locked():
        if most:
            try:
                SHELF.put(database.log_path, state)
            except (NoSpace, UsageError) as error:
                _LOG.warning("the keys of %s are not kept: %s", state.name, error)
        SHELF.trim(database.log_path, most)


def state_or_keys(database: Database, number: int) -> State:
    """What is known of a state: the state itself, or its keys; UsageError where nothing is."""
    name = StateName(number, CLOSED)
    if name in database.states():
        return database.open(name)
    if name not in SHELF.numbers(database.log_path):
        raise UsageError(f"the content of state {number} is not known any more; read everything, and continue from there")
    return SHELF.open_state(database.log_path, name)
