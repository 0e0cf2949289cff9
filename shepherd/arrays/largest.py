"""The rows with the largest values, of many that come a partition at a time; no more of them are in memory than are wanted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from shepherd.formats.tables import I64, Array


def _nothing() -> I64:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Largest:
    """At most `limit` rows and their values: largest first, of equal ones the lower row first."""

    limit: int
    rows: I64 = field(default_factory=_nothing)
    values: I64 = field(default_factory=_nothing)

    def with_more(self, rows: I64, values: Array) -> Largest:
        """The largest of these and more. Rows may come in any order, each once."""
        if len(self.rows) == self.limit:  # most of a partition is below what there is already
            above = np.flatnonzero(values >= self.values[-1])
            rows, values = rows[above], values[above]
        if not len(rows):
            return self
        rows = np.concatenate((self.rows, rows))
        values = np.concatenate((self.values, values.astype(np.int64)))
        order = np.lexsort((rows, -values))[: self.limit]
        return Largest(self.limit, rows[order], values[order])
