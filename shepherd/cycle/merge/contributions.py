"""What waits for a merge, put in the order in which merge wants it: URLs by their norm, the names of new sites by their site.

Blocks are taken together until there are enough of them to be worth sorting. A footprint that two names claim is refused for this
merge, whichever of them came first: a site is never merged with a stranger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from shepherd.arrays import keys
from shepherd.arrays.column_spill import ColumnSpill, SpilledRows
from shepherd.arrays.lookup import Lookup
from shepherd.cycle.common.norms import NormMap
from shepherd.formats.contribkeys import BlockKeys
from shepherd.formats.tables import I64, U64, Columns, ContribFlag, contrib_oid
from shepherd.formats.texts import Spans, Texts
from shepherd.store.state.directory import State

CONTRIBUTED: Final = {"norm": "<u8", "path": "<u8", "site": "<u8", "oid": "<u8"} | {
    "lastmod": "<u4",
    "weight": "<u2",
    "flags": "<u2",
    "section": "u1",
}
NAMED: Final = {"site": "<u8", "norm": "<u8"}
SITTING_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class SiteNames:
    """Distinct sites, sorted, with their norms and names; and the footprints that had more than one name."""

    site: U64
    norm: U64
    names: Spans
    twice: U64


def distinct_names(site: U64, norm: U64, names: Texts) -> SiteNames:
    order = np.argsort(site, kind="stable")
    starts = keys.run_starts(site[order])
    first, again = np.flatnonzero(starts), np.flatnonzero(~starts)
    rows, others = order[first], order[again]
    differs = names.spans(rows[np.cumsum(starts)[again] - 1]).differ(names.spans(others))
    return SiteNames(site[rows], norm[rows], names.spans(rows), keys.distinct(site[others[differs]]))


class ContributionSpill:
    """Takes blocks in. What it made of them stands in `urls` and `named` once `end` was called."""

    def __init__(self, parent: State, norms: NormMap, weight_gap: int, urls: ColumnSpill, named: ColumnSpill, now: int) -> None:
        self.urls, self.named = urls, named
        self._parent, self._norms, self._gap, self._now = parent, norms, weight_gap, now
        self._old_sites = Lookup(parent.sites["site"][0 : parent.sites.rows])
        self._refused: list[U64] = []
        self._inserted: list[U64] = []
        self._blocks: list[tuple[U64, BlockKeys]] = []
        self._block_rows = 0  # rows of these blocks

    def add(self, number: int, ordinal: int, block: BlockKeys, rows: I64 | None = None) -> None:
        """A block of contrib file `number` whose first record is the `ordinal`-th of that file; of `rows`, if only some count."""
        if rows is not None and len(rows) < len(block):
            block = block.some(rows)
        else:
            rows = np.arange(len(block))
        self._blocks.append((np.uint64(contrib_oid(number, ordinal)) + rows.astype(np.uint64), block))
        self._block_rows += len(block)
        if self._block_rows >= SITTING_ROWS:
            self._sit()

    def end(self) -> None:
        """No more blocks come."""
        self._sit()
        named = self.named.settle()
        for part in range(len(named)):
            self._refused.append(new_names(named, part).twice)

    @property
    def refused(self) -> U64:
        """Footprints of sites that more than one name claims."""
        return keys.distinct(np.concatenate([np.zeros(0, np.uint64), *self._refused]))

    @property
    def inserted(self) -> U64:
        """The sites that an operator has inserted URLs of."""
        return keys.distinct(np.concatenate([np.zeros(0, np.uint64), *self._inserted]))

    def _sit(self) -> None:
        if self._blocks:
            self.urls.add(self._contributed())
            self._name()
            self._blocks.clear()
            self._block_rows = 0

    def _contributed(self) -> Columns:
        blocks = [block for _oid, block in self._blocks]
        same = ("path", "site", "flags", "section", "lastmod")
        columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in same}
        columns["lastmod"][columns["lastmod"] > self._now] = 0  # a time to come says nothing of the document
        norm = np.concatenate([block.norm for block in blocks])
        weight = np.concatenate([block.parent_weight for block in blocks]).astype(np.int64)
        own = keys.with_flag(columns["flags"], ContribFlag.OWN_WEIGHT)
        weight = np.where(own, weight, np.maximum(weight - self._gap, 1)).astype(np.uint16)
        oid = np.concatenate([oid for oid, _block in self._blocks])
        inserted = keys.with_flag(columns["flags"], ContribFlag.INSERTED)
        self._inserted.append(keys.distinct(columns["site"][inserted]))
        return columns | {"norm": self._norms.apply(norm, columns["site"]), "weight": weight, "oid": oid}

    def _name(self) -> None:
        blocks = [block for _oid, block in self._blocks]
        site = np.concatenate([block.sites for block in blocks])
        norm = self._norms.apply(np.concatenate([block.norms for block in blocks]), site)
        names = distinct_names(site, norm, Texts.join(block.names for block in blocks))
        row = self._old_sites.find(names.site)
        old, new = np.flatnonzero(row >= 0), np.flatnonzero(row < 0)
        strangers = names.names.some(old).differ(self._parent.names_at(row[old]))
        self._refused += [names.twice, names.site[old[strangers]]]
        self.named.add({"site": names.site[new], "norm": names.norm[new]}, names.names.some(new).texts())


def new_names(named: SpilledRows, part: int) -> SiteNames:
    """The new sites of one range."""
    columns = named.read(part)
    texts: Texts = named.read_texts(part, columns["text_bytes"])
    return distinct_names(columns["site"], columns["norm"], texts)
