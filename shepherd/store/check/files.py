"""The files of one state directory: exactly those that control names, each of its length, header and checksum.

Invariant: reads only. Where a checksum fails, every record to blame is named, not only the first;
where the disk fails, every place.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias, cast

import numpy as np

from shepherd.errors import Corruption, IoFailed
from shepherd.formats import bucket, frame, tables
from shepherd.formats.check import check64
from shepherd.formats.checkpoint import Checkpoint, unpack_checkpoint
from shepherd.formats.control import FileEntry
from shepherd.formats.frame import FrameKind
from shepherd.store.check.bad_sectors import past_bad_sectors, unread_places
from shepherd.store.check.faults import Fault, fault_of
from shepherd.store.disk import kinds, names, opening
from shepherd.store.state import harvest, logs
from shepherd.store.state.columns import Column
from shepherd.store.state.directory import State
from shepherd.urls import KEY_BYTES

Tick: TypeAlias = Callable[[int], object]  # gets how many bytes have been read
# Device, inode, length and checksum of the files found sound: states share most of them, and each is read once in a walk.
# The checksum is part of it, because another state's control may expect another one of the same file.
Sound: TypeAlias = set[tuple[int, int, int, int]]


TEXTS: Final = (names.REPORT, names.EQUIV)  # all else in a state that is no column is segments and framed logs


def walk_control(state: State) -> Iterator[Fault]:
    """Control names every column, all of a table of the same number of rows; its next numbers are free; it has a key."""
    files, control = state.control.files, state.path / names.CONTROL
    for table, dtypes in tables.TABLES.items():
        rows: dict[str, int] = {}
        for name, dtype in dtypes.items():
            if f"{table}/{name}" in files:
                rows[name] = files[f"{table}/{name}"].length // np.dtype(dtype).itemsize
            else:
                yield Fault(state.path / table / name, None, "the column is not in control")
        first = next(iter(rows.values()), 0)
        for name, count in rows.items():
            if count != first:
                yield Fault(state.path / table / name, None, f"{count} rows, where the table has {first}")
    if f"sites/{names.NAMES}" not in files:
        yield Fault(state.path / "sites" / names.NAMES, None, "not in control")
    for kind, numbers, free in (
        ("segment", state.segments(), state.control.segments),
        (names.CONTRIB, state.numbered(names.CONTRIB), state.control.contribs),
        (names.JOURNAL, state.numbered(names.JOURNAL), state.control.contribs),
    ):
        if numbers and numbers[-1] >= free:
            yield Fault(control, None, f"calls number {free} free, but has {kind} {numbers[-1]}")
    if len(state.control.key) != KEY_BYTES:
        yield Fault(control, None, f"its key has {len(state.control.key)} bytes instead of {KEY_BYTES}")


def _below(directory: Path) -> Iterator[Path]:
    """Every file below a directory. os.walk would pass over what the disk does not give."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))
        else:
            yield Path(entry.path)


def walk_files(state: State, quick: bool, tick: Tick, sound: Sound, buckets: bool = True) -> Iterator[Fault]:
    """Exactly the files that control names, each of its length and checksum; `sound` grows by those that are.

    Without `buckets` the bytes of segments are not read.
    """
    yield from past_bad_sectors(state.path, _strange_files(state))
    for path, entry in state.control.files.items():
        without_bytes = not buckets and path.startswith(f"{names.OBJECTS}/")
        yield from past_bad_sectors(state.path / path, walk_file(state, path, entry, quick or without_bytes, sound))
        tick(entry.length)


def _strange_files(state: State) -> Iterator[Fault]:
    files = state.control.files
    expected = {names.CONTROL, *files, *(p + names.CHECK for p in files if p.partition("/")[0] in tables.TABLES)}
    for path in _below(state.path):
        relative = str(path.relative_to(state.path))
        if names.is_staged(path.name):
            yield Fault(path, None, "left by a killed shep-recover; the next one needs it", note=True)
        elif relative not in expected and relative.partition("/")[0] != names.HARVESTS:
            yield Fault(path, None, "not named in control")


