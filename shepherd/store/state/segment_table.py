"""The buckets of a segment as a table, some at a time, with some of their attributes; for comparing many rows with many buckets.

Invariant: a segment is scanned once, front to back, and no more of it is held than one part. Attributes are read in place, so
every byte must have been checked before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from shepherd.formats import bucket
from shepherd.formats.facts import find_attributes, numbers_at
from shepherd.formats.tables import I64, U64, Array, Bools, Records, bucket_oid
from shepherd.store.disk import names
from shepherd.store.state import logs
from shepherd.store.state.objects import Objects
from shepherd.urls import PAST_SCHEME, Footprints

BUCKETS: Final = 1 << 18  # of one part
_BUCKET: Final = np.dtype(
    [("oid", "<u8"), ("site", "<u8"), ("path", "<u8"), ("length", "<u8"), ("attributes", "<u4"), ("type", "u1")]
)
_IN_PLACE: Final = (bucket.V33, bucket.V33_COMPRESSED)  # types whose attributes are laid out as `_attribute` walks them


class SegmentScan:
    """One segment, read through one of the directories that it is linked into."""

    def __init__(self, directory: Path, number: int) -> None:
        self.number = number
        self._objects = Objects(directory)
        self._data = np.frombuffer(logs.map_file(directory / names.segment(number)), np.uint8)
        self._headers = self._objects.scan(number)
        self._ahead = next(self._headers, None)
        self.end = bucket_oid(number, 0)  # of what has been read

    def parts(self, high: int) -> Iterator[SegmentPart]:
        """What begins before the oid `high`; at least one part, which may be empty. A part ends where the next one begins."""
        high = min(high, bucket_oid(self.number + 1, 0))
        while self.end < high:
            first = self.end
            buckets = np.fromiter(islice(self._before(high), BUCKETS), _BUCKET)
            self.end = high if self._ahead is None else min(self._ahead[0], high)
            yield SegmentPart(self._objects, self._data, first, self.end, buckets)

    def _before(self, high: int) -> Iterator[tuple[int, int, int, int, int, int]]:
        while self._ahead is not None and self._ahead[0] < high:
            oid, head = self._ahead
            self._ahead = next(self._headers, None)
            yield oid, head.site, head.path, head.length, head.attribute_bytes, head.type

    def close(self) -> None:
        self._objects.close()


class SegmentPart:
    """Some buckets, one after the other, and all oids from the first one's to where the next part begins."""

    def __init__(self, objects: Objects, data: Array, first: int, end: int, buckets: Records) -> None:
        self.first, self.end, self.buckets = first, end, buckets
        self._objects, self._data = objects, data
        self._is_checked = np.zeros(len(buckets), np.bool_)

    def digests(self, rows: I64) -> U64:
        """The first 8 bytes of the digest of each of these buckets, 0 without one."""
        digests = numbers_at(self._data, *self._attribute(rows, "D"), "<u8")
        for place in np.flatnonzero(~self._in_place(rows)).tolist():
            text = self._objects.head(int(self.buckets["oid"][rows[place]])).attributes.get("D", b"")
            digests[place] = int.from_bytes(text[:8], "little")
        return digests

    def misnamed(self, rows: I64, prints: Footprints) -> list[int]:
        """The oids of those buckets whose URL has another footprint than their header; each bucket is looked at once."""
        new = np.unique(rows[~self._is_checked[rows]])
        self._is_checked[new] = True
        halves = dict[bytes, int]()  # of the sites
        wrong = []
        columns = (
            *self._attribute(new, "U"),
            self._in_place(new),
            *(self.buckets[name][new] for name in ("oid", "site", "path")),
        )
        for begin, size, in_place, oid, site, path in zip(*(column.tolist() for column in columns), strict=True):
            if in_place:
                url = self._data[begin : begin + size].tobytes()
            else:
                url = self._objects.head(oid).attributes.get("U", b"")
            slash = url.find(b"/", PAST_SCHEME)
            name = url[:slash]
            if name not in halves:
                halves[name] = prints.half(name.decode("ascii", "replace"))
            if slash < 0 or halves[name] != site or prints.half(url[slash:].decode("ascii", "replace")) != path:
                wrong.append(oid)
        return wrong

    def _in_place(self, rows: I64) -> Bools:
        return np.isin(self.buckets["type"][rows], _IN_PLACE)

    def _attribute(self, rows: I64, letter: str) -> tuple[I64, I64]:
        """Where an attribute of each of these buckets begins, and its length: 0 without one, or where it is not read in place."""
        start = (self.buckets["oid"][rows] & np.uint64(0xFFFFFFFF)).astype(np.int64) + bucket.HEADER_BYTES
        end = np.where(self._in_place(rows), start + self.buckets["attributes"][rows], start)
        return find_attributes(self._data, start, end, letter.encode())[letter]
