"""Where buckets were, and where a phase has copied them to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shepherd.arrays.keys import find_sites
from shepherd.formats.tables import U64


@dataclass(frozen=True)
class BucketMoves:
    """The old oids, ascending, and the new one of each."""

    old: U64
    new: U64

    def follow(self, oids: U64) -> U64:
        """These oids with those replaced that have moved; only those between the first and the last are searched."""
        if not len(self.old):
            return oids
        followed = oids.copy()
        rows = np.flatnonzero((oids >= self.old[0]) & (oids <= self.old[-1]))
        place = find_sites(self.old, oids[rows])
        followed[rows[place >= 0]] = self.new[place[place >= 0]]
        return followed
