"""Checkpoint and end records: how long each file of a harvest was when all of it was durable (docs/formats.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from shepherd.errors import Corruption
from shepherd.formats.check import Bytes

TAIL: Final = 4096
_FIXED: Final = struct.Struct("<QqQQQQII")
_SEGMENT: Final = struct.Struct("<QQ")


@dataclass(frozen=True)
class Mark:
    """A file's length, and the check64 of its last TAIL bytes."""

    length: int
    tail: int


@dataclass(frozen=True)
class Checkpoint:
    sequence: int
    time_ms: int
    journal: Mark
    contrib: Mark
    segments: tuple[Mark, ...]

    def pack(self) -> bytes:
        j, c = self.journal, self.contrib
        fixed = _FIXED.pack(self.sequence, self.time_ms, j.length, j.tail, c.length, c.tail, len(self.segments), 0)
        return fixed + b"".join(_SEGMENT.pack(s.length, s.tail) for s in self.segments)


def unpack_checkpoint(payload: Bytes) -> Checkpoint:
    if len(payload) < _FIXED.size:
        raise Corruption("a checkpoint record is too short")
    sequence, time_ms, jl, jt, cl, ct, count, _zero = _FIXED.unpack_from(payload, 0)
    if len(payload) != _FIXED.size + count * _SEGMENT.size:
        raise Corruption("a checkpoint record has the wrong length")
    segments = tuple(Mark(*_SEGMENT.unpack_from(payload, _FIXED.size + i * _SEGMENT.size)) for i in range(count))
    return Checkpoint(sequence, time_ms, Mark(jl, jt), Mark(cl, ct), segments)
