"""Collects the links that reapers send into contrib blocks, and drops what was already contributed in this reap.

The hot cache holds (site, path) -> best parent weight: a link to what was already contributed with at least this weight cannot
change anything in merge. It is only an economy; what it forgets costs nothing but space. It lives as long as one run of a reap,
so nothing in it outlives a rollback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from shepherd.formats import contrib
from shepherd.formats.check import Bytes
from shepherd.formats.contrib import Block
from shepherd.formats.tables import I64, U16, U64, Array, Bools

FLUSH_RECORDS: Final = 20_000
CACHE_BITS: Final = 20
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)  # paths as "/" are the same on every site
_KEYS: Final = ("norm", "path", "site", "lastmod", "parent_weight", "flags", "section")


class HotCache:
    """One place for each footprint, shared with those that fall on it too: the newest stays. 20 bytes an entry, none grows."""

    def __init__(self, bits: int = CACHE_BITS) -> None:
        self._shift = np.uint64(64 - bits)
        self._site, self._path = np.zeros(1 << bits, np.uint64), np.zeros(1 << bits, np.uint64)
        self._weight = np.zeros(1 << bits, np.uint32)  # one more than the weight; 0 = nothing here

    def covers(self, site: U64, path: U64, weight: U16) -> Bools:
        """Which were put with at least this weight."""
        place = self._places(site, path)
        is_known = (self._site[place] == site) & (self._path[place] == path)
        return np.asarray(is_known & (self._weight[place] > weight))

    def put(self, site: U64, path: U64, weight: U16) -> None:
        place = self._places(site, path)
        self._site[place], self._path[place], self._weight[place] = site, path, weight.astype(np.uint32) + np.uint32(1)

    def _places(self, site: U64, path: U64) -> U64:
        return np.asarray((path + site * _MIX) >> self._shift)


class Contributions:
    def __init__(self, write: Callable[[int, Bytes], None], filter_version: int, cache: HotCache | None = None) -> None:
        """`write(records, block)` appends a block to the contrib log."""
        self._write, self._filter_version = write, filter_version
        self._cache = cache or HotCache()
        self._parts: list[dict[str, Array]] = []
        self._texts: list[bytes] = []
        self._sites: dict[int, tuple[int, bytes]] = {}  # norm and name
        self._parents: list[tuple[U64, U64]] = []
        self._parent_count = 0
        self.link_count = 0
        self.new_link_count = 0

    def fresh(self, block: Block) -> I64:
        """The rows of a block that are not known to have been contributed, or that say when their document was modified."""
        return np.flatnonzero(~self._cache.covers(block.site, block.path, block.parent_weight) | (block.lastmod > 0))

    def add(self, block: Block, rows: I64, texts: list[bytes]) -> None:
        """Take the links of one page: those of `rows`, which `fresh` gave, with their texts."""
        self.link_count += len(block)
        if not len(rows):
            return
        self.new_link_count += len(rows)
        columns = {name: getattr(block, name)[rows] for name in (*_KEYS, "parent")}
        columns["parent"] = columns["parent"] + np.uint32(self._parent_count)
        self._cache.put(columns["site"], columns["path"], columns["parent_weight"])
        self._parts.append(columns)
        self._texts += texts
        self._sites.update(zip(block.sites.tolist(), zip(block.norms.tolist(), block.names, strict=True), strict=True))
        self._parents.append((block.parents_site, block.parents_path))
        self._parent_count += len(block.parents_site)
        if len(self._texts) >= FLUSH_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected, as one block."""
        if not self._parts:
            return
        columns = {name: np.concatenate([part[name] for part in self._parts]) for name in (*_KEYS, "parent")}
        sites = np.unique(columns["site"])
        norms_and_names = [self._sites[site] for site in sites.tolist()]
        block = Block(
            **columns,
            texts=self._texts,
            sites=sites,
            norms=np.array([norm for norm, _name in norms_and_names], np.uint64),
            names=[name for _norm, name in norms_and_names],
            parents_site=np.concatenate([site for site, _path in self._parents]),
            parents_path=np.concatenate([path for _site, path in self._parents]),
            filter_version=self._filter_version,
        )
        self._write(len(block), contrib.encode(block))
        self._parts, self._texts, self._sites, self._parents, self._parent_count = [], [], {}, [], 0
