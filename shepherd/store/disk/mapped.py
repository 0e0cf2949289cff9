"""Files mapped into memory, and the safe way to their bytes: touch a range, then use it.

A sector that fails kills a process that meets it in a mapping (SIGBUS), without a word. Touching asks the kernel to bring the
pages in first: there the same failure is an error, and becomes a sentence and exit status 13. Measured on a column of 100 MB: no
slower than the bare mapping, where reading the bytes with a system call takes a third longer.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from shepherd.store.disk import opening

_POPULATE_READ: Final = 22  # MADV_POPULATE_READ; Python 3.11 has no name for it
_STEP: Final = 1 << 20


class Mapped:
    """One file. Only bytes that `touch` has returned may be looked at."""

    def __init__(self, path: Path) -> None:
        """FileNotFoundError passes: the caller knows what that means."""
        self.path = path
        fd = opening.open_regular(path)
        try:
            with opening.reading(path):
                self.length = os.fstat(fd).st_size
                self._map = mmap.mmap(fd, self.length, access=mmap.ACCESS_READ) if self.length else None
        finally:
            os.close(fd)  # the mapping has one of its own, and a state has many columns
        self.bytes: mmap.mmap | bytes = self._map or b""  # all of it; what lies outside what was touched may kill
        self.view = memoryview(self.bytes)

    def read_in_order(self) -> None:
        """Ranges will be touched front to back: the kernel then reads large pages ahead, not small ones around each place."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_SEQUENTIAL)

    def touch(self, start: int, stop: int) -> memoryview:
        """These bytes, in memory."""
        stop = min(stop, self.length)
        if self._map is None or start >= stop:
            return memoryview(b"")
        page = start - start % mmap.PAGESIZE
        try:
            self._map.madvise(_POPULATE_READ, page, stop - page)
        except OSError:  # before Linux 5.14 there is no such call; since then the read shows what the disk says
            self._read(page, stop)
        return self.view[start:stop]

    def _read(self, start: int, stop: int) -> None:
        fd = opening.open_regular(self.path)
        try:
            for offset in range(start, stop, _STEP):
                opening.read_at(self.path, fd, min(_STEP, stop - offset), offset)
        finally:
            os.close(fd)
