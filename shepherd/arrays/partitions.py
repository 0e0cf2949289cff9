"""How a table is cut: partitions of about so many rows, so that memory is bounded by a partition and not by the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from shepherd.formats.tables import I64, U64
from shepherd.store.state.columns import Table

Tick: TypeAlias = Callable[[int], object]  # gets how many rows are done


def no_progress(_rows: int) -> None:
    """For a pass that the bar does not count: another one does, over the same rows."""


def partitions(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """Ranges that cover all rows; one empty range where there are none."""
    for start in range(0, max(rows, 1), step):
        yield start, min(start + step, rows)


def whole_norms(index: Table, step: int) -> Iterator[tuple[int, int]]:
    """Ranges that never cut through the rows of one normalised site."""
    start = 0
    while start < index.rows:
        stop = min(start + step, index.rows)
        if stop < index.rows:
            stop = _end_of_norm(index, stop)
        yield start, stop
        start = stop
    if not index.rows:
        yield 0, 0


def segment_groups(counts: I64, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of segments, by their `counts`: each has at most so many, or is one segment that has more."""
    first, total = 0, 0
    for number, more in enumerate(counts.tolist()):
        if total and total + more > most:
            yield first, number
            first, total = number, 0
        total += more
    if total:
        yield first, len(counts)


def even_borders(parts: int) -> U64:
    """Borders that cut the space of footprints into equal ranges; footprints are hashes, so these hold about equally many."""
    return np.array([(n << 64) // parts for n in range(1, parts)], np.uint64)


def rows_before(column: U64, borders: U64) -> I64:
    """Where each range begins in a sorted column, with its end behind them."""
    return np.concatenate([[0], np.searchsorted(column, borders), [len(column)]]).astype(np.int64)


def _end_of_norm(index: Table, row: int) -> int:
    """The first row at or after `row` where another norm begins."""
    norm, last = index["norm"], index["norm"].value(row - 1)
    width = 4096
    while row < index.rows:
        part = norm[row : min(row + width, index.rows)]
        same = int(np.searchsorted(part, np.uint64(last), side="right"))
        row += same
        if same < len(part):
            break
        width *= 2
    return row
