"""What the directories of states take on the disk: a file that several of them have by hard links is there once.

Invariant: reads names and lengths only, never contents; what vanishes meanwhile is left out.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shepherd.errors import Corruption, IoFailed, UsageError
from shepherd.formats.control import CLOSED, FileEntry
from shepherd.store.disk import names
from shepherd.store.disk.names import StateName
from shepherd.store.state.database import Database
from shepherd.store.state.lease import Lease

_File = tuple[int, int]  # device and inode


@dataclass(frozen=True)
class Usage:
    """Bytes of one directory: of files that no other one has, of files that others have, too, and of those that no newer one
    has: these stay on the disk for as long as it does."""

    own: int
    shared: int
    pinned: int


def usage(database: Database) -> dict[str, Usage]:
    """Of every directory in db/state, the furthest last: finished ones by their names, then what is being built or deleted."""
    root = database.states_path
    leftover = sorted(entry for entry in os.listdir(root) if names.is_leftover(entry))
    files_of = {name: dict(_files(root / name)) for name in (*map(str, database.states()), *leftover)}
    newest: dict[_File, str] = {}
    many: set[_File] = set()
    for name, files in files_of.items():
        many |= newest.keys() & files.keys()
        newest |= dict.fromkeys(files, name)
    return {name: _usage(name, files, newest, many) for name, files in files_of.items()}


def copied(database: Database) -> dict[str, int]:
    """By state, bytes of files that another one before it has, too, and not by a hard link: what a copy without them costs."""
    inodes_of: dict[tuple[str, FileEntry], set[_File]] = {}
    bytes_of = dict.fromkeys(map(str, database.states()), 0)
    for name in database.states():
        with contextlib.suppress(Corruption, UsageError, IoFailed):
            state = database.open(name)
            for path, entry in state.control.files.items():
                with contextlib.suppress(OSError):
                    status = os.lstat(state.path / path)
                    inodes = inodes_of.setdefault((path, entry), set())
                    inode = status.st_dev, status.st_ino
                    bytes_of[str(name)] += status.st_size if inodes and inode not in inodes else 0
                    inodes.add(inode)
    return bytes_of


def pins(lease: Lease, used: Mapping[str, Usage], newest: int | None) -> int | None:
    """Bytes that could be freed but for such a lease: those of the state that no newer one has. The newest state stays anyway."""
    usage_of_state = used.get(str(StateName(lease.state, CLOSED)))
    if usage_of_state is None:
        return None
    return 0 if lease.state == newest else usage_of_state.pinned


def _usage(name: str, files: dict[_File, int], newest: dict[_File, str], many: set[_File]) -> Usage:
    shared = sum(size for file, size in files.items() if file in many)
    pinned = sum(size for file, size in files.items() if newest[file] == name)
    return Usage(sum(files.values()) - shared, shared, pinned)


def _files(directory: Path) -> Iterator[tuple[_File, int]]:
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield (status.st_dev, status.st_ino), status.st_size
