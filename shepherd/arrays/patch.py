"""A table with some values changed and some rows added: only the columns that really change are written, the rest is linked.

A column is written in partitions, front to back, from the mapped one; so what is in memory is a partition and the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shepherd.arrays.partitions import partitions
from shepherd.formats import tables
from shepherd.formats.tables import I64, Array
from shepherd.store.state.columns import Table, TableWriter
from shepherd.store.state.directory import Builder


@dataclass(frozen=True)
class Patch:
    """New values of some rows; `rows` is sorted and each is there once."""

    rows: I64
    columns: Mapping[str, Array]


@dataclass(frozen=True)
class AddedRows:
    """New rows, and for each the old row before which it comes; sorted."""

    places: I64
    columns: Mapping[str, Array]


NOTHING_CHANGED = Patch(np.zeros(0, np.int64), {})


@dataclass(frozen=True)
class TableChanges:
    """What becomes of a table."""

    patch: Patch = NOTHING_CHANGED
    added: AddedRows = field(default_factory=lambda: AddedRows(np.zeros(0, np.int64), {}))

    def written(self, table: str) -> list[str]:
        """The columns that cannot be linked."""
        return [name for name in tables.TABLES[table] if len(self.added.places) or name in self.patch.columns]


def only_changed(table: Table, patch: Patch) -> Patch:
    """The patch without the columns in which every value is what it was."""
    columns = {n: values for n, values in patch.columns.items() if not np.array_equal(table[n].take(patch.rows), values)}
    return Patch(patch.rows, columns)


def write(builder: Builder, name: str, table: Table, changes: TableChanges, step: int) -> None:
    """The table with its changes. The columns that are not written, but `sites/names`, are linked."""
    written = changes.written(name)
    for column in written:
        writer = builder.table(name, [column])
        for start, stop in partitions(table.rows, step):
            writer.append({column: values(table, changes, column, start, stop)})
        builder.finish_table(writer)
    builder.keep(f"{name}/{column}" for column in tables.TABLES[name] if column not in written)


class TableRewriter:
    """The same while the changes are still being found, partition by partition: each is written while it is in the cache.

    A column is begun with its first change, and what stands before that is copied then; so one that never changes is linked.
    """

    def __init__(self, builder: Builder, name: str, table: Table, step: int) -> None:
        self._builder, self._name, self._table, self._step = builder, name, table, step
        self._writers: dict[str, TableWriter] = {}
        self._copied_rows = 0

    def put(self, start: int, stop: int, patch: Patch) -> None:
        """A partition, behind all that were put before: the new values of some of its rows. What lies between stays as it was."""
        for column in patch.columns:
            if column not in self._writers:
                self._writers[column] = self._builder.table(self._name, [column])
                self._copy([column], 0, self._copied_rows)
        self._copy(self._writers, self._copied_rows, start)
        for column, writer in self._writers.items():
            writer.append({column: values(self._table, TableChanges(patch), column, start, stop)})
        self._copied_rows = stop

    def finish(self) -> None:
        """All partitions have been put."""
        self._copy(self._writers, self._copied_rows, self._table.rows)
        for writer in self._writers.values():
            self._builder.finish_table(writer)
        self._builder.keep(f"{self._name}/{column}" for column in tables.TABLES[self._name] if column not in self._writers)

    def discard(self) -> None:
        """The changes were wrong: nothing is left of them."""
        for writer in self._writers.values():
            writer.discard()

    def _copy(self, columns: Iterable[str], first: int, last: int) -> None:
        for start in range(first, last, self._step):
            for column in columns:
                self._writers[column].append({column: self._table[column][start : min(start + self._step, last)]})


def values(table: Table, changes: TableChanges, column: str, start: int, stop: int) -> Array:
    """What old rows become, and the new rows among them; rows behind the last old one belong to the last."""
    column_values = np.array(table[column][start:stop])
    patch, added = changes.patch, changes.added
    if column in patch.columns:
        first, last = np.searchsorted(patch.rows, [start, stop]).tolist()
        column_values[patch.rows[first:last] - start] = patch.columns[column][first:last]
    if len(added.places):
        first, last = np.searchsorted(added.places, [start, stop]).tolist()
        last = len(added.places) if stop == table.rows else last
        column_values = np.insert(column_values, added.places[first:last] - start, added.columns[column][first:last])
    return column_values
