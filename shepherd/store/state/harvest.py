"""A harvest: what one dispatcher gathered, and the checkpoints that bound what a crash can cost.

Files: seg.* (buckets), journal, contrib, checkpoints. A checkpoint is appended only after everything it names is durable; so
rolling back to the newest one that checks loses exactly what came after it, and nothing else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from shepherd.errors import Corruption, RecoveryNeeded
from shepherd.formats import frame
from shepherd.formats.check import Bytes
from shepherd.formats.checkpoint import Checkpoint, Mark, unpack_checkpoint
from shepherd.formats.frame import MAX_PAYLOAD, FrameKind
from shepherd.formats.tables import JOURNAL, Records, split_oid
from shepherd.store.disk import fsio, locks, names, opening
from shepherd.store.state import logs
from shepherd.store.state.inbox_files import MOST_HELD_BYTES
from shepherd.store.state.objects import Objects, SegmentWriter

_EMPTY = Checkpoint(0, 0, Mark(0, 0), Mark(0, 0), ())
JOURNAL_FLUSH = 4096  # records per frame, at most


@dataclass(frozen=True)
class HarvestStatus:
    """What the checkpoint log of a harvest directory says."""

    checkpoint: Checkpoint
    log_bytes: int  # of the checkpoint log up to and including it
    ended: bool
    damage: str = ""  # what was durable once, and is so no more: a crash alone never does that


def inspect(path: Path, deep: bool = False) -> HarvestStatus:
    """The newest checkpoint whose files are as it says; the empty one where there is none.

    A torn tail behind it is what a crash leaves. A checkpoint that is whole but does not hold, or one behind a frame that is not
    whole, is damage: it was written after all it names was durable. `deep` reads all that was promised, not only its tail.
    """
    log = path / names.CHECKPOINTS
    status, damage, end = HarvestStatus(_EMPTY, 0, False), "", 0
    try:
        data = opening.read_file(log)
    except FileNotFoundError:
        return status
    sound = _sound_bytes(path) if deep else {}
    for record in frame.frames(data):
        end = record.end
        point = _point_of(record)
        if point is None:
            damage = f"{names.CHECKPOINTS} is damaged at {record.offset}"
            continue
        broken = _broken(path, point, sound)
        if broken:
            damage = f"{broken} is not as checkpoint {point.sequence} says"
        else:
            status, damage = HarvestStatus(point, record.end, record.kind == FrameKind.END), ""
    if _frame_behind(data, end):
        damage = f"{names.CHECKPOINTS} is damaged at {end}"
    return replace(status, damage=damage)


def _point_of(record: frame.Frame) -> Checkpoint | None:
    """None where the frame is of another log."""
    try:
        return unpack_checkpoint(record.payload) if record.kind in (FrameKind.CHECKPOINT, FrameKind.END) else None
    except Corruption:
        return None


def _broken(path: Path, point: Checkpoint, sound: Mapping[str, int]) -> str:
    """The first file that is not as the checkpoint says, or that is sound only up to a place before its mark; or nothing."""
    for name, expected in files_of(point):
        if logs.mark(path / name, expected.length) != expected or sound.get(name, expected.length) < expected.length:
            return name
    return ""


def files_of(point: Checkpoint) -> list[tuple[str, Mark]]:
    """The files that a checkpoint names."""
    segments = [(names.local_segment(i + 1), mark) for i, mark in enumerate(point.segments)]
    return [(names.JOURNAL, point.journal), (names.CONTRIB, point.contrib), *segments]


def _sound_bytes(path: Path) -> dict[str, int]:
    """How many bytes of each file, from its beginning, are whole frames or buckets."""
    sound = {}
    for name in sorted(entry.name for entry in path.iterdir()):
        number = names.parse_local_segment(name)
        if number is not None:
            sound[name] = _sound_end(_bucket_ends(path, number))
        elif name in (names.JOURNAL, names.CONTRIB):
            sound[name] = _sound_end(part.end for part in logs.read_frames(path / name))
    return sound


def _bucket_ends(path: Path, number: int) -> Iterator[int]:
    objects = Objects(path, names.local_segment)
    try:
        for oid, header in objects.scan(number):
            objects.get(oid, header.length)
            yield split_oid(oid)[1] + header.length
    finally:
        objects.close()


def _sound_end(ends: Iterator[int]) -> int:
    """The last of these, up to where one cannot be read."""
    last = 0
    try:
        for end in ends:
            last = end
    except Corruption:
        pass  # what is behind it may belong to it
    return last


def _frame_behind(data: bytes, end: int) -> bool:
    """Whether a whole frame stands behind the place where none begins: a torn append leaves nothing behind it."""
    rest = data[end:]
    offset = rest.find(frame.MAGIC, 1)
    while offset > 0:
        if frame.read_frame(rest, offset) is not None:
            return True
        offset = rest.find(frame.MAGIC, offset + 1)
    return False


def confirm_end(path: Path) -> None:
    """Make the end of a harvest durable before anything is built on it.

    Its dispatcher may have been killed between writing and syncing it. A power cut would then undo the end, but not what was done
    because of it: a harvest that has not ended, with files that are sealed, can neither be continued nor be taken.
    """
    fsio.sync_file(path / names.CHECKPOINTS)


def rollback(path: Path, accept_loss: bool = False) -> HarvestStatus:
    """Cut every file back to the newest checkpoint that holds. Safe to repeat, safe to kill anywhere.

    The checkpoint log is cut first: a checkpoint must never name bytes that are gone. What was durable is given up only if the
    caller accepts that: shep-recover, which says so.
    """
    status = inspect(path, deep=accept_loss)
    if status.damage and not accept_loss:
        raise RecoveryNeeded(f"{path}: {status.damage}; shep-recover goes back to checkpoint {status.checkpoint.sequence}")
    for name in (names.CHECKPOINTS, names.JOURNAL, names.CONTRIB):
        if not (path / name).exists():  # killed while the harvest was being made
            logs.LogWriter(path / name).file.close()
    fsio.truncate(path / names.CHECKPOINTS, status.log_bytes)
    fsio.truncate(path / names.JOURNAL, status.checkpoint.journal.length)
    fsio.truncate(path / names.CONTRIB, status.checkpoint.contrib.length)
    for entry in sorted(path.iterdir()):
        number = names.parse_local_segment(entry.name)
        if number is None:
            continue
        if number <= len(status.checkpoint.segments):
            fsio.truncate(entry, status.checkpoint.segments[number - 1].length)
        else:
            fsio.unlink(entry)
    _unseal(path)
    fsio.sync_directory(path)
    return status


def _unseal(harvest: Path) -> None:
    """What is continued must be writable: a copy, or a file that was put in its place, may not be."""
    for path in sorted(harvest.iterdir()):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not status.st_mode & 0o200:
            fsio.restore_mode(path, stat.S_IMODE(status.st_mode) | 0o600)


class Harvest:
    """A harvest that is being written. Only one program at a time: its lock says which.

    `store` buckets, `journal` what came of each planned row, `contribute` links, and call `checkpoint` from time to time: only
    what came before one survives a crash. `end` says that the harvest is complete, for shep-cork. For documents that you already
    have, `gathering.Gathering` does all this.
    """

    def __init__(self, path: Path, segment_bytes: int) -> None:
        """Begin the harvest at `path`, or roll back and continue the one that is there."""
        self.path = path
        self.resumed = path.exists()
        fsio.make_directory(path)
        self._lock = locks.lock(path / names.LOCK, "a dispatcher")
        status = rollback(path)
        if status.ended:
            self._lock.release()
            raise ValueError(f"{path}: this harvest has ended")
        self._sequence = status.checkpoint.sequence
        self._journal = logs.LogWriter(path / names.JOURNAL, status.checkpoint.journal.length)
        self._contrib = logs.LogWriter(path / names.CONTRIB, status.checkpoint.contrib.length)
        self._checkpoints = logs.LogWriter(path / names.CHECKPOINTS, status.log_bytes)
        self._segments = SegmentWriter(path, names.local_segment, len(status.checkpoint.segments) + 1, segment_bytes)
        self._marks = list(status.checkpoint.segments)
        self._records: list[bytes] = []
        self.objects = Objects(path, names.local_segment)
        self.stored_bytes = sum(m.length for m in self._marks)

    def journalled(self) -> Records:
        """What was journalled before this run: the plan rows that need no second visit."""
        return read_journal(self.path)

    def store(self, data: bytes) -> int:
        """Append a bucket; its oid inside this harvest."""
        self.stored_bytes += len(data)
        return self._segments.append(data)

    def journal(self, record: bytes) -> None:
        """Append one journal record (its 128 bytes)."""
        self._records.append(record)
        if len(self._records) >= JOURNAL_FLUSH:
            self._flush_journal()

    def contribute(self, records: int, block: Bytes) -> None:
        """Append a contrib block (formats.contrib.encode) of so many records."""
        self._contrib.append(FrameKind.CONTRIB, records, block)

    def checkpoint(self, time_ms: int) -> None:
        """Make everything so far durable, then say so."""
        self._write_point(FrameKind.CHECKPOINT, time_ms)

    def end(self, time_ms: int) -> None:
        """The last checkpoint of a harvest that ended in good order."""
        self._write_point(FrameKind.END, time_ms)
        self.close()

    def close(self) -> None:
        """Let go; what came after the last checkpoint is not kept."""
        for file in (self._journal.file, self._contrib.file, self._checkpoints.file, self._segments):
            file.close()
        self.objects.close()
        self._lock.release()

    def _flush_journal(self) -> None:
        self._journal.append_records(FrameKind.JOURNAL, np.frombuffer(b"".join(self._records), JOURNAL))
        self._records.clear()

    def _write_point(self, kind: FrameKind, time_ms: int) -> None:
        self._flush_journal()
        self._segments.sync()
        self._journal.file.sync()
        self._contrib.file.sync()
        marked = len(self._marks)
        for number in range(max(marked, 1), self._segments.next):  # the last known one may have grown
            path = self.path / names.local_segment(number)
            self._marks[number - 1 :] = [_mark(path, path.stat().st_size)]
        if len(self._marks) > marked or self._sequence == 0:
            fsio.sync_directory(self.path)  # the names of new segments, too, must survive
        self._sequence += 1
        point = Checkpoint(
            self._sequence,
            time_ms,
            _mark(self._journal.file.path, self._journal.file.length),
            _mark(self._contrib.file.path, self._contrib.file.length),
            tuple(self._marks),
        )
        self._checkpoints.append(kind, 1, point.pack())
        self._checkpoints.file.sync()


def copy(source: Path, target: Path) -> None:
    """A second harvest like one that has ended or been rolled back, in a directory that is being built."""
    if not target.parent.exists():
        fsio.make_directory(target.parent)
    fsio.make_directory(target)
    for path in sorted(source.iterdir()):
        if path.name == names.LOCK:
            continue
        fsio.copy_file(path, target / path.name, appendable=True)
    fsio.sync_directory(target)
    fsio.sync_directory(target.parent)


def verify(path: Path, foreign: bool = False) -> None:
    """Read every frame and bucket up to the last checkpoint; Corruption names the first that is damaged.

    Checksums show that all is as it was written. What others wrote is taken apart too, before anything trusts it.
    """
    status = inspect(path)
    if status.damage:
        raise Corruption(status.damage, path)
    point, objects = status.checkpoint, Objects(path, names.local_segment)
    if not point.sequence:  # nothing was promised: a harvest that was killed while it was made may lack files
        return
    try:
        most = MOST_HELD_BYTES if foreign else MAX_PAYLOAD
        for _frame in logs.read_frames(path / names.JOURNAL, point.journal.length, most):
            pass
        read = logs.blocks if foreign else logs.read_frames
        for _block in read(path / names.CONTRIB, length=point.contrib.length, most=most):
            pass
        for number, segment in enumerate(point.segments, 1):
            objects.verify(number, segment.length, shapes=foreign)
    finally:
        objects.close()


def _mark(path: Path, length: int) -> Mark:
    mark = logs.mark(path, length)
    if mark is None:
        raise Corruption(f"shorter than the {length} bytes written to it", path)
    return mark


def read_journal(path: Path) -> Records:
    """The journal of a harvest directory that has been rolled back or has ended."""
    return logs.read_records(path / names.JOURNAL, FrameKind.JOURNAL, JOURNAL)
