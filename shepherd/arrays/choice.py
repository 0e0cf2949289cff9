"""Which rows an operator means: a mask over a few columns of the index.

A row is chosen if every column that the choice names holds one of its values. What no column holds (the text of a URL) is decided
elsewhere, of the rows that are chosen here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from shepherd.arrays.keys import find_sites
from shepherd.formats.tables import INDEX, U64, Bools, Columns


@dataclass(frozen=True)
class RowChoice:
    """`values`: by column, whether each value that it can hold is wanted. `between`: by column the least and the most, both of
    them wanted. `without`: flags of which a wanted row has none. `sites`: sorted footprints of the wanted sites."""

    values: Mapping[str, Bools] = field(default_factory=dict)
    between: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    without: int = 0
    sites: U64 | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that `mask` looks at."""
        more = ("flags",) * bool(self.without) + ("site",) * (self.sites is not None)
        return (*self.values, *(name for name in self.between if name not in self.values), *more)


def some_of(column: str, *parts: range) -> Bools:
    """For `Wanted.values` of a narrow column: the values in any of these ranges."""
    is_wanted = np.zeros(1 << 8 * np.dtype(INDEX[column]).itemsize, np.bool_)
    for part in parts:
        is_wanted[part.start : part.stop] = True
    return is_wanted


def mask(columns: Columns, rows: int, choice: RowChoice) -> Bools:
    """Which of so many rows are wanted; `columns` has at least those that `choice` names."""
    keep = np.ones(rows, np.bool_)
    for name, values in choice.values.items():
        keep &= values.take(columns[name])
    for name, (least, most) in choice.between.items():
        keep &= (columns[name] >= least) & (columns[name] <= most)
    if choice.without:
        keep &= (columns["flags"] & np.uint16(choice.without)) == 0
    if choice.sites is not None:
        keep &= find_sites(choice.sites, columns["site"]) >= 0
    return keep
