"""Makes contrib blocks of URLs that no page links to: what an operator inserts or purges, and what an import reads.

Nothing is kept of a URL but its text and three numbers until the block is made; then all footprints are computed at once, those
of a site once in a block.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shepherd.formats.contrib import Block
from shepherd.urls import Footprints

BLOCK_URLS: Final = 1 << 16


class BlockBuilder:
    """Collects URLs for one block after the other. They have no parent, so the parents' table of a block has one empty row.

    Footprints in blocks are those of the implicit rule: a merge applies the equivalences of its state.
    """

    def __init__(self, prints: Footprints, filter_version: int) -> None:
        self._prints, self._filter_version = prints, filter_version
        self._clear()

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def is_full(self) -> bool:
        return len(self._texts) >= BLOCK_URLS

    def add(self, site: str, path: str, weight: int, section: int, flags: int) -> None:
        """A URL in its normalised spelling."""
        self._site_row.append(self._sites.setdefault(site, len(self._sites)))
        self._texts.append(path.encode("ascii"))
        self._weights.append(weight)
        self._sections.append(section)
        self._flags.append(flags)

    def block(self) -> Block:
        """What was added since the last block."""
        names = [site.encode("ascii") for site in self._sites]
        name_prints = np.frombuffer(self._prints.halves(names), "<u8")
        norm_prints = np.fromiter(map(self._prints.norm, self._sites), np.uint64, len(names))
        sites, first = np.unique(name_prints, return_index=True)
        row, count = np.array(self._site_row, np.int64), len(self._texts)
        block = Block(
            norm=norm_prints[row],
            path=np.frombuffer(self._prints.halves(self._texts), "<u8"),
            site=name_prints[row],
            lastmod=np.zeros(count, np.uint32),
            parent=np.zeros(count, np.uint32),
            parent_weight=np.array(self._weights, np.uint16),
            flags=np.array(self._flags, np.uint16),
            section=np.array(self._sections, np.uint8),
            texts=self._texts,
            sites=sites,
            norms=norm_prints[first],
            names=[names[i] for i in first.tolist()],
            parents_site=np.zeros(1, np.uint64),
            parents_path=np.zeros(1, np.uint64),
            filter_version=self._filter_version,
        )
        self._clear()
        return block

    def _clear(self) -> None:
        self._sites: dict[str, int] = {}  # and its row among the sites of this block
        self._site_row: list[int] = []
        self._texts: list[bytes] = []
        self._weights: list[int] = []
        self._sections: list[int] = []
        self._flags: list[int] = []
