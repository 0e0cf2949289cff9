"""Arrays put aside in files without a name: mapped again they cost no private memory, and a crash leaves none behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from shepherd.formats.check import raw
from shepherd.formats.tables import Array
from shepherd.store import fsio


def put_aside(array: Array, directory: Path | None) -> Array:
    """The same values, to be read only; `directory` is where the file goes, None is wherever the system likes."""
    if not len(array):
        return array
    with fsio.typed(directory or Path(tempfile.gettempdir())), tempfile.TemporaryFile(dir=directory) as file:
        file.write(raw(array))
        file.flush()
        return np.asarray(np.memmap(file, array.dtype, "r", shape=array.shape))  # which outlives the file's descriptor
