"""Journals of states that are deleted, kept for audits: log/journal/N has the journal of state N, and what judges it.

That is `control`, the journals, the servers and some columns of the sites, all by hard links, so that `State` opens it like one
whose other files nobody asks for. Invariant: a directory has its name when it is complete; what is half made or half deleted
is removed by whoever keeps the next one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shepherd.errors import NoSpace
from shepherd.formats.tables import SERVERS
from shepherd.store import fsio, names
from shepherd.store.names import StateName
from shepherd.store.state import State

DIRECTORY: Final = "journal"
SITE_COLUMNS: Final = ("site", "qkey", "delay_ms", "crawl_delay_ms", "group")
_LOG = logging.getLogger(__name__)


def kept(logs: Path) -> list[StateName]:
    """The states whose journals are kept, oldest first."""
    root = logs / DIRECTORY
    parsed = (names.parse_state(entry) for entry in os.listdir(root)) if root.is_dir() else ()
    return sorted((name for name in parsed if name is not None and name.closed), key=lambda name: name.order)


def opened(logs: Path, name: StateName) -> State:
    """One of `kept`: only its journals, servers and SITE_COLUMNS can be read."""
    return State(logs / DIRECTORY / str(name))


def keep(logs: Path, state: State, most: int) -> None:
    """Keep the journal of a state that is about to be deleted, and of all that are kept the newest `most`.

    On a full disk the journal goes with its state: deleting that is what makes room.
    """
    root = logs / DIRECTORY
    if most and state.numbered(names.JOURNAL) and state.name not in kept(logs):
        try:
            fsio.make_directory(root)
            _link(root, state)
        except NoSpace as error:
            _LOG.warning("the journal of %s is not kept: %s", state.name, error)
    if root.is_dir():
        _remove(root, kept(logs)[: -most or None])


def _link(root: Path, state: State) -> None:
    building = root / names.tmp(state.number)
    if building.exists():
        fsio.remove_tree(building)
    fsio.add_directory(building)
    for table in ("servers", "sites"):
        fsio.add_directory(building / table)
    for path in _wanted(state):
        fsio.link(state.path / path, building / path)
    for directory in (building / "servers", building / "sites", building):
        fsio.sync_directory(directory)
    fsio.rename(building, root / str(state.name))


def _wanted(state: State) -> Iterator[str]:
    yield names.CONTROL
    yield from (names.journal(number) for number in state.numbered(names.JOURNAL))
    for table, columns in (("servers", tuple(SERVERS)), ("sites", SITE_COLUMNS)):
        for column in columns:
            yield f"{table}/{column}"
            yield f"{table}/{column}{names.CHECK}"


def _remove(root: Path, beyond: list[StateName]) -> None:
    for name in beyond:
        fsio.rename(root / str(name), root / names.gone(name))
    for entry in sorted(os.listdir(root)):
        if names.is_leftover(entry):
            fsio.remove_tree(root / entry)
