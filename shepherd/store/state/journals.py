"""Journals of states that are deleted, kept for audits: log/journal/N has the journal of state N, and what judges it.

That is the journals, the servers and some columns of the sites (store/state/kept_files.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shepherd.errors import NoSpace, UsageError
from shepherd.formats.tables import SERVERS
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.directory import State
from shepherd.store.state.kept_files import Shelf

SITE_COLUMNS: Final = ("site", "qkey", "delay_ms", "crawl_delay_ms", "group")
_LOG = logging.getLogger(__name__)


def _files(state: State) -> Iterator[str]:
    yield from (names.journal(number) for number in state.numbered(names.JOURNAL))
    for table, columns in (("servers", tuple(SERVERS)), ("sites", SITE_COLUMNS)):
        yield from (f"{table}/{column}" for column in columns)


SHELF: Final = Shelf("journal", _files)


def numbers(logs: Path) -> list[StateName]:
    """The deleted states that have a journal here, oldest first."""
    return SHELF.numbers(logs)


def open_state(logs: Path, name: StateName) -> State:
    """One of `numbers`: only its journals, servers and SITE_COLUMNS can be read."""
    return SHELF.open_state(logs, name)


def keep(logs: Path, state: State, most: int) -> None:
    """Keep the journal of a state that is about to be deleted, and of all that are kept the newest `most`.

    On a full disk the journal goes with its state: deleting that is what makes room. So it does where a link is in its place.
    """
    if most and state.numbered(names.JOURNAL):
        try:
            SHELF.put(logs, state)
        except (NoSpace, UsageError) as error:
            _LOG.warning("the journal of %s is not kept: %s", state.name, error)
    SHELF.trim(logs, most)
