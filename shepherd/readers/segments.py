"""Buckets of one segment read in place: their headers side by side, their checksums one by one, their URLs.

Only what has been brought into memory first is looked at (store/disk/mapped). What is not as the index says is Corruption, with
the file and the offset in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import mmh3
import numpy as np

from shepherd.errors import CHECK_LISTS, Corruption
from shepherd.formats import bucket, facts
from shepherd.formats.check import SEED, check64
from shepherd.formats.tables import I64, U64, Array
from shepherd.store.disk import names
from shepherd.store.disk.mapped import Mapped
from shepherd.store.state.directory import State

WINDOW: Final = 1 << 23  # bytes of a segment looked at at a time
SMALL: Final = 1 << 10  # bytes of a bucket up to which it costs less to copy its body than to leave it out
_FIXED: Final = bucket.HEADER_BYTES
_HEAD: Final = bucket.HEAD.size
_EMPTY: Final = np.uint64(check64(b""))
_NONE: Final = np.zeros(0, np.int64)
_OFFSET: Final = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Claims:
    """Buckets that are needed, in the order of oids, and the row that holds each; -1 where only a site does."""

    oid: U64
    size: I64
    row: I64

    def __len__(self) -> int:
        return len(self.oid)

    def of(self, segment: int) -> Claims:
        first, last = np.searchsorted(self.oid, np.array([segment << 32, segment + 1 << 32], np.uint64)).tolist()
        return Claims(self.oid[first:last], self.size[first:last], self.row[first:last])


@dataclass(frozen=True)
class Part:
    """Some buckets of a segment: their places, their headers, which are those the index expects, and a copy of their bytes.

    Copied, because slices of bytes are cheaper than of a mapping.
    """

    first: int  # of the claims
    offset: I64
    heads: Array
    data: bytes  # whole buckets, or of each only header and attributes
    start: I64  # where in `data` each begins


class Segment:
    """One segment of a state, and the buckets of it that are needed."""

    def __init__(self, state: State, number: int, claims: Claims) -> None:
        self.path = state.path / names.OBJECTS / names.segment(number)
        self.claims = claims
        self.offset = (claims.oid & _OFFSET).astype(np.int64)
        self._state = state
        try:
            self._file = Mapped(self.path)
        except FileNotFoundError:
            raise Corruption("the segment is missing", self.path, advice=CHECK_LISTS) from None

    def view(self, start: int, stop: int) -> memoryview:
        return self._file.touch(start, stop)

    def _parts(self, bodies: bool) -> Iterator[Part]:
        """All of them, a window at a time."""
        if not len(self.offset):
            return
        windows = np.flatnonzero(np.diff(self.offset // WINDOW, prepend=-1))
        for first, last in zip(windows.tolist(), [*windows[1:].tolist(), len(self.offset)], strict=True):
            offset, size = self.offset[first:last], self.claims.size[first:last]
            window = self._file.touch(int(offset[0]), int(offset[-1] + size[-1]))
            heads = self._heads(first, last)
            if bodies or len(window) <= SMALL * len(offset):
                yield Part(first, offset, heads, bytes(window), offset - offset[0])
            else:
                yield Part(first, offset, heads, *self._fronts(offset, heads))

    def _fronts(self, offset: I64, heads: Array) -> tuple[bytes, I64]:
        """Header and attributes of each, end to end, and where each begins: of larger buckets most is body, and not copied."""
        length = _FIXED + heads["attribute_bytes"].astype(np.int64)
        spans = zip(offset.tolist(), (offset + length).tolist(), strict=True)
        return b"".join([self._file.view[start:stop] for start, stop in spans]), np.cumsum(length) - length

    def _heads(self, first: int, last: int) -> Array:
        offset, size, row = self.offset[first:last], self.claims.size[first:last], self.claims.row[first:last]
        if (size < _FIXED).any():
            raise self._wrong(int(offset[np.argmax(size < _FIXED)]), "the index says that this bucket is shorter than a header")
        data = np.frombuffer(self._file.view, np.uint8)
        heads = np.ascontiguousarray(data[offset[:, None] + np.arange(_FIXED)]).view(bucket.HEADER)[:, 0]
        length = _FIXED + heads["attribute_bytes"].astype(np.int64) + heads["body_bytes"]
        wrong = (heads["magic"] != bucket.MAGIC) | (length != size)
        rows = np.flatnonzero(row >= 0)
        for name in ("site", "path"):
            wrong[rows] |= self._state.index[name].take(row[rows]) != heads[name][rows]
        if wrong.any():
            raise self._wrong(int(offset[np.argmax(wrong)]), "no bucket of its row begins here")
        return heads

    def verify(self, bodies: bool) -> Iterator[Part]:
        """The parts, with every header and its attributes checked, and, if asked, every body."""
        digest = mmh3.mmh3_x64_128_digest
        for part in self._parts(bodies):
            data, size = part.data, self.claims.size[part.first : part.first + len(part.offset)]
            middle = part.start + _FIXED + part.heads["attribute_bytes"]
            checks = _as_bytes(part.heads["check"])
            for n, (start, behind, check) in enumerate(zip(part.start.tolist(), middle.tolist(), checks, strict=True)):
                if digest(data[start : start + _HEAD] + data[start + _FIXED : behind], SEED)[:8] != check:
                    raise self._wrong(int(part.offset[n]), "header or attributes are damaged")
            # A bucket without a body has the checksum of nothing, and most are without.
            full = np.flatnonzero((part.heads["body_bytes"] > 0) | (part.heads["body_check"] != _EMPTY)) if bodies else _NONE
            spans = (
                middle[full].tolist(),
                (part.start + size)[full].tolist(),
                _as_bytes(part.heads["body_check"][full]),
                full.tolist(),
            )
            for behind, end, check, n in zip(*spans, strict=True):
                if digest(data[behind:end], SEED)[:8] != check:
                    raise self._wrong(int(part.offset[n]), "the body is damaged")
            yield part

    def contents(self, part: Part, letters: bytes) -> dict[str, list[bytes]]:
        """Some attributes, by letter, of each bucket of a part that was verified; nothing where a bucket has none."""
        begin = part.start + _FIXED
        old = np.isin(part.heads["type"], bucket.TEXT_TYPES)
        stop = np.where(old, begin, begin + part.heads["attribute_bytes"])
        places = facts.find_attributes(np.frombuffer(part.data, np.uint8), begin, stop, letters)
        values_of = {
            letter: [part.data[offset : offset + size] for offset, size in zip(offsets.tolist(), lengths.tolist(), strict=True)]
            for letter, (offsets, lengths) in places.items()
        }
        for n in np.flatnonzero(old).tolist():
            attributes = bucket.parse(self._file.view, int(part.offset[n]), with_body=False).attributes
            for letter, values in values_of.items():
                values[n] = attributes.get(letter, b"")
        return values_of

    def urls(self, part: Part) -> list[bytes]:
        """The URL of each bucket of a part that was verified."""
        urls = self.contents(part, b"U")["U"]
        for n, url in enumerate(urls):
            if not url or not url.isascii():
                raise self._wrong(int(part.offset[n]), "the bucket has no URL")
        return urls

    def _wrong(self, offset: int, what: str) -> Corruption:
        return Corruption(what, self.path, offset, CHECK_LISTS)


def _as_bytes(values: Array) -> list[bytes]:
    data = np.ascontiguousarray(values).tobytes()
    return [data[start : start + 8] for start in range(0, len(data), 8)]
