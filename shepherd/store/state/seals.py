"""Seals: the modes of what a database has. A copy may lose them, and what is not sealed is never linked.

A file of a finished directory can be read by its owner and written by nobody; what is not finished, locks and leases are its
owner's to read and write, and directories to enter and empty. Invariant: bytes are never changed here.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from shepherd.store.disk import fsio, kinds, names

Judge: TypeAlias = Callable[[Path, int], "BrokenSeal | None"]
UNSEALED: Final = "it can be written, as after a copy; the next program that writes here, or shep-recover, seals it again"
CLOSED_TO_OWNER: Final = "its mode keeps its owner out; the next program that writes here, or shep-recover, lets him in again"


@dataclass(frozen=True)
class BrokenSeal:
    """A file or directory with another mode than it needs."""

    path: Path
    mode: int
    what: str


def broken(db: Path) -> Iterator[BrokenSeal]:
    """From the top down: whoever mends one before asking for the next gets into what was closed."""
    yield from of_lock(db)
    yield from _in_directory(db / names.LEASES, _open_file)
    yield from _in_directory(db / names.STATES, lambda path, mode: None, deep=False)
    for name in _entries(db / names.STATES):
        if names.parse_state(name) is not None:
            yield from in_state(db / names.STATES / name)


def of_lock(db: Path) -> Iterator[BrokenSeal]:
    """Of the lock itself, which is taken before anything is mended."""
    mode = kinds.mode_at(db / names.LOCK)
    seal = _open_file(db / names.LOCK, mode) if stat.S_ISREG(mode) else None
    if seal is not None:
        yield seal


def in_state(state: Path) -> Iterator[BrokenSeal]:
    """Of one finished directory."""
    yield from _in_directory(state, of_file)
    yield from _in_directory(state / names.HARVESTS, _open_file)


def restore(db: Path, seals: Iterator[BrokenSeal] | None = None) -> list[BrokenSeal]:
    """Mend all of them, or these, for the holder of the lock; what was mended."""
    mended = []
    for seal in seals if seals is not None else broken(db):
        fsio.restore_mode(seal.path, seal.mode)
        mended.append(seal)
    return mended


def of_file(path: Path, mode: int) -> BrokenSeal | None:
    """What is wrong with the mode of a file that is finished."""
    if mode & 0o222:
        return BrokenSeal(path, (mode & 0o444) | 0o400, UNSEALED)
    return BrokenSeal(path, (mode & 0o444) | 0o400, CLOSED_TO_OWNER) if not mode & 0o400 else None


def _open_file(path: Path, mode: int) -> BrokenSeal | None:
    """The same of one that is not: what a cork has sealed may stay so."""
    return BrokenSeal(path, (mode & 0o777) | 0o600, CLOSED_TO_OWNER) if not mode & 0o400 else None


def _in_directory(directory: Path, judge: Judge, deep: bool = True) -> Iterator[BrokenSeal]:
    """Of a directory and all below it, but for harvests."""
    mode = kinds.mode_at(directory)
    if not stat.S_ISDIR(mode):
        return
    if mode & 0o700 != 0o700:
        yield BrokenSeal(directory, stat.S_IMODE(mode) | 0o700, CLOSED_TO_OWNER)
    for name in _entries(directory) if deep else ():
        path = directory / name
        mode = kinds.mode_at(path)
        if stat.S_ISDIR(mode) and name != names.HARVESTS:
            yield from _in_directory(path, judge)
        elif stat.S_ISREG(mode) and (seal := judge(path, stat.S_IMODE(mode))) is not None:
            yield seal


def _entries(directory: Path) -> list[str]:
    """What is in a directory; nothing where there is none, or where we are kept out."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return sorted(os.listdir(directory))
    return []
