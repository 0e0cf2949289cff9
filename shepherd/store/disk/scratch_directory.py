"""Directories of scratch files: what a program puts aside while it works, and what only it and its workers read.

The files have names, so that a process that was not forked from their maker, or one on another machine that shares the file
system, can open them. Nothing in them counts: they are never synced. The directory goes when the work ends, however it ends. One
that a killed program left is removed by the next holder of the lock; in the system's own place for such things, by the next
program that looks for room there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

from shepherd.errors import ShepherdError
from shepherd.store.disk import fsio, locks, names

_COUNTER = itertools.count(1)  # of this process
_OWN_NAMES: Final[set[str]] = set()  # of directories that this process has, or had


class ScratchDirectory:
    """One directory, made when it is first asked for."""

    def __init__(self, path: Path, is_private: bool = False) -> None:
        self._path, self._is_private = path, is_private
        self._is_made = False

    @property
    def path(self) -> Path:
        if not self._is_made:
            make = fsio.add_private_directory if self._is_private else fsio.add_directory
            make(self._path)
            self._is_made = True
        return self._path

    def remove(self) -> None:
        """Remove the directory with all that is in it, if it was made."""
        if self._is_made:
            fsio.remove_tree(self._path)
            self._is_made = False


def without_lock(parent: Path | None, time_ms: int) -> ScratchDirectory:
    """For a program that does not hold the lock: in a directory of the database, or, for None, wherever the system likes."""
    if parent is None:
        parent = Path(tempfile.gettempdir())
        _remove_leftovers(parent)
    item = names.item(time_ms, socket.gethostname(), os.getpid(), next(_COUNTER))
    name = names.scratch_beside(item)
    _OWN_NAMES.add(name)
    return ScratchDirectory(parent / name, is_private=True)


def _remove_leftovers(parent: Path) -> None:
    """Remove our own directories whose programs have ended: others have theirs there, too."""
    entries: list[str] = []
    with contextlib.suppress(OSError):  # room there can be had also where nobody may look
        entries = sorted(os.listdir(parent))
    for entry in entries:
        maker = names.parse_half_item(entry)
        if maker is None or not entry.endswith(names.SCRATCH_TMP) or not _is_leftover(entry, *maker):
            continue
        path = parent / entry
        with contextlib.suppress(ShepherdError, OSError):
            if os.lstat(path).st_uid == os.geteuid():
                fsio.remove_tree(path)


def _is_leftover(name: str, host: str, pid: int) -> bool:
    """Whether its program has ended. In a container, one that was killed may have had the number that we have now."""
    if pid == os.getpid() and locks.is_own_host(host):
        return name not in _OWN_NAMES
    return locks.is_gone(host, pid)
