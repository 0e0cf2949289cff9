"""Buckets: one document each, as bytes (docs/formats.md). All types are read, v3.3 alone is written.

A header and its attributes have one checksum, the body another: a damaged body still leaves its URL, but in v2, whose text holds
both. Read attributes.py next; oldbuckets.py only for v2 and v3.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum, IntFlag
from functools import cached_property
from typing import Final, NamedTuple

import lz4.frame
import mmh3
import numpy as np
import zstandard

from shepherd.errors import Corruption
from shepherd.formats import attributes as letters
from shepherd.formats import coding, layout, oldbuckets
from shepherd.formats.check import SEED, Bytes, check64
from shepherd.formats.vocabulary import word

MAGIC: Final = b"SHB3"
HEADER: Final = np.dtype(
    [
        ("magic", "S4"), ("type", "u1"), ("codec", "u1"), ("flags", "<u2"), ("attribute_bytes", "<u4"), ("body_bytes", "<u4"),
        ("plain_bytes", "<u4"), ("state", "<u4"), ("site", "<u8"), ("path", "<u8"), ("time_ms", "<i8"), ("check", "<u8"),
        ("body_check", "<u8"),
    ]
)  # fmt: skip
UNCHECKED: Final = layout.names_of(HEADER)[:-2]  # what stands before its two checksums
HEAD: Final = layout.struct_of(HEADER, UNCHECKED)
CHECKS: Final = layout.struct_of(HEADER, ("check", "body_check"))
_WHOLE: Final = layout.struct_of(HEADER)
HEADER_BYTES: Final = HEADER.itemsize
V2: Final = 0x20
V30: Final = 0x30
V33: Final = 0x33
V33_COMPRESSED: Final = 0x34
TEXT_TYPES: Final = (V2, V30)
MAX_ATTRIBUTES: Final = 1 << 24
MAX_BODY: Final = 1 << 30
_TODAY: Final = frozenset((MAGIC + bytes((V33,)), MAGIC + bytes((V33_COMPRESSED,))))  # how what is written today begins
_HEAD: Final = HEAD.size
_LENGTHS_AT: Final = layout.offset_of(HEADER, "attribute_bytes")
_BEHIND: Final = layout.offset_of(HEADER, "check") - layout.offset_of(HEADER, "plain_bytes")
# Of a header how it begins, the lengths of attributes and body, their checksums.
_SEALS: Final = struct.Struct(f"<5s{_LENGTHS_AT - 5}xII{_BEHIND}xQQ")
_hashes: Final = mmh3.mmh3_x64_128_utupledigest  # of the two, check64 is the first
BODY_LIMIT: Final = 1 << 28  # of a decoded body, where the caller does not say another


class Codec(IntEnum):
    NONE = 0
    LZ4 = 1
    ZSTD = 2
    GZIP_SENT = 3
    BR_SENT = 4
    ZSTD_SENT = 5
    DEFLATE_SENT = 6


_CODECS: Final = tuple(Codec)  # by number, and faster than calling the class


class BucketFlag(IntFlag):
    THIN = 1
    TOMBSTONE = 2
    TRUNCATED = 4


_BODILESS: Final = int(BucketFlag.THIN | BucketFlag.TOMBSTONE)


class Header(NamedTuple):
    """The fixed part of a bucket: enough to walk a segment without touching bodies. A tuple, because a scan makes millions."""

    type: int
    codec: Codec
    flags: int
    attribute_bytes: int
    body_bytes: int
    plain_bytes: int
    state: int
    site: int
    path: int
    time_ms: int
    check: int
    body_check: int

    @property
    def length(self) -> int:
        return HEADER_BYTES + self.attribute_bytes + self.body_bytes


class Bucket:
    """A document whose checksums hold. It is taken apart when it is first looked at: most readers want only a part of it."""

    def __init__(self, data: bytes, middle: int) -> None:
        """`data` is the whole bucket, or all of it but its body; `middle` is where its attributes end."""
        self._data, self._middle = data, middle

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bucket):
            return NotImplemented
        return (self.header, self.attributes, self.stored) == (other.header, other.attributes, other.stored)

    __hash__ = None  # type: ignore[assignment]

    @property
    def data(self) -> bytes:
        """All of its bytes as they were read."""
        return self._data

    @cached_property
    def header(self) -> Header:
        return parse_header(self._data)

    @cached_property
    def stored(self) -> bytes:
        """The body as stored; of a v2 bucket, as its lines spell it."""
        return self._data[self._middle :]

    @cached_property
    def attributes(self) -> dict[str, bytes]:
        """Contents by letter."""
        try:
            return letters.read_records(self._data[HEADER_BYTES : self._middle])
        except ValueError as error:  # it checks, so it was written so
            raise Corruption(str(error), f"the bucket of footprint {self.header.site:016x} {self.header.path:016x}") from error

    @property
    def url(self) -> str:
        """Corruption where it has none: every bucket has one."""
        url = self.attributes.get("U", b"")
        if not url or not url.isascii():
            raise Corruption(f"the bucket of footprint {self.header.site:016x} {self.header.path:016x} has no URL")
        return url.decode("ascii")

    def body(self, limit: int = BODY_LIMIT) -> bytes:
        """The decoded body, at most `limit` bytes of it."""
        body = decode(self.header.codec, self.stored, limit)
        if len(body) != min(self.header.plain_bytes, limit):
            raise Corruption(f"the body of {self.url} has {len(body)} bytes, where its header says {self.header.plain_bytes}")
        return body


def pack(
    *,
    site: int,
    path: int,
    time_ms: int,
    state: int,
    attributes: Iterable[tuple[str, bytes]],
    body: bytes = b"",
    codec: Codec = Codec.NONE,
    plain_bytes: int | None = None,
    flags: int = 0,
) -> bytes:
    """A whole bucket. `body` is already coded as `codec` says; `plain_bytes` is its length decoded, if that is another."""
    table = letters.pack_records(attributes)
    kind = V33 if codec == Codec.NONE else V33_COMPRESSED
    plain = len(body) if plain_bytes is None else plain_bytes
    head = HEAD.pack(MAGIC, kind, codec, flags, len(table), len(body), plain, state, site, path, time_ms)
    return b"".join((head, CHECKS.pack(check64(head, table), check64(body)), table, body))


def thin(site: int, path: int, time_ms: int, state: int, url: str) -> bytes:
    """A bucket that knows its URL and nothing else yet."""
    return pack(
        site=site, path=path, time_ms=time_ms, state=state, attributes=[("U", url.encode("ascii"))], flags=BucketFlag.THIN
    )


def tombstone(site: int, path: int, time_ms: int, state: int, url: str, by: str) -> bytes:
    """A bucket that says that the document was deleted, and `by` whom: whoever rebuilds the index leaves it deleted."""
    attributes = [("U", url.encode("ascii")), ("P", by.encode())]
    return pack(site=site, path=path, time_ms=time_ms, state=state, attributes=attributes, flags=_BODILESS)


def parse_header(data: Bytes, offset: int = 0, where: str = "bucket") -> Header:
    """The fixed header alone; only its shape is judged here, its checksum needs the attributes."""
    if offset + HEADER_BYTES > len(data):
        raise Corruption("the header is cut off", where, offset)
    fields = _WHOLE.unpack_from(data, offset)
    magic, kind, codec, flags, table, body, plain, state, site, path, time_ms, check, body_check = fields
    if (
        magic != MAGIC
        or table > MAX_ATTRIBUTES
        or body > MAX_BODY
        or not _is_shape(kind, codec, body, plain)
        or (flags & _BODILESS and (body or plain))
    ):
        raise Corruption("no bucket header", where, offset)
    values = (kind, _CODECS[codec], flags, table, body, plain, state, site, path, time_ms, check, body_check)
    return tuple.__new__(Header, values)  # what Header(...) does, but without a call of a Python function


def _is_shape(kind: int, codec: int, body: int, plain: int) -> bool:
    """Whether codec and lengths are possible in this type."""
    if kind == V33_COMPRESSED:
        return 0 < codec < len(_CODECS)
    if kind == V2:
        return not codec and not body
    return kind in (V33, V30) and not codec and body == plain


def parse(data: Bytes, offset: int = 0, where: str = "bucket", with_body: bool = True) -> Bucket:
    """A bucket out of the bytes of a segment, every checksum verified of what is read, and every attribute in its place."""
    bucket = parse_behind(parse_header(data, offset, where), data, offset, where, with_body)
    try:
        _ = bucket.attributes
    except Corruption as error:
        raise Corruption(error.what, where, offset) from error
    return bucket


def read_whole(data: bytes) -> Bucket | None:
    """The bucket that these bytes are from first to last, if it is one of today and sound; else `parse` says what is wrong.

    A random read is a pread and this, so it is written out. A header that checks is as it was written: it is not judged again.
    """
    if len(data) < HEADER_BYTES:
        return None
    beginning, attributes, body, check, body_check = _SEALS.unpack_from(data)
    middle = HEADER_BYTES + attributes
    if (
        beginning in _TODAY
        and middle + body == len(data)
        and _hashes(data[:_HEAD] + data[HEADER_BYTES:middle], SEED)[0] == check
        and _hashes(memoryview(data)[middle:], SEED)[0] == body_check
    ):
        return Bucket(data, middle)
    return None


def sound_until(data: bytes) -> int:
    """Where those buckets end that lie end to end from the first of these bytes on, each of today and sound.

    As `read_whole`, for millions of them; `parse` says what is wrong with the next.
    """
    offset, size, view, unpack, today, hashes = 0, len(data), memoryview(data), _SEALS.unpack_from, _TODAY, _hashes
    last = size - HEADER_BYTES
    while offset <= last:
        beginning, attributes, body, check, body_check = unpack(data, offset)
        start = offset + HEADER_BYTES
        middle = start + attributes
        end = middle + body
        if (
            beginning not in today
            or end > size
            or hashes(data[offset : offset + _HEAD] + data[start:middle], SEED)[0] != check
            or hashes(view[middle:end], SEED)[0] != body_check
        ):
            break
        offset = end
    return offset


def parse_behind(header: Header, data: Bytes, offset: int = 0, where: str = "bucket", with_body: bool = True) -> Bucket:
    """The bucket of a header that was read already; every checksum is verified, the attributes are not taken apart yet."""
    start = offset + HEADER_BYTES
    middle = start + header.attribute_bytes
    end = middle + header.body_bytes
    if (end if with_body else middle) > len(data):
        raise Corruption("the bucket is cut off", where, offset)
    if check64(bytes(data[offset : offset + _HEAD]) + bytes(data[start:middle])) != header.check:  # quicker than two parts
        raise Corruption("header or attributes are damaged", where, offset)
    if with_body and check64(memoryview(data)[middle:end]) != header.body_check:
        raise Corruption("the body is damaged", where, offset)
    bucket = Bucket(bytes(data[offset : end if with_body else middle]), middle - offset)
    bucket.header = header
    if header.type in TEXT_TYPES:
        try:
            bucket.attributes, bucket.stored = _old(header, bytes(data[start:middle]), bucket.stored, with_body)
        except ValueError as error:
            raise Corruption(str(error), where, offset) from error
    return bucket


def _old(header: Header, text: bytes, body: bytes, with_body: bool) -> tuple[dict[str, bytes], bytes]:
    """Attributes that are text, and the body. Footprint and time, where the text has them, must be those of the header."""
    if header.type == V2:
        attributes, body = oldbuckets.read_v2(text, with_body)
        if with_body and len(body) != header.plain_bytes:
            raise ValueError(f"the lines spell a body of {len(body)} bytes, where the header says {header.plain_bytes}")
    else:
        attributes = oldbuckets.read_v30(text)
    same = {"F": struct.pack("<QQ", header.site, header.path), "G": struct.pack("<q", header.time_ms)}
    for letter, expected in same.items():
        if attributes.pop(letter, expected) != expected:
            raise ValueError(f"the {letters.TABLE[letter].name} in the text is not that of the header")
    return attributes, body


def compress(body: bytes, how: str) -> tuple[Codec, bytes]:
    """The body as it should be stored: compressed where that wins at least an eighth, plain otherwise."""
    if how == "lz4":
        packed, codec = lz4.frame.compress(body), Codec.LZ4
    elif how == "zstd":
        packed, codec = zstandard.compress(body, 3), Codec.ZSTD
    else:
        return Codec.NONE, body
    return (codec, packed) if len(packed) <= len(body) - len(body) // 8 else (Codec.NONE, body)


_AS_SENT: Final = {
    Codec.GZIP_SENT: "gzip",
    Codec.BR_SENT: "br",
    Codec.ZSTD_SENT: "zstd",
    Codec.DEFLATE_SENT: "deflate",
    Codec.ZSTD: "zstd",
}


def decode(codec: Codec, stored: bytes, limit: int) -> bytes:
    """At most `limit` bytes of the decoded body; a stream that cannot be read is Corruption."""
    try:
        if codec == Codec.NONE:
            return stored[:limit]
        if codec == Codec.LZ4:
            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(stored, max_length=limit))
        return coding.decode(stored, _AS_SENT[codec], limit)[0]
    except (RuntimeError, EOFError, coding.DecodeError) as error:
        raise Corruption(f"a body does not decode as {word(codec)}: {error}") from error
