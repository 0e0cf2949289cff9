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
import zstandard

from shepherd.errors import Corruption
from shepherd.formats import attributes as letters
from shepherd.formats import coding, oldbuckets
from shepherd.formats.check import Bytes, check64

MAGIC: Final = b"SHB3"
HEAD: Final = struct.Struct("<4sBBHIIIIQQq")
CHECKS: Final = struct.Struct("<QQ")
_WHOLE: Final = struct.Struct("<4sBBHIIIIQQqQQ")
HEADER_BYTES: Final = _WHOLE.size
V2: Final = 0x20
V30: Final = 0x30
V33: Final = 0x33
V33_COMPRESSED: Final = 0x34
TEXT_TYPES: Final = (V2, V30)
MAX_ATTRIBUTES: Final = 1 << 24
MAX_BODY: Final = 1 << 30
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
    """A document. Its attributes are taken apart when they are first looked at: many readers want only the body."""

    def __init__(self, header: Header, table: bytes, stored: bytes) -> None:
        self.header = header
        self.stored = stored  # the body as stored; of a v2 bucket, as its lines spell it
        self._table = table

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bucket):
            return NotImplemented
        return (self.header, self.attributes, self.stored) == (other.header, other.attributes, other.stored)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def attributes(self) -> dict[str, bytes]:
        """Contents by letter."""
        try:
            return letters.read_records(self._table)
        except ValueError as error:  # it checks, so it was written so
            raise Corruption(f"the bucket of footprint {self.header.site:016x} {self.header.path:016x}: {error}") from error

    @property
    def url(self) -> str:
        """Corruption where there is none: no bucket is without."""
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
        raise Corruption(f"{where} at {offset}: the header is cut off")
    magic, kind, codec, flags, table, body, plain, *rest = _WHOLE.unpack_from(data, offset)
    if (
        magic != MAGIC
        or codec > Codec.DEFLATE_SENT
        or table > MAX_ATTRIBUTES
        or body > MAX_BODY
        or not _is_shape(kind, codec, body, plain)
        or (flags & _BODILESS and (body or plain))
    ):
        raise Corruption(f"{where} at {offset}: no bucket header")
    return Header(kind, _CODECS[codec], flags, table, body, plain, *rest)


def _is_shape(kind: int, codec: int, body: int, plain: int) -> bool:
    """Whether codec and lengths are possible in this type."""
    if kind == V33_COMPRESSED:
        return codec != Codec.NONE
    if kind == V2:
        return codec == Codec.NONE and not body
    return kind in (V33, V30) and codec == Codec.NONE and body == plain


def parse(data: Bytes, offset: int = 0, where: str = "bucket", with_body: bool = True) -> Bucket:
    """A bucket out of the bytes of a segment, every checksum verified of what is read, and every attribute in its place."""
    one = parse_behind(parse_header(data, offset, where), data, offset, where, with_body)
    try:
        _ = one.attributes
    except Corruption as error:
        raise Corruption(f"{where} at {offset}: {str(error).partition(': ')[2]}") from error
    return one


def parse_behind(header: Header, data: Bytes, offset: int = 0, where: str = "bucket", with_body: bool = True) -> Bucket:
    """The bucket of a header that was read already; every checksum is verified, the attributes are not taken apart yet."""
    start = offset + HEADER_BYTES
    middle = start + header.attribute_bytes
    end = middle + header.body_bytes
    if (end if with_body else middle) > len(data):
        raise Corruption(f"{where} at {offset}: the bucket is cut off")
    table = bytes(data[start:middle])
    if check64(bytes(data[offset : offset + HEAD.size]) + table) != header.check:  # one call is quicker than two parts
        raise Corruption(f"{where} at {offset}: header or attributes are damaged")
    body = bytes(data[middle:end]) if with_body else b""
    if with_body and check64(body) != header.body_check:
        raise Corruption(f"{where} at {offset}: the body is damaged")
    try:
        if header.type in TEXT_TYPES:
            return _old(header, table, body, with_body)
        return Bucket(header, table, body)
    except ValueError as error:
        raise Corruption(f"{where} at {offset}: {error}") from error


def _old(header: Header, text: bytes, body: bytes, with_body: bool) -> Bucket:
    """A bucket whose attributes are text. Footprint and time, where the text has them, must be those of the header."""
    if header.type == V2:
        found, body = oldbuckets.read_v2(text, with_body)
        if with_body and len(body) != header.plain_bytes:
            raise ValueError(f"the lines spell a body of {len(body)} bytes, where the header says {header.plain_bytes}")
    else:
        found = oldbuckets.read_v30(text)
    same = {"F": struct.pack("<QQ", header.site, header.path), "G": struct.pack("<q", header.time_ms)}
    for letter, expected in same.items():
        if found.pop(letter, expected) != expected:
            raise ValueError(f"the {letters.TABLE[letter].name} in the text is not that of the header")
    old = Bucket(header, b"", body)
    old.attributes = found
    return old


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
        raise Corruption(f"a body does not decode as {codec.name.lower()}: {error}") from error
