"""Buckets: one document each, as bytes (docs/formats.md). Written and read: v3.3, with or without a compressed body.

A header and its attributes have one checksum, the body another: a damaged body still leaves its URL.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

import lz4.frame
import zstandard

from shepherd.errors import Corruption
from shepherd.formats import coding
from shepherd.formats.check import Bytes, check64

MAGIC: Final = b"SHB3"
HEAD: Final = struct.Struct("<4sBBHIIIIQQq")
CHECKS: Final = struct.Struct("<QQ")
HEADER_BYTES: Final = HEAD.size + CHECKS.size
V33: Final = 0x33
V33_COMPRESSED: Final = 0x34
MAX_ATTRIBUTES: Final = 1 << 24
MAX_BODY: Final = 1 << 30


class Codec(IntEnum):
    NONE = 0
    LZ4 = 1
    ZSTD = 2
    GZIP_SENT = 3
    BR_SENT = 4
    ZSTD_SENT = 5
    DEFLATE_SENT = 6


class BucketFlag(IntFlag):
    THIN = 1
    TOMBSTONE = 2
    TRUNCATED = 4


@dataclass(frozen=True)
class Header:
    """The fixed part of a bucket: enough to walk a segment without touching bodies."""

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


@dataclass(frozen=True)
class Bucket:
    header: Header
    attributes: dict[str, bytes]
    stored: bytes  # the body as stored

    @property
    def url(self) -> str:
        return self.attributes["U"].decode("ascii")

    def body(self, limit: int = 1 << 28) -> bytes:
        """The decoded body, at most `limit` bytes of it."""
        return decode(self.header.codec, self.stored, limit)


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
    table = b"".join(b"".join((struct.pack("<I", len(text)), text, letter.encode())) for letter, text in attributes)
    kind = V33 if codec == Codec.NONE else V33_COMPRESSED
    plain = len(body) if plain_bytes is None else plain_bytes
    head = HEAD.pack(MAGIC, kind, codec, flags, len(table), len(body), plain, state, site, path, time_ms)
    return b"".join((head, CHECKS.pack(check64(head, table), check64(body)), table, body))


def thin(site: int, path: int, time_ms: int, state: int, url: str) -> bytes:
    """A bucket that knows its URL and nothing else yet."""
    return pack(
        site=site, path=path, time_ms=time_ms, state=state, attributes=[("U", url.encode("ascii"))], flags=BucketFlag.THIN
    )


def parse_header(data: Bytes, offset: int = 0, where: str = "bucket") -> Header:
    """The fixed header alone; only its shape is judged here, its checksum needs the attributes."""
    if offset + HEADER_BYTES > len(data):
        raise Corruption(f"{where} at {offset}: the header is cut off")
    magic, kind, codec, flags, attrs, body, plain, state, site, path, time_ms = HEAD.unpack_from(data, offset)
    check, body_check = CHECKS.unpack_from(data, offset + HEAD.size)
    if (
        magic != MAGIC
        or kind not in (V33, V33_COMPRESSED)
        or attrs > MAX_ATTRIBUTES
        or body > MAX_BODY
        or codec > Codec.DEFLATE_SENT
    ):
        raise Corruption(f"{where} at {offset}: no bucket header")
    return Header(kind, Codec(codec), flags, attrs, body, plain, state, site, path, time_ms, check, body_check)


def parse(data: Bytes, offset: int = 0, where: str = "bucket", with_body: bool = True) -> Bucket:
    """A bucket out of the bytes of a segment, every checksum verified of what is read."""
    header = parse_header(data, offset, where)
    view = memoryview(data)
    start = offset + HEADER_BYTES
    middle = start + header.attribute_bytes
    end = middle + header.body_bytes
    if (end if with_body else middle) > len(view):
        raise Corruption(f"{where} at {offset}: the bucket is cut off")
    if check64(view[offset : offset + HEAD.size], view[start:middle]) != header.check:
        raise Corruption(f"{where} at {offset}: header or attributes are damaged")
    body = bytes(view[middle:end]) if with_body else b""
    if with_body and check64(body) != header.body_check:
        raise Corruption(f"{where} at {offset}: the body is damaged")
    return Bucket(header, dict(_attributes(view[start:middle], where, offset)), body)


def _attributes(view: memoryview, where: str, offset: int) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(view):
        if at + 5 > len(view):
            raise Corruption(f"{where} at {offset}: an attribute is cut off")
        (length,) = struct.unpack_from("<I", view, at)
        end = at + 4 + length
        if end >= len(view):
            raise Corruption(f"{where} at {offset}: an attribute runs over the end")
        yield chr(view[end]), bytes(view[at + 4 : end])
        at = end + 1


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
