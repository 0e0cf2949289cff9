"""Arrays put aside between two passes over the partitions, so that they take no private memory."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType

import numpy as np

from shepherd.arrays.scratch import Scratch, ScratchFile
from shepherd.formats.tables import Array, Columns

_ALIGN = 8
_Places = dict[str, tuple[int, int, np.dtype[np.generic]]]  # by name: offset, length and type of an array


class SealedSpill:
    """The arrays of every partition, in the order in which they were added; whoever knows the file can read them."""

    def __init__(self, file: ScratchFile, sets: list[_Places]) -> None:
        self._file, self._sets = file, sets
        self._map: mmap.mmap | None = None

    def __reduce__(self) -> tuple[type[SealedSpill], tuple[ScratchFile, list[_Places]]]:
        return SealedSpill, (self._file, self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, part: int) -> dict[str, Array]:
        self.map()
        return {
            name: np.frombuffer(self._map, dtype, count, offset) if count and self._map else np.zeros(0, dtype)
            for name, (offset, count, dtype) in self._sets[part].items()
        }

    def map(self) -> None:
        """Once for a process, and for all that are forked from it."""
        if self._map is None and self._file.length:
            self._map = self._file.mapped()


class Spill:
    """First everything is added, one set of arrays a partition; then it is sealed, and read by the number of the partition."""

    def __init__(self, directory: Path) -> None:
        self._file = Scratch(directory)
        self._sets: list[_Places] = []

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.__exit__(kind, error, trace)

    def add(self, arrays: Columns) -> None:
        """The arrays of the next partition."""
        places = {}
        for name, array in arrays.items():
            places[name] = (self._file.append(array, _ALIGN), len(array), array.dtype)
        self._sets.append(places)

    def seal(self) -> SealedSpill:
        """Nothing is added any more."""
        sealed = SealedSpill(self._file, self._sets)
        sealed.map()
        return sealed
