"""Arrays put aside between two passes over the partitions, so that they take no private memory.

They stand in one file without a name, in the order in which they came: a crash leaves nothing behind, and a worker process that
is forked later sees them as its parent does. They are written, not mapped, while they come: a full disk is then an error to be
told, where writing through a map would kill the process.
"""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np

from shepherd.formats.tables import Array, Columns

_ALIGN = 8


class Aside:
    """First everything is added, one set of arrays a partition; then it is read, by the number of the partition."""

    def __init__(self, directory: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 closed by __exit__
        self._length = 0
        self._sets: list[dict[str, tuple[int, int, np.dtype[np.generic]]]] = []
        self._map: mmap.mmap | None = None

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._map = None  # unmapped when the last array that looks into it is gone
        self._file.close()

    def add(self, arrays: Columns) -> None:
        """The arrays of the next partition."""
        places = {}
        for name, array in arrays.items():
            places[name] = (self._length, len(array), array.dtype)
            data = np.ascontiguousarray(array).data.cast("B") if len(array) else b""
            self._file.write(data)
            padding = -array.nbytes % _ALIGN
            self._file.write(bytes(padding))
            self._length += array.nbytes + padding
        self._sets.append(places)

    def seal(self) -> None:
        """Nothing is added any more."""
        self._file.flush()
        if self._length:
            self._map = mmap.mmap(self._file.fileno(), self._length, prot=mmap.PROT_READ)

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, part: int) -> dict[str, Array]:
        found = {}
        for name, (offset, count, dtype) in self._sets[part].items():
            found[name] = np.frombuffer(self._map, dtype, count, offset) if count and self._map else np.zeros(0, dtype)
        return found
