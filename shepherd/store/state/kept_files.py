"""Shelves: of states that are deleted, or may be soon, some files are kept under log/, by hard links, to be read like a state.

log/NAME/N has `control` of state N and those of its files that the shelf is for; `State` opens it like a state whose other files
nobody asks for. Invariant: a directory has its name when it is complete; what is half made or half deleted is removed by whoever
puts up the next one. Only one process at a time may change a shelf: a caller holds the lock of the writer, or that of the leases.
A link in the place of a shelf is not followed: nothing is read, put or removed where it leads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import UsageError
from shepherd.store.disk import fsio, names
from shepherd.store.disk.names import StateName
from shepherd.store.state.directory import State


@dataclass(frozen=True)
class Shelf:
    name: str
    files: Callable[[State], Iterator[str]]  # which are kept, beside control; columns bring their block tables

    def numbers(self, logs: Path) -> list[StateName]:
        """The states of which something is kept, oldest first."""
        root = logs / self.name
        parsed = (names.parse_state(entry) for entry in os.listdir(root)) if fsio.is_directory(root) else ()
        return sorted((name for name in parsed if name is not None and name.closed), key=lambda name: name.order)

    def open_state(self, logs: Path, name: StateName) -> State:
        """One of `numbers`."""
        return State(logs / self.name / str(name))

    def put(self, logs: Path, state: State) -> None:
        """Keep the files of a state; one that is there already stays as it is. UsageError where a link is in the way."""
        root = logs / self.name
        for place in (root, root / str(state.name)):
            if place.is_symlink():
                raise UsageError(f"{place}: a link, where a directory of ours belongs; remove it")
        if (root / str(state.name)).is_dir():
            return
        fsio.make_directory(root)
        building = root / names.tmp(state.number)
        if os.path.lexists(building):
            fsio.remove_tree(building)
        fsio.add_directory(building)
        directories = {}
        for path in (names.CONTROL, *self.files(state)):
            table = path.rpartition("/")[0]
            if table and table not in directories:
                directories[table] = building / table
                fsio.add_directory(directories[table])
            fsio.link(state.path / path, building / path)
            if table:
                fsio.link(state.path / f"{path}{names.CHECK}", building / f"{path}{names.CHECK}")
        for directory in (*directories.values(), building):
            fsio.sync_directory(directory)
        fsio.rename(building, root / str(state.name))

    def trim(self, logs: Path, most: int) -> None:
        """Remove all but the newest `most`."""
        root = logs / self.name
        if not fsio.is_directory(root):
            return
        for name in self.numbers(logs)[: -most or None]:
            fsio.rename(root / str(name), root / names.gone_state(name))
        for entry in sorted(os.listdir(root)):
            if names.is_leftover(entry):
                fsio.remove_tree(root / entry)
