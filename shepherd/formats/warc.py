"""Records of WARC/1.1, each a gzip member of its own: bytes in, bytes out (ISO 28500:2017; docs/export.md).

Nothing is drawn or looked up: a record's id is a hash of what it is about, so the same capture always is the same bytes.
export/warc.py says which records a document gives; httphead.py makes the head of a response fit the body that is stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from isal import isal_zlib

from shepherd.expressions import MessageHead

LEVEL: Final = 2  # of ISA-L: as small as zlib's 6, in a seventh of its time
TRUNCATED: Final = {b"length": b"length", b"expansion": b"length", b"incomplete": b"disconnect", b"time": b"time",
                    b"disconnect": b"disconnect"}  # fmt: skip
UNSPECIFIED: Final = b"unspecified"
IDENTICAL: Final = b"http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
HTTP_RESPONSE: Final = b"application/http; msgtype=response"
HTTP_REQUEST: Final = b"application/http; msgtype=request"
FIELDS: Final = b"application/warc-fields"
_NAMESPACE: Final = bytes.fromhex("8d0f7d3b6a5c4c1e9f4b2a7760e5c3d1")  # of our ids, as RFC 4122 has it for version 5
_DAY_S: Final = 86_400
_BEYOND_S: Final = 253_402_300_799  # the end of the year 9999, which has no five digits

_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_SHA1_BYTES: Final = 20
_LETTERS: Final = bytes.maketrans(b"abcdef", b"234567")  # from the alphabet of base 64 to that of base 32


def _spread() -> Iterator[tuple[int, int, int]]:
    """Masks and shifts that put a zero before each of 32 groups of five bits: the upper half moves, then that of each half."""
    places = [5 * number for number in range(32)]
    for half in (16, 8, 4, 2, 1):
        moving = [bool(number & half) for number in range(32)]
        groups = list(zip(places, moving, strict=True))
        masks = [sum(31 << place for place, moves in groups if moves == is_upper) for is_upper in (False, True)]
        yield masks[0], masks[1], half
        places = [place + half * moves for place, moves in groups]


_SPREAD: Final = tuple(_spread())
_END: Final = b"\r\n\r\n"  # of a record
_GZIP: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # how a member begins: deflate, and no name or time
_STORED: Final = 0xFFFF  # most bytes of a block that is not compressed
_BLOCK: Final = struct.Struct("<BHH")
_TAIL: Final = struct.Struct("<II")


@dataclass(frozen=True)
class Digests:
    """How bytes are labelled: as archives do it, in base 32."""

    name: bytes
    hash: Callable[[bytes], Any]

    def label(self, digest: bytes) -> bytes:
        return self.name + b":" + _base32(digest)

    def of(self, data: bytes) -> bytes:
        return self.label(self.hash(data).digest())


SHA1: Final = Digests(b"sha1", hashlib.sha1)
SHA256: Final = Digests(b"sha256", hashlib.sha256)


def _base32(digest: bytes) -> bytes:
    """The bits of a SHA-1 are spread so that base 64, which is done in C, finds five of them where it takes six."""
    if len(digest) != _SHA1_BYTES:
        return base64.b32encode(digest)
    bits = int.from_bytes(digest, "big")
    for low, high, shift in _SPREAD:
        bits = bits & low | (bits & high) << shift
    return binascii.b2a_base64(bits.to_bytes(24, "big"), newline=False).translate(_LETTERS)


def record_id(*parts: bytes) -> bytes:
    """The id of a record that is about these: a UUID of version 5, which is a hash."""
    text = hashlib.sha1(_NAMESPACE + b"\0".join(parts)).hexdigest()
    variant = _VARIANTS[text[16]]
    return f"<urn:uuid:{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}>".encode()


def date(time_ms: int) -> bytes:
    """As WARC-Date has it, in UTC, with milliseconds where there are some."""
    seconds, rest = divmod(time_ms, 1_000)
    whole = b"%sT%s" % _day_and_time(min(max(seconds, 0), _BEYOND_S))
    return b"%s.%03dZ" % (whole, rest) if rest else whole + b"Z"


def timestamp(time_ms: int) -> bytes:
    """The fourteen digits of an index."""
    day, time = _day_and_time(min(max(time_ms // 1_000, 0), _BEYOND_S))
    return day.replace(b"-", b"") + time.replace(b":", b"")


@lru_cache(maxsize=1 << 12)
def _day_and_time(seconds: int) -> tuple[bytes, bytes]:
    days, rest = divmod(seconds, _DAY_S)
    return str(np.datetime64(days, "D")).encode(), b"%02d:%02d:%02d" % (rest // 3_600, rest // 60 % 60, rest % 60)


def record(kind: bytes, headers: bytes, *block: bytes) -> bytes:
    """A whole record, compressed. `headers` are lines, those between the type and the length."""
    return isal_zlib.compress(b"".join((_head(kind, headers, sum(map(len, block))), *block, _END)), LEVEL, wbits=31)


def packed_record(kind: bytes, headers: bytes, head: bytes, body: bytes) -> bytes:
    """The same of a body that is compressed already: to try it again costs most of the time and wins nothing, so it is stored.

    One gzip member all the same: the heads are deflated up to a whole byte, then come stored blocks.
    """
    front = _head(kind, headers, len(head) + len(body)) + head
    packer = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, -15)
    parts = [_GZIP, packer.compress(front), packer.flush(isal_zlib.Z_SYNC_FLUSH)]
    for start in range(0, len(body), _STORED):
        part = body[start : start + _STORED]
        parts += (_BLOCK.pack(0, len(part), len(part) ^ 0xFFFF), part)
    check = isal_zlib.crc32(_END, isal_zlib.crc32(body, isal_zlib.crc32(front)))
    size = len(front) + len(body) + len(_END)
    parts += (_BLOCK.pack(1, len(_END), len(_END) ^ 0xFFFF), _END, _TAIL.pack(check, size & 0xFFFFFFFF))
    return b"".join(parts)


def _head(kind: bytes, headers: bytes, length: int) -> bytes:
    return b"WARC/1.1\r\nWARC-Type: %s\r\n%sContent-Length: %d\r\n\r\n" % (kind, headers, length)


def fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    """A block of `name: value` lines; whatever would end a line early is a blank."""
    unprintable = MessageHead.UNPRINTABLE
    lines = [f"{name}: {value if value.isprintable() else unprintable.sub(' ', value)}\r\n" for name, value in pairs if value]
    return "".join(lines).encode("utf-8", "replace")


def info(filename: str, time_ms: int, pairs: Iterable[tuple[str, str]], digests: Digests = SHA1) -> tuple[bytes, bytes]:
    """The record that a file begins with, and its id."""
    block, name = fields(pairs), filename.encode()
    own = record_id(b"warcinfo", name, block)
    headers = b"WARC-Record-ID: %s\r\nWARC-Date: %s\r\nWARC-Filename: %s\r\nWARC-Block-Digest: %s\r\nContent-Type: %s\r\n"
    return record(b"warcinfo", headers % (own, date(time_ms), name, digests.of(block), FIELDS), block), own
