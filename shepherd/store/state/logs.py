"""Framed logs: written frame by frame, read up to the first frame that does not check."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import numpy as np

from shepherd.errors import Corruption
from shepherd.formats import contrib, frame
from shepherd.formats.check import Bytes, Checker, check64, raw
from shepherd.formats.checkpoint import TAIL, Mark
from shepherd.formats.contrib import Block
from shepherd.formats.contribkeys import BlockKeys, decode_keys
from shepherd.formats.control import FileEntry
from shepherd.formats.frame import Frame, FrameKind
from shepherd.formats.tables import Records
from shepherd.store.disk import fsio, opening
from shepherd.store.disk.mapped import Mapped

READ_BYTES: Final = 1 << 22
B = TypeVar("B")
Opener: TypeAlias = Callable[[Path], AbstractContextManager[int]]


class LogWriter:
    """Appends frames to one file."""

    def __init__(self, path: Path, length: int | None = None) -> None:
        self.file = fsio.AppendFile(path, length)

    def append(self, kind: FrameKind, records: int, payload: Bytes) -> None:
        self.file.write(frame.pack_frame(kind, records, payload))

    def append_records(self, kind: FrameKind, records: Records) -> None:
        if len(records):
            self.append(kind, len(records), raw(records))


@contextmanager
def _open(path: Path) -> Iterator[int]:
    try:
        fd = opening.open_regular(path)
    except FileNotFoundError:
        raise Corruption("the file is missing", path) from None
    try:
        yield fd
    finally:
        os.close(fd)


def entry_of(path: Path) -> FileEntry:
    """Length and checksum of a whole file, however large: read in pieces, because pages of a mapping count as memory."""
    checker, length = Checker(), 0
    with _open(path) as fd:
        while data := opening.read_at(path, fd, READ_BYTES, length):
            checker.update(data)
            length += len(data)
    return FileEntry(length, checker.value())


def map_file(path: Path) -> memoryview:
    """All bytes of a file, mapped and in memory: for what is not too large and is used at once."""
    try:
        file = Mapped(path)
    except FileNotFoundError:
        raise Corruption("the file is missing", path) from None
    return file.touch(0, file.length)


def read_frames(
    path: Path, length: int | None = None, most: int = frame.MAX_PAYLOAD, open_log: Opener = _open
) -> Iterator[Frame]:
    """Every frame of a sealed log, or of the first `length` bytes of a growing one; what is not a frame is Corruption.

    No frame of more than `most` bytes is held: of a log from elsewhere, whatever its headers say.
    """
    with open_log(path) as fd:
        size, end = os.fstat(fd).st_size if length is None else length, 0
        while end < size:
            start = end
            for part in frame.frames(_window(path, fd, start, size, most)):
                end = start + part.end
                yield replace(part, offset=start + part.offset, end=end)
            if end == start:
                raise Corruption("no whole frame begins here", path, end)


def frame_places(path: Path) -> list[tuple[int, int, int]]:
    """Where each frame of a sealed log begins and ends, and its records, by the headers alone; `frame_at` checks the rest."""
    places, end = [], 0
    with _open(path) as fd:
        size = os.fstat(fd).st_size
        while end < size:
            head = opening.read_at(path, fd, frame.HEADER.size, end)
            if len(head) < frame.HEADER.size or not head.startswith(frame.MAGIC):
                raise Corruption("no whole frame begins here", path, end)
            _magic, length, _kind, _zero, count, _check = frame.HEADER.unpack(head)
            places.append((end, end + frame.HEADER.size + length, count))
            end = places[-1][1]
    return places


def frame_at(path: Path, start: int, end: int) -> Frame:
    """One frame of a sealed log, whose place is known."""
    with _open(path) as fd:
        whole = frame.read_frame(opening.read_at(path, fd, end - start, start), 0)
    if whole is None:
        raise Corruption("no whole frame begins here", path, start)
    return replace(whole, offset=start, end=end)


def _window(path: Path, fd: int, start: int, size: int, most: int) -> bytes:
    """Bytes from `start` on, with the whole of the frame that begins there."""
    data = opening.read_at(path, fd, min(READ_BYTES, size - start), start)
    if len(data) < frame.HEADER.size or not data.startswith(frame.MAGIC):
        return data
    payload = int(frame.HEADER.unpack_from(data)[1])
    if payload > most:
        raise Corruption(f"a frame of {payload} bytes, where one has at most {most}", path, start)
    whole = frame.HEADER.size + payload
    return data if whole <= len(data) else opening.read_at(path, fd, min(whole, size - start), start)


def records(
    path: Path, kind: FrameKind, dtype: np.dtype[np.void], length: int | None = None, most: int = frame.MAX_PAYLOAD
) -> Iterator[Records]:
    """The fixed-width records of each frame of a log, or of its first `length` bytes."""
    for log_frame in read_frames(path, length, most):
        yield records_of(log_frame, kind, dtype, path)


def records_of(log_frame: Frame, kind: FrameKind, dtype: np.dtype[np.void], path: Path) -> Records:
    """The fixed-width records of one frame."""
    if log_frame.kind != kind or len(log_frame.payload) != log_frame.records * dtype.itemsize:
        raise Corruption(f"not a frame of {log_frame.records} {kind.name.lower()} records", path, log_frame.offset)
    return np.frombuffer(log_frame.payload, dtype)


def blocks(path: Path, with_texts: bool = True, length: int | None = None, most: int = frame.MAX_PAYLOAD) -> Iterator[Block]:
    """The blocks of a contrib log, or of its first `length` bytes."""
    return _decode(path, lambda payload: contrib.decode(payload, with_texts), length, most)


def block_keys(path: Path) -> Iterator[BlockKeys]:
    """The keys of the blocks of a sealed contrib log, without their texts."""
    return _decode(path, decode_keys, None)


def _decode(path: Path, decode: Callable[[Bytes], B], length: int | None, most: int = frame.MAX_PAYLOAD) -> Iterator[B]:
    for log_frame in read_frames(path, length, most):
        if log_frame.kind != FrameKind.CONTRIB:
            raise Corruption("not a contrib block", path, log_frame.offset)
        try:
            yield decode(log_frame.payload)
        except Corruption as error:
            raise Corruption(error.what, path, log_frame.offset) from error


def read_records(path: Path, kind: FrameKind, dtype: np.dtype[np.void]) -> Records:
    """All records of a sealed log."""
    return join_records(list(records(path, kind, dtype)), dtype)


def join_records(parts: Sequence[Records], dtype: np.dtype[np.void]) -> Records:
    """Records end to end, copied as plain numbers: numpy would go through them field by field."""
    return np.concatenate([np.zeros(0, np.uint64), *(part.view(np.uint64) for part in parts)]).view(dtype)


def mark(path: Path, length: int) -> Mark | None:
    """The mark of a file's first `length` bytes, or None where it is shorter than that."""
    try:
        with opening.open_stream(path) as file, opening.reading(path):
            file.seek(max(0, length - TAIL))
            tail = file.read(min(length, TAIL))
    except FileNotFoundError:
        return None
    return Mark(length, check64(tail)) if len(tail) == min(length, TAIL) else None