def walk_file(state: State, path: str, entry: FileEntry, quick: bool, sound: Sound) -> Iterator[Fault]:
    """One file that control names."""
    file = state.path / path
    if not names.known_in_state(path):
        yield Fault(file, None, "control names a file that no state has")
    elif not file.is_file() or file.is_symlink():
        odd = kinds.odd_file(file)
        yield Fault(file, None, f"missing: {odd} is in its place" if odd else "missing")
    elif file.stat().st_size != entry.length:
        yield Fault(file, min(file.stat().st_size, entry.length), f"{file.stat().st_size} bytes instead of {entry.length}")
    else:
        yield from _bytes(state, path, entry, quick, sound)


def _bytes(state: State, path: str, entry: FileEntry, quick: bool, sound: Sound) -> Iterator[Fault]:
    """One file against its checksum, unless another state has shown it to be sound."""
    file = state.path / path
    status = file.stat()
    key = (status.st_dev, status.st_ino, entry.length, entry.check)
    if path.partition("/")[0] in tables.TABLES:
        faults = list(_column(state, path, quick or key in sound))
    elif quick:
        faults = list(_first_header(file, path))
    elif key not in sound and check64(logs.map_file(file)) != entry.check:
        faults = list(_faults_inside(file, path)) or [Fault(file, None, "the checksum of the file fails")]
    else:
        faults = []
    if not faults and not quick:
        sound.add(key)
    yield from faults


def _column(state: State, path: str, skip: bool) -> Iterator[Fault]:
    """Length and block table always; the blocks themselves unless they may be skipped."""
    table, _, name = path.partition("/")
    dtype = tables.TABLES[table].get(name, "u1")
    try:
        column = Column(state.path / path, dtype, state.control.files[path])
    except Corruption as error:
        yield fault_of(state.path, error)
        return
    for offset in () if skip else column.bad_blocks():
        yield Fault(state.path / path, offset, "the block is damaged")


def _first_header(file: Path, path: str) -> Iterator[Fault]:
    """Whether a segment or log begins like one: all of it that a quick look reads."""
    with opening.open_stream(file) as stream:
        head = stream.read(max(bucket.HEADER_BYTES, frame.HEADER.size))
    if not head or path in TEXTS:
        return
    if not path.startswith(f"{names.OBJECTS}/"):
        if not head.startswith(frame.MAGIC):
            yield Fault(file, 0, "no frame begins here")
        return
    try:
        bucket.parse_header(head)
    except Corruption as error:
        yield Fault(file, 0, error.what)


# --- the records that are to blame ------------------------------------------------------------------------------


def _faults_inside(file: Path, path: str) -> Iterator[Fault]:
    """The file's checksum fails: each bucket or frame in it that does not check."""
    if path.startswith(f"{names.OBJECTS}/"):
        yield from _damaged_buckets(file, len(logs.map_file(file)))
    elif path not in TEXTS:
        yield from _damaged_frames(file, len(logs.map_file(file)))


def _damaged_buckets(file: Path, length: int) -> Iterator[Fault]:
    """Behind a damaged header or attribute the walk continues at the next bucket whose own check."""
    data, offset = logs.map_file(file)[:length], 0
    while offset < len(data):
        try:
            offset += bucket.parse(data, offset).header.length
            continue
        except Corruption as error:
            yield Fault(file, offset, error.what)
        if _is_bucket(data, offset):
            offset += bucket.parse_header(data, offset).length
        else:
            offset = _next(data, bucket.MAGIC, offset + 1, _is_bucket)


def _damaged_frames(file: Path, length: int) -> Iterator[Fault]:
    data, offset = logs.map_file(file)[:length], 0
    while offset < len(data):
        log_frame = frame.read_frame(data, offset)
        if log_frame is None:
            yield Fault(file, offset, "no whole frame begins here")
        offset = log_frame.end if log_frame is not None else _next(data, frame.MAGIC, offset + 1, _is_frame)


def _is_bucket(data: memoryview, offset: int) -> bool:
    """Whether a bucket begins here, whatever its body is like."""
    try:
        return offset + bucket.parse(data, offset, with_body=False).header.length <= len(data)
    except Corruption:
        return False


