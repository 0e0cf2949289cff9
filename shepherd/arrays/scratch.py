"""Arrays put aside in files without a name: read or mapped again they cost no private memory, and a crash leaves none behind.

They are written, never mapped, while they come: a full disk is then an error to be told, where writing through a map would kill
the process. Processes that are forked later see what was written before.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from types import TracebackType

import numpy as np

from shepherd.errors import IoFailed
from shepherd.formats.check import raw
from shepherd.formats.tables import Array
from shepherd.store.disk import fsio


class Scratch:
    """One file without a name, in `directory` or, for None, wherever the system likes."""

    def __init__(self, directory: Path | None) -> None:
        self._where = directory or Path(tempfile.gettempdir())
        with fsio.typed(self._where):
            self._file = tempfile.TemporaryFile(buffering=0, dir=directory)  # noqa: SIM115 closed by close
        self.length = 0

    def append(self, array: Array, align: int = 1) -> int:
        """Where the array stands from now on; what follows it begins at a multiple of `align`."""
        offset, padding = self.length, -array.nbytes % align
        for view in (raw(array), memoryview(bytes(padding))):
            while view:
                with fsio.typed(self._where):
                    view = view[self._file.write(view) :]
        self.length += array.nbytes + padding
        return offset

    def mapped(self) -> mmap.mmap:
        """All that was written; it outlives the file."""
        return mmap.mmap(self._file.fileno(), self.length, prot=mmap.PROT_READ)

    def fill(self, array: Array, offset: int) -> None:
        """Read what stands at an offset into an array."""
        view = raw(array)
        while view:
            with fsio.typed(self._where):
                got = os.preadv(self._file.fileno(), [view], offset)
            if not got:
                raise IoFailed(f"a temporary file ends at {offset}; run the same program again", self._where)
            view, offset = view[got:], offset + got

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def put_aside(array: Array, directory: Path | None) -> Array:
    """The same values, to be read only."""
    if not len(array):
        return array
    with Scratch(directory) as file:
        file.append(array)
        return np.frombuffer(file.mapped(), array.dtype).reshape(array.shape)
