"""Segments: the bucket file in pieces. Appended by one writer, sealed, then only read (docs/formats.md)."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from shepherd.errors import CHECK_LISTS, Corruption
from shepherd.formats import bucket
from shepherd.formats.bucket import Bucket, Header
from shepherd.formats.check import Bytes
from shepherd.formats.tables import CONTRIB_BIT, I64, U64, bucket_oid, split_oid
from shepherd.store.disk import fsio, names, opening

READ_AHEAD = 4096  # most attributes, and every thin bucket, come with the first read
SCAN_BYTES = 1 << 22
_Files: TypeAlias = dict[int, tuple[Path, int]]


class SegmentWriter:
    """Appends buckets to fresh segments, in batches; rolls to the next before one would pass its limit."""

    def __init__(self, directory: Path, name_of: Callable[[int], str], first: int, limit: int) -> None:
        self._directory, self._name_of, self._limit = directory, name_of, limit
        self.next = first  # number of the next segment to be made
        self._file: fsio.AppendFile | None = None
        self._batch: list[Bytes] = []
        self._batch_bytes = 0

    def append(self, data: Bytes) -> int:
        """The oid that the bucket will have. It is on disk after `flush`, durable after `sync`."""
        if self._file is None or (self._end() + len(data) > self._limit and self._end() > 0):
            self._roll()
        oid = bucket_oid(self.next - 1, self._end())
        self._batch.append(data)
        self._batch_bytes += len(data)
        if self._batch_bytes >= SCAN_BYTES:
            self.flush()
        return oid

    def append_all(self, data: bytes, lengths: I64) -> U64:
        """Many buckets at once, end to end: the same bytes and oids as if each were appended alone."""
        ends = np.cumsum(lengths, dtype=np.int64)
        oids = np.empty(len(lengths), np.uint64)
        view, row, start = memoryview(data), 0, 0
        while row < len(lengths):
            if self._end() == 0 or self._end() + int(lengths[row]) > self._limit:
                self._roll()
            room = max(self._limit - self._end(), int(lengths[row]))
            last = int(np.searchsorted(ends, start + room, side="right"))
            begins = ends[row:last] - lengths[row:last] - start
            oids[row:last] = np.uint64(bucket_oid(self.next - 1, self._end())) + begins.astype(np.uint64)
            self._hold(view[start : int(ends[last - 1])])
            row, start = last, int(ends[last - 1])
        return oids

    def _hold(self, data: memoryview) -> None:
        self.flush()
        assert self._file is not None
        self._file.write(data)

    def _end(self) -> int:
        return self._file.length + self._batch_bytes if self._file else 0

    def _roll(self) -> None:
        if self._file is not None:
            self.sync()
            self._file.close()
        self._file = fsio.AppendFile(self._directory / self._name_of(self.next))
        self.next += 1

    def flush(self) -> None:
        if self._file is not None and self._batch:
            self._file.write(*self._batch)
            self._batch.clear()
            self._batch_bytes = 0

    def sync(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Objects:
    """Reads buckets by oid. Keeps some segments open; every bucket is verified as it is read."""

    def __init__(self, directory: Path, name_of: Callable[[int], str] = names.segment, keep_open: int = 64) -> None:
        self._directory, self._name_of, self._keep_open = directory, name_of, keep_open
        self._files: _Files = {}  # in the order in which they were opened
        weakref.finalize(self, _close_all, self._files)  # a state that is let go lets go of its segments

    def get(self, oid: int, size: int = 0) -> Bucket:
        """A whole bucket; `size` (from the index) saves a second read."""
        data = self._read(oid, size or READ_AHEAD)
        whole = bucket.read_whole(data)
        if whole is not None:
            return whole
        try:
            header = bucket.parse_header(data)
            return bucket.parse_behind(header, data if header.length <= len(data) else self._read(oid, header.length))
        except Corruption as error:
            raise self._with_place(oid, error) from None

    def head(self, oid: int) -> Bucket:
        """A bucket without its body."""
        data = self._read(oid, READ_AHEAD)
        try:
            header = bucket.parse_header(data)
            need = bucket.HEADER_BYTES + header.attribute_bytes
            return bucket.parse_behind(header, data if need <= len(data) else self._read(oid, need), with_body=False)
        except Corruption as error:
            raise self._with_place(oid, error) from None

    def piece(self, segment: int, offset: int, length: int) -> bytes:
        """Some bytes of a segment, as they are: nothing in them is checked. Fewer at its end."""
        path, fd = self._files.get(segment) or self._open(segment)
        return opening.read_at(path, fd, length, offset)

    def scan(self, segment: int, length: int | None = None) -> Iterator[tuple[int, Header]]:
        """Oid and header of every bucket of a segment, or of its first `length` bytes, in order; bodies are skipped."""
        path, fd = self._files.get(segment) or self._open(segment)
        size, offset = os.fstat(fd).st_size if length is None else length, 0
        window, start = b"", 0
        while offset < size:
            place = offset - start
            if place + bucket.HEADER_BYTES > len(window):
                window, start, place = opening.read_at(path, fd, SCAN_BYTES, offset), offset, 0
            try:
                header = bucket.parse_header(window, place)
            except Corruption as error:
                raise self._with_place(bucket_oid(segment, offset), error) from None
            if offset + header.length > size:
                raise Corruption("the bucket runs over the end of its segment", path, offset)
            yield bucket_oid(segment, offset), header
            offset += header.length

    def verify(self, segment: int, length: int, shapes: bool = False) -> None:
        """Read every bucket of the first `length` bytes of a segment; Corruption names the first that is damaged.

        A bucket that has its checksums is as it was written; with `shapes` it must also be one that Shepherd would write.
        """
        path, fd = self._files.get(segment) or self._open(segment)
        offset = 0
        while offset < length:
            window = opening.read_at(path, fd, min(SCAN_BYTES, length - offset), offset)
            end = 0 if shapes else bucket.sound_until(window)
            end = end or self._verify_window(window, bucket_oid(segment, offset))
            if not end:  # it is larger than the window, or its header is cut off
                end = self.get(bucket_oid(segment, offset)).header.length
            offset += end
        if offset > length:
            raise Corruption("the bucket runs over the end of its segment", path, length)

    def _verify_window(self, window: bytes, first: int) -> int:
        """Where the last whole bucket in these bytes ends."""
        offset = 0
        try:
            while offset + bucket.HEADER_BYTES <= len(window):
                header = bucket.parse_header(window, offset)
                if offset + header.length > len(window):
                    break
                bucket.parse_behind(header, window, offset)
                offset += header.length
        except Corruption as error:
            raise self._with_place(first + offset, error) from None
        return offset

    def close(self) -> None:
        _close_all(self._files)

    def _read(self, oid: int, length: int) -> bytes:
        if oid >= CONTRIB_BIT:
            raise Corruption(f"oid {oid:016x} is not that of a bucket")
        segment, offset = split_oid(oid)
        path, fd = self._files.get(segment) or self._open(segment)
        return opening.read_at(path, fd, length, offset)

    def _with_place(self, oid: int, error: Corruption) -> Corruption:
        """What `bucket` says of the bytes it was given, said of the file they are from."""
        return Corruption(error.what, *self.place(oid))

    def place(self, oid: int) -> tuple[Path, int]:
        """File and offset of a bucket."""
        segment, offset = split_oid(oid)
        return self._directory / self._name_of(segment), offset

    def _open(self, segment: int) -> tuple[Path, int]:
        """Path and descriptor of a segment that is not open yet; of too many the one that was opened first is closed."""
        path = self._directory / self._name_of(segment)
        try:
            file = self._files[segment] = path, opening.open_regular(path)
        except FileNotFoundError:
            raise Corruption("the segment is missing", path, advice=CHECK_LISTS) from None
        while len(self._files) > self._keep_open:
            os.close(self._files.pop(next(iter(self._files)))[1])
        return file


def _close_all(files: _Files) -> None:
    while files:
        os.close(files.popitem()[1][1])