def _is_frame(data: memoryview, offset: int) -> bool:
    return frame.read_frame(data, offset) is not None


def _next(data: memoryview, magic: bytes, offset: int, begins: Callable[[memoryview, int], bool]) -> int:
    """The next place where a whole record begins, or the end."""
    mapped = cast(mmap.mmap, data.obj)
    while 0 <= (offset := mapped.find(magic, offset)) < len(data):
        if begins(data, offset):
            return offset
        offset += 1
    return len(data)


# --- logs and harvests ------------------------------------------------------------------------------------------


def walk_logs(state: State, paths: Iterable[str] | None = None) -> Iterator[Fault]:
    """Plan and journals are of whole records, contributions of blocks that expand; of all files, or of these."""
    for path in state.control.files if paths is None else paths:
        numbered = names.parse_numbered(path)
        if path == names.PLAN:
            yield from _read(state.path / path, logs.records(state.path / path, FrameKind.PLAN, tables.PLAN))
        elif numbered is not None and numbered[0] == names.JOURNAL:
            yield from _read(state.path / path, logs.records(state.path / path, FrameKind.JOURNAL, tables.JOURNAL))
        elif numbered is not None:
            yield from _read(state.path / path, logs.blocks(state.path / path))


def _read(path: Path, parts: Iterator[object]) -> Iterator[Fault]:
    """Read to the end, or to the fault."""
    try:
        for _part in parts:
            pass
    except Corruption as error:
        yield fault_of(path, error)


def walk_harvest(path: Path, quick: bool, ours: bool = True) -> Iterator[Fault]:
    """What a checkpoint called durable is there and whole; what came after it may be torn. Only `ours` are ever continued."""
    try:
        status, point = harvest.inspect(path), newest_point(path / names.CHECKPOINTS)
    except Corruption as error:
        yield fault_of(path, error)
        return
    except IoFailed as error:
        yield from unread_places(path / names.CHECKPOINTS, error)
        return
    faults = list(_harvest_files(path, point, quick)) if point is not None else []
    yield from faults
    if status.damage and not faults:
        yield Fault(path / names.CHECKPOINTS, None, status.damage)
    if not status.ended:
        what = "the reap has not ended; shep-reap continues from its last checkpoint"
        yield Fault(path, None, what if ours else "it has not ended; no cork takes it in", note=True)


def newest_point(log: Path) -> Checkpoint | None:
    """The last checkpoint that can be read, whether it holds or not."""
    if kinds.odd_file(log) or not log.exists():
        return None
    frames = list(frame.frames(logs.map_file(log)))
    return unpack_checkpoint(frames[-1].payload) if frames else None


def _harvest_files(path: Path, point: Checkpoint, quick: bool) -> Iterator[Fault]:
    files = [(names.JOURNAL, point.journal.length), (names.CONTRIB, point.contrib.length)]
    files += [(names.local_segment(number), mark.length) for number, mark in enumerate(point.segments, 1)]
    for name, length in files:
        yield from past_bad_sectors(path / name, _harvest_file(path / name, length, point, quick))


def _harvest_file(file: Path, length: int, point: Checkpoint, quick: bool) -> Iterator[Fault]:
    odd = kinds.odd_file(file)
    have = file.stat().st_size if file.exists() and not odd else 0
    if odd:
        yield Fault(file, None, f"missing: {odd} is in its place")
    elif have < length:
        yield Fault(file, have, f"{have} bytes, but {length} were durable at checkpoint {point.sequence}")
    elif not quick and names.parse_local_segment(file.name) is not None:
        yield from _damaged_buckets(file, length)
    elif not quick:
        yield from list(_damaged_frames(file, length)) or _harvest_records(file, length)


def _harvest_records(file: Path, length: int) -> Iterator[Fault]:
    if file.name == names.JOURNAL:
        yield from _read(file, logs.records(file, FrameKind.JOURNAL, tables.JOURNAL, length))
    else:
        yield from _read(file, logs.blocks(file, length=length))
