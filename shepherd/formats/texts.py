"""Many short texts as one run of bytes, and where each of them ends: the names of millions of sites, without an object each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from shepherd.formats.tables import I64, U8, U64, Array, Bools

WORD = 8
RUN = 4  # texts side by side, in the mean, from which on copying runs is quicker than gathering bytes
STEP = 1 << 17  # texts gathered at a time: an index of every byte is eight times as large as the bytes


@dataclass(frozen=True)
class Texts:
    """Text i is `data[ends[i - 1]:ends[i]]`; the first begins at 0."""

    data: U8
    ends: I64

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> Texts:
        return cls(np.frombuffer(b"".join(texts), np.uint8), np.cumsum([len(text) for text in texts], dtype=np.int64))

    @classmethod
    def cut(cls, data: U8, lengths: Array) -> Texts:
        return cls(data, np.cumsum(lengths, dtype=np.int64))

    @classmethod
    def join(cls, parts: Iterable[Texts]) -> Texts:
        parts = list(parts)
        data = np.concatenate([np.zeros(0, np.uint8), *(part.data for part in parts)])
        return cls.cut(data, np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in parts)]))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> I64:
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]]) if len(self.ends) else self.ends

    @property
    def lengths(self) -> I64:
        return self.ends - self.starts

    def tolist(self) -> list[bytes]:
        whole = self.data.tobytes()
        return [whole[a:b] for a, b in pairwise([0, *self.ends.tolist()])]

    def take(self, rows: I64) -> Texts:
        """Some of the texts, in this order. Where most of them stand side by side here, too, they are copied in runs."""
        first = np.flatnonzero(np.diff(rows, prepend=rows[:1] - 2) != 1)
        if RUN * len(first) <= len(rows):
            return self._take_runs(rows, first)
        parts = [self._take(rows[start : start + STEP]) for start in range(0, len(rows), STEP)]
        return parts[0] if len(parts) == 1 else Texts.join(parts)

    def _take_runs(self, rows: I64, first: I64) -> Texts:
        last = np.append(first[1:], len(rows)) - 1
        lengths, starts = self.spans(rows).lengths, self.spans(rows[first]).starts
        cuts = zip(starts.tolist(), self.ends[rows[last]].tolist(), strict=True) if len(rows) else ()
        data = self.data.data  # slices of a buffer are cheaper than those of an array
        return Texts.cut(np.frombuffer(b"".join([data[a:b] for a, b in cuts]), np.uint8), lengths)

    def _take(self, rows: I64) -> Texts:
        return self.spans(rows).texts()

    def spans(self, rows: I64) -> Spans:
        """Where some of the texts stand."""
        ends, starts = self.ends[rows], self.ends[rows - 1]
        starts[rows == 0] = 0
        return Spans(self.data, starts, ends - starts)


@dataclass(frozen=True)
class Spans:
    """Ranges of some bytes, in any order: texts where they are, without a copy."""

    data: U8
    starts: I64
    lengths: I64

    def texts(self) -> Texts:
        return Texts.cut(self.data[positions(self.starts, self.lengths)], self.lengths)

    def some(self, rows: I64) -> Spans:
        return Spans(self.data, self.starts[rows], self.lengths[rows])

    def differ(self, other: Spans) -> Bools:
        """Where a text of ours is not the text of the other at the same place. They are compared eight bytes at a time."""
        length = self.lengths
        differs = length != other.lengths
        words, other_words = _words(self.data), _words(other.data)
        rows = np.flatnonzero(~differs & (length >= WORD))
        last = length - WORD  # the last word overlaps the one before it
        for offset in range(0, int(length[rows].max(initial=0)), WORD):
            rows = rows[(last[rows] > offset - WORD) & ~differs[rows]]
            place = np.minimum(last[rows], offset)
            differs[rows] = words[self.starts[rows] + place] != other_words[other.starts[rows] + place]
        short = np.flatnonzero(~differs & (length < WORD))
        mine, others = self.some(short).texts(), other.some(short).texts()
        wrong = np.flatnonzero(mine.data != others.data)
        differs[short[np.searchsorted(mine.ends, wrong, side="right")]] = True
        return np.asarray(differs)


def _words(data: U8) -> U64:
    """What stands at each byte, read as eight of them; nothing is copied."""
    return np.ndarray(max(len(data) - WORD + 1, 0), "<u8", np.ascontiguousarray(data).data if len(data) else b"", strides=(1,))


def positions(starts: I64, lengths: I64) -> I64:
    """The position of every byte of some ranges, one range after the other."""
    ends = np.cumsum(lengths)
    shift = np.repeat(starts - (ends - lengths), lengths)
    return shift + np.arange(len(shift))
