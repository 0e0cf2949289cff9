"""Where the bytes of a file stand once more: in a state, in a harvest, in the inbox, among kept journals, or in a mirror.

What a control names is known by its length and checksum, so a copy is found whatever it is called: the hard link of an older
state, the segment of a harvest that cork took over, or the file that somebody swapped it with. Invariant: a file counts as a copy
only after all of its bytes were read and are those that are looked for. Nothing is written.
"""

from __future__ import annotations

import contextlib
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from shepherd.errors import Corruption, IoFailed, UsageError
from shepherd.formats import frame
from shepherd.formats.check import BLOCK, check64
from shepherd.formats.checkpoint import Checkpoint, Mark
from shepherd.formats.control import Control, FileEntry, is_intact, parse_control
from shepherd.formats.tables import TABLES
from shepherd.store.check import salvage
from shepherd.store.check.files import newest_point
from shepherd.store.disk import names, opening
from shepherd.store.state import logs

TITLE = b"shepherd-control "


class Copies:
    """All regular files below some directories, by their length. They are listed when the first one is looked for."""

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = list(roots)
        self._paths: dict[int, list[Path]] | None = None
        self._checks: dict[tuple[int, int], int] = {}  # by device and inode, of files that were read whole

    def of_file(self, length: int, check: int) -> Path | None:
        """A file of this length and checksum."""
        return next((path for path in self._of_length(length) if self._check(path) == check), None)

    def of_column(self, length: int, table: bytes) -> Path | None:
        """A file whose blocks are those of a block table."""
        return next((path for path in self._of_length(length) if _has_blocks(path, table)), None)

    def table_of(self, entry: FileEntry) -> bytes | None:
        """The block table of a column that a control names."""
        path = self.of_file(_blocks(entry.length) * 8, entry.check)
        return None if path is None else bytes(salvage.map_file(path) or b"")

    def of_mark(self, mark: Mark) -> Path | None:
        """A file of a harvest, by what a checkpoint says of its first bytes."""
        longer = (path for length, paths in self._listed().items() if length >= mark.length for path in paths)
        return next((path for path in longer if has_mark(path, mark)), None)

    def checkpoint_logs(self) -> Iterator[tuple[Path, Checkpoint]]:
        """Every log of checkpoints, wherever it stands, and its newest one."""
        for path in self._all():
            if _begins(path, frame.MAGIC):
                with contextlib.suppress(Corruption):
                    if (point := newest_point(path)) is not None:
                        yield path, point

    def controls(self) -> Iterator[tuple[Path, Control]]:
        """Every control that can be read, wherever it stands."""
        for path in self._all():
            data = bytes(_bytes(path) or b"") if _begins(path, TITLE) else b""
            if is_intact(data):
                try:
                    yield path, parse_control(data, str(path))
                except (Corruption, UsageError):
                    continue

    def _check(self, path: Path) -> int | None:
        try:
            status = path.stat()
        except OSError:
            return None
        key = status.st_dev, status.st_ino
        if key not in self._checks:
            data = _bytes(path)
            if data is None:
                return None
            self._checks[key] = check64(memoryview(data))
        return self._checks[key]

    def _of_length(self, length: int) -> list[Path]:
        return self._listed().get(length, [])

    def _all(self) -> Iterator[Path]:
        return (path for paths in self._listed().values() for path in paths)

    def _listed(self) -> dict[int, list[Path]]:
        """One path for each file, however many links it has."""
        if self._paths is None:
            by_length, inodes = defaultdict[int, list[Path]](list), set[tuple[int, int]]()
            for path in (path for root in self._roots for path in opening.files_below(root)):
                try:
                    status = path.lstat()
                except OSError:
                    continue  # deleted since it was listed
                if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) not in inodes:
                    inodes.add((status.st_dev, status.st_ino))
                    by_length[status.st_size].append(path)
            self._paths = dict(by_length)
        return self._paths


def has_bytes(directory: Path, path: str, entry: FileEntry) -> bool:
    """Whether a file of a state directory, with its block table if it is a column, is what a control says."""
    if path.partition("/")[0] not in TABLES:
        data = _bytes(directory / path)
        return data is not None and len(data) == entry.length and check64(memoryview(data)) == entry.check
    table = block_table(directory, path, entry)
    return table is not None and column_has_bytes(directory / path, entry, table)


def has_mark(path: Path, mark: Mark) -> bool:
    """Whether the first bytes of a file are those that a checkpoint calls durable."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and logs.mark(path, mark.length) == mark
    except OSError:
        return False


def block_table(directory: Path, path: str, entry: FileEntry) -> bytes | None:
    """The block table of a column, if it is the one that its control names."""
    data = _bytes(directory / f"{path}{names.CHECK}")
    return bytes(data) if data is not None and check64(bytes(data)) == entry.check else None


def column_has_bytes(path: Path, entry: FileEntry, table: bytes) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == entry.length and _has_blocks(path, table)


def _has_blocks(path: Path, table: bytes) -> bool:
    data, checks = _bytes(path), np.frombuffer(table, "<u8")
    if data is None or _blocks(len(data)) != len(checks):
        return False
    view = memoryview(data)
    return all(check64(view[n * BLOCK : (n + 1) * BLOCK]) == check for n, check in enumerate(checks.tolist()))


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _bytes(path: Path) -> salvage.Bytes | None:
    """The bytes of a regular file that we may read. That the disk does not give them is an error: nothing follows from it."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        return salvage.map_file(path)
    except OSError:
        return None
    except IoFailed as error:
        if isinstance(error.__cause__, PermissionError):
            return None
        raise


def _begins(path: Path, title: bytes) -> bool:
    try:
        with opening.open_stream(path) as file, opening.reading(path):
            return file.read(len(title)) == title
    except FileNotFoundError:
        return False
    except IoFailed as error:
        if isinstance(error.__cause__, PermissionError):
            return False
        raise
