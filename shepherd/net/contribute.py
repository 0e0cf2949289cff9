"""Collects the links that reapers send into contrib blocks, and drops what was already contributed in this reap.

The hot cache holds (site, path) -> best parent weight: a link to what was already contributed with at least this weight cannot
change anything in merge. It is only an economy; emptied at any time, nothing but space is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from shepherd.formats import contrib
from shepherd.formats.check import Bytes
from shepherd.formats.contrib import Block
from shepherd.formats.tables import Array, Bools

FLUSH_RECORDS: Final = 20_000
CACHE_ENTRIES: Final = 1_000_000
_KEYS: Final = ("norm", "path", "site", "lastmod", "parent_weight", "flags", "section")


class Contributions:
    def __init__(self, write: Callable[[int, Bytes], None], filter_version: int) -> None:
        """`write(records, block)` appends a block to the contrib log."""
        self._write, self._filter_version = write, filter_version
        self._blocks: list[Block] = []
        self._pending = 0
        self._cache: dict[bytes, int] = {}
        self.seen = 0
        self.kept = 0

    def add(self, block: Block) -> None:
        """Take the links of one page."""
        fresh = self._fresh(block)
        self.seen += len(block)
        kept = int(fresh.sum())
        if not kept:
            return
        self.kept += kept
        self._blocks.append(block if kept == len(block) else _take(block, fresh))
        self._pending += kept
        if self._pending >= FLUSH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected, as one block."""
        if self._blocks:
            self._write(self._pending, contrib.encode(_join(self._blocks, self._filter_version)))
            self._blocks, self._pending = [], 0

    def _fresh(self, block: Block) -> Bools:
        if len(self._cache) > CACHE_ENTRIES:
            self._cache.clear()
        keys = np.stack([block.site, block.path], axis=1).tobytes()
        weights = block.parent_weight.tolist()
        fresh = np.zeros(len(block), bool)
        for i, weight in enumerate(weights):
            key = keys[16 * i : 16 * i + 16]
            if self._cache.get(key, -1) < weight:
                self._cache[key] = weight
                fresh[i] = True
        return fresh


def _take(block: Block, mask: Bools) -> Block:
    columns: dict[str, Array] = {name: getattr(block, name)[mask] for name in (*_KEYS, "parent")}
    used = np.isin(block.sites, columns["site"])
    return Block(
        **columns,
        texts=[text for text, keep in zip(block.texts, mask.tolist(), strict=True) if keep],
        sites=block.sites[used],
        norms=block.norms[used],
        names=[name for name, keep in zip(block.names, used.tolist(), strict=True) if keep],
        parents_site=block.parents_site,
        parents_path=block.parents_path,
        filter_version=block.filter_version,
    )


def _join(blocks: list[Block], filter_version: int) -> Block:
    columns: dict[str, Array] = {name: np.concatenate([getattr(b, name) for b in blocks]) for name in _KEYS}
    sites, first = np.unique(np.concatenate([b.sites for b in blocks]), return_index=True)
    names = [name for b in blocks for name in b.names]
    starts = np.cumsum([0, *(len(b.parents_site) for b in blocks[:-1])])
    return Block(
        **columns,
        parent=np.concatenate([b.parent + np.uint32(start) for b, start in zip(blocks, starts.tolist(), strict=True)]),
        texts=[text for b in blocks for text in b.texts],
        sites=sites,
        norms=np.concatenate([b.norms for b in blocks])[first],
        names=[names[i] for i in first.tolist()],
        parents_site=np.concatenate([b.parents_site for b in blocks]),
        parents_path=np.concatenate([b.parents_path for b in blocks]),
        filter_version=filter_version,
    )
