"""Reads what is left of a damaged state directory, and says of every value whether it can be believed.

Nothing here raises on damage, and nothing is written: cycle/rebuild/drive makes a new state from what this finds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shepherd.errors import Corruption, UsageError
from shepherd.formats import frame, tables
from shepherd.formats.check import BLOCK, check64, raw
from shepherd.formats.control import Control, FileEntry, parse_control
from shepherd.formats.frame import Frame
from shepherd.formats.tables import Array, Bools
from shepherd.store.disk import names, opening
from shepherd.store.disk.mapped import Mapped

Bytes: TypeAlias = mmap.mmap | bytes


class LooseColumn:
    """A column of which some blocks, or all, may be damaged or missing."""

    def __init__(self, path: Path, dtype: str, rows: int, entry: FileEntry | None) -> None:
        self.rows, self._dtype = rows, np.dtype(dtype)
        self._bytes, checks = _map(path), _map(path.with_name(path.name + names.CHECK))
        blocks = -(-rows * self._dtype.itemsize // BLOCK)
        table = checks[: len(checks) // 8 * 8].view("<u8")
        # Without control a block table vouches for itself: 64 bits a block do not agree by chance.
        sound = len(checks) == blocks * 8 and (entry is None or check64(raw(checks)) == entry.check)
        self._checks = table if sound else np.zeros(0, "<u8")
        self._sound: dict[int, bool] = {}

    def slice(self, start: int, stop: int) -> tuple[Array, Bools]:
        """The values of some rows, and which of them stand in blocks that check; the others are 0."""
        width = self._dtype.itemsize
        values, valid = np.zeros(stop - start, self._dtype), np.zeros(stop - start, np.bool_)
        for block in range(start * width // BLOCK, -(-stop * width // BLOCK)):
            first, last = max(block * BLOCK // width, start), min((block + 1) * BLOCK // width, stop)
            if self.is_sound(block):
                values[first - start : last - start] = self._bytes[first * width : last * width].view(self._dtype)
                valid[first - start : last - start] = True
        return values, valid

    def values(self) -> Array:
        """All values, mapped; for a column that is whole."""
        values: Array = self._bytes[: self.rows * self._dtype.itemsize].view(self._dtype)
        return values

    def is_sound(self, block: int) -> bool:
        if block not in self._sound:
            data = self._bytes[block * BLOCK : min((block + 1) * BLOCK, self.rows * self._dtype.itemsize)]
            self._sound[block] = block < len(self._checks) and check64(raw(data)) == int(self._checks[block])
        return self._sound[block]

    def is_whole(self) -> bool:
        return all(self.is_sound(block) for block in range(-(-self.rows * self._dtype.itemsize // BLOCK)))


class Wreck:
    """A finished directory with damage somewhere."""

    def __init__(self, path: Path, borrowed: Control, elsewhere: Sequence[Path] = ()) -> None:
        """`borrowed` is the control of another directory of the same database, in case this one has lost its own; `elsewhere`
        are further directories that may have its segments."""
        name = names.parse_state(path.name)
        assert name is not None
        self.path, self.name, self._elsewhere = path, name, elsewhere
        own = own_control(path)
        self.own_control = own is not None
        if own is not None:
            self.control = own
        else:  # what another directory has taken from the inbox is not what this one has
            free = max(self._next_segment(), borrowed.segments), max(self._next_log(), borrowed.contribs)
            self.control = dataclasses.replace(borrowed, applied=(), files={}, segments=free[0], contribs=free[1])

    def segments(self) -> list[int]:
        """The segments that it has, or should have."""
        expected = (names.parse_segment(p.partition("/")[2]) for p in self.control.files if p.startswith(f"{names.OBJECTS}/"))
        places = [self.path] if self.own_control else [self.path, *self._elsewhere]
        there = (names.parse_segment(entry) for place in places for entry in _list(place / names.OBJECTS))
        return sorted({number for number in (*expected, *there) if number is not None})

    def segment_copies(self, number: int) -> list[Path]:
        """Every file that is there of a segment, its own first. A number is given once, so they were the same."""
        paths = [place / names.OBJECTS / names.segment(number) for place in (self.path, *self._elsewhere)]
        files: dict[tuple[int, int], Path] = {}
        for path in paths:
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    files.setdefault((status.st_dev, status.st_ino), path)
        return list(files.values())

    def logs(self) -> list[str]:
        """Its contrib and journal files."""
        return sorted({n for n in (*self.control.files, *_list(self.path)) if names.parse_numbered(n) is not None})

    def rows(self, table: str) -> int:
        """How many rows a table has, or seems to have."""
        first = next(iter(tables.TABLES[table]))
        width = np.dtype(tables.TABLES[table][first]).itemsize
        entry = self.control.files.get(f"{table}/{first}")
        if entry is not None:
            return entry.length // width
        path = self.path / table / first
        return path.stat().st_size // width if path.is_file() else 0

    def column(self, table: str, name: str) -> LooseColumn:
        entry = self.control.files.get(f"{table}/{name}")
        return LooseColumn(self.path / table / name, tables.TABLES[table][name], self.rows(table), entry)

    def names_text(self) -> bytes | None:
        """The names of the sites, end to end, if every byte of them checks."""
        path = self.path / "sites" / names.NAMES
        entry = self.control.files.get(f"sites/{names.NAMES}")
        size = entry.length if entry is not None else path.stat().st_size if path.is_file() else 0
        column = LooseColumn(path, "u1", size, entry)
        return column.slice(0, size)[0].tobytes() if column.is_whole() else None

    def is_sound(self, path: str) -> bool:
        """Whether a file is byte for byte what control says; False where control cannot say."""
        entry, data = self.control.files.get(path), map_file(self.path / path)
        return entry is not None and data is not None and len(data) == entry.length and check64(memoryview(data)) == entry.check

    def frames(self, path: str) -> Iterator[Frame]:
        """The frames of a log that check, wherever they stand."""
        data = map_file(self.path / path)
        offset = 0
        while data is not None and 0 <= offset < len(data):
            log_frame = frame.read_frame(memoryview(data), offset)
            if log_frame is not None:
                yield log_frame
            offset = log_frame.end if log_frame is not None else data.find(frame.MAGIC, offset + 1)

    def _next_segment(self) -> int:
        return 1 + max((n for n in map(names.parse_segment, _list(self.path / names.OBJECTS)) if n is not None), default=0)

    def _next_log(self) -> int:
        return 1 + max((n[1] for n in map(names.parse_numbered, _list(self.path)) if n is not None), default=0)


def own_control(path: Path) -> Control | None:
    """The control of a directory, if it has a sound one that is its own. Of a disk that fails nothing is concluded: that is an
    error."""
    name = names.parse_state(path.name)
    try:
        control = parse_control(opening.read_file(path / names.CONTROL), str(path))
        return control if name is not None and (control.state, control.phase) == (name.number, name.phase) else None
    except (FileNotFoundError, Corruption, UsageError):
        return None


def map_file(path: Path) -> Bytes | None:
    """A file's bytes, mapped; None where it is missing."""
    try:
        file = Mapped(path)
    except FileNotFoundError:
        return None
    file.touch(0, file.length)
    return file.bytes


def _map(path: Path) -> Array:
    data = map_file(path)
    return np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def _list(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
