"""Rows put aside by range of a key, so that a later pass sees one range at a time.

Rows come in any order and number. They are collected until there are enough of them, ordered by range, and put aside column by
column. A range is then a piece of every such sitting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt

from shepherd.arrays.lookup import ranges_of
from shepherd.arrays.scratch import Scratch, ScratchFile
from shepherd.formats.tables import I64, U64, Array, Columns
from shepherd.formats.texts import Texts

SITTING_ROWS: Final = 1 << 21
LENGTH: Final = "text_bytes"


@dataclass(frozen=True)
class _Sitting:
    """One write: where each column begins in the file, and the row, and the byte of text, that each range begins at."""

    offsets: Mapping[str, int]
    text_offset: int
    cuts: I64
    text_cuts: I64


class SpilledRows:
    """The rows of every range, for whoever knows the file."""

    def __init__(
        self, file: ScratchFile, dtypes: Mapping[str, np.dtype[np.generic]], ranges: int, sittings: Sequence[_Sitting]
    ) -> None:
        self._file, self._dtypes, self._ranges, self._sittings = file, dtypes, ranges, sittings

    def __len__(self) -> int:
        """The number of ranges."""
        return self._ranges

    def read(self, part: int) -> dict[str, Array]:
        """The rows of one range, in the order in which they came."""
        return self._read(part, self._sittings)

    def read_some(self, part: int, rows: int) -> Iterator[dict[str, Array]]:
        """The same, at least so many rows at a time: what was added together is never parted."""
        sittings: list[_Sitting] = []
        for sitting in self._sittings:
            sittings.append(sitting)
            if sum(int(s.cuts[part + 1] - s.cuts[part]) for s in sittings) >= rows:
                yield self._read(part, sittings)
                sittings = []
        if sittings:
            yield self._read(part, sittings)

    def _read(self, part: int, sittings: Sequence[_Sitting]) -> dict[str, Array]:
        places = [(s.offsets, int(s.cuts[part]), int(s.cuts[part + 1])) for s in sittings]
        return {
            name: self._pieces(dtype, [(offsets[name] + a * dtype.itemsize, b - a) for offsets, a, b in places])
            for name, dtype in self._dtypes.items()
        }

    def read_texts(self, part: int, lengths: Array) -> Texts:
        """The texts of one range; `lengths` is what `read` gave."""
        places = [
            (s.text_offset + int(s.text_cuts[part]), int(s.text_cuts[part + 1] - s.text_cuts[part])) for s in self._sittings
        ]
        return Texts.cut(self._pieces(np.dtype("u1"), places), lengths)

    def _pieces(self, dtype: np.dtype[np.generic], places: list[tuple[int, int]]) -> Array:
        """Items of several places (offset, how many), end to end."""
        items, first = np.empty(sum(count for _offset, count in places), dtype), 0
        for offset, count in places:
            if count:
                self._file.fill(items[first : first + count], offset)
            first += count
        return items


class ColumnSpill:
    """Takes in rows of some columns, and a text for each if `with_texts`.

    `borders` are the first keys of each range but the first; `key` is the column that is compared with them. Up to
    `sitting_rows` are held in memory: fewer where they are wide.
    """

    def __init__(
        self,
        directory: Path,
        dtypes: Mapping[str, npt.DTypeLike],
        key: str,
        borders: U64,
        with_texts: bool = False,
        sitting_rows: int = SITTING_ROWS,
    ) -> None:
        self._dtypes = {name: np.dtype(dtype) for name, dtype in dtypes.items()}
        if with_texts:
            self._dtypes[LENGTH] = np.dtype("<u4")
        self._key, self._borders, self._sitting_rows = key, borders, sitting_rows
        self._file = Scratch(directory)
        self._sittings: list[_Sitting] = []
        self._waiting: list[tuple[Columns, Texts]] = []
        self._waiting_rows = 0
        self.rows = 0

    def __enter__(self) -> ColumnSpill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.__exit__(kind, error, trace)

    def add(self, columns: Columns, texts: Texts | None = None) -> None:
        texts = texts if texts is not None else Texts.of([])
        self._waiting.append((dict(columns) | {LENGTH: texts.lengths}, texts))
        self.rows += len(columns[self._key])
        self._waiting_rows += len(columns[self._key])
        if self._waiting_rows >= self._sitting_rows:
            self._write_waiting()

    def settle(self) -> SpilledRows:
        """Write what waits. What is added later is not among the rows of this."""
        self._write_waiting()
        return SpilledRows(self._file, self._dtypes, len(self._borders) + 1, tuple(self._sittings))

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([columns[self._key] for columns, _texts in self._waiting])
        range_ = ranges_of(self._borders, keys)
        order = np.argsort(range_, kind="stable")  # radix, where ranges are few
        cuts = np.concatenate([[0], np.cumsum(np.bincount(range_, minlength=len(self._borders) + 1))])
        offsets = {}
        for name, dtype in self._dtypes.items():
            column = np.concatenate([columns[name] for columns, _texts in self._waiting]).take(order)
            offsets[name] = self._file.append(column.astype(dtype, copy=False))
        texts = Texts.join(part for _columns, part in self._waiting)
        text_offset, text_cuts = 0, np.zeros_like(cuts)
        if len(texts):
            texts = texts.take(order)
            text_cuts = np.concatenate([[0], texts.ends])[cuts]
            text_offset = self._file.append(texts.data)
        self._sittings.append(_Sitting(offsets, text_offset, cuts, text_cuts))
        self._waiting.clear()
        self._waiting_rows = 0
