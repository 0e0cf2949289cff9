"""Columns: raw arrays in files, with a block table that is verified as blocks are touched (docs/formats.md).

Invariant: no byte of a column reaches a caller before the block it stands in has been brought into memory and checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from shepherd.errors import CHECK_LISTS, Corruption
from shepherd.formats.check import BLOCK, Bytes, check64, raw
from shepherd.formats.control import FileEntry
from shepherd.formats.tables import I64, Array, Columns
from shepherd.formats.texts import Spans
from shepherd.store.disk import fsio, names
from shepherd.store.disk.mapped import Mapped


class Column:
    """One column, mapped, never loaded whole."""

    def __init__(self, path: Path, dtype: str, entry: FileEntry) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        if entry.length % self.dtype.itemsize:
            raise Corruption(f"{entry.length} bytes is not a whole number of rows", path)
        self._file = _mapped(path, entry.length)
        self._bytes = np.frombuffer(self._file.view, np.uint8)
        blocks = -(-entry.length // BLOCK)
        table = _mapped(path.with_name(path.name + names.CHECK), blocks * 8)
        if check64(table.touch(0, table.length)) != entry.check:
            raise Corruption("the block table is damaged", table.path)
        self._checks = np.frombuffer(table.view, "<u8")
        self._verified = np.zeros(blocks, bool)
        self._values: Array = self._bytes.view(self.dtype)
        self._in_order = False  # who asks for a range will ask for the next one

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, part: slice) -> Array:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ValueError("a column is read in order")
        if not self._in_order:
            self._in_order = True
            self._file.read_in_order()
        self._verify(np.arange(start * self.dtype.itemsize // BLOCK, -(-stop * self.dtype.itemsize // BLOCK)))
        return self._values[start:stop]

    def take(self, rows: I64 | Array) -> Array:
        """The values at some rows."""
        touched = np.zeros(len(self._verified), np.bool_)
        touched[np.asarray(rows, np.int64) * self.dtype.itemsize // BLOCK] = True
        self._verify(np.flatnonzero(touched))
        return self._values[rows]

    def value(self, row: int) -> int:
        """One value; a bisection asks for many, so this path is short."""
        block = row * self.dtype.itemsize // BLOCK
        if not self._verified[block]:
            self._verify(np.array([block]))
        return int(self._values[row])

    def bytes(self, start: int, stop: int) -> bytes:
        """A range of bytes; for the names of the sites."""
        self._verify(np.arange(start // BLOCK, -(-stop // BLOCK)))
        return self._bytes[start:stop].tobytes()

    def spans(self, starts: I64, ends: I64) -> Spans:
        """Some ranges that are shorter than a block, in place; for the names of the sites."""
        touched = np.sort(np.concatenate([starts, np.maximum(ends - 1, 0)]) // BLOCK)
        self._verify(touched[np.diff(touched, prepend=-1) > 0])
        return Spans(self._bytes, starts, ends - starts)

    def bad_blocks(self) -> Iterable[int]:
        """Offsets of the blocks that do not check."""
        for block in range(len(self._verified)):
            if not self._sound(block):
                yield block * BLOCK

    def _verify(self, blocks: I64) -> None:
        for block in blocks[~self._verified[blocks]].tolist():
            if not self._sound(block):
                raise Corruption("the block is damaged", self.path, block * BLOCK, CHECK_LISTS)
            self._verified[block] = True

    def _sound(self, block: int) -> bool:
        return check64(self._file.touch(block * BLOCK, (block + 1) * BLOCK)) == int(self._checks[block])


def _mapped(path: Path, length: int) -> Mapped:
    try:
        file = Mapped(path)
    except FileNotFoundError:
        raise Corruption("the file is missing", path, advice=CHECK_LISTS) from None
    if file.length != length:
        raise Corruption(f"{file.length} bytes instead of {length}", path, advice=CHECK_LISTS)
    return file


class Table:
    """The columns of one directory, opened when first used."""

    def __init__(self, path: Path, dtypes: Mapping[str, str], entries: Mapping[str, FileEntry]) -> None:
        self.path, self._dtypes, self._entries = path, dtypes, entries
        self._open: dict[str, Column] = {}
        first = next(iter(dtypes))
        self.rows = self._entry(first).length // np.dtype(dtypes[first]).itemsize

    def __getitem__(self, name: str) -> Column:
        if name not in self._open:
            column = Column(self.path / name, self._dtypes[name], self._entry(name))
            if len(column) != self.rows:
                raise Corruption(f"{len(column)} rows, where the table has {self.rows}", self.path / name)
            self._open[name] = column
        return self._open[name]

    @property
    def names(self) -> tuple[str, ...]:
        """What its columns are called."""
        return tuple(self._dtypes)

    def slice(self, start: int, stop: int, columns: Iterable[str] | None = None) -> dict[str, Array]:
        return {name: self[name][start:stop] for name in (columns or self._dtypes)}

    def take(self, rows: Array, columns: Iterable[str] | None = None) -> dict[str, Array]:
        return {name: self[name].take(rows) for name in (columns or self._dtypes)}

    def _entry(self, name: str) -> FileEntry:
        entry = self._entries.get(f"{self.path.name}/{name}")
        if entry is None:
            raise Corruption(f"column {name} is not in control", self.path)
        return entry


class ColumnWriter:
    """Writes one column and its block table, front to back."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = fsio.AppendFile(path)
        self._dtype = np.dtype(dtype)
        self._pending = bytearray()  # the start of a block that is not full yet
        self._checks: list[int] = []

    def append(self, values: Array) -> None:
        self.append_bytes(raw(np.asarray(values, self._dtype)))

    def append_bytes(self, data: Bytes) -> None:
        self._file.write(data)
        view = memoryview(data)
        if self._pending:
            take = min(BLOCK - len(self._pending), len(view))
            self._pending += view[:take]
            view = view[take:]
            if len(self._pending) < BLOCK:
                return
            self._checks.append(check64(self._pending))
            self._pending.clear()
        whole = len(view) - len(view) % BLOCK
        self._checks += [check64(view[start : start + BLOCK]) for start in range(0, whole, BLOCK)]
        self._pending += view[whole:]

    def finish(self) -> FileEntry:
        if self._pending:
            self._checks.append(check64(self._pending))
        table = np.array(self._checks, "<u8").tobytes()
        fsio.write_file(self._file.path.with_name(self._file.path.name + names.CHECK), table)
        self._file.seal()
        return FileEntry(self._file.length, check64(table))

    def discard(self) -> None:
        """Remove what was written."""
        self._file.close()
        fsio.unlink(self._file.path)

    def close(self) -> None:
        self._file.close()


class TableWriter:
    """Writes some columns of a table side by side; every append has all of them, equally long."""

    def __init__(self, path: Path, dtypes: Mapping[str, str]) -> None:
        self._writers = {name: ColumnWriter(path / name, dtype) for name, dtype in dtypes.items()}
        self._prefix = path.name

    def append(self, columns: Columns) -> None:
        if columns.keys() != self._writers.keys() or len({len(c) for c in columns.values()}) > 1:
            raise ValueError(f"{self._prefix}: columns {sorted(columns)} are not the ones begun, or not equally long")
        for name, values in columns.items():
            self._writers[name].append(values)

    def finish(self) -> dict[str, FileEntry]:
        return {f"{self._prefix}/{name}": writer.finish() for name, writer in self._writers.items()}

    def discard(self) -> None:
        """Remove the columns, which are not finished: they can be begun again."""
        for writer in self._writers.values():
            writer.discard()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
