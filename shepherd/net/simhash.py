"""A 64-bit simhash of a text: texts that differ little have hashes that differ in few bits (phases/detect.py compares them).

Each bit is the majority of that bit in the hashes of all words, so a word that occurs often counts often. Short words are left
out, because in most languages they are the ones that all texts share. Integers only: every machine gives the same. Languages
without blanks have long words, and are told apart less finely.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

from shepherd.formats.tables import U64

MAX_BYTES: Final = 64 * 1024  # of a text that are looked at
MAX_WORDS: Final = 1_024  # the same; each costs about 0.1 us
SHORT: Final = 3  # bytes

_MIX: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST: Final = np.uint64(31)
_SHIFTS: Final = np.arange(8, dtype=np.uint64)[:, None]
_LOWEST: Final = np.uint64(0x0101010101010101)  # the lowest bit of each byte
_ROOM: Final = 255  # bits that a byte can count


def simhash(text: bytes) -> int | None:
    """Of the beginning of a text in UTF-8; None where it has no words."""
    words = [word for word in text[:MAX_BYTES].lower().split(None, MAX_WORDS)[:MAX_WORDS] if len(word) > SHORT]
    if not words:
        return None
    packed = struct.pack(f"<{len(words)}I", *map(zlib.crc32, words))  # half the time of np.fromiter
    ones = _ones(_spread(np.frombuffer(packed, "<u4").astype("<u8")))
    return sum(1 << bit for bit, count in enumerate(ones) if 2 * count > len(words))


def _spread(hashes: U64) -> U64:
    """32 bits made 64, each of them depending on all (the finaliser of splitmix64)."""
    for shift, factor in _MIX:
        hashes = (hashes ^ (hashes >> shift)) * factor
    return hashes ^ (hashes >> _LAST)


def _ones(hashes: U64) -> list[int]:
    """How many of the hashes have each bit: bits are added in place, eight at a time, while a byte has room for the count."""
    lanes = (hashes >> _SHIFTS) & _LOWEST
    sums = np.add.reduceat(lanes, range(0, len(hashes), _ROOM), axis=1).astype("<u8")
    counts = sums.view(np.uint8).reshape(8, -1, 8).sum(axis=1, dtype=np.int64)  # by shift and byte
    return [int(count) for count in counts.T.ravel()]
