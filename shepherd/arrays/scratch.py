"""Arrays put aside in scratch files: read or mapped again they cost no private memory.

Arrays are appended with write(), never through a mapping: so a full disk is an error, and does not kill the process. A file is
passed on to another process as its name; only the process that made it removes it.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np

from shepherd.errors import IoFailed, ShepherdError
from shepherd.formats.check import raw
from shepherd.formats.tables import Array
from shepherd.store.disk import fsio, names, opening

_COUNTER = itertools.count(1)  # of this process: it is the only one that makes files in its scratch directory


class ScratchFile:
    """What was written, for whoever knows its name."""

    def __init__(self, path: Path, length: int) -> None:
        self.path, self.length = path, length
        self._fd = -1  # opened when first used
        self._closing: weakref.finalize[..., ScratchFile] | None = None  # closes it when nobody has it any more

    def __reduce__(self) -> tuple[Callable[[Path, int], ScratchFile], tuple[Path, int]]:
        return ScratchFile, (self.path, self.length)

    def mapped(self) -> mmap.mmap:
        """All of it; the mapping outlives the file."""
        return mmap.mmap(self._descriptor(), self.length, prot=mmap.PROT_READ)

    def fill(self, array: Array, offset: int) -> None:
        """Read what stands at an offset into an array."""
        view = raw(array)
        while view:
            with fsio.typed_errors(self.path):
                read_bytes = os.preadv(self._descriptor(), [view], offset)
            if not read_bytes:
                raise IoFailed(f"a temporary file ends at {offset}; run the same program again", self.path)
            view, offset = view[read_bytes:], offset + read_bytes

    def _descriptor(self) -> int:
        if self._fd < 0:
            try:
                self._fd = opening.open_regular(self.path)
            except FileNotFoundError:
                raise IoFailed("a temporary file is gone; run the same program again", self.path) from None
            self._closing = weakref.finalize(self, os.close, self._fd)
        return self._fd

    def close(self) -> None:
        if self._closing is not None:
            self._closing()
        self._fd, self._closing = -1, None


class Scratch(ScratchFile):
    """A new file in a scratch directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / names.scratch_file(next(_COUNTER)), 0)
        self._writer = fsio.AppendFile(self.path)

    def append(self, array: Array, align: int = 1) -> int:
        """The offset of the array in the file; what follows it begins at a multiple of `align`."""
        offset, padding = self.length, -array.nbytes % align
        for data in (raw(array), bytes(padding)):
            if len(data):
                self._writer.write(data)
        self.length += array.nbytes + padding
        return offset

    def close(self) -> None:
        """Remove the file; what is mapped stays until it is used no more."""
        super().close()
        self._writer.close()
        fsio.unlink(self.path)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(*([ShepherdError] if error else [])):  # the failure that brought us here is the one to report
            self.close()


def put_aside(array: Array, directory: Path) -> Array:
    """The same values, to be read only."""
    if not len(array):
        return array
    with Scratch(directory) as file:
        file.append(array)
        return np.frombuffer(file.mapped(), array.dtype).reshape(array.shape)
