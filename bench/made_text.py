"""Texts of made databases, many at a time: names of sites and paths, spelled from numbers by numpy.

A text is put together from pieces, each a word of a table, chosen by the bits of a number. No two numbers give the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LABEL_BITS = 30  # normalised sites are numbered below 2^30
_ODD = 0x2545F491  # multiplied by it, neighbours among the numbers get names that are not alike
_SYLLABLES = [c + v for c in "bdfgklmnprstvwzh" for v in "aeio"]
_ENDINGS = ("n", "r", "l", "s", "nd", "st", "rk", "lm", "ton", "ker", "ler", "min", "ling", "wick", "dale", "mere")
_DIGITS = "0123456789abcdefghijkmnpqrstuvwx"


def _table(words: Sequence[str]) -> Array:
    """A row for each word, filled up with zeros."""
    return np.array([w.encode() for w in words], f"S{max(map(len, words))}").view(np.uint8).reshape(len(words), -1)


_SCHEMES = _table(("http://", "https://", "http://www.", "https://www."))  # by the variant of a site
_WORDS = _table([s + e for s in _SYLLABLES for e in _ENDINGS])
_NUMBERS = _table([str(n) for n in range(1024)])
_ENDS = _table((".example", ".example", ".co.example", ".news.example"))
_PAIRS = _table([a + b for a in _DIGITS for b in _DIGITS])
_KINDS = _table(("/", "/news/", "/products/", "/archive/2026/", "/forum/", "/en/pages/", "/people/", "/blog/"))
_TAILS = _table((".html", "", "/", ".html", ".php?id=7", ".htm", "?page=2", ".html"))


def mix(numbers: Array, salt: int = 0) -> Array:
    """64 bits that look random for each number: what belongs to a site is drawn so, in whatever order sites are asked for."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15 * (2 * salt + 1) & (1 << 64) - 1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    return np.asarray(x ^ x >> np.uint64(31))


def uniform(numbers: Array, salt: int) -> Array:
    """A number in (0, 1) for each, drawn like `mix`."""
    return np.asarray(((mix(numbers, salt) >> np.uint64(11)).astype(np.float64) + 0.5) / (1 << 53))


class Texts:
    """Some texts end to end."""

    def __init__(self, pieces: list[Array]) -> None:
        letters = np.concatenate(pieces, axis=1)
        there = letters != 0
        self.bytes: bytes = letters[there].tobytes()
        self.ends = np.cumsum(np.count_nonzero(there, axis=1), dtype=np.int64)

    def split(self) -> list[bytes]:
        return [self.bytes[a:b] for a, b in pairwise([0, *self.ends.tolist()])]


def hosts(labels: Array) -> list[Array]:
    """The pieces of the names of normalised sites."""
    x = labels.astype(np.uint64) * np.uint64(_ODD) % np.uint64(1 << LABEL_BITS)
    first, second, third = (x >> np.uint64(shift) & np.uint64(1023) for shift in (0, 10, 20))
    hyphen = np.full((len(x), 1), ord("-"), np.uint8)
    return [_WORDS[first], hyphen, _WORDS[second], _NUMBERS[third], _ENDS[first & np.uint64(3)]]


def site_names(labels: Array, variants: Array) -> Texts:
    """scheme://host of some sites."""
    return Texts([_SCHEMES[variants], *hosts(labels)])


def paths(numbers: Array) -> Texts:
    """A path for each number of 64 bits; those below 2^40, and those that are drawn at random, get different ones."""
    x = numbers.astype(np.uint64)
    pairs = [_PAIRS[x >> np.uint64(shift) & np.uint64(1023)] for shift in (0, 10, 20, 30)]
    word = _WORDS[mix(x, 1) & np.uint64(1023)]
    hyphen = np.full((len(x), 1), ord("-"), np.uint8)
    return Texts([_KINDS[x >> np.uint64(40) & np.uint64(7)], word, hyphen, *pairs, _TAILS[mix(x, 2) & np.uint64(7)]])
