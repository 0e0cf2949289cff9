"""check64: the one checksum of the database (docs/formats.md). It detects damage; it is no signature."""

from __future__ import annotations

from typing import Final, TypeAlias

import mmh3
import numpy as np

from shepherd.formats.tables import Array

Bytes: TypeAlias = bytes | bytearray | memoryview

SEED: Final = 0x5348  # not zero: an all-zero tail must never look valid
BLOCK: Final = 1 << 20
_SMALL: Final = 1 << 14


def check64(*parts: Bytes) -> int:
    """The checksum of the parts laid end to end."""
    if len(parts) > 1 and sum(map(len, parts)) <= _SMALL:
        parts = (b"".join(parts),)  # copying few bytes costs a third of what a hash object does
    if len(parts) == 1:
        return int.from_bytes(mmh3.mmh3_x64_128_digest(parts[0], SEED)[:8], "little")
    checker = Checker()
    for part in parts:
        checker.update(part)
    return checker.value()


class Checker:
    """check64 of bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._hash = mmh3.mmh3_x64_128(seed=SEED)

    def update(self, data: Bytes) -> None:
        self._hash.update(data)

    def value(self) -> int:
        return int.from_bytes(self._hash.digest()[:8], "little")


def raw(array: Array) -> memoryview:
    """The bytes of an array, without a copy where it is contiguous."""
    return np.ascontiguousarray(array).view(np.uint8).data if array.size else memoryview(b"")
