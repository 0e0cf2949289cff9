"""Chance without a random generator: every number is a hash of what it is for.

The toy web stores nothing. Whatever it needs to decide (a path, a word, a link) it draws under a key such as
(seed, "links", site, path), so the same question has the same answer in every process, on every machine.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")

_BLOCK_BYTES = 512


class Draw:
    """An endless row of numbers that depends on its key alone."""

    def __init__(self, *key: object) -> None:
        self._key = "\0".join(map(str, key)).encode()
        self._block = 0
        self._bytes = b""
        self._offset = 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        if self._offset == len(self._bytes):
            self._bytes = hashlib.shake_128(b"%d\0%b" % (self._block, self._key)).digest(_BLOCK_BYTES)
            self._block += 1
            self._offset = 0
        number = int.from_bytes(self._bytes[self._offset : self._offset + 4], "little")
        self._offset += 4
        return (number * limit) >> 32

    def one_in(self, chances: int) -> bool:
        """True once in so many draws."""
        return self.below(chances) == 0

    def pick(self, items: Sequence[T]) -> T:
        """Any item, each as likely as the others."""
        return items[self.below(len(items))]

    def zipf(self, items: Sequence[T]) -> T:
        """Any item, the n-th with a likelihood of 1/n: few are popular, most are not."""
        steps = _harmonic(len(items))
        return items[bisect_right(steps, self.below(steps[-1]))]


@lru_cache(maxsize=256)
def _harmonic(count: int) -> tuple[int, ...]:
    # Integers, because sums of floats may differ between machines.
    return tuple(accumulate(1_000_000 // n for n in range(1, count + 1)))


def digest(*key: object) -> str:
    """16 hex digits that depend on the key alone."""
    return hashlib.blake2b("\0".join(map(str, key)).encode(), digest_size=8).hexdigest()
