"""Records put aside by range of their norm, so that a later pass sees one range at a time.

Norms are footprints, so equal ranges of them hold about equally many sites. The files have no names: a crash leaves none behind.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from shepherd.formats.tables import U64, Array

SPACE = 1 << 64


class Spill:
    def __init__(self, directory: Path, ranges: int, dtype: np.dtype[Any]) -> None:
        self._bounds = [SPACE * n // ranges for n in range(ranges + 1)]
        self._dtype = dtype
        self._files = [tempfile.TemporaryFile(dir=directory) for _ in range(ranges)]  # noqa: SIM115 closed by __exit__

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self._files:
            file.close()

    def ranges(self) -> list[tuple[int, int]]:
        """The first norm of each range, and the first one behind it."""
        return list(zip(self._bounds[:-1], self._bounds[1:], strict=True))

    def add(self, norm: U64, records: Array) -> None:
        part = np.searchsorted(np.array(self._bounds[1:-1], np.uint64), norm, side="right")
        order = np.argsort(part, kind="stable")
        cuts = np.searchsorted(part[order], np.arange(len(self._files) + 1))
        ordered = records[order]
        for n, file in enumerate(self._files):
            if cuts[n] < cuts[n + 1]:
                file.write(ordered[cuts[n] : cuts[n + 1]].tobytes())

    def read(self, part: int) -> Array:
        """The records of one range, in the order in which they came."""
        self._files[part].seek(0)
        return np.frombuffer(self._files[part].read(), self._dtype)
