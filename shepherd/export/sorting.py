"""Lines in order, however many there are: sorted in memory up to a number, beyond it in files without a name, then merged."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from shepherd.store.disk import fsio

LINES: Final = 200_000


class SortedLines:
    def __init__(self, directory: Path, lines: int = LINES) -> None:
        """`directory` is where there is room for them."""
        self._directory, self._most = directory, lines
        self._lines: list[bytes] = []
        self._runs: list[IO[bytes]] = []

    def add(self, line: bytes) -> None:
        """One line, with its end."""
        self._lines.append(line)
        if len(self._lines) >= self._most:
            self._spill()

    def _spill(self) -> None:
        with fsio.typed_errors(self._directory):
            run = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 closed by close
            self._runs.append(run)
            run.writelines(sorted(self._lines))
            run.flush()
            run.seek(0)
        self._lines.clear()

    def __iter__(self) -> Iterator[bytes]:
        return heapq.merge(*self._runs, sorted(self._lines))

    def close(self) -> None:
        for run in self._runs:
            run.close()
