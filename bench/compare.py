"""Contributions as plain columns, for engines that cannot read contrib blocks: what merge finds in them before it begins."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shepherd.formats import tables
from shepherd.formats.tables import INDEX
from shepherd.store.state.directory import State
from shepherd.urls import Footprints

WEIGHT_GAP = 1_000  # the default of merge.weight_gap


def write_contributed(state: State, directory: Path) -> None:
    """The columns of all contributions that wait in a state, one file each, and the paths that every site has for itself."""
    half = Footprints(state.control.key).half
    special = np.array([half("/robots.txt"), half("/")], np.uint64)
    special.tofile(directory / "special")
    files = {name: (directory / name).open("wb") for name in ("norm", "path", "site", "oid", "weight", "section", "flags", "own")}
    for number in state.numbered("contrib"):
        oid = tables.contrib_oid(number, 0)
        for block in state.contribs(number, with_texts=False):
            columns = {name: getattr(block, name) for name in ("norm", "path", "site", "section", "flags")}
            columns["weight"] = np.maximum(block.parent_weight.astype(np.int64) - WEIGHT_GAP, 1)
            columns["oid"] = np.uint64(oid) + np.arange(len(block), dtype=np.uint64)
            columns["own"] = np.where(np.isin(block.path, special), block.site, np.uint64(0))
            oid += len(block)
            for name, values in columns.items():
                files[name].write(np.asarray(values, INDEX.get(name, "<u8")).tobytes())
    for file in files.values():
        file.close()
