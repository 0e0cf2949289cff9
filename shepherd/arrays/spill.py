"""Arrays put aside between two passes over the partitions, so that they take no private memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType

import numpy as np

from shepherd.arrays.scratch import Scratch
from shepherd.formats.tables import Array, Columns

_ALIGN = 8


class Aside:
    """First everything is added, one set of arrays a partition; then it is read, by the number of the partition."""

    def __init__(self, directory: Path | None) -> None:
        self._file = Scratch(directory)
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
            places[name] = (self._file.append(array, _ALIGN), len(array), array.dtype)
        self._sets.append(places)

    def seal(self) -> None:
        """Nothing is added any more."""
        if self._file.length:
            self._map = self._file.mapped()

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, part: int) -> dict[str, Array]:
        found = {}
        for name, (offset, count, dtype) in self._sets[part].items():
            found[name] = np.frombuffer(self._map, dtype, count, offset) if count and self._map else np.zeros(0, dtype)
        return found
