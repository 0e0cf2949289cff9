"""A 64-bit simhash of a text: texts that differ little have hashes that differ in few bits (cycle/equiv/rules.py).

Each bit is the majority of that bit in the hashes of all words, so a word that occurs often counts often. Short words are left
out, because in most languages they are the ones that all texts share. Integers only: every machine gives the same. Languages
without blanks have long words, so their texts are distinguished less finely.

A word's hash is a polynomial of its bytes, because the hashes of all words are then differences of one row of sums: no word ever
becomes an object. Whoever wants to can make words of the same hash, as with any hash without a key.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from shepherd.formats.tables import I64, U64

MAX_BYTES: Final = 64 * 1024  # of a text that are looked at
MAX_WORDS: Final = 1_024  # the same; each costs about 0.06 us
SHORT: Final = 3  # bytes
_FIRST_BYTES: Final = 8 * 1024  # in which most texts have so many words
_BLANK: Final = 0x20  # and everything below it

_FACTOR: Final = 0xD6E8FEB86659FD93
_MIX: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST: Final = np.uint64(31)
_SHIFTS: Final = np.arange(8, dtype=np.uint64)[:, None]
_LOWEST: Final = np.uint64(0x0101010101010101)  # the lowest bit of each byte
_ROOM: Final = 255  # bits that a byte can count


def _powers(factor: int) -> U64:
    factors = np.full(MAX_BYTES + 2, factor, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


_POWERS: Final = _powers(_FACTOR)
_UNDONE: Final = _powers(pow(_FACTOR, -1, 1 << 64))  # modulo 2^64 an odd factor can be undone


def simhash(text: bytes) -> int | None:
    """The simhash of the beginning of a text in UTF-8; None where it has no words."""
    size = _FIRST_BYTES
    begins, ends, sums = _words(text[:size])
    while len(begins) <= MAX_WORDS and size < min(len(text), MAX_BYTES):
        size *= 2
        begins, ends, sums = _words(text[:size])
    begins, ends = begins[:MAX_WORDS], ends[:MAX_WORDS]
    counting = np.flatnonzero(ends - begins > SHORT)
    if not len(counting):
        return None
    begins, ends = begins[counting], ends[counting]
    hashes = _spread((sums[ends] - sums[begins]) * _UNDONE[begins])
    majority = 2 * _ones(hashes) > len(hashes)
    return int.from_bytes(np.packbits(majority, bitorder="little").tobytes(), "little")


def _words(text: bytes) -> tuple[I64, I64, U64]:
    """The places before the first and at the last byte of each word, and the sums of all bytes up to each place."""
    read = np.frombuffer(b" %b " % text.lower(), np.uint8)
    within = read > _BLANK
    edges = np.flatnonzero(within[1:] != within[:-1])
    return edges[::2], edges[1::2], np.cumsum(read * _POWERS[: len(read)], dtype=np.uint64)


def _spread(hashes: U64) -> U64:
    """Each bit made to depend on all (the finaliser of splitmix64)."""
    for shift, factor in _MIX:
        hashes = (hashes ^ (hashes >> shift)) * factor
    return hashes ^ (hashes >> _LAST)


def _ones(hashes: U64) -> I64:
    """How many of the hashes have each bit: bits are added in place, eight at a time, while a byte has room for the count."""
    lanes = (hashes >> _SHIFTS) & _LOWEST
    sums = np.add.reduceat(lanes, range(0, len(hashes), _ROOM), axis=1).astype("<u8")
    counts = sums.view(np.uint8).reshape(8, -1, 8).sum(axis=1, dtype=np.int64)  # by shift and byte
    return np.asarray(counts.T.ravel())
