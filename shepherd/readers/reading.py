"""What one reader gets of one state: documents in the order of the segments, so that a disk reads on and on.

Rows and places of at most GROUP_ROWS documents are held at a time; of a larger index the columns are read again for the next
segments, which costs little beside the buckets. The same state and choice always give the same documents in the same order: so a
transfer that broke off resumes at a number.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from shepherd.arrays.partitions import segment_groups, whole_norms
from shepherd.formats import stream
from shepherd.formats.tables import I64, U8, U64, Array, Columns, Records
from shepherd.readers import choice as readers
from shepherd.readers.choice import Bar, Choice, Novelty
from shepherd.store.state.columns import Table
from shepherd.store.state.directory import State

GROUP_ROWS: Final = 1 << 22
STEP_ROWS: Final = 500_000

Narrow = Callable[[State, I64], I64]  # those of some rows of a state, in order, that a reader wants


@dataclass(frozen=True)
class Batch:
    """Some documents: the rows of a stream, and where the bucket of each is. Of what is gone there is no bucket."""

    rows: Records  # of stream.ROW
    oid: U64


class Reading:
    """One choice of one state; with `since`, an older state or what is kept of its keys, only what differs.

    `narrow` takes away some of what a choice leaves, of both states alike. With `checked` there is also what was looked at since
    the older one was made, and is as it was.
    """

    def __init__(
        self,
        state: State,
        choice: Choice,
        since: State | None = None,
        step: int = STEP_ROWS,
        *,
        narrow: Narrow | None = None,
        checked: bool = False,
    ) -> None:
        self.state, self.choice, self.since = state, choice, since
        self._step, self._narrow = step, narrow
        self._checked_after = since.control.now if checked and since is not None else None

    @property
    def items(self) -> int:
        """How many documents there are; where something is gone since, that counts, too."""
        return self._counts.gone_items + int(self._counts.documents.sum())

    @property
    def gone_items(self) -> int:
        return self._counts.gone_items

    @property
    def bucket_bytes(self) -> int:
        """Of all their buckets."""
        return self._counts.bytes

    def batches(self, after: int = 0) -> Iterator[Batch]:
        """All but the first `after`: first what is gone, then the documents as their buckets lie."""
        yield from self._removed(after)
        after = max(after - self.gone_items, 0)
        for first, last in segment_groups(self._counts.documents, GROUP_ROWS):
            count = int(self._counts.documents[first:last].sum())
            if after < count:
                yield from self._group(first, last, after)
            after = max(after - count, 0)

    # --- one pass over the columns

    @cached_property
    def _counts(self) -> _Counts:
        documents, size, gone_items = np.zeros(self.state.control.segments, np.int64), 0, 0
        for piece in self._pieces():
            oid = self.state.index["oid"].take(piece.rows)
            documents += np.bincount((oid >> np.uint64(32)).astype(np.int64), minlength=len(documents))
            size += int(self.state.index["size"].take(piece.rows).sum(dtype=np.int64))
            gone_items += len(piece.gone_rows)
        return _Counts(documents, size, gone_items)

    def _pieces(self) -> Iterator[_Piece]:
        """What is chosen, one range of norms after the other."""
        also = ("checked",) if self._checked_after is not None else ()
        new = _Walk(self.state, self.choice, self._narrow, self._bar, also)
        if self.since is None:
            for begin, end in _ranges(self.choice, self._step, self.state.index):
                rows = new.documents_between(begin, end).rows
                yield _Piece(rows, np.zeros(len(rows), np.uint8), np.zeros(0, np.int64))
            return
        old = _Walk(self.since, self.choice, self._narrow, self._old_bar)
        for begin, end in _ranges(self.choice, self._step, self.state.index, self.since.index):
            before, after = old.documents_between(begin, end), new.documents_between(begin, end)
            changes = readers.changes(before.keys, after.keys, self._checked_after)
            yield _Piece(after.rows.take(changes.rows), changes.what, before.rows.take(changes.gone_rows))

    @cached_property
    def _bar(self) -> Bar | None:
        return _bar(self.state, self.choice, self._narrow, self._step)

    @cached_property
    def _old_bar(self) -> Bar | None:
        assert self.since is not None
        return _bar(self.since, self.choice, self._narrow, self._step)

    # --- in the order of the segments

    def _removed(self, after: int) -> Iterator[Batch]:
        if self.since is None or after >= self.gone_items:
            return
        for piece in self._pieces():
            for rows in _cut(piece.gone_rows[after:]):
                what = np.full(len(rows), Novelty.REMOVED, np.uint8)
                yield Batch(records_of(self.since.index.take(rows, readers.COMPARED), what), np.zeros(len(rows), np.uint64))
            after = max(after - len(piece.gone_rows), 0)

    def _group(self, first: int, last: int, after: int) -> Iterator[Batch]:
        """The documents in some segments, but for the first `after`."""
        least, most = np.uint64(first << 32), np.uint64(last << 32)
        parts = []
        for piece in self._pieces():
            oid = self.state.index["oid"].take(piece.rows)
            here = np.flatnonzero((oid >= least) & (oid < most))
            parts.append((piece.rows.take(here), piece.what.take(here), oid.take(here)))
        rows, what, oid = (np.concatenate([part[n] for part in parts]) for n in range(3))
        for some in _cut(np.argsort(oid)[after:]):
            columns = self.state.index.take(rows.take(some), (*stream.COLUMNS, "size"))
            yield Batch(records_of(columns, what.take(some)), oid.take(some))


@dataclass(frozen=True)
class _Counts:
    documents: I64  # of each segment
    bytes: int
    gone_items: int


@dataclass(frozen=True)
class _Piece:
    """What is chosen in one range of norms: rows of the state and what they are, and rows of the older one that are gone."""

    rows: I64
    what: U8
    gone_rows: I64


@dataclass(frozen=True)
class _DocumentRows:
    """Some chosen rows, and those of their columns by which two states are compared."""

    rows: I64
    keys: Columns


class _Walk:
    """The chosen rows of a state, one range of norms after the other."""

    def __init__(
        self, state: State, choice: Choice, narrow: Narrow | None, bar: Bar | None = None, also: tuple[str, ...] = ()
    ) -> None:
        self._state, self._index, self._choice, self._narrow, self._bar = state, state.index, choice, narrow, bar
        self._keys = (*readers.KEYS, "digest", "gathered", "flags", "weight", *also)
        self._ties = 0

    def documents_between(self, begin: int, end: int) -> _DocumentRows:
        start, stop = _first(self._index, begin), _first(self._index, end)
        columns = self._index.slice(start, stop, dict.fromkeys((*readers.COMPARED, *self._keys)))
        rows = readers.choose(columns, self._choice)
        if self._narrow is not None:
            rows = self._narrow(self._state, start + rows) - start
        if self._bar is not None:
            rows, self._ties = self._bar.passed(columns["weight"].take(rows), rows, self._ties)
        return _DocumentRows(start + rows, {name: columns[name].take(rows) for name in self._keys})


def _bar(state: State, choice: Choice, narrow: Narrow | None, step: int) -> Bar | None:
    """Where the best so many of a state end."""
    if choice.best is None:
        return None
    walk, counts = _Walk(state, choice, narrow), np.zeros(readers.WEIGHTS, np.int64)
    for begin, end in _ranges(choice, step, state.index):
        counts += np.bincount(walk.documents_between(begin, end).keys["weight"], minlength=readers.WEIGHTS)
    return Bar.of(counts, choice.best)


def _ranges(choice: Choice, step: int, *indexes: Table) -> Iterator[tuple[int, int]]:
    """Ranges of norms that make up the part of the choice, with about `step` rows of each index, or of one site with more."""
    least, beyond = choice.norms()
    cuts = {norm for index in indexes for norm in _cuts(index, step) if least < norm < beyond}
    edges = [least, *sorted(cuts), beyond]
    yield from itertools.pairwise(edges)


def _cuts(index: Table, step: int) -> Iterator[int]:
    for start, _stop in whole_norms(index, step):
        if start:
            yield index["norm"].value(start)


def _first(index: Table, norm: int) -> int:
    """The first row that is not before the norm; there may be none."""
    return bisect_left(range(index.rows), norm, key=index["norm"].value)


def _cut(rows: I64) -> Iterator[I64]:
    for start in range(0, len(rows), stream.BATCH_ROWS):
        yield rows[start : start + stream.BATCH_ROWS]


def records_of(columns: Columns, what: Array) -> Records:
    rows = np.zeros(len(what), stream.ROW)
    for name in stream.COLUMNS:
        if name in columns:
            rows[name] = columns[name]
    rows["what"] = what
    if "size" in columns:
        rows["length"] = columns["size"]
    return rows
