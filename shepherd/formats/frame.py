"""Frames: what logs are made of (docs/formats.md). A torn, zeroed or altered frame never reads as a frame."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from shepherd.formats.check import Bytes, check64

MAGIC: Final = b"SHF1"
HEADER: Final = struct.Struct("<4sIHHIQ")
MAX_PAYLOAD: Final = 1 << 30


class FrameKind(IntEnum):
    JOURNAL = 1
    CONTRIB = 2
    CHECKPOINT = 3
    END = 4
    PLAN = 5
    FEEDBACK = 6
    ROWS = 7
    STREAM_END = 8
    TRAILER = 9


@dataclass(frozen=True)
class Frame:
    offset: int  # of its header in the log
    end: int  # of its last byte, plus one
    kind: FrameKind
    records: int
    payload: memoryview


def pack_frame(kind: FrameKind, records: int, payload: Bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame of {len(payload)} bytes is over the limit of {MAX_PAYLOAD}")
    head = struct.pack("<4sIHHI", MAGIC, len(payload), kind, 0, records)
    return b"".join((head, struct.pack("<Q", check64(head, payload)), payload))


def read_frame(data: Bytes, offset: int) -> Frame | None:
    """The frame at `offset`, or None where no whole and undamaged frame begins there."""
    view = memoryview(data)
    start = offset + HEADER.size
    if start > len(view):
        return None
    magic, length, kind, zero, records, check = HEADER.unpack_from(view, offset)
    if magic != MAGIC or zero or length > MAX_PAYLOAD or start + length > len(view):
        return None
    payload = view[start : start + length]
    if check64(view[offset : offset + 16], payload) != check:
        return None
    try:
        return Frame(offset, start + length, FrameKind(kind), records, payload)
    except ValueError:
        return None


def frames(data: Bytes, offset: int = 0) -> Iterator[Frame]:
    """All frames from `offset` up to the first place where none begins: the caller compares that place with the length."""
    while (frame := read_frame(data, offset)) is not None:
        yield frame
        offset = frame.end
